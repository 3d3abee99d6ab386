//! Facts about the table of kinds and what each kind takes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::{CommandKind, KINDS, Lane, PayloadError};

fn refused(kind: CommandKind, payload: Value) -> PayloadError {
    kind.check_payload(&payload).expect_err(&format!("{kind} takes {payload}"))
}

#[test]
fn the_table_has_every_kind_once_and_in_order() {
    for (row, kind) in KINDS.iter().zip(CommandKind::ALL) {
        assert_eq!(row.kind, *kind);
        assert_eq!(kind.row().kind, *kind);
        assert_eq!(kind.as_str().parse(), Ok(*kind));
    }
}

#[test]
fn the_flags_are_those_of_the_design() {
    let words = |flag: fn(&super::super::KindRow) -> bool| -> Vec<&str> {
        KINDS.iter().filter(|row| flag(row)).map(|row| row.kind.as_str()).collect()
    };
    assert_eq!(words(|row| row.destructive), ["node.reboot", "gpu.reset"]);
    assert_eq!(words(|row| !row.retry_safe), ["node.reboot", "gpu.reset"]);
    assert_eq!(words(|row| row.self_terminating), ["node.reboot", "daemon.upgrade"]);
    assert_eq!(words(|row| row.attested), ["diag.nvml", "diag.dcgm", "gpu.reset"]);
    assert_eq!(words(|row| row.by_run), ["inventory.refresh", "diag.nvml", "logs.collect", "node.reboot"]);
    assert_eq!(words(|row| row.lane == Lane::Control), ["inventory.refresh", "node.reboot"]);
    assert_eq!(words(|row| row.lane == Lane::Bulk), ["logs.collect"]);
    assert_eq!(Lane::ALL.iter().map(|lane| lane.credits()).collect::<Vec<_>>(), [8, 4, 2]);
}

#[test]
fn a_destructive_kind_is_never_retried_by_itself() {
    assert!(KINDS.iter().all(|row| !(row.destructive && row.retry_safe)));
}

#[test]
fn every_kind_has_words_a_time_and_a_machine_to_run_on() {
    for row in &KINDS {
        assert!(row.summary.ends_with('.') && row.timeout.as_secs() >= 60 && !row.roles.is_empty(), "{}", row.kind);
        assert_eq!(row.roles.iter().collect::<BTreeSet<_>>().len(), row.roles.len(), "{}", row.kind);
        let schema = serde_json::to_value(row.payload.schema()).expect("a schema");
        assert_eq!(schema["additionalProperties"], json!(false), "{}", row.kind);
        assert!(jsonschema::validator_for(&schema).is_ok(), "{}", row.kind);
        let schema = serde_json::to_value(row.result.schema()).expect("a schema");
        assert!(jsonschema::validator_for(&schema).is_ok(), "{}", row.kind);
    }
}

#[test]
fn defaults_are_filled_in_and_nothing_said_is_an_empty_payload() {
    let filled = |kind: CommandKind, payload| kind.check_payload(&payload).expect("good");
    let empty = json!({"rescan": false, "sections": []});
    assert_eq!(filled(CommandKind::InventoryRefresh, Value::Null), empty);
    assert_eq!(filled(CommandKind::InventoryRefresh, json!({})), empty);
    assert_eq!(filled(CommandKind::DiagNvml, json!({})), json!({}));
    assert_eq!(filled(CommandKind::DiagDcgm, json!({})), json!({"gpus": [], "level": 1}));
    assert_eq!(filled(CommandKind::LogsCollect, json!({})), json!({"maxBytes": 268_435_456, "units": []}));
    assert_eq!(filled(CommandKind::NodeReboot, json!({"reason": "  "})), json!({}));
}

