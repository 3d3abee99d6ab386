//! What a policy is refused for, and what its digest depends on.

use std::collections::BTreeSet;

use schema::{
    diagnostic::{Code, Severity, render},
    fleet::SourceBlob,
};

use super::*;

const ADA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA+8UKyrNcHh1jN5CVCl9BtUo/YBNEh1mxuWiwaDlVgV";
const BOB: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILAbDWJtS+YwA4iPt+b3jIJmN2bX6y+Ez/lvpW3ptBUa";

/// What the examples of the pages speak of and do not say, each with the beginning of its line.
fn world() -> Vec<(&'static str, String)> {
    let person = |name: &str, key: &str| {
        format!("principal \"{name}\" {{\n  kind \"human\"\n  roles \"admin\"\n  groups \"sre\"\n  key \"{key}\"\n}}\n")
    };
    vec![
        ("policy {", "policy {\n  format 1\n  epoch 1\n}\n".to_owned()),
        ("principal \"ada\"", person("ada", ADA)),
        ("principal \"bob\"", person("bob", BOB)),
        ("path \"**\"", "path \"**\" { roles \"admin\"; }\n".to_owned()),
        ("trust {", "trust { roles \"admin\"; threshold 1; }\n".to_owned()),
    ]
}

/// A policy with these nodes, completed.
fn with(nodes: &str) -> String {
    let missing = world().into_iter().filter(|(line, _)| !nodes.lines().any(|own| own.starts_with(line)));
    missing.map(|(_, text)| text).chain([nodes.to_owned()]).collect()
}

/// What a policy is refused for.
fn codes_of(nodes: &str) -> Vec<Code> {
    errors(&check(with(nodes).as_bytes())).collect()
}

fn errors(checked: &Checked) -> impl Iterator<Item = Code> {
    checked.diagnostics.iter().filter(|found| found.is_error()).map(|found| found.code)
}

/// What is told of a policy that is one.
fn warned(nodes: &str) -> Vec<String> {
    let checked = check(with(nodes).as_bytes());
    assert!(checked.policy.is_some(), "{:?}", checked.diagnostics);
    checked.diagnostics.into_iter().map(|found| format!("{} {}", found.code, found.message)).collect()
}

fn policy(nodes: &str) -> Policy {
    let checked = check(with(nodes).as_bytes());
    let told = render::text(&checked.diagnostics, &checked.sources, render::Colour::Never);
    checked.policy.unwrap_or_else(|| panic!("{told}"))
}

#[test]
fn the_example_of_every_page_gives_its_code_and_the_mended_one_does_not() {
    let blocks = |part: &str| -> Sources {
        let mut tree = Sources::default();
        let mut policy = false;
        for block in part.split("```kdl ").skip(1) {
            let (path, body) = block.split_once('\n').expect("a block has a path");
            let text = body.split("```").next().expect("a block is closed");
            let own = path == trust::FILE;
            policy |= own;
            tree.insert_file(path.to_owned(), if own { with(text) } else { text.to_owned() }.as_bytes());
        }
        if !policy {
            tree.insert_file(trust::FILE, with("").as_bytes());
        }
        tree
    };
    // Whether a policy is gone is what a history says, and not a tree.
    let here = |entry: &&codes::Entry| entry.code.as_str().starts_with("BC06") && entry.code != codes::POLICY_GONE;
    for entry in codes::ALL.iter().filter(here) {
        let (before, mend) = entry.page.split_once("\n## How to mend it\n").expect("a page says how to mend it");
        let (_, example) = before.split_once("\n## Example\n").expect("a page has an example");
        let checked = check_tree(&blocks(example)).expect("a policy");
        let refused = entry.severity == Severity::Error;
        let told = |checked: &Checked| -> BTreeSet<Code> {
            let told = checked.diagnostics.iter().filter(|found| found.is_error() || !refused);
            told.map(|found| found.code).collect()
        };
        assert_eq!(told(&checked), BTreeSet::from([entry.code]), "{}", entry.code);
        assert_eq!(checked.policy.is_none(), refused, "{}", entry.code);
        let checked = check_tree(&blocks(mend)).expect("a policy");
        assert!(checked.policy.is_some() && told(&checked).is_empty(), "{}: {:?}", entry.code, checked.diagnostics);
    }
}

