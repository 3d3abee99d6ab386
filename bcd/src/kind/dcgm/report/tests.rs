//! Facts about reports.

use super::*;
use crate::kind::dcgm::discovery;

const V3: &str = include_str!("../testdata/diag-v3-level1.json");
const V4_2: &str = include_str!("../testdata/diag-v4-level2.json");
const V4_3: &str = include_str!("../testdata/diag-v4-level3.json");
const B: &str = "GPU-5884ac10-4f56-6d99-5565-1674f97e0f68";

fn found() -> Vec<Found> {
    discovery::read(include_str!("../testdata/discovery.txt"))
}

fn diagnosis(text: &str) -> Diagnosis {
    read(text, &found(), None).expect("a report")
}

/// Each check that did not pass, on a line.
fn wrong(diagnosis: &Diagnosis) -> Vec<String> {
    let wrong = diagnosis.checks.iter().filter(|check| check.status != CheckStatus::Pass);
    let line = |check: &Check| {
        let gpu = check.gpu.as_deref().map_or("-", |gpu| gpu.get(..8).unwrap_or(gpu));
        format!("{} {gpu} {}: {}", check.name, check.status, check.why.as_deref().unwrap_or_default())
    };
    wrong.map(line).collect()
}

#[test]
fn an_older_report_has_one_result_for_several_gpus() {
    let diagnosis = diagnosis(V3);
    assert_eq!((diagnosis.passed, diagnosis.driver.as_deref()), (false, Some("535.104.05")));
    assert_eq!(
        wrong(&diagnosis),
        [
            "dcgm.persistence-mode GPU-4ba7 fail: a warning: Persistence mode is disabled on GPU 1",
            "dcgm.persistence-mode GPU-5884 fail: a warning: Persistence mode is disabled on GPU 1",
            "dcgm.inforom GPU-4ba7 not-supported: DCGM skipped it",
            "dcgm.inforom GPU-5884 not-supported: DCGM skipped it",
        ]
    );
    assert!(diagnosis.checks.iter().any(|check| check.name == "dcgm.page-retirement-row-remap"));
}

#[test]
fn a_failing_test_says_which_gpu_which_test_and_what_to_do() {
    let diagnosis = diagnosis(V4_2);
    assert_eq!((diagnosis.passed, diagnosis.driver.as_deref()), (false, Some("570.86.15")));
    let bad = diagnosis.checks.iter().find(|check| check.status == CheckStatus::Fail).expect("one failed");
    assert_eq!((bad.name.as_str(), bad.gpu.as_deref()), ("dcgm.memory", Some(B)));
    let why = bad.why.as_deref().expect("a reason");
    assert!(why.contains("row remappings are pending") && why.contains("→ reset the GPU"), "{why}");
    assert_eq!(wrong(&diagnosis).len(), 1, "the summary says it no second time");
}

#[test]
fn what_did_not_run_is_unknown_and_what_was_skipped_is_not_supported() {
    let diagnosis = diagnosis(V4_3);
    let lines = wrong(&diagnosis);
    assert!(lines[0].ends_with("→ take the GPU out of use: its hardware is at fault"), "{lines:?}");
    assert_eq!(
        &lines[1..],
        [
            "dcgm.nvbandwidth GPU-4ba7 not-supported: DCGM skipped it",
            "dcgm.nvbandwidth GPU-5884 not-supported: DCGM skipped it",
            "dcgm.targeted-stress GPU-5884 unknown: DCGM says \"Not Run\": no more",
        ]
    );
    let other = diagnosis.checks.iter().find(|check| check.name == "dcgm.cpu-eud").expect("it is there");
    assert_eq!(other.gpu, None, "a processor is no GPU");
}

#[test]
fn a_run_that_broke_off_or_tested_nothing_is_no_success() {
    let error = diagnosis(r#"{"DCGM Diagnostic": {"runtime_error": "Unable to complete: the engine ended"}}"#);
    assert_eq!(wrong(&error), ["dcgm.run - unknown: Unable to complete: the engine ended"]);
    let skipped = r#"{"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": [{"name": "memory",
        "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Skip"}]}]}]}}"#;
    let skipped = diagnosis(skipped);
    assert!(!skipped.passed && skipped.any(CheckStatus::Unknown), "{skipped:?}");
    let summary = r#"{"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": [{"name": "memory",
        "results": [], "test_summary": {"status": "Fail", "warnings": [{"warning": "no engine", "error_severity": 5}]}}]}]}}"#;
    assert_eq!(
        wrong(&diagnosis(summary)),
        ["dcgm.memory - fail: no engine → mend the installation: the hardware is not at fault"]
    );
}

#[test]
fn a_text_that_is_no_report_is_none() {
    for text in ["", "Error: no GPUs", "{", "{}", r#"{"DCGM Diagnostic": {}}"#, r#"{"DCGM Diagnostic": 7}"#, "[1]"] {
        assert!(read(text, &found(), None).is_none(), "{text}");
    }
    // Whatever stands where, nothing panics.
    let odd = r#"{"DCGM Diagnostic": {"test_categories": [7, {"tests": [{"name": "a", "results": [{"status": "pass", "gpu_ids": {}}]}]}]}}"#;
    assert_eq!(diagnosis(odd).checks.iter().filter(|check| check.gpu.is_none()).count(), 1);
}

#[test]
fn a_gpu_that_was_asked_for_and_that_no_result_names_is_unknown() {
    let report = r#"{"DCGM Diagnostic": {"test_categories": [{"category": "x", "tests": [{"name": "memory",
        "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}]}]}}"#;
    let one = found()[1].number;
    let asked = |numbers: Option<&[u32]>| read(report, &found(), numbers).expect("a report");
    let both = asked(None);
    assert!(!both.passed);
    assert_eq!(wrong(&both), ["dcgm.run GPU-5884 unknown: no result of the report names it"]);
    assert!(asked(Some(&[0])).passed, "nobody asked for the other one");
    assert!(!asked(Some(&[one])).passed);
}
