//! Facts about the smaller kinds.

use std::{path::Path, sync::Arc, time::Duration};

use schema::command::{CommandKind, Reason};
use serde_json::{Value, json};

use super::{
    Machine,
    testing::{Lab, body, described, failure, run, success},
};
use crate::{
    command::{Context, Outcome, Run as _},
    hardware::boot_id,
};

#[test]
fn a_daemon_that_was_frozen_beyond_its_time_does_nothing_when_it_goes_on() {
    let lab = Lab::new();
    lab.program("systemctl", "touch $LAB/rebooted");
    let mut begun = body(CommandKind::NodeReboot, Value::Null);
    begun.not_after -= CommandKind::NodeReboot.row().timeout.to_std();
    let (context, handle) = Context::for_test(begun);
    assert_eq!(failure(lab.machine().run(&context)).0, Reason::TIMEOUT);
    assert!(handle.effects().is_empty() && !lab.dir.path().join("rebooted").exists());
}

#[test]
fn a_reboot_is_begun_through_systemd_and_written_down_before() {
    let lab = Lab::new();
    lab.program("systemctl", "printf '%s|' \"$@\" > $LAB/said");
    let (context, handle) = Context::for_test(body(CommandKind::NodeReboot, json!({"reason": "new kernel"})));
    assert_eq!(lab.machine().run(&context), Outcome::Boots);
    assert_eq!(lab.said("said"), "reboot|--message=new kernel|");
    assert_eq!(handle.effects(), ["reboot"]);
}

#[test]
fn a_reboot_that_systemd_refuses_has_failed_and_one_that_hangs_may_come() {
    let mut lab = Lab::new();
    lab.program("systemctl", "echo 'Operation inhibited by PID 7' >&2; exit 1");
    let (reason, message, _) = failure(lab.run(CommandKind::NodeReboot, Value::Null));
    assert_eq!(reason, Reason::PROGRAM_FAILED);
    assert!(message.contains("inhibited by PID 7"), "{message}");
    let (reason, _, _) = failure(Lab::new().run(CommandKind::NodeReboot, Value::Null));
    assert_eq!(reason, Reason::PROGRAM_MISSING);
    lab.patience(Duration::from_millis(100));
    lab.program("systemctl", "sleep 600");
    assert_eq!(lab.run(CommandKind::NodeReboot, Value::Null), Outcome::Boots);
}

#[test]
fn a_daemon_whose_root_is_a_directory_does_not_touch_the_machine() {
    let lab = Lab::with_gpus(&["0000:18:00.0"]);
    lab.program("systemctl", "touch $LAB/rebooted");
    let staged = Machine { live: false, ..lab.machine() };
    for (kind, payload) in [
        (CommandKind::NodeReboot, Value::Null),
        (CommandKind::GpuReset, json!({"gpus": ["0000:18:00.0"]})),
        (CommandKind::InventoryRefresh, json!({"rescan": true})),
    ] {
        assert_eq!(failure(run(&staged, kind, payload)).0, Reason::UNSUPPORTED_HERE, "{kind}");
    }
    assert!(!lab.dir.path().join("rebooted").exists());
    let hardware: Arc<dyn crate::hardware::Hardware> = Arc::new(lab.hardware());
    assert!(!Machine::new(&lab.root(), &lab.state(), Arc::clone(&hardware)).live);
    assert!(Machine::new(Path::new("/"), &lab.state(), hardware).live);
}

#[test]
fn a_described_machine_boots_by_itself_and_takes_up_what_is_staged() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let machine = described(dir.path(), "[[faults]]\nkind = \"lost\"\ngpu = 2\n");
    let grub = dir.path().join("etc/default/grub.d/60-better-compute.cfg");
    std::fs::create_dir_all(grub.parent().expect("a parent")).expect("made");
    std::fs::write(grub, "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX iommu=pt\"\n").expect("written");
    let before = boot_id(dir.path(), true);
    assert_eq!(failure(run(&machine, CommandKind::DiagNvml, Value::Null)).0, Reason::CHECKS_FAILED);
    assert_eq!(run(&machine, CommandKind::NodeReboot, Value::Null), Outcome::Booted);
    assert_ne!(boot_id(dir.path(), true), before);
    let cmdline = std::fs::read_to_string(dir.path().join("proc/cmdline")).expect("a kernel runs");
    assert!(cmdline.contains("iommu=pt"), "{cmdline}");
    success(CommandKind::DiagNvml, run(&machine, CommandKind::DiagNvml, json!({"expectedGpus": 8})));
}

#[test]
fn a_cancelled_command_has_no_effect() {
    let lab = Lab::new();
    lab.program("systemctl", "touch $LAB/rebooted");
    let (context, handle) = Context::for_test(body(CommandKind::NodeReboot, Value::Null));
    handle.cancel();
    assert!(matches!(lab.machine().run(&context), Outcome::Cancelled { .. }));
    assert!(handle.effects().is_empty() && !lab.dir.path().join("rebooted").exists());
}

#[test]
fn an_inventory_is_read_again_and_handed_over() {
    let lab = Lab::with_gpus(&["0000:18:00.0"]);
    lab.file("proc/meminfo", "MemTotal: 1048576 kB\n");
    lab.file("sys/bus/pci/rescan", "");
    let payload = json!({"sections": ["memory", "disks"], "rescan": true});
    let (context, handle) = Context::for_test(body(CommandKind::InventoryRefresh, payload));
    let result = success(CommandKind::InventoryRefresh, lab.machine().run(&context));
    assert_eq!(result["sent"], json!(["memory"]));
    assert_eq!(result["unread"], json!({"disks": "it could not be read"}));
    assert_eq!(handle.effects(), ["pci.rescan"]);
    assert_eq!(std::fs::read_to_string(lab.root().join("sys/bus/pci/rescan")).expect("there"), "1\n");
    let mut handle = handle;
    assert!(handle.told.try_recv().is_ok(), "the session got the reading");
}