#[test]
fn a_finding_has_its_place_and_says_what_to_write() {
    let checked = check(with("trust { roles \"admin\"; threshold 9; }\n").as_bytes());
    let told = render::text(&checked.diagnostics, &checked.sources, render::Colour::Never);
    assert!(told.contains("changing this policy takes 9 people, and 2 can"), "{told}");
    assert!(told.contains("trust/policy.kdl:") && told.contains("threshold 9") && told.contains("help"), "{told}");
}

#[test]
fn what_locks_itself_out_or_weakens_silently_is_refused() {
    let tier = |name: &str, command: &str, threshold: u32, more: &str| {
        format!(
            "tier \"{name}\" {{ commands \"{command}\"; roles \"admin\"; threshold {threshold}; max-nodes 4; max-ttl \"4h\"; {more} }}\n"
        )
    };
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "")), []);
    // Of two people one may have proposed it.
    assert_eq!(codes_of(&tier("boot", "node.reboot", 2, "")), [codes::TOO_FEW_PEOPLE]);
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "keys \"sk-ed25519\"")), [codes::TOO_FEW_PEOPLE]);
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "exclude \"ada\"")), [codes::TOO_FEW_PEOPLE]);
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "exclude \"eve\"")), [codes::UNKNOWN_ROLE]);
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "groups { dba 1; }")).first(), Some(&codes::UNKNOWN_ROLE));
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "groups { sre 2; }")), [codes::TOO_FEW_PEOPLE]);
    assert_eq!(codes_of(&tier("boot", "node.reboot", 1, "").replace("4h", "25h")), [codes::TIER_TOO_MUCH]);
    let both = |first: &str, second: &str| codes_of(&format!("{first}{second}"));
    let (boot, wipe) = (tier("boot", "node.reboot", 1, ""), tier("wipe", "disk.wipe", 1, ""));
    assert_eq!(both(&boot, &wipe), []);
    assert_eq!(both(&wipe, &boot), [codes::TIER_ORDER], "the more harmful one comes last");
    assert_eq!(both(&boot, &boot.replace("\"boot\"", "\"again\"")), [codes::TIER_ORDER]);
    assert_eq!(both(&boot, &wipe.replace("4h", "5h")), [codes::TIER_ORDER]);
    assert_eq!(both(&tier("boot", "node.reboot", 1, "keys \"ed25519\""), &wipe), [codes::TIER_ORDER]);
    assert_eq!(codes_of("path \"x\" { roles \"admin\"; changes 1; }\n"), [codes::TOO_FEW_PEOPLE], "nobody vouches");
    assert_eq!(
        codes_of(
            "breakglass { commands \"node.reboot\"; roles \"admin\"; threshold 1; max-nodes 1; max-ttl \"2h\"; }\n"
        ),
        [codes::TIER_TOO_MUCH]
    );
}

#[test]
fn what_fewer_people_can_change_than_is_asked_for_elsewhere_is_told() {
    let tier = |threshold: u32| {
        format!(
            "tier \"boot\" {{ commands \"node.reboot\"; roles \"admin\"; threshold {threshold}; max-nodes 4; max-ttl \"4h\"; }}\n"
        )
    };
    let alone = "path \"**\" { roles \"admin\"; changes 0; }\n";
    assert_eq!(warned(alone), [""; 0], "one person changes everything, and the policy as well");
    let two = "trust { roles \"admin\"; threshold 2; }\n";
    for more in [
        tier(1),
        "reseal { roles \"admin\"; threshold 2; }\n".to_owned(),
        "releases { roles \"admin\"; threshold 2; }\n".to_owned(),
        "change { roles \"admin\"; threshold 1; }\n".to_owned(),
        "change { roles \"admin\"; threshold 1; }\npath \"pools/**\" { roles \"admin\"; changes 1; }\n".to_owned(),
    ] {
        let told = warned(&format!("{alone}{more}"));
        assert!(told.len() == 1 && told[0].starts_with("BC0611 one person changes this policy, and "), "{told:?}");
        assert_eq!(warned(&format!("{alone}{more}{two}")), [""; 0], "{more}");
    }
}

