//! Facts about drift, on real files in a temporary root.

use std::{fs, os::unix::fs::PermissionsExt as _};

use proptest::prelude::*;
use schema::{
    node::condition::{DRIFT_FIGHT, DRIFT_UNREPORTED},
    report::{DriftEntry, DriftKind, MAX_DRIFT, MAX_DRIFT_BYTES, MAX_DRIFT_VALUE},
    spec::{AccessKey, DriftRule, NodeSpec, PackagePin, Section},
};

use super::*;
use crate::converge::tests::{World, ends_well, file, files, rich};

fn rule(spec: &mut NodeSpec, path: &str, mode: spec::DriftMode) {
    spec.host.drift.push(DriftRule { path: path.to_owned(), mode });
}

fn ruled(mut spec: NodeSpec, path: &str) -> NodeSpec {
    rule(&mut spec, path, spec::DriftMode::Warn);
    spec
}

fn motd(content: &str) -> NodeSpec {
    files(vec![file("/etc/motd", content, "0644")])
}

impl World {
    fn put(&self, path: &str, content: &str) {
        let at = self.dir.path().join(&path[1..]);
        fs::write(&at, content).expect("written");
    }

    fn chmod(&self, path: &str, mode: u32) {
        let at = self.dir.path().join(&path[1..]);
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).expect("set");
    }

    fn later(&mut self, seconds: i64) {
        self.now = self.now.checked_add(jiff::SignedDuration::from_secs(seconds)).expect("a time");
    }

    fn report(&self) -> Vec<DriftEntry> {
        self.ledger.report()
    }

    fn only(&self) -> DriftEntry {
        let report = self.report();
        assert_eq!(report.len(), 1, "{report:?}");
        report.into_iter().next().expect("one")
    }

    fn conditions(&self) -> Vec<String> {
        self.ledger.conditions(self.now).into_iter().map(|condition| condition.kind).collect()
    }
}

#[test]
fn a_host_that_is_as_wanted_reports_nothing_and_writes_nothing() {
    let mut world = World::new(&[("/etc/motd", "before\n")]);
    ends_well(&world.host(&rich()));
    let writes = world.writes;
    for _ in 0..3 {
        world.later(60);
        ends_well(&world.host(&rich()));
        assert!(world.report().is_empty() && world.conditions().is_empty());
        assert!(world.done.is_empty(), "{:?}", world.done);
    }
    assert_eq!(world.writes, writes, "idle costs nothing");
}

#[test]
fn what_is_enforced_is_put_right_and_reported() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&motd("hello\n")));
    world.later(60);
    let found = world.now;
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&motd("hello\n")));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"));
    let entry = world.only();
    assert_eq!((entry.path.as_str(), entry.mode), ("files./etc/motd.content", DriftMode::Enforce));
    assert_eq!((entry.kind, entry.corrected, entry.times), (DriftKind::Changed, true, 1));
    assert_eq!((entry.observed.as_deref(), entry.desired.as_deref()), (Some("mine\n"), Some("hello")));
    assert_eq!((entry.first_seen, entry.last_seen, entry.cause), (found, found, DriftCause::WhileRunning));
    assert!(world.done[0].contains("put right") && !world.done[0].contains("mine"), "{:?}", world.done);

    // Told for a day, and for no longer.
    let before = world.report();
    world.later(3600);
    ends_well(&world.host(&motd("hello\n")));
    assert_eq!(world.report(), before, "nothing to report anew");
    world.later(24 * 3600);
    ends_well(&world.host(&motd("hello\n")));
    assert!(world.report().is_empty());
}

