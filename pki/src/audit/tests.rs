//! Facts about exports and proofs: what is there is proven, and nothing else passes.

use serde_json::json;

use super::*;
use crate::{
    keys::{Keys, RotationKind},
    testing::{after, keys, now},
};

const FLEET: &str = "fleet-one";

fn row(pos: u64) -> Row {
    Row {
        pos,
        id: format!("audit_{pos}"),
        at: after(i64::try_from(pos).expect("small")),
        actor: "ada".to_owned(),
        action: "nodes.cordon".to_owned(),
        subject: format!("node_{pos}"),
        detail: json!({ "reason": "fan", "ratio": 0.5, "none": null }),
    }
}

/// A log and its checkpoints.
struct Log {
    rows: Vec<String>,
    link: Option<Digest>,
    checkpoints: Vec<(Checkpoint, Vec<u8>)>,
}

impl Log {
    const fn new() -> Self {
        Self { rows: Vec::new(), link: None, checkpoints: Vec::new() }
    }

    fn write(&mut self, count: usize) {
        for _ in 0..count {
            let text = row(self.rows.len() as u64).text();
            self.link = Some(link(self.link, &text));
            self.rows.push(text);
        }
    }

    fn sign(&mut self, signer: &AuditSigner) {
        let before = self.checkpoints.last().map(|(checkpoint, _)| checkpoint.clone());
        let from = before.as_ref().map_or(0, |before| usize::try_from(before.rows).expect("small"));
        let rows: Vec<&str> = self.rows[from..].iter().map(String::as_str).collect();
        let (checkpoint, signature) = next(signer, before.as_ref(), self.link.expect("rows"), &rows, now());
        self.checkpoints.push((checkpoint, signature));
    }

    fn export(&self, keys: &Keys) -> String {
        let signer = keys.audit_signer(FLEET);
        let anchor = keys.anchor(FLEET);
        let worker = keys.command_root().certify(&anchor.realm(), now());
        let (last, _) = self.checkpoints.last().expect("signed");
        let mut file = Export::head(&anchor.to_bytes(), &Vouch::make(&worker, last.key).text());
        let mut from = 0;
        for (checkpoint, signature) in &self.checkpoints {
            let until = usize::try_from(checkpoint.rows).expect("small");
            self.rows[from..until].iter().for_each(|row| file.push_str(&Export::row(row)));
            file.push_str(&Export::checkpoint(&checkpoint.text(), signature));
            from = until;
        }
        let end = ExportEnd {
            rows: last.rows,
            checkpoint: last.digest(),
            anchor: anchor.pin(),
            exported_at: now(),
            outside: None,
        };
        file.push_str(&Export::end(&end.text(), &end.sign(&signer, last.key).expect("held")));
        file
    }
}

fn verify(file: &str, told: Told) -> Result<Verified, Broken> {
    let mut reader = Reader::new(told);
    for line in file.split_inclusive('\n') {
        reader.line(line.strip_suffix('\n').unwrap_or(line))?;
    }
    reader.finish()
}

fn log(keys: &Keys) -> Log {
    let mut log = Log::new();
    log.write(5);
    log.sign(&keys.audit_signer(FLEET));
    log.write(3);
    log.sign(&keys.audit_signer(FLEET));
    log
}

#[test]
fn an_export_is_proven_and_says_of_what() {
    let keys = keys();
    let file = log(&keys).export(&keys);
    let pin = keys.anchor(FLEET).pin();
    let verified = verify(&file, Told { pin: Some(pin), fleet: Some(FLEET.to_owned()) }).expect("proven");
    assert_eq!((verified.rows, verified.checkpoints, verified.pin), (8, 2, pin));
    assert_eq!(verified.last, Some(after(7)));
    let other = Told { fleet: Some("fleet-two".to_owned()), pin: None };
    assert!(matches!(verify(&file, other), Err(Broken { line: 2, fault: Fault::OtherFleet { .. } })));
    let other = Told { pin: Some(Digest::of("other")), fleet: None };
    assert!(matches!(verify(&file, other), Err(Broken { line: 2, fault: Fault::Anchor(_) })));
}

#[test]
fn no_bit_of_an_export_can_change() {
    let keys = keys();
    let mut log = Log::new();
    log.write(2);
    log.sign(&keys.audit_signer(FLEET));
    let file = log.export(&keys);
    // Every byte, and every bit in turn.
    for bit in (0..file.len() * 8).step_by(3) {
        let mut changed = file.clone().into_bytes();
        changed[bit / 8] ^= 1 << (bit % 8);
        let Ok(changed) = String::from_utf8(changed) else { continue };
        let broken = verify(&changed, Told::default()).expect_err("a bit changed");
        let line = file.as_bytes()[..bit / 8].iter().filter(|byte| **byte == b'\n').count() + 1;
        assert!(broken.line >= line, "bit {bit} of line {line}: {broken:?}");
    }
}

