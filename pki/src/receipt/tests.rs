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
    trust::{commit::Commit, object::ObjectFormat, statement::Under},
};

const FLEET: &str = "fleet-one";

/// A batch that two people approved, one machine, and what it did.
struct Story {
    keys: Keys,
    people: Vec<Person>,
    fleet: Fleet,
    node: Node,
    header: BatchHeader,
    plan: Vec<u8>,
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
revoke { roles "admin"; }
breakglass { commands "node.reboot"; roles "admin"; threshold 1; max-nodes 2; max-ttl "1h"; }
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
        let plan = people[3].commit(object("tree"), &[object("before")], "boot it\n");
        let header = BatchHeader {
            trust_domain: "bc.local".to_owned(),
            fleet: fleet.id,
            name: "kernel".parse().expect("a name"),
            tier: "reboot".parse().expect("a name"),
            proposer: None,
            excluded: BTreeSet::from(["cleo".parse().expect("a name")]),
            not_before: now(),
            expires: after(3600),
            plan_commit: Commit::split(ObjectFormat::Sha1, &plan).expect("a commit").id(),
            plan_tree: object("tree"),
            under: Under { epoch: policy.epoch(), digest: policy.digest() },
            reason: "a new kernel".to_owned(),
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
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
            min_generation: Some(leaf.min_generation),
            batch: None,
            secrets: Vec::new(),
            journal: None,
        };
        Self { keys, people, fleet, node, header, plan, leaf, body, text }
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
            detail: json!({ "document": Digest::of("{}") }),
        };
        let rows = [row(0, "batch/kernel".to_owned()).text(), row(1, self.body.id.to_string()).text()];
        let proofs = proofs(&signer, &rows);
        Parts {
            anchor: self.keys.anchor(FLEET).to_bytes(),
            vouch: Vouch::make(&worker, signer.key()),
            vouches: Vec::new(),
            batch: "kernel".to_owned(),
            document: "{}".to_owned(),
            header: Some(self.header.to_bytes()),
            plan: Some(self.plan.clone()),
            policies: vec![PolicyStep::new(self.text.clone().into_bytes(), Vec::new())],
            statements: self.people[..2].iter().map(|who| self.fleet.approve(who, &self.header)).collect(),
            emergency: Vec::new(),
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

    /// The same machine booted in an emergency that some people call.
    fn emergency(&self, callers: &[usize]) -> Parts {
        let window = (now(), after(3600));
        let call = |who: &usize| {
            self.fleet.breakglass(&self.people[*who], ("node.reboot", "gpu-1"), &policy_of(&self.text), window)
        };
        let mut parts = Parts {
            header: None,
            plan: None,
            statements: Vec::new(),
            emergency: callers.iter().map(call).collect(),
            ..self.parts()
        };
        let Deed { node, command, result, state, .. } = parts.deeds.remove(0);
        parts.deeds.push(Deed::new(node, None, command, result, state));
        parts
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

fn proofs(signer: &AuditSigner, rows: &[String]) -> Vec<Proof> {
    let texts: Vec<&str> = rows.iter().map(String::as_str).collect();
    let last = texts.iter().fold(None, |before, row| Some(link(before, row))).expect("rows");
    let (checkpoint, signed): (Checkpoint, _) = next(signer, None, last, &texts, now());
    (0..texts.len()).filter_map(|index| Proof::of(&texts, index, &checkpoint, &signed)).collect()
}

fn names<'n>(names: impl IntoIterator<Item = &'n Name>) -> Vec<&'n str> {
    names.into_iter().map(Name::as_str).collect()
}

#[test]
fn a_whole_story_is_proven() {
    let story = Story::new();
    let proven = story.judge(story.parts()).expect("proven");
    assert_eq!((names(&proven.approved_by), names(&proven.asked_by)), (vec!["ada", "bob"], vec!["cleo"]));
    let done = &proven.done[0];
    assert_eq!((done.node.as_str(), done.sent, done.said.as_deref()), ("gpu-1", true, Some("succeeded")));
    assert_eq!(proven.lines.len(), 2);
    assert_eq!(proven.header, Some(story.header));
}

