//! Facts about the journal, on real files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use pki::batch::{Authority, Permit};
use schema::{
    command::{CommandKind, CommandUpdate, Reason, UpdateState},
    digest::Digest,
    id::{BootId, NodeId},
};

use super::*;
use crate::command::quorum::Short;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn now() -> Timestamp {
    at("2026-03-01T12:00:00Z")
}

/// A moment that both clocks agree on.
fn clocks(at: Timestamp) -> Clocks {
    Clocks { now: at, wall: at }
}

fn entry(seq: u64) -> Entry {
    Entry {
        id: CommandId::generate(),
        seq,
        kind: CommandKind::NodeReboot.to_string(),
        not_after: at("2026-03-01T12:10:00Z"),
        body: Digest::of("body"),
        signature: Digest::of("signature"),
        at: now(),
        boot_id: BootId::generate(),
        permitted: None,
        runs: Vec::new(),
        ended: None,
        bytes: 0,
    }
}

fn succeeded() -> Ended {
    Ended { state: UpdateState::Succeeded, reason: None, at: now(), approvals: None }
}

fn said(text: &str) -> Stored {
    Stored { update: text.as_bytes().to_vec(), signature: b"signed".to_vec() }
}

struct World {
    dir: tempfile::TempDir,
    state: StateDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state = StateDir::open(&dir.path().join("state")).expect("made");
        Self { dir, state }
    }

    fn open(&self) -> Opened {
        Journal::open(&self.state, now()).expect("opens")
    }

    fn file(&self) -> std::path::PathBuf {
        self.state.path().join(FILE)
    }

    /// The state as it is on disk at this moment, as a machine finds it whose daemon was killed now.
    fn killed(&self) -> Self {
        let copy = Self { dir: tempfile::tempdir().expect("a temporary directory"), state: self.state.clone() };
        let state = StateDir::open(&copy.dir.path().join("state")).expect("made");
        fs::copy(self.file(), state.path().join(FILE)).expect("copied");
        Self { state, ..copy }
    }
}

#[test]
fn every_step_is_on_disk_when_its_call_returns() {
    let world = World::new();
    let journal = world.open().journal;
    let one = entry(1);
    let seen = || {
        let opened = world.killed().open();
        assert_eq!((opened.begun, opened.journal.id()), (Begun::Found, journal.id()));
        let said = opened.journal.said(one.id).expect("read");
        (opened.entries, said)
    };
    assert_eq!(seen(), (Vec::new(), None));

    journal.accept(&one, b"the body").expect("kept");
    let (entries, _) = seen();
    assert_eq!((entries[0].id, entries[0].bytes, &entries[0].runs), (one.id, 8, &Vec::new()));
    assert_eq!(world.killed().open().journal.body(one.id).expect("read"), b"the body");

    journal.start(one.id, clocks(now()), &Toll::Free).expect("kept");
    assert_eq!(seen().0[0].runs, [Ran { at: now(), effects: Vec::new() }]);

    journal.effect(one.id, "reboot", now()).expect("kept");
    assert_eq!(seen().0[0].effects().map(|effect| effect.name.as_str()).collect::<Vec<_>>(), ["reboot"]);

    journal.settle(one.id, &succeeded(), &said("done")).expect("kept");
    let (entries, words) = seen();
    assert_eq!((entries[0].ended.clone(), words), (Some(succeeded()), Some(said("done"))));

    journal.forget(&[one.id]).expect("kept");
    assert_eq!(seen(), (Vec::new(), None));
}

#[test]
fn the_first_end_is_the_end() {
    let world = World::new();
    let journal = world.open().journal;
    let one = entry(1);
    journal.accept(&one, b"body").expect("kept");
    journal.start(one.id, clocks(now()), &Toll::Free).expect("kept");
    journal.settle(one.id, &succeeded(), &said("done")).expect("kept");
    let other = CommandUpdate::new(one.id, NodeId::generate(), UpdateState::Failed, journal.id(), one.boot_id);
    let other = Ended::of(&other.because(Reason::TIMEOUT, ""), now());
    assert!(matches!(journal.settle(one.id, &other, &said("late")), Err(JournalError::Over(_))));
    assert!(matches!(journal.effect(one.id, "late", now()), Err(JournalError::Over(_))));
    assert!(matches!(journal.start(one.id, clocks(now()), &Toll::Free), Err(JournalError::Over(_))));
    assert_eq!(journal.said(one.id).expect("read"), Some(said("done")));
}