#[test]
fn what_may_differ_is_left_alone_and_reported_until_it_is_as_desired_again() {
    let mut world = World::new(&[("/proc/sys/vm/swappiness", "60\n")]);
    world.chmod("/proc/sys/vm/swappiness", 0o644);
    let mut spec = ruled(motd("hello\n"), "files./etc/motd");
    spec.host.sysctl.insert("vm.swappiness".into(), "1".into());
    rule(&mut spec, "sysctl.vm.*", spec::DriftMode::Adopt);
    ends_well(&world.host(&spec));
    world.put("/etc/motd", "mine\n");
    world.put("/proc/sys/vm/swappiness", "10\n");
    world.later(60);
    let found = world.now;
    ends_well(&world.host(&spec));
    let report = world.report();
    let told: Vec<_> = report.iter().map(|entry| (entry.path.as_str(), entry.mode, entry.kind)).collect();
    assert_eq!(
        told,
        [
            ("files./etc/motd.content", DriftMode::Warn, DriftKind::Changed),
            ("sysctl.vm.swappiness", DriftMode::Adopt, DriftKind::Value),
        ]
    );
    assert_eq!(report[1].observed.as_deref(), Some("10"));
    assert!(report.iter().all(|entry| !entry.corrected && entry.times == 1 && entry.first_seen == found));

    // Looking again changes nothing; another value is another change of the same age.
    let writes = world.writes;
    world.later(60);
    ends_well(&world.host(&spec));
    assert_eq!((world.report(), world.writes), (report, writes));
    world.put("/etc/motd", "mine too\n");
    ends_well(&world.host(&spec));
    let entry = world.report().remove(0);
    assert_eq!((entry.times, entry.first_seen, entry.last_seen), (2, found, world.now));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("mine too\n"));

    world.put("/etc/motd", "hello\n");
    world.put("/proc/sys/vm/swappiness", "1\n");
    ends_well(&world.host(&spec));
    assert!(world.report().is_empty());
}

#[test]
fn a_new_wish_is_carried_out_over_what_was_left_alone() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&ruled(motd("one\n"), "files./etc/motd")));
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&ruled(motd("one\n"), "files./etc/motd")));
    ends_well(&world.host(&ruled(motd("two\n"), "files./etc/motd")));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("two\n"));
    assert!(world.report().is_empty());
}

#[test]
fn what_was_never_as_desired_is_no_drift() {
    let mut world = World::new(&[("/etc/motd", "before\n")]);
    ends_well(&world.host(&ruled(motd("hello\n"), "files./etc/motd")));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"));
    assert!(world.report().is_empty());
}

#[test]
fn without_its_rule_a_field_is_enforced_again() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&ruled(motd("hello\n"), "files./etc/motd")));
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&ruled(motd("hello\n"), "files./etc/motd")));
    let first = world.only().first_seen;
    world.later(60);
    ends_well(&world.host(&motd("hello\n")));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"));
    let entry = world.only();
    assert_eq!((entry.mode, entry.corrected, entry.first_seen), (DriftMode::Enforce, true, first));
}

#[test]
fn what_is_adopted_into_the_spec_is_no_drift_and_no_work() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&ruled(motd("hello\n"), "files./etc/motd")));
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&ruled(motd("hello\n"), "files./etc/motd")));
    let adopted = ruled(motd(&world.only().observed.expect("told")), "files./etc/motd");
    assert!(world.steps(&adopted).steps.is_empty());
    ends_well(&world.host(&adopted));
    assert!(world.report().is_empty() && world.done.is_empty());
}

