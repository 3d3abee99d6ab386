//! The answer of `fleet.status`, and its picture. Pure: a document and a moment in, text out.

use schema::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::wait::short;
use crate::{
    client::unreadable,
    command::{batches, holds::Held},
    exit::{During as _, Failure},
    output::{
        Output, Table,
        table::Cell,
        text::{Style, count, printable, printable_lines},
    },
};

/// What the control plane says of commits while nobody verifies them.
const UNVERIFIED: &str = "unverified";

/// What `fleet.status` answers, as far as people look at it. What a newer control plane adds is left alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Report {
    trust_domain: Option<String>,
    dev: Option<bool>,
    verification: Option<String>,
    trust: Option<Trust>,
    restored_at: Option<Timestamp>,
    pub(super) sources: Vec<Source>,
    pools: Vec<Pool>,
    nodes: Nodes,
    drift: Drift,
    joins: Joins,
    problems: Vec<Problem>,
    held: Held,
    batches: Vec<Value>,
    batch_asks: Vec<Value>,
    retained: Retained,
    unreadable: Vec<Value>,
}

/// What the fleet is pinned to, and how far it was verified from there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Trust {
    anchor: String,
    epoch: Option<u64>,
    verified: Option<String>,
    machines: Policies,
}

/// Machines by the policy that they believe, where that is not the one in force.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Policies {
    without: u64,
    behind: u64,
    apart: u64,
}

/// Objects that no file declares any more, and that are in force.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Retained {
    count: u64,
    first: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Nodes {
    connected: u64,
    unreachable: u64,
    lost: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Drift {
    drifted: u64,
    corrected: u64,
    reboot_required: u64,
}

/// A key that the control plane cannot finish, and why.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Problem {
    reconciler: String,
    key: String,
    node: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    since: Option<Timestamp>,
}

/// One repository.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Source {
    url: String,
    branch: String,
    path: String,
    /// The word of its state.
    pub(super) state: String,
    reason: Option<String>,
    since: Option<Timestamp>,
    /// The tip of the branch.
    pub(super) remote: Option<At>,
    verified: Option<At>,
    planned: Option<At>,
    /// What is in force.
    pub(super) applied: Option<At>,
    diagnostics: Value,
    rollback: Option<Rollback>,
}

/// The rollback that waits, was refused, or is in force.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rollback {
    revision: String,
    state: String,
    message: String,
    owner: String,
    reason: String,
}

impl Rollback {
    fn line(&self) -> String {
        let Self { revision, state, message, owner, reason } = self;
        printable(&match state.as_str() {
            "refused" => format!("rollback to {revision} refused: {message}"),
            "requested" => format!("rollback to {revision} waits to be carried out ({owner}: {reason})"),
            _ => format!("rolled back to {revision} ({owner}: {reason}); the next commit goes as always"),
        })
    }
}

