//! `audit`: who did what, and the log as a file that proves itself.

use pki::audit::{Checkpoint, Export, ExportEnd, link};
use schema::{id::NodeId, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{audit, outcomes, queue};

use super::{At, Nothing, PageOf};
use crate::{
    api::{ApiError, App, Code, table::Mutation},
    audit::{
        OUTSIDE_KEY,
        look::{self, ALTERED, OUTSIDE, Outside},
        mend, row,
    },
};

mod receipt;

pub(in crate::api) use receipt::receipt;

/// About so many lines are exported in one answer.
const AT_ONCE: usize = 4_000;

/// Which lines are wanted; all of them when nothing is said.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// Of this subject: `node/NAME`, an id, `batch/NAME`, `policy/EPOCH`, a source.
    subject: Option<String>,
    /// Of this actor: a token's name, `source`, a machine's id; or a person of the trust policy, with all that follows from
    /// what they signed.
    actor: Option<String>,
    /// Of this action, for example `nodes.cordon`, or of all of a group, for example `nodes`.
    action: Option<String>,
    /// Not before this time, RFC 3339.
    since: Option<String>,
    /// How many at most, 1 to 1000; 100 when left out.
    limit: Option<u32>,
    /// The `next` of the page before.
    before: Option<String>,
}

/// A line of the log.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Line {
    /// Its id.
    id: String,
    /// When.
    at: At,
    /// Who.
    actor: String,
    /// Did what.
    action: String,
    /// To what.
    subject: String,
    /// The rest.
    detail: Value,
    /// It is not what was chained: somebody changed it in the database, and an operator had it set aside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aside: bool,
}

/// How far the log is bound.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Standing {
    /// Lines that are chained.
    chained: u64,
    /// Lines that a signed checkpoint stands by.
    signed: u64,
    /// Lines that are not chained yet.
    tail: u64,
    /// Why no line is chained or signed any more: what somebody changed in the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    altered: Option<String>,
    /// Lines that are in no chain, as of the last look, which is every few minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<String>,
}

/// From where the file goes on.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(in crate::api) struct From {
    /// The `next` of the part before; the file begins when left out.
    from: Option<u64>,
}

/// A part of the file.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Part {
    /// Whole lines, to put behind those of the part before.
    text: String,
    /// Pass it as `from` for the next part; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    /// The first line of this part that is not what was chained: the file is refused at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    altered: Option<AlteredLine>,
    /// On the last part: lines that the database has, and that are in no chain. The end of the file says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<OutsideView>,
}

/// Lines that are in no chain.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct OutsideView {
    /// How many.
    count: u64,
    /// The ids of the first of them.
    ids: Vec<String>,
}

/// A line that somebody changed in the database after it was chained.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct AlteredLine {
    /// Its place.
    pos: u64,
    /// Its id.
    id: String,
}

/// Why the chain goes on without what somebody wrote into it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Mend {
    /// Why, and what was found.
    reason: String,
    /// Who answers for it; the token's name when it is absent.
    owner: Option<String>,
}

/// What was set aside. The log has a line that says the same.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct MendView {
    /// The checkpoint that the chain goes on from; absent when it begins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint: Option<u64>,
    /// The lines that it stands by.
    rows: u64,
    /// Lines behind it that were as they were chained, and are chained anew.
    again: usize,
    /// How many lines were set aside.
    lines: usize,
    /// The first of them, with their places and texts.
    named: Value,
    /// How many checkpoints were set aside.
    checkpoints: usize,
    /// How many lines were set aside that were in no chain.
    outside: usize,
    /// The first of them, with their ids and texts.
    outside_named: Value,
}

