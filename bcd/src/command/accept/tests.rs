//! Facts about acceptance: the earlier rule is the one that is reported, for every pair of them.

use schema::{command::CommandBody, id::CommandId};
use serde_json::json;

use super::*;
use crate::testing::payload;

const SIGNED: Result<(), SignatureRefusal> = Ok(());
const FORGED: Result<(), SignatureRefusal> = Err(SignatureRefusal::BadSignature);

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// A situation in which some of the rules are broken.
#[derive(Debug, Clone, Copy)]
struct Broken {
    unsupported: bool,
    stale: bool,
    expired: bool,
    signature: bool,
    journal: bool,
    unapproved: bool,
    busy: bool,
}

impl Broken {
    fn judge(self, kind: CommandKind) -> Verdict {
        let (node, journal) = (NodeId::generate(), JournalId::generate());
        let body = CommandBody {
            id: CommandId::generate(),
            node_id: if self.unsupported { NodeId::generate() } else { node },
            kind,
            seq: 1,
            payload: payload(kind),
            not_after: if self.expired { now() } else { at("2026-03-01T12:10:00Z") },
            min_generation: self.stale.then_some(Generation(9)),
            batch: None,
            secrets: Vec::new(),
            journal: Some(if self.journal { JournalId::generate() } else { journal }),
        };
        let facts = Facts {
            node,
            allowed: None,
            applied: Generation(3),
            now: Some(now()),
            wall: now(),
            journal,
            guard: if self.unapproved { guarded() } else { open() },
            spent: &NOTHING,
            room: usize::from(!self.busy),
        };
        let signature = if self.signature { FORGED } else { SIGNED };
        accept(&Offer { body: &Ok(body), approval: &[], signature }, &facts)
    }

    /// The first of the broken rules, in the order of the specification.
    const fn first(self, destructive: bool) -> Option<Refusal> {
        if self.unsupported {
            Some(Refusal::Unsupported)
        } else if self.stale {
            Some(Refusal::StaleGeneration)
        } else if self.expired {
            Some(Refusal::Expired)
        } else if self.signature {
            Some(Refusal::BadSignature)
        } else if self.journal {
            Some(Refusal::JournalOther)
        } else if self.unapproved && destructive {
            Some(Refusal::BatchUnapproved)
        } else if self.busy {
            Some(Refusal::Busy)
        } else {
            None
        }
    }
}

fn situations() -> impl Iterator<Item = Broken> {
    (0..128u8).map(|bits| {
        let bit = |place: u8| bits & (1 << place) != 0;
        Broken {
            unsupported: bit(0),
            stale: bit(1),
            expired: bit(2),
            signature: bit(3),
            journal: bit(4),
            unapproved: bit(5),
            busy: bit(6),
        }
    })
}

#[test]
fn the_first_broken_rule_is_the_one_that_is_reported() {
    for broken in situations() {
        for kind in [CommandKind::InventoryRefresh, CommandKind::NodeReboot] {
            match (broken.first(kind.row().destructive), broken.judge(kind)) {
                (None, verdict) => assert_eq!(verdict, Verdict::Accept(Toll::Free), "{broken:?}"),
                // A genuine command that is early waits; one that is late, or forged, is answered at once.
                (Some(Refusal::StaleGeneration), Verdict::Wait) => {
                    assert!(!broken.expired && !broken.signature, "{broken:?}");
                }
                (Some(first), Verdict::Refuse(refusal, _)) => assert_eq!(refusal, first, "{broken:?}"),
                (first, verdict) => unreachable!("{broken:?}: {first:?}, and {verdict:?}"),
            }
        }
    }
}

#[test]
fn nothing_is_waited_for_before_the_signature_holds() {
    let waits = |broken: Broken| broken.judge(CommandKind::NodeReboot) == Verdict::Wait;
    assert!(situations().filter(|broken| waits(*broken)).all(|broken| !broken.signature));
    assert!(situations().any(waits));
}

