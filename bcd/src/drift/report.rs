//! What is told of drift: entries that are bounded, and hold nothing that not everybody on the host may read.

use schema::{
    digest::Digest,
    node::{
        Condition, ConditionStatus,
        condition::{DRIFT_FIGHT, DRIFT_UNREPORTED},
    },
    report::{DriftEntry, MAX_DRIFT_BYTES, MAX_DRIFT_VALUE},
    time::Timestamp,
};

use super::{Finding, Ledger, Moment, ledger::Tracked};

/// How much of what is desired is told.
const DESIRED_CHARS: usize = 80;

/// What was found, as far as it may be told.
pub(super) struct Told {
    /// What tells it from what comes next; it stays on the host.
    pub(super) seen: Option<Digest>,
    digest: Option<Digest>,
    bytes: Option<u64>,
    text: Option<String>,
}

pub(super) fn observed(finding: &Finding) -> Told {
    let bytes = finding.observed.as_deref();
    let text = bytes.filter(|bytes| finding.public && bytes.len() <= MAX_DRIFT_VALUE);
    let text = text.and_then(|bytes| std::str::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'));
    // What not everybody may read leaves nothing that it could be found by: a short secret is found by its digest.
    let open = bytes.filter(|_| finding.public);
    Told {
        seen: bytes.map(Digest::of),
        digest: open.map(Digest::of),
        bytes: open.map(|bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
        text: text.map(str::to_owned),
    }
}

pub(super) fn entry(
    path: &str,
    finding: &Finding,
    told: Told,
    seen: Moment,
    (first_seen, times): (Timestamp, u32),
) -> DriftEntry {
    let short = finding.desired.lines().next().unwrap_or_default();
    let desired = finding.public && !short.contains('\0');
    DriftEntry {
        path: path.to_owned(),
        mode: finding.mode,
        kind: finding.kind,
        cause: seen.cause,
        observed: told.text,
        observed_digest: told.digest,
        observed_bytes: told.bytes,
        desired: desired.then(|| short.chars().take(DESIRED_CHARS).collect()),
        first_seen,
        last_seen: seen.now,
        corrected: false,
        times,
    }
}

/// For the log: which field, never its value.
pub(super) fn sentence(path: &str, finding: &Finding) -> String {
    let done = match (finding.correct, finding.mode) {
        (true, _) => "put right",
        (false, schema::report::DriftMode::Enforce) => "fought over, put right later",
        (false, _) => "left alone",
    };
    format!("{path} was changed by something else ({}): {done}", finding.kind)
}

impl Ledger {
    /// What is reported: ordered by path, the values of the last ones left out when all would be too much.
    #[must_use]
    pub fn report(&self) -> Vec<DriftEntry> {
        self.bounded().0
    }

    fn bounded(&self) -> (Vec<DriftEntry>, usize) {
        let size = |entry: &DriftEntry| serde_json::to_vec(entry).map_or(usize::MAX, |json| json.len() + 1);
        let mut all: Vec<&Tracked> = self.tracked().collect();
        all.sort_by(|a, b| a.entry.path.cmp(&b.entry.path));
        let (mut entries, mut left, mut beyond) = (Vec::new(), MAX_DRIFT_BYTES - 2, self.beyond());
        // Every entry has its room before any has its value.
        let bare: Vec<DriftEntry> =
            all.iter().map(|tracked| DriftEntry { observed: None, ..tracked.entry.clone() }).collect();
        for entry in bare {
            match left.checked_sub(size(&entry)) {
                Some(rest) => {
                    left = rest;
                    entries.push(entry);
                }
                None => beyond += 1,
            }
        }
        for entry in &mut entries {
            let Some(full) = all.iter().find(|tracked| tracked.entry.path == entry.path) else { continue };
            if let Some(rest) = (left + size(entry)).checked_sub(size(&full.entry)) {
                left = rest;
                entry.observed.clone_from(&full.entry.observed);
            }
        }
        (entries, beyond)
    }

    /// What a machine says about itself because of drift.
    #[must_use]
    pub fn conditions(&self, now: Timestamp) -> Vec<Condition> {
        let condition = |kind: &str, reason: &str, message: String| Condition {
            kind: kind.to_owned(),
            status: ConditionStatus::True,
            reason: reason.to_owned(),
            message,
            since: now,
        };
        let fights: Vec<String> = self
            .tracked()
            .filter(|tracked| tracked.corrections.is_fight())
            .map(|tracked| {
                let (path, pause) = (&tracked.entry.path, tracked.corrections.pause_minutes());
                format!("{path} is changed back again and again, and is put right every {pause} minutes only")
            })
            .collect();
        let beyond = self.bounded().1;
        let mut conditions = Vec::new();
        if !fights.is_empty() {
            let more = fights.len().saturating_sub(3);
            let mut message = fights.into_iter().take(3).collect::<Vec<_>>().join("; ");
            if more > 0 {
                message.push_str(&format!("; and {more} more"));
            }
            conditions.push(condition(DRIFT_FIGHT, "CorrectedOften", message));
        }
        if beyond > 0 {
            let message = format!("{beyond} more fields have drifted than a report may name");
            conditions.push(condition(DRIFT_UNREPORTED, "TooMany", message));
        }
        conditions
    }
}
