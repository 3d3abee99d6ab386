//! A repository in memory whose commits are signed in process, as `ssh-keygen` signs them.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use schema::fleet::trust::{FILE, FOLDER};

use super::super::{FileChange, History, Known, Stuck, TrustFolder, Verified, Walk, Walked, walk};
use crate::{
    batch::testing::{self, unsigned},
    trust::{
        key::TrustKey,
        object::{ObjectFormat, ObjectId},
        policy::{self as policies, Policy},
        spoken::Heard,
        statement::FleetId,
    },
};

const DOMAIN: &str = "acme.example";

/// Who there is. Eve is in no policy, unless one adds her.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Person {
    Ada,
    Bob,
    Cleo,
    Eve,
    Forge,
}

impl Person {
    const ALL: [Self; 5] = [Self::Ada, Self::Bob, Self::Cleo, Self::Eve, Self::Forge];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ada => "ada",
            Self::Bob => "bob",
            Self::Cleo => "cleo",
            Self::Eve => "eve",
            Self::Forge => "forge",
        }
    }

    fn signer(self) -> &'static testing::Person {
        static PEOPLE: OnceLock<Vec<testing::Person>> = OnceLock::new();
        let made = || Self::ALL.iter().map(|who| testing::Person::new(who.name())).collect();
        &PEOPLE.get_or_init(made)[self as usize]
    }

    pub(super) fn line(self) -> String {
        self.signer().line()
    }

    pub(super) fn key(self) -> TrustKey {
        TrustKey::from_ssh(&self.line()).expect("a key")
    }
}

fn written(who: Option<Person>, tree: ObjectId, parents: &[ObjectId], message: &str) -> Vec<u8> {
    match who {
        Some(who) => who.signer().commit(tree, parents, message),
        None => unsigned(tree, parents, message),
    }
}

/// A policy with these nodes; `@name` stands for the key of a person.
pub(super) fn policy(epoch: u64, prev: Option<schema::digest::Digest>, nodes: &str) -> String {
    let prev = prev.map_or_else(String::new, |prev| format!("prev \"{prev}\"\n"));
    let usual = [
        ("trust {", "trust { roles \"admin\"; threshold 1; }\n"),
        ("path \"**\"", "path \"**\" { roles \"admin\" \"contractor\"; }\npath \"pools/**\" { roles \"admin\"; }\n"),
        ("path \"trust/**\"", "path \"trust/**\" { roles \"admin\"; }\n"),
    ];
    let usual: String = usual.iter().filter(|(line, _)| !nodes.contains(line)).map(|(_, text)| *text).collect();
    let person = |name: &str, kind: &str, role: &str| {
        let role = if role.is_empty() { String::new() } else { format!("roles \"{role}\"; ") };
        format!("principal \"{name}\" {{ kind \"{kind}\"; {role}key \"@{name}\"; }}\n")
    };
    let people = [
        person("ada", "human", "admin"),
        person("bob", "human", "admin"),
        person("cleo", "human", "contractor"),
        person("forge", "forge", ""),
    ];
    let text = format!("policy {{\nformat 1\nepoch {epoch}\n{prev}}}\n{}{usual}{nodes}", people.concat());
    Person::ALL.iter().fold(text, |text, who| text.replace(&format!("@{}", who.name()), &who.line()))
}

type Files = BTreeMap<String, String>;

/// An object that is not there.
#[derive(Debug)]
pub(super) struct Lost(ObjectId);

/// A repository.
#[derive(Debug, Default)]
pub(super) struct World {
    commits: BTreeMap<ObjectId, Vec<u8>>,
    trees: BTreeMap<ObjectId, Files>,
    files: BTreeMap<ObjectId, String>,
    statements: Vec<Heard>,
    head: Files,
    tip: Option<ObjectId>,
    anchor: Option<ObjectId>,
    /// Objects that are not there.
    lost: BTreeSet<ObjectId>,
    /// The trees that were announced.
    pub(super) ahead: RefCell<Vec<ObjectId>>,
}

/// A name for content: any will do for trees and files.
fn named(content: &str) -> ObjectId {
    ObjectId::of_commit(ObjectFormat::Sha1, content.as_bytes()).expect("no collision")
}

