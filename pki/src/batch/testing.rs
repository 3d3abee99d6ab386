//! People with keys in memory, who sign commits as `git` with `ssh-keygen` does: for tests, of this crate and of others.
//!
//! Always compiled, so that there is no feature flag; nothing else uses it.

use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::{
    digest::{SHA512, digest},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use schema::{digest::Digest, time::Timestamp};

use super::header::BatchHeader;
use crate::{
    signed::push_field,
    trust::{
        object::{ObjectFormat, ObjectId},
        policy::{Policy, check},
        statement::FleetId,
    },
};

/// Somebody with a key.
#[derive(Debug)]
pub struct Person {
    /// How a policy calls them.
    pub name: String,
    pair: Ed25519KeyPair,
}

fn field(bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    push_field(&mut field, bytes);
    field
}

impl Person {
    /// Somebody with a fresh key.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), pair: Ed25519KeyPair::generate().expect("random bytes") }
    }

    fn blob(&self) -> Vec<u8> {
        [field(b"ssh-ed25519"), field(self.pair.public_key().as_ref())].concat()
    }

    /// The public key, as a policy has it.
    #[must_use]
    pub fn line(&self) -> String {
        format!("ssh-ed25519 {} {}", STANDARD.encode(self.blob()), self.name)
    }

    /// The name of the key.
    #[must_use]
    pub fn key(&self) -> String {
        crate::trust::key::TrustKey::from_ssh(&self.line()).expect("an admitted key").name()
    }

    /// A signed commit.
    #[must_use]
    pub fn commit(&self, tree: ObjectId, parents: &[ObjectId], message: &str) -> Vec<u8> {
        let head = head(tree, parents);
        let armour = self.sign("git", format!("{head}\n{message}").as_bytes());
        format!("{head}gpgsig {}\n\n{message}", armour.trim_end().replace('\n', "\n ")).into_bytes()
    }

    /// A signature over a text, for a namespace.
    #[must_use]
    pub fn sign(&self, namespace: &str, text: &[u8]) -> String {
        let hashed = digest(&SHA512, text);
        let fields = [field(namespace.as_bytes()), field(b""), field(b"sha512")].concat();
        let signed = [&b"SSHSIG"[..], &fields, &field(hashed.as_ref())].concat();
        let own = [field(b"ssh-ed25519"), field(self.pair.sign(&signed).as_ref())].concat();
        let text = STANDARD.encode([&b"SSHSIG\0\0\0\x01"[..], &field(&self.blob()), &fields, &field(&own)].concat());
        let lines: Vec<&str> = (0..text.len()).step_by(70).map(|at| &text[at..text.len().min(at + 70)]).collect();
        format!("-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n", lines.join("\n"))
    }
}

fn head(tree: ObjectId, parents: &[ObjectId]) -> String {
    let parents: String = parents.iter().map(|parent| format!("parent {parent}\n")).collect();
    let who = "A <a@b> 1767225600 +0000";
    format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n")
}

/// A commit that nobody signed.
#[must_use]
pub fn unsigned(tree: ObjectId, parents: &[ObjectId], message: &str) -> Vec<u8> {
    format!("{}\n{message}", head(tree, parents)).into_bytes()
}

/// A name for content: any will do for trees and commits that nobody opens.
#[must_use]
pub fn object(content: &str) -> ObjectId {
    ObjectId::of_commit(ObjectFormat::Sha1, content.as_bytes()).expect("no collision")
}

/// The tree of statements that are about no plan: nobody says them by a commit that does something else as well.
const NOTHING: ObjectId = ObjectFormat::Sha1.empty_tree();

/// A policy from its text.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn policy(text: &str) -> Policy {
    let checked = check(text.as_bytes());
    checked.policy.ok_or(checked.diagnostics).expect("a policy without mistakes")
}

/// A fleet that statements name.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// Its trust domain.
    pub trust_domain: String,
    /// Its id.
    pub id: FleetId,
}

impl Fleet {
    /// A fleet in a trust domain.
    #[must_use]
    pub fn new(trust_domain: &str) -> Self {
        Self { trust_domain: trust_domain.to_owned(), id: FleetId::of(trust_domain, &object("anchor")) }
    }

