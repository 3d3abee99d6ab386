//! The ledger: what was seen to be as wished, and what was found changed since. Kept on disk before anything is touched.

use std::collections::BTreeMap;

use schema::{
    digest::Digest,
    id::BootId,
    report::{DriftEntry, MAX_DRIFT},
    spec::Section,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use super::{Finding, Moment, Weighed, fight::Corrections, report};
use crate::section::Key;

/// How long what was put right stays in the reports, in seconds.
const REMEMBERED: i64 = 24 * 60 * 60;

/// What is known of one field that drifted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracked {
    /// As it is reported.
    pub(super) entry: DriftEntry,
    /// It is being put right: after a crash, what is found as wished was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    intent: bool,
    /// The digest of what was there, also where not everybody may read it: it is never reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<Digest>,
    #[serde(default)]
    pub(super) corrections: Corrections,
}

/// Everything that is remembered about drift.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ledger {
    /// The boot of the last look.
    pub(crate) boot: Option<BootId>,
    /// What every field was when it was last as wished.
    settled: BTreeMap<Section, BTreeMap<String, Digest>>,
    /// What drifted, by path.
    pub(super) entries: BTreeMap<Section, BTreeMap<String, Tracked>>,
    /// How many fields drifted beyond what can be reported.
    unreported: BTreeMap<Section, usize>,
}

/// The part of a ledger that is about one section.
#[derive(Debug)]
pub struct Page<'a> {
    ledger: &'a mut Ledger,
    section: Section,
}

impl Ledger {
    /// The part that is about one section.
    pub const fn page(&mut self, section: Section) -> Page<'_> {
        Page { ledger: self, section }
    }

    pub(super) fn was_settled(&self, place: &str, wish: &Digest) -> bool {
        self.settled.values().any(|places| places.get(place) == Some(wish))
    }

    pub(super) fn holds_off(&self, path: &str, now: Timestamp) -> bool {
        self.tracked().any(|tracked| tracked.entry.path == path && tracked.corrections.holds_off(now))
    }

    pub(super) fn tracked(&self) -> impl Iterator<Item = &Tracked> {
        self.entries.values().flat_map(BTreeMap::values)
    }

    pub(super) fn beyond(&self) -> usize {
        self.unreported.values().sum()
    }
}

impl Page<'_> {
    /// Writes down what was found, before anything is put right. What is new, for the log.
    pub fn note(&mut self, findings: &BTreeMap<String, Finding>, moment: Moment) -> Vec<String> {
        let mut said = Vec::new();
        let mut beyond = 0;
        for (path, finding) in findings {
            let room = self.ledger.tracked().count() < MAX_DRIFT;
            let entries = self.ledger.entries.entry(self.section).or_default();
            let observed = report::observed(finding);
            let seen_now = observed.seen;
            match entries.get_mut(path) {
                Some(tracked) => {
                    let before = &tracked.entry;
                    let known = tracked.seen.or(before.observed_digest);
                    let anew = before.corrected || known != seen_now || before.kind != finding.kind;
                    if anew {
                        said.push(report::sentence(path, finding));
                    }
                    let times = before.times.saturating_add(u32::from(anew));
                    let (last_seen, cause) =
                        if anew { (moment.now, moment.cause) } else { (before.last_seen, before.cause) };
                    let first_seen = before.first_seen;
                    let seen = Moment { now: last_seen, cause };
                    tracked.entry = report::entry(path, finding, observed, seen, (first_seen, times));
                    (tracked.intent, tracked.seen) = (finding.correct, seen_now);
                }
                None if room => {
                    said.push(report::sentence(path, finding));
                    let entry = report::entry(path, finding, observed, moment, (moment.now, 1));
                    let tracked =
                        Tracked { entry, intent: finding.correct, seen: seen_now, corrections: Corrections::default() };
                    entries.insert(path.clone(), tracked);
                }
                None => beyond += 1,
            }
        }
        self.count_beyond(beyond);
        said
    }

    fn count_beyond(&mut self, beyond: usize) {
        if beyond == 0 {
            self.ledger.unreported.remove(&self.section);
        } else {
            self.ledger.unreported.insert(self.section, beyond);
        }
    }

    /// Writes down what came of it: `made` says whether a place was made as desired.
    pub fn close(&mut self, weighed: &Weighed, made: impl Fn(&Key) -> bool, now: Timestamp) {
        self.settle(weighed, &made);
        let entries = self.ledger.entries.entry(self.section).or_default();
        entries.retain(|path, tracked| {
            if let Some(finding) = weighed.findings.get(path) {
                if finding.correct && made(&finding.key) {
                    tracked.put_right(now);
                }
                return true;
            }
            if weighed.is_unseen(path) {
                return true;
            }
            weighed.looked.contains(path) && tracked.as_wished(now)
        });
        if entries.is_empty() {
            self.ledger.entries.remove(&self.section);
        }
    }

    fn settle(&mut self, weighed: &Weighed, made: &impl Fn(&Key) -> bool) {
        let mut before = self.ledger.settled.remove(&self.section).unwrap_or_default();
        let mut settled = weighed.settled.clone();
        settled.extend(weighed.left.iter().map(|(place, wish)| (place.clone(), *wish)));
        for (key, place, wish) in &weighed.pending {
            // Whether a unit goes on running, or a module stays, the next look sees.
            let stays = matches!(key, Key::Path(_) | Key::Value(_));
            let known = if stays && made(key) { Some(*wish) } else { before.get(place).copied() };
            settled.extend(known.map(|wish| (place.clone(), wish)));
        }
        let unseen = |place: &str| {
            weighed.unseen_places.iter().any(|key| {
                place.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })
        };
        before.retain(|place, _| unseen(place));
        settled.extend(before);
        if !settled.is_empty() {
            self.ledger.settled.insert(self.section, settled);
        }
    }
}

impl Weighed {
    fn is_unseen(&self, path: &str) -> bool {
        self.unseen
            .iter()
            .any(|above| path.strip_prefix(above.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
    }
}

impl Tracked {
    fn put_right(&mut self, now: Timestamp) {
        self.intent = false;
        self.entry.corrected = true;
        self.corrections.corrected(now);
    }

    /// The field is as wished, by whatever hand. Whether there is still something to tell.
    fn as_wished(&mut self, now: Timestamp) -> bool {
        if std::mem::take(&mut self.intent) {
            // A crash came between the correction and the word of it.
            self.entry.corrected = true;
            self.corrections.corrected(self.entry.last_seen);
        }
        self.entry.corrected |= self.corrections.any();
        self.corrections.as_wished(now);
        let age = now.duration_since(self.entry.last_seen).as_secs();
        self.entry.corrected && (self.corrections.is_fight() || age < REMEMBERED)
    }
}
