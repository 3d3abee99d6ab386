//! Who has to follow a step of a rotation, and who of them is behind.

use std::collections::BTreeSet;

use pki::keys::{Keys, RotationKind};
use schema::time::{Moment, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    client::Client,
    exit::{During as _, Exit, Failure},
    output::text::{count, printable},
    up::keys::KeyDir,
};

/// Whoever runs says so at least every fifteen seconds.
const HEARD: i64 = 20;

/// Whether gateways apart have to follow: those hold nothing of the others.
const fn is_followed_by_gateways(kind: RotationKind) -> bool {
    !matches!(kind, RotationKind::Checkpoint | RotationKind::SecretStore)
}

/// Who has to follow.
pub(super) const fn followers(kind: RotationKind) -> &'static str {
    match kind {
        RotationKind::NodeCa | RotationKind::CommandRoot | RotationKind::JoinKey => "nodes, processes, gateways",
        RotationKind::InternalAuthority => "processes, gateways",
        RotationKind::Checkpoint => "processes",
        RotationKind::SecretStore => "processes, sealed values",
    }
}

/// Whom a step waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Behind {
    /// Nodes that do not know the new key yet.
    pub(super) trust: Vec<String>,
    /// Nodes whose certificates are the old authority's.
    pub(super) certificates: Vec<String>,
    /// How many nodes.
    pub(super) nodes: u64,
    /// Processes and gateways that work with keys of before.
    pub(super) holders: Vec<Follower>,
}

/// A process or a gateway that works with keys of before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Follower {
    pub(super) name: String,
    pub(super) is_gateway: bool,
    /// It missed what it cannot follow.
    pub(super) needs_keys: bool,
    /// When it last said something; what cannot be read says nothing.
    pub(super) seen_at: Option<Timestamp>,
}

impl Follower {
    /// Whether it runs, as far as anybody can tell: it follows within seconds.
    pub(super) fn is_heard(&self, now: Timestamp) -> bool {
        self.seen_at.is_some_and(|at| now.as_second() - at.as_second() <= HEARD)
    }
}

/// The names of followers.
pub(super) fn names(followers: &[Follower]) -> Vec<&str> {
    followers.iter().map(|follower| follower.name.as_str()).collect()
}

impl Behind {
    /// Whom the next step of a kind waits for.
    pub(super) async fn ask(
        kind: RotationKind,
        keys: &Keys,
        holders: &Holders,
        client: &Client,
    ) -> Result<Self, Failure> {
        let holders = holders.behind(kind, keys.revision());
        let Some(rotation) = keys.rotation(kind).filter(|_| kind.is_believed_by_nodes()) else {
            return Ok(Self { holders, ..Self::default() });
        };
        let mut input = json!({ "trustVersion": rotation.version });
        let since = rotation.switched_at.filter(|_| kind == RotationKind::NodeCa);
        if let Some(since) = since {
            input["issuedSince"] = since.to_string().into();
        }
        let answer = client.call("keys.progress", &input).await?;
        let number = |path: &str| answer.pointer(path).and_then(Value::as_u64).unwrap_or_default();
        let names = |path: &str| {
            let names = answer.pointer(path).and_then(Value::as_array).into_iter().flatten();
            names.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Ok(Self {
            trust: names("/behind/names"),
            certificates: names("/oldCertificates/names"),
            nodes: number("/behind/count").max(number("/oldCertificates/count")),
            holders,
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.nodes + self.holders.len() as u64
    }

    /// Who they are, ten at most.
    pub(super) fn names(&self) -> String {
        const MOST: usize = 10;
        let nodes: BTreeSet<&str> = self.trust.iter().chain(&self.certificates).map(String::as_str).collect();
        let shown: Vec<&str> = names(&self.holders).into_iter().chain(nodes).take(MOST).collect();
        match self.count().saturating_sub(shown.len() as u64) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// Who works with which keys, as the API says it.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Holder {
    pub(super) name: String,
    pub(super) is_gateway: bool,
    pub(super) revision: u64,
    pub(super) seen_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) certificate_ends_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ended_by: Option<String>,
    /// A gateway that missed what it cannot follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) needs_keys: bool,
}

/// Everybody who works with keys of this control plane.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Holders {
    pub(super) pin: String,
    pub(super) holders: Vec<Holder>,
    pub(super) sealed_before: u64,
    #[serde(default)]
    pub(super) commands_before: CommandsBefore,
    /// Rows that the control plane cannot read.
    #[serde(default)]
    pub(super) unreadable: Vec<Value>,
}

/// Commands that the command root before the present one signed, and that have not ended.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CommandsBefore {
    pub(super) count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
}

impl CommandsBefore {
    /// How many, and until when.
    pub(super) fn in_words(&self) -> String {
        let have = if self.count == 1 { "has" } else { "have" };
        let until = self.until.map_or_else(String::new, |until| format!(", which they do by {}", Moment(until)));
        format!("{} that the root before signed {have} not ended{until}", count(self.count, "command"))
    }
}

impl Holders {
    pub(super) async fn ask(client: &Client) -> Result<Self, Failure> {
        let answer = client.call("keys.holders", &json!({})).await?;
        serde_json::from_value(answer).during("the control plane's answer cannot be read")
    }