impl World {
    pub(super) fn empty() -> Self {
        Self::default()
    }

    /// A fleet with a policy that Ada signed.
    pub(super) fn new() -> Self {
        Self::with("")
    }

    pub(super) fn with(nodes: &str) -> Self {
        let mut world = Self::empty();
        world.push(Person::Ada, &[(FILE, &policy(1, None, nodes))]);
        if world.policy().trust().threshold > 1 {
            let first = world.file(FILE);
            world.agree(Person::Bob, &first);
        }
        world
    }

    pub(super) fn tip(&self) -> ObjectId {
        self.tip.expect("a commit")
    }

    pub(super) fn tree_of_tip(&self) -> ObjectId {
        named(&format!("{:?}", self.head))
    }

    pub(super) fn file(&self, path: &str) -> String {
        self.head[path].clone()
    }

    /// The policy of the tip's tree.
    pub(super) fn policy(&self) -> Policy {
        policies::check(self.head[FILE].as_bytes()).policy.expect("a policy")
    }

    fn tree(&mut self, files: &Files) -> ObjectId {
        let tree = named(&format!("{files:?}"));
        self.trees.insert(tree, files.clone());
        for text in files.values() {
            self.files.insert(named(text), text.clone());
        }
        tree
    }

    /// A signed commit with the tree of the tip, which is not put anywhere.
    pub(super) fn raw(&self, who: Person, parents: &[ObjectId], message: &str) -> Vec<u8> {
        who.signer().commit(self.tree_of_tip(), parents, message)
    }

    /// Puts a commit on the tip.
    pub(super) fn put(&mut self, raw: Vec<u8>) -> ObjectId {
        let id = ObjectId::of_commit(ObjectFormat::Sha1, &raw).expect("no collision");
        self.commits.insert(id, raw);
        self.tip = Some(id);
        if self.anchor.is_none() && self.head.contains_key(FILE) {
            self.anchor = Some(id);
        }
        id
    }

    /// Puts other bytes under the name of a commit.
    pub(super) fn call(&mut self, id: ObjectId, raw: Vec<u8>) {
        self.commits.insert(id, raw);
    }

    pub(super) fn forget(&mut self, id: ObjectId) {
        self.commits.remove(&id);
    }

    fn next(&mut self, who: Option<Person>, others: &[ObjectId], message: &str) -> ObjectId {
        let head = self.head.clone();
        let tree = self.tree(&head);
        let parents: Vec<ObjectId> = self.tip.iter().chain(others).copied().collect();
        self.put(written(who, tree, &parents, message))
    }