    /// The message of a statement: its kind, the fields before the principal, and those behind the nonce.
    #[must_use]
    pub fn message(&self, kind: &str, before: &[(&str, String)], who: &str, behind: &[(&str, String)]) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let nonce = format!("{:032x}", COUNT.fetch_add(1, Ordering::Relaxed));
        let lines = |fields: &[(&str, String)]| -> String {
            fields.iter().map(|(field, value)| format!("{field}: {value}\n")).collect()
        };
        format!(
            "I say so\n\nbc-statement: {kind}\ntrust-domain: {}\nfleet: {}\n{}principal: {who}\nnonce: {nonce}\n{}",
            self.trust_domain,
            self.id,
            lines(before),
            lines(behind)
        )
    }

    /// The message of `approve/v1`, `reject/v1` or `withdraw/v1`, for the whole window of a batch.
    #[must_use]
    pub fn word(&self, word: &str, who: &str, header: &BatchHeader) -> String {
        let before = [
            ("batch", header.name.to_string()),
            ("batch-digest", header.digest().to_string()),
            ("plan-commit", header.plan_commit.to_string()),
            ("tier", header.tier.to_string()),
            ("trust-epoch", header.under.epoch.to_string()),
            ("trust-digest", header.under.digest.to_string()),
        ];
        let behind = [("not-before", header.not_before.to_string()), ("expires", header.expires.to_string())];
        self.message(&format!("{word}/v1"), &before, who, &behind)
    }

    /// A person's approval of a batch.
    #[must_use]
    pub fn approve(&self, by: &Person, header: &BatchHeader) -> Vec<u8> {
        by.commit(header.plan_tree, &[header.plan_commit], &self.word("approve", &by.name, header))
    }

    /// A person's word that an emergency allows kinds of commands on machines.
    #[must_use]
    pub fn breakglass(
        &self,
        by: &Person,
        (kinds, nodes): (&str, &str),
        policy: &Policy,
        (not_before, expires): (Timestamp, Timestamp),
    ) -> Vec<u8> {
        let before = [
            ("kinds", kinds.to_owned()),
            ("nodes", nodes.to_owned()),
            ("reason", "the cooling is gone".to_owned()),
            ("trust-epoch", policy.epoch().to_string()),
            ("trust-digest", policy.digest().to_string()),
        ];
        let behind = [("not-before", not_before.to_string()), ("expires", expires.to_string())];
        let message = self.message("breakglass/v1", &before, &by.name, &behind);
        by.commit(NOTHING, &[object("tip")], &message)
    }

    /// A person's word that a policy follows another one.
    #[must_use]
    pub fn trust(&self, by: &Person, prev: Digest, next: &Policy) -> Vec<u8> {
        self.step("trust/v1", by, prev, (next.epoch(), next.digest()))
    }

    /// The same of a policy that only its epoch and its digest are known of.
    #[must_use]
    pub fn trust_to(&self, by: &Person, prev: Digest, next: (u64, Digest)) -> Vec<u8> {
        self.step("trust/v1", by, prev, next)
    }

    /// A person's proof to hold a key that a policy adds.
    #[must_use]
    pub fn possess(&self, by: &Person, prev: Digest, next: &Policy) -> Vec<u8> {
        self.step("possess/v1", by, prev, (next.epoch(), next.digest()))
    }

    fn step(&self, kind: &str, by: &Person, prev: Digest, (epoch, next): (u64, Digest)) -> Vec<u8> {
        let before = [("prev", prev.to_string()), ("next", next.to_string()), ("epoch", epoch.to_string())];
        by.commit(NOTHING, &[object("tip")], &self.message(kind, &before, &by.name, &[]))
    }

    /// A person's word that a key does not count any more.
    #[must_use]
    pub fn revoke(&self, by: &Person, key: &str, policy: &Policy) -> Vec<u8> {
        let before = [
            ("key", key.to_owned()),
            ("reason", "compromised".to_owned()),
            ("last-good", object("tip").to_string()),
            ("trust-epoch", policy.epoch().to_string()),
        ];
        by.commit(NOTHING, &[object("tip")], &self.message("revoke/v1", &before, &by.name, &[]))
    }
}