#[test]
fn each_field_of_a_file_has_its_own_rule() {
    let mut world = World::new(&[]);
    let spec = ruled(motd("hello\n"), "files./etc/motd.mode");
    ends_well(&world.host(&spec));
    world.put("/etc/motd", "mine\n");
    world.chmod("/etc/motd", 0o664);
    ends_well(&world.host(&spec));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"), "the content is enforced");
    let mode = fs::metadata(world.dir.path().join("etc/motd")).expect("there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o664, "the mode is left alone");
    let told: Vec<_> = world.report().into_iter().map(|entry| (entry.path, entry.kind, entry.corrected)).collect();
    let content = ("files./etc/motd.content".to_owned(), DriftKind::Changed, true);
    assert_eq!(told, [content, ("files./etc/motd.mode".to_owned(), DriftKind::Metadata, false)]);
}

#[test]
fn a_file_that_went_is_one_finding() {
    let mut world = World::new(&[]);
    for spec in [motd("hello\n"), ruled(motd("hello\n"), "files./etc/motd")] {
        ends_well(&world.host(&spec));
        fs::remove_file(world.dir.path().join("etc/motd")).expect("removed");
        ends_well(&world.host(&spec));
        let entry = world.only();
        assert_eq!((entry.path.as_str(), entry.kind), ("files./etc/motd", DriftKind::Removed));
        assert_eq!((entry.observed, entry.observed_digest, entry.observed_bytes), (None, None, None));
        assert_eq!(world.text("/etc/motd").is_some(), spec.host.drift.is_empty());
    }
}

#[test]
fn a_unit_that_does_not_go_on_running_is_no_drift_until_a_look_has_seen_it_run() {
    use crate::{
        converge::{Observed, Seen},
        section::{Accounts, Desired, Key, Named, Want},
    };
    let key = Key::Active("once.service".into());
    let mut desired = Desired::default();
    desired.wants.insert(key.clone(), Want::Active(true));
    desired.names.insert(key.clone(), Named::Field("units.once.service.state".into()));
    let mut ledger = Ledger::default();
    let now = crate::converge::tests::now();
    let mut look = |runs: Option<bool>| {
        let mut observed = Observed::default();
        observed.seen.insert(key.clone(), Seen::Active(runs));
        let mode = |_: &str| DriftMode::Enforce;
        let weighed = weigh(desired.clone(), &observed, &Accounts::default(), &ledger, mode, now);
        ledger.page(Section::Host).note(&weighed.findings, Moment { now, cause: DriftCause::WhileRunning });
        ledger.page(Section::Host).close(&weighed, |_| true, now);
        weighed.findings.into_values().map(|finding| finding.observed).collect::<Vec<_>>()
    };
    assert_eq!(look(Some(false)), []);
    assert_eq!(look(Some(false)), [], "it was started, and has ended by itself");
    assert_eq!(look(Some(true)), []);
    assert_eq!(look(None), [], "nobody can say");
    assert_eq!(look(Some(false)), [Some(b"stopped".to_vec())]);
}

#[test]
fn a_setting_in_a_shared_file_is_told_by_its_own_name() {
    let mut world = World::new(&[]);
    let mut spec = NodeSpec::default();
    let pin = |name: &str, version: &str| PackagePin { name: name.into(), version: version.into() };
    spec.host.packages = vec![pin("cuda", "12.4*"), pin("nccl", "2.1")];
    let spec = ruled(spec, "packages.cuda");
    ends_well(&world.host(&spec));
    let pins = "/etc/apt/preferences.d/60-better-compute";
    let theirs = world.text(pins).expect("there").replace("12.4*", "12.6*").replace("2.1", "2.2");
    world.put(pins, &theirs);
    ends_well(&world.host(&spec));
    let text = world.text(pins).expect("there");
    assert!(text.contains("version 12.6*") && text.contains("version 2.1\n"), "{text}");
    let told: Vec<_> = world.report().into_iter().map(|entry| (entry.path, entry.observed, entry.corrected)).collect();
    assert_eq!(
        told,
        [
            ("packages.cuda".to_owned(), Some("12.6*".to_owned()), false),
            ("packages.nccl".to_owned(), Some("2.2".to_owned()), true),
        ]
    );
    assert!(world.steps(&spec).steps.is_empty(), "what is left alone is left alone");

    // What is nobody's setting goes.
    world.put(pins, &format!("{text}\nPackage: evil\nPin: version 1\nPin-Priority: 1001\n"));
    ends_well(&world.host(&spec));
    assert!(!world.text(pins).expect("there").contains("evil"));
    assert!(world.report().iter().any(|entry| entry.path == "packages" && entry.corrected));
}

#[test]
fn a_shared_file_that_somebody_closed_tells_no_line() {
    let mut world = World::new(&[]);
    let mut spec = NodeSpec::default();
    spec.host.packages = vec![PackagePin { name: "cuda".into(), version: "12.4*".into() }];
    let spec = ruled(spec, "packages.cuda");
    ends_well(&world.host(&spec));
    let pins = "/etc/apt/preferences.d/60-better-compute";
    let theirs = world.text(pins).expect("there").replace("12.4*", "private");
    world.put(pins, &theirs);
    world.chmod(pins, 0o600);
    ends_well(&world.host(&spec));
    let told: Vec<_> = world.report().into_iter().filter(|entry| entry.path == "packages.cuda").collect();
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0].observed, &told[0].desired, told[0].observed_digest), (&None, &None, None));
}

