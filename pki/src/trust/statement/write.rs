//! From what is said to the message of a commit, in the one form that is read.

use std::fmt::Write as _;

use schema::{digest::Digest, name::Name};

use super::{Body, FleetId, RevokeReason, Statement, StatementRefusal, Under, Word};

impl Body {
    /// The word behind `bc-statement`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Batch { word: Word::Approve, .. } => "approve/v1",
            Self::Batch { word: Word::Reject, .. } => "reject/v1",
            Self::Batch { word: Word::Withdraw, .. } => "withdraw/v1",
            Self::Change { .. } => "change/v1",
            Self::Trust(_) => "trust/v1",
            Self::Possess(_) => "possess/v1",
            Self::Revoke { .. } => "revoke/v1",
            Self::Reseal { .. } => "reseal/v1",
            Self::Breakglass { .. } => "breakglass/v1",
        }
    }

    /// What it is about: statements of different people about one thing have one subject. The batch's name, the commit that a change
    /// follows, the epoch of a policy, the key, the tip before a rewritten history, or the digest of what an emergency allows.
    #[must_use]
    pub fn subject(&self) -> String {
        match self {
            Self::Batch { batch, .. } => batch.to_string(),
            Self::Change { base, .. } => base.to_string(),
            Self::Trust(step) | Self::Possess(step) => step.epoch.to_string(),
            Self::Revoke { key, .. } => key.clone(),
            Self::Reseal { old, .. } => old.to_string(),
            Self::Breakglass { .. } => {
                let (before, after) = self.fields();
                Digest::of(format!("{before}{after}")).short()
            }
        }
    }

    /// Its lines before the principal, and those behind the nonce.
    fn fields(&self) -> (String, String) {
        let mut before = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            writeln!(before, "{name}: {value}").expect("a text takes lines");
        };
        let mut after = String::new();
        let mut window = |from: Option<&schema::time::Timestamp>, until: &schema::time::Timestamp| {
            if let Some(from) = from {
                writeln!(after, "not-before: {from}").expect("a text takes lines");
            }
            writeln!(after, "expires: {until}").expect("a text takes lines");
        };
        match self {
            Self::Batch { batch, digest, plan_commit, tier, under, not_before, expires, .. } => {
                line("batch", batch);
                line("batch-digest", digest);
                line("plan-commit", plan_commit);
                line("tier", tier);
                under.lines(line);
                window(Some(not_before), expires);
            }
            Self::Change { branch, base, tree, under, expires } => {
                line("branch", branch);
                line("base", base);
                line("tree", tree);
                under.lines(line);
                window(None, expires);
            }
            Self::Trust(step) | Self::Possess(step) => {
                line("prev", &step.prev);
                line("next", &step.next);
                line("epoch", &step.epoch);
            }
            Self::Revoke { key, reason, last_good, trust_epoch } => {
                line("key", key);
                line("reason", &reason.as_str());
                line("last-good", last_good);
                line("trust-epoch", trust_epoch);
            }
            Self::Reseal { branch, old, new, under, expires } => {
                line("branch", branch);
                line("old", old);
                line("new", new);
                under.lines(line);
                window(None, expires);
            }
            Self::Breakglass { kinds, nodes, reason, under, not_before, expires } => {
                line("kinds", &kinds.join(","));
                line("nodes", &nodes.iter().map(Name::as_str).collect::<Vec<_>>().join(","));
                line("reason", reason);
                under.lines(line);
                window(Some(not_before), expires);
            }
        }
        (before, after)
    }
}

impl Under {
    fn lines(&self, mut line: impl FnMut(&str, &dyn std::fmt::Display)) {
        line("trust-epoch", &self.epoch);
        line("trust-digest", &self.digest);
    }
}

impl RevokeReason {
    /// The word in a statement.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::Compromised => "compromised",
        }
    }
}

impl Statement {
    /// What makes a statement unlike all others.
    #[must_use]
    pub fn fresh_nonce() -> [u8; 16] {
        crate::provider::random()
    }

    /// Says something.
    ///
    /// # Errors
    /// When a value has no form in a statement: a list that is not sorted, a time with parts of a second, a text of several lines.
    pub fn new(
        trust_domain: &str,
        fleet: FleetId,
        principal: Name,
        nonce: [u8; 16],
        body: Body,
    ) -> Result<Self, StatementRefusal> {
        let said =
            Self { trust_domain: trust_domain.to_owned(), fleet, principal, nonce, body, digest: Digest::of([]) };
        let read = Self::parse_message(&said.write(""))?;
        let same = read.trust_domain == said.trust_domain
            && (read.fleet, &read.principal, read.nonce) == (said.fleet, &said.principal, said.nonce)
            && read.body == said.body;
        if same { Ok(read) } else { Err(StatementRefusal::Frame) }
    }

    /// The message of a commit that says it, behind a line for people. A line that is empty, or none, is the kind.
    #[must_use]
    pub fn write(&self, line: &str) -> String {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = if line.is_empty() { self.body.kind() } else { line.as_str() };
        format!("{line}\n\n{}", self.block())
    }

    /// The block, which is the statement.
    #[must_use]
    pub fn block(&self) -> String {
        let Self { trust_domain, fleet, principal, nonce, body, .. } = self;
        let (before, after) = body.fields();
        let nonce = hex::encode(nonce);
        let head = format!("bc-statement: {}\ntrust-domain: {trust_domain}\nfleet: {fleet}\n", body.kind());
        format!("{head}{before}principal: {principal}\nnonce: {nonce}\n{after}")
    }

    /// The branch that it is pushed to. What lies there counts by its block and its signature, never by this name.
    #[must_use]
    pub fn reference(&self) -> String {
        let word = self.body.kind().split('/').next().expect("a word");
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '-' };
        let subject: String = self.body.subject().chars().map(plain).collect();
        let nonce = hex::encode(&self.nonce[..4]);
        format!("refs/heads/bc/statements/{word}/{subject}/{}/{nonce}", self.principal)
    }
}
