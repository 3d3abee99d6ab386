//! What follows from what people said, from the audit log and from the time, whatever machines do. Pure.

use std::{fmt, time::Duration};

use pki::batch::Tally;
use schema::time::Timestamp;
use store::batches::{Batch, BatchState, Ended, Origin};

use super::{
    super::{choose::WaitsFor, proposal::Hindrance, standing::Standing},
    LOOK, SELDOM,
};
use crate::reconcile::WaitReason;

/// The audit log says that it had ended.
pub(super) const ENDED_BEFORE: &str = "ended-before";
/// Nobody here put it down.
pub(super) const NOT_OURS: &str = "not-ours";
/// Somebody who may approve said no.
pub(super) const REJECTED: &str = "rejected";

/// What is known of a batch besides its row.
#[derive(Debug, Clone)]
pub(super) struct Known<'a> {
    /// How it ended before, as the audit log says.
    pub(super) ended: Option<Ended>,
    /// A process of this control plane put it down as it stands there.
    pub(super) ours: bool,
    /// A trust anchor is pinned.
    pub(super) pinned: bool,
    /// Enough people call the emergency that it says it is.
    pub(super) called: bool,
    /// What people said of it; `None` where nobody has to, and while that is not known.
    pub(super) standing: Option<&'a Standing>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Decision {
    /// It ends so, for this reason.
    End(BatchState, &'static str, String),
    /// It waits, and is looked at again.
    Wait(Waiting, Duration),
    /// It goes, from then on.
    Go { opens: Timestamp },
}

/// What a batch waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Waiting {
    /// People.
    Approvals(String),
    /// People of whom too few are left.
    OutOfReach(String),
    /// Its time.
    NotBefore(Timestamp),
    /// Machines that work on it.
    InFlight(String),
    /// Machines that cannot begin.
    Machines(WaitsFor, String),
    /// The policy that people trust is not known here.
    NoPolicy(String),
    /// The commit that people approve.
    Commit(Hindrance, String),
    /// Approvals that no machine reads.
    TooLarge(String),
}

impl Waiting {
    /// Whether it waits for somebody to say something.
    pub(super) const fn is_for_people(&self) -> bool {
        matches!(self, Self::Approvals(_) | Self::OutOfReach(_))
    }

    /// The same, with the machines that what is missing comes too late for.
    pub(super) fn with(self, at_it: Option<String>) -> Self {
        let Some(at_it) = at_it else { return self };
        let more = |text: String| format!("{text}; it was sent to {at_it} before, which nothing calls back");
        match self {
            Self::Approvals(text) => Self::Approvals(more(text)),
            Self::OutOfReach(text) => Self::OutOfReach(more(text)),
            other => other,
        }
    }
}

impl WaitReason for Waiting {
    fn code(&self) -> &'static str {
        match self {
            Self::Approvals(_) => "batch-approvals",
            Self::OutOfReach(_) => "batch-out-of-reach",
            Self::NotBefore(_) => "batch-not-before",
            Self::InFlight(_) => "batch-in-flight",
            Self::Machines(..) => "batch-machines",
            Self::NoPolicy(_) => "batch-policy",
            Self::TooLarge(_) => "approval-too-large",
            Self::Commit(hindrance, _) => hindrance.code(),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approvals(text)
            | Self::OutOfReach(text)
            | Self::InFlight(text)
            | Self::NoPolicy(text)
            | Self::TooLarge(text)
            | Self::Commit(_, text) => f.write_str(text),
            Self::NotBefore(at) => write!(f, "it begins at {at}"),
            Self::Machines(waits, text) => write!(f, "{text} ({})", waits.as_str()),
        }
    }
}

/// Decides. What ended once stays ended, and what nobody here put down is nothing, before anybody is asked.
pub(super) fn decide(batch: &Batch, known: &Known<'_>, now: Timestamp) -> Decision {
    let new = &batch.new;
    if let Some(Ended { state, by, at }) = &known.ended {
        let why = format!(
            "the audit log says that it ended at {at}: it is {state}, by {by}. Somebody set it back in the database, and it ends again"
        );
        return Decision::End(*state, ENDED_BEFORE, why);
    }
    if !known.ours {
        let why = "no process of this control plane put it down as it stands there: somebody changed it in the database, or it is from before batches were marked; ask for it again under another name";
        return Decision::End(BatchState::Void, NOT_OURS, why.to_owned());
    }
    if now >= new.expires {
        let reason = if batch.state == BatchState::Proposed { "not-approved" } else { "window-over" };
        return Decision::End(BatchState::Expired, reason, format!("its time was over at {}", new.expires));
    }
    if new.origin == Origin::Breakglass && !known.called {
        let why = "the statements that are stored with it call no emergency under the trust policy in force";
        return Decision::End(BatchState::Void, "not-called", why.to_owned());
    }
    if new.origin == Origin::Breakglass || !(known.pinned || new.quorum) {
        return Decision::Go { opens: new.not_before };
    }
    if !new.quorum {
        let why = "a trust anchor was pinned since, and nobody approved it; commit it again under another name";
        return Decision::End(BatchState::Void, "trust-changed", why.to_owned());
    }
    if batch.waits_for_commit() {
        let hindrance = Hindrance::of(batch.reason.as_deref().unwrap_or_default());
        let why = batch.message.clone().unwrap_or_else(|| "its commit is not signed and pushed yet".to_owned());
        return Decision::Wait(Waiting::Commit(hindrance, why), SELDOM);
    }
    let Some(standing) = known.standing else {
        return Decision::Wait(Waiting::NoPolicy("the trust policy is not known here yet".to_owned()), LOOK);
    };
    let Some(tally) = &standing.tally else {
        let epoch = standing.header.under.epoch;
        let why = format!(
            "it was to be approved under the trust policy of epoch {epoch}, which is not in force any more; commit it again under another name"
        );
        return Decision::End(BatchState::Void, "trust-changed", why);
    };
    if let Some(flaw) = &tally.flaw {
        return Decision::End(BatchState::Void, flaw.code(), flaw.to_string());
    }
    if !tally.no.is_empty() {
        return Decision::End(
            BatchState::Rejected,
            REJECTED,
            format!("{} rejected it", list(tally.no.iter().map(|name| name.as_str()))),
        );
    }
    if !tally.approved {
        let waiting = if standing.attainable {
            Waiting::Approvals(missing(tally))
        } else {
            Waiting::OutOfReach(format!("nobody can give the approvals it lacks: {}", missing(tally)))
        };
        return Decision::Wait(waiting, SELDOM);
    }
    if now > tally.closes {
        return Decision::Wait(Waiting::Approvals("an approval that it needs ran out".to_owned()), SELDOM);
    }
    Decision::Go { opens: tally.opens }
}

/// Who is missing, and who said yes.
fn missing(tally: &Tally) -> String {
    let needs = format!("it needs {}", tally.missing.join(" and "));
    match tally.yes.len() {
        0 => needs,
        _ => format!("{needs}; {} said yes", list(tally.yes.iter().map(|name| name.as_str()))),
    }
}

/// Some names, and how many more there are.
pub(super) fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        0..=3 => names.join(", "),
        more => format!("{} and {} more", names[..3].join(", "), more - 3),
    }
}
