//! Facts about resets.

use std::time::Duration;

use schema::command::CommandKind;
use serde_json::{Value, json};

use super::*;
use crate::{
    command::Run as _,
    kind::{
        diagnose::PASSED_THROUGH,
        testing::{Lab, body, described, failure, run, success},
    },
};

const HEALTHY: &str = include_str!("../../hardware/testdata/smi-a100-pair.xml");
const A: &str = "GPU-4ba7527e-9e11-9723-0d5a-d2b23c573886";
const B: &str = "GPU-5884ac10-4f56-6d99-5565-1674f97e0f68";
const KIND: CommandKind = CommandKind::GpuReset;

/// Resets write their arguments down, one a line.
const NOTE: &str = "echo \"$*\" >> $LAB/resets";

fn lab(others: &str) -> Lab {
    let lab = Lab::with_gpus(&["0000:07:00.0", "0000:0f:00.0"]);
    lab.smi(HEALTHY, others);
    lab
}

fn reset(lab: &Lab, gpus: Value) -> Outcome {
    lab.run(KIND, json!({ "gpus": gpus }))
}

#[test]
fn idle_gpus_are_reset_one_after_the_other_and_looked_at_again() {
    let lab = lab(NOTE);
    let payload = json!({"gpus": [A, "0000:0f:00.0"]});
    let (context, handle) = Context::for_test(body(KIND, payload));
    let result = success(KIND, lab.machine().run(&context));
    assert_eq!(lab.said("resets"), format!("--gpu-reset -i {A}\n--gpu-reset -i {B}\n"));
    assert_eq!(handle.effects(), [format!("gpu.reset {A}"), "gpu.reset 0000:0f:00.0".to_owned()]);
    assert_eq!(result["gpus"][0], json!({"gpu": A, "reset": true, "healthy": true}));
    let remembered = resets::of_boot(&lab.machine());
    assert_eq!(remembered.keys().collect::<Vec<_>>(), ["0000:07:00.0", "0000:0f:00.0"]);
}

#[test]
fn one_gpu_in_use_keeps_all_of_them_from_being_reset() {
    let by_process = HEALTHY.replacen(
        "<processes>",
        "<processes><process_info><pid>77</pid><process_name>python3</process_name></process_info>",
        1,
    );
    for (name, prepare) in [
        ("python3 (process 77)", Box::new(|lab: &Lab| lab.smi(&by_process, NOTE)) as Box<dyn Fn(&Lab)>),
        ("trainer (process 4711)", Box::new(|lab| lab.holder(4711, "trainer", "/dev/nvidia1"))),
        ("passed through", Box::new(|lab| lab.driver("0000:0f:00.0", PASSED_THROUGH))),
    ] {
        let lab = lab(NOTE);
        prepare(&lab);
        let (reason, message, result) = failure(reset(&lab, json!([A, B])));
        assert_eq!((reason, result), (Reason::GPU_BUSY, None), "{message}");
        assert!(message.contains(name), "{message}");
        assert_eq!(lab.said("resets"), "");
    }
}

#[test]
fn who_only_keeps_the_driver_loaded_or_holds_another_gpu_is_no_user() {
    let lab = lab(NOTE);
    lab.holder(900, "nvidia-persiste", "/dev/nvidia0");
    lab.holder(901, "trainer", "/dev/nvidia1");
    lab.holder(902, "monitor", "/dev/nvidiactl");
    success(KIND, reset(&lab, json!([A])));
}

#[test]
fn what_cannot_be_told_is_not_taken_for_idle() {
    let lab = lab(NOTE);
    // Its device node is not known: nobody can look for who holds it.
    lab.smi(&HEALTHY.replace("<minor_number>0<", "<minor_number>N/A<"), NOTE);
    assert_eq!(failure(reset(&lab, json!([A]))).0, Reason::GPU_USE_UNKNOWN);
    lab.program("nvidia-smi", "exit 9");
    assert_eq!(failure(reset(&lab, json!([A]))).0, Reason::GPU_USE_UNKNOWN);
    assert_eq!(lab.said("resets"), "");
}

#[test]
fn a_gpu_that_is_not_there_is_said_before_anything_is_reset() {
    let lab = lab(NOTE);
    let (reason, message, _) = failure(reset(&lab, json!([A, "GPU-0"])));
    assert_eq!(reason, Reason::GPU_UNKNOWN);
    assert!(message.contains("GPU-0") && !message.contains(A), "{message}");
    assert_eq!(lab.said("resets"), "");
}

