//! Facts about diagnostics by DCGM.

use schema::command::{CommandKind, Reason};
use serde_json::{Value, json};

use super::*;
use crate::{
    command::Run as _,
    kind::testing::{Lab, body, failure, success},
};

const KIND: CommandKind = CommandKind::DiagDcgm;
const A: &str = "GPU-4ba7527e-9e11-9723-0d5a-d2b23c573886";
const B: &str = "GPU-5884ac10-4f56-6d99-5565-1674f97e0f68";
const PASSED: &str = r#"{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software",
    "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}, {"entity_group": "GPU", "entity_id": 1, "status": "Pass"}],
    "test_summary": {"status": "Pass"}}]}]}, "metadata": {"version": "4.2.3"}}"#;

/// A machine with two idle GPUs and a DCGM that counts them, writes down what it is asked, and goes on with a script.
fn lab(diag: &str) -> Lab {
    let lab = Lab::with_gpus(&["0000:07:00.0", "0000:0f:00.0"]);
    lab.smi(include_str!("../../hardware/testdata/smi-a100-pair.xml"), "");
    dcgm(&lab, diag);
    lab
}

fn dcgm(lab: &Lab, diag: &str) {
    let table = include_str!("testdata/discovery.txt");
    std::fs::write(lab.dir.path().join("table"), table).expect("written");
    let script =
        format!("if [ \"$1\" = discovery ]; then cat $LAB/table; exit 0; fi\necho \"$*\" >> $LAB/asked\n{diag}");
    lab.program("dcgmi", &script);
}

fn report(lab: &Lab, text: &str, exit: u8) {
    std::fs::write(lab.dir.path().join("report"), text).expect("written");
    dcgm(lab, &format!("cat $LAB/report; exit {exit}"));
}

#[test]
fn each_level_runs_as_itself_on_the_gpus_that_are_named() {
    let lab = lab("");
    report(&lab, PASSED, 0);
    for (payload, asked) in [
        (Value::Null, "diag -j -r 1"),
        (json!({"level": 2}), "diag -j -r 2"),
        (json!({"level": 3, "gpus": [B, "0000:07:00.0"]}), "diag -j -r 3 -i 1,0"),
        (json!({"level": 4, "gpus": [A]}), "diag -j -r 4 -i 0"),
    ] {
        let result = success(KIND, lab.run(KIND, payload));
        assert_eq!((&result["passed"], &result["source"]), (&json!(true), &json!("dcgmi")));
        assert_eq!(lab.said("asked").lines().last(), Some(asked));
    }
}

#[test]
fn only_the_levels_that_load_the_gpus_are_written_down_and_need_them_idle() {
    let lab = lab("");
    report(&lab, PASSED, 0);
    lab.holder(4711, "trainer", "/dev/nvidia1");
    success(KIND, lab.run(KIND, Value::Null));
    let (reason, message, _) = failure(lab.run(KIND, json!({"level": 2})));
    assert_eq!(reason, Reason::GPU_BUSY);
    assert!(message.contains("trainer (process 4711)"), "{message}");
    let (context, handle) = Context::for_test(body(KIND, json!({"level": 2, "gpus": [A]})));
    success(KIND, lab.machine().run(&context));
    assert_eq!(handle.effects(), ["dcgm.load level 2"]);
    assert_eq!(lab.said("asked"), "diag -j -r 1\ndiag -j -r 2 -i 0\n");
}

#[test]
fn the_engine_that_runs_the_tests_is_no_user_of_the_gpus() {
    let lab = lab("");
    report(&lab, PASSED, 0);
    lab.holder(1200, "nv-hostengine", "/dev/nvidia0");
    success(KIND, lab.run(KIND, json!({"level": 3})));
}

#[test]
fn a_report_counts_however_the_program_ends() {
    let lab = lab("");
    report(&lab, include_str!("testdata/diag-v4-level2.json"), 226);
    let (reason, message, result) = failure(lab.run(KIND, json!({"level": 2})));
    assert_eq!(reason, Reason::CHECKS_FAILED);
    assert!(message.starts_with(&format!("dcgm.memory of {B}: GPU 1 had uncorrectable")), "{message}");
    assert_eq!(result.expect("a result")["driver"], json!("570.86.15"));
    report(&lab, include_str!("testdata/diag-v3-level1.json"), 0);
    assert_eq!(failure(lab.run(KIND, Value::Null)).0, Reason::CHECKS_FAILED);
}

#[test]
fn a_dcgm_that_is_not_there_or_does_not_answer_is_told_apart() {
    let mut lab = lab("");
    assert_eq!(failure(Lab::new().run(KIND, Value::Null)).0, Reason::PROGRAM_MISSING);
    lab.program("dcgmi", "echo 'Error: unable to establish a connection to the specified host: localhost'; exit 255");
    let (reason, message, _) = failure(lab.run(KIND, Value::Null));
    assert_eq!(reason, Reason::CHECKS_FAILED);
    assert!(message.contains("unable to establish"), "{message}");
    dcgm(&lab, "echo 'Error: Diagnostic could not be run because of an internal error.' >&2; exit 1");
    let (reason, message, _) = failure(lab.run(KIND, Value::Null));
    assert_eq!(reason, Reason::CHECKS_UNKNOWN);
    assert!(message.contains("gave no report of level 1") && message.contains("internal error"), "{message}");
    let (reason, message, _) = failure(lab.run(KIND, json!({"gpus": ["GPU-other"]})));
    assert_eq!(reason, Reason::GPU_UNKNOWN, "{message}");
    lab.patience(Duration::from_millis(100));
    lab.program("dcgmi", "sleep 600");
    assert_eq!(failure(lab.run(KIND, Value::Null)).0, Reason::CHECKS_UNKNOWN);
}

#[test]
fn a_cancel_ends_a_diagnostic_that_says_nothing() {
    let lab = lab("echo > $LAB/begun; sleep 600");
    let begun = lab.pipe("begun");
    let (context, handle) = Context::for_test(body(KIND, json!({"level": 3})));
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| lab.machine().run(&context));
        std::fs::read(begun).expect("read");
        handle.cancel();
        running.join().expect("ran")
    });
    assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
}

#[test]
fn every_level_ends_before_its_command_does() {
    let timeout = KIND.row().timeout.to_std();
    assert!((1..=4).all(|level| patience(level) < timeout) && patience(1) < patience(2) && patience(3) < patience(4));
}
