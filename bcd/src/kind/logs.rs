//! `logs.collect`: the system journal and what the daemon says of itself, in one bundle that never outgrows its limit.
//!
//! Collected piece by piece into a directory of its own; the oldest pieces of a log make room for its newest. The bundle
//! is uploaded to where the command says, or stays in the state directory, which keeps a few of them.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use schema::command::{
    Reason,
    payload::{LogsCollect, Upload},
    result::{LogBundle, LogPart},
};

use super::{Machine, failed, failed_with, succeeded};
use crate::command::{Context, Outcome, Stop};

mod archive;
mod sources;
mod tail;
mod upload;

use archive::Archive;
use sources::{Collected, Source};

/// Bundles that stay on the machine.
const KEPT: usize = 3;
/// What the machine keeps free in any case.
const RESERVE: u64 = 256 * 1024 * 1024;

/// Why no bundle came to be.
enum Trouble {
    Stop(Stop),
    Io(&'static str, io::Error),
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

fn doing(what: &'static str) -> impl FnOnce(io::Error) -> Trouble {
    move |error| Trouble::Io(what, error)
}

pub(super) fn run(machine: &Machine, context: &Context, payload: &LogsCollect) -> Result<Outcome, Stop> {
    let (path, mut bundle) = match collect(machine, context, payload) {
        Ok(done) => done,
        Err(Trouble::Stop(stop)) => return Err(stop),
        Err(Trouble::Io(what, error)) => return Ok(failed(Reason::FAILED, format!("{what}: {error}"))),
    };
    if let Some(destination) = &payload.upload {
        return send(context, &path, bundle, destination);
    }
    bundle.path = Some(path.display().to_string());
    Ok(succeeded(&bundle))
}

/// Uploads a bundle. It goes from the machine when it is there.
fn send(context: &Context, path: &Path, mut bundle: LogBundle, to: &Upload) -> Result<Outcome, Stop> {
    context.effect("upload")?;
    match upload::put(context, path, bundle.bytes, &to.url) {
        Ok(()) => {
            bundle.uploaded = true;
            bundle.object.clone_from(&to.object);
            fs::remove_file(path).ok();
            Ok(succeeded(&bundle))
        }
        Err(upload::Failure::Stop(stop)) => Err(stop),
        Err(upload::Failure::Refused(why)) => {
            bundle.path = Some(path.display().to_string());
            let message = format!("{why}; the bundle stays on the machine, in {}", path.display());
            Ok(failed_with(Reason::UPLOAD_FAILED, message, &bundle))
        }
    }
}

/// Removes what was collected, however the work ends.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn collect(machine: &Machine, context: &Context, payload: &LogsCollect) -> Result<(PathBuf, LogBundle), Trouble> {
    let dir = machine.state.path().join("bundles");
    let private = |path: &Path| fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    private(&dir).map_err(doing("making the directory for bundles"))?;
    // Whoever reads the result stands elsewhere.
    let dir = dir.canonicalize().map_err(doing("finding the directory for bundles"))?;
    tidy(&dir).map_err(doing("tidying the bundles"))?;
    let id = context.order().body.id;
    let scratch = Scratch(dir.join(format!("{id}.parts")));
    private(&scratch.0).map_err(doing("making a directory for the parts"))?;

    let budget = budget(&dir, payload);
    let sources = sources::of(machine, context, payload);
    let share = budget.saturating_sub(archive::overhead(sources.len()));
    let mut left = share;
    let mut parts: Vec<(LogPart, Vec<PathBuf>)> = Vec::new();
    // What is small and about the daemon comes first; what is left is the whole journal's.
    for (place, source) in sources.iter().enumerate() {
        context.go_on()?;
        let cap = if matches!(source, Source::Program { whole: false, .. }) { left / 4 } else { left };
        let into = scratch.0.join(place.to_string());
        private(&into).map_err(doing("making a directory for a part"))?;
        let Collected { part, pieces } = sources::collect(machine, context, source, &into, cap)?;
        left = left.saturating_sub(archive::padded(part.bytes));
        parts.push((part, pieces));
    }

    let path = dir.join(format!("{id}.tar"));
    let file = new(&path).map_err(doing("making the bundle"))?;
    let mut archive = Archive::new(file, context.now());
    for (part, pieces) in &parts {
        archive.begin(&part.name, part.bytes).map_err(doing("writing the bundle"))?;
        for piece in pieces {
            context.go_on().inspect_err(|_| drop(fs::remove_file(&path)))?;
            archive.piece(&fs::read(piece).map_err(doing("reading a part"))?).map_err(doing("writing the bundle"))?;
            fs::remove_file(piece).ok();
        }
        archive.end().map_err(doing("writing the bundle"))?;
    }
    let (bytes, digest) = archive.finish().map_err(doing("writing the bundle"))?;
    let parts: Vec<LogPart> = parts.into_iter().map(|(part, _)| part).collect();
    let truncated = parts.iter().any(|part| part.left_out > 0);
    Ok((path, LogBundle { bytes, digest, truncated, parts, path: None, uploaded: false, object: None }))
}

/// What the bundle may have: as said, and no more than the disk can spare for it and for its parts.
fn budget(dir: &Path, payload: &LogsCollect) -> u64 {
    let destination = payload.upload.as_ref().and_then(|upload| upload.max_bytes).unwrap_or(u64::MAX);
    let free =
        nix::sys::statvfs::statvfs(dir).map_or(u64::MAX, |fs| fs.blocks_available().saturating_mul(fs.fragment_size()));
    payload.max_bytes.min(destination).min(free.saturating_sub(RESERVE) / 2)
}

/// Removes what an interrupted collection left and the oldest bundles, so that there is room for one more.
fn tidy(dir: &Path) -> io::Result<()> {
    let mut bundles = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "tar") {
            bundles.push(path);
        }
    }
    // Ids are in the order of their commands.
    bundles.sort();
    let surplus = (bundles.len() + 1).saturating_sub(KEPT);
    bundles[..surplus].iter().try_for_each(fs::remove_file)
}

/// A file for the owner only, in place of one that an earlier run of the same command left.
fn new(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests;
