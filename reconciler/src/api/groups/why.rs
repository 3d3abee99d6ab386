//! `fleet.why`: what a machine or a command waits for, since when, and who can lift it.

use schema::{
    command::CommandState,
    id::{BatchId, CommandId},
    object::{Kind, ObjectRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    batches, commands, node_certs, node_holds, node_sections, nodes, outcomes, queue,
    revisions::{self, ObjectState},
    sessions, trust,
};

use super::brakes;
use crate::{
    api::{ApiError, App},
    why::{self, Wait},
};

/// About what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct About {
    /// `node/NAME`, a node's id or name, `batch/NAME` or a batch's id, or a command's id.
    subject: String,
}

/// Why it stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Why {
    /// `node/NAME`, `batch/NAME` or the command's id.
    subject: String,
    /// Where it stands, in one line.
    summary: String,
    /// Nothing is in its way.
    clear: bool,
    /// What has to happen first; what stands in front of everything else comes first.
    waits: Vec<Wait>,
}

pub(in crate::api) async fn why(app: &App, input: About) -> Result<Why, ApiError> {
    if let Ok(id) = input.subject.parse::<CommandId>() {
        return of_command(app, id).await;
    }
    if input.subject.parse::<BatchId>().is_ok() || input.subject.starts_with("batch/") {
        return of_batch(app, &input.subject).await;
    }
    let named = match input.subject.parse::<ObjectRef>() {
        Ok(object) if object.kind == Kind::Node => object.name.to_string(),
        Ok(_) => {
            return Err(ApiError::field(
                "subject",
                "it is node/NAME, a node's name or id, batch/NAME, or a command's id (cmd_…)",
            ));
        }
        Err(_) => input.subject,
    };
    of_node(app, &named).await
}

async fn of_node(app: &App, named: &str) -> Result<Why, ApiError> {
    let node = super::nodes::find(app, named).await?;
    let now = app.db.now().await?;
    let waits = why::node(
        &why::NodeFacts {
            node: &node,
            holds: &node_holds::list(&app.db, node.id).await?,
            gates: &brakes::gates_of_node(app, &node).await?,
            sections: &node_sections::list(&app.db, node.id).await?,
            outcomes: &outcomes::of_key(&app.db, &node.id.to_string()).await?,
            open_commands: commands::count_open(&app.db, node.id).await?,
            certificate_ends: node_certs::newest_end(&app.db, node.id).await?,
            revoked: node_certs::revocation(&app.db, node.id).await?,
            policy: match app.pinned.get() {
                Some(_) => Some(trust::held(&app.db, node.id).await?),
                None => None,
            },
        },
        now,
    );
    let pool = node.pool.as_ref().map_or_else(|| "no pool".to_owned(), |pool| format!("pool/{pool}"));
    Ok(Why {
        subject: format!("node/{}", node.name),
        summary: format!(
            "{pool}, {}, {}, generation {} of {} observed",
            node.provision, node.connectivity, node.observed, node.generation
        ),
        clear: waits.iter().all(|wait| wait.keeps == why::Keeps::Nothing),
        waits,
    })
}

async fn of_batch(app: &App, said: &str) -> Result<Why, ApiError> {
    let batch = super::batches::find(app, said).await?;
    let mut txn = app.db.snapshot().await?;
    let leaves = batches::leaves(&mut txn, batch.id).await?;
    drop(txn);
    let name = batch.new.name.as_str();
    let outcome = outcomes::find(&app.db, queue::BATCH.name, name).await?;
    let object = ObjectRef::new(Kind::Batch, batch.new.name.clone());
    let in_force = revisions::find_object(&app.db, &object).await?;
    let waits = why::batch(&why::BatchFacts {
        batch: &batch,
        leaves: &leaves,
        outcome: outcome.as_ref(),
        text_differs: in_force
            .is_some_and(|object| object.state == ObjectState::Declared && object.digest != batch.document),
    });
    Ok(Why {
        subject: format!("batch/{name}"),
        summary: format!("{} on {} machines, {}", batch.new.kind, leaves.len(), batch.state),
        clear: waits.iter().all(|wait| wait.keeps == why::Keeps::Nothing),
        waits,
    })
}

async fn of_command(app: &App, id: CommandId) -> Result<Why, ApiError> {
    let command = commands::find(&app.db, id).await?.ok_or_else(|| ApiError::not_found(format!("command {id}")))?;
    let node = nodes::find(&app.db, command.node_id).await?;
    let session = sessions::find(&app.db, command.node_id).await?;
    let updates = commands::updates(&app.db, command.node_id).await?;
    let now = app.db.now().await?;
    let waits = why::command(
        &why::CommandFacts {
            command: &command,
            node: node.as_ref(),
            ahead: &commands::ahead(&app.db, &command).await?,
            speaks_commands: session.map(|session| session.commands),
            withheld: commands::withheld(&app.db, id).await?.as_deref(),
            has_update: updates.iter().any(|stored| stored.update.id == id),
            session: outcomes::find(&app.db, "session", &command.node_id.to_string()).await?.as_ref(),
        },
        now,
    );
    let name = node.map_or_else(|| command.node_id.to_string(), |node| node.name.to_string());
    Ok(Why {
        subject: id.to_string(),
        summary: format!("{} on {name}, {}", command.kind, command.state),
        clear: command.state == CommandState::Succeeded,
        waits,
    })
}