#[test]
fn no_bit_of_a_receipt_can_change() {
    let story = Story::new();
    let (mut approved, mut called) = (story.parts(), story.emergency(&[0]));
    for parts in [&mut approved, &mut called] {
        let revoke = story.fleet.revoke(&story.people[0], &story.people[3].key(), &policy_of(&story.text));
        parts.policies[0].revoke(revoke, false);
    }
    for parts in [approved, called] {
        let file = story.seal(parts);
        verify(&file, &story.told()).expect("proven");
        for bit in (0..file.len() * 8).step_by(61) {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&changed, &Told::default()).is_err(), "bit {bit}");
        }
        for cut in (0..file.len()).step_by(997) {
            assert!(verify(&file[..cut], &Told::default()).is_err(), "cut at {cut}");
        }
    }
}

#[test]
fn who_asked_stands_in_the_plan_commit_and_in_no_other() {
    let story = Story::new();
    let other = story.people[3].commit(object("another tree"), &[object("before")], "boot it\n");
    let refused = story.judge(Parts { plan: Some(other), ..story.parts() });
    assert!(matches!(refused, Err(Void::Plan(_))), "{refused:?}");
    for cut in [1, 40] {
        let plan = story.plan[..story.plan.len() - cut].to_vec();
        assert!(matches!(story.judge(Parts { plan: Some(plan), ..story.parts() }), Err(Void::Plan(_))));
    }
    let without = story.judge(Parts { plan: None, ..story.parts() }).expect("proven");
    assert_eq!(without.asked_by, None, "receipts of before have none");
}

#[test]
fn what_a_revoked_key_signed_does_not_count_and_what_is_done_stays_approved() {
    let story = Story::new();
    let revoke = |before| {
        let mut parts = story.parts();
        let raw = story.fleet.revoke(&story.people[3], &story.people[1].key(), &policy_of(&story.text));
        parts.policies[0].revoke(raw, before);
        story.judge(parts)
    };
    assert!(matches!(revoke(true), Err(Void::NotApproved(_))));
    let proven = revoke(false).expect("proven");
    assert_eq!(names(&proven.approved_by), ["ada", "bob"]);
    let gone: Vec<(&str, &str, bool)> =
        proven.revoked.iter().map(|gone| (gone.holder.as_str(), gone.by.as_str(), gone.before)).collect();
    assert_eq!(gone, [("bob", "cleo", false)]);
    // A stranger revokes nothing.
    let mut parts = story.parts();
    parts.policies[0]
        .revoke(story.fleet.revoke(&story.people[2], &story.people[1].key(), &policy_of(&story.text)), true);
    assert_eq!(story.judge(parts).expect("proven").revoked, []);
}

#[test]
fn an_emergency_is_what_people_said_and_nothing_else() {
    let story = Story::new();
    let proven = story.judge(story.emergency(&[0])).expect("proven");
    let emergency = proven.emergency.expect("an emergency");
    assert_eq!((names(&emergency.people), emergency.reason.as_str()), (vec!["ada"], "the cooling is gone"));
    assert!(matches!(story.judge(story.emergency(&[2])), Err(Void::NoEmergency(_))), "a stranger calls none");
    let mut other = story.emergency(&[0]);
    other.deeds[0].node = "gpu-2".to_owned();
    assert!(matches!(story.judge(other), Err(Void::NoEmergency(_))), "it is about another machine");
    let mut late = story.emergency(&[0]);
    late.emergency = vec![story.fleet.breakglass(
        &story.people[0],
        ("node.reboot", "gpu-1"),
        &policy_of(&story.text),
        (now(), after(60)),
    )];
    assert!(matches!(story.judge(late), Err(Void::NoEmergency(_))), "the command goes on for longer");
    let mut denied = story.emergency(&[0]);
    denied.policies[0]
        .revoke(story.fleet.revoke(&story.people[3], &story.people[0].key(), &policy_of(&story.text)), true);
    assert!(matches!(story.judge(denied), Err(Void::NoEmergency(_))), "her key was revoked before");
}

