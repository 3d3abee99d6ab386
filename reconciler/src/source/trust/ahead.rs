//! Reading ahead: what a run of commits changes, before the walk asks for it. A pack keeps most folders and files as what they differ in
//! from another one: folders from a newer one, as git packs them, or from an older one, as a stream of commits comes in. Read in the
//! order of the pack, each costs one such difference; in the other one, a chain of up to fifty.

use std::{
    collections::{BTreeSet, HashMap},
    num::NonZero,
    sync::atomic::AtomicBool,
    thread,
    time::Instant,
};

use gix::ObjectId;
use pki::trust::{
    object,
    walk::{FileChange, History as _},
};

use super::{Seen, TrustHistory, packed::Packed};
use crate::source::Repo;

/// Changed files that are read ahead, and their bytes.
const MOST_FILES: usize = 65_536;
const MOST_BYTES: usize = 32 << 20;
/// Threads at once, and commits that are worth one.
const MOST_THREADS: usize = 8;
const FEWEST: usize = 64;

/// What was read before the walk asks for it.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The files that differ, by both trees.
    pub(super) changes: HashMap<(object::ObjectId, object::ObjectId), Vec<FileChange>>,
    /// The folders of trust, by tree.
    pub(super) trust: HashMap<object::ObjectId, Option<ObjectId>>,
    pub(super) files: HashMap<object::ObjectId, Option<Vec<u8>>>,
}

/// A repository for one thread, and how much it reads.
struct Reader<'r> {
    repo: Repo,
    folder: &'r [&'r str],
    stop: Option<(&'r AtomicBool, Instant)>,
    packed: &'r Packed,
    files: usize,
    bytes: usize,
}

impl Ahead {
    /// Reads what some trees change, each beside the one before it: every thread a part of them. What cannot be read is for later.
    pub(super) fn of(history: &TrustHistory<'_>, trees: &[object::ObjectId]) -> Self {
        let TrustHistory { repo, folder, stop, .. } = history;
        let (packed, stop) = (&Packed::of(repo), *stop);
        let mut pairs: Vec<&[object::ObjectId]> = trees.windows(2).collect();
        if !packed.rise(trees) {
            pairs.reverse();
        }
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        let threads = threads.min(pairs.len() / FEWEST).max(1);
        let (files, bytes) = (MOST_FILES / threads, MOST_BYTES / threads);
        thread::scope(|scope| {
            let read = |part| {
                let reader = Reader { repo: repo.again(), folder, stop, packed, files, bytes };
                thread::Builder::new().spawn_scoped(scope, move || reader.read(part)).ok()
            };
            let running: Vec<_> = pairs.chunks(pairs.len().div_ceil(threads).max(1)).map(read).collect();
            let mut all = Self::default();
            for part in running.into_iter().flatten().filter_map(|thread| thread.join().ok()) {
                all.changes.extend(part.changes);
                all.trust.extend(part.trust);
                all.files.extend(part.files);
            }
            all
        })
    }
}

impl Reader<'_> {
    fn read(&self, pairs: &[&[object::ObjectId]]) -> Ahead {
        let Self { repo, folder, stop, .. } = self;
        let history = TrustHistory { repo, folder: folder.to_vec(), stop: *stop, seen: Seen::default().into() };
        let mut read = Ahead::default();
        let mut files = BTreeSet::new();
        for pair in pairs {
            let (before, after) = (pair[0], pair[1]);
            let (Ok(folder), Ok(changes)) = (history.trust_folder(after), history.changes(before, after)) else {
                continue;
            };
            if files.len() + 2 * changes.len() > self.files {
                break;
            }
            files.extend(changes.iter().flat_map(|change| [change.after, change.before]).flatten());
            read.trust.insert(after, folder);
            read.changes.insert((before, after), changes);
        }
        let mut files: Vec<object::ObjectId> = files.into_iter().collect();
        self.packed.sort(&mut files);
        let mut bytes = 0;
        for id in files {
            if bytes > self.bytes {
                break;
            }
            let Ok(file) = history.file(id) else { continue };
            bytes += file.as_ref().map_or(0, Vec::len);
            read.files.insert(id, file);
        }
        read
    }
}