#[test]
fn a_reset_that_does_not_work_is_told_with_those_that_did() {
    let script = format!(
        "case \"$3\" in {A}) exit 0;; *) echo 'GPU Reset could not run: In use by another client'; exit 255;; esac"
    );
    let (reason, message, result) = failure(reset(&lab(&script), json!([A, B])));
    assert_eq!(reason, Reason::RESET_FAILED);
    assert!(message.contains("In use by another client") && !message.contains(A), "{message}");
    let gpus = &result.expect("a result")["gpus"];
    assert_eq!((&gpus[0]["reset"], &gpus[1]["reset"]), (&json!(true), &json!(false)));
}

#[test]
fn a_reset_that_hangs_is_killed() {
    let mut lab = lab("sleep 600 & wait");
    lab.resets_within(Duration::from_millis(300));
    let (reason, message, _) = failure(reset(&lab, json!([A])));
    assert_eq!(reason, Reason::RESET_FAILED);
    assert!(message.contains("gave no answer"), "{message}");
}

#[test]
fn a_gpu_that_is_ill_after_its_reset_is_not_called_healthy() {
    let lab = lab(NOTE);
    let ill = HEALTHY.replace("<remapped_row_pending>No<", "<remapped_row_pending>Yes<");
    lab.smi(&ill, NOTE);
    let (reason, _, result) = failure(reset(&lab, json!([A])));
    assert_eq!(reason, Reason::RESET_FAILED);
    assert_eq!(result.expect("a result")["gpus"][0]["healthy"], json!(false));
}

#[test]
fn a_cancel_between_two_resets_tells_of_the_first() {
    let lab = lab(&format!("{NOTE}; echo > $LAB/first; cat $LAB/go"));
    let (first, go) = (lab.pipe("first"), lab.pipe("go"));
    let (context, handle) = Context::for_test(body(KIND, json!({"gpus": [A, B]})));
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| lab.machine().run(&context));
        std::fs::read(first).expect("read");
        handle.cancel();
        std::fs::write(go, "").expect("written");
        running.join().expect("ran")
    });
    let Outcome::Cancelled { message, result } = outcome else { panic!("{outcome:?}") };
    assert!(message.contains(A) && !message.contains(B), "{message}");
    assert_eq!(result.expect("a result")["gpus"].as_array().map(Vec::len), Some(1));
    assert_eq!(lab.said("resets").lines().count(), 1);
}

#[test]
fn a_gpu_that_is_taken_while_another_one_is_reset_is_left_alone() {
    // The reset of the first is the moment in which somebody opens the second.
    let come = "mkdir -p $LAB/root/proc/4711/fd; echo trainer > $LAB/root/proc/4711/comm; \
                ln -sf /dev/nvidia1 $LAB/root/proc/4711/fd/3";
    let lab = lab(&format!("{NOTE}; {come}"));
    let (context, handle) = Context::for_test(body(KIND, json!({"gpus": [A, B]})));
    let (reason, message, result) = failure(lab.machine().run(&context));
    assert_eq!(reason, Reason::GPU_BUSY);
    assert!(message.contains("trainer (process 4711)") && message.contains(A), "{message}");
    assert_eq!(result.expect("a result")["gpus"], json!([{"gpu": A, "reset": true, "healthy": true}]));
    assert_eq!(lab.said("resets"), format!("--gpu-reset -i {A}\n"));
    assert_eq!(handle.effects(), [format!("gpu.reset {A}")]);
}

#[test]
fn described_gpus_reset_as_their_faults_say() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let gpu = "0000:18:00.0";
    let machine = described(dir.path(), "[[faults]]\nkind = \"row-remap-pending\"\ngpu = 0\n");
    assert_eq!(failure(run(&machine, CommandKind::DiagNvml, Value::Null)).0, Reason::CHECKS_FAILED);
    success(KIND, run(&machine, KIND, json!({"gpus": [gpu]})));
    success(CommandKind::DiagNvml, run(&machine, CommandKind::DiagNvml, Value::Null));
    let busy = described(dir.path(), "[[faults]]\nkind = \"busy\"\ngpu = 0\n");
    assert_eq!(failure(run(&busy, KIND, json!({"gpus": [gpu]}))).0, Reason::GPU_BUSY);
    let stuck = described(dir.path(), "[[faults]]\nkind = \"reset-fails\"\ngpu = 0\n");
    assert_eq!(failure(run(&stuck, KIND, json!({"gpus": [gpu]}))).0, Reason::RESET_FAILED);
}
