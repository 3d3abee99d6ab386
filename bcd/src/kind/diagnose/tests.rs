//! Facts about diagnoses.

use std::time::Duration;

use schema::command::{CommandKind, Reason, result::CheckStatus as Status};
use serde_json::{Value, json};

use super::*;
use crate::{
    hardware::health::OnBus,
    kind::testing::{Lab, described, failure, run, success},
};

const A: &str = "0000:18:00.0";
const B: &str = "0000:2a:00.0";

fn well(pci: &str) -> GpuHealth {
    GpuHealth {
        pci: Some(pci.into()),
        uuid: Some(format!("GPU-{pci}")),
        ecc_uncorrectable: Reading::Known(0),
        remap_pending: Reading::Known(false),
        remap_failure: Reading::Known(false),
        link_width: Reading::Known(16),
        link_max: Reading::Known(16),
        ..GpuHealth::default()
    }
}

fn facts(gpus: Vec<GpuHealth>, bus: &[&str]) -> Facts {
    let bus = bus.iter().map(|pci| OnBus { pci: (*pci).into(), driver: Some("nvidia".into()) }).collect();
    let health = Health { source: "nvml".into(), driver: Some("580.1".into()), gpus };
    Facts { health: Ok(health), bus: Some(bus), xids: Some(Vec::new()), resets: BTreeMap::new() }
}

/// The checks that did not pass, as `name gpu status`.
fn bad(diagnosis: &Diagnosis) -> Vec<String> {
    let bad = diagnosis.checks.iter().filter(|check| check.status != Status::Pass);
    bad.map(|check| {
        assert!(check.why.as_ref().is_some_and(|why| !why.is_empty()), "{check:?} says no reason");
        format!("{} {} {}", check.name, check.gpu.as_deref().unwrap_or("-"), check.status)
    })
    .collect()
}

#[test]
fn a_healthy_machine_passes_every_check() {
    let diagnosis = checks(&facts(vec![well(A), well(B)], &[A, B]), Some(2));
    assert!(diagnosis.passed && bad(&diagnosis).is_empty());
    let names: Vec<&str> = diagnosis.checks.iter().map(|check| check.name.as_str()).collect();
    let per_gpu = ["ecc.uncorrectable", "row-remap.pending", "row-remap.failure", "pcie.link", "xid.recent"];
    let all: Vec<&str> =
        ["nvml.init", "gpus.visible", "gpus.count"].into_iter().chain(per_gpu).chain(per_gpu).collect();
    assert_eq!(names, all);
    assert_eq!(diagnosis.source.as_deref(), Some("nvml"));
}

#[test]
fn each_fault_fails_its_own_check_on_its_own_gpu() {
    type Spoil = fn(&mut GpuHealth);
    let faults: [(Spoil, &str); 6] = [
        (|gpu| gpu.ecc_uncorrectable = Reading::Known(3), "ecc.uncorrectable"),
        (|gpu| gpu.remap_pending = Reading::Known(true), "row-remap.pending"),
        (|gpu| gpu.remap_failure = Reading::Known(true), "row-remap.failure"),
        (|gpu| gpu.link_width = Reading::Known(8), "pcie.link"),
        (|gpu| gpu.lost = Some("GPU is lost".into()), "gpus.visible"),
        (|gpu| gpu.pci = Some("0000:99:00.0".into()), "gpus.visible"),
    ];
    for (spoil, name) in faults {
        let mut ill = well(B);
        spoil(&mut ill);
        let diagnosis = checks(&facts(vec![well(A), ill], &[A, B]), None);
        let gpu = if name == "gpus.visible" { "-".to_owned() } else { format!("GPU-{B}") };
        assert_eq!(bad(&diagnosis), [format!("{name} {gpu} fail")]);
        assert!(!diagnosis.passed);
    }
}

#[test]
fn what_a_gpu_does_not_have_is_no_fault_and_what_the_driver_does_not_say_is_unknown() {
    let mut old = well(A);
    old.remap_failure = Reading::NotSupported;
    let diagnosis = checks(&facts(vec![old.clone()], &[A]), None);
    assert!(diagnosis.passed);
    assert_eq!(bad(&diagnosis), [format!("row-remap.failure GPU-{A} not-supported")]);
    old.remap_failure = Reading::Unknown("ERR!".into());
    let diagnosis = checks(&facts(vec![old], &[A]), None);
    assert!(!diagnosis.passed);
    let (reason, message, _) = failure(judged(&diagnosis));
    assert_eq!(reason, Reason::CHECKS_UNKNOWN);
    assert!(message.contains("ERR!"), "{message}");
}

