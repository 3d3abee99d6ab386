//! What people said: commits at the tips of `refs/heads/bc/statements/<kind>/<subject>/<principal>/<nonce>`.
//!
//! A name of a reference means nothing, and what lies there counts by its block and its signature. The names only say what is not
//! worth a look, and who is next: everybody has a turn, with everything that there is to say about anything. Whoever may push can put
//! anything under any name, and keeps nobody's words out by it: what was looked at is not looked at again, and what is left is drawn
//! by lot.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, RandomState},
};

use gix::{ObjectId, objs::Kind};
use pki::trust::{spoken::Heard, statement::MAX_STATEMENT_BYTES};

use super::{Deaf, Overlooked, TrustHistory};
use crate::source::git::{GitError, Object, Repo, chain};

/// Where people and services put what is beside the branch.
pub(in crate::source) const BESIDE: &str = "refs/heads/bc/";
/// Where statements are pushed to.
pub(in crate::source) const STATEMENTS: &str = "refs/heads/bc/statements/";
/// Where services propose batches.
pub(in crate::source) const PROPOSALS: &str = "refs/heads/bc/proposals/";
/// Places that are looked at at once.
pub(in crate::source) const MOST: usize = 20_000;

/// A reference below [`STATEMENTS`].
#[derive(Debug, Clone, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::source) struct Place {
    pub(in crate::source) name: String,
    pub(in crate::source) id: ObjectId,
}

/// Which statements are worth a look.
#[derive(Debug, Clone, Default)]
pub(in crate::source) struct Wanted {
    /// Whose; anybody's when it is not known who there is.
    pub(in crate::source) principals: Option<BTreeSet<String>>,
    /// Who has keys to prove beside them: services and forges.
    pub(in crate::source) holders: BTreeSet<String>,
    /// Batches that wait for something; all of them when that is not known.
    pub(in crate::source) batches: Option<BTreeSet<String>>,
    /// Whether words about batches are wanted at all.
    pub(in crate::source) about_batches: bool,
}

/// What lies where people say things, in a repository.
#[derive(Debug, Default)]
pub struct Said {
    /// Commits that may be statements about the history, each behind the name of its place.
    pub words: Vec<(String, Vec<u8>)>,
    /// What is none, whoever signed it.
    pub overlooked: Vec<Overlooked>,
}

/// What the name of a place says is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Label<'a> {
    principal: &'a str,
    kind: &'a str,
    subject: &'a str,
}

impl<'a> Label<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let mut parts = below(name)?.split('/');
        let (kind, subject, principal) = (parts.next()?, parts.next()?, parts.next()?);
        (parts.next().is_some() && parts.next().is_none()).then_some(Self { principal, kind, subject })
    }

    /// Whether it is a kind of statement that there is.
    fn is_of_a_kind(self) -> bool {
        let about_batches = matches!(self.kind, "approve" | "reject" | "withdraw" | "breakglass");
        about_batches || matches!(self.kind, "change" | "trust" | "possess" | "revoke" | "reseal")
    }

    /// Whether it takes away: such a word that comes late may come too late.
    fn takes_away(self) -> bool {
        matches!(self.kind, "reject" | "withdraw" | "revoke")
    }
}

impl Wanted {
    /// Those of these places that are, without those that are left out, each commit once; whose turn is first comes first.
    pub(in crate::source) fn of(&self, places: Vec<Place>, leave_out: impl Fn(&ObjectId) -> bool) -> Vec<Place> {
        let worth = |place: &Place| {
            !leave_out(&place.id) && Label::of(&place.name).is_some_and(|label| self.is_worth_a_look(label))
        };
        let mut places: Vec<Place> = places.into_iter().filter(worth).collect();
        let lot = RandomState::new();
        places.sort_by_cached_key(|place| lot.hash_one(place));
        let mut places = in_turn(in_turn(places, |label| label), |label| Label { subject: "", ..label });
        // Whoever puts somebody's commit under another name, too, does not keep it from its turn.
        let mut commits = BTreeSet::new();
        places.retain(|place| commits.insert(place.id));
        places.truncate(MOST);
        places
    }

    fn is_worth_a_look(&self, Label { principal, kind, subject }: Label<'_>) -> bool {
        let known = self.principals.as_ref().is_none_or(|known| known.contains(principal))
            || (kind == "possess" && self.holders.contains(principal));
        let open = || self.batches.as_ref().is_none_or(|open| open.contains(subject));
        known
            && match kind {
                "approve" | "reject" | "withdraw" => self.about_batches && open(),
                "breakglass" => self.about_batches,
                "change" | "trust" | "possess" | "revoke" | "reseal" => true,
                _ => false,
            }
    }
}