async fn found(app: &App, name: &str) -> Result<NodeId, ApiError> {
    let node = super::nodes::find(app, name).await.map_err(|error| match error.code() {
        Code::NotFound => error
            .why("a machine that was deleted goes by its id here, node/node_…: `audit --action nodes.delete` has it"),
        _ => error,
    })?;
    Ok(node.id)
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<Line>, ApiError> {
    let limit = super::limit_up_to(1_000, input.limit)?;
    let since: Option<Timestamp> = input.since.as_deref().map(|text| super::parse("since", text)).transpose()?;
    let before: Option<i64> = input.before.as_deref().map(|text| super::parse("before", text)).transpose()?;
    let subject = match input.subject {
        Some(subject) => Some(match subject.strip_prefix("node/") {
            // The log knows machines by their ids: names move on.
            Some(name) => match name.parse::<NodeId>() {
                Ok(id) => id.to_string(),
                Err(_) => found(app, name).await?.to_string(),
            },
            None => subject,
        }),
        None => None,
    };
    let filter = audit::Filter { subject, actor: input.actor, action: input.action, since, before };
    let lines = audit::search(&app.db, &filter, limit).await?;
    let next = lines.last().filter(|_| lines.len() >= limit as usize).map(|line| line.seq.to_string());
    let aside = audit::were_set_aside(&app.db, &lines.iter().map(|line| line.seq).collect::<Vec<_>>()).await?;
    let items = lines
        .into_iter()
        .map(|line| Line {
            aside: aside.contains(&line.seq),
            id: line.id.to_string(),
            at: At(line.at),
            actor: line.actor,
            action: line.action,
            subject: line.subject,
            detail: line.detail,
        })
        .collect();
    Ok(PageOf { items, next, unreadable: Vec::new() })
}

pub(in crate::api) async fn status(app: &App, _: Nothing) -> Result<Standing, ApiError> {
    let audit::Standing { chained, signed, tail } = audit::standing(&app.db).await?;
    let told = async |key, code| {
        let outcome = outcomes::find(&app.db, queue::AUDIT.name, key).await?;
        let found = outcome.filter(|outcome| outcome.reason == code).map(|outcome| outcome.message);
        Ok::<_, store::DbError>(found)
    };
    let (altered, outside) = (told("all", ALTERED).await?, told(OUTSIDE_KEY, OUTSIDE).await?);
    Ok(Standing { chained, signed, tail, altered, outside })
}

pub(in crate::api) async fn mend(mutation: Mutation<'_>, input: Mend) -> Result<MendView, ApiError> {
    let Mutation { app, txn, caller, after, .. } = mutation;
    let signer = app.auditor()?.custody.audit();
    let (owner, reason) = super::brakes::said(caller, input.owner, &input.reason)?;
    let mended = mend::mend(&app.db, txn, &signer).await?;
    if mended.is_nothing() {
        return Err(ApiError::new(Code::InvalidState, "nothing stands in the way of the audit log")
            .why("every line is chained, and every one behind the last checkpoint is what was chained"));
    }
    tracing::error!(
        lines = mended.lines.count,
        checkpoints = mended.checkpoints.count,
        outside = mended.outside.count,
        owner,
        reason,
        "what somebody wrote into the audit log is set aside, and its chain goes on"
    );
    after.audit = Some(mended.detail(&owner, &reason));
    Ok(MendView {
        checkpoint: mended.checkpoint,
        rows: mended.rows,
        again: mended.again,
        lines: mended.lines.count,
        named: serde_json::to_value(&mended.lines.named).map_err(ApiError::internal)?,
        checkpoints: mended.checkpoints.count,
        outside: mended.outside.count,
        outside_named: serde_json::to_value(&mended.outside.named).map_err(ApiError::internal)?,
    })
}

fn unreadable(n: u64) -> ApiError {
    ApiError::new(
        Code::InvalidState,
        format!("checkpoint {n} of the audit log is not readable: better-compute why says more"),
    )
}

fn read(stored: &audit::Checkpoint) -> Result<Checkpoint, ApiError> {
    let text = std::str::from_utf8(&stored.body).map_err(|_| unreadable(stored.n))?;
    Checkpoint::read(text).map_err(|_| unreadable(stored.n))
}

/// The last checkpoint that is ours; what is planted behind it is in no file.
pub(super) async fn last(app: &App) -> Result<Checkpoint, ApiError> {
    let signer = app.auditor()?.custody.audit();
    let last = look::last_of_ours(&app.db, &signer).await?.map(|(checkpoint, _)| checkpoint);
    last.ok_or_else(|| {
        ApiError::new(Code::InvalidState, "no line of the audit log is signed yet; that takes some seconds")
            .why("when it does not pass, better-compute why audit says what stands in the way")
    })
}

pub(in crate::api) async fn export(app: &App, input: From) -> Result<Part, ApiError> {
    let auditor = app.auditor()?;
    let from = input.from.unwrap_or(0);
    let anchor = auditor.joins.anchor();
    let last = last(app).await?;
    let mut text = String::new();
    let (mut rows, mut before) = match from.checked_sub(1) {
        Some(n) => {
            let stored = audit::checkpoints(&app.db, n, 1).await?.pop().filter(|stored| stored.n == n);
            let before = read(&stored.ok_or_else(|| ApiError::not_found(format!("checkpoint {n}")))?)?;
            (before.rows, Some(before.link))
        }
        None => {
            let vouch = audit::vouches(&app.db).await?.into_iter().find(|vouch| vouch.key == last.key.as_bytes());
            let vouch = vouch.ok_or_else(|| unreadable(last.n))?;
            text.push_str(&Export::head(&anchor.to_bytes(), &String::from_utf8_lossy(&vouch.vouch)));
            (0, None)
        }
    };
    let (mut written, mut at, mut altered) = (0, from, None);
    while at <= last.n {
        let stored = audit::checkpoints(&app.db, at, 1).await?.pop().ok_or_else(|| unreadable(at))?;
        let checkpoint = read(&stored)?;
        let count = u32::try_from(checkpoint.rows.saturating_sub(rows)).unwrap_or(u32::MAX);
        for line in audit::chained(&app.db, rows, count).await? {
            let row = row(line.pos, &line.entry).text();
            if link(before, &row) != line.link {
                altered.get_or_insert(AlteredLine { pos: line.pos, id: line.entry.id.to_string() });
            }
            before = Some(line.link);
            text.push_str(&Export::row(&row));
        }
        text.push_str(&Export::checkpoint(&checkpoint.text(), &stored.signature));
        written += count as usize;
        rows = checkpoint.rows;
        at += 1;
        if written >= AT_ONCE && at <= last.n {
            return Ok(Part { text, next: Some(at), altered, outside: None });
        }
    }
    let outside = Outside::look(&app.db).await?.map(pki::audit::Outside::from);
    let end = ExportEnd {
        rows: last.rows,
        checkpoint: last.digest(),
        anchor: anchor.pin(),
        exported_at: app.db.now().await?,
        outside: outside.clone(),
    };
    let signature = end.sign(&auditor.custody.audit(), last.key).ok_or_else(|| {
        ApiError::new(Code::InvalidState, "the key of the last checkpoint is not this process's; try again in a moment")
    })?;
    text.push_str(&Export::end(&end.text(), &signature));
    let outside = outside.map(|pki::audit::Outside { count, ids }| OutsideView { count, ids });
    Ok(Part { text, next: None, altered, outside })
}
