//! Facts about units that read files: restarted once, when a file changed, and never the daemon with them.

use super::*;

/// A file whose change restarts units.
fn read_by(content: &str, units: &[&str]) -> HostFile {
    HostFile { restart: units.iter().map(|unit| (*unit).to_owned()).collect(), ..file("/etc/c.conf", content, "0644") }
}

const RESTART: &str = "systemctl restart -- chrony.service";

#[test]
fn a_unit_restarts_once_when_files_that_it_reads_change() {
    let mut world = World::new(&[("/etc/c.conf", "before\n")]);
    world.machine.systemd = true;
    let also = HostFile { path: "/etc/d.conf".into(), ..read_by("x", &["chrony.service", "idle.service"]) };
    let spec = files(vec![read_by("one", &["chrony.service"]), also]);
    ends_well(&world.host(&spec));
    assert_eq!(world.ran(), [RESTART], "once, and only what runs");
    ends_well(&world.host(&spec));
    assert!(world.ran().is_empty());

    // Other readers are no change; drift is one.
    ends_well(&world.host(&files(vec![read_by("one", &["chrony.service"])])));
    assert!(world.ran() == [RESTART], "the other file went");
    ends_well(&world.host(&files(vec![read_by("one", &["chrony.service", "other.service"])])));
    assert!(world.ran().is_empty());
    fs::write(world.dir.path().join("etc/c.conf"), "mine").expect("written");
    ends_well(&world.host(&files(vec![read_by("one", &["chrony.service"])])));
    assert_eq!(world.ran(), [RESTART]);

    // What was there before comes back, and is read.
    ends_well(&world.host(&NodeSpec::default()));
    assert_eq!(world.ran(), [RESTART]);
    assert_eq!((world.text("/etc/c.conf").as_deref(), &world.kept), (Some("before\n"), &Memory::default()));
}

#[test]
fn a_restart_that_is_owed_outlasts_a_power_cut() {
    for undone in [false, true] {
        for n in 1.. {
            let mut world = World::new(&[("/etc/c.conf", "before\n")]);
            world.machine.systemd = true;
            let spec = files(vec![read_by("one", &["chrony.service"])]);
            let next = if undone { NodeSpec::default() } else { spec.clone() };
            if undone {
                ends_well(&world.host(&spec));
                world.ran();
            }
            let cut = world.interrupted(&next, n);
            let changed = world.text("/etc/c.conf").as_deref() == Some(if undone { "before\n" } else { "one" });
            let ran = world.ran().len();
            ends_well(&world.host(&next));
            assert!(ran + world.ran().len() >= 1, "cut at {n}, changed: {changed}");
            if !cut {
                assert!(n > 6, "{n} points only");
                break;
            }
        }
    }
}

/// The machine whose daemon is killed by its own restart: what is on disk then no longer asks for it.
#[test]
fn the_daemons_own_restart_is_taken_off_before_it_runs() {
    const OWN: &str = "systemctl restart -- bcd.service";
    let own = section::Action::Restart("bcd.service".into());
    for n in 1.. {
        let mut world = World::new(&[("/etc/c.conf", "one")]);
        world.machine.systemd = true;
        world.kept.owed = [section::Action::ReloadSystemd, own.clone()].into();
        let cut = world.interrupted(&NodeSpec::default(), n);
        let ran = world.ran().iter().filter(|ran| *ran == OWN).count();
        assert!(ran == 0 || !world.kept.owed.contains(&own), "cut at {n}: it ran and is still owed");
        world.host(&NodeSpec::default());
        let again = world.ran().iter().filter(|ran| *ran == OWN).count();
        assert!(ran + again <= 1, "cut at {n}: {ran} and {again}");
        if !cut {
            assert!(n > 1 && ran == 1);
            break;
        }
    }
}

#[test]
fn what_ends_the_daemon_is_neither_restarted_nor_stopped_nor_started() {
    let mut world = World::new(&[]);
    world.machine.systemd = true;
    let unit = |name: &str, active| Unit { name: name.into(), active: Some(active), ..Unit::default() };
    let mut spec = files(vec![read_by("one", &["bcd.service", "reboot.target", "chrony.service"])]);
    spec.host.units = vec![unit("bcd.service", false), unit("reboot.target", true)];
    assert_eq!(world.host(&spec).state, SectionState::Failed);
    assert_eq!(world.ran(), [RESTART]);
    assert_eq!(world.text("/etc/c.conf").as_deref(), Some("one"), "the file is as wanted all the same");

    // A memory from before this was refused undoes nothing of it either.
    world.kept.items.insert(Key::Active("bcd.service".into()), Origin::Active(false));
    ends_well(&world.host(&NodeSpec::default()));
    assert!(!world.ran().iter().any(|ran| ran.contains("bcd.service")));
}

#[test]
fn what_is_no_unit_is_never_restarted() {
    let mut world = World::new(&[]);
    world.machine.systemd = true;
    let ended = world.host(&files(vec![read_by("one", &["--now", "a/b.service"])]));
    assert_eq!(ended.state, SectionState::Failed);
    assert!(world.ran().is_empty());
    assert_eq!(world.text("/etc/c.conf").as_deref(), Some("one"), "the file is as wanted all the same");
}
