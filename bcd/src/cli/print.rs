//! All that is printed: results to standard output, errors to standard error.
#![expect(clippy::print_stderr, reason = "the one module that prints")]

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
};

use pki::{
    statement::JoinIdentity,
    trust::{policy::Policy, statement::FleetId},
};
use schema::{
    digest::Digest,
    generation::Generation,
    time::{Moment, Timestamp},
};
use serde::Serialize;

use super::commands::{self, Commands};
use crate::{
    policies::Policies,
    state::{Contact, Daemon, Identity, Progress, RenewalTried},
};

/// How many commands `bcd status` shows.
const LAST: usize = 3;

/// Prints a text. Who reads no further has read enough; where it cannot be written at all, that is said.
pub(super) fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    if let Err(failure) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        && failure.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("bcd: standard output cannot be written: {failure}");
    }
}

/// Prints a document.
pub(super) fn json(document: &impl Serialize) {
    out(&format!("{}\n", serde_json::to_string_pretty(document).expect("results serialise")));
}

/// Prints an error with what is behind it, once each.
pub(super) fn error(error: &anyhow::Error) {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    eprintln!("bcd: {text}");
}

/// Prints who the machine is now.
pub(super) fn joined(identity: &Identity, state: &Path) {
    let who = &identity.identity;
    let pool = who.pool.as_deref().unwrap_or("no pool yet");
    out(&format!(
        "joined as {} ({}), pool {pool}\nidentity kept in {}\nnext: bcd run, with the same --root, --state and --hardware options\n",
        who.node_name,
        who.node_id,
        state.display()
    ));
}

/// Whose word on destructive commands counts here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct People {
    pub(super) fleet: FleetId,
    pub(super) epoch: u64,
    pub(super) digest: Option<Digest>,
    pub(super) revoked: Vec<String>,
    pub(super) halted: Option<String>,
}

impl People {
    pub(super) fn of(policies: &Policies) -> Self {
        Self {
            fleet: policies.trust().fleet,
            epoch: policies.epoch(),
            digest: policies.present().map(Policy::digest),
            revoked: policies.revoked().iter().cloned().collect(),
            halted: policies.halted().map(str::to_owned),
        }
    }

    fn lines(&self) -> Vec<String> {
        let policy = match self.digest {
            Some(digest) => format!("epoch {}, {digest}", self.epoch),
            None => "no policy has come yet; nothing destructive is done until one does".to_owned(),
        };
        let halted = self.halted.as_ref().map(|why| format!("nothing destructive is done: {why}"));
        let revoked = self.revoked.iter().map(|key| format!("revoked {key}"));
        [format!("fleet {}", self.fleet), policy].into_iter().chain(halted).chain(revoked).collect()
    }
}

/// What `bcd status` shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) identity: JoinIdentity,
    pub(super) endpoints: Vec<String>,
    pub(super) described: bool,
    pub(super) daemon: Daemon,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) certificate_ends: Option<Timestamp>,
    pub(super) contact: Contact,
    #[serde(skip)]
    pub(super) now: Timestamp,
    pub(super) people: Option<People>,
    pub(super) desired: Option<Generation>,
    pub(super) progress: Option<Progress>,
    pub(super) commands: Option<Commands>,
}

impl Status {
    fn session(&self) -> String {
        match (self.contact.session, self.contact.session_ended) {
            (Some(since), _) if matches!(self.daemon, Daemon::Running { .. }) => format!("since {}", Moment(since)),
            (None, Some(ended)) => format!("none since {}", Moment(ended)),
            (Some(_), _) => "none, for no daemon runs".to_owned(),
            (None, None) => "none yet".to_owned(),
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: &str| writeln!(text, "{name:<16}{value}").expect("a string takes text");
        row("node", &format!("{} ({})", self.identity.node_name, self.identity.node_id));
        row(
            "pool",
            &self.identity.pool.as_ref().map_or_else(|| "none yet".to_owned(), |pool| format!("{pool} when it joined")),
        );
        row("fleet", &format!("{} in {}", self.identity.fleet_id, self.identity.trust_domain));
        row("gateways", &self.endpoints.join(" "));
        if self.described {
            row("hardware", "described by a file");
        }
        match &self.people {
            None => row("trust", "no policy: destructive commands are not asked about"),
            Some(people) => people.lines().iter().for_each(|line| row("trust", line)),
        }
        row("daemon", &self.daemon.to_string());
        row("session", &self.session());
        if let Some(ends) = self.certificate_ends {
            let verb = if ends > self.now { "ends" } else { "ended" };
            row("certificate", &format!("{verb} {}", Moment(ends)));
        }
        match &self.contact.renewal {
            None => {}
            Some(RenewalTried { at, refused: None }) => row("renewal", &format!("renewed {}", Moment(*at))),
            Some(RenewalTried { at, refused: Some(why) }) => {
                row("renewal", &format!("refused since {}: {why}", Moment(*at)));
            }
        }
        if let Some(commands) = &self.commands {
            let open = commands.commands.iter().filter(|entry| entry.ended.is_none()).count();
            row("commands", &format!("{} in the journal, {open} of them open", commands.commands.len()));
            for entry in commands.commands.iter().take(LAST) {
                row("", &commands::words(entry));
            }
        }
        let Some(progress) = &self.progress else { return text };
        let desired = self.desired.unwrap_or_default();
        row("generation", &format!("desired {desired}, applied {}, observed {}", progress.applied, progress.observed));
        for (section, status) in &progress.sections {
            let reason = if status.reason.is_empty() { String::new() } else { format!(": {}", status.reason) };
            row(section.as_str(), &format!("{}{reason}", status.state));
        }
        for condition in &progress.conditions {
            row(&condition.kind, &format!("{} since {}", condition.message, Moment(condition.since)));
        }
        for entry in &progress.drift {
            let done = if entry.corrected { "put right" } else { "left alone" };
            row(
                "drift",
                &format!(
                    "{} ({}), {done}, {}x since {}",
                    entry.path,
                    entry.kind,
                    entry.times,
                    Moment(entry.first_seen)
                ),
            );
        }
        text
    }
}