    fn write(&mut self, files: &[(&str, &str)]) {
        self.head.extend(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
    }

    pub(super) fn push(&mut self, who: Person, files: &[(&str, &str)]) -> ObjectId {
        self.write(files);
        self.next(Some(who), &[], "change\n")
    }

    pub(super) fn unsigned(&mut self, files: &[(&str, &str)]) -> ObjectId {
        self.write(files);
        self.next(None, &[], "change\n")
    }

    pub(super) fn remove(&mut self, who: Person, path: &str) -> ObjectId {
        self.head.remove(path);
        self.next(Some(who), &[], "remove\n")
    }

    pub(super) fn merge(&mut self, who: Person, others: &[ObjectId], files: &[(&str, &str)]) -> ObjectId {
        self.write(files);
        self.next(Some(who), others, "merge\n")
    }

    /// A commit that is on no branch.
    pub(super) fn side(&mut self, who: Option<Person>, parents: &[ObjectId], files: &[(&str, &str)]) -> ObjectId {
        let mut head = self.head.clone();
        head.extend(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())));
        let tree = self.tree(&head);
        let raw = written(who, tree, parents, "side\n");
        let id = ObjectId::of_commit(ObjectFormat::Sha1, &raw).expect("no collision");
        self.commits.insert(id, raw);
        id
    }

    /// Loses the files of the tip, or one of them.
    pub(super) fn lose(&mut self, path: Option<&str>) -> ObjectId {
        let id = path.map_or_else(|| self.tree_of_tip(), |path| named(&self.head[path]));
        self.lost.insert(id);
        id
    }

    pub(super) fn lose_again(&mut self, id: ObjectId) {
        self.lost.insert(id);
    }

    /// Finds what was lost.
    pub(super) fn find(&mut self) {
        self.lost.clear();
    }

    fn has(&self, id: ObjectId) -> Result<ObjectId, Lost> {
        if self.lost.contains(&id) { Err(Lost(id)) } else { Ok(id) }
    }

    // --- statements ---

    fn block(&self, kind: &str, who: &str, fields: &str, last: &str, domain: &str) -> String {
        let fleet = FleetId::of(domain, &self.anchor.expect("an anchor"));
        let nonce = hex::encode(named(&self.statements.len().to_string()).as_bytes().get(..16).expect("16 bytes"));
        format!(
            "say so\n\nbc-statement: {kind}\ntrust-domain: {domain}\nfleet: {fleet}\n{fields}principal: {who}\nnonce: {nonce}\n{last}"
        )
    }

    fn say(&mut self, who: Person, message: &str) {
        let raw = who.signer().commit(ObjectFormat::Sha1.empty_tree(), &[self.tip()], message);
        self.statements.push(raw.into());
    }

    fn step(text: &str) -> String {
        let next = policies::check(text.as_bytes()).policy.expect("a policy");
        let prev = next.prev().unwrap_or_else(|| schema::digest::Digest::from_bytes([0; 32]));
        format!("prev: {prev}\nnext: {}\nepoch: {}\n", next.digest(), next.epoch())
    }

    pub(super) fn agree(&mut self, who: Person, text: &str) {
        self.agree_as(who, who.name(), text, DOMAIN);
    }

    pub(super) fn agree_as(&mut self, who: Person, name: &str, text: &str, domain: &str) {
        let message = self.block("trust/v1", name, &Self::step(text), "", domain);
        self.say(who, &message);
    }

    /// Agrees to a policy in a commit that has files.
    pub(super) fn agree_with_files(&mut self, who: Person, text: &str) {
        let message = self.block("trust/v1", who.name(), &Self::step(text), "", DOMAIN);
        let raw = self.raw(who, &[self.tip()], &message);
        self.statements.push(raw.into());
    }

    /// Changes the policy, and agrees to it.
    pub(super) fn agreeing(&mut self, who: Person, text: &str) {
        self.agree(who, text);
        self.push(who, &[(FILE, text)]);
    }

    pub(super) fn possess(&mut self, who: Person, name: &str, text: &str) {
        let message = self.block("possess/v1", name, &Self::step(text), "", DOMAIN);
        self.say(who, &message);
    }

    /// Vouches for the tip on its base, under the policy of the tip's tree.
    pub(super) fn vouch(&mut self, who: Person, base: ObjectId) {
        let (policy, tree) = (self.policy(), named(&format!("{:?}", self.head)));
        let under = format!("trust-epoch: {}\ntrust-digest: {}\n", policy.epoch(), policy.digest());
        let fields = format!("branch: main\nbase: {base}\ntree: {tree}\n{under}");
        let message = self.block("change/v1", who.name(), &fields, "expires: 2026-12-01T00:00:00Z\n", DOMAIN);
        self.say(who, &message);
    }

    pub(super) fn revoke(&mut self, who: Person, key: &str, last_good: ObjectId) {
        let fields = format!("key: {key}\nreason: compromised\nlast-good: {last_good}\ntrust-epoch: 1\n");
        let message = self.block("revoke/v1", who.name(), &fields, "", DOMAIN);
        self.say(who, &message);
    }

    /// Says that the tip takes the place of another one, under the policy of an epoch.
    pub(super) fn reseal(&mut self, who: Person, old: ObjectId, under: &Policy) {
        self.reseal_to(who, old, self.tip(), under, "2026-12-01T00:00:00Z");
    }

    pub(super) fn reseal_to(&mut self, who: Person, old: ObjectId, new: ObjectId, under: &Policy, expires: &str) {
        let under = format!("trust-epoch: {}\ntrust-digest: {}\n", under.epoch(), under.digest());
        let fields = format!("branch: main\nold: {old}\nnew: {new}\n{under}");
        let message = self.block("reseal/v1", who.name(), &fields, &format!("expires: {expires}\n"), DOMAIN);
        self.say(who, &message);
    }

    /// The last thing that was said was first seen then.
    pub(super) fn seen(&mut self, at: &str) {
        self.statements.last_mut().expect("a statement").first_seen = Some(at.parse().expect("a time"));
    }

    pub(super) fn heard(&self) -> Vec<Heard> {
        self.statements.clone()
    }

    /// Everybody forgets what was said.
    pub(super) fn hush(&mut self) {
        self.statements.clear();
    }

    /// Goes back to an earlier commit.
    pub(super) fn rewind(&mut self, to: ObjectId) {
        let raw = String::from_utf8(self.commits[&to].clone()).expect("text");
        let tree = raw.lines().next().and_then(|line| line.strip_prefix("tree ")).expect("a tree");
        self.head = self.trees[&tree.parse().expect("an id")].clone();
        self.tip = Some(to);
    }

    pub(super) fn anchor(&self) -> ObjectId {
        self.anchor.expect("an anchor")
    }

    pub(super) fn fleet(&self) -> FleetId {
        FleetId::of(DOMAIN, &self.anchor())
    }

    /// Goes on from what an earlier walk reached, and knows these policies.
    pub(super) fn go_on(&self, after: Option<&Verified>, known: Option<&Known>) -> Result<Walked, Stuck> {
        self.go_on_at(after, known, None)
    }

    pub(super) fn go_on_at(
        &self,
        after: Option<&Verified>,
        known: Option<&Known>,
        now: Option<schema::time::Timestamp>,
    ) -> Result<Walked, Stuck> {
        let (anchor, statements) = (self.anchor, self.statements.as_slice());
        walk(self, &Walk { anchor, after, known, statements, now, ..self.walk_of() }).expect("it can be read")
    }

    // --- the walk ---

    pub(super) fn walk_of(&self) -> Walk<'static> {
        Walk {
            branch: "main",
            tip: self.tip(),
            anchor: None,
            after: None,
            known: None,
            statements: &[],
            now: None,
            beyond: 100,
        }
    }

    pub(super) fn try_walk(&self) -> Result<Walked, Stuck> {
        walk(self, &Walk { statements: &self.statements, ..self.walk_of() }).expect("it can be read")
    }

    pub(super) fn walk(&self) -> Walked {
        self.try_walk().expect("a walk")
    }
}

