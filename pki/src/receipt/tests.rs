//! Facts about receipts: a whole story is proven, and none that somebody made up, the control plane included.

use schema::{
    command::{CommandKind, UpdateState},
    generation::{Generation, IdentityGeneration},
    id::{BootId, CommandId, JournalId},
};
use serde_json::json;

use super::*;
use crate::{
    audit::{Checkpoint, link, next},
    batch::testing::{Fleet, Person, object, policy as policy_of},
    keys::{Keys, TrustPin},
    testing::{Node, after, keys, now},
    trust::statement::Under,
};

const FLEET: &str = "fleet-one";

/// A batch that two people approved, one machine, and what it did.
struct Story {
    keys: Keys,
    people: Vec<Person>,
    fleet: Fleet,
    node: Node,
    header: BatchHeader,
    leaf: Leaf,
    body: CommandBody,
    text: String,
}

impl Story {
    fn new() -> Self {
        let mut keys = keys();
        let fleet = Fleet::new("bc.local");
        let people: Vec<Person> = ["ada", "bob", "eve", "cleo"].into_iter().map(Person::new).collect();
        let principal = |person: &Person| {
            format!("principal \"{}\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n", person.name, person.line())
        };
        let text = format!(
            "policy {{ format 1; epoch 1; }}\n{}{}{}{}",
            principal(&people[0]),
            principal(&people[1]),
            principal(&people[3]),
            r#"path "**" { roles "admin"; }
trust { roles "admin"; threshold 1; }
tier "reboot" { commands "node.reboot"; roles "admin"; threshold 2; max-nodes 4; max-ttl "4h"; }
"#
        );
        let policy = policy_of(&text);
        let pin = TrustPin { commit: object("anchor"), fleet: fleet.id, digest: policy.digest() };
        keys.pin_trust(pin).expect("pinned once");
        let node = Node::of(&keys);
        let payload = CommandKind::NodeReboot.check_payload(&json!({})).expect("defaults");
        let leaf = Leaf {
            index: 0,
            name: "gpu-1".parse().expect("a name"),
            node: node.id,
            identity_generation: IdentityGeneration(1),
            hardware_key: "none".to_owned(),
            journal: JournalId::generate(),
            kind: CommandKind::NodeReboot.to_string(),
            payload: Leaf::payload(&payload),
            min_generation: Generation(1),
            preconditions: std::collections::BTreeMap::new(),
        };
        let header = BatchHeader {
            trust_domain: "bc.local".to_owned(),
            fleet: fleet.id,
            name: "kernel".parse().expect("a name"),
            tier: "reboot".parse().expect("a name"),
            proposer: None,
            excluded: BTreeSet::new(),
            not_before: now(),
            expires: after(3600),
            plan_commit: object("plan"),
            plan_tree: object("tree"),
            under: Under { epoch: policy.epoch(), digest: policy.digest() },
            reason: "a new kernel".to_owned(),
            leaves: 1,
            root: merkle::root(&[leaf.hash()]),
        };
        let body = CommandBody {
            id: CommandId::generate(),
            node_id: node.id,
            kind: CommandKind::NodeReboot,
            seq: 1,
            payload,
            not_after: after(3600),
            min_generation: None,
            batch: None,
            secrets: Vec::new(),
        };
        Self { keys, people, fleet, node, header, leaf, body, text }
    }

    fn realm(&self) -> Realm {
        self.keys.anchor(FLEET).realm()
    }

    fn parts(&self) -> Parts {
        let worker = self.keys.command_root().certify(&self.realm(), now());
        let signer = self.keys.audit_signer(FLEET);
        let bytes = self.body.to_bytes();
        let command = SentCommand::new(bytes.clone(), worker.sign_command(self.node.id, &bytes));
        let word = CommandUpdate::new(
            self.body.id,
            self.node.id,
            UpdateState::Succeeded,
            self.leaf.journal,
            BootId::generate(),
        )
        .to_bytes();
        let signature = self.node.key.sign_command_update(&self.realm(), self.node.id, &word);
        let chain = self.node.issued.chain.iter().map(|certificate| certificate.to_vec()).collect();
        let result = SignedResult::new(word, signature, chain);
        let row = |pos: u64, subject: String| Row {
            pos,
            id: format!("audit_{pos}"),
            at: now(),
            actor: "batch".to_owned(),
            action: "batches.done".to_owned(),
            subject,
            detail: serde_json::Value::Null,
        };
        let rows = [row(0, "batch/kernel".to_owned()).text(), row(1, self.body.id.to_string()).text()];
        let texts: Vec<&str> = rows.iter().map(String::as_str).collect();
        let last = texts.iter().fold(None, |before, row| Some(link(before, row))).expect("rows");
        let (checkpoint, signed): (Checkpoint, _) = next(&signer, None, last, &texts, now());
        let proofs = (0..2).filter_map(|index| Proof::of(&texts, index, &checkpoint, &signed)).collect();
        Parts {
            anchor: self.keys.anchor(FLEET).to_bytes(),
            vouch: Vouch::make(&worker, signer.key()),
            batch: "kernel".to_owned(),
            document: "{}".to_owned(),
            header: Some(self.header.to_bytes()),
            policies: vec![PolicyStep::new(self.text.clone().into_bytes(), Vec::new())],
            statements: self.people[..2].iter().map(|who| self.fleet.approve(who, &self.header)).collect(),
            deeds: vec![Deed::new(
                "gpu-1".to_owned(),
                Some(self.leaf.to_bytes()),
                Some(command),
                Some(result),
                "succeeded".to_owned(),
            )],
            audit: proofs,
        }
    }

