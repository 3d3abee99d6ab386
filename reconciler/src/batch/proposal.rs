//! Batches that callers of the API ask for where people approve: a file, which whoever follows the fleet commits as a service beside
//! the branch. Pure; the commit is made in [`crate::source`].

#[cfg(test)]
mod tests;

use pki::trust::service::{ServiceKey, ServiceKeys};
use schema::{
    canonical,
    fleet::{self, Batch, Sources, edit::yaml_value},
    name::Name,
    object::Kind,
    time::Timestamp,
};
use serde_json::{Map, Value, json};

use super::resolve::Trust;

/// Why the commit of a proposal is not there yet, or is never made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hindrance {
    /// It is about to be made.
    Pending,
    /// There is no key to sign it with.
    KeyMissing,
    /// The trust policy does not list the key.
    Unknown,
    /// The trust policy does not let the service propose there.
    Path,
    /// No process of this control plane asked for it.
    Unproven,
    /// The fleet or the repository has something of that name.
    Taken,
    /// The repository may not be written.
    Denied,
    /// The remote said no.
    Refused,
    /// The remote cannot be reached.
    Unreachable,
}

impl Hindrance {
    /// Every value.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::KeyMissing,
        Self::Unknown,
        Self::Path,
        Self::Unproven,
        Self::Taken,
        Self::Denied,
        Self::Refused,
        Self::Unreachable,
    ];

    /// The stable word.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Pending => "proposal-pending",
            Self::KeyMissing => "service-key-missing",
            Self::Unknown => "service-unknown",
            Self::Path => "service-path",
            Self::Unproven => "proposal-unproven",
            Self::Taken => "proposal-taken",
            Self::Denied => "proposal-denied",
            Self::Refused => "proposal-refused",
            Self::Unreachable => "proposal-unreachable",
        }
    }

    /// The one of a word; whatever else is stored, it is about to be made.
    #[must_use]
    pub fn of(code: &str) -> Self {
        Self::ALL.into_iter().find(|one| one.code() == code).unwrap_or(Self::Pending)
    }
}

/// Something keeps a proposal from being made: a stable word, and the same for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Hindered {
    /// The word.
    pub by: Hindrance,
    /// For people.
    pub why: String,
}

impl Hindered {
    /// With words for people.
    pub fn new(by: Hindrance, why: impl Into<String>) -> Self {
        Self { by, why: why.into() }
    }
}

/// The file that asks for a batch, below the fleet.
#[must_use]
pub fn path(name: &Name) -> String {
    format!("batches/{name}.yaml")
}

/// The key to sign with, and the service that it makes of the control plane, when the trust policy in force lets it propose a file.
///
/// # Errors
/// When it does not.
pub fn speaker(keys: &ServiceKeys, trust: &Trust, path: &str) -> Result<(ServiceKey, Name), Hindered> {
    let Some(policy) = trust.present() else {
        return Err(Hindered::new(Hindrance::Pending, "the trust policy is not known here yet"));
    };
    if keys.is_empty() {
        let why = "the control plane has no key to propose with: better-compute keys service";
        return Err(Hindered::new(Hindrance::KeyMissing, why));
    }
    let Some((key, name, service)) = keys.under(policy, &trust.revoked) else {
        let own: Vec<String> = keys.iter().map(|key| key.public().name()).collect();
        let why = format!(
            "the trust policy of epoch {} lists no key of the control plane ({}) under a principal of kind service: better-compute keys service prints the lines for trust/policy.kdl",
            policy.epoch(),
            own.join(", ")
        );
        return Err(Hindered::new(Hindrance::Unknown, why));
    };
    if !policy.lets_propose(service, path) {
        let roles: Vec<&str> = service.roles.iter().map(Name::as_str).collect();
        let roles = if roles.is_empty() { "none".to_owned() } else { roles.join(", ") };
        let why = format!(
            "the service {name} may not propose {path}: let each path rule of the trust policy that covers it name one of its roles ({roles}), such as path \"batches/**\""
        );
        return Err(Hindered::new(Hindrance::Path, why));
    }
    Ok((key, name.clone()))
}

