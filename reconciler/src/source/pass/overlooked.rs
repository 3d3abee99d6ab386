//! Tells people what nobody hears, whoever signed it: it lies at no place of a statement, or is none by its size.

use std::collections::{BTreeMap, BTreeSet};

use gix::ObjectId;
use store::{
    leases::Lease,
    outcomes::{self, Record, Verdict},
};

use super::{Pass, PassError};
use crate::source::trust::{Deaf, Overlooked, words::Place};

/// Who says so among the outcomes.
pub(crate) const STATEMENTS: &str = "statements";
/// What is said, as a stable word.
const OVERLOOKED: &str = "statements-overlooked";

/// About what: the statements beside the branch of a source.
pub(crate) fn key(source: &str) -> String {
    format!("{source}/{STATEMENTS}")
}

/// What nobody hears, and what of it people were told.
#[derive(Debug, Clone, Default)]
pub(super) struct Deafness {
    /// At places of another shape.
    misplaced: Vec<Overlooked>,
    /// Looked at, and no statement by size or kind.
    others: BTreeMap<ObjectId, (String, Deaf)>,
    /// What was told last; nothing since this process began.
    told: Option<String>,
}

impl Deafness {
    /// Takes what lies at a place of another shape in the place of what did before.
    pub(super) fn misplaced(&mut self, places: &[Place]) {
        let misplaced = places.iter().filter(|place| place.is_misplaced());
        self.misplaced = Overlooked::of(misplaced.map(|place| (place.name.as_str(), Deaf::Place)));
    }

    /// Remembers what was looked at.
    pub(super) fn put(&mut self, place: &Place, why: Deaf) {
        self.others.insert(place.id, (place.name.clone(), why));
    }

    /// Remembers only what is still there.
    pub(super) fn retain(&mut self, there: &BTreeSet<ObjectId>) {
        self.others.retain(|id, _| there.contains(id));
    }

    /// All of it, for people.
    fn words(&self) -> String {
        let others = Overlooked::of(self.others.values().map(|(name, why)| (name.as_str(), *why)));
        self.misplaced.iter().chain(&others).map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

impl Pass {
    /// Says what nobody hears where `status` finds it, once it is another thing than was said last.
    pub(super) async fn tell_overlooked(&mut self, lease: &Lease) -> Result<(), PassError> {
        let message = self.trusted.ears.deaf.words();
        if self.trusted.ears.deaf.told.as_ref() == Some(&message) {
            return Ok(());
        }
        let key = key(&self.name);
        let verdict = if message.is_empty() {
            Verdict::Done
        } else {
            Verdict::Wait { reason: OVERLOOKED.to_owned(), message: message.clone(), again: None }
        };
        let place = concat!(file!(), ":", line!());
        let record = Record { kind: STATEMENTS, key: &key, verdict: &verdict, place };
        let mut txn = self.begin(lease).await?;
        if message.is_empty() {
            outcomes::clear(&mut txn, &[record]).await?;
        } else {
            outcomes::record(&mut txn, &[record]).await?;
        }
        txn.commit().await?;
        self.trusted.ears.deaf.told = Some(message);
        Ok(())
    }
}
