//! Why a machine is not what it should be, or gets no work.

use schema::{
    generation::Generation,
    node::{
        Connectivity, Hold, HoldSource, NoScheduleReason, ProvisionState, Role,
        condition::{ConditionStatus, REBOOT_REQUIRED, SECTION_FAILED},
    },
    report::SectionState,
    time::{Duration, Timestamp},
};
use store::{
    joins::Join, node_certs::Revocation, node_holds::NodeHold, node_sections::NodeSection, nodes::Node,
    outcomes::Outcome, trust::Held,
};

use super::{Area, Keeps, Lifter, Wait, catalogue, for_node, in_order};

/// Something between a machine and its target: a freeze, a pin, a suspension or a gate of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Its word, such as `freeze`.
    pub gate: String,
    /// Which one, such as `freeze/year-end`.
    pub by: String,
    /// Placed by a document or by hand.
    pub by_hand: bool,
    /// Who answers for it, why, until when, and where it is written.
    pub hold: Hold,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// What is known of a machine.
#[derive(Debug)]
pub struct NodeFacts<'a> {
    /// Its row.
    pub node: &'a Node,
    /// What keeps new work away on purpose.
    pub holds: &'a [NodeHold],
    /// What keeps it from its target.
    pub gates: &'a [Gate],
    /// How its sections ended.
    pub sections: &'a [NodeSection],
    /// What the reconcilers and the gateway said last.
    pub outcomes: &'a [Outcome],
    /// Commands that have not ended.
    pub open_commands: usize,
    /// When its newest certificate ends.
    pub certificate_ends: Option<Timestamp>,
    /// Its renewal, when that waits for somebody.
    pub renewal: Option<&'a Join>,
    /// How its last identity ended, when it has none.
    pub revoked: Option<Revocation>,
    /// Which trust policy it believes, in a fleet that is pinned.
    pub policy: Option<Held>,
    /// Gateways that get in no more by themselves.
    pub outside: &'a [String],
}

/// How long a machine may be away and still step to the roots of a rotation that it missed.
const STEPS_KEPT: Duration = Duration::from_secs(400 * 86_400);

/// A machine that cannot keep what it has to keep, as on a full disk.
const STATE_UNWRITABLE: &str = "state-unwritable";

/// A gateway that missed what it cannot follow.
pub const OUTSIDE: &str = "gateway-outside";

/// What is said of such a gateway.
#[must_use]
pub fn outside(gateway: &str) -> String {
    format!(
        "the gateway {gateway} was away while internal-authority was rotated: it needs new keys, and lets no machine in until then"
    )
}

/// What only follows from another thing that is told: the cause, and its echoes.
const ECHOES: [(&str, &[&str]); 5] = [
    // By whichever gateway it came, nobody says that this passes by itself.
    (OUTSIDE, &["disconnected"]),
    // A machine that can keep nothing has one short session after the other.
    ("state-unwritable", &["disconnected"]),
    ("acceptance-failed", &["not-adopted", "maintenance", "provision-failed"]),
    ("acceptance-running", &["not-adopted", "provisioning"]),
    ("inventory-incomplete", &["not-adopted", "provisioning"]),
];

/// Whether this code only follows from one of those that are told of the same machine.
#[must_use]
pub fn is_echo<'c>(code: &str, told: impl IntoIterator<Item = &'c str>) -> bool {
    told.into_iter().any(|cause| ECHOES.iter().any(|(known, echoes)| *known == cause && echoes.contains(&code)))
}

/// What a revocation is called wherever it is told.
#[must_use]
pub fn revoked(revocation: &Revocation) -> String {
    format!("its identity was revoked: {}", revocation.reason)
}

/// Everything that the machine waits for.
#[must_use]
pub fn node(facts: &NodeFacts<'_>, now: Timestamp) -> Vec<Wait> {
    let node = facts.node;
    let mut waits = Vec::new();
    waits.extend(contact(facts, now));
    if facts.revoked.is_none() && node.connectivity != Connectivity::Connected {
        let gateway = |name: &String| Wait::new(Area::Session, OUTSIDE, Keeps::Contact, outside(name));
        waits.extend(facts.outside.iter().map(gateway));
    }
    // What is refused of a machine whose identity was revoked is refused for that.
    let told = |one: &&Outcome| facts.revoked.is_none() || one.kind != "session";
    waits.extend(facts.outcomes.iter().filter(told).filter_map(outcome));
    waits.extend(facts.gates.iter().map(gate));
    waits.extend(facts.holds.iter().map(|stored| cordon(node, stored)));
    waits.extend(facts.sections.iter().filter_map(failed));
    waits.extend(conditions(node));
    waits.extend(facts.policy.as_ref().and_then(policy));
    waits.extend(work(node));
    if facts.open_commands > 0 {
        let says = match facts.open_commands {
            1 => "one command has not ended".to_owned(),
            many => format!("{many} commands have not ended"),
        };
        waits.push(
            Wait::new(Area::Command, "open-commands", Keeps::Nothing, says)
                .remedy(format!("better-compute commands {}", node.name)),
        );
    }
    in_order(for_node(without_echoes(waits), node.name.as_str()))
}

