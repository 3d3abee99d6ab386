//! `trust/policy.kdl`: whose word counts for what, as a person writes it.
//!
//! This is the shape alone: every value typed and with its place. Whether its keys are admitted, whether it locks itself out
//! or weakens silently, and what a signature amounts to under it, is judged by `pki::trust`, which has the cryptography.

mod decode;
#[cfg(test)]
mod tests;
mod touched;

use std::{collections::BTreeMap, sync::Arc};

pub use touched::{BatchTouched, Touched, batch_touched, touched};

use super::{
    Located,
    decode::Findings,
    parse::{self, Syntax},
};
use crate::{
    diagnostic::{self, Diagnostic, SourceMap, SourceRef},
    digest::Digest,
    name::Name,
    node::words,
    time::Duration,
};

/// The folder of trust, below the fleet's root.
pub const FOLDER: &str = "trust";
/// The one file in it.
pub const FILE: &str = "trust/policy.kdl";

words! {
    /// What a principal is.
    PrincipalKind {
        /// A person: the only kind whose approval counts.
        Human = "human",
        /// A program with a key of its own: it may propose.
        Service = "service",
        /// The key with which a forge signs merges: it stands for nobody.
        Forge = "forge",
    }
}

words! {
    /// What became of a key.
    Revocation {
        /// It signs no more; what it signed stays good.
        Retired = "retired",
        /// Somebody else had it: what it signed after a commit does not count.
        Compromised = "compromised",
    }
}

/// The format of policies that is read.
pub const FORMAT: u64 = 1;
/// The words for destructive work, as batches have them.
pub const COMMANDS: [&str; 4] = ["node.reboot", "gpu.reset", "node.reimage", "disk.wipe"];
/// The classes of keys that a tier may ask for.
pub const KEY_CLASSES: [&str; 4] = ["ed25519", "sk-ed25519", "ecdsa-p256", "rsa"];

/// A policy as it is written.
#[derive(Debug, Clone)]
pub struct PolicyDocument {
    /// Counts the policies of a fleet, from 1, without a gap.
    pub epoch: Located<u64>,
    /// The digest of the policy before; none in the first one.
    pub prev: Option<Located<Digest>>,
    /// Destructive commands without a batch that a node takes in an hour.
    pub unbatched_destructive_per_hour: Option<Located<u32>>,
    /// Who there is.
    pub principals: BTreeMap<Name, Located<PrincipalDocument>>,
    /// Who may change which paths, by pattern.
    pub paths: BTreeMap<String, Located<PathDocument>>,
    /// Classes of destructive work, the least harmful first.
    pub tiers: Vec<(Name, Located<TierDocument>)>,
    /// Who changes this file.
    pub trust: Located<RuleDocument>,
    /// Who vouches for changes of others, a forge's merges among them.
    pub change: Option<Located<RuleDocument>>,
    /// Who accepts that a history was rewritten.
    pub reseal: Option<Located<RuleDocument>>,
    /// Who may revoke a key.
    pub revoke: Option<Located<RuleDocument>>,
    /// Who signs releases and images.
    pub releases: Option<Located<RuleDocument>>,
    /// The emergency tier.
    pub breakglass: Option<Located<TierDocument>>,
    /// What became of keys, by the key's name.
    pub revoked: BTreeMap<String, Located<RevokedDocument>>,
}

/// A principal as it is written.
#[derive(Debug, Clone)]
pub struct PrincipalDocument {
    /// What it is.
    pub kind: Located<PrincipalKind>,
    /// What it may do, by words that rules name.
    pub roles: Vec<Located<Name>>,
    /// What it belongs to, by words that tiers name.
    pub groups: Vec<Located<Name>>,
    /// Its SSH keys, as lines of `.pub` files.
    pub keys: Vec<Located<String>>,
    /// Its OpenPGP keys: fingerprint and exported block.
    pub openpgp: BTreeMap<String, Located<String>>,
}