#[test]
fn lines_of_the_log_are_proven_by_keys_that_are_vouched_for() {
    let story = Story::new();
    let theirs = keys();
    let rows: Vec<String> = story.parts().audit.iter().map(|proof| proof.row.clone()).collect();
    let forged = || proofs(&theirs.audit_signer(FLEET), &rows);
    let refused = story.judge(Parts { audit: forged(), ..story.parts() });
    // Whoever has another realm fails at the signature already; a thief knows the realm.
    assert!(matches!(refused, Err(Void::OtherKey(1))), "{refused:?}");
    let worker = story.keys.command_root().certify(&story.realm(), now());
    let vouches = vec![Vouch::make(&worker, theirs.audit_signer(FLEET).key())];
    assert!(story.judge(Parts { audit: forged(), vouches, ..story.parts() }).is_ok(), "a key of before is vouched for");
    let other = theirs.command_root().certify(&story.realm(), now());
    let vouches = vec![Vouch::make(&other, theirs.audit_signer(FLEET).key())];
    assert_eq!(story.judge(Parts { audit: forged(), vouches, ..story.parts() }), Err(Void::Vouch));
}

#[test]
fn a_batch_that_went_after_it_had_ended_is_no_approved_one() {
    let story = Story::new();
    let signer = story.keys.audit_signer(FLEET);
    let judged = |states: &[&str]| {
        let row = |(pos, state): (u64, &&str)| {
            let (id, at, actor) = (format!("audit_{pos}"), now(), "batch".to_owned());
            let (action, subject) = (format!("batches.{state}"), "batch/kernel".to_owned());
            Row { pos, id, at, actor, action, subject, detail: json!({}) }.text()
        };
        let rows: Vec<String> = (0..).zip(states).map(row).collect();
        story.judge(Parts { audit: proofs(&signer, &rows), ..story.parts() }).map(drop)
    };
    let went =
        |ended: &str, went: &str| Err(Void::AfterEnd { ended: ended.to_owned(), at: now(), went: went.to_owned() });
    for ended in ["expired", "void", "rejected", "cancelled"] {
        assert_eq!(judged(&["approved", ended, "dispatching", "done"]), went(ended, "dispatching"));
        assert_eq!(judged(&["dispatching", ended, "done"]), went(ended, "done"), "set back to where it was");
        assert_eq!(judged(&["approved", "dispatching", ended]), Ok(()));
        assert_eq!(judged(&["approved", ended, ended]), Ok(()), "it was set back, and ended again");
    }
    assert_eq!(judged(&["dispatching", "done", "dispatching"]), went("done", "dispatching"));
    assert_eq!(judged(&["proposed", "approved", "dispatching", "done", "closed"]), Ok(()));
}

#[test]
fn a_document_that_the_log_does_not_name_is_refused() {
    let story = Story::new();
    let refused = story.judge(Parts { document: "{\"more\":1}".to_owned(), ..story.parts() });
    assert_eq!(refused, Err(Void::Document));
}

#[test]
fn a_command_is_what_the_leaf_says_to_the_letter() {
    let mut story = Story::new();
    story.body.min_generation = None;
    assert!(matches!(story.judge(story.parts()), Err(Void::Command { .. })), "an older machine would do it");
    let mut story = Story::new();
    story.leaf.journal = JournalId::generate();
    let leaf = story.leaf.clone();
    story.header.root = merkle::root(&[leaf.hash()]);
    let mut parts = story.parts();
    let word = CommandUpdate::new(
        story.body.id,
        story.node.id,
        UpdateState::Succeeded,
        JournalId::generate(),
        BootId::generate(),
    );
    let word = word.to_bytes();
    let signature = story.node.key.sign_command_update(&story.realm(), story.node.id, &word);
    let chain = story.node.issued.chain.iter().map(|certificate| certificate.to_vec()).collect();
    parts.deeds[0].result = Some(SignedResult::new(word, signature, chain));
    assert!(matches!(story.judge(parts), Err(Void::Result { .. })), "another journal did it");
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
