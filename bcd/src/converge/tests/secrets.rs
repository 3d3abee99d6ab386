//! Facts about files with secrets: written once a value is there, and told, kept and guessed by nobody.

use pki::node_key::NodeKey;
use schema::{report::SectionState, spec::SecretVersion};
use zeroize::Zeroizing;

use super::*;
use crate::vault::UNAVAILABLE;

const PATH: &str = "/etc/ntp.key";

fn wish(version: u32) -> SecretVersion {
    SecretVersion { name: "ntp/key".parse().expect("a name"), version }
}

fn keyed(version: u32, mode: &str) -> NodeSpec {
    files(vec![HostFile { secret: Some(wish(version)), ..file(PATH, "", mode) }])
}

fn value(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.as_bytes().to_vec())
}

impl World {
    fn with_vault(initial: &[(&str, &str)]) -> Self {
        Self { vault: Some(Vault::new(NodeKey::generate().marks())), ..Self::new(initial) }
    }

    fn given(&mut self, version: u32, text: &str) {
        self.vault().fill(Ok(vec![(wish(version), value(text))]));
    }

    fn vault(&mut self) -> &mut Vault {
        self.vault.as_mut().expect("a vault")
    }

    fn kept_text(&self) -> String {
        serde_json::to_string(&(&self.kept, &self.ledger)).expect("serialises")
    }
}

#[test]
fn a_value_is_written_tightly_and_recognised_afterwards_without_it() {
    let mut world = World::with_vault(&[]);
    world.given(1, "hunter2");
    assert_eq!(world.host(&keyed(1, "0600")).state, SectionState::Converged);
    assert_eq!(world.text(PATH).as_deref(), Some("hunter2"));
    assert_eq!(world.picture()["etc/ntp.key"].1, 0o600);
    world.vault().clear();
    assert_eq!(world.steps(&keyed(1, "0600")), Planned::default(), "a host that is as wanted needs nobody");
}

#[test]
fn without_a_value_the_section_fails_and_leaves_the_file_alone() {
    let mut world = World::with_vault(&[]);
    world.given(1, "hunter2");
    world.host(&keyed(1, "0600"));
    world.vault().clear();
    world.vault().fill(Err("no gateway is there".to_owned()));
    let ended = world.host(&keyed(2, "0600"));
    assert_eq!(ended.state, SectionState::Failed);
    assert!(ended.reason.contains(UNAVAILABLE) && ended.reason.contains("no gateway is there"), "{}", ended.reason);
    assert_eq!(world.text(PATH).as_deref(), Some("hunter2"));
    world.given(2, "hunter3");
    assert_eq!(world.host(&keyed(2, "0600")).state, SectionState::Converged);
    assert_eq!(world.text(PATH).as_deref(), Some("hunter3"));
}

#[test]
fn nothing_that_is_kept_or_said_has_a_value_or_its_digest() {
    let mut world = World::with_vault(&[(PATH, "older-secret")]);
    world.given(1, "hunter2");
    let mut said = format!("{:?}", world.host(&keyed(1, "0600")));
    fs::write(world.dir.path().join("etc/ntp.key"), "foreign-secret").expect("written");
    said.push_str(&format!("{:?}", world.host(&keyed(1, "0600"))));
    assert_eq!(world.text(PATH).as_deref(), Some("hunter2"), "drift is put right");
    said.push_str(&world.kept_text());
    said.push_str(&serde_json::to_string(&world.ledger.report()).expect("serialises"));
    for text in ["older-secret", "hunter2", "foreign-secret"] {
        let digest = schema::digest::Digest::of(text).to_string();
        let digest = digest.trim_start_matches("sha256:");
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        for needle in [text, digest, &encoded] {
            assert!(!said.contains(needle), "{text}: {needle}");
        }
    }
    assert!(said.contains("ntp/key"), "the reference is told");
}

#[test]
fn what_leaves_the_spec_is_removed_and_what_was_there_before_does_not_come_back() {
    let mut world = World::with_vault(&[(PATH, "older-secret")]);
    world.given(1, "hunter2");
    world.host(&keyed(1, "0600"));
    assert_eq!(world.host(&NodeSpec::default()).state, SectionState::Converged);
    assert_eq!(world.text(PATH), None);
    assert_eq!(world.kept.secrets.len(), 0);
}

#[test]
fn a_mode_that_lets_others_read_is_refused() {
    let mut world = World::with_vault(&[]);
    world.given(1, "hunter2");
    for mode in ["0604", "0644", "0601"] {
        assert_eq!(world.host(&keyed(1, mode)).state, SectionState::Failed, "{mode}");
        assert_eq!(world.text(PATH), None);
    }
    assert_eq!(world.host(&keyed(1, "0640")).state, SectionState::Converged);
}

#[test]
fn an_interrupted_write_is_finished_by_the_next_pass() {
    for point in 1..60 {
        let mut world = World::with_vault(&[]);
        world.given(1, "hunter2");
        let tripped = world.interrupted(&keyed(1, "0600"), point);
        assert_eq!(world.host(&keyed(1, "0600")).state, SectionState::Converged, "point {point}");
        assert_eq!(world.text(PATH).as_deref(), Some("hunter2"), "point {point}");
        if !tripped {
            return;
        }
    }
    panic!("the pass has more points than that");
}
