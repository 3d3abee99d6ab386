//! What is said of a machine in each situation: a golden text.

use schema::{
    generation::{Generation, IdentityGeneration, Version},
    id::{JoinId, NodeId},
    node::{
        Condition, Connectivity, Hold, HoldSource, NoScheduleReason, Power, ProvisionState, Role, Trust,
        condition::ConditionStatus,
    },
    report::{SectionState, SectionStatus},
    spec::Section,
};
use store::{
    joins::{Approval, Join, JoinKind, JoinState, NewJoin},
    node_certs::Revocation,
    node_holds::NodeHold,
    node_sections::NodeSection,
    nodes::Node,
    outcomes::Outcome,
    trust::Held,
};

use super::{at, told};
use crate::why::{Gate, NodeFacts, node};

pub(super) fn a_machine() -> Node {
    Node {
        id: NodeId::from_uuid(uuid::Uuid::from_u128(2)),
        name: "fra1-r12-u04".parse().expect("a name"),
        site: None,
        pool: Some("h100".parse().expect("a name")),
        owner_tenant: None,
        role: Role::Host,
        trust: Trust::Platform,
        adapter: "bcd".to_owned(),
        labels: std::collections::BTreeMap::new(),
        declared: false,
        hardware_key: None,
        hardware_key_trusted: true,
        provision: ProvisionState::Adopted,
        failed_from: None,
        maintenance: false,
        maintenance_reason: None,
        cordoned: false,
        power: Power::Unknown,
        connectivity: Connectivity::Connected,
        connectivity_since: at(0),
        conditions: Vec::new(),
        no_schedule: Vec::new(),
        inventory_wanted: Vec::new(),
        generation: Generation(4),
        observed: Generation(4),
        applied: Generation(4),
        identity_generation: IdentityGeneration(1),
        version: Version(1),
        shard: 0,
        spec_digest: None,
        spec_signed_at: None,
        spec_changed_at: None,
        spec_from: None,
        target: None,
        target_overlay: String::new(),
        assigned: None,
        assigned_overlay: String::new(),
        assigned_name: None,
        created_at: at(-60),
        adopted_at: Some(at(-50)),
    }
}

fn outcome(kind: &str, reason: &str, message: &str) -> Outcome {
    Outcome {
        kind: kind.to_owned(),
        key: a_machine().id.to_string(),
        state: "wait".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        place: "somewhere.rs:1".to_owned(),
        since: at(-3),
    }
}

pub(super) fn full_disk() -> Outcome {
    let why = "/var/lib/bcd/progress.json: write it: No space left on device (os error 28)";
    Outcome { state: "error".to_owned(), ..outcome("session", "state-unwritable", why) }
}

fn condition(kind: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: ConditionStatus::True,
        reason: kind.to_owned(),
        message: message.to_owned(),
        since: at(-9),
    }
}

fn hold(source: HoldSource, owner: &str, reason: &str, place: Option<&str>) -> Hold {
    Hold {
        source,
        owner: owner.to_owned(),
        reason: reason.to_owned(),
        until: Some(at(600)),
        place: place.map(str::to_owned),
    }
}

fn a_renewal() -> Join {
    Join {
        id: JoinId::from_uuid(uuid::Uuid::from_u128(3)),
        join: NewJoin {
            kind: JoinKind::Renewal,
            state: JoinState::Waiting,
            reason: "renewal-too-late".to_owned(),
            message: "node fra1-r12-u04: its certificate ended too long ago; it shows the node's hardware".to_owned(),
            pool: Some("h100".to_owned()),
            token_id: None,
            csr_hash: schema::digest::Digest::of("x"),
            hardware_key: None,
            claims: serde_json::Value::Null,
            attested: Vec::new(),
            node_id: Some(a_machine().id),
            conflict_with: None,
            peer: None,
        },
        approval: None,
        attempts: 1,
        created_at: at(-4),
        updated_at: at(-2),
    }
}

fn gate(word: &str, by: &str, by_hand: bool, reason: &str, place: Option<&str>) -> Gate {
    let source = if by_hand { HoldSource::Api } else { HoldSource::Git };
    Gate {
        gate: word.to_owned(),
        by: by.to_owned(),
        by_hand,
        hold: hold(source, "ada", reason, place),
        since: Some(at(-20)),
    }
}

fn quiet(node: &Node) -> NodeFacts<'_> {
    NodeFacts {
        node,
        holds: &[],
        gates: &[],
        sections: &[],
        outcomes: &[],
        open_commands: 0,
        certificate_ends: Some(at(600)),
        renewal: None,
        revoked: None,
        policy: Some(Held::Newest),
        outside: &[],
    }
}

