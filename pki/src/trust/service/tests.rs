//! Facts about what a service signs, read by the programs that read everybody's commits.

use schema::time::Timestamp;

use super::*;
use crate::{
    batch::testing::Person,
    trust::{
        object::ObjectFormat,
        policy::check,
        signature::signer,
        testing::{Git, has, ssh_verifies},
    },
};

fn keys(number: usize) -> ServiceKeys {
    let mut keys = ServiceKeys::default();
    (0..number).for_each(|_| keys.add());
    keys
}

fn newest(keys: &ServiceKeys) -> ServiceKey {
    keys.iter().next().expect("a key")
}

fn id(format: ObjectFormat, digit: char) -> ObjectId {
    ObjectId::parse_as(format, digit.to_string().repeat(format.digits()).as_bytes()).expect("an id")
}

fn unsigned(format: ObjectFormat, message: &str) -> Unsigned<'_> {
    let at = Timestamp::from_second(1_767_225_600).expect("a time");
    let by = "better-compute <service@test.example>";
    Unsigned { tree: id(format, 'a'), parent: id(format, 'b'), by, at, message }
}

#[test]
fn a_commit_of_a_service_is_one_that_everybody_reads() {
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let key = newest(&keys(1));
        let raw = key.commit(&unsigned(format, "batch/kernel: bo\u{202e}ot\n\nAsked for by ci\n")).expect("a commit");
        let commit = Commit::split(format, &raw).expect("a commit");
        assert_eq!(commit.subject(), "batch/kernel: boot", "what is not seen is left out");
        assert_eq!(signer(&commit, [&key.public()]).expect("signed"), &key.public());
        let other = newest(&keys(1)).public();
        assert!(signer(&commit, [&other]).is_err());
        let nobody = Unsigned { by: "nobody", ..unsigned(format, "x\n") };
        assert!(key.commit(&nobody).is_err(), "what others would not read is not signed");
    }
}

#[test]
fn git_and_ssh_read_it_too() {
    if !(has("git") && has("ssh-keygen")) {
        return;
    }
    let (key, git) = (newest(&keys(1)), Git::new(ObjectFormat::Sha1));
    let tree = git.run(&["mktree"], b"").parse().expect("a tree");
    let parent = git.run(&["commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"], b"x").parse().expect("a commit");
    let raw = key.commit(&Unsigned { tree, parent, ..unsigned(ObjectFormat::Sha1, "boot\n") }).expect("a commit");
    let made = git.put(&raw);
    assert!(git.verifies(&made, &[&key.line()]));
    let commit = Commit::split(ObjectFormat::Sha1, &raw).expect("a commit");
    assert!(ssh_verifies(&key.line(), &commit.payload(), &commit.signature().expect("signed")));
}

#[test]
fn it_signs_with_the_newest_key_that_the_policy_lists_as_a_service_and_with_no_other() {
    let keys = keys(3);
    let lines: Vec<String> = keys.iter().map(|key| key.line()).collect();
    assert_eq!(lines.len(), 2, "the key before the last one is over");
    let people = [Person::new("ada"), Person::new("bob")];
    let policy = |kind: &str, listed: &[String], more: &str| {
        let mut text = "policy { format 1; epoch 1; }\npath \"**\" { roles \"admin\"; }\ntrust { roles \"admin\"; threshold 1; }\n".to_owned();
        for one in &people {
            text.push_str(&format!(
                "principal \"{}\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n",
                one.name,
                one.line()
            ));
        }
        for (number, line) in listed.iter().enumerate() {
            text.push_str(&format!(
                "principal \"robot{number}\" {{ kind \"{kind}\"; roles \"admin\"; key \"{line}\"; }}\n"
            ));
        }
        check(format!("{text}{more}").as_bytes()).policy.expect("a policy")
    };
    let used = |policy: &Policy, revoked: &[&str]| {
        let revoked = revoked.iter().map(|key| (*key).to_owned()).collect();
        keys.under(policy, &revoked).map(|(key, name, _)| (key.line(), name.to_string()))
    };
    let (new, old) = (lines[0].clone(), lines[1].clone());
    assert_eq!(used(&policy("service", &[], ""), &[]), None);
    assert_eq!(used(&policy("service", std::slice::from_ref(&old), ""), &[]), Some((old.clone(), "robot0".to_owned())));
    let both = policy("service", &[old.clone(), new.clone()], "");
    assert_eq!(used(&both, &[]), Some((new.clone(), "robot1".to_owned())));
    let name = TrustKey::from_ssh(&new).expect("a key").name();
    assert_eq!(used(&both, &[&name]), Some((old.clone(), "robot0".to_owned())));
    let retired = policy("service", &[old.clone(), new], &format!("revoked \"{name}\" {{ as \"retired\"; }}\n"));
    assert_eq!(used(&retired, &[]), Some((old.clone(), "robot0".to_owned())));
    assert_eq!(used(&policy("human", std::slice::from_ref(&old), ""), &[]), None, "it stands for no person");
    assert_eq!(used(&policy("forge", &[old], ""), &[]), None);
}

#[test]
fn what_is_asked_for_is_known_by_its_mark_until_its_key_is_over() {
    let realm = || Realm::new("test.example", "fleet");
    let mut keys = keys(1);
    assert!(ServiceKeys::default().seal(realm()).is_none());
    let mark = keys.seal(realm()).expect("a seal").tag(b"boot");
    for (there, words) in [(true, b"boot"), (false, b"wipe")] {
        assert_eq!(keys.seal(realm()).expect("a seal").is_tag(words, &mark), there);
    }
    for there in [true, false] {
        keys.add();
        assert_eq!(keys.seal(realm()).expect("a seal").is_tag(b"boot", &mark), there);
    }
    let elsewhere = Realm::new("test.example", "another");
    assert!(!keys.seal(elsewhere).expect("a seal").is_tag(b"boot", &keys.seal(realm()).expect("a seal").tag(b"boot")));
}
