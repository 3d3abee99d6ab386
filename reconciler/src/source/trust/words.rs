//! What people said: commits at the tips of `refs/heads/bc/statements/<kind>/<subject>/<principal>/<nonce>`.
//!
//! A name of a reference means nothing, and what lies there counts by its block and its signature. The names only say what is not
//! worth a look: so many of one principal about one thing, and nothing of somebody whom no policy knows. Whoever may push can put
//! anything there, and keeps nobody else's words out by it.

use std::collections::{BTreeMap, BTreeSet};

use gix::{ObjectId, objs::Kind};
use pki::trust::{spoken::Heard, statement::MAX_STATEMENT_BYTES};

use super::TrustHistory;
use crate::source::git::{GitError, Object, Repo, chain};

/// Where statements are pushed to.
pub(in crate::source) const STATEMENTS: &str = "refs/heads/bc/statements/";
/// Where services propose batches.
pub(in crate::source) const PROPOSALS: &str = "refs/heads/bc/proposals/";
/// Statements of one principal of one kind about one thing.
const MOST_OF_ONE: usize = 32;
/// Statements that are looked at at once.
pub(in crate::source) const MOST: usize = 20_000;

/// A reference below [`STATEMENTS`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::source) struct Place {
    pub(in crate::source) name: String,
    pub(in crate::source) id: ObjectId,
}

impl Place {
    /// Whether its name says that somebody agrees to a policy, or proves a key of it.
    pub(in crate::source) fn is_of_trust(&self) -> bool {
        below(&self.name).is_some_and(|rest| rest.starts_with("trust/") || rest.starts_with("possess/"))
    }
}

/// Which statements are worth a look.
#[derive(Debug, Clone, Default)]
pub(in crate::source) struct Wanted {
    /// Whose; anybody's when it is not known who there is.
    pub(in crate::source) principals: Option<BTreeSet<String>>,
    /// Batches that wait for something; all of them when that is not known.
    pub(in crate::source) batches: Option<BTreeSet<String>>,
    /// Whether words about batches are wanted at all.
    pub(in crate::source) about_batches: bool,
}

impl Wanted {
    /// Those of these references that are, in the order of their names.
    pub(in crate::source) fn of(&self, mut places: Vec<Place>) -> Vec<Place> {
        places.sort();
        places.dedup();
        let mut counted: BTreeMap<String, usize> = BTreeMap::new();
        places.retain(|place| {
            let Some(rest) = below(&place.name) else { return false };
            let parts: Vec<&str> = rest.split('/').collect();
            let [kind, subject, principal, _] = parts[..] else { return false };
            let batch = matches!(kind, "approve" | "reject" | "withdraw");
            let other = matches!(kind, "change" | "trust" | "possess" | "revoke" | "reseal")
                || (kind == "breakglass" && self.about_batches);
            let open = || self.batches.as_ref().is_none_or(|open| open.contains(subject));
            let known = self.principals.as_ref().is_none_or(|known| known.contains(principal));
            if !known || !(other || (batch && self.about_batches && open())) {
                return false;
            }
            let of_one = counted.entry(format!("{kind}/{subject}/{principal}")).or_default();
            *of_one += 1;
            *of_one <= MOST_OF_ONE
        });
        places.truncate(MOST);
        places
    }
}

/// The part of a reference's name that says what is there; of branches here, and of those that were fetched.
fn below(name: &str) -> Option<&str> {
    let branch = name.strip_prefix("refs/heads/");
    let fetched = || name.strip_prefix("refs/remotes/")?.split_once('/').map(|(_, rest)| rest);
    branch.or_else(fetched)?.strip_prefix("bc/statements/")
}

impl Repo {
    /// The references below a prefix.
    pub(in crate::source) fn places(&self, prefix: &str) -> Result<Vec<Place>, GitError> {
        let broken =
            |error: &dyn std::error::Error| GitError::Refused(format!("references cannot be read: {}", chain(error)));
        let references = self.inner.references().map_err(|error| broken(&error))?;
        let references = references.prefixed(prefix).map_err(|error| broken(&error))?;
        let place = |reference: gix::Reference<'_>| {
            let id = reference.target().try_id().map(ToOwned::to_owned)?;
            Some(Place { name: reference.name().as_bstr().to_string(), id })
        };
        Ok(references.flatten().filter_map(place).collect())
    }

    /// The commit at a place, when it can be one that says something.
    pub(in crate::source) fn word(&self, id: ObjectId) -> Option<Vec<u8>> {
        match self.object(id, Kind::Commit, MAX_STATEMENT_BYTES as u64) {
            Ok(Object::Data(raw)) => Some(raw),
            Ok(Object::TooLarge(_)) | Err(_) => None,
        }
    }
}

impl TrustHistory<'_> {
    /// Commits that may be statements about the history, and where they lie: at branches below `bc/statements/`, and at what was fetched
    /// of them.
    ///
    /// # Errors
    /// When the references cannot be listed.
    pub fn said(&self) -> Result<Vec<(String, Vec<u8>)>, GitError> {
        let mut places = self.repo.places(STATEMENTS)?;
        places.extend(self.repo.places("refs/remotes/")?);
        let mut seen = BTreeSet::new();
        let wanted = Wanted { about_batches: true, ..Wanted::default() }
            .of(places)
            .into_iter()
            .filter(|place| seen.insert(place.id));
        Ok(wanted.filter_map(|place| Some((place.name, self.repo.word(place.id)?))).collect())
    }

    /// The same without their places.
    ///
    /// # Errors
    /// When the references cannot be listed.
    pub fn statements(&self) -> Result<Vec<Heard>, GitError> {
        Ok(self.said()?.into_iter().map(|(_, raw)| raw.into()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, number: u8) -> Place {
        Place { name: name.to_owned(), id: ObjectId::from_bytes_or_panic(&[number; 20]) }
    }

    fn names(wanted: &Wanted, names: &[&str]) -> Vec<String> {
        let places = names.iter().map(|name| place(name, 1)).collect();
        wanted.of(places).into_iter().map(|place| place.name).collect()
    }

    #[test]
    fn only_open_subjects_of_people_whom_a_policy_knows_are_worth_a_look() {
        let set = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let wanted = Wanted { principals: set(&["ada"]), batches: set(&["kernel"]), about_batches: true };
        let all = [
            "refs/heads/bc/statements/approve/kernel/ada/1",
            "refs/heads/bc/statements/approve/other/ada/1",
            "refs/heads/bc/statements/approve/kernel/eve/1",
            "refs/heads/bc/statements/change/abc/ada/1",
            "refs/heads/bc/statements/party/abc/ada/1",
            "refs/heads/bc/statements/change/abc/ada",
            "refs/heads/main",
            "refs/remotes/origin/bc/statements/revoke/key/ada/1",
        ];
        assert_eq!(names(&wanted, &all), [all[0], all[3], all[7]]);
        assert_eq!(names(&Wanted::default(), &all), [all[3], all[7]], "the history asks for no approvals");
    }

    #[test]
    fn nobody_keeps_anybody_elses_words_out() {
        let flood: Vec<String> = (0..100).map(|n| format!("refs/heads/bc/statements/trust/2/ada/{n:03}")).collect();
        let mut all: Vec<&str> = flood.iter().map(String::as_str).collect();
        all.push("refs/heads/bc/statements/trust/2/bob/1");
        let kept = names(&Wanted::default(), &all);
        assert_eq!(kept.len(), MOST_OF_ONE + 1);
        assert_eq!(kept.last().map(String::as_str), Some("refs/heads/bc/statements/trust/2/bob/1"));
    }
}