fn contact(facts: &NodeFacts<'_>, now: Timestamp) -> Option<Wait> {
    let node = facts.node;
    if let Some(revoked) = &facts.revoked {
        let says = self::revoked(revoked);
        let remedy = format!(
            "if it may come back: better-compute token create --pool {} --reclaim, and join it with that",
            node.pool.as_ref().map_or("POOL", |pool| pool.as_str())
        );
        return Some(Wait::new(Area::Session, "revoked", Keeps::Contact, says).since(revoked.at).remedy(remedy));
    }
    let ended = facts.certificate_ends.filter(|ends| *ends <= now);
    let refused = facts.outcomes.iter().filter_map(session).any(|wait| wait.code != STATE_UNWRITABLE);
    let code = match node.connectivity {
        Connectivity::Connected => return None,
        _ if ended.is_some() => return ended.map(|ended| certificate_ended(facts, ended, now)),
        Connectivity::Disconnected => "disconnected",
        Connectivity::Unreachable => "unreachable",
        Connectivity::Lost => "lost",
    };
    let says = if refused {
        format!("the machine is {} and what it tries is refused", node.connectivity)
    } else {
        format!("the machine is {}: it has no session", node.connectivity)
    };
    Some(Wait::new(Area::Session, code, Keeps::Contact, says).since(node.connectivity_since))
}

/// What brings a machine back whose certificate ended: its own renewal, somebody's word, or another join.
fn certificate_ended(facts: &NodeFacts<'_>, ended: Timestamp, now: Timestamp) -> Wait {
    let pool = facts.node.pool.as_ref().map_or("POOL", |pool| pool.as_str());
    match facts.renewal {
        Some(Join { approval: Some(approval), .. }) => {
            let says = format!("its renewal was let through by {} and goes with its next try", approval.by);
            Wait::new(Area::Session, "certificate-ended", Keeps::Contact, says)
                .lifted_by(Lifter::Itself)
                .remedy("wait a minute; `bcd status` on the machine says how its renewal goes")
        }
        Some(join) => Wait::new(Area::Renewal, &join.join.reason, Keeps::Contact, &join.join.message).remedy(format!(
            "better-compute joins approve {}, once it is clear that the machine is where it should be",
            join.id
        )),
        None => {
            let says = "its certificate ended while it was away, and its renewal has not come";
            let wait = Wait::new(Area::Session, "certificate-ended", Keeps::Contact, says);
            let back = format!(
                "start the machine; if `bcd status` on it says that the gateway's certificate was not issued by this fleet's \
                 authority, it has missed a rotation for too long: better-compute token create --pool {pool} --reclaim, and \
                 `bcd join --force` on it with that"
            );
            if STEPS_KEPT.after(ended) > now { wait } else { wait.remedy(back) }
        }
    }
    .since(ended)
}

/// What the gateway said last of the machine's session, when it was no good.
pub(super) fn session(outcome: &Outcome) -> Option<Wait> {
    (outcome.kind == "session").then(|| self::outcome(outcome)).flatten()
}

/// What a reconciler or the gateway waits for, or what broke.
fn outcome(outcome: &Outcome) -> Option<Wait> {
    let area = match (outcome.state.as_str(), outcome.kind.as_str()) {
        ("done", _) => return None,
        (_, "session") => Area::Session,
        _ => Area::Work,
    };
    let keeps = match outcome.kind.as_str() {
        "session" => Keeps::Contact,
        "command" => Keeps::Command,
        _ => Keeps::DesiredState,
    };
    let says = if outcome.message.is_empty() { outcome.reason.replace('-', " ") } else { outcome.message.clone() };
    Some(Wait::new(area, &outcome.reason, keeps, says).since(outcome.since).said_in(&outcome.place))
}

fn gate(gate: &Gate) -> Wait {
    let hold = &gate.hold;
    let mut wait =
        Wait::new(Area::Gate, &gate.gate, Keeps::DesiredState, format!("{} holds it back: {}", gate.by, hold.reason));
    wait.since = gate.since;
    wait.until = hold.until;
    wait.owner = Some(hold.owner.clone());
    wait.place.clone_from(&hold.place);
    if gate.by_hand {
        wait = wait.lifted_by(Lifter::Operator).remedy(format!("better-compute resume {}", gate.by));
    } else if let Some(place) = &hold.place {
        wait.remedy = format!("{}; it is written in {place}", wait.remedy);
    }
    wait
}

fn cordon(node: &Node, stored: &NodeHold) -> Wait {
    let hold = &stored.hold;
    let mut wait =
        Wait::new(Area::Gate, "cordon", Keeps::NewWork, format!("cordoned: {}", hold.reason)).since(stored.created_at);
    wait.until = hold.until;
    wait.owner = Some(hold.owner.clone());
    wait.place.clone_from(&hold.place);
    match (hold.source, &hold.place) {
        (HoldSource::Git, Some(place)) => {
            wait.lifted_by(Lifter::Author).remedy(format!("take `cordon` out of {place}"))
        }
        (HoldSource::Git, None) => wait.lifted_by(Lifter::Author),
        (HoldSource::Api, _) => {
            wait.lifted_by(Lifter::Operator).remedy(format!("better-compute uncordon {}", node.name))
        }
        (HoldSource::Health, _) => wait.lifted_by(Lifter::Itself).remedy("it is lifted when the machine is healthy"),
    }
}