#[test]
fn releases_ask_for_no_more_than_there_are_who_may_sign_one() {
    let asks = |threshold: u32, more: &str| {
        format!(
            "path \"**\" {{ roles \"admin\"; changes 0; }}\ntrust {{ roles \"admin\"; threshold 2; }}\n{more}releases {{ roles \"admin\" \"release\"; threshold {threshold}; }}\n"
        )
    };
    let third = |kind: &str| {
        let key = crate::batch::testing::Person::new("ci").line();
        format!("principal \"ci\" {{ kind \"{kind}\"; roles \"release\"; key \"{key}\"; }}\n")
    };
    let checked = |threshold: u32, more: &str| check(with(&asks(threshold, more)).as_bytes()).diagnostics;
    let told = |threshold: u32, more: &str| {
        let found = checked(threshold, more).into_iter().filter(|found| found.code != codes::CHANGED_BY_FEWER);
        found.map(|found| format!("{} {}", found.code, found.message)).collect::<Vec<_>>()
    };
    let few = |takes: u32, can: u32| {
        [format!("{} a release is signed by {takes} of those who may, and {can} can", codes::TOO_FEW_PEOPLE)]
    };
    assert_eq!(told(3, &third("service")), [""; 0], "a service signs releases");
    assert_eq!(told(4, &third("service")), few(4, 3));
    assert_eq!(told(3, &third("forge")), few(3, 2), "a forge stands for nobody");
    // A manifest carries so many and no more.
    let many: String = (0..40).map(|number| third("service").replace("\"ci\"", &format!("\"ci-{number}\""))).collect();
    let over = "BC0612 a release is signed by 33 of those who may, and its manifest carries 32 signatures";
    assert_eq!((told(32, &many), told(33, &many)), (Vec::new(), vec![over.to_owned()]));
}

#[test]
fn what_nobody_gets_together_is_told() {
    let two = "trust { roles \"admin\"; threshold 2; }\n";
    let person = |name: &str, roles: &str, groups: &str, key: &str| {
        format!("principal \"{name}\" {{\n  kind \"human\"\n  roles {roles}\n  {groups}\n  key \"{key}\"\n}}\n")
    };
    let out = |nodes: &str, words: &str| {
        let told = warned(&format!("{two}{nodes}"));
        assert!(told.len() == 1 && told[0].starts_with("BC0612") && told[0].contains(words), "{nodes}: {told:?}");
    };
    let fine = |nodes: &str| assert_eq!(warned(&format!("{two}{nodes}")), [""; 0], "{nodes}");
    // Nobody looks twice.
    out("", "no `change` rule says who that is");
    fine("path \"**\" { roles \"admin\"; changes 0; }\npath \"pools/**\" { roles \"admin\"; }\n");
    fine("path \"**/README.md\" { roles \"admin\"; }\npath \"**\" { roles \"admin\"; changes 0; }\n");
    // Whoever signs is one of those who vouch.
    let change = |number: u32| format!("change {{ roles \"admin\"; threshold {number}; }}\n");
    fine(&change(1));
    out(&change(2), "2 people beside whoever signs have to vouch, and one person can");
    let asks = |changes: u32| format!("{}path \"pools/**\" {{ roles \"admin\"; changes {changes}; }}\n", change(1));
    fine(&asks(1));
    out(&asks(2), "the files of pools/**");
    out(
        &format!("{}path \"trust/policy.kdl\" {{ roles \"admin\"; changes 2; }}\n", change(1)),
        "the files of trust/policy.kdl",
    );
    // Somebody else may sign.
    let robot = "principal \"robot\" { kind \"service\"; roles \"bot\"; key \"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP8uTqVIctEHU+fuyqm62wi6munZa1AHCRSiwsYHK1iB\"; }\n";
    fine(&format!("{robot}path \"**\" {{ roles \"admin\" \"bot\"; }}\n{}", change(2)));
    // One person fills one slot.
    let ada = person("ada", "\"admin\"", "groups \"sre\" \"dc\"", ADA);
    let bob = |groups: &str| person("bob", "\"admin\"", groups, BOB);
    let cleo = person(
        "cleo",
        "\"admin\"",
        "",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP8uTqVIctEHU+fuyqm62wi6munZa1AHCRSiwsYHK1iB",
    );
    let tier = "tier \"boot\" { commands \"node.reboot\"; roles \"admin\"; threshold 2; groups { sre 1; dc 1; }; max-nodes 4; max-ttl \"4h\"; }\n";
    let people = |groups: &str| format!("{ada}{}{cleo}{}{tier}", bob(groups), change(1));
    out(&people(""), "nobody is left for the group");
    fine(&people("groups \"sre\""));
    fine(&people("groups \"dc\""));
}

