//! In which order packs hold objects. Read in that order, what an object is packed as a difference from was read a moment before.

use gix::odb::pack::index;
use pki::trust::object;

use super::theirs;
use crate::source::Repo;

/// Packs that are asked: where there are more, they are small.
const MOST_PACKS: usize = 64;

/// The indexes of a repository's packs. They say in which order things are read, and nothing else.
pub(super) struct Packed(Vec<index::File>);

impl Packed {
    pub(super) fn of(repo: &Repo) -> Self {
        let folder = repo.inner.objects.store_ref().path().join("pack");
        let found = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let indexes = found.filter(|path| path.extension().is_some_and(|ending| ending == "idx"));
        let open = |path| index::File::at(path, repo.inner.object_hash()).ok();
        Self(indexes.take(MOST_PACKS).filter_map(open).collect())
    }

    /// Puts objects into the order in which they are packed; those that are not come first.
    pub(super) fn sort(&self, ids: &mut [object::ObjectId]) {
        ids.sort_by_cached_key(|id| self.place(*id));
    }

    /// Whether most of some objects are packed behind the one before.
    pub(super) fn rise(&self, ids: &[object::ObjectId]) -> bool {
        let places: Vec<_> = ids.iter().map(|id| self.place(*id)).collect();
        let rising = places.windows(2).filter(|pair| pair[0] < pair[1]).count();
        2 * rising > ids.len()
    }

    fn place(&self, id: object::ObjectId) -> Option<(usize, u64)> {
        let id = theirs(id).ok()?;
        let within = |pack: &index::File| Some(pack.pack_offset_at_index(pack.lookup(id)?));
        self.0.iter().enumerate().find_map(|(number, pack)| Some((number, within(pack)?)))
    }
}