#[test]
fn no_line_of_an_export_can_be_dropped_repeated_swapped_or_cut_off() {
    let keys = keys();
    let file = log(&keys).export(&keys);
    let lines: Vec<&str> = file.split_inclusive('\n').collect();
    let told = Told::default;
    for index in 0..lines.len() {
        let without: String = lines.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, line)| *line).collect();
        assert!(verify(&without, told()).is_err(), "without line {}", index + 1);
        let cut: String = lines[..index].concat();
        assert!(verify(&cut, told()).is_err(), "cut before line {}", index + 1);
        let mut twice = lines.clone();
        twice.insert(index, lines[index]);
        assert!(verify(&twice.concat(), told()).is_err(), "line {} twice", index + 1);
        for other in index + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(index, other);
            assert!(verify(&swapped.concat(), told()).is_err(), "lines {} and {}", index + 1, other + 1);
        }
    }
}

#[test]
fn an_older_export_cannot_pass_for_a_later_one() {
    let keys = keys();
    let mut log = Log::new();
    log.write(5);
    log.sign(&keys.audit_signer(FLEET));
    let early = log.export(&keys);
    log.write(3);
    log.sign(&keys.audit_signer(FLEET));
    let late = log.export(&keys);
    let cut: String = early.lines().take(9).map(|line| format!("{line}\n")).collect();
    let end = late.lines().last().expect("an end");
    assert!(matches!(verify(&format!("{cut}{end}\n"), Told::default()), Err(Broken { line: 10, fault: Fault::End })));
}

#[test]
fn a_key_is_announced_before_it_signs() {
    let mut keys = keys();
    let mut log = log(&keys);
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    assert!(is_due_for_keys(&keys.audit_signer(FLEET), &log.checkpoints[1].0));
    log.sign(&keys.audit_signer(FLEET));
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    log.write(1);
    log.sign(&keys.audit_signer(FLEET));
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    log.write(1);
    log.sign(&keys.audit_signer(FLEET));
    assert_ne!(log.checkpoints[0].0.key, log.checkpoints[4].0.key);
    assert_eq!(verify(&log.export(&keys), Told::default()).expect("proven").checkpoints, 5);
}

#[test]
fn a_key_that_nobody_announced_is_announced_by_the_one_before_it_or_not_believed() {
    let mut keys = keys();
    let mut log = log(&keys);
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    keys.advance(RotationKind::Checkpoint, FLEET, now());
    let signer = keys.audit_signer(FLEET);
    log.sign(&signer);
    assert_eq!(log.checkpoints[2].0.next, Some(signer.key()), "the key before it says so");
    log.sign(&signer);
    assert_eq!(verify(&log.export(&keys), Told::default()).expect("proven").key, signer.key());

    let mut log = self::log(&self::keys());
    log.sign(&keys.audit_signer(FLEET));
    assert!(matches!(verify(&log.export(&keys), Told::default()), Err(Broken { fault: Fault::DoesNotFollow(2), .. })));
}

#[test]
fn keys_of_somebody_else_prove_nothing() {
    let (ours, theirs) = (keys(), keys());
    let file = log(&theirs).export(&theirs);
    let anchor = |file: &str| file.lines().nth(1).expect("an anchor").to_owned();
    let disguised = file.replace(&anchor(&file), &anchor(&log(&ours).export(&ours)));
    assert!(matches!(verify(&disguised, Told::default()), Err(Broken { line: 3, fault: Fault::Vouch(_) })));
}

#[test]
fn one_line_is_proven_without_the_others() {
    let keys = keys();
    let log = log(&keys);
    let realm = keys.anchor(FLEET).realm();
    let (checkpoint, signature) = &log.checkpoints[1];
    let rows: Vec<&str> = log.rows[5..].iter().map(String::as_str).collect();
    for index in 0..rows.len() {
        let proof = Proof::of(&rows, index, checkpoint, signature).expect("one of them");
        let (row, over) = proof.verify(&realm).expect("proven");
        assert_eq!((row.pos, &over), (5 + index as u64, checkpoint));
        let others = Proof { row: rows[(index + 1) % 3].to_owned(), ..proof.clone() };
        assert_eq!(others.verify(&realm), Err(ProofRefusal::NotIn));
        let text = serde_json::to_string(&proof).expect("json");
        for bit in (0..text.len() * 8).step_by(3) {
            let mut changed = text.clone().into_bytes();
            changed[bit / 8] ^= 1 << (bit % 8);
            let Ok(changed) = serde_json::from_slice::<Proof>(&changed) else { continue };
            assert!(changed == proof || changed.verify(&realm).is_err(), "bit {bit}");
        }
    }
    assert_eq!(Proof::of(&rows, 3, checkpoint, signature), None);
}
