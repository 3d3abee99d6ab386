//! XIDs: what the driver says about its GPUs in the kernel's log.
//!
//! Only a line that the driver itself wrote counts: `NVRM: Xid (PCI:0000:3b:00): 79, …` at the beginning of a kernel
//! message. The same words in another program's line are that program's.

use std::{
    collections::BTreeSet,
    fs::OpenOptions,
    io::{ErrorKind, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::libc::O_NONBLOCK;

const MAX_LOG: usize = 16 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid {
    /// Microseconds since the machine started.
    pub at: u64,
    /// PCI address without the function, lower case: `0000:3b:00`.
    pub pci: String,
    /// The number.
    pub code: u32,
    /// What the driver says with it.
    pub text: String,
}

impl Xid {
    /// Reads the text of a kernel message.
    #[must_use]
    pub fn parse(at: u64, message: &str) -> Option<Self> {
        let rest = message.trim_start().strip_prefix("NVRM: Xid (")?;
        let (place, rest) = rest.split_once("):")?;
        let place = place.strip_prefix("PCI:").unwrap_or(place).to_ascii_lowercase();
        let parts: Vec<&str> = place.split([':', '.']).collect();
        let hex =
            |part: &&str| !part.is_empty() && part.len() <= 8 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        let [domain, bus, device, ..] = parts.as_slice() else { return None };
        if parts.len() > 4 || !parts.iter().all(hex) {
            return None;
        }
        let domain = u32::from_str_radix(domain, 16).ok()?;
        let rest = rest.trim_start();
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let code = rest[..digits].parse().ok()?;
        // A number that goes on as a word is no number.
        let text = match rest[digits..].chars().next() {
            None | Some(',' | ' ' | '\\' | '\n') => rest[digits..].trim_start_matches([',', ' ']),
            Some(_) => return None,
        };
        let text = text.chars().filter(|letter| !letter.is_control()).take(300).collect();
        Some(Self { at, pci: format!("{domain:04x}:{bus}:{device}"), code, text })
    }

    /// Whether it is on this GPU.
    #[must_use]
    pub fn is_on(&self, pci: &str) -> bool {
        pci.rsplit_once('.').map_or(pci, |(device, _)| device).eq_ignore_ascii_case(&self.pci)
    }

    /// Whether it says something about the GPU. Many say that a program went wrong, and some only inform: of a row that
    /// waits to be replaced the remapper's own flag tells, and of a recovery that is due the number 154.
    #[must_use]
    pub fn is_condition(&self) -> bool {
        match self.code {
            // Programs: engine, copy and codec errors, contained memory errors.
            8 | 11 | 13 | 25 | 31 | 32 | 39..=41 | 60 | 68..=72 | 75..=77 | 80 | 82..=86 | 88 | 89 | 94 | 96..=105 => {
                false
            }
            126..=135 | 139 => false,
            // For information.
            14 | 37 | 38 | 43..=45 | 63 | 66 | 67 | 92 | 93 | 106..=108 | 121 | 137 | 141 | 152 | 153 => false,
            156 | 159..=161 => false,
            144..=150 => self.text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == "Fatal"),
            154 => !self.text.contains("to 0x0 "),
            _ => true,
        }
    }
}

/// The conditions that stand at the end of these events, which are in their order: a later 154 takes the place of an
/// earlier one.
#[must_use]
pub fn conditions<'a>(events: impl Iterator<Item = &'a Xid>) -> Vec<&'a Xid> {
    let mut standing: Vec<&Xid> = Vec::new();
    for event in events {
        if event.code == 154 {
            standing.retain(|old| old.code != 154 || old.pci != event.pci);
        }
        if event.is_condition() {
            standing.push(event);
        }
    }
    standing
}

/// The events in the records of `/dev/kmsg`.
#[must_use]
pub fn of_kmsg(records: &str) -> BTreeSet<Xid> {
    let event = |line: &str| {
        let (head, message) = line.split_once(';')?;
        let mut fields = head.split(',');
        let level: u32 = fields.next()?.parse().ok()?;
        let at = fields.nth(1)?.parse().ok()?;
        // Facility zero is the kernel; anybody may write the others.
        (level >> 3 == 0).then(|| Xid::parse(at, message)).flatten()
    };
    records.lines().filter(|line| !line.starts_with(' ')).filter_map(event).collect()
}

/// The events in the kernel's lines of the journal as JSON, one object a line.
#[must_use]
pub fn of_journal(lines: &str) -> BTreeSet<Xid> {
    let event = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).ok()?;
        if record["_TRANSPORT"] != "kernel" {
            return None;
        }
        let at =
            ["_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP"].iter().find_map(|name| record[*name].as_str());
        Xid::parse(at?.parse().ok()?, record["MESSAGE"].as_str()?)
    };
    lines.lines().filter_map(event).collect()
}

/// What the kernel still has of this boot's log; `None` when it cannot be read.
#[must_use]
pub fn kernel_log(path: &Path) -> Option<String> {
    let mut log = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).ok()?;
    let (mut bytes, mut record) = (Vec::new(), vec![0; 16 * 1024]);
    while bytes.len() < MAX_LOG {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => bytes.extend_from_slice(&record[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // What was to come next has been overwritten; the next read goes on behind it.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(_) if bytes.is_empty() => return None,
            Err(_) => break,
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