/// What a caller asks for.
#[derive(Debug, Clone)]
pub struct Wish<'a> {
    /// The batch's name.
    pub name: &'a Name,
    /// What is done.
    pub command: &'a str,
    /// What the command is told.
    pub payload: Map<String, Value>,
    /// To which machines.
    pub nodes: Vec<&'a Name>,
    /// Why.
    pub reason: &'a str,
    /// Who asks, when a principal does.
    pub proposer: Option<&'a Name>,
    /// When it may begin.
    pub not_before: Option<Timestamp>,
    /// When nothing of it begins any more.
    pub expires: Timestamp,
    /// Machines at a time.
    pub max_in_flight: Option<u32>,
    /// Failures that it tolerates.
    pub max_failures: Option<u32>,
    /// The label whose values are failure domains.
    pub spread: Option<&'a str>,
}

/// A file that asks for one batch, read back.
#[derive(Debug, Clone)]
pub struct Written {
    /// The file.
    pub text: String,
    /// The batch, as whoever reads the file understands it.
    pub batch: Batch,
    /// Its document, canonical.
    pub doc: String,
}

/// Writes the file that asks for a batch, and reads it back as everybody will.
///
/// # Errors
/// With what cannot be written.
pub fn write(wish: &Wish<'_>) -> Result<Written, String> {
    let mut text = String::new();
    let mut say = |key: &str, value: Value| yaml_value(key, &value, 0, &mut text);
    say("kind", "batch".into());
    say("name", wish.name.as_str().into());
    say("command", wish.command.into());
    if !wish.payload.is_empty() {
        say("payload", wish.payload.clone().into());
    }
    let nodes: Vec<&str> = wish.nodes.iter().map(|node| node.as_str()).collect();
    say("scope", json!({ "nodes": nodes }));
    say("reason", wish.reason.into());
    let mut may = |key: &str, value: Option<Value>| value.into_iter().for_each(|value| say(key, value));
    may("proposer", wish.proposer.map(|name| name.as_str().into()));
    may("not-before", wish.not_before.map(|at| at.to_string().into()));
    may("expires", Some(wish.expires.to_string().into()));
    may("max-in-flight", wish.max_in_flight.map(Into::into));
    may("max-failures", wish.max_failures.map(Into::into));
    may("spread", wish.spread.map(Into::into));
    let written = read(wish, text)?;
    let batch = &written.batch;
    let same = batch.payload() == Value::Object(wish.payload.clone())
        && batch.reason.value == wish.reason
        && batch.scope.value.nodes.iter().map(|node| node.value.as_str()).eq(nodes);
    if same { Ok(written) } else { Err("its payload or its reason would be read as something else".to_owned()) }
}

/// Around the file that is read back: what a batch says depends on nothing in the fleet but that its machines are there.
const AROUND: &str = "fleet \"fleet\" {\n    format 1\n    trust-domain \"fleet.example\"\n}\n";

fn read(wish: &Wish<'_>, text: String) -> Result<Written, String> {
    let nodes: String = wish.nodes.iter().map(|node| format!("node \"{node}\" {{\n}}\n")).collect();
    let mut sources = Sources::default();
    sources.insert_file("fleet.kdl".to_owned(), format!("{AROUND}{nodes}").as_bytes());
    sources.insert_file(path(wish.name), text.as_bytes());
    let loaded = fleet::load(&sources);
    let Some(fleet) = loaded.fleet else {
        let errors = loaded.diagnostics.iter().filter(|found| found.is_error());
        return Err(errors.map(|found| found.message.clone()).collect::<Vec<_>>().join("; "));
    };
    let entry = fleet.objects().find(|entry| entry.object.kind == Kind::Batch && entry.object.name == *wish.name);
    let (batch, entry) = fleet.batches.get(wish.name).zip(entry).ok_or("the document names another batch")?;
    let doc = canonical::to_vec(&*entry.doc).map_err(|error| error.to_string())?;
    let doc = String::from_utf8(doc).map_err(|error| error.to_string())?;
    Ok(Written { batch: batch.clone(), doc, text })
}