/// A path rule as it is written.
#[derive(Debug, Clone)]
pub struct PathDocument {
    /// Who may.
    pub roles: Vec<Located<Name>>,
    /// Statements of others that a change needs, whoever signs it.
    pub changes: Option<Located<u32>>,
}

/// Who does something, and how many of them it takes.
#[derive(Debug, Clone)]
pub struct RuleDocument {
    /// Who may.
    pub roles: Vec<Located<Name>>,
    /// How many different people it takes.
    pub threshold: Located<u32>,
}

/// A tier as it is written.
#[derive(Debug, Clone)]
pub struct TierDocument {
    /// What is done in it.
    pub commands: Vec<Located<String>>,
    /// Who may approve.
    pub roles: Vec<Located<Name>>,
    /// How many different people it takes.
    pub threshold: Located<u32>,
    /// Of these groups so many: one person fills one slot.
    pub groups: BTreeMap<String, Located<u32>>,
    /// Whose approval does not count in it.
    pub exclude: Vec<Located<Name>>,
    /// Classes of keys that an approval is signed with; any when it is empty.
    pub keys: Vec<Located<String>>,
    /// Machines that one batch has at most.
    pub max_nodes: Located<u32>,
    /// How long an approval holds at most.
    pub max_ttl: Located<Duration>,
}

/// A revocation as it is written.
#[derive(Debug, Clone)]
pub struct RevokedDocument {
    /// What became of the key.
    pub state: Located<Revocation>,
    /// The last commit that it signed for its owner; when there is none, nothing that it signed counts.
    pub since: Option<Located<String>>,
    /// Why, for people.
    pub reason: Option<Located<String>>,
}

/// How words for destructive work are read that this version does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// As mistakes: whoever writes a policy means a word that there is.
    Refused,
    /// As words: a machine may be older than its policy, and follows it all the same.
    Kept,
}

/// What a file turned out to be.
#[derive(Debug, Clone)]
pub struct PolicyRead {
    /// The format that it names, when it is a later one than this version reads.
    pub later_format: Option<u64>,
    /// The policy's document; `None` when any diagnostic is an error.
    pub document: Option<PolicyDocument>,
    /// Everything that was found, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The text, for quoting.
    pub sources: SourceMap,
}

/// Reads a policy. It never aborts: what is nested too deeply, too long or not text is a diagnostic.
#[must_use]
pub fn read(path: &str, bytes: &[u8], unknown: Unknown) -> PolicyRead {
    let file: Arc<str> = path.into();
    let mut found = Vec::new();
    let most = usize::try_from(super::Sources::MAX_FILE_BYTES).unwrap_or(usize::MAX);
    if bytes.len() > most {
        let at = SourceRef::start_of(Arc::clone(&file));
        let message = format!("the file has {} KiB, and at most {} KiB are read", bytes.len() >> 10, most >> 10);
        found.push(Diagnostic::new(diagnostic::codes::FILE_TOO_LARGE, &at, message));
        let sources = SourceMap::default();
        return PolicyRead { later_format: None, document: None, diagnostics: found, sources };
    }
    let parsed = parse::parse_anywhere(bytes, Syntax::Kdl);
    found.extend(parsed.attach(&file));
    let text = Arc::clone(&parsed.text);
    let later_format = decode::format(&parsed.objects).filter(|format| *format > FORMAT);
    let document = if parsed.whole && !found.iter().any(Diagnostic::is_error) {
        let mut findings = Findings::new(Arc::clone(&file), &text, &mut found);
        decode::policy(parsed.objects, unknown, &mut findings)
    } else {
        None
    };
    diagnostic::sort(&mut found);
    let sound = !found.iter().any(Diagnostic::is_error);
    let sources = [(file, text)].into_iter().collect();
    PolicyRead { later_format, document: document.filter(|_| sound), diagnostics: found, sources }
}