#[test]
fn a_second_run_keeps_the_effects_of_the_first() {
    let world = World::new();
    let journal = world.open().journal;
    let one = entry(1);
    journal.accept(&one, b"body").expect("kept");
    journal.start(one.id, clocks(now()), &Toll::Free).expect("kept");
    journal.effect(one.id, "first", now()).expect("kept");
    drop(journal);
    let journal = world.open().journal;
    let entry = journal.start(one.id, clocks(now()), &Toll::Free).expect("kept");
    assert_eq!((entry.runs.len(), entry.effects().count()), (2, 1));
}

#[test]
fn it_is_for_the_owner_only_and_one_daemon_has_it() {
    let world = World::new();
    let journal = world.open().journal;
    let mode = fs::metadata(world.file()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(Journal::open(&world.state, now()), Err(JournalError::Locked)));
    let one = entry(1);
    journal.accept(&one, b"body").expect("kept");
    let (id, entries) = Journal::look(&world.state).expect("read").expect("there");
    assert_eq!((id, entries.len()), (journal.id(), 1), "others look on");
    drop(journal);
    assert_eq!(Journal::look(&world.state).expect("read").expect("there").1.len(), 1);
    let killed = world.killed();
    assert_eq!(Journal::look(&killed.state).expect("read").expect("there").1.len(), 1);
    assert_eq!(Journal::look(&World::new().state).expect("read"), None);
}

#[test]
fn half_of_a_new_one_is_begun_again() {
    let world = World::new();
    fs::write(world.state.path().join("journal.redb.new"), b"half").expect("written");
    assert_eq!(world.open().begun, Begun::Fresh);
}

#[test]
fn a_lost_one_is_another_one() {
    let world = World::new();
    let first = world.open().journal;
    let id = first.id();
    drop(first);
    fs::remove_file(world.file()).expect("removed");
    let opened = world.open();
    assert_eq!(opened.begun, Begun::Fresh);
    assert_ne!(opened.journal.id(), id);
}

/// Whatever is done to the file: what opens is either the journal as it was, or another one beside the broken file.
fn survives(world: &World, truth: (JournalId, &[Entry]), what: &str, damage: impl FnOnce(&Path)) {
    let world = world.killed();
    damage(&world.file());
    let opened = world.open();
    match opened.begun {
        Begun::Found => assert_eq!((opened.journal.id(), opened.entries.as_slice()), truth, "{what}"),
        Begun::Broken { aside, .. } => {
            assert_ne!(opened.journal.id(), truth.0, "{what}");
            assert!(Path::new(&aside).exists() && opened.entries.is_empty(), "{what}");
            opened.journal.accept(&entry(9), b"body").expect("kept");
        }
        Begun::Fresh => unreachable!("{what}: the file was there"),
    }
}

#[test]
fn a_broken_one_is_kept_aside_and_never_believed() {
    let world = World::new();
    let journal = world.open().journal;
    for seq in 1..6 {
        let one = entry(seq);
        journal.accept(&one, &vec![7; 3000]).expect("kept");
        journal.start(one.id, clocks(now()), &Toll::Free).expect("kept");
        journal.settle(one.id, &succeeded(), &said("done")).expect("kept");
    }
    let entries = journal.entries().expect("read");
    let truth = (journal.id(), entries.as_slice());
    let length = usize::try_from(fs::metadata(world.file()).expect("there").len()).expect("small");
    for keep in [0, 1, 64, 320, 4096, length / 2, length - 1] {
        survives(&world, truth, &format!("cut to {keep}"), |file| {
            let bytes = fs::read(file).expect("read");
            fs::write(file, &bytes[..keep]).expect("written");
        });
    }
    survives(&world, truth, "noise", |file| fs::write(file, vec![0xa5; length]).expect("written"));
    for place in (0..length).step_by(length / 40 + 1) {
        survives(&world, truth, &format!("a bit at {place}"), |file| {
            let mut bytes = fs::read(file).expect("read");
            bytes[place] ^= 4;
            fs::write(file, bytes).expect("written");
        });
    }
}

#[test]
fn a_disk_that_takes_nothing_for_a_while_costs_what_was_not_kept_and_no_more() {
    let world = World::new();
    let journal = world.open().journal;
    let (one, two) = (entry(1), entry(2));
    journal.accept(&one, b"body").expect("kept");
    // As after a write that failed: the store is opened anew, and cannot be.
    journal.lock().database = None;
    let away = world.dir.path().join("away");
    fs::rename(world.file(), &away).expect("moved");
    assert!(journal.accept(&two, b"body").is_err());
    assert!(journal.settle(one.id, &succeeded(), &said("done")).is_err());
    fs::rename(&away, world.file()).expect("moved back");
    journal.settle(one.id, &succeeded(), &said("done")).expect("kept");
    journal.accept(&two, b"body").expect("kept");
    let entries = journal.entries().expect("read");
    assert_eq!(entries.iter().filter(|entry| entry.ended.is_some()).count(), 1);
    assert_eq!(entries.len(), 2);
}