fn plain(kind: CommandKind) -> CommandBody {
    CommandBody {
        id: CommandId::generate(),
        node_id: NodeId::generate(),
        kind,
        seq: 1,
        payload: payload(kind),
        not_after: at("2026-03-01T12:10:00Z"),
        min_generation: None,
        batch: None,
        secrets: Vec::new(),
        journal: None,
    }
}

static NOTHING: Spent = Spent { uses: std::collections::BTreeMap::new(), unbatched: Vec::new(), since: None };

/// A node that was never told of a policy.
fn open() -> &'static Guard {
    static OPEN: std::sync::LazyLock<Guard> = std::sync::LazyLock::new(Guard::default);
    &OPEN
}

/// A node whose people want to be asked.
fn guarded() -> &'static Guard {
    static GUARDED: std::sync::LazyLock<Guard> = std::sync::LazyLock::new(|| crate::testing::People::new(0).guard());
    &GUARDED
}

fn facts(node: NodeId) -> Facts<'static> {
    Facts {
        node,
        allowed: None,
        applied: Generation(3),
        now: Some(now()),
        wall: now(),
        journal: JournalId::generate(),
        guard: open(),
        spent: &NOTHING,
        room: 1,
    }
}

fn refusal(verdict: &Verdict) -> Option<Refusal> {
    match verdict {
        Verdict::Refuse(refusal, _) => Some(*refusal),
        _ => None,
    }
}

#[test]
fn the_deadline_is_the_first_moment_that_is_too_late() {
    let body = plain(CommandKind::NodeReboot);
    let judge = |now: &str| {
        let facts = Facts { now: Some(at(now)), ..facts(body.node_id) };
        accept(&Offer { body: &Ok(body.clone()), approval: &[], signature: SIGNED }, &facts)
    };
    assert_eq!(judge("2026-03-01T12:09:59.999999999Z"), Verdict::Accept(Toll::Free));
    assert_eq!(refusal(&judge("2026-03-01T12:10:00Z")), Some(Refusal::Expired));
    assert_eq!(refusal(&judge("2031-01-01T00:00:00Z")), Some(Refusal::Expired));
}

#[test]
fn while_the_time_is_not_proven_everything_comes_again_later() {
    for row in &schema::command::KINDS {
        let body = plain(row.kind);
        let facts = Facts { now: None, ..facts(body.node_id) };
        let verdict = accept(&Offer { body: &Ok(body), approval: &[], signature: SIGNED }, &facts);
        assert_eq!(refusal(&verdict), Some(Refusal::Busy), "{}", row.kind);
    }
}

#[test]
fn a_restricted_identity_takes_what_is_its_own() {
    let body = Ok(plain(CommandKind::NodeReboot));
    let node = body.as_ref().expect("a body").node_id;
    let offer = Offer { body: &body, approval: &[], signature: SIGNED };
    let only = [CommandKind::InventoryRefresh];
    let restricted = Facts { allowed: Some(&only), ..facts(node) };
    assert_eq!(refusal(&accept(&offer, &restricted)), Some(Refusal::Unsupported));
    let both = [CommandKind::InventoryRefresh, CommandKind::NodeReboot];
    assert_eq!(accept(&offer, &Facts { allowed: Some(&both), ..facts(node) }), Verdict::Accept(Toll::Free));
}

#[test]
fn a_command_of_a_later_version_is_unsupported_and_noise_is_nothing() {
    let node = NodeId::generate();
    let text = json!({
        "id": CommandId::generate(), "nodeId": node, "kind": "disk.wipe", "seq": 4, "payload": {},
        "notAfter": "2026-03-01T12:10:00Z",
    });
    let read = |bytes: &[u8]| CommandBody::read(bytes);
    let later = read(text.to_string().as_bytes());
    let verdict = accept(&Offer { body: &later, approval: &[], signature: SIGNED }, &facts(node));
    assert_eq!(refusal(&verdict), Some(Refusal::Unsupported));
    assert_eq!(accept(&Offer { body: &read(b"{"), approval: &[], signature: SIGNED }, &facts(node)), Verdict::Ignore);
}
