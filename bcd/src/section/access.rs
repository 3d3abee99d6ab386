//! The `access` section: SSH keys for when everything else fails.
//!
//! The keys stand in files of their own, one per account, and one line of SSH server configuration adds them to what the
//! host reads anyway; nobody's `~/.ssh` is touched. A key with an end carries it for the SSH server, which goes by the
//! machine's clock, and leaves the file by itself when it is over by the proven time: a clock that is years ahead takes nobody's key away.

use std::{collections::BTreeMap, fmt::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schema::{
    effect::places::{KEYS, SSHD},
    spec::{AccessKey, AccessSection},
    time::Timestamp,
};

use super::{Desired, Facts, Key, Named, host::managed};
use crate::path::HostPath;

const USUAL: &str = ".ssh/authorized_keys .ssh/authorized_keys2";
const HEADER: &str = "# Managed by Better Compute. Change the fleet repository instead.\n";
const KEY_TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

pub(super) fn compile(access: &AccessSection, facts: &Facts, now: Timestamp) -> Desired {
    let mut desired = Desired::default();
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    for key in &access.keys {
        let line = match line(key) {
            Ok(line) => line,
            Err(problem) => {
                desired.problems.push(format!("access {}: {problem}", key.principal.escape_debug()));
                continue;
            }
        };
        if let Some(until) = key.until {
            if until <= now && !facts.time_unknown {
                continue;
            }
            desired.until = Some(desired.until.map_or(until, |sooner| sooner.min(until)));
        }
        files.entry(&key.account).or_default().push_str(&line);
    }
    for (account, lines) in &files {
        let path = HostPath::known(&format!("{KEYS}/{account}"));
        let name = Named::File(format!("access.{path}"));
        desired.want(Key::Path(path), managed(format!("{HEADER}{lines}"), facts), name);
    }
    if !files.is_empty() {
        if facts.sshd.ignores_drop_ins {
            desired.problems.push("/etc/ssh/sshd_config does not include /etc/ssh/sshd_config.d/*.conf".to_owned());
        }
        let own = facts.sshd.authorized_keys_file.as_deref().filter(|own| *own != "none").unwrap_or(USUAL);
        let content = format!("{HEADER}AuthorizedKeysFile {own} {KEYS}/%u\n");
        let name = Named::File(format!("access.{SSHD}"));
        desired.want(Key::Path(HostPath::known(SSHD)), managed(content, facts), name);
    }
    desired
}

fn line(key: &AccessKey) -> Result<String, String> {
    let account = &key.account;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    if account.is_empty() || account.len() > 32 || account.starts_with('-') || !account.bytes().all(is_name) {
        return Err(format!("{account:?} is not an account's name"));
    }
    let (kind, data) = key.key.split_once(' ').ok_or("the key is not a type and base64")?;
    let known = KEY_TYPES.contains(&kind);
    let blob = STANDARD.decode(data).map_err(|_| "the key is not a type and base64")?;
    let inner = blob.get(4..4 + kind.len());
    if !known || inner != Some(kind.as_bytes()) {
        return Err(format!("the key is not a public SSH key of a known type ({})", KEY_TYPES.join(", ")));
    }
    let comment: String = key.principal.chars().map(|c| if c.is_control() { ' ' } else { c }).take(100).collect();
    let mut line = String::new();
    if let Some(until) = key.until {
        let end = until.strftime("%Y%m%d%H%M%SZ");
        write!(line, "expiry-time=\"{end}\" ").expect("a string takes text");
    }
    writeln!(line, "{kind} {data} {comment}").expect("a string takes text");
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::{Want, facts::Sshd};

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

    fn key(until: Option<&str>) -> AccessSection {
        let until = until.map(|text| text.parse().expect("a time"));
        let key = AccessKey { principal: "ada".into(), account: "root".into(), key: KEY.into(), until };
        AccessSection { keys: vec![key] }
    }

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().expect("a time")
    }

    fn content(desired: &Desired, path: &str) -> Option<String> {
        match desired.wants.get(&Key::Path(HostPath::known(path)))? {
            Want::File(file) => String::from_utf8(file.content.clone()).ok(),
            _ => None,
        }
    }

    #[test]
    fn a_key_carries_its_end_for_the_ssh_server() {
        let desired = compile(&key(Some("2026-03-02T00:00:00Z")), &Facts::default(), now());
        let text = content(&desired, "/etc/ssh/better-compute/authorized_keys.d/root").expect("a file");
        assert!(text.ends_with(&format!("expiry-time=\"20260302000000Z\" {KEY} ada\n")), "{text}");
        assert_eq!(desired.until, Some("2026-03-02T00:00:00Z".parse().expect("a time")));
    }

    #[test]
    fn a_key_past_its_end_is_not_there() {
        let desired = compile(&key(Some("2026-03-01T12:00:00Z")), &Facts::default(), now());
        assert_eq!(desired, Desired::default());
    }

    #[test]
    fn a_key_is_not_over_by_a_time_that_nobody_proved() {
        let facts = Facts { time_unknown: true, ..Facts::default() };
        let desired = compile(&key(Some("2026-03-01T11:00:00Z")), &facts, now());
        assert!(content(&desired, "/etc/ssh/better-compute/authorized_keys.d/root").is_some());
        assert_eq!(
            desired.until,
            Some("2026-03-01T11:00:00Z".parse().expect("a time")),
            "and is when the time is proven"
        );
    }

    #[test]
    fn the_hosts_own_key_files_stay_in_force() {
        let facts = Facts {
            sshd: Sshd { authorized_keys_file: Some("/etc/keys/%u".into()), ..Sshd::default() },
            ..Facts::default()
        };
        let text = content(&compile(&key(None), &facts, now()), SSHD).expect("a file");
        assert!(text.contains("AuthorizedKeysFile /etc/keys/%u /etc/ssh/better-compute/authorized_keys.d/%u\n"));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for bad in
            ["", "ssh-ed25519", "ssh-ed25519 !!", "command=\"x\" ssh-ed25519 AAAA", "ssh-dss AAAA", "ssh-rsa AAAA\nx"]
        {
            let mut section = key(None);
            section.keys[0].key = bad.into();
            let desired = compile(&section, &Facts::default(), now());
            assert_eq!((desired.wants.len(), desired.problems.len()), (0, 1), "{bad:?}");
        }
        for bad in ["", "../root", "a/b", "-x", "Root"] {
            let mut section = key(None);
            section.keys[0].account = bad.into();
            assert_eq!(compile(&section, &Facts::default(), now()).problems.len(), 1, "{bad:?}");
        }
    }
}