#[test]
fn what_was_kept_although_the_disk_said_no_is_kept_once() {
    let world = World::new();
    let journal = world.open().journal;
    let one = entry(1);
    for _ in 0..2 {
        journal.accept(&one, b"body").expect("kept");
    }
    let sizes = |journal: &Journal| {
        let inner = journal.lock();
        (inner.count, inner.bytes)
    };
    assert_eq!(sizes(&journal), (1, 4));
    let refused = Entry { ended: Some(succeeded()), ..one.clone() };
    for _ in 0..2 {
        journal.refuse(&refused, b"body", &said("done")).expect("kept");
    }
    assert_eq!(journal.said(one.id).expect("read"), Some(said("done")));
    assert!(matches!(journal.accept(&one, b"body"), Err(JournalError::Over(_))));
    let other = Entry { body: Digest::of("another"), ..one.clone() };
    assert!(matches!(journal.accept(&other, b"another"), Err(JournalError::Over(_))));
    journal.lock().database = None;
    journal.forget(&[one.id, CommandId::generate()]).expect("kept");
    assert_eq!(sizes(&journal), (0, 0));
}

#[test]
fn it_remembers_no_more_than_it_may() {
    let world = World::new();
    let journal = world.open().journal;
    let one = entry(1);
    journal.lock().bytes = MAX_BYTES - 3;
    assert!(matches!(journal.accept(&one, b"body"), Err(JournalError::Full)));
    journal.lock().bytes = 0;
    journal.lock().count = MAX_ENTRIES;
    assert!(matches!(journal.accept(&one, b"body"), Err(JournalError::Full)));
    journal.lock().count = MAX_ENTRIES - 1;
    let bulk = Entry { kind: CommandKind::LogsCollect.to_string(), ..entry(2) };
    assert!(
        matches!(journal.accept(&bulk, b"body"), Err(JournalError::Full)),
        "the last places are the control lane's"
    );
    journal.accept(&one, b"body").expect("kept");
    journal.start(one.id, clocks(now()), &Toll::Free).expect("kept");
    let full = Happened { name: "x".to_owned(), at: now() };
    let fill = |entry: &mut Entry| {
        entry.runs[0].effects = vec![full.clone(); MAX_EFFECTS - 1];
        Ok(())
    };
    journal.lock().change("effect", one.id, fill).expect("kept");
    journal.effect(one.id, "last", now()).expect("kept");
    assert!(matches!(journal.effect(one.id, "one more", now()), Err(JournalError::Full)));
}

#[test]
fn the_last_bytes_are_the_control_lanes() {
    let world = World::new();
    let journal = world.open().journal;
    let bulk = Entry { kind: CommandKind::LogsCollect.to_string(), ..entry(2) };
    journal.lock().bytes = MAX_BYTES - RESERVED_BYTES;
    assert!(matches!(journal.accept(&bulk, b"body"), Err(JournalError::Full)));
    journal.accept(&entry(1), b"body").expect("kept");
}

#[test]
fn what_it_took_stays_counted_and_a_refusal_is_not() {
    let world = World::new();
    let journal = world.open().journal;
    assert_eq!(journal.marks(), [0, 0, 0]);
    let (reboot, early) = (entry(7), entry(5));
    let bulk = Entry { kind: CommandKind::LogsCollect.to_string(), ..entry(6) };
    for one in [&reboot, &early, &bulk] {
        journal.accept(one, b"body").expect("kept");
    }
    let refused = Entry { ended: Some(Ended { state: UpdateState::Rejected, ..succeeded() }), ..entry(9) };
    journal.refuse(&refused, b"body", &said("no")).expect("kept");
    assert_eq!(journal.marks(), [7, 0, 6]);
    assert!(matches!(journal.body(refused.id), Err(JournalError::Unknown(_))), "what never runs is not kept to be run");
    journal.settle(reboot.id, &succeeded(), &said("done")).expect("kept");
    journal.forget(&[reboot.id]).expect("kept");
    assert_eq!(world.killed().open().journal.marks(), [7, 0, 6]);
    journal.lock().database = None;
    journal.accept(&entry(8), b"body").expect("kept");
    let _hang = journal.hang();
    assert_eq!(journal.marks(), [8, 0, 6]);
}