    /// Who works with keys of before. Who was ended is waited for by nobody.
    pub(super) fn behind(&self, kind: RotationKind, revision: u64) -> Vec<Follower> {
        let follows =
            |holder: &&Holder| holder.ended_by.is_none() && (!holder.is_gateway || is_followed_by_gateways(kind));
        let behind = self.holders.iter().filter(follows).filter(|holder| holder.revision < revision);
        // Nobody knows how far one is whose row cannot be read.
        let unread = self.unreadable.iter().map(|row| {
            let key = row["key"].as_str().unwrap_or("-");
            let name = format!("the row of key_holders with {} that cannot be read", printable(key));
            Follower { name, is_gateway: false, needs_keys: false, seen_at: None }
        });
        let follower = |holder: &Holder| Follower {
            name: holder.name.clone(),
            is_gateway: holder.is_gateway,
            needs_keys: holder.needs_keys,
            seen_at: Some(holder.seen_at),
        };
        behind.map(follower).chain(unread).collect()
    }

    /// Refuses keys that are not those of the control plane that answered: a copy from before, or another one's.
    pub(super) fn check(&self, place: &KeyDir, keys: &Keys, pin: &str) -> Result<(), Failure> {
        let dir = place.path().display();
        let processes = || self.holders.iter().filter(|holder| !holder.is_gateway);
        if let Some(ahead) = processes().find(|holder| holder.revision > keys.revision()) {
            let message = format!("{dir} is a copy from before: {} works with later keys", ahead.name);
            return Err(Failure::new(Exit::Refused, message).hint("rotate where the latest keys are"));
        }
        let follow = processes().all(|holder| holder.revision == keys.revision());
        if follow && self.pin != pin {
            let message = format!("the control plane that answers works with other keys than those in {dir}");
            return Err(Failure::new(Exit::Refused, message)
                .hint("--keys and --url have to be of one control plane; `keys status` shows both"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        pki::install_provider();
        Keys::generate("bc.local", "2026-11-29T12:00:00Z".parse().unwrap()).unwrap()
    }

    fn holders(pin: &str, holders: &[(&str, bool, u64)]) -> Holders {
        let holder = |(name, is_gateway, revision): &(&str, bool, u64)| Holder {
            name: (*name).to_owned(),
            is_gateway: *is_gateway,
            revision: *revision,
            seen_at: Timestamp::UNIX_EPOCH,
            certificate_ends_at: None,
            ended_by: None,
            needs_keys: false,
        };
        Holders {
            pin: pin.to_owned(),
            holders: holders.iter().map(holder).collect(),
            sealed_before: 0,
            commands_before: CommandsBefore::default(),
            unreadable: Vec::new(),
        }
    }

    #[test]
    fn a_holder_whose_row_cannot_be_read_is_waited_for() {
        let mut some = holders("", &[("one/1", false, 3)]);
        assert_eq!(some.behind(RotationKind::NodeCa, 3), Vec::new());
        some.unreadable = vec![json!({ "table": "key_holders", "key": "name \"gw\"", "why": "x" })];
        let behind = some.behind(RotationKind::NodeCa, 3);
        assert!(behind[0].name.contains("name \"gw\"") && !behind[0].is_heard(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn keys_of_before_and_keys_of_another_control_plane_are_not_rotated() {
        let (place, mut keys) = (KeyDir::at("keys"), keys());
        let pin = keys.anchor("fleet").pin().to_string();
        holders(&pin, &[("one/1", false, 0)]).check(&place, &keys, &pin).unwrap();
        let other = holders("sha256:00", &[("one/1", false, 0)]).check(&place, &keys, &pin).unwrap_err();
        assert!(other.message.contains("works with other keys"), "{other}");
        let later = holders(&pin, &[("one/1", false, 1)]).check(&place, &keys, &pin).unwrap_err();
        assert!(later.message.contains("keys is a copy from before: one/1"), "{later}");
        // What a gateway says of itself stops nobody, and who is still at the step before has another pin.
        holders(&pin, &[("gw", true, 9)]).check(&place, &keys, &pin).unwrap();
        keys.advance(RotationKind::NodeCa, "fleet", Timestamp::UNIX_EPOCH);
        let next = keys.anchor("fleet").pin().to_string();
        holders(&pin, &[("one/1", false, 0)]).check(&place, &keys, &next).unwrap();
    }

    #[test]
    fn who_said_something_within_twenty_seconds_is_heard() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let follower = |seen_at| Follower { name: String::new(), is_gateway: true, needs_keys: false, seen_at };
        assert!(follower(Some(at(100))).is_heard(at(120)));
        assert!(!follower(Some(at(100))).is_heard(at(121)));
        assert!(!follower(None).is_heard(at(0)));
    }

    #[test]
    fn gateways_follow_only_the_keys_that_they_hold_something_of() {
        let some = holders("", &[("one/1", false, 2), ("gw", true, 2)]);
        assert_eq!(names(&some.behind(RotationKind::SecretStore, 3)), ["one/1"]);
        assert_eq!(names(&some.behind(RotationKind::InternalAuthority, 3)), ["one/1", "gw"]);
    }

    #[test]
    fn who_is_behind_is_named_once_and_the_rest_is_counted() {
        let name = |n: u32| format!("gpu-{n:02}");
        let two = Behind { trust: vec![name(2), name(1)], certificates: vec![name(1)], nodes: 2, holders: Vec::new() };
        assert_eq!(two.names(), "gpu-01, gpu-02");
        let many = Behind { trust: (0..20).map(name).collect(), nodes: 5_000, ..Behind::default() };
        assert!(many.names().ends_with("gpu-09 and 4990 more"), "{}", many.names());
        let holder = Follower { name: "gw-1".to_owned(), is_gateway: true, needs_keys: false, seen_at: None };
        let gateway = Behind { holders: vec![holder], ..two };
        assert_eq!((gateway.count(), gateway.names().as_str()), (3, "gw-1, gpu-01, gpu-02"));
    }
}
