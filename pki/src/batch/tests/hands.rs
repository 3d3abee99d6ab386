//! One person's hand in many forms: another signature over the same words, another kind of key, another date.

use super::*;
use crate::trust::{
    spoken::Spoken,
    testing::{Pgp, has, id, secret, sign_raw, ssh_sign, twin},
};

const NOON: &str = "1767225600 +0000";

impl World {
    /// Puts another policy in force: the text of this one, changed.
    fn rewrite(&mut self, from: &str, to: &str) {
        let text = Self::text(&self.people, "epoch 1", TIERS);
        assert_eq!(text.matches(from).count(), 1, "{from}");
        self.policy = policy(&text.replace(from, to));
        self.seal();
    }

    /// The commit of an approval before it is signed, dated as its committer likes.
    fn unsigned(&self, who: &str, date: &str) -> String {
        let (tree, plan) = (self.header.plan_tree, self.header.plan_commit);
        let message = self.fleet.word("approve", who, &self.header);
        format!("tree {tree}\nparent {plan}\nauthor A <a@b> {date}\ncommitter A <a@b> {date}\n\n{message}")
    }
}

fn signed(payload: &str, armour: &str) -> Vec<u8> {
    sign_raw(payload.as_bytes(), "gpgsig", armour)
}

#[test]
fn the_twin_of_a_signature_is_the_same_vote() {
    if !has("ssh-keygen") {
        return;
    }
    let (mut world, key) = (World::new(), secret("ecdsa"));
    world.rewrite(&world.people["ada"].line(), &key.line);
    let payload = world.unsigned("ada", NOON);
    let armour = ssh_sign(key, "git", &[], payload.as_bytes());
    let both = [&armour, &twin(&armour)].map(|armour| signed(&payload, armour));
    assert_ne!(id(&both[0]), id(&both[1]), "they are two commits");
    let said = both.each_ref().map(|raw| {
        let heard = Spoken::hear(raw, &world.fleet.trust_domain, world.fleet.id, [&world.policy]);
        heard.expect("a statement").statement.digest()
    });
    assert_eq!(said[0], said[1], "and one statement");
    for raw in &both {
        assert_eq!(words(&world.tally(std::slice::from_ref(raw)).yes), ["ada"]);
    }
    let tally = world.tally(&both);
    assert!(!tally.approved && tally.refused.is_empty());
    assert_eq!((words(&tally.yes), tally.evidence.len()), (vec!["ada"], 1));
}

#[test]
fn a_person_with_keys_of_both_kinds_has_one_vote() {
    let (mut world, pgp) = (World::new(), Pgp::generate());
    let own = format!("key \"{}\"; ", world.people["ada"].line());
    let block = pgp.block.replace('\n', "\\n");
    world.rewrite(&own, &format!("{own}openpgp \"{}\" \"{block}\"; ", pgp.fingerprint()));
    let payload = world.unsigned("ada", NOON);
    let (by_ssh, by_pgp) = (world.approve("ada"), signed(&payload, &pgp.sign(payload.as_bytes())));
    for one in [&by_ssh, &by_pgp] {
        assert_eq!(words(&world.tally(std::slice::from_ref(one)).yes), ["ada"]);
    }
    let tally = world.tally(&[by_ssh.clone(), by_pgp.clone()]);
    assert_eq!((tally.approved, words(&tally.yes), tally.evidence.len()), (false, vec!["ada"], 1));
    assert!(world.tally(&[by_pgp, by_ssh, world.approve("cleo")]).approved);
}

#[test]
fn the_date_that_a_signer_writes_moves_no_vote() {
    if !has("ssh-keygen") {
        return;
    }
    let (mut world, key) = (World::new(), secret("ed25519"));
    world.rewrite(&world.people["ada"].line(), &key.line);
    let dated: Vec<Vec<u8>> = ["0 +0000", "978307200 -1200", NOON, "4102444800 +1400", "9223372036854775807 +0000"]
        .map(|date| {
            let payload = world.unsigned("ada", date);
            signed(&payload, &ssh_sign(key, "git", &[], payload.as_bytes()))
        })
        .into();
    for raw in &dated {
        assert_eq!(words(&world.tally(std::slice::from_ref(raw)).yes), ["ada"]);
    }
    assert!(!world.tally(&dated).approved, "five dates are one person");
    // A key that was taken away is not saved by a date before that, and a window that is over not by one within it.
    world.revoked.insert(key.key().name());
    for raw in dated {
        assert_eq!(world.refusal(raw), "key-revoked");
    }
}
