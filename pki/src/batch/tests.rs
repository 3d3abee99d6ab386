//! Who may approve what, and what a node does not act on: the rows of an attacker's list, one by one.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    command::{CommandBody, CommandKind},
    digest::Digest,
    generation::{Generation, IdentityGeneration},
    id::{CommandId, JournalId, NodeId},
    name::Name,
    time::Timestamp,
};
use serde_json::json;

use super::{
    testing::{Fleet, Person, object, policy},
    *,
};
use crate::{
    testing::{after, now},
    trust::{policy::Policy, statement::Under},
};

mod approvals;
mod breakglass;
mod foretold;
mod hands;
mod node;
mod quorum;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A fleet, its people, and a batch of reboots.
struct World {
    fleet: Fleet,
    people: BTreeMap<&'static str, Person>,
    policy: Policy,
    leaves: Vec<Leaf>,
    header: BatchHeader,
    revoked: BTreeSet<String>,
}

const TIERS: &str = r#"
path "**" { roles "admin"; }
trust { roles "admin"; threshold 1; }
revoke { roles "admin"; }
tier "reboot" { commands "node.reboot"; roles "operator"; threshold 2; max-nodes 4; max-ttl "4h"; }
tier "reset" { commands "gpu.reset"; roles "operator"; threshold 2; groups { sre 1; dc 1; }; exclude "fay"; max-nodes 3; max-ttl "2h"; }
breakglass { commands "node.reboot" "gpu.reset"; roles "admin"; threshold 2; max-nodes 2; max-ttl "1h"; }
"#;

impl World {
    fn new() -> Self {
        let people: BTreeMap<&'static str, Person> =
            ["ada", "ada2", "bob", "cleo", "dan", "fay", "gil", "robot", "forge", "eve"]
                .into_iter()
                .map(|name| (name, Person::new(name.trim_end_matches('2'))))
                .collect();
        let text = Self::text(&people, "epoch 1", TIERS);
        let mut world = Self {
            fleet: Fleet::new("acme.example"),
            policy: policy(&text),
            people,
            leaves: Vec::new(),
            header: BatchHeader {
                trust_domain: String::new(),
                fleet: Fleet::new("acme.example").id,
                name: name("b"),
                tier: name("reboot"),
                proposer: None,
                excluded: BTreeSet::new(),
                not_before: now(),
                expires: after(3600),
                plan_commit: object("plan"),
                plan_tree: object("plan's tree"),
                under: Under { epoch: 1, digest: Digest::of([]) },
                reason: "kernel".to_owned(),
                max_in_flight: 1,
                max_failures: 0,
                spread: None,
                leaves: 0,
                root: Digest::of([]),
            },
            revoked: BTreeSet::new(),
        };
        world.header.trust_domain.clone_from(&world.fleet.trust_domain);
        world.leaves = (0..3).map(leaf).collect();
        world.seal();
        world
    }

    fn text(people: &BTreeMap<&'static str, Person>, head: &str, nodes: &str) -> String {
        let key = |name: &str| format!("key \"{}\"; ", people[name].line());
        let one = |name: &str, kind: &str, words: &str, keys: String| {
            format!("principal \"{name}\" {{ kind \"{kind}\"; {words}{keys}}}\n")
        };
        let admin = "roles \"admin\" \"operator\"; groups \"sre\"; ";
        let people = [
            one("ada", "human", admin, key("ada") + &key("ada2")),
            one("bob", "human", "roles \"admin\" \"operator\"; groups \"sre\" \"dc\"; ", key("bob")),
            one("cleo", "human", "roles \"operator\"; groups \"dc\"; ", key("cleo")),
            one("dan", "human", "roles \"contractor\"; ", key("dan")),
            one("fay", "human", "roles \"operator\"; groups \"sre\" \"dc\"; ", key("fay")),
            one("gil", "human", "roles \"operator\"; ", key("gil")),
            one("robot", "service", "roles \"operator\"; ", key("robot")),
            one("forge", "forge", "roles \"operator\"; ", key("forge")),
        ];
        format!("policy {{ format 1; {head}; }}\n{}{nodes}", people.concat())
    }

    /// The policy that follows, with its text changed.
    fn next(&self, from: &str, to: &str) -> Policy {
        let text = Self::text(&self.people, &format!("epoch 2; prev \"{}\"", self.policy.digest()), TIERS);
        assert!(text.contains(from), "{from}");
        policy(&text.replace(from, to))
    }

    /// Makes the header fit leaves and policy.
    fn seal(&mut self) {
        let hashes: Vec<Digest> = self.leaves.iter().map(Leaf::hash).collect();
        self.header.root = merkle::root(&hashes);
        self.header.leaves = u32::try_from(hashes.len()).expect("few");
        self.header.under = Under { epoch: self.policy.epoch(), digest: self.policy.digest() };
    }

    fn approve(&self, who: &str) -> Vec<u8> {
        self.fleet.approve(&self.people[who], &self.header)
    }

    /// A word about the batch with its text changed before it is signed.
    fn say(&self, word: &str, who: &str, change: impl Fn(String) -> String) -> Vec<u8> {
        let by = &self.people[who];
        let message = change(self.fleet.word(word, &by.name, &self.header));
        by.commit(self.header.plan_tree, &[self.header.plan_commit], &message)
    }

    fn kinds(&self) -> BTreeSet<String> {
        self.leaves.iter().map(|leaf| leaf.kind.clone()).collect()
    }

    fn tally(&self, statements: &[Vec<u8>]) -> Tally {
        self.tally_at(statements, &self.policy, now())
    }

    fn tally_at(&self, statements: &[Vec<u8>], present: &Policy, now: Timestamp) -> Tally {
        let (header, kinds, named, revoked) = (&self.header, &self.kinds(), &self.policy, &self.revoked);
        judge(&Question { header, kinds, statements, named, present, revoked, now })
    }

    /// The reason why the only statement does not count.
    fn refusal(&self, statement: Vec<u8>) -> &'static str {
        let tally = self.tally(&[statement]);
        assert!(tally.yes.is_empty() && tally.no.is_empty() && tally.withdrawn.is_empty(), "{tally:?}");
        tally.refused[0].why.code()
    }
}

fn leaf(index: u32) -> Leaf {
    let payload = CommandKind::NodeReboot.check_payload(&json!({})).expect("a payload");
    Leaf {
        index,
        name: name(&format!("gpu-{index}")),
        node: NodeId::generate(),
        identity_generation: IdentityGeneration(2),
        hardware_key: format!("sha256:{index:064}"),
        journal: JournalId::generate(),
        kind: CommandKind::NodeReboot.to_string(),
        payload: Leaf::payload(&payload),
        min_generation: Generation(7),
        preconditions: BTreeMap::new(),
    }
}

fn words(names: &BTreeSet<Name>) -> Vec<&str> {
    names.iter().map(Name::as_str).collect()
}
