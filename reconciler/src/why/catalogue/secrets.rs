//! Codes about the values of secrets: what a machine's section and log say, and what the broker answers.

use super::{
    Area::Secret,
    Entry,
    Lifter::{Developer, Itself, Operator},
    entry,
};

/// The entries.
pub(super) const ENTRIES: &[Entry] = &[
    entry(
        Secret,
        "secret-unavailable",
        "The machine lacks a value that its spec names, and did not get it. The file stays as it was, and it asks again.",
        Itself,
        "the message has the broker's word, which `better-compute why` explains; without one, see that the machine has a session",
    ),
    entry(
        Secret,
        "not-referred",
        "The spec that is stored for the machine does not name this version of the secret, or there is none: a newer spec is on its way, or somebody asks for what is not the machine's.",
        Itself,
        "nothing is to be done when it passes with the next spec; if it goes on, see who has the machine",
    ),
    entry(
        Secret,
        "hardware-changed",
        "The machine that asks has the node's key and shows other hardware than the node is known by: its board was replaced, or its disk or a copy of it runs in another machine. It gets no values, and keeps those that it has.",
        Operator,
        "after a repair: better-compute node rebind NODE; otherwise better-compute node revoke NODE, stop the machine, and put anew what it has",
    ),
    entry(
        Secret,
        "no-possession",
        "The request is not signed by a node of this fleet, or that node's identity was revoked.",
        Operator,
        "if the machine may come back, join it anew with a new token",
    ),
    entry(
        Secret,
        "request-too-old",
        "The request was signed too long ago, or in the future: it was held up, or the machine's clock is wrong.",
        Itself,
        "the machine asks again; if it goes on, see that its clock follows a time server",
    ),
    entry(
        Secret,
        "too-often",
        "The machine asked for values more often within a minute than any needs.",
        Itself,
        "it is answered in the next minute; if it goes on, see who has the machine",
    ),
    entry(
        Secret,
        "secret-unreadable",
        "The stored value does not open: the control plane has other keys than the one that sealed it.",
        Operator,
        "put the value again: better-compute secrets put NAME; or start the control plane with a copy of the key directory that has the key which sealed it",
    ),
    entry(
        Secret,
        "bad-request",
        "The request for values is not of the form that the broker takes.",
        Developer,
        "run the `bcd` of this version; if it is, report it with what the machine's log says",
    ),
    entry(
        Secret,
        "unavailable",
        "The control plane's database did not answer.",
        Itself,
        "the machine asks again; if it goes on, see better-compute status",
    ),
];