/// The first of each group, then the second of each, and so on; in each turn what takes away comes first.
fn in_turn(places: Vec<Place>, group: for<'a> fn(Label<'a>) -> Label<'a>) -> Vec<Place> {
    let mut taken: BTreeMap<Option<Label<'_>>, usize> = BTreeMap::new();
    let mut turns = Vec::with_capacity(places.len());
    for place in &places {
        let label = Label::of(&place.name);
        let turn = taken.entry(label.map(group)).or_default();
        *turn += 1;
        turns.push((*turn, !label.is_some_and(Label::takes_away)));
    }
    let mut turns: Vec<((usize, bool), Place)> = turns.into_iter().zip(places).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, place)| place).collect()
}

/// The part of a reference's name that says what is there; of branches here, and of those that were fetched.
fn below(name: &str) -> Option<&str> {
    let branch = name.strip_prefix("refs/heads/");
    let fetched = || name.strip_prefix("refs/remotes/")?.split_once('/').map(|(_, rest)| rest);
    branch.or_else(fetched)?.strip_prefix("bc/statements/")
}

impl Place {
    /// Whether it is where people say things, and no place of a statement.
    pub(in crate::source) fn is_misplaced(&self) -> bool {
        below(&self.name).is_some() && !Label::of(&self.name).is_some_and(Label::is_of_a_kind)
    }
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

    /// The commit at a place, or why it says nothing.
    pub(in crate::source) fn word(&self, id: ObjectId) -> Result<Result<Vec<u8>, Deaf>, GitError> {
        match self.object(id, Kind::Commit, MAX_STATEMENT_BYTES as u64) {
            Ok(Object::Data(raw)) => Ok(Ok(raw)),
            Ok(Object::TooLarge(_)) => Ok(Err(Deaf::Size)),
            Err(GitError::Unfit(_)) => Ok(Err(Deaf::Kind)),
            Err(error) => Err(error),
        }
    }
}

