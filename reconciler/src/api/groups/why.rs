//! `fleet.why`: what a machine or a command waits for, since when, and who can lift it.

use schema::{
    command::CommandState,
    id::{BatchId, CommandId},
    object::{Kind, ObjectRef},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{
    audit, batches, commands, joins, node_certs, node_holds, node_sections, nodes, outcomes, queue, rows::UNREADABLE,
    sessions, trust,
};

use super::brakes;
use crate::{
    api::{ApiError, App, Code},
    why::{self, Area, Keeps, Wait},
};

/// About what.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct About {
    /// `node/NAME`, a node's id or name, `batch/NAME` or a batch's id, a command's id, or `audit`.
    subject: String,
}

/// Why it stands.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Why {
    /// `node/NAME`, `batch/NAME`, the command's id or `audit`.
    subject: String,
    /// Where it stands, in one line.
    summary: String,
    /// Nothing is in its way.
    clear: bool,
    /// What has to happen first; what stands in front of everything else comes first.
    waits: Vec<Wait>,
}

pub(in crate::api) async fn why(app: &App, input: About) -> Result<Why, ApiError> {
    let subject = input.subject.clone();
    match about(app, input).await {
        // What cannot be read is what it waits for.
        Err(error) if error.code() == Code::RowUnreadable => {
            let is_work = subject.starts_with("batch") || subject.starts_with(CommandId::PREFIX);
            let keeps = if is_work { Keeps::Command } else { Keeps::DesiredState };
            let waits = vec![Wait::new(Area::Work, UNREADABLE, keeps, error.message())];
            Ok(Why { subject, summary: "what is stored about it cannot be read".to_owned(), clear: false, waits })
        }
        answer => answer,
    }
}

async fn about(app: &App, input: About) -> Result<Why, ApiError> {
    if input.subject.starts_with(CommandId::PREFIX) {
        return of_command(app, super::parse("subject", &input.subject)?).await;
    }
    if input.subject.parse::<BatchId>().is_ok() || input.subject.starts_with("batch/") {
        return of_batch(app, &input.subject).await;
    }
    if input.subject == queue::AUDIT.name {
        return of_audit(app).await;
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
            holds: &node_holds::list(&app.db, node.id).await?.items,
            gates: &brakes::gates_of_node(app, &node).await?,
            sections: &node_sections::list(&app.db, node.id).await?,
            outcomes: &outcomes::of_key(&app.db, &node.id.to_string()).await?.items,
            open_commands: commands::count_open(&app.db, node.id).await?,
            renewal: joins::waiting_renewal(&app.db, node.id).await?.as_ref(),
            certificate_ends: node_certs::newest_end(&app.db, node.id).await?,
            revoked: node_certs::revocation(&app.db, node.id).await?,
            policy: match app.pinned.get() {
                Some(_) => Some(trust::held(&app.db, node.id).await?),
                None => None,
            },
            outside: &outside(app, now).await?,
        },
        now,
    );
    let accepts = match node_certs::allowed_kinds(&app.db, node.id).await? {
        Some(kinds) if !kinds.is_empty() => format!(", accepts {} alone", kinds.join(", ")),
        _ => String::new(),
    };
    let pool = node.pool.as_ref().map_or_else(|| "no pool".to_owned(), |pool| format!("pool/{pool}"));
    Ok(Why {
        subject: format!("node/{}", node.name),
        summary: format!(
            "{pool}, {}, {}, generation {} of {} observed{accepts}",
            node.provision, node.connectivity, node.observed, node.generation
        ),
        clear: waits.iter().all(|wait| wait.keeps == Keeps::Nothing),
        waits,
    })
}

/// Gateways that get in no more by themselves.
async fn outside(app: &App, now: Timestamp) -> Result<Vec<String>, ApiError> {
    let holders = store::key_holders::list(&app.db).await?.items;
    Ok(holders.into_iter().filter(|holder| app.is_outside(holder, now)).map(|holder| holder.name).collect())
}

async fn of_batch(app: &App, said: &str) -> Result<Why, ApiError> {
    let found = super::batches::find(app, said).await;
    let name = match &found {
        Ok(batch) => batch.new.name.to_string(),
        Err(_) => said.strip_prefix("batch/").unwrap_or(said).to_owned(),
    };
    let mut asks = batches::asks(&app.db).await?.items;
    asks.retain(|ask| ask.new.name == name);
    let (subject, mut waits) = (format!("batch/{name}"), why::asks(&asks));
    let batch = match (found, asks.first()) {
        (Ok(batch), _) => batch,
        (Err(error), None) => return Err(error),
        (Err(_), Some(ask)) => {
            return Ok(Why { subject, summary: format!("a {} that is no batch", ask.origin), clear: false, waits });
        }
    };
    let mut txn = app.db.snapshot().await?;
    let leaves = batches::leaves(&mut txn, batch.id).await?;
    drop(txn);
    let outcome = outcomes::find(&app.db, queue::BATCH.name, &name).await?;
    waits.splice(0..0, why::batch(&why::BatchFacts { batch: &batch, leaves: &leaves, outcome: outcome.as_ref() }));
    if !batch.state.is_terminal()
        && let Some(standing) = super::batches::standing_of(app, &batch).await?
    {
        let refused = standing.tally.as_ref().map_or(&standing.lapsed, |tally| &tally.refused);
        waits.extend(why::votes(&batch.new.name, refused));
    }
    Ok(Why {
        subject,
        summary: match leaves.len() {
            1 => format!("{} on 1 machine, {}", batch.new.kind, batch.state),
            count => format!("{} on {count} machines, {}", batch.new.kind, batch.state),
        },
        clear: waits.iter().all(|wait| wait.keeps == Keeps::Nothing),
        waits,
    })
}

/// Whether the audit log is chained and signed.
async fn of_audit(app: &App) -> Result<Why, ApiError> {
    let audit::Standing { chained, signed, tail } = audit::standing(&app.db).await?;
    let outcome = outcomes::find(&app.db, queue::AUDIT.name, "all").await?;
    let stands = outcome.filter(|outcome| matches!(outcome.state.as_str(), "wait" | "error"));
    let waits: Vec<Wait> = stands.iter().map(why::audit).collect();
    Ok(Why {
        subject: queue::AUDIT.name.to_owned(),
        summary: format!("{chained} lines chained, {signed} of them signed, {tail} to come"),
        clear: waits.is_empty(),
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