#[test]
fn an_old_copy_says_less_than_it_took_and_goes_on_as_another_that_knows_the_same() {
    let world = World::new();
    let journal = world.open().journal;
    let (known, lost) = (entry(1), entry(2));
    journal.accept(&known, b"body").expect("kept");
    let copy = world.killed();
    journal.accept(&lost, b"body").expect("kept");
    let opened = copy.open();
    let old = opened.journal;
    assert_eq!(
        (opened.begun, old.id(), old.marks(), journal.marks()),
        (Begun::Found, journal.id(), [1, 0, 0], [2, 0, 0])
    );
    let next = old.rename().expect("kept");
    drop(old);
    let again = copy.open();
    assert_eq!((again.begun, again.journal.id(), again.entries.len()), (Begun::Found, next, 1));
    assert_ne!(next, journal.id());
    assert!(matches!(
        again.journal.accept(&Entry { body: Digest::of("other"), ..known }, b"b"),
        Err(JournalError::Over(_))
    ));
}

fn permit(word: &str) -> Toll {
    Toll::Permit(Permit {
        by: Authority::Breakglass { reason: word.to_owned() },
        people: std::collections::BTreeSet::new(),
        uses: vec![Digest::of(word), Digest::of(format!("{word} too"))],
        from: now(),
        until: at("2026-03-01T13:00:00Z"),
    })
}

#[test]
fn an_approval_is_used_up_once_with_the_beginning_that_it_permits() {
    let world = World::new();
    let journal = world.open().journal;
    let all: Vec<Entry> = (1..=3).map(entry).collect();
    for one in &all {
        journal.accept(one, b"body").expect("kept");
    }
    journal.start(all[0].id, clocks(now()), &permit("a")).expect("kept");
    journal.start(all[0].id, clocks(now()), &permit("a")).expect("the same command goes on");
    let other = Toll::Permit(Permit {
        uses: vec![Digest::of("fresh"), Digest::of("a too")],
        ..match permit("b") {
            Toll::Permit(permit) => permit,
            toll => unreachable!("{toll:?}"),
        }
    });
    let again = |journal: &Journal| {
        for toll in [permit("a"), other.clone()] {
            let refused = journal.start(all[1].id, clocks(now()), &toll);
            assert!(matches!(refused, Err(JournalError::Unpaid(Short::Used(user))) if user == all[0].id));
        }
    };
    again(&journal);
    let began = |journal: &Journal| -> Vec<usize> {
        journal.entries().expect("read").iter().map(|entry| entry.runs.len()).collect()
    };
    assert_eq!(began(&journal), [2, 0, 0], "what was refused did not begin");
    let spent = journal.spent().lock().expect("whole").clone();
    assert_eq!((spent.uses.len(), spent.uses[&Digest::of("a")]), (2, all[0].id));
    drop(journal);
    let journal = world.open().journal;
    assert_eq!(*journal.spent().lock().expect("whole"), spent, "and after a restart");
    again(&journal);
    journal.forget(&[all[0].id]).expect("forgotten");
    again(&journal);
    // Whoever signs commands gives the name once more, to another text.
    let twin = Entry { body: Digest::of("another"), ..all[0].clone() };
    journal.accept(&twin, b"another").expect("kept");
    let refused = journal.start(twin.id, clocks(now()), &permit("a"));
    assert!(matches!(refused, Err(JournalError::Unpaid(Short::Used(user))) if user == twin.id));
    journal.start(all[1].id, clocks(now()), &permit("b")).expect("another approval");
}

#[test]
fn the_allowance_of_an_hour_outlives_the_daemon() {
    let world = World::new();
    let journal = world.open().journal;
    let all: Vec<Entry> = (1..=4).map(entry).collect();
    for one in &all {
        journal.accept(one, b"body").expect("kept");
    }
    let two = Toll::Unbatched { per_hour: 2 };
    let at = |minutes: u64| clocks(now().saturating_add(std::time::Duration::from_secs(minutes * 60)).expect("a time"));
    journal.start(all[0].id, at(0), &two).expect("the first");
    journal.start(all[1].id, at(30), &two).expect("the second");
    drop(journal);
    let journal = world.open().journal;
    let used_up = |journal: &Journal, one: &Entry, at: Clocks| {
        let refused = journal.start(one.id, at, &two);
        assert!(matches!(refused, Err(JournalError::Unpaid(Short::Allowance { before: 2, .. }))), "{refused:?}");
    };
    used_up(&journal, &all[2], at(59));
    used_up(&journal, &all[2], Clocks { wall: at(59).wall, ..at(600) });
    drop(journal);
    let journal = world.open().journal;
    used_up(&journal, &all[2], Clocks { wall: at(59).wall, ..at(600) });
    journal.start(all[2].id, at(60), &two).expect("an hour after the first");
    used_up(&journal, &all[3], at(61));
    assert_eq!(journal.spent().lock().expect("whole").unbatched.len(), 2);
}