#[test]
fn of_what_not_everybody_may_read_nothing_is_told_but_that_it_changed() {
    let secret = "root:$6$salt$hash:19000::::::\n";
    let cases = [("/etc/shadow", "0640", 0o640), ("/etc/shadow", "0640", 0o644), ("/etc/shadow", "0644", 0o600)];
    for (path, mode, theirs) in cases {
        let mut world = World::new(&[]);
        let mut spec = files(vec![file(path, "root:*:1::::::\n", mode)]);
        rule(&mut spec, "files.*", spec::DriftMode::Adopt);
        ends_well(&world.host(&spec));
        world.put(path, secret);
        world.chmod(path, theirs);
        ends_well(&world.host(&spec));
        let json = serde_json::to_string(&world.report()).expect("serialises");
        assert!(!json.contains("salt") && !json.contains("root:*"), "{json}");
        let entry = world.report().remove(0);
        assert_eq!((entry.observed_bytes, entry.observed_digest, entry.times), (None, None, 1));
        world.put(path, "root:1234:1::::::\n");
        ends_well(&world.host(&spec));
        let again = world.report().remove(0);
        assert_eq!((again.times, again.observed_digest), (2, None), "another change is another one");
        assert!(!serde_json::to_string(&world.ledger).expect("serialises").contains("salt"), "nor is it kept");
    }
    // A directory that is closed closes what is in it.
    let mut world = World::new(&[]);
    let spec = ruled(files(vec![file("/root/notes/x", "a", "0644")]), "files./root/notes/x");
    ends_well(&world.host(&spec));
    world.chmod("/root", 0o700);
    world.put("/root/notes/x", secret);
    ends_well(&world.host(&spec));
    assert_eq!((world.only().observed, world.only().desired), (None, None));
    fs::remove_file(world.dir.path().join("root/notes/x")).expect("removed");
    ends_well(&world.host(&spec));
    assert_eq!((world.only().kind, world.only().desired), (DriftKind::Removed, None));
}

#[test]
fn what_is_no_text_or_too_long_has_a_digest_and_a_size() {
    for content in [vec![0xff, 0xfe], b"a\0b".to_vec(), vec![b'x'; MAX_DRIFT_VALUE + 1]] {
        let mut world = World::new(&[]);
        let spec = ruled(motd("hello\n"), "files./etc/motd");
        ends_well(&world.host(&spec));
        fs::write(world.dir.path().join("etc/motd"), &content).expect("written");
        ends_well(&world.host(&spec));
        let entry = world.only();
        assert_eq!((entry.observed, entry.observed_bytes), (None, u64::try_from(content.len()).ok()));
    }
}

#[test]
fn a_report_of_drift_is_bounded_and_says_how_much_it_leaves_out() {
    let all = |content: &str| {
        let path = |n: usize| format!("/etc/many/{n:04}");
        let files_of = (0..MAX_DRIFT + 20).map(|n| file(&path(n), content, "0644")).collect();
        ruled(files(files_of), "files.*")
    };
    let mut world = World::new(&[]);
    ends_well(&world.host(&all("a")));
    for n in 0..MAX_DRIFT + 20 {
        world.put(&format!("/etc/many/{n:04}"), &"\u{1}".repeat(8 * 1024));
    }
    ends_well(&world.host(&all("a")));
    let report = world.report();
    assert_eq!(report.len(), MAX_DRIFT);
    assert!(serde_json::to_vec(&report).expect("serialises").len() <= MAX_DRIFT_BYTES);
    assert!(report[0].observed.is_some() && report[MAX_DRIFT - 1].observed.is_none());
    assert_eq!(world.conditions(), [DRIFT_UNREPORTED]);
    for n in 0..MAX_DRIFT + 20 {
        world.put(&format!("/etc/many/{n:04}"), "a");
    }
    ends_well(&world.host(&all("a")));
    assert!(world.report().is_empty() && world.conditions().is_empty());
}

#[test]
fn a_fight_slows_down_is_told_and_ends_by_itself() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&motd("hello\n")));
    let mut corrections = 0;
    for _ in 0..30 {
        world.later(60);
        world.put("/etc/motd", "mine\n");
        ends_well(&world.host(&motd("hello\n")));
        corrections += usize::from(world.text("/etc/motd").as_deref() == Some("hello\n"));
    }
    assert_eq!(corrections, 5 + 3, "after 2, 4 and 8 minutes");
    assert_eq!(world.conditions(), [DRIFT_FIGHT]);
    assert_eq!(world.only().times, 8 + 1);

    // A new wish does not wait.
    ends_well(&world.host(&motd("other\n")));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("other\n"));
    for _ in 0..20 {
        world.later(60);
        ends_well(&world.host(&motd("other\n")));
    }
    assert!(world.conditions().is_empty());
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&motd("other\n")));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("other\n"), "peace means that it is put right at once");
}

