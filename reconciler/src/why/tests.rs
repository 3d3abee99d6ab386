//! Every code has an entry, every entry is used, and waits come in the order in which they stand in the way.

use std::{collections::BTreeSet, fmt::Write as _, path::Path};

use schema::{
    command::{CommandState, Lane, Reason, Refusal},
    generation::Generation,
    id::{CommandId, NodeId},
    node::Connectivity,
    time::Timestamp,
};
use store::{commands::Command, nodes::Node};

use super::{
    Area, CommandFacts, Keeps, Lifter, Wait,
    catalogue::{self, Entry},
    command, reference,
};

mod machine;

fn codes(area: Area) -> BTreeSet<&'static str> {
    catalogue::all().filter(|entry| entry.area == area).map(|entry: &Entry| entry.code).collect()
}

#[test]
fn a_code_is_told_once_in_its_area() {
    let all: Vec<_> = catalogue::all().map(|entry| (entry.area, entry.code)).collect();
    let distinct: BTreeSet<_> = all.iter().collect();
    assert_eq!(all.len(), distinct.len());
}

#[test]
fn every_entry_says_what_it_means_and_what_to_do() {
    for entry in catalogue::all() {
        assert!(entry.means.ends_with('.'), "{}: {}", entry.code, entry.means);
        assert!(!entry.remedy.is_empty() && !entry.remedy.ends_with('.'), "{}: {}", entry.code, entry.remedy);
    }
}

#[test]
fn every_gate_and_every_state_of_the_source_has_an_entry() {
    let gates = codes(Area::Gate);
    for gate in crate::plan::GateWord::ALL {
        assert!(gates.contains(gate.as_str()), "{}", gate.as_str());
    }
    let states: BTreeSet<&str> = crate::source::SourceState::ALL.iter().map(|state| state.as_str()).collect();
    assert_eq!(states, codes(Area::Source));
}

/// The words that the functions `code` of a folder answer.
fn answered(folder: &str) -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pki/src").join(folder);
    let (mut folders, mut words) = (vec![root], BTreeSet::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of pki") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a file of pki");
            for (at, _) in text.match_indices("fn code(&self) -> &'static str {") {
                let body = &text[at..];
                let end = body.find("\n    }").expect("the end of the function");
                words.extend(body[..end].split('"').skip(1).step_by(2).map(str::to_owned));
            }
        }
    }
    words
}

