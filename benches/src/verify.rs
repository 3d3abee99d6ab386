//! From a pinned anchor to the tip of a history in which everybody signed: once from the anchor, once more when all of it was
//! verified before, and once with one commit more.
//!
//! The limit reads the same commits and verifies as many signatures, and does nothing else. The targets are those of the design:
//! 10,000 commits in three seconds, and nothing again.

use std::{io::Write, path::Path};

use anyhow::{Context as _, Result, anyhow, ensure};
use pki::trust::{
    commit::Commit,
    object::{ObjectFormat, ObjectId},
    service::{ServiceKey, ServiceKeys, Unsigned},
    signature::signer,
    walk::{self, Verified, Walk},
};
use reconciler::source::{Repo, resolve};
use schema::time::Timestamp;

use crate::{
    Options,
    measure::{Line, Target, Turns, median, sizes, table, timed},
    repository,
};

/// 32 bytes of which the key is made, in base64.
const SEED: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
/// Seconds that 10,000 commits may take.
const MOST_SECONDS: f64 = 3.0;

/// The key with which everything is signed.
fn key() -> Result<ServiceKey> {
    let seed = serde_json::json!([SEED]);
    serde_json::from_value::<ServiceKeys>(seed)?.iter().next().context("a key")
}

/// A policy that lets one person change everything but what others have to see.
fn policy(key: &ServiceKey) -> String {
    format!(
        "policy {{\n  format 1\n  epoch 1\n}}\nprincipal \"ada\" {{\n  kind \"human\"\n  roles \"admin\"\n  key \"{}\"\n}}\n\
         path \"**\" {{ roles \"admin\"; }}\ntrust {{ roles \"admin\"; threshold 1; }}\n\
         change {{ roles \"admin\"; threshold 1; }}\n",
        key.line()
    )
}

/// A history of a fleet in which each commit changes one machine, all of it signed but the root; the branch `main`, packed.
/// Answers the anchor: the first commit that is signed.
fn make(dir: &Path, nodes: usize, commits: usize) -> Result<ObjectId> {
    let key = key()?;
    repository::changes(dir, nodes, commits, ("trust/policy.kdl".to_owned(), policy(&key)))?;
    let repo = gix::open_opts(dir, gix::open::Options::isolated())?;
    let (mut trees, mut at) = (Vec::new(), Some(repo.rev_parse_single("main")?.detach()));
    while let Some(id) = at {
        let raw = repo.find_object(id)?.detach().data;
        let commit = gix::objs::CommitRef::from_bytes(&raw, id.kind())?;
        trees.push(ours(commit.tree())?);
        at = commit.parents().next();
        if at.is_none() {
            trees.pop();
            trees.push(ours(id)?);
        }
    }
    let (mut parent, mut anchor) = (trees.pop().context("a root")?, None);
    for tree in trees.into_iter().rev() {
        let (by, message) = ("ada <ada@bench.example>", "a machine\n");
        let raw = key.commit(&Unsigned { tree, parent, by, at: Timestamp::UNIX_EPOCH, message })?;
        let written = gix::objs::Write::write_buf(&repo, gix::objs::Kind::Commit, &raw);
        parent = ours(written.map_err(|error| anyhow!("a commit is not written: {error}"))?)?;
        anchor.get_or_insert(parent);
    }
    repository::git(dir, &["update-ref", "refs/heads/main", &parent.to_string()])?;
    repository::git(dir, &["repack", "-a", "-d", "-q"])?;
    anchor.context("a commit")
}

fn ours(id: gix::ObjectId) -> Result<ObjectId> {
    id.to_string().parse().map_err(|_| anyhow!("{id} is no name"))
}

/// Reads every commit and verifies who signed it; how many there were.
fn limit(dir: &Path) -> Result<usize> {
    let keys = [key()?.public()];
    let repo = gix::open_opts(dir, gix::open::Options::isolated())?;
    let (mut at, mut count) = (repo.rev_parse_single("main")?.detach(), 0);
    loop {
        let raw = repo.find_object(at)?.detach().data;
        let commit = Commit::split(ObjectFormat::Sha1, &raw)?;
        if signer(&commit, &keys).is_err() {
            return Ok(count);
        }
        count += 1;
        at =
            gix::objs::CommitRef::from_bytes(&raw, at.kind())?.parents().next().context("a root that nobody signed")?;
    }
}

/// From the anchor, or from what was verified before, to a commit.
fn product(dir: &Path, anchor: ObjectId, tip: &str, after: Option<&Verified>) -> Result<(Verified, usize)> {
    let repo = Repo::open(dir)?;
    let tip = resolve(&repo, tip)?.parse().map_err(|_| anyhow!("a tip"))?;
    let asked =
        Walk { branch: "main", tip, anchor: Some(anchor), after, known: None, statements: &[], now: None, beyond: 0 };
    let walked = walk::walk(&repo.trust_history(""), &asked)?.map_err(|stuck| anyhow!("stuck: {stuck}"))?;
    if let Some((judged, refusal)) = walked.refused() {
        anyhow::bail!("{} does not count: {refusal}", judged.id);
    }
    let judged = walked.commits.len();
    Ok((walked.reached.context("a commit that counts")?, judged))
}

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    sizes("verify: a signed history", options, out, |nodes, out| size(options, nodes, out))
}

fn size(options: &Options, nodes: usize, out: &mut impl Write) -> Result<bool> {
    let place = tempfile::tempdir().context("a temporary folder")?;
    let dir = place.path();
    let anchor = make(dir, nodes, options.commits)?;
    let (mut turns, mut again, mut more) = (Turns::default(), Vec::new(), Vec::new());
    for _ in 0..options.pairs.max(1) {
        let (count, probe) = timed(|| limit(dir));
        let (all, cold) = timed(|| product(dir, anchor, "main", None));
        let (all, judged) = all?;
        ensure!(judged == count?, "every commit is judged");
        let (before, _) = product(dir, anchor, "main~1", None)?;
        let (warm, nothing) = timed(|| product(dir, anchor, "main", Some(&all)));
        ensure!(warm?.1 == 0, "nothing is judged again");
        let (one, step) = timed(|| product(dir, anchor, "main", Some(&before)));
        ensure!(one?.1 == 1, "one commit is judged");
        turns.probe.push(probe.as_secs_f64());
        turns.product.push(cold.as_secs_f64());
        again.push(nothing.as_secs_f64());
        more.push(step.as_secs_f64());
    }
    let cold = median(turns.product.iter().copied());
    let most = MOST_SECONDS * options.commits as f64 / 10_000.0;
    let ms = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
    let lines = [
        Line::alone("from the anchor, seconds", format!("{cold:.2} s"), cold, most),
        Line {
            what: "beside who signed it alone",
            product: ms(cold),
            probe: ms(median(turns.probe.iter().copied())),
            value: turns.ratio(),
            target: Target::AtMost(5.0),
        },
        Line::alone("nothing more, ms", ms(median(again.iter().copied())), 1e3 * median(again), 50.0),
        Line::alone("one commit more, ms", ms(median(more.iter().copied())), 1e3 * median(more), 50.0),
    ];
    table(out, &format!("{} commits, {nodes} machines", options.commits), &lines)?;
    turns.verdict(out)
}