#[test]
fn a_driver_that_says_nothing_fails_and_one_that_hangs_is_unknown() {
    for (hung, status) in [(false, "fail"), (true, "unknown")] {
        let silence = Silence { hung, why: "no answer".into() };
        let diagnosis = checks(&Facts { health: Err(silence), ..facts(Vec::new(), &[A]) }, Some(1));
        assert_eq!(
            bad(&diagnosis),
            [format!("nvml.init - {status}"), "gpus.visible - unknown".to_owned(), "gpus.count - unknown".to_owned(),]
        );
        assert_eq!(diagnosis.source, None);
    }
}

#[test]
fn the_number_of_gpus_is_held_against_what_is_expected() {
    assert_eq!(bad(&checks(&facts(vec![well(A)], &[A]), Some(2))), ["gpus.count - fail"]);
    assert_eq!(bad(&checks(&facts(Vec::new(), &[]), None)), ["gpus.visible - fail"]);
    // A machine that should have no GPU and has none needs no driver.
    let silence = Silence { hung: false, why: "no driver".into() };
    let none = checks(&Facts { health: Err(silence), ..facts(Vec::new(), &[]) }, Some(0));
    assert!(none.passed, "{none:?}");
}

#[test]
fn a_gpu_that_is_handed_on_to_a_guest_is_not_missed() {
    let mut facts = facts(vec![well(A)], &[A, B]);
    assert_eq!(bad(&checks(&facts, None)), ["gpus.visible - fail"]);
    facts.bus.as_mut().expect("a bus")[1].driver = Some(PASSED_THROUGH.into());
    assert!(checks(&facts, None).passed);
}

#[test]
fn xids_of_this_boot_count_until_a_reset_and_those_of_programs_never() {
    let event = |at, pci: &str, code| Xid { at, pci: pci.into(), code, text: "text".into() };
    let mut facts = facts(vec![well(A), well(B)], &[A, B]);
    facts.xids = Some(vec![event(5, "0000:18:00", 13), event(6, "0000:18:00", 48), event(7, "0000:18:00", 48)]);
    let diagnosis = checks(&facts, None);
    assert_eq!(bad(&diagnosis), [format!("xid.recent GPU-{A} fail")]);
    let why = diagnosis.checks.iter().find_map(|check| check.why.clone()).expect("a reason");
    assert!(why.contains("XID 48") && why.contains("2 times"), "{why}");
    facts.resets.insert(A.into(), 8);
    assert!(checks(&facts, None).passed);
    // A GPU that fell off the bus is told by the kernel's log though the driver no longer knows it.
    facts.xids = Some(vec![event(9, "0000:2a:00", 79)]);
    facts.health.as_mut().expect("an answer").gpus.pop();
    assert_eq!(bad(&checks(&facts, None)), ["gpus.visible - fail".to_owned(), format!("xid.recent {B} fail")]);
    facts.xids = None;
    assert_eq!(bad(&checks(&facts, None))[1], format!("xid.recent GPU-{A} unknown"));
}

const HEALTHY: &str = include_str!("../../hardware/testdata/smi-a100-pair.xml");

fn lab() -> Lab {
    Lab::with_gpus(&["0000:0f:00.0", "0000:07:00.0"])
}

fn diagnose(lab: &Lab) -> Outcome {
    lab.run(CommandKind::DiagNvml, Value::Null)
}

#[test]
fn a_tool_that_hangs_is_killed_and_unknown() {
    let mut lab = lab();
    lab.patience(Duration::from_millis(200));
    lab.probe("sleep 600");
    lab.program("nvidia-smi", "sleep 600 & wait");
    lab.program("journalctl", "sleep 600");
    let (reason, message, result) = failure(diagnose(&lab));
    assert_eq!(reason, Reason::CHECKS_UNKNOWN, "{message}");
    assert!(message.contains("gave no answer"), "{message}");
    assert_eq!(result.expect("a diagnosis")["checks"][0]["status"], "unknown");
}

#[test]
fn the_library_is_asked_first_and_the_tool_when_it_does_not_answer() {
    let mut lab = lab();
    lab.smi(HEALTHY, "exit 1");
    let answer = Health { source: "nvml".into(), driver: None, gpus: vec![well("0000:0f:00.0"), well("0000:07:00.0")] };
    let text = serde_json::to_string(&answer).expect("serialises");
    lab.probe(&format!("[ \"$2\" = health ] && echo '{text}'"));
    assert_eq!(success(CommandKind::DiagNvml, diagnose(&lab))["source"], "nvml");
    for broken in ["exit 1", "echo garbage", "kill -9 $$", "head -c 30000000 /dev/zero"] {
        lab.probe(broken);
        let result = match diagnose(&lab) {
            Outcome::Succeeded(result) => result,
            Outcome::Failed { result: Some(result), .. } => result,
            other => panic!("{broken}: {other:?}"),
        };
        assert_eq!(result["source"], "nvidia-smi", "{broken}");
    }
}

