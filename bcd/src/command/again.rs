//! What becomes of a command that an earlier life of the daemon accepted and did not bring to its end. A pure function.

use schema::{
    command::{Reason, Refusal, UpdateState, result::Rebooted},
    id::BootId,
    time::Timestamp,
};
use serde_json::Value;

use super::journal::Entry;

/// What to do with it.
#[derive(Debug, Clone, PartialEq)]
pub enum Again {
    /// It runs (again).
    Run,
    /// Nothing yet: whether it may run is decided when it is sent again, for until then nobody asks for it.
    Wait,
    /// It has ended.
    Settle {
        /// How.
        state: UpdateState,
        /// Why, unless it succeeded.
        reason: Option<Reason>,
        /// The same for people.
        message: &'static str,
        /// What came out.
        result: Option<Value>,
    },
}

/// Decides, at the beginning of a life (`now` is not known then) or when the command is sent again.
#[must_use]
pub fn again(entry: &Entry, boot: BootId, now: Option<Timestamp>) -> Again {
    let end = |state, reason: Reason, message| Again::Settle { state, reason: Some(reason), message, result: None };
    let interrupted = |message| end(UpdateState::Failed, Reason::INTERRUPTED, message);
    let Some(row) = entry.row() else {
        return interrupted("another version of the daemon accepted it");
    };
    // What is safe to run again is: a daemon that is back in another version finds that it runs.
    if row.self_terminating && !row.retry_safe && entry.boot_id != boot {
        let result = serde_json::to_value(Rebooted { rebooted: true, boot_id: Some(boot) }).ok();
        let (state, message) = (UpdateState::Succeeded, "");
        return Again::Settle { state, reason: None, message, result };
    }
    let started = !entry.runs.is_empty();
    if !row.retry_safe {
        return interrupted(if started {
            "the daemon or the machine stopped while it ran; what it did until then is in the node's journal"
        } else {
            "the daemon or the machine stopped before it began, and it is not safe to run later"
        });
    }
    match now {
        None => Again::Wait,
        Some(now) if now < entry.not_after => Again::Run,
        Some(_) if started => {
            interrupted("the daemon or the machine stopped while it ran, and its deadline has passed")
        }
        Some(_) => end(UpdateState::Rejected, Refusal::Expired.into(), "its deadline passed before it could begin"),
    }
}

#[cfg(test)]
mod tests {
    use schema::{command::CommandKind, digest::Digest, id::CommandId};

    use super::{super::journal::Ran, *};

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn entry(kind: CommandKind, started: bool) -> Entry {
        Entry {
            id: CommandId::generate(),
            seq: 1,
            kind: kind.to_string(),
            not_after: at("2026-03-01T12:10:00Z"),
            body: Digest::of("body"),
            signature: Digest::of("signature"),
            at: at("2026-03-01T12:00:00Z"),
            boot_id: BootId::generate(),
            permitted: None,
            runs: started.then(|| Ran { at: at("2026-03-01T12:00:01Z"), effects: Vec::new() }).into_iter().collect(),
            ended: None,
            bytes: 0,
        }
    }

    fn word(again: &Again) -> String {
        match again {
            Again::Run => "run".to_owned(),
            Again::Wait => "wait".to_owned(),
            Again::Settle { reason: Some(reason), .. } => reason.to_string(),
            Again::Settle { .. } => "succeeded".to_owned(),
        }
    }

    #[test]
    fn every_case_has_its_answer() {
        use CommandKind::{DaemonUpgrade, GpuReset, InventoryRefresh, NodeReboot};
        let early = Some(at("2026-03-01T12:09:59Z"));
        let late = Some(at("2026-03-01T12:10:00Z"));
        // kind, started, another boot, now: the answer
        let table = [
            (InventoryRefresh, false, false, None, "wait"),
            (InventoryRefresh, false, false, early, "run"),
            (InventoryRefresh, false, true, early, "run"),
            (InventoryRefresh, true, true, early, "run"),
            (InventoryRefresh, false, false, late, "EXPIRED"),
            (InventoryRefresh, true, false, late, "interrupted"),
            (GpuReset, false, false, None, "interrupted"),
            (GpuReset, false, false, early, "interrupted"),
            (GpuReset, true, true, early, "interrupted"),
            (NodeReboot, false, false, early, "interrupted"),
            (NodeReboot, true, false, early, "interrupted"),
            (NodeReboot, true, true, None, "succeeded"),
            (NodeReboot, false, true, None, "succeeded"),
            (NodeReboot, true, true, late, "succeeded"),
            (DaemonUpgrade, true, false, early, "run"),
            (DaemonUpgrade, true, true, early, "run"),
            (DaemonUpgrade, true, true, late, "interrupted"),
        ];
        for (kind, started, other_boot, now, expected) in table {
            let entry = entry(kind, started);
            let boot = if other_boot { BootId::generate() } else { entry.boot_id };
            let answer = again(&entry, boot, now);
            assert_eq!(word(&answer), expected, "{kind}, started {started}, another boot {other_boot}, {now:?}");
        }
    }

    #[test]
    fn what_is_not_safe_to_run_again_never_runs_again() {
        for row in schema::command::KINDS.iter().filter(|row| !row.retry_safe) {
            for started in [false, true] {
                let entry = entry(row.kind, started);
                for boot in [entry.boot_id, BootId::generate()] {
                    for now in [None, Some(entry.at), Some(entry.not_after)] {
                        assert!(matches!(again(&entry, boot, now), Again::Settle { .. }), "{}", row.kind);
                    }
                }
            }
        }
    }
}