#[test]
fn each_situation_of_a_machine_has_its_words() {
    let mut text = String::new();
    let mut look = |title: &str, facts: &NodeFacts<'_>| told(title, &node(facts, at(0)), &mut text);

    let fine = a_machine();
    look("nothing in its way", &quiet(&fine));
    let busy = NodeFacts { open_commands: 2, ..quiet(&fine) };
    look("commands under way", &busy);

    let away = |connectivity| Node { connectivity, connectivity_since: at(-2), ..a_machine() };
    for state in [Connectivity::Disconnected, Connectivity::Unreachable, Connectivity::Lost] {
        look(state.as_str(), &quiet(&away(state)));
    }
    let late = away(Connectivity::Lost);
    look("a certificate that ended", &NodeFacts { certificate_ends: Some(at(-1)), ..quiet(&late) });
    let months = at(-100 * 24 * 60);
    let mut renewal = a_renewal();
    let waiting = NodeFacts { certificate_ends: Some(months), renewal: Some(&renewal), ..quiet(&late) };
    look("a renewal that comes after months", &waiting);
    let years = Some(at(-500 * 24 * 60));
    look("a certificate that ended before the last rotations", &NodeFacts { certificate_ends: years, ..quiet(&late) });
    renewal.approval = Some(Approval { at: at(-1), by: "ada".to_owned(), as_node: None });
    let waiting = NodeFacts { certificate_ends: Some(months), renewal: Some(&renewal), ..quiet(&late) };
    look("a renewal that was let through", &waiting);
    let foreign = [outcome("session", "DESCRIBED_HARDWARE", "the machine is described by a file")];
    look("refused", &NodeFacts { outcomes: &foreign, ..quiet(&late) });
    let gateways = ["gw-1-a1b2c3".to_owned()];
    let cut = away(Connectivity::Disconnected);
    look("a gateway that gets in no more", &NodeFacts { outside: &gateways, ..quiet(&cut) });
    look("a full disk", &NodeFacts { outcomes: &[full_disk()], ..quiet(&away(Connectivity::Disconnected)) });
    let replaced = [outcome("session", "IDENTITY_REPLACED", "the node has a newer identity")];
    let revoked = Revocation { at: at(-5), reason: "sold on ebay".to_owned() };
    look("revoked", &NodeFacts { revoked: Some(revoked), outcomes: &replaced, ..quiet(&late) });

    let failed = Node {
        provision: ProvisionState::Failed,
        maintenance: true,
        maintenance_reason: Some("diag.dcgm failed: fan 3".to_owned()),
        observed: Generation(0),
        generation: Generation(0),
        ..a_machine()
    };
    let not_accepted = [
        outcome("nodespec", "not-adopted", "the node is adopting"),
        outcome("node", "acceptance-failed", "the machine was not accepted: diag.dcgm failed: fan 3"),
    ];
    look("acceptance failed", &NodeFacts { outcomes: &not_accepted, ..quiet(&failed) });
    let adopting = Node { provision: ProvisionState::Adopting, ..failed.clone() };
    let checked = [
        outcome("nodespec", "not-adopted", "the node is adopting"),
        outcome("node", "acceptance-running", "the machine is being checked: diag.nvml"),
    ];
    let adopting = Node { maintenance: false, maintenance_reason: None, ..adopting };
    look("being checked", &NodeFacts { outcomes: &checked, ..quiet(&adopting) });

    let secret = [outcome("nodespec", "secret-missing", "there is no secret db-password")];
    look("a secret that nobody put", &NodeFacts { outcomes: &secret, ..quiet(&fine) });
    let section = NodeSection {
        section: Section::Host,
        status: SectionStatus {
            digest: schema::digest::Digest::of("x"),
            state: SectionState::Failed,
            reason: "chrony.service does not start".to_owned(),
        },
        generation: Generation(4),
        since: at(-8),
    };
    let behind = [outcome("node", "section-failed", "the node could not converge host")];
    let sections = [section];
    look("a section that failed", &NodeFacts { outcomes: &behind, sections: &sections, ..quiet(&fine) });
    let mut sections = sections;
    sections[0].status.reason =
        "secret-unavailable: the value of secret://db-password: secret-unreadable: a stored value does not open"
            .to_owned();
    look("a value that does not open", &NodeFacts { outcomes: &behind, sections: &sections, ..quiet(&fine) });

    let gates = [
        gate("freeze", "freeze/year-end", false, "skeleton staff", Some("freezes/year-end.kdl:2")),
        gate("pin", "node/fra1-r12-u04", false, "bisecting", Some("nodes/fra1.kdl:9")),
        gate("suspend", "pool/h100", true, "an exam", None),
    ];
    look("frozen, pinned and suspended", &NodeFacts { gates: &gates, ..quiet(&fine) });
    let holds: Vec<NodeHold> = [
        hold(HoldSource::Api, "bob", "GPU 3 falls off the bus", None),
        hold(HoldSource::Git, "ada", "fan", Some("nodes/fra1.kdl:4")),
    ]
    .into_iter()
    .map(|hold| NodeHold { hold, created_at: at(-30) })
    .collect();
    look("cordoned twice", &NodeFacts { holds: &holds, ..quiet(&fine) });

    let odd = Node {
        conditions: vec![
            condition("RebootRequired", "staged for a boot: kernel arguments iommu=pt"),
            condition("HardwareChanged", "the board is another one"),
        ],
        no_schedule: vec![NoScheduleReason::Condition("HardwareChanged".to_owned()), NoScheduleReason::Draining],
        ..a_machine()
    };
    look("a boot to come, and another board", &quiet(&odd));
    let refused = Some("one person says so".to_owned());
    for (title, held) in [
        ("no trust policy", Held::Unknown),
        ("an earlier trust policy", Held::Behind(2, None)),
        ("a trust policy that it does not take", Held::Behind(2, refused)),
        ("another trust policy", Held::Apart(3)),
    ] {
        look(title, &NodeFacts { policy: Some(held), ..quiet(&fine) });
    }
    insta::assert_snapshot!(text);
}
