//! Refused sessions, stored where people look: as the outcome `session` of the node.
//!
//! What cannot be blamed on a node (a foreign certificate, none at all, a node that is gone) goes to one row for all of them, so that whoever
//! knocks at the port costs one row. It is cleared when nobody knocked for a while.

use std::{
    collections::HashMap,
    panic::Location,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schema::{
    cause::chain,
    id::NodeId,
    time::{Duration as Span, Timestamp},
};
use store::{
    Db, DbError,
    outcomes::{self, Record, Verdict},
};
use tokio_util::sync::CancellationToken;

use crate::{refusal::Refusal, registry::Registry, writer};

/// The kind of these outcomes.
pub const OUTCOME_KIND: &str = "session";
/// The reason of a node that has a session and cannot keep what it has to keep.
pub const STATE_UNWRITABLE: &str = "state-unwritable";
/// The key of the row for peers that are no nodes.
pub const STRANGERS: &str = "unidentified";

const PERIOD: Duration = Duration::from_millis(500);
/// A session that is taken over twice within this time is worth a word.
const FLAPPING: Span = Span::from_secs(60);
/// A session that was open when its node was refused and is open so much later was heard meanwhile: it is cut when it is silent
/// for as long. The refusal was a copy's.
const OUTLIVED: Span = Span::from_secs(90);
const QUIET: Span = Span::from_secs(15 * 60);
/// What a node mends by itself with a renewal: it is over when the same peer comes in.
const RENEWED: [&str; 3] = ["FOREIGN_CA", "UNKNOWN_CERTIFICATE", "CERTIFICATE_EXPIRED"];

/// Outcomes on their way to the database, the newest per key.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    rows: HashMap<String, (Verdict, String)>,
    /// When a stranger knocked last, and from where when it may be a node that renews.
    last_stranger: Option<(Timestamp, Option<String>)>,
    /// When the sessions of nodes were last taken over, and whether that is recorded.
    taken_over: HashMap<NodeId, (Timestamp, bool)>,
    /// When nodes were refused last, since their newest session here opened.
    refused: HashMap<NodeId, Timestamp>,
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's session was refused or ended for a reason.
    #[track_caller]
    pub(crate) fn refused(&self, node_id: NodeId, refusal: &Refusal, now: Timestamp) {
        if refusal.is_recorded() {
            self.put(node_id.to_string(), refusal, refusal.to_string());
            let mut waiting = self.lock();
            waiting.taken_over.remove(&node_id);
            waiting.refused.insert(node_id, now);
        } else if *refusal == Refusal::Superseded {
            let before = self.lock().taken_over.get(&node_id).copied();
            let again = before.is_some_and(|(at, _)| Span::between(at, now) < FLAPPING);
            self.lock().taken_over.insert(node_id, (now, again));
            if again {
                self.put(
                    node_id.to_string(),
                    refusal,
                    format!("{refusal}, again and again: do two daemons have its identity?"),
                );
            }
        }
    }

    /// Somebody who is no node of ours wanted a session.
    #[track_caller]
    pub(crate) fn stranger(&self, peer: String, refusal: &Refusal, now: Timestamp) {
        if !refusal.is_recorded() {
            return;
        }
        self.put(STRANGERS.to_owned(), refusal, format!("{peer}: {refusal}"));
        self.lock().last_stranger = Some((now, RENEWED.contains(&refusal.code()).then_some(peer)));
    }

    /// A node's session opened, from an address. If the node was the last stranger, it is none any more.
    #[track_caller]
    pub(crate) fn came_in(&self, node_id: NodeId, address: &str) {
        let mut waiting = self.lock();
        let is_it = |peer: &String| *peer == address || *peer == node_id.to_string();
        if waiting.last_stranger.as_ref().is_some_and(|(_, peer)| peer.as_ref().is_some_and(is_it)) {
            waiting.last_stranger = None;
            waiting.rows.insert(STRANGERS.to_owned(), (Verdict::Done, place()));
        }
    }

    /// A node's session opened: whatever was against it is over.
    #[track_caller]
    pub(crate) fn opened(&self, node_id: NodeId) {
        let mut waiting = self.lock();
        waiting.refused.remove(&node_id);
        // Two daemons that take the session from each other open one each time.
        if !waiting.taken_over.get(&node_id).is_some_and(|(_, recorded)| *recorded) {
            waiting.rows.insert(node_id.to_string(), (Verdict::Done, place()));
        }
    }

    /// A node's session opened, and the node says that it cannot keep anything.
    #[track_caller]
    pub(crate) fn cannot_keep(&self, node_id: NodeId, why: String) {
        let verdict = Verdict::Failed { reason: STATE_UNWRITABLE.to_owned(), message: why };
        self.lock().rows.insert(node_id.to_string(), (verdict, place()));
    }

    #[track_caller]
    fn put(&self, key: String, refusal: &Refusal, message: String) {
        let verdict = Verdict::Failed { reason: refusal.code().to_owned(), message };
        self.lock().rows.insert(key, (verdict, place()));
    }

    /// Writes what comes until it is cancelled.
    pub(crate) async fn run(
        &self,
        db: &Db,
        registry: &Registry,
        clock: &dyn schema::clock::Clock,
        cancel: CancellationToken,
    ) {
        let mut period = tokio::time::interval(PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = period.tick() => {
                    self.forget_strangers(clock.now());
                    self.forget_flapping(clock.now());
                    self.forget_refused(|node_id| registry.find(node_id).is_some(), clock.now());
                    self.flush(db).await;
                }
            }
        }
    }

    fn forget_strangers(&self, now: Timestamp) {
        let mut waiting = self.lock();
        if waiting.last_stranger.as_ref().is_some_and(|(last, _)| Span::between(*last, now) >= QUIET) {
            waiting.last_stranger = None;
            waiting.rows.insert(STRANGERS.to_owned(), (Verdict::Done, place()));
        }
    }

    fn forget_flapping(&self, now: Timestamp) {
        let mut waiting = self.lock();
        let Waiting { rows, taken_over, .. } = &mut *waiting;
        let over = taken_over.extract_if(|_, (at, _)| Span::between(*at, now) >= FLAPPING);
        let recorded = over.filter(|(_, (_, recorded))| *recorded);
        rows.extend(recorded.map(|(node_id, _)| (node_id.to_string(), (Verdict::Done, place()))));
    }

    fn forget_refused(&self, has_session: impl Fn(NodeId) -> bool, now: Timestamp) {
        let mut waiting = self.lock();
        let Waiting { rows, refused, .. } = &mut *waiting;
        let over = refused.extract_if(|_, at| Span::between(*at, now) >= OUTLIVED);
        let outlived = over.filter(|(node_id, _)| has_session(*node_id));
        rows.extend(outlived.map(|(node_id, _)| (node_id.to_string(), (Verdict::Done, place()))));
    }

    /// Writes what waits, once.
    pub(crate) async fn flush(&self, db: &Db) {
        let rows = std::mem::take(&mut self.lock().rows);
        if rows.is_empty() {
            return;
        }
        if let Err(error) = writer::answer(write(db, &rows)).await {
            tracing::warn!(outcomes = rows.len(), error = %chain(&error), "session outcomes wait for PostgreSQL");
            let mut waiting = self.lock();
            for (key, row) in rows {
                waiting.rows.entry(key).or_insert(row);
            }
        }
    }
}