#[test]
fn services_and_forges_are_no_people_and_revoked_keys_do_not_count() {
    let nodes = with("");
    for kind in ["service", "forge"] {
        let robots = nodes.replace("kind \"human\"", &format!("kind \"{kind}\""));
        let found: Vec<Code> = errors(&check(robots.as_bytes())).collect();
        assert_eq!(found, [codes::TOO_FEW_PEOPLE], "{kind}");
    }
    let ada = TrustKey::from_ssh(ADA).expect("a key").name();
    let bob = TrustKey::from_ssh(BOB).expect("a key").name();
    let gone = |key: &str| format!("revoked \"{key}\" {{ as \"compromised\"; }}\n");
    assert_eq!(codes_of(&gone(&ada)), []);
    assert_eq!(codes_of(&format!("{}{}", gone(&ada), gone(&bob))), [codes::TOO_FEW_PEOPLE]);
    let one = policy(&gone(&ada));
    assert_eq!(one.state(&TrustKey::from_ssh(ADA).expect("a key")), KeyState::Compromised { since: None });
}

#[test]
fn every_rule_that_covers_a_path_has_to_grant_it() {
    let nodes = "principal \"cleo\" { kind \"human\"; roles \"contractor\"; key \"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP8uTqVIctEHU+fuyqm62wi6munZa1AHCRSiwsYHK1iB\"; }\n\
                 path \"**\" { roles \"admin\" \"contractor\"; }\n\
                 path \"pools/**\" { roles \"admin\"; }\n";
    let policy = policy(nodes);
    let who = |name: &str| &policy.principals()[&Name::new(name).expect("a name")];
    assert!(policy.grants(who("ada"), "pools/h100.kdl") && policy.grants(who("cleo"), "sites/fra1.kdl"));
    assert!(!policy.grants(who("cleo"), "pools/h100.kdl"), "a wide rule does not widen a narrow one");
    let narrow = "path \"pools/**\" { roles \"admin\"; }\npath \"trust/**\" { roles \"admin\"; }\n";
    let narrow = with(narrow).replace("path \"**\" { roles \"admin\"; }\n", "");
    let none = check(narrow.as_bytes()).policy.expect("a policy");
    assert!(!none.grants(who("ada"), "sites/fra1.kdl"), "what no rule covers is nobody's");
}

#[test]
fn a_service_proposes_where_a_narrow_rule_names_it_and_changes_nothing_there() {
    let nodes = |kind: &str| {
        format!(
            "principal \"cleo\" {{ kind \"{kind}\"; roles \"proposer\"; key \"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIP8uTqVIctEHU+fuyqm62wi6munZa1AHCRSiwsYHK1iB\"; }}\n\
             path \"**\" {{ roles \"admin\"; }}\npath \"batches/**\" {{ roles \"admin\" \"proposer\"; }}\npath \"batches/wipe*\" {{ roles \"admin\"; }}\n"
        )
    };
    let cleo = Name::new("cleo").expect("a name");
    for (kind, may) in [("service", true), ("human", false)] {
        let policy = policy(&nodes(kind));
        let who = &policy.principals()[&cleo];
        assert_eq!(policy.lets_propose(who, "batches/kernel.kdl"), may, "{kind}");
        assert!(!policy.grants(who, "batches/kernel.kdl"), "the branch is another thing");
        for path in ["batches/wipe-all.kdl", "pools/h100.kdl", "fleet.kdl"] {
            assert!(!policy.lets_propose(who, path), "{path}");
        }
    }
}

#[test]
fn the_digest_is_of_the_meaning() {
    let first = policy("");
    let nodes = with("");
    let mut moved: Vec<&str> = nodes.split_inclusive("}\n").collect();
    moved.reverse();
    let moved = check(format!("// a comment\n{}", moved.concat()).as_bytes()).policy.expect("a policy");
    assert_eq!(moved.digest(), first.digest());
    for nodes in [
        "policy {\n  format 1\n  epoch 2\n  prev \"sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"\n}\n",
        "policy {\n  format 1\n  epoch 1\n  unbatched-destructive-per-hour 1\n}\n",
        "trust { roles \"admin\"; threshold 2; }\n",
        "path \"x\" { roles \"admin\"; }\n",
        "change { roles \"admin\"; threshold 1; }\n",
        "reseal { roles \"admin\"; threshold 1; }\n",
    ] {
        assert_ne!(policy(nodes).digest(), first.digest(), "{nodes}");
    }
}

#[test]
fn a_folder_without_the_file_is_no_policy() {
    let mut tree = Sources::default();
    assert!(check_tree(&tree).is_none());
    tree.insert(trust::FILE, SourceBlob::Symlink);
    assert!(check_tree(&tree).expect("a folder").policy.is_none());
}