#[test]
fn every_word_about_commits_and_what_people_say_has_an_entry() {
    let missing = |folder: &str, areas: &[Area]| {
        let known: BTreeSet<&str> = areas.iter().flat_map(|area| codes(*area)).collect();
        let words = answered(folder);
        assert!(words.len() > 10, "{folder} answers codes");
        words.into_iter().filter(|word| !known.contains(word.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(missing("trust", &[Area::Trust, Area::Statement]), [""; 0]);
    assert_eq!(missing("batch", &[Area::Statement, Area::Batch]), [""; 0]);
    let batches = codes(Area::Batch);
    for state in store::batches::BatchState::ALL {
        let known = batches.contains(state.as_str());
        assert!(known, "{}", state.as_str());
    }
    for word in ["anchor", "ok", "trust", "behind", "granted", "vouched", "trust-change", "resealed"] {
        assert!(codes(Area::Trust).contains(word), "{word}");
    }
}

#[test]
fn what_people_said_that_does_not_count_is_told_with_its_reason_and_a_way() {
    use pki::batch::{NoVote, RefusedVote};

    let name = |text: &str| schema::name::Name::new(text).expect("a name");
    let apart = NoVote::Apart { from: at(60), until: at(120), begins: at(0), ends: at(59) };
    let refused = |who: &str, why: NoVote| RefusedVote { who: Some(name(who)), why };
    let all = [
        refused("bob", apart.clone()),
        refused("bob", apart),
        refused("cleo", NoVote::Excluded(name("cleo"))),
        RefusedVote { who: None, why: NoVote::NotEmpty },
    ];
    let told = super::votes(&name("kernel"), &all);
    assert_eq!(
        told.iter().map(|wait| wait.code.as_str()).collect::<Vec<_>>(),
        ["window-apart", "excluded", "not-empty"]
    );
    assert!(told.iter().all(|wait| wait.keeps == Keeps::Nothing && !wait.means.is_empty()), "{told:?}");
    let says = &told[0].says;
    assert!(
        says.starts_with("what bob said does not count: it counts from ") && says.contains("or not at all"),
        "{says}"
    );
    assert!(told[0].remedy.ends_with("better-compute approve batch/kernel"), "{}", told[0].remedy);
}

#[test]
fn the_reference_page_is_fresh() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/codes.md");
    let wanted = reference::page();
    if std::env::var_os("BETTER_COMPUTE_REGENERATE").is_some() {
        std::fs::write(&file, &wanted).expect("writes the page");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "docs/reference/codes.md is stale; run this test with BETTER_COMPUTE_REGENERATE=1");
}

#[test]
fn every_refusal_and_every_reason_of_a_command_has_an_entry() {
    let commands = codes(Area::Command);
    for refusal in Refusal::ALL {
        assert!(commands.contains(refusal.as_str()), "{refusal}");
    }
    for reason in Reason::ALL {
        assert!(commands.contains(reason.as_str()), "{reason}");
    }
}

#[test]
fn what_any_work_can_end_with_has_its_page_whatever_is_asked_about() {
    for area in [Area::Batch, Area::Command, Area::Session, Area::Work] {
        let wait = Wait::new(area, "row-unreadable", Keeps::Nothing, "");
        assert_eq!(wait.lifted_by, Lifter::Operator, "{area:?}");
        assert!(wait.remedy.contains("restore it from a backup"), "{}", wait.remedy);
    }
    assert!(Wait::new(Area::Batch, "no-such-code", Keeps::Nothing, "").remedy.contains("no page knows it"));
}

#[test]
fn every_code_of_joins_renewals_conditions_and_answers_has_an_entry() {
    let listed = |codes: &[&'static str]| codes.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(codes(Area::Join), listed(crate::join::JoinRefusal::CODES));
    assert_eq!(codes(Area::Renewal), listed(crate::join::RenewRefusal::CODES));
    let mut of_secrets = listed(crate::join::BrokerRefusal::CODES);
    // What the daemon's section fails with.
    of_secrets.insert("secret-unavailable");
    assert_eq!(codes(Area::Secret), of_secrets);
    assert_eq!(codes(Area::Api), crate::api::Code::ALL.iter().map(|code| code.as_str()).collect());
    for condition in crate::reconcile::node::OWN_CONDITIONS {
        assert!(codes(Area::Condition).contains(condition), "{condition}");
    }
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + 60 * minute).expect("a time")
}

fn a_reboot(state: CommandState) -> Command {
    Command {
        id: CommandId::from_uuid(uuid::Uuid::from_u128(1)),
        node_id: NodeId::from_uuid(uuid::Uuid::from_u128(2)),
        node: None,
        seq: 7,
        kind: "node.reboot".to_owned(),
        lane: Lane::Control,
        payload: "{}".to_owned(),
        idempotency_key: "api:ada:1".to_owned(),
        state,
        reason: None,
        message: None,
        not_before: Some(at(0)),
        not_after: at(10),
        min_generation: None,
        batch_id: None,
        signed_at: Some(at(0)),
        sent_in: None,
        busy_count: 0,
        busy_reason: None,
        result: None,
        has_evidence: false,
        late: None,
        cancel_requested_at: None,
        owner: None,
        created_by: "ada".to_owned(),
        created_at: at(0),
        dispatched_at: None,
        acked_at: None,
        started_at: None,
        settled_at: None,
    }
}

fn told(title: &str, waits: &[Wait], to: &mut String) {
    writeln!(to, "# {title}").expect("text");
    for wait in waits {
        writeln!(to, "{} [{:?}] {}", wait.code, wait.keeps, wait.says).expect("text");
        writeln!(
            to,
            "  since {:?} until {:?}",
            wait.since.map(|at| at.to_string()),
            wait.until.map(|at| at.to_string())
        )
        .expect("text");
        writeln!(to, "  {}: {}", wait.lifted_by.in_words(), wait.remedy).expect("text");
    }
}

#[test]
fn a_command_says_what_it_waits_for_and_how_it_ended() {
    let mut text = String::new();
    let mut look = |title: &str, command_row: &Command, ahead: &[CommandId], has_update: bool| {
        let facts = CommandFacts {
            command: command_row,
            node: None,
            ahead,
            speaks_commands: Some(true),
            withheld: (title == "not allowed").then_some("nobody approved it"),
            has_update,
            session: None,
        };
        told(title, &command(&facts, at(1)), &mut text);
    };
    let pending = a_reboot(CommandState::Pending);
    look("nothing in its way", &pending, &[], false);
    look("unsigned", &Command { signed_at: None, ..pending.clone() }, &[], false);
    look("not allowed", &Command { signed_at: None, ..pending.clone() }, &[], false);
    look("held for a batch", &Command { not_before: None, signed_at: None, ..pending.clone() }, &[], false);
    let ahead: Vec<CommandId> = (10..15).map(|n| CommandId::from_uuid(uuid::Uuid::from_u128(n))).collect();
    let full = Command {
        busy_count: 1,
        busy_reason: Some("journal-full".to_owned()),
        not_before: Some(at(2)),
        ..pending.clone()
    };
    look("no place in the journal", &full, &[], false);
    let unusable = Command { busy_reason: Some("journal-unusable".to_owned()), ..full };
    look("no journal on a full disk", &unusable, &[], false);
    look("busy, and others go first", &Command { busy_count: 2, not_before: Some(at(2)), ..pending }, &ahead, false);
    let sent = Command { dispatched_at: Some(at(1)), ..a_reboot(CommandState::Dispatched) };
    look("sent", &sent, &[], false);
    let running =
        Command { started_at: Some(at(1)), cancel_requested_at: Some(at(1)), ..a_reboot(CommandState::Running) };
    look("at it, and cancelled", &running, &[], false);
    look("its last word came", &running, &[], true);
    let bound = Command { min_generation: Some(Generation(9)), ..sent.clone() };
    let full_disk = machine::full_disk();
    let node = Node { connectivity: Connectivity::Unreachable, connectivity_since: at(0), ..machine::a_machine() };
    for (title, row) in [
        ("its machine went away with it", &sent),
        ("and it waits for a spec", &bound),
        ("nobody to send it to", &a_reboot(CommandState::Pending)),
    ] {
        let facts = CommandFacts {
            command: row,
            node: Some(&node),
            ahead: &[],
            speaks_commands: Some(true),
            withheld: None,
            has_update: false,
            session: Some(&full_disk),
        };
        told(title, &command(&facts, at(1)), &mut text);
    }
    let mut look = |title: &str, command_row: &Command| {
        let facts = CommandFacts {
            command: command_row,
            node: None,
            ahead: &[],
            speaks_commands: None,
            withheld: None,
            has_update: false,
            session: None,
        };
        told(title, &command(&facts, at(1)), &mut text);
    };
    look("done", &a_reboot(CommandState::Succeeded));
    let failed = |reason: &str, message: &str| Command {
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        settled_at: Some(at(1)),
        ..a_reboot(CommandState::Failed)
    };
    look("timed out", &failed("timeout", ""));
    look("a word of its kind that no page has", &failed("fan-missing", "fan 3 is not there"));
    insta::assert_snapshot!(text);
}