#[track_caller]
fn place() -> String {
    let here = Location::caller();
    format!("{}:{}", here.file(), here.line())
}

async fn write(db: &Db, rows: &HashMap<String, (Verdict, String)>) -> Result<(), DbError> {
    let mut records: Vec<Record<'_>> =
        rows.iter().map(|(key, (verdict, place))| Record { kind: OUTCOME_KIND, key, verdict, place }).collect();
    // The same order in every gateway, so that two of them do not wait for each other.
    records.sort_unstable_by_key(|record| record.key);
    let (over, against): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| *record.verdict == Verdict::Done);
    let mut txn = db.begin().await?;
    outcomes::record(&mut txn, &against).await?;
    outcomes::clear(&mut txn, &over).await?;
    txn.commit().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(recorder: &Recorder, node: NodeId) -> Option<String> {
        let row = recorder.lock().rows.remove(&node.to_string());
        row.map(|(verdict, _)| match verdict {
            Verdict::Failed { reason, .. } => reason,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_node_that_renewed_is_no_stranger_any_more_and_others_stay() {
        let (recorder, node, now) = (Recorder::default(), NodeId::generate(), Timestamp::UNIX_EPOCH);
        let row = || recorder.lock().rows.remove(STRANGERS).map(|(verdict, _)| matches!(verdict, Verdict::Done));
        let foreign = Refusal::Certificate(pki::verify::IdentityRefusal::ForeignCa);
        recorder.stranger("192.0.2.7".to_owned(), &foreign, now);
        assert_eq!(row(), Some(false));
        recorder.came_in(node, "192.0.2.8");
        assert_eq!(row(), None, "another one came in");
        recorder.came_in(node, "192.0.2.7");
        assert_eq!(row(), Some(true));
        recorder.stranger("192.0.2.7".to_owned(), &Refusal::CertificateRequired, now);
        recorder.came_in(node, "192.0.2.7");
        assert_eq!(row(), Some(false), "a scanner at the same address is still worth a look");
    }

    #[test]
    fn a_node_with_a_full_disk_stays_recorded_although_it_opens_a_session() {
        let (recorder, node) = (Recorder::default(), NodeId::generate());
        recorder.opened(node);
        recorder.cannot_keep(node, "No space left on device".to_owned());
        assert_eq!(stored(&recorder, node).as_deref(), Some(STATE_UNWRITABLE));
        recorder.opened(node);
        assert_eq!(stored(&recorder, node).as_deref(), Some("Done"));
    }

    #[test]
    fn what_a_copy_earned_is_over_when_the_session_of_the_node_has_lived_on_for_a_while() {
        let (recorder, node, gone) = (Recorder::default(), NodeId::generate(), NodeId::generate());
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).expect("a time");
        let has_session = |id| id == node;
        for id in [node, gone] {
            recorder.refused(id, &Refusal::JournalOld, at(0));
            assert_eq!(stored(&recorder, id).as_deref(), Some("JOURNAL_OLD"));
        }
        recorder.refused(node, &Refusal::RateLimited("sessions of this node"), at(30));
        assert_eq!(stored(&recorder, node).as_deref(), Some("RATE_LIMITED"));
        recorder.forget_refused(has_session, at(119));
        assert_eq!(stored(&recorder, node), None);
        recorder.forget_refused(has_session, at(120));
        assert_eq!(stored(&recorder, node).as_deref(), Some("Done"));
        assert_eq!(stored(&recorder, gone), None, "it has no session, and its refusal stays");
        assert!(recorder.lock().refused.is_empty());
    }

    #[test]
    fn two_daemons_with_one_identity_are_recorded_until_they_stop() {
        let (recorder, node) = (Recorder::default(), NodeId::generate());
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).expect("a time");
        recorder.refused(node, &Refusal::Superseded, at(0));
        assert_eq!(stored(&recorder, node), None, "a session that moves once is nothing");
        recorder.refused(node, &Refusal::Superseded, at(20));
        recorder.opened(node);
        assert_eq!(stored(&recorder, node).as_deref(), Some("SUPERSEDED"));
        recorder.forget_flapping(at(79));
        assert_eq!(stored(&recorder, node), None);
        recorder.forget_flapping(at(80));
        assert_eq!(stored(&recorder, node).as_deref(), Some("Done"));
        recorder.refused(node, &Refusal::Superseded, at(200));
        recorder.forget_flapping(at(300));
        assert_eq!(stored(&recorder, node), None);
        assert!(recorder.lock().taken_over.is_empty());
    }
}
