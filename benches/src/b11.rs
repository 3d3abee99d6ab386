//! B11, from git to a plan: a fleet that nobody read before, one of which ten files changed, and one that is the same.
//!
//! The limit of the cold case is 1.5 times what only reading the objects takes, with a tokeniser of 30 MB/s after it;
//! the limit of a change is 50 ms, however large the fleet.

use std::{io::Write, path::Path, process::Command};

use anyhow::{Context as _, Result};
use reconciler::{
    plan::{Observed, Planned, plan},
    source::{Blobs, Repo, read_tree_after, resolve},
};
use schema::{
    fleet::{Cache, Fleet},
    time::Timestamp,
};

use crate::{
    Options,
    measure::{Turns, median, memory_of, sizes, timed},
    repository, tokens,
};

/// What is remembered between commits, and what was made of the last one.
struct Reader {
    repo: Repo,
    blobs: Blobs,
    cache: Cache,
}

/// The parts of one run, in seconds.
#[derive(Debug, Clone, Copy)]
struct Parts {
    read: f64,
    load: f64,
    plan: f64,
}

impl Parts {
    fn total(self) -> f64 {
        self.read + self.load + self.plan
    }
}

impl Reader {
    fn open(dir: &Path) -> Result<Self> {
        Ok(Self { repo: Repo::open(dir)?, blobs: Blobs::default(), cache: Cache::default() })
    }

    /// From a branch to the plan of what it changes.
    fn plan(&mut self, branch: &str, observed: Option<&Observed>) -> Result<(Fleet, Option<Planned>, Parts)> {
        let (sources, read) = timed(|| {
            let commit = resolve(&self.repo, branch)?;
            read_tree_after(&self.repo, &commit, "", &mut self.blobs)
        });
        let sources = sources?;
        let (loaded, load) = timed(|| self.cache.load(&sources));
        let fleet = loaded.fleet.with_context(|| format!("the fleet has errors: {:?}", loaded.diagnostics.first()))?;
        let (planned, plan) = timed(|| observed.map(|observed| plan(&fleet, observed, Timestamp::UNIX_EPOCH)));
        let parts = Parts { read: read.as_secs_f64(), load: load.as_secs_f64(), plan: plan.as_secs_f64() };
        Ok((fleet, planned, parts))
    }
}

/// Reads every object of a branch and goes through its texts: seconds for the one and the other, and the bytes.
fn probe(dir: &Path, branch: &str) -> Result<(f64, f64, usize)> {
    let (texts, read) = timed(|| -> Result<Vec<Vec<u8>>> {
        let repo = gix::open_opts(dir, gix::open::Options::isolated())?;
        let commit = repo.rev_parse_single(branch)?.object()?.peel_to_commit()?;
        let mut folders = vec![commit.tree_id()?.detach()];
        let mut texts = Vec::new();
        while let Some(folder) = folders.pop() {
            let tree = repo.find_object(folder)?.detach();
            for entry in gix::objs::TreeRef::from_bytes(&tree.data, folder.kind())?.entries {
                if entry.mode.is_tree() {
                    folders.push(entry.oid.to_owned());
                } else {
                    texts.push(repo.find_object(entry.oid)?.detach().data);
                }
            }
        }
        Ok(texts)
    });
    let texts = texts?;
    let bytes = texts.iter().map(Vec::len).sum();
    let (_tokens, spent) =
        timed(|| texts.iter().map(|text| std::str::from_utf8(text).map_or(0, tokens::count)).sum::<usize>());
    Ok((read.as_secs_f64(), spent.as_secs_f64(), bytes))
}

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    sizes("B11 git → plan", options, out, |nodes, out| size(options, nodes, out))
}

fn size(options: &Options, nodes: usize, out: &mut impl Write) -> Result<bool> {
    let place = tempfile::tempdir().context("a temporary folder")?;
    let dir = place.path();
    repository::make(dir, nodes, options.yaml)?;
    let (base, ..) = Reader::open(dir)?.plan("first", None)?;
    let observed = Observed::from_fleet(&base);
    drop(base);

    let (mut cold, mut cold_parts, mut probes) = (Turns::default(), Vec::new(), Vec::new());
    for _ in 0..options.pairs.max(1) {
        let (read, tokens, bytes) = probe(dir, "first")?;
        let (_fleet, _planned, parts) = Reader::open(dir)?.plan("first", Some(&observed))?;
        cold.probe.push(read + tokens);
        cold.product.push(parts.total());
        cold_parts.push(parts);
        probes.push((read, tokens, bytes));
    }
    let (mut changed, mut same) = (Vec::new(), Vec::new());
    for _ in 0..options.pairs.max(1) {
        let mut reader = Reader::open(dir)?;
        let (_base, ..) = reader.plan("first", None)?;
        let (_fleet, planned, parts) = reader.plan("changed", Some(&observed))?;
        let moves = planned.map_or(0, |planned| planned.plan.counts.moves);
        anyhow::ensure!(moves == 10, "ten machines changed, and the plan moves {moves}");
        changed.push(parts);
        let (_fleet, _planned, parts) = reader.plan("same", None)?;
        same.push(parts);
    }
    let megabytes = probes.first().map_or(0.0, |probe| probe.2 as f64 / 1e6);
    writeln!(out, "\n{nodes} machines, {megabytes:.1} MB")?;
    let of = |one: fn(&(f64, f64, usize)) -> f64| 1e3 * median(probes.iter().map(one));
    let (read, tokens) = (of(|probe| probe.0), of(|probe| probe.1));
    writeln!(
        out,
        "  probe    {:8.1} ms  (objects {read:.1}, tokeniser {tokens:.1}: {:.0} MB/s), spread {:.2}",
        1e3 * median(cold.probe.iter().copied()),
        megabytes / tokens * 1e3,
        cold.spread()
    )?;
    say(out, "cold", &cold_parts)?;
    writeln!(out, "  ratio    {:8.2}     (target: at most 1.5)", cold.ratio())?;
    say(out, "changed", &changed)?;
    say(out, "same", &same)?;
    let child = Command::new(std::env::current_exe()?).arg("b11-memory").arg(dir).output()?;
    write!(out, "{}", String::from_utf8_lossy(&child.stdout))?;
    cold.verdict(out)
}

fn say(out: &mut impl Write, what: &str, parts: &[Parts]) -> Result<()> {
    let of = |one: fn(&Parts) -> f64| 1e3 * median(parts.iter().map(one));
    let (read, load, plan) = (of(|parts| parts.read), of(|parts| parts.load), of(|parts| parts.plan));
    let total = of(|parts| parts.total());
    writeln!(out, "  {what:8} {total:8.1} ms  (read {read:.1}, load {load:.1}, plan {plan:.1})")?;
    Ok(())
}

/// What this process takes for one fleet: after a cold plan, and after one of ten changes, with both fleets at hand.
pub(crate) fn memory(dir: &str, out: &mut impl Write) -> Result<()> {
    let mut reader = Reader::open(Path::new(dir))?;
    let (base, ..) = reader.plan("first", None)?;
    let observed = Observed::from_fleet(&base);
    let mebibytes = |name| memory_of(std::process::id(), name) / 1024.0;
    let cold = mebibytes("VmRSS:");
    let (_fleet, _planned, _parts) = reader.plan("changed", Some(&observed))?;
    writeln!(
        out,
        "  memory   {cold:>5.0} MiB resident after cold, {:.0} MiB after a change, most {:.0} MiB",
        mebibytes("VmRSS:"),
        mebibytes("VmHWM:")
    )?;
    Ok(())
}
