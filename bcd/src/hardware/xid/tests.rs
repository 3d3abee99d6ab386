//! Facts about XIDs in logs.

use std::{fs, path::Path};

use super::*;

fn parse(message: &str) -> Option<(String, u32)> {
    Xid::parse(0, message).map(|event| (event.pci, event.code))
}

#[test]
fn the_drivers_own_lines_are_read() {
    for (line, pci, code) in [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", "0000:3b:00", 79),
        ("NVRM: Xid (PCI:0000:9B:00): 31, pid=1, name=a", "0000:9b:00", 31),
        ("NVRM: Xid (0000:03:00): 13, 0001 00000000", "0000:03:00", 13),
        ("NVRM: Xid (PCI:0000:3b:00): 63\\x0arow", "0000:3b:00", 63),
        ("NVRM: Xid (PCI:0000000F:01:00.0): 48", "000f:01:00", 48),
    ] {
        assert_eq!(parse(line), Some((pci.to_owned(), code)), "{line}");
    }
}

#[test]
fn what_only_looks_alike_is_none() {
    for line in [
        "python3[1234]: log: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid : 32, pid=2280636",
        "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636",
        "NVRM: Xid (PCI:0000:66:00): 79th",
        "NVRM: Xid (invalid): some error",
        "NVRM: GPU at PCI:0000:66:00: GPU-12345678",
        "nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 11004, Fatal",
        "",
    ] {
        assert_eq!(parse(line), None, "{line}");
    }
}

#[test]
fn records_of_the_kernel_count_and_those_that_others_wrote_do_not() {
    let log = "3,4471,3023054882,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234\n\
               12,4472,3023054883,-;NVRM: Xid (PCI:0000:3b:00): 48, written by a program\n \
               DEVICE=+pci:0000:3b:00.0\n\
               3,4473,3023054990,-,caller=T1234;NVRM: Xid (PCI:0000:3b:00): 45, pid=1234\n\
               garbage\n";
    let events: Vec<(u64, u32)> = of_kmsg(log).into_iter().map(|event| (event.at, event.code)).collect();
    assert_eq!(events, [(3_023_054_882, 79), (3_023_054_990, 45)]);
    let journal = "{\"_TRANSPORT\":\"kernel\",\"__MONOTONIC_TIMESTAMP\":\"7\",\"MESSAGE\":\"NVRM: Xid (PCI:0000:3b:00): 79\"}\n\
                   {\"_TRANSPORT\":\"syslog\",\"__MONOTONIC_TIMESTAMP\":\"8\",\"MESSAGE\":\"NVRM: Xid (PCI:0000:3b:00): 48\"}\nx\n";
    assert_eq!(of_journal(journal).into_iter().map(|event| event.code).collect::<Vec<_>>(), [79]);
}

#[test]
fn a_recovery_that_is_no_longer_due_takes_its_condition_back() {
    let event = |at, code, text: &str| Xid { at, pci: "0000:01:00".into(), code, text: text.into() };
    let due = event(1, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)");
    let done = event(2, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)");
    assert_eq!(conditions([&due].into_iter()), [&due]);
    assert!(conditions([&due, &done].into_iter()).is_empty());
    let fatal = event(3, 145, "RLW_SRC_TRACK Fatal XC0 i0 Link 05 (0x1)");
    let not = event(4, 145, "RLW_REMAP Nonfatal XC0 i0 Link 01 (0x1)");
    assert_eq!(conditions([&fatal, &not].into_iter()), [&fatal]);
}

#[test]
fn a_log_that_is_not_there_is_unknown_and_an_empty_one_is_not() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("kmsg");
    assert_eq!(kernel_log(&path), None);
    fs::write(&path, "").expect("written");
    assert_eq!(kernel_log(&path).as_deref(), Some(""));
}

/// Collected logs with what each line should be read as; beside the repository where they are at all.
#[test]
fn collected_logs_are_read_as_their_notes_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/xid");
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("skipped: the collected logs are not beside the repository");
        return;
    };
    let mut lines = 0;
    for log in entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "log")) {
        let text = fs::read_to_string(&log).expect("a log");
        let notes = fs::read_to_string(log.with_extension("expect.jsonl")).expect("its notes");
        let all: Vec<&str> = text.lines().collect();
        for note in notes.lines() {
            let note: serde_json::Value = serde_json::from_str(note).expect("a note");
            let number = usize::try_from(note["line"].as_u64().expect("a line")).expect("small");
            let Some(line) = all.get(number - 1) else { continue };
            // Whoever reads a log of another form takes the kernel's message out of it first.
            let read = message(line).and_then(|message| Xid::parse(0, message));
            let code = note["xid"].as_u64().map(|code| u32::try_from(code).expect("small"));
            assert_eq!(read.as_ref().map(|event| event.code), code, "{}: {line}", log.display());
            if let (Some(event), Some(pci)) = (&read, note["pci"].as_str()) {
                assert_eq!(event.pci, pci.to_ascii_lowercase(), "{line}");
            }
            lines += 1;
        }
    }
    assert!(lines > 50, "{lines} lines");
}

/// The kernel's message in a line of dmesg, syslog or kmsg.
fn message(line: &str) -> Option<&str> {
    let at = line.find("NVRM:")?;
    let before = &line[..at];
    // Between the time and the message stands nothing, or the kernel's own name.
    let kernel = before.is_empty()
        || before.ends_with("] ") && !before.contains("]: ")
        || before.ends_with("kernel: ")
        || before.ends_with(';')
        || before.starts_with("kern");
    kernel.then(|| &line[at..])
}