impl History for World {
    type Error = Lost;

    fn format(&self) -> ObjectFormat {
        ObjectFormat::Sha1
    }

    fn commit(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Lost> {
        Ok(self.commits.get(&id).cloned())
    }

    fn trust_domain(&self, _: ObjectId) -> Result<Option<String>, Lost> {
        Ok(Some(DOMAIN.to_owned()))
    }

    fn changes(&self, before: ObjectId, after: ObjectId) -> Result<Vec<FileChange>, Lost> {
        let (before, after) = (&self.trees[&self.has(before)?], &self.trees[&self.has(after)?]);
        let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differ = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
        let change = |path: &String| FileChange {
            path: path.clone(),
            before: before.get(path).map(|text| named(text)),
            after: after.get(path).map(|text| named(text)),
        };
        Ok(differ.map(change).collect())
    }

    fn trust(&self, tree: ObjectId) -> Result<TrustFolder, Lost> {
        let files = &self.trees[&self.has(tree)?];
        let inside = |path: &&String| path.starts_with(&format!("{FOLDER}/")) && *path != FILE;
        Ok(TrustFolder {
            policy: files.get(FILE).map(|text| text.clone().into_bytes()),
            others: files.keys().filter(inside).cloned().collect(),
        })
    }

    fn file(&self, id: ObjectId) -> Result<Option<Vec<u8>>, Lost> {
        Ok(Some(self.files[&self.has(id)?].clone().into_bytes()))
    }

    fn ahead(&self, trees: &[ObjectId]) {
        self.ahead.borrow_mut().extend(trees);
    }

    fn unfit(_: &Lost) -> Option<String> {
        None
    }

    fn lacking(Lost(id): &Lost) -> Option<String> {
        Some(format!("the object {id} is missing"))
    }
}