impl TrustHistory<'_> {
    /// What people say, and where it lies: at branches below `bc/statements/`, and at what was fetched of them.
    ///
    /// # Errors
    /// When the references cannot be listed.
    pub fn said(&self) -> Result<Said, GitError> {
        let mut places = self.repo.places(STATEMENTS)?;
        places.extend(self.repo.places("refs/remotes/")?);
        let misplaced = places.iter().filter(|place| place.is_misplaced());
        let mut deaf: Vec<(String, Deaf)> = misplaced.map(|place| (place.name.clone(), Deaf::Place)).collect();
        let mut words = Vec::new();
        for place in (Wanted { about_batches: true, ..Wanted::default() }).of(places, |_| false) {
            match self.repo.word(place.id) {
                Ok(Ok(raw)) => words.push((place.name, raw)),
                Ok(Err(why)) => deaf.push((place.name, why)),
                // What is missing may come.
                Err(_) => {}
            }
        }
        let overlooked = Overlooked::of(deaf.iter().map(|(name, why)| (name.as_str(), *why)));
        Ok(Said { words, overlooked })
    }

    /// The same without their places.
    ///
    /// # Errors
    /// When the references cannot be listed.
    pub fn statements(&self) -> Result<Vec<Heard>, GitError> {
        Ok(self.said()?.words.into_iter().map(|(_, raw)| raw.into()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, number: u32) -> Place {
        let id = [number.to_be_bytes().as_slice(), &[0; 16]].concat();
        Place { name: name.to_owned(), id: ObjectId::from_bytes_or_panic(&id) }
    }

    fn places<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Place> {
        names.into_iter().zip(0..).map(|(name, number)| place(name, number)).collect()
    }

    fn names(wanted: &Wanted, names: &[&str]) -> BTreeSet<String> {
        let places = wanted.of(places(names.iter().copied()), |_| false);
        places.into_iter().map(|place| place.name).collect()
    }

    /// Where a place comes among the others.
    fn turn(places: Vec<Place>, name: &str) -> Option<usize> {
        Wanted { about_batches: true, ..Wanted::default() }
            .of(places, |_| false)
            .iter()
            .position(|place| place.name == name)
    }

    #[test]
    fn only_open_subjects_of_people_whom_a_policy_knows_are_worth_a_look() {
        let set = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let wanted = Wanted {
            principals: set(&["ada"]),
            holders: BTreeSet::from(["robot".to_owned()]),
            batches: set(&["kernel"]),
            about_batches: true,
        };
        let all = [
            "refs/heads/bc/statements/approve/kernel/ada/1",
            "refs/heads/bc/statements/approve/other/ada/1",
            "refs/heads/bc/statements/approve/kernel/eve/1",
            "refs/heads/bc/statements/change/abc/ada/1",
            "refs/heads/bc/statements/party/abc/ada/1",
            "refs/heads/bc/statements/change/abc/ada",
            "refs/heads/main",
            "refs/heads/bc/statements/possess/2/robot/1",
            "refs/heads/bc/statements/approve/kernel/robot/1",
            "refs/remotes/origin/bc/statements/revoke/key/ada/1",
        ];
        let set = |picked: &[usize]| picked.iter().map(|at| all[*at].to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(names(&wanted, &all), set(&[0, 3, 7, 9]), "what is no person proves its keys, and says nothing");
        assert_eq!(names(&Wanted::default(), &all), set(&[3, 7, 9]), "the history asks for no approvals");
    }

    #[test]
    fn what_lies_at_no_place_of_a_statement_is_told_by_one_of_them() {
        let all = [
            "refs/heads/bc/statements/approve/kernel/ada",
            "refs/heads/bc/statements/approve/kernel/ada/1/2",
            "refs/remotes/origin/bc/statements/party/kernel/ada/1",
            "refs/heads/bc/statements/approve/kernel/ada/1",
            "refs/remotes/origin/bc/statements/reseal/abc/ada/1",
            "refs/heads/bc/proposals/kernel",
            "refs/heads/main",
        ];
        let places = places(all);
        let misplaced: Vec<_> = places.iter().filter(|place| place.is_misplaced()).map(|place| &*place.name).collect();
        assert_eq!(misplaced, &all[..3]);
        let told =
            Overlooked::of(misplaced.into_iter().rev().map(|name| (name, Deaf::Place)).chain([("x", Deaf::Size)]));
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        assert!(told[0].starts_with(&format!("{} and 2 others are not heard: ", all[0])), "{told:?}");
        assert_eq!(told[1], "x is not heard: a statement has at most 16 KiB");
    }

    #[test]
    fn one_commit_under_many_names_is_looked_at_once_and_what_is_left_out_never() {
        let all = ["trust/2/ada/1", "trust/2/ada/2", "trust/2/bob/1"].map(|name| format!("{STATEMENTS}{name}"));
        let places = || vec![place(&all[0], 1), place(&all[1], 1), place(&all[2], 2)];
        assert_eq!(Wanted::default().of(places(), |_| false).len(), 2);
        let left = Wanted::default().of(places(), |id| *id == place("", 1).id);
        assert_eq!(left, [place(&all[2], 2)]);
    }

    #[test]
    fn a_flood_under_somebodys_name_keeps_out_none_of_their_words_about_something_else() {
        let bob = "refs/heads/bc/statements/revoke/key/bob/1";
        let flood: Vec<String> = (0..40_000).map(|n| format!("{STATEMENTS}change/x{n}/bob/0")).collect();
        let all = places(flood.iter().map(String::as_str).chain([bob]));
        assert_eq!(turn(all, bob), Some(0), "what takes away comes first");
        let ada = "refs/heads/bc/statements/change/abc/ada/1";
        let all = places(flood.iter().map(String::as_str).chain([ada]));
        assert!(turn(all, ada) < Some(2), "everybody has a turn");
        let flood: Vec<String> = (0..40_000).map(|n| format!("{STATEMENTS}reject/one/bob/{n:08}")).collect();
        let other = "refs/heads/bc/statements/reject/other/bob/1";
        let all = places(flood.iter().map(String::as_str).chain([other]));
        assert!(turn(all, other) < Some(2), "and so has each thing that somebody speaks of");
    }

    #[test]
    fn in_a_flood_under_the_same_name_everything_has_its_turn() {
        let bob = "refs/heads/bc/statements/reject/kernel/bob/ffffffff";
        let flood: Vec<String> = (0..2 * MOST).map(|n| format!("{STATEMENTS}reject/kernel/bob/{n:08}")).collect();
        let all = places(flood.iter().map(String::as_str).chain([bob]));
        let (mut seen, mut looks) = (BTreeSet::new(), 0);
        while !seen.contains(&all[2 * MOST].id) {
            let drawn = Wanted { about_batches: true, ..Wanted::default() }.of(all.clone(), |id| seen.contains(id));
            assert!(drawn.len() <= MOST);
            seen.extend(drawn.into_iter().map(|place| place.id));
            looks += 1;
        }
        assert!(looks <= 3, "{looks}");
    }
}
