//! Words of states in which nothing is wrong: whoever reads one may ask what it means as well.

use super::{
    Area::{Batch, Source, Trust},
    Entry,
    Lifter::{Itself, Operator, People},
    entry,
};

const NOTHING: &str = "nothing is to be done";

/// The entries.
pub(super) const ENTRIES: &[Entry] = &[
    entry(Source, "ok", "The tip of the branch is in force.", Itself, NOTHING),
    entry(Trust, "ok", "The commit counts: its signer may change all of it, or others vouch for it.", Itself, NOTHING),
    entry(
        Trust,
        "unverified",
        "Nobody pinned an anchor: commits come into force whoever signed them.",
        Operator,
        "better-compute trust init, or trust pin where the fleet has a policy",
    ),
    entry(
        Trust,
        "pinned",
        "An anchor is pinned, and nothing was verified from it yet.",
        Itself,
        "wait for the next look at the repository; better-compute status says what keeps it back",
    ),
    entry(Trust, "verified", "An anchor is pinned, and only what people signed comes into force.", Itself, NOTHING),
    entry(
        Batch,
        "proposed",
        "The batch waits for people.",
        People,
        "in a clone of the fleet repository: better-compute approve batch/NAME",
    ),
    entry(
        Batch,
        "approved",
        "Enough people agree to the batch; its window has not begun, or no machine can begin.",
        Itself,
        "wait; better-compute why batch/NAME says for what",
    ),
    entry(Batch, "dispatching", "Machines of the batch are at it.", Itself, "wait"),
    entry(
        Batch,
        "done",
        "Every machine of the batch came to an end.",
        Itself,
        "better-compute batches NAME says which",
    ),
    entry(
        Batch,
        "void",
        "What people would sign does not hold: the policy changed, or the tier does not allow it.",
        Operator,
        "better-compute why batch/NAME says which; ask again under another name",
    ),
    entry(
        Batch,
        "cancelled",
        "The batch was taken back, deleted, changed too late, or stopped after failures.",
        Operator,
        "better-compute why batch/NAME says which; ask again under another name",
    ),
];