    fn seal(&self, parts: Parts) -> Vec<u8> {
        seal(parts, &self.keys.audit_signer(FLEET)).expect("held")
    }

    fn told(&self) -> Told {
        Told { pin: Some(self.keys.anchor(FLEET).pin()), fleet: Some(FLEET.to_owned()) }
    }

    fn judge(&self, parts: Parts) -> Result<Proven, Void> {
        verify(&self.seal(parts), &self.told())
    }
}

#[test]
fn a_whole_story_is_proven() {
    let story = Story::new();
    let proven = story.judge(story.parts()).expect("proven");
    assert_eq!(proven.approved_by.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["ada", "bob"]);
    let done = &proven.done[0];
    assert_eq!((done.node.as_str(), done.sent, done.said.as_deref()), ("gpu-1", true, Some("succeeded")));
    assert_eq!(proven.lines.len(), 2);
    assert_eq!(proven.header, Some(story.header));
}

#[test]
fn no_bit_of_a_receipt_can_change() {
    let story = Story::new();
    let file = story.seal(story.parts());
    for bit in (0..file.len() * 8).step_by(61) {
        let mut changed = file.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(verify(&changed, &Told::default()).is_err(), "bit {bit}");
    }
    for cut in (0..file.len()).step_by(997) {
        assert!(verify(&file[..cut], &Told::default()).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_control_plane_cannot_make_up_an_approval() {
    let story = Story::new();
    let mut one = story.parts();
    one.statements.pop();
    assert!(matches!(story.judge(one), Err(Void::NotApproved(_))));
    let mut stranger = story.parts();
    stranger.statements[1] = story.fleet.approve(&story.people[2], &story.header);
    assert!(matches!(story.judge(stranger), Err(Void::NotApproved(_))));
    let mut twice = story.parts();
    twice.statements[1] = story.fleet.approve(&story.people[0], &story.header);
    assert!(matches!(story.judge(twice), Err(Void::NotApproved(_))));
    let mut other = story.parts();
    let text = story.text.replace("threshold 2", "threshold 1");
    other.policies = vec![PolicyStep::new(text.into_bytes(), Vec::new())];
    assert!(matches!(story.judge(other), Err(Void::Policies(_))));
}

#[test]
fn a_control_plane_cannot_make_up_a_result_or_another_machine() {
    let story = Story::new();
    let other = Node::of(&story.keys);
    let word = CommandUpdate::new(
        story.body.id,
        story.node.id,
        UpdateState::Succeeded,
        story.leaf.journal,
        BootId::generate(),
    )
    .to_bytes();
    let chain: Vec<Vec<u8>> = story.node.issued.chain.iter().map(|certificate| certificate.to_vec()).collect();
    let theirs: Vec<Vec<u8>> = other.issued.chain.iter().map(|certificate| certificate.to_vec()).collect();
    let signature = other.key.sign_command_update(&story.realm(), story.node.id, &word);
    for chain in [chain, theirs] {
        let mut parts = story.parts();
        parts.deeds[0].result = Some(SignedResult::new(word.clone(), signature.clone(), chain));
        assert!(matches!(story.judge(parts), Err(Void::Result { .. })));
    }
    let mut leaf = story.parts();
    leaf.audit.truncate(1);
    let renamed = Leaf { name: "gpu-2".parse().expect("a name"), ..story.leaf.clone() };
    leaf.deeds[0] = Deed::new("gpu-2".to_owned(), Some(renamed.to_bytes()), None, None, "left".to_owned());
    assert!(matches!(story.judge(leaf), Err(Void::Leaves)));
    let mut unsigned = story.parts();
    unsigned.deeds[0].command = None;
    unsigned.audit.truncate(1);
    assert!(matches!(story.judge(unsigned), Err(Void::Result { .. })));
}

#[test]
fn lines_about_something_else_and_files_of_somebody_else_prove_nothing() {
    let story = Story::new();
    let mut parts = story.parts();
    parts.batch = "other".to_owned();
    assert!(matches!(story.judge(parts), Err(Void::OtherSubject(1))));
    let file = story.seal(story.parts());
    let other = Told { pin: Some(Digest::of("another")), fleet: None };
    assert!(matches!(verify(&file, &other), Err(Void::Anchor(_))));
    let theirs = Story::new();
    let disguised = Parts { anchor: story.parts().anchor, ..theirs.parts() };
    assert!(matches!(verify(&theirs.seal(disguised), &story.told()), Err(Void::Vouch)));
}

#[test]
fn the_plan_commit_is_the_one_of_the_header_or_it_is_not() {
    let story = Story::new();
    let raw = story.people[0].commit(object("tree"), &[object("before")], "a plan\n");
    let id = Commit::split(ObjectFormat::Sha1, &raw).expect("a commit").id();
    let header = BatchHeader { plan_commit: id, ..story.header };
    assert!(is_plan_commit(&header, &raw));
    assert!(!is_plan_commit(&BatchHeader { plan_tree: object("another"), ..header.clone() }, &raw));
    assert!(!is_plan_commit(&header, &raw[..raw.len() - 1]));
}