/// A commit and since when a stage is there.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct At {
    /// The commit.
    pub(super) commit: String,
    at: Timestamp,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pool {
    name: String,
    total: u64,
    connected: u64,
    assigned: u64,
    converged: u64,
    revoked: u64,
    schedulable: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Joins {
    waiting: Vec<Join>,
    refused: Vec<Join>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Join {
    id: String,
    state: String,
    node_name: Option<String>,
    pool: Option<String>,
    message: Option<String>,
    updated_at: Option<Timestamp>,
}

impl Source {
    /// Whether the tip of the branch is in force.
    pub(super) fn is_ok(&self) -> bool {
        self.state == "ok"
    }
}

impl Report {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is in a form that this version does not know.
    pub(super) fn read(document: &Value) -> Result<Self, Failure> {
        Self::deserialize(document).during("the control plane's status is in a form that this version does not know")
    }

    /// Machines that can be waited for: one whose identity was revoked does not come back by itself.
    pub(super) fn expected(&self) -> u64 {
        self.pools.iter().map(|pool| pool.total.saturating_sub(pool.revoked)).sum()
    }

    /// Machines whose identity was revoked.
    pub(super) fn revoked(&self) -> u64 {
        self.pools.iter().map(|pool| pool.revoked).sum()
    }

    /// Machines that have observed what they should be.
    pub(super) fn converged(&self) -> u64 {
        self.pools.iter().map(|pool| pool.converged).sum()
    }

    /// Machines with a session.
    pub(super) fn connected(&self) -> u64 {
        self.pools.iter().map(|pool| pool.connected).sum()
    }

    /// The picture.
    pub(super) fn render(&self, output: &Output) -> String {
        let mut parts = vec![self.headline(output)];
        parts.extend(self.audit(output));
        parts.extend(self.restored(output));
        parts.extend(self.clocks(output));
        parts.extend(self.unreadable(output));
        parts.extend(self.trust.as_ref().map(|trust| trust.render(output)));
        let verified = self.verification.as_deref().is_some_and(|word| word != UNVERIFIED);
        parts.extend(self.sources.iter().map(|source| source.render(verified, output)));
        parts.push(self.pool_table(output));
        parts.extend(self.revoked_line(output));
        parts.extend(self.drift.render(output));
        parts.extend(self.batches(output));
        parts.extend(self.held(output));
        parts.extend(self.retained.render(output));
        parts.extend(self.join_table(output));
        parts.extend(self.problem_table(output));
        parts.join("\n\n")
    }

    fn headline(&self, output: &Output) -> String {
        let mut words = vec![format!("trust domain {}", printable(self.trust_domain.as_deref().unwrap_or("-")))];
        words.extend((self.dev == Some(true)).then(|| "dev (admits described hardware)".to_owned()));
        words.push(match self.verification.as_deref() {
            None | Some(UNVERIFIED) => format!("{UNVERIFIED} (better-compute trust init)"),
            Some(word) => printable(word),
        });
        words.push(count(self.nodes.connected, "session"));
        words.extend((self.nodes.unreachable > 0).then(|| format!("{} unreachable", self.nodes.unreachable)));
        words.extend((self.nodes.lost > 0).then(|| format!("{} lost", self.nodes.lost)));
        output.beside(words.into_iter().map(|word| (Style::Dim, word)))
    }

    /// What somebody wrote into the audit log, or beside its chain.
    fn audit(&self, output: &Output) -> Option<String> {
        let told = self.problems.iter().filter_map(|problem| {
            let title = problem.is_audit()?;
            let since = problem.since.map_or_else(String::new, |since| format!(", {}", output.ago(since)));
            let title = Style::Bad.paint(&format!("{title}{since}"), output.colour);
            let says = output.indented(&printable(problem.message.as_deref().unwrap_or_default()), "  ");
            let next = Style::Dim.paint("  `better-compute why audit` says more.", output.colour);
            Some(format!("{title}\n{says}\n{next}"))
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("\n\n"))
    }

    /// That the database is a backup of the last day, and what to do about it.
    fn restored(&self, output: &Output) -> Option<String> {
        let title = format!("the database was restored from a backup, {}", output.ago(self.restored_at?));
        let says = "What was done since that backup is undone: revoked machines, ended gateways and revoked tokens count again; holds, \
                    approvals, deletes and secrets are as they were. Do again what has to be.";
        let next = Style::Dim.paint("  `better-compute why database-restored` says more.", output.colour);
        let title = Style::Bad.paint(&title, output.colour);
        Some(format!("{title}\n{}\n{next}", output.indented(says, "  ")))
    }

    /// Hosts of the control plane whose clock is not PostgreSQL's.
    fn clocks(&self, output: &Output) -> Option<String> {
        let line = |problem: &Problem| {
            let text = format!("{}: {}", problem.key, problem.message.as_deref().unwrap_or_default());
            output.hanging(&printable(&text), "  ")
        };
        let lines: Vec<String> = self.problems.iter().filter(|problem| problem.is_clock()).map(line).collect();
        let title = Style::Bad.paint("clocks differ", output.colour);
        let next = Style::Dim.paint("  `better-compute why clock-apart` says more.", output.colour);
        (!lines.is_empty()).then(|| format!("{title}\n{}\n{next}", lines.join("\n")))
    }

    /// Rows that nobody reads, and that are left out of everything else.
    fn unreadable(&self, output: &Output) -> Option<String> {
        let rows = unreadable(&serde_json::json!({ "unreadable": self.unreadable }));
        let lines: Vec<String> = rows.iter().map(|row| output.hanging(row, "  ")).collect();
        let title = Style::Bad.paint("rows of the database that cannot be read", output.colour);
        (!lines.is_empty()).then(|| format!("{title}\n{}", lines.join("\n")))
    }

    fn pool_table(&self, output: &Output) -> String {
        let mut table = Table::new(&["pool", "converged", "connected", "assigned", "schedulable"]);
        for pool in &self.pools {
            let style = if pool.converged + pool.revoked == pool.total { Style::Good } else { Style::Attention };
            table.row([
                pool.name.as_str().into(),
                Cell::from(format!("{}/{}", pool.converged, pool.total)).style(style),
                pool.connected.to_string().into(),
                pool.assigned.to_string().into(),
                pool.schedulable.to_string().into(),
            ]);
        }
        if table.is_empty() { "no pools yet".to_owned() } else { table.render(output.width, output.colour) }
    }

    fn revoked_line(&self, output: &Output) -> Option<String> {
        let (count, verb) = match self.revoked() {
            0 => return None,
            1 => ("1 machine".to_owned(), "has"),
            many => (format!("{many} machines"), "have"),
        };
        let text = format!("{count} of these {verb} no identity (revoked), and nobody waits for them");
        Some(Style::Attention.paint(&text, output.colour))
    }

    /// Destructive work that waits for people or machines, and emergencies to look at.
    fn batches(&self, output: &Output) -> Option<String> {
        let mut lines: Vec<String> = self.batches.iter().filter_map(|batch| batches::line(batch, output)).collect();
        lines.extend(self.batch_asks.iter().map(|ask| batches::ask_line(ask, output)));
        let next = Style::Dim.paint("`better-compute batches` says more.", output.colour);
        (!lines.is_empty()).then(|| format!("batches\n  {}\n{next}", lines.join("\n  ")))
    }

    /// What keeps changes away now, and for whom they wait.
    fn held(&self, output: &Output) -> Option<String> {
        let lines = self.held.lines(8, output);
        let next = Style::Dim.paint("`better-compute holds` says more.", output.colour);
        (!lines.is_empty()).then(|| format!("held\n  {}\n{next}", lines.join("\n  ")))
    }

    fn join_table(&self, output: &Output) -> Option<String> {
        if self.joins.waiting.is_empty() && self.joins.refused.is_empty() {
            return None;
        }
        let mut table = Table::new(&["join", "state", "machine", "pool", "when", "reason"]).whole(&["join"]).words();
        for join in self.joins.waiting.iter().chain(&self.joins.refused) {
            let style = if join.state == "refused" { Style::Bad } else { Style::Attention };
            table.row([
                join.id.as_str().into(),
                Cell::from(join.state.as_str()).style(style),
                join.node_name.as_deref().unwrap_or("-").into(),
                join.pool.as_deref().unwrap_or("-").into(),
                join.updated_at.map_or_else(|| "-".to_owned(), |at| output.ago(at)).into(),
                join.message.as_deref().unwrap_or("-").into(),
            ]);
        }
        let next =
            Style::Dim.paint("`better-compute joins show JOIN` says more, and what would admit it.", output.colour);
        Some(format!("{}\n{next}", table.render(output.width, output.colour)))
    }

    fn problem_table(&self, output: &Output) -> Option<String> {
        let mut table = Table::new(&["waits", "since", "for"]).whole(&["waits"]).words();
        for problem in self.problems.iter().filter(|problem| problem.is_audit().is_none() && !problem.is_clock()) {
            let why = problem.message.as_deref().or(problem.reason.as_deref()).unwrap_or("-");
            table.row([
                problem.node.as_deref().unwrap_or(&problem.key).into(),
                problem.since.map_or_else(|| "-".to_owned(), |at| output.ago(at)).into(),
                why.into(),
            ]);
        }
        (!table.is_empty()).then(|| table.render(output.width, output.colour))
    }
}

impl Problem {
    /// What it is called at the top, where it is told that something of what happens is not proven.
    fn is_audit(&self) -> Option<&'static str> {
        match self.reason.as_deref().filter(|_| self.reconciler == "audit")? {
            "audit-altered" => Some("audit log stands still"),
            "audit-outside" => Some("audit log has lines that nothing proves"),
            _ => None,
        }
    }

    /// Whether it is told of at the top: one of two clocks is wrong, and everything goes by one of them.
    fn is_clock(&self) -> bool {
        self.reason.as_deref() == Some("clock-apart")
    }
}

impl Trust {
    fn render(&self, output: &Output) -> String {
        let verified = match (&self.verified, self.epoch) {
            (Some(commit), Some(epoch)) => format!("verified up to {}, policy of epoch {epoch}", short(commit)),
            _ => "nothing is verified yet".to_owned(),
        };
        let anchor = Style::Dim.paint(&format!("from the anchor {}", printable(short(&self.anchor))), output.colour);
        let style = if self.verified.is_some() { Style::Good } else { Style::Attention };
        let mut text = format!("trust  {} {anchor}", style.paint(&printable(&verified), output.colour));
        let Policies { without, behind, apart } = self.machines;
        let machines = [(without, "without a policy"), (behind, "behind"), (apart, "with another policy")];
        let machines: Vec<String> = machines
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{} {what}", count(number, "machine")))
            .collect();
        if !machines.is_empty() {
            let machines = Style::Attention.paint(&machines.join(" · "), output.colour);
            let next = Style::Dim.paint("`better-compute why node/NAME` says more.", output.colour);
            text.push_str(&format!("\n       {machines}; {next}"));
        }
        text
    }
}

impl Retained {
    fn render(&self, output: &Output) -> Option<String> {
        if self.count == 0 {
            return None;
        }
        let names = printable(&self.first.join(", "));
        let more = self.count.saturating_sub(self.first.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let next = "no file declares them; what they said last is in force. `better-compute plan --newest` has the lines that let them go.";
        let title = Style::Attention.paint("retained", output.colour);
        Some(format!("{title} {names}{more}\n{}", Style::Dim.paint(next, output.colour)))
    }
}

impl Drift {
    fn render(&self, output: &Output) -> Option<String> {
        let machines = |n: u64| count(n, "machine");
        let mut words = Vec::new();
        if self.drifted > 0 {
            let verb = if self.drifted == 1 { "has" } else { "have" };
            words.push((Style::Attention, format!("{} {verb} drifted", machines(self.drifted))));
        }
        if self.corrected > 0 {
            let text = format!("drift was put right on {} within the last hour", machines(self.corrected));
            words.push((Style::Dim, text));
        }
        if self.reboot_required > 0 {
            let verb = if self.reboot_required == 1 { "waits" } else { "wait" };
            let text = format!(
                "{} {verb} for a boot: what is staged is in effect from then on",
                machines(self.reboot_required)
            );
            words.push((Style::Attention, text));
        }
        if self.drifted + self.corrected > 0 {
            words.push((Style::Dim, "`better-compute drift` says more".to_owned()));
        }
        (!words.is_empty()).then(|| output.beside(words))
    }
}

impl Source {
    /// `verified` is whether commits are verified at all: where nobody looks, no row says that somebody did.
    fn render(&self, verified: bool, output: &Output) -> String {
        let since = self.since.map_or_else(String::new, |since| format!(", {}", output.ago(since)));
        let style = if self.is_ok() { Style::Good } else { Style::Bad };
        let mut lines = vec![format!(
            "{} {}",
            Style::Bold.paint(&printable(&self.place()), output.colour),
            style.paint(&format!("{}{since}", printable(&self.state)), output.colour)
        )];
        for (stage, at) in [
            ("remote", &self.remote),
            ("verified", &self.verified),
            ("planned", &self.planned),
            ("applied", &self.applied),
        ] {
            if stage == "verified" && !verified {
                continue;
            }
            let shown = at
                .as_ref()
                .map_or_else(|| "-".to_owned(), |at| format!("{}  {}", short(&at.commit), output.ago(at.at)));
            lines.push(format!("  {stage:<9} {}", printable(&shown)));
        }
        lines.extend(self.rollback.iter().map(|rollback| format!("  {}", rollback.line())));
        if let Some(reason) = &self.reason {
            lines.push(format!("\n{}", printable_lines(reason)));
        }
        if let Some(text) = self.diagnostics["text"].as_str() {
            lines.push(format!("\n{}", printable_lines(text.trim_end())));
        }
        let back = self.rollback.as_ref().is_some_and(|rollback| rollback.state == "done");
        if !self.is_ok() && self.applied.is_some() && !back {
            lines.push("\nThe applied commit stays in force; nothing was changed.".to_owned());
        }
        lines.join("\n")
    }

    fn place(&self) -> String {
        let path = if self.path.is_empty() { String::new() } else { format!(":{}", self.path) };
        format!("{}#{}{path}", self.url, self.branch)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Format;

    fn output() -> Output {
        Output { format: Format::Text, colour: false, width: Some(100), now: "2026-11-29T12:10:00Z".parse().unwrap() }
    }

    fn at(commit: &str, minute: u32) -> Value {
        json!({ "commit": commit.repeat(10), "at": format!("2026-11-29T12:{minute:02}:00Z") })
    }

    #[test]
    fn a_quiet_fleet_fits_on_a_few_lines() {
        let document = json!({
            "trustDomain": "bc.local", "dev": true, "verification": "unverified", "nodes": { "connected": 3 },
            "sources": [{ "url": "/srv/fleet", "branch": "main", "path": "", "state": "ok", "since": "2026-11-29T12:08:00Z",
                "remote": at("abcd", 8), "verified": at("abcd", 8), "planned": at("abcd", 8), "applied": at("abcd", 9) }],
            "pools": [{ "name": "h100", "total": 3, "connected": 3, "assigned": 3, "converged": 2, "schedulable": 3 }],
            "joins": { "waiting": [], "refused": [] },
        });
        insta::assert_snapshot!(Report::read(&document).unwrap().render(&output()));
    }

    #[test]
    fn the_first_line_fits_eighty_columns_and_no_word_of_it_is_lost() {
        for (dev, nodes) in
            [(false, json!({ "connected": 3 })), (true, json!({ "connected": 12_000, "lost": 1, "unreachable": 30 }))]
        {
            let document = json!({ "trustDomain": "gpu.north.example.org", "dev": dev, "verification": "unverified", "nodes": nodes });
            let report = Report::read(&document).unwrap();
            let narrow = report.headline(&Output { width: Some(80), ..output() });
            assert!(narrow.lines().count() > 1 && narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
            let whole = report.headline(&Output { width: None, ..output() });
            assert_eq!(narrow.replace('\n', " · "), whole);
        }
    }

    #[test]
    fn a_pinned_fleet_says_how_far_it_is_verified_who_is_behind_and_what_waits_for_people() {
        let document = json!({
            "trustDomain": "bc.local", "verification": "verified", "nodes": { "connected": 3 },
            "trust": { "anchor": "3f2a".repeat(10), "fleet": "f", "digest": "sha256:00", "epoch": 2, "verified": "abcd".repeat(10),
                "machines": { "without": 1, "behind": 2, "apart": 0 } },
            "sources": [{ "url": "/srv/fleet", "branch": "main", "path": "", "state": "ok", "since": "2026-11-29T12:08:00Z",
                "remote": at("abcd", 8), "verified": at("abcd", 8), "planned": at("abcd", 8), "applied": at("abcd", 9) }],
            "pools": [{ "name": "h100", "total": 3, "connected": 3, "assigned": 3, "converged": 3, "schedulable": 3 }],
            "batches": [{ "name": "kernel", "state": "proposed", "kind": "node.reboot", "why": "kernel 6.14", "origin": "document",
                "counts": { "machines": 3, "waiting": 3, "sent": 0, "succeeded": 0, "failed": 0, "left": 0 },
                "waitsFor": { "reason": "batch-approvals", "message": "it needs one more person with the role operator; ada said yes", "since": "2026-11-29T12:01:00Z" } }],
            "problems": [{ "reconciler": "audit", "key": "all", "state": "wait", "reason": "audit-altered",
                "message": "line 12 of the audit log is not what was chained: somebody changed it in the database; nothing is signed behind it.", "since": "2026-11-29T12:05:00Z" }],
        });
        insta::assert_snapshot!(Report::read(&document).unwrap().render(&output()));
    }

    #[test]
    fn a_host_whose_clock_is_another_than_postgresqls_is_told_of_at_the_top_and_once() {
        let document = json!({
            "problems": [{ "reconciler": "clock", "key": "vm/27471", "state": "wait", "reason": "clock-apart",
                "message": "the clock of its host is 20m behind PostgreSQL's", "since": "2026-11-29T12:09:50Z" }],
        });
        let text = Report::read(&document).unwrap().render(&output());
        let told = "clocks differ\n  vm/27471: the clock of its host is 20m behind PostgreSQL's\n  \
                    `better-compute why clock-apart` says more.";
        assert_eq!((text.matches(told).count(), text.matches("vm/27471").count()), (1, 1), "{text}");
    }

    #[test]
    fn a_restored_database_says_so_at_the_top_and_what_to_look_at() {
        let document = json!({ "restoredAt": "2026-11-29T09:10:00Z" });
        let text = Report::read(&document).unwrap().render(&output());
        assert!(text.contains("the database was restored from a backup, 3h ago\n"), "{text}");
        assert!(text.contains("revoked machines") && text.contains("why database-restored"), "{text}");
    }

    #[test]
    fn a_broken_commit_shows_why_and_that_nothing_changed() {
        let document = json!({
            "sources": [{ "url": "/srv/fleet", "branch": "main", "path": "eu", "state": "fleet-invalid", "reason": "1 error", "since": "2026-11-29T12:09:30Z",
                "rollback": { "revision": "rev_1", "state": "done", "owner": "ada", "reason": "chrony does not start" },
                "remote": at("beef", 9), "verified": at("beef", 9), "applied": at("abcd", 1),
                "diagnostics": { "commit": "beef", "left": 0, "text": "error[BC0203]: unknown key `sysclt`\n --> profiles/gpu-host.kdl:4:3\n  |\n4 |   sysclt {\n  |   ^^^^^^\n  = help: did you mean `sysctl`?\n\n1 error\n" } }],
            "held": { "items": [{ "subject": "pool/h100", "gate": "suspend", "by": "pool/h100", "source": "api", "owner": "bob", "reason": "benchmark", "active": true, "machines": 8 }],
                "quarantined": [{ "commit": "dead".repeat(10), "owner": "ada", "reason": "breaks chrony" }] },
            "problems": [{ "reconciler": "nodespec", "key": "node_1", "node": "fra1-r12", "state": "wait", "reason": "no-target", "message": "its pool has no target yet", "since": "2026-11-29T12:05:00Z" }],
            "drift": { "drifted": 2, "corrected": 1, "rebootRequired": 1 },
            "retained": { "count": 12, "first": ["node/fra1-r09", "pool/h100"] },
            "joins": { "waiting": [], "refused": [{ "id": "join_1", "state": "refused", "reason": "token-expired", "message": "the token has expired", "updatedAt": "2026-11-29T12:09:00Z" }] },
        });
        insta::assert_snapshot!(Report::read(&document).unwrap().render(&output()));
    }
}