#[test]
fn a_tool_that_talks_nonsense_has_not_answered() {
    let lab = lab();
    for (script, said) in [
        (
            "echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9",
            "communicate",
        ),
        ("head -c 20000000 /dev/zero", "nvidia-smi"),
        ("echo '<nvidia_smi_log>'", "nvidia-smi"),
        ("exit 0", "said nothing"),
    ] {
        lab.program("nvidia-smi", script);
        let (reason, message, result) = failure(diagnose(&lab));
        assert_eq!(reason, Reason::CHECKS_FAILED, "{script}");
        assert!(message.contains("nvml.init") && message.contains(said), "{message}");
        assert_eq!(result.expect("a diagnosis").get("source"), None);
    }
    lab.program("nvidia-smi", "echo 'No devices were found'; exit 6");
    let (_, message, _) = failure(diagnose(&lab));
    assert!(!message.contains("nvml.init") && message.contains("gpus.visible"), "{message}");
}

#[test]
fn one_gpu_that_cannot_be_reached_is_named_and_the_others_keep_their_values() {
    let lab = Lab::with_gpus(&["0000:0f:00.0", "0000:07:00.0", "0000:1a:00.0"]);
    std::fs::write(lab.dir.path().join("smi.xml"), HEALTHY).expect("written");
    let lost = "Unable to determine the device handle for GPU 0000:1A:00.0: GPU is lost.  Reboot the system to recover this GPU";
    lab.program("nvidia-smi", &format!("cat $LAB/smi.xml; echo '{lost}'; exit 15"));
    let (reason, message, _) = failure(diagnose(&lab));
    assert_eq!(reason, Reason::CHECKS_FAILED);
    assert!(message.contains("0000:1a:00.0: GPU is lost"), "{message}");
}

#[test]
fn the_kernels_log_is_read_with_the_journal_for_what_it_forgot() {
    let lab = lab();
    lab.smi(HEALTHY, "exit 1");
    lab.file("dev/kmsg", "3,90,7000000,-;NVRM: Xid (PCI:0000:0F:00): 79, pid=1, GPU has fallen off the bus.\n");
    let (_, message, _) = failure(diagnose(&lab));
    assert!(message.contains("XID 79") && message.contains("1 times"), "{message}");
    let line = json!({
        "_TRANSPORT": "kernel",
        "_SOURCE_MONOTONIC_TIMESTAMP": "1000",
        "MESSAGE": "NVRM: Xid (PCI:0000:07:00): 48, pid=1, DBE",
    });
    lab.program("journalctl", &format!("echo '{line}'"));
    let (_, message, _) = failure(diagnose(&lab));
    assert!(message.contains("XID 79") && message.contains("XID 48"), "{message}");
}

#[test]
fn scheduled_faults_of_a_described_machine_are_found() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let found = |faults: &str| run(&described(dir.path(), faults), CommandKind::DiagNvml, json!({"expectedGpus": 8}));
    success(CommandKind::DiagNvml, found(""));
    for (fault, check) in [
        ("kind = \"row-remap-pending\"\ngpu = 3", "row-remap.pending"),
        ("kind = \"row-remap-failure\"\ngpu = 3", "row-remap.failure"),
        ("kind = \"ecc-uncorrectable\"\ngpu = 3", "ecc.uncorrectable"),
        ("kind = \"link-narrow\"\ngpu = 3", "pcie.link"),
        ("kind = \"lost\"\ngpu = 3", "gpus.visible"),
        ("kind = \"missing\"\ngpu = 3", "gpus.count"),
        ("kind = \"xid\"\ngpu = 3\nxid = 48", "xid.recent"),
    ] {
        let (reason, message, _) = failure(found(&format!("[[faults]]\n{fault}\n")));
        assert!(reason == Reason::CHECKS_FAILED && message.contains(check), "{fault}: {message}");
    }
    assert_eq!(failure(found("[[faults]]\nkind = \"hang\"\n")).0, Reason::CHECKS_UNKNOWN);
    // Not yet, and no more.
    success(CommandKind::DiagNvml, found("[[faults]]\nkind = \"lost\"\nafter = \"1h\"\n"));
    success(CommandKind::DiagNvml, found("[[faults]]\nkind = \"lost\"\nfor = \"0s\"\n"));
}