fn failed(section: &NodeSection) -> Option<Wait> {
    if section.status.state != SectionState::Failed {
        return None;
    }
    let says =
        format!("section {} failed at generation {}: {}", section.section, section.generation, section.status.reason);
    let wait = Wait::new(Area::Work, "section-failed", Keeps::DesiredState, says).since(section.since);
    // The broker's word is the reason, and no file of the fleet is wrong.
    let broker = section.status.reason.rsplit(": ").find_map(|word| catalogue::find(Area::Secret, word));
    Some(match broker {
        Some(entry) => wait.lifted_by(entry.lifted_by).remedy(entry.remedy),
        None => wait,
    })
}

/// Which trust policy the machine believes, when it is not the one in force.
fn policy(held: &Held) -> Option<Wait> {
    let (code, keeps, says) = match held {
        Held::Newest => return None,
        Held::Unknown | Held::None => {
            ("policy-missing", Keeps::Nothing, "it has not said that it believes a trust policy".to_owned())
        }
        Held::Behind(epoch, why) => {
            let says = format!("it believes the trust policy of epoch {epoch}, and a later one is in force");
            let why = why.as_ref().map_or_else(String::new, |why| format!("; it does not take the next: {why}"));
            ("policy-behind", Keeps::Command, says + &why)
        }
        Held::Apart(epoch) => {
            let says = format!("it believes another trust policy of epoch {epoch} than the one that came into force");
            ("policy-apart", Keeps::Command, says)
        }
    };
    Some(Wait::new(Area::Condition, code, keeps, says))
}

fn conditions(node: &Node) -> impl Iterator<Item = Wait> {
    // A failed section is told with its own reason.
    node.conditions
        .iter()
        .filter(|condition| condition.status != ConditionStatus::False && condition.kind != SECTION_FAILED)
        .map(|condition| {
            let known = condition.status == ConditionStatus::True;
            let keeps = match condition.kind.as_str() {
                REBOOT_REQUIRED if known => Keeps::DesiredState,
                kind if node.no_schedule.contains(&NoScheduleReason::Condition(kind.to_owned())) => Keeps::NewWork,
                _ => Keeps::Nothing,
            };
            let says = if condition.message.is_empty() { condition.reason.clone() } else { condition.message.clone() };
            let wait = Wait::new(Area::Condition, &condition.kind, keeps, says).since(condition.since);
            if condition.kind == REBOOT_REQUIRED {
                wait.remedy(format!("better-compute run node.reboot {}", node.name))
            } else {
                wait
            }
        })
}

/// What keeps new work away and has no reason of its own above.
fn work(node: &Node) -> Vec<Wait> {
    let mut waits = Vec::new();
    if node.role != Role::Host {
        let says = format!("its role is {}, and only hosts take work", node.role);
        waits.push(Wait::new(Area::Schedule, "not-a-host", Keeps::NewWork, says));
    }
    if node.maintenance {
        let says = node.maintenance_reason.clone().unwrap_or_else(|| "in maintenance".to_owned());
        waits.push(Wait::new(Area::Schedule, "maintenance", Keeps::NewWork, says));
    }
    if !node.provision.receives_spec() {
        let says = format!("its provision state is {}", node.provision);
        let code = if node.provision == ProvisionState::Failed { "provision-failed" } else { "provisioning" };
        waits.push(Wait::new(Area::Schedule, code, Keeps::NewWork, says));
    } else if node.observed < Generation(1) {
        let says = "it has not converged its first spec";
        waits.push(Wait::new(Area::Schedule, "never-converged", Keeps::NewWork, says));
    }
    for reason in &node.no_schedule {
        match reason {
            NoScheduleReason::Taint(key) => {
                waits.push(Wait::new(Area::Schedule, "taint", Keeps::NewWork, format!("it has the taint {key}")));
            }
            NoScheduleReason::Draining => {
                waits.push(Wait::new(Area::Schedule, "draining", Keeps::NewWork, "it is being emptied"));
            }
            NoScheduleReason::Condition(_) | NoScheduleReason::Unreachable => {}
        }
    }
    waits
}

/// What is told once is enough. A section that failed is told with its reason; that the node reconciler waits for it says
/// nothing more.
fn without_echoes(mut waits: Vec<Wait>) -> Vec<Wait> {
    let codes: Vec<String> = waits.iter().map(|wait| wait.code.clone()).collect();
    waits.retain(|wait| !is_echo(&wait.code, codes.iter().map(String::as_str)));
    let told = waits.iter().any(|wait| wait.code == "section-failed" && wait.says.starts_with("section "));
    waits.retain(|wait| !(told && wait.code == "section-failed" && !wait.says.starts_with("section ")));
    waits
}
