//! How a run ends: [`Outcome`] when it knows what comes next, [`Failure`] when something broke.
//!
//! Both remember the place in the code that said so, because that is what one asks for when a key does not move.

use std::{error::Error, fmt, panic::Location, time::Duration};

use schema::cause::chain;
use store::{DbError, error::DbErrorKind, leases::FenceError, outcomes::Verdict, rows::UNREADABLE};

/// Something that has to happen first, as a closed set of a reconciler's own.
pub trait WaitReason: fmt::Display {
    /// The stable word that is stored, kebab-case. [`fmt::Display`] says the same for people.
    fn code(&self) -> &'static str;
}

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) place: &'static Location<'static>,
}

impl Outcome {
    /// Nothing is left to do for this key.
    #[track_caller]
    #[must_use]
    pub fn done() -> Self {
        Self { verdict: Verdict::Done, place: Location::caller() }
    }

    /// The key comes back by itself after this long; `reason` is kebab-case and stable.
    #[track_caller]
    #[must_use]
    pub fn again(after: Duration, reason: &'static str) -> Self {
        Self { verdict: Verdict::Again { after, reason: reason.to_owned() }, place: Location::caller() }
    }

    /// Something else must happen first, and whoever does it wakes the key.
    #[track_caller]
    #[must_use]
    pub fn wait(reason: &impl WaitReason) -> Self {
        Self {
            verdict: Verdict::Wait { reason: reason.code().to_owned(), message: reason.to_string(), again: None },
            place: Location::caller(),
        }
    }

    /// As [`Outcome::wait`], and the key comes back by itself after this long.
    #[track_caller]
    #[must_use]
    pub fn wait_for(reason: &impl WaitReason, after: Duration) -> Self {
        let verdict =
            Verdict::Wait { reason: reason.code().to_owned(), message: reason.to_string(), again: Some(after) };
        Self { verdict, place: Location::caller() }
    }

    /// How it ended.
    #[must_use]
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }
}

/// A run that broke. The key backs off and comes back.
#[derive(Debug)]
pub struct Failure {
    reason: &'static str,
    error: Box<dyn Error + Send + Sync>,
    place: &'static Location<'static>,
}

impl Failure {
    /// A failure of this kind (kebab-case, stable) with its cause.
    #[track_caller]
    pub fn new(reason: &'static str, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { reason, error: error.into(), place: Location::caller() }
    }

    /// What kind of failure it is.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.reason
    }

    pub(super) fn into_verdict(self) -> (Verdict, &'static Location<'static>) {
        (Verdict::Failed { reason: self.reason.to_owned(), message: chain(&*self.error) }, self.place)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.error)
    }
}

impl From<DbError> for Failure {
    #[track_caller]
    fn from(error: DbError) -> Self {
        let reason = match error.kind() {
            DbErrorKind::Unavailable => "database-unavailable",
            DbErrorKind::Corrupt => UNREADABLE,
            DbErrorKind::Contention | DbErrorKind::Constraint | DbErrorKind::Other => "database",
        };
        Self::new(reason, error)
    }
}

impl From<FenceError> for Failure {
    #[track_caller]
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::Stale(_) => Self::new(LEASE_LOST, error),
            FenceError::Db(error) => Self::from(error),
        }
    }
}

/// The reason of a run whose lease was taken over in the middle. Somebody else runs the key.
pub(super) const LEASE_LOST: &str = "lease-lost";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Sleepy;

    impl fmt::Display for Sleepy {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the node sleeps")
        }
    }

    impl WaitReason for Sleepy {
        fn code(&self) -> &'static str {
            "sleepy"
        }
    }

    #[test]
    fn an_outcome_knows_its_reason_and_its_place() {
        let outcome = Outcome::wait(&Sleepy);
        assert_eq!(outcome.place.file(), file!());
        assert!(
            matches!(outcome.verdict, Verdict::Wait { reason, message, again: None } if reason == "sleepy" && message == "the node sleeps")
        );
    }

    #[test]
    fn a_failure_that_was_passed_on_names_the_question_mark() {
        fn broken() -> Result<(), FenceError> {
            Err(FenceError::Stale("shard:1".into()))
        }
        fn run() -> Result<Outcome, Failure> {
            broken()?;
            Ok(Outcome::done())
        }
        let failure = run().expect_err("broken");
        assert_eq!((failure.reason(), failure.place.file()), (LEASE_LOST, file!()));
    }

    #[test]
    fn a_failure_is_stored_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("postgresql refused the statement")]
        struct Outer(#[source] std::io::Error);
        let cause = std::io::Error::other("value too long for type");
        let (verdict, _) = Failure::new("database", Outer(cause)).into_verdict();
        let Verdict::Failed { message, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(message, "postgresql refused the statement: value too long for type");
    }
}