#[test]
fn a_beginning_that_was_kept_although_the_disk_said_no_pays_once() {
    let world = World::new();
    let journal = world.open().journal;
    let (one, two) = (entry(1), entry(2));
    for one in [&one, &two] {
        journal.accept(one, b"body").expect("kept");
    }
    let toll = Toll::Unbatched { per_hour: 2 };
    for _ in 0..2 {
        journal.start(one.id, clocks(now()), &toll).expect("it is this very one");
    }
    assert_eq!(journal.spent().lock().expect("whole").unbatched.len(), 1);
    drop(journal);
    let journal = world.open().journal;
    assert_eq!(journal.spent().lock().expect("whole").unbatched.len(), 1);
    journal.start(two.id, clocks(now()), &toll).expect("there is one left");
}

#[test]
fn a_journal_says_since_when_it_knows_everything() {
    let world = World::new();
    let journal = world.open().journal;
    let since = |journal: &Journal| journal.spent().lock().expect("whole").since;
    assert_eq!(since(&journal), None);
    journal.proven(at("2036-01-01T00:00:00Z")).expect("kept");
    journal.proven(now()).expect("kept");
    journal.proven(at("2026-03-02T12:00:00Z")).expect("kept");
    assert_eq!(since(&journal), Some(now()), "a time that was taken back does not stay");
    drop(journal);
    let journal = world.open().journal;
    assert_eq!(since(&journal), Some(now()));
    journal.rename().expect("kept");
    drop(journal);
    assert_eq!(since(&world.open().journal), None, "another journal knows nothing of what was before");
}

#[test]
fn nobody_writes_into_one_that_was_let_go() {
    let world = World::new();
    let journal = world.open().journal;
    let other = journal.clone();
    journal.close();
    assert!(matches!(other.accept(&entry(1), b"body"), Err(JournalError::Closed)));
    world.open();
}

#[test]
fn a_command_is_remembered_for_a_day_after_it_could_last_have_run() {
    let one = entry(1);
    assert_eq!(one.forgettable_at(), at("2026-03-02T12:40:00Z"));
    let unknown = Entry { kind: "disk.wipe".to_owned(), ..one };
    assert_eq!(unknown.forgettable_at(), at("2026-03-02T12:25:00Z"));
}

#[test]
fn a_refusal_of_approvals_gives_way_to_other_approvals_and_every_other_end_stays() {
    let world = World::new();
    let journal = world.open().journal;
    let refused = |one: &Entry, approvals: Option<&str>| {
        let ended = Ended {
            state: UpdateState::Rejected,
            reason: Some(Reason::NOT_AFTER),
            at: now(),
            approvals: approvals.map(Digest::of),
        };
        Entry { ended: Some(ended), ..one.clone() }
    };
    let (one, late) = (entry(1), entry(2));
    journal.refuse(&refused(&one, Some("spoilt")), b"the body", &said("spoilt")).expect("kept");
    journal.refuse(&refused(&one, Some("spoilt")), b"the body", &said("once more")).expect("kept");
    assert_eq!(journal.said(one.id).expect("read"), Some(said("spoilt")), "the same approvals, the same answer");
    journal.refuse(&refused(&one, Some("others")), b"the body", &said("others")).expect("kept");
    assert_eq!(journal.said(one.id).expect("read"), Some(said("others")));
    journal.accept(&one, b"the body").expect("those are good");
    let opened = world.killed().open();
    assert_eq!((opened.entries.len(), opened.entries[0].ended.clone()), (1, None));
    assert_eq!((opened.journal.said(one.id).expect("read"), opened.entries[0].bytes), (None, 8));
    assert_eq!(opened.journal.body(one.id).expect("read"), b"the body");

    journal.refuse(&refused(&late, None), b"the body", &said("late")).expect("kept");
    assert!(matches!(journal.accept(&late, b"the body"), Err(JournalError::Over(_))));
}
