//! Codes of answers of the API. Each answer says more: what, which field, and what to do.

use super::{
    Area::Api,
    Entry,
    Lifter::{Caller, Developer, Itself, Operator},
    entry,
};

/// The entries.
pub(super) const ENTRIES: &[Entry] = &[
    entry(
        Api,
        "INVALID_INPUT",
        "The request is not of the form that the method takes.",
        Caller,
        "the answer names the field; docs/reference/api.md has the form",
    ),
    entry(
        Api,
        "UNAUTHENTICATED",
        "Nobody that is known here calls: there is no token, or not a good one.",
        Caller,
        "use a token that is good: better-compute token api create",
    ),
    entry(
        Api,
        "ACCESS_DENIED",
        "The token may not do this.",
        Operator,
        "use a token with the scope that the answer names: better-compute token api create",
    ),
    entry(Api, "NOT_FOUND", "There is no such thing.", Caller, "look for its name: better-compute get nodes"),
    entry(
        Api,
        "CONFLICT",
        "It changed since it was read, or the idempotency key was used for another request.",
        Caller,
        "read it again and decide again; use a new key for a new request",
    ),
    entry(
        Api,
        "INVALID_STATE",
        "It is in a state that does not allow this.",
        Caller,
        "the answer says which state, and what holds it",
    ),
    entry(Api, "UNSUPPORTED", "This cannot be done here, or not by this method.", Caller, "the answer says what can"),
    entry(
        Api,
        "TOO_LARGE",
        "The request is longer than the method takes.",
        Caller,
        "send less at once; docs/reference/api.md has the limit",
    ),
    entry(Api, "RATE_LIMITED", "Too much was asked at once.", Itself, "wait a moment and ask again"),
    entry(
        Api,
        "ROW_UNREADABLE",
        "A row of the database is not what this program writes: somebody wrote it there, or a disk lost something. Nothing is done by it, and everything else goes on.",
        Operator,
        "look who can write to the database; put the row that the answer names right, or restore it from a backup",
    ),
    entry(
        Api,
        "INTERNAL",
        "A part of the control plane is broken; its log has the cause under the request's id.",
        Developer,
        "report it, with what the log says under that id",
    ),
    entry(
        Api,
        "UNAVAILABLE",
        "The database is away, or says that it can do nothing now (no room on its disk, no connection left), or the answer took too long.",
        Itself,
        "ask again; where PostgreSQL said why, the answer has its words and what to do; if it goes on, see better-compute status and the log",
    ),
];
