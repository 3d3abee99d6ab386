//! `events`: what happened, in an order in which nothing is missed.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::{
    Listed,
    outbox::{self, Cursor},
};
use tokio::{sync::Semaphore, time::Instant};

use super::{At, UnreadableView};
use crate::api::{ApiError, App};

/// How often a call that waits looks again. No poke says when: an event can be read once the transactions before it have
/// ended, whichever those are.
const LOOK: Duration = Duration::from_millis(500);
const LONGEST_WAIT: u64 = 30;
const MOST: u32 = 200;
/// So many calls wait at once; the next one is answered with what there is.
static WAITING: Semaphore = Semaphore::const_new(128);

/// Which events.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::api) struct Follow {
    /// The `next` of the answer before; `now` for what is to come; absent: from the oldest that is kept, a week.
    after: Option<String>,
    /// Only these kinds, such as `command.settled`.
    #[serde(default)]
    kinds: Vec<String>,
    /// How many items, 1 to 200; 100 when it is absent.
    limit: Option<u32>,
    /// How long to wait for the first one, 30 seconds at most.
    wait_seconds: Option<u64>,
}

/// One event.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct EventView {
    /// Its place in the order of events.
    id: String,
    /// What kind of event.
    kind: String,
    /// What it is about: the id of a node.
    subject: String,
    /// The rest.
    doc: Value,
    /// When.
    at: At,
}

/// Events, and where to go on.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Events {
    /// The events, in order.
    items: Vec<EventView>,
    /// Pass it as `after` to go on. There may be more already when the page is full.
    next: String,
    /// Events of this page that cannot be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableView>,
}

pub(in crate::api) async fn list(app: &App, input: Follow) -> Result<Events, ApiError> {
    let limit = super::limit_up_to(MOST, input.limit)?;
    let wait = input.wait_seconds.unwrap_or(0);
    if wait > LONGEST_WAIT {
        return Err(ApiError::field("waitSeconds", format!("{LONGEST_WAIT} seconds at most")));
    }
    let mut after = match input.after.as_deref() {
        None => Cursor::default(),
        Some("now") => outbox::newest(&app.db).await?,
        Some(text) => super::parse("after", text)?,
    };
    let place = WAITING.try_acquire().ok();
    let end = Instant::now() + if place.is_some() { Duration::from_secs(wait) } else { Duration::ZERO };
    loop {
        // Read first: whatever is newer than this was not looked at for certain.
        let newest = outbox::newest(&app.db).await?;
        let events = match newest > after {
            true => outbox::list(&app.db, after, &input.kinds, limit).await?,
            false => outbox::Followed::nothing(),
        };
        let last = events.last.unwrap_or(after);
        after = if events.is_full { last } else { last.max(newest) };
        if events.last.is_some() || Instant::now() >= end {
            let Listed { items, unreadable } = events.events;
            let items = items.into_iter().map(|event| EventView {
                id: event.cursor.to_string(),
                kind: event.kind,
                subject: event.subject,
                doc: event.doc,
                at: At(event.at),
            });
            let unreadable = UnreadableView::all(unreadable);
            return Ok(Events { items: items.collect(), next: after.to_string(), unreadable });
        }
        tokio::time::sleep_until((Instant::now() + LOOK).min(end)).await;
    }
}