#[test]
fn what_was_checked_once_is_good_as_it_is() {
    let payloads = [
        (CommandKind::InventoryRefresh, json!({"rescan": true, "sections": ["gpus", "dmi"]})),
        (CommandKind::LogsCollect, json!({"units": ["kubelet.service"], "since": "90m"})),
        (
            CommandKind::LogsCollect,
            json!({"since": "2026-03-01T12:00:00+01:00", "upload": {"url": "https://s3.example.org/x?y=z"}}),
        ),
        (CommandKind::GpuReset, json!({"gpus": ["GPU-3f1e", "0000:18:00.0"]})),
        (CommandKind::DaemonUpgrade, json!({"version": "1.4.0", "manifest": "…"})),
    ];
    for (kind, payload) in payloads {
        let checked = kind.check_payload(&payload).expect("good");
        assert_eq!(kind.check_payload(&checked), Ok(checked.clone()));
        let validator =
            jsonschema::validator_for(&serde_json::to_value(kind.row().payload.schema()).expect("a schema"));
        assert!(validator.expect("a schema").is_valid(&checked), "{kind} {checked}");
    }
}

#[test]
fn an_error_names_the_place_and_what_belongs_there() {
    let error = refused(CommandKind::LogsCollect, json!({"units": ["ok.service", "--vacuum-size=1"]}));
    assert_eq!(error.to_string(), "units[1]: the name of a systemd unit, such as kubelet.service");
    let error = refused(CommandKind::InventoryRefresh, json!({"sections": ["gpu"]}));
    assert!(error.path == "sections[0]" && error.expected.contains("`gpus`"), "{error}");
    let error = refused(CommandKind::DiagNvml, json!({"expected": 8}));
    assert!(error.expected.contains("expectedGpus"), "{error}");
    assert_eq!(refused(CommandKind::GpuReset, json!({"gpus": []})).path, "gpus");
}

#[test]
fn nothing_that_could_pass_for_an_option_or_another_place_is_taken() {
    for unit in ["", "-n", "a b", "a/b", "*.service", "a\nb", "é.service"] {
        refused(CommandKind::LogsCollect, json!({"units": [unit]}));
    }
    for gpu in ["", "0", "GPU-", "GPU-x y", "all", "-i", "0000:18:00", "0000:18.00:0", "GPU-é"] {
        refused(CommandKind::GpuReset, json!({"gpus": [gpu]}));
    }
    for url in [
        "http://example.org/x",
        "https://",
        "https://user@example.org/",
        "https://example.org/a b",
        "file:///etc/shadow",
        "http://localhost.example.org/",
        "http://localhost@example.org/",
        "http://127.0.0.1.example.org/x",
        "http://127.0.0.1:8080/x",
        "http://[::1]/x",
    ] {
        refused(CommandKind::LogsCollect, json!({"upload": {"url": url}}));
    }
    refused(CommandKind::GpuReset, json!({"gpus": ["GPU-1", "GPU-1"]}));
    for object in ["", "s3://", "s3://b/", "s3:///x", "https://b/x", "s3://b/x y", "s3://b/$(x)", "s3://b/x\n"] {
        let upload = json!({"url": "https://example.org/x", "object": object});
        refused(CommandKind::LogsCollect, json!({ "upload": upload }));
    }
    refused(CommandKind::LogsCollect, json!({"maxBytes": 1}));
    refused(CommandKind::LogsCollect, json!({"since": "yesterday"}));
    refused(CommandKind::DiagDcgm, json!({"level": 5}));
    refused(CommandKind::NodeReboot, json!({"reason": "two\nlines"}));
    refused(CommandKind::DaemonUpgrade, json!({"version": "../x", "manifest": "m"}));
    refused(CommandKind::DiagNvml, json!({"expectedGpus": 8.5}));
    refused(CommandKind::DiagNvml, json!([]));
}

#[test]
fn where_logs_go_the_control_plane_says_and_nobody_sees() {
    let payload = json!({"units": ["kubelet.service"], "upload": {"url": "https://s3.example.org/x?signature=key"}});
    let kind = CommandKind::LogsCollect;
    assert_eq!(kind.check_callers(&payload).expect_err("not the caller's").path, "upload");
    let shown = kind.shown(&payload);
    assert_eq!(shown, json!({"units": ["kubelet.service"]}));
    assert_eq!(kind.check_callers(&shown), Ok(()));
    assert_eq!(kind.check_callers(&json!({"upload": null})), Ok(()));
    // Whatever a kind's payload holds that is minted is one of its members.
    for row in &KINDS {
        let schema = serde_json::to_value(row.payload.schema()).expect("a schema");
        assert!(row.minted.iter().all(|member| schema["properties"].get(*member).is_some()), "{}", row.kind);
    }
}