#[test]
fn what_left_the_spec_is_undone_and_no_drift_any_more() {
    let mut world = World::new(&[("/etc/motd", "before\n")]);
    let spec = ruled(motd("hello\n"), "files./etc/motd");
    ends_well(&world.host(&spec));
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&spec));
    ends_well(&world.host(&NodeSpec::default()));
    assert_eq!(world.text("/etc/motd").as_deref(), Some("before\n"));
    assert_eq!(world.ledger, Ledger::default());
}

#[test]
fn a_foreign_key_for_break_glass_is_put_right_and_told() {
    let mut world = World::new(&[]);
    let mut spec = NodeSpec::default();
    spec.access.keys.push(AccessKey {
        principal: "ada".into(),
        account: "root".into(),
        key: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f".into(),
        until: None,
    });
    ends_well(&world.converge(Section::Access, &spec));
    let path = "/etc/ssh/better-compute/authorized_keys.d/root";
    let ours = world.text(path).expect("there");
    world.put(path, &format!("{ours}ssh-ed25519 theirs\n"));
    ends_well(&world.converge(Section::Access, &spec));
    assert_eq!(world.text(path), Some(ours));
    assert_eq!(world.only().path, format!("access.{path}.content"));
}

#[test]
fn a_power_cut_anywhere_loses_no_word_of_a_correction_and_counts_none_twice() {
    for n in 1.. {
        let mut world = World::new(&[]);
        ends_well(&world.host(&motd("hello\n")));
        world.put("/etc/motd", "mine\n");
        let cut = world.interrupted(&motd("hello\n"), n);
        ends_well(&world.host(&motd("hello\n")));
        let entry = world.only();
        assert_eq!((entry.corrected, entry.times), (true, 1), "cut at {n}");
        assert_eq!(entry.observed.as_deref(), Some("mine\n"), "cut at {n}");
        assert_eq!(world.text("/etc/motd").as_deref(), Some("hello\n"));
        if !cut {
            assert!(n > 8, "{n} points only");
            break;
        }
    }
}

#[test]
fn a_ledger_survives_its_text() {
    let mut world = World::new(&[]);
    ends_well(&world.host(&motd("hello\n")));
    world.put("/etc/motd", "mine\n");
    ends_well(&world.host(&motd("hello\n")));
    let text = serde_json::to_string(&world.ledger).expect("serialises");
    assert_eq!(serde_json::from_str::<Ledger>(&text).expect("parses"), world.ledger);
}

/// What one walk does: a spec with content, rule and mode, a foreign content, a power cut.
fn walk() -> impl Strategy<Value = Vec<(u8, bool, Option<u8>, Option<u32>)>> {
    prop::collection::vec((0u8..3, any::<bool>(), prop::option::of(0u8..4), prop::option::of(1u32..14)), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// Against a model of one line: a foreign change stays if and only if it came after the wish was fulfilled, the wish is
    /// the same, and the rule says so; and it is told if and only if it stays or was put right.
    #[test]
    fn any_walk_of_wishes_and_foreign_changes_ends_as_the_rules_say(walk in walk()) {
        let mut world = World::new(&[]);
        let mut fulfilled: Option<String> = None;
        for (wish, warns, foreign, cut) in walk {
            world.later(3600);
            let wish = format!("wish {wish}\n");
            let spec = if warns { ruled(motd(&wish), "files./etc/motd") } else { motd(&wish) };
            if let Some(foreign) = foreign.filter(|_| fulfilled.is_some()) {
                world.put("/etc/motd", &format!("foreign {foreign}\n"));
            }
            let there = world.text("/etc/motd");
            let is_drift = fulfilled.as_ref() == Some(&wish) && there.as_ref() != Some(&wish);
            if let Some(n) = cut {
                world.interrupted(&spec, n);
            }
            ends_well(&world.host(&spec));
            let after = world.text("/etc/motd");
            let told = world.report();
            if is_drift && warns {
                prop_assert_eq!(after, there);
                prop_assert!(told.iter().any(|entry| !entry.corrected && entry.mode == DriftMode::Warn));
            } else {
                prop_assert_eq!(after.as_ref(), Some(&wish));
                prop_assert!(told.iter().all(|entry| entry.corrected));
                prop_assert!(!is_drift || told.len() == 1);
            }
            prop_assert!(world.steps(&spec).steps.is_empty());
            fulfilled = Some(wish);
        }
    }
}
