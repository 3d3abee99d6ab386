//! `audit`: who did what, and the log as a file that proves itself.

use pki::audit::{Checkpoint, Export, ExportEnd};
use schema::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::audit;

use super::{At, Nothing, PageOf};
use crate::{
    api::{ApiError, App, Code},
    audit::row,
};

mod receipt;

pub(in crate::api) use receipt::receipt;

/// About so many lines are exported in one answer.
const AT_ONCE: usize = 4_000;

/// Which lines are wanted; all of them when nothing is said.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(in crate::api) struct Filter {
    /// Of this subject: an id, `batch/NAME`, a source.
    subject: Option<String>,
    /// Of this actor: a token's name, `source`, a machine's id.
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
}

pub(in crate::api) async fn list(app: &App, input: Filter) -> Result<PageOf<Line>, ApiError> {
    let limit = super::limit_up_to(1_000, input.limit)?;
    let since: Option<Timestamp> = input.since.as_deref().map(|text| super::parse("since", text)).transpose()?;
    let before: Option<u64> = input.before.as_deref().map(|text| super::parse("before", text)).transpose()?;
    let filter = audit::Filter { subject: input.subject, actor: input.actor, action: input.action, since, before };
    let lines = audit::search(&app.db, &filter, limit).await?;
    let next = lines.last().filter(|_| lines.len() >= limit as usize).map(|line| line.seq.to_string());
    let items = lines
        .into_iter()
        .map(|line| Line {
            id: line.id.to_string(),
            at: At(line.at),
            actor: line.actor,
            action: line.action,
            subject: line.subject,
            detail: line.detail,
        })
        .collect();
    Ok(PageOf { items, next })
}

pub(in crate::api) async fn status(app: &App, _: Nothing) -> Result<Standing, ApiError> {
    let audit::Standing { chained, signed, tail, .. } = audit::standing(&app.db).await?;
    Ok(Standing { chained, signed, tail })
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

pub(in crate::api) async fn export(app: &App, input: From) -> Result<Part, ApiError> {
    let auditor = app.auditor()?;
    let from = input.from.unwrap_or(0);
    let anchor = auditor.joins.anchor();
    let mut text = String::new();
    let mut rows = match from.checked_sub(1) {
        Some(before) => {
            let before = audit::checkpoints(&app.db, before, 1).await?.pop();
            before.map(|before| before.rows).ok_or_else(|| ApiError::not_found(format!("checkpoint {from}")))?
        }
        None => {
            let last = audit::last_checkpoint(&app.db).await?.ok_or_else(|| {
                ApiError::new(Code::InvalidState, "no line of the audit log is signed yet; that takes some seconds")
            })?;
            let key = read(&last)?.key;
            let vouch = audit::vouches(&app.db).await?.into_iter().find(|vouch| vouch.key == key.as_bytes());
            let vouch = vouch.ok_or_else(|| unreadable(last.n))?;
            text.push_str(&Export::head(&anchor.to_bytes(), &String::from_utf8_lossy(&vouch.vouch)));
            0
        }
    };
    let (mut written, mut at) = (0, from);
    loop {
        let Some(stored) = audit::checkpoints(&app.db, at, 1).await?.pop() else { break };
        let checkpoint = read(&stored)?;
        let count = u32::try_from(stored.rows.saturating_sub(rows)).unwrap_or(u32::MAX);
        for line in audit::chained(&app.db, rows, count).await? {
            text.push_str(&Export::row(&row(line.pos, &line.entry).text()));
        }
        text.push_str(&Export::checkpoint(&checkpoint.text(), &stored.signature));
        written += count as usize;
        rows = stored.rows;
        at += 1;
        if written >= AT_ONCE {
            return Ok(Part { text, next: Some(at) });
        }
    }
    let last = audit::checkpoints(&app.db, at.saturating_sub(1), 1).await?.pop();
    let last = read(&last.ok_or_else(|| ApiError::not_found("a checkpoint of the audit log"))?)?;
    let end = ExportEnd {
        rows: last.rows,
        checkpoint: last.digest(),
        anchor: anchor.pin(),
        exported_at: app.db.now().await?,
    };
    let signature = end.sign(&auditor.custody.audit(), last.key).ok_or_else(|| {
        ApiError::new(Code::InvalidState, "the key of the last checkpoint is not this process's; try again in a moment")
    })?;
    text.push_str(&Export::end(&end.text(), &signature));
    Ok(Part { text, next: None })
}
