//! The file of the journal: made whole, opened with every page checked, kept aside when it cannot be trusted.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use redb::{Builder, ConcurrencyMode, Database, DatabaseError, ReadableDatabase as _, StorageError};
use schema::{id::JournalId, time::Timestamp};

use super::{
    Entry, Journal, JournalError, Marks,
    tables::{ALLOWANCE, BODIES, CONSUMED, ENTRIES, META, UPDATES, all, marks, spent},
};
use crate::{command::quorum::Spent, state::StateDir};

/// Its name in the state directory.
pub const FILE: &str = "journal.redb";
const FRESH: &str = "journal.redb.new";
const FORMAT: &str = "1";
const CACHE: usize = 512 * 1024;
/// Broken files that are kept; the last place is used again and again.
const ASIDE: u32 = 8;

/// How a journal came to be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It was there.
    Found,
    /// There was none.
    Fresh,
    /// There was one that cannot be trusted.
    Broken {
        /// What is wrong with it.
        why: String,
        /// Where it is kept.
        aside: String,
    },
}

/// An open journal, and what it holds.
#[derive(Debug)]
pub struct Opened {
    /// The journal.
    pub journal: Journal,
    /// Its entries.
    pub entries: Vec<Entry>,
    /// How it came to be open.
    pub begun: Begun,
}

pub(super) fn open(state: &StateDir, now: Timestamp) -> Result<Opened, JournalError> {
    let path = state.path().join(FILE);
    let begun = if path.exists() {
        match guarded(|| read_all(load(&path)?)) {
            Ok((id, database, entries, known)) => {
                let journal = Journal::new(state, id, database, &entries, known);
                return Ok(Opened { journal, entries, begun: Begun::Found });
            }
            Err(JournalError::Broken(why)) => Begun::Broken { why, aside: keep_aside(state, &path)? },
            Err(error) => return Err(error),
        }
    } else {
        Begun::Fresh
    };
    let (id, database) = create(state, now)?;
    Ok(Opened { journal: Journal::new(state, id, database, &[], Known::default()), entries: Vec::new(), begun })
}

/// Opens the store again after a write that failed.
pub(super) fn reopen(state: &StateDir) -> Result<Database, JournalError> {
    guarded(|| load(&state.path().join(FILE)))
}

pub(super) fn look(state: &StateDir) -> Result<Option<(JournalId, Vec<Entry>)>, JournalError> {
    let path = state.path().join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let read = || {
        let database = builder().open_read_only(&path).map_err(opening)?;
        let read = database.begin_read()?;
        Ok(Some((id_of(&read)?, all(&read)?)))
    };
    match guarded(read) {
        // A daemon that was killed left work for the next one, which only that one may do; a copy may be repaired by anybody.
        Err(JournalError::Store(error)) if matches!(*error, redb::Error::RepairAborted) => look_at_copy(&path),
        looked => looked,
    }
}

fn look_at_copy(path: &Path) -> Result<Option<(JournalId, Vec<Entry>)>, JournalError> {
    let bytes = fs::read(path).map_err(|source| JournalError::File { doing: "read it", source })?;
    guarded(|| {
        let memory = redb::backends::InMemoryBackend::new();
        redb::StorageBackend::set_len(&memory, bytes.len() as u64).map_err(broken)?;
        redb::StorageBackend::write(&memory, 0, &bytes).map_err(broken)?;
        let database = Builder::new().set_cache_size(CACHE).create_with_backend(memory).map_err(opening)?;
        let read = database.begin_read()?;
        Ok(Some((id_of(&read)?, all(&read)?)))
    })
}

fn broken(error: impl std::fmt::Display) -> JournalError {
    JournalError::Broken(error.to_string())
}

/// One process writes, and `bcd status` looks on.
fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_concurrency_mode(ConcurrencyMode::SingleWriter);
    builder
}

fn load(path: &Path) -> Result<Database, JournalError> {
    builder().set_check_integrity_on_open(true).open(path).map_err(opening)
}

/// What the store says when it opens a file, told apart: broken, taken, or the system's.
fn opening(error: DatabaseError) -> JournalError {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => JournalError::Locked,
        DatabaseError::UpgradeRequired(version) => JournalError::Broken(format!("it has format {version}")),
        DatabaseError::Storage(StorageError::Corrupted(what)) => JournalError::Broken(what),
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            JournalError::Broken(error.to_string())
        }
        error => JournalError::from(error),
    }
}

/// A file that was changed by something else may make the store panic.
fn guarded<T>(read: impl FnOnce() -> Result<T, JournalError>) -> Result<T, JournalError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(JournalError::Broken("it makes no sense".to_owned())))
}

/// What a journal knows besides its entries.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) marks: Marks,
    pub(super) spent: Spent,
}

fn read_all(database: Database) -> Result<(JournalId, Database, Vec<Entry>, Known), JournalError> {
    let read = database.begin_read()?;
    let (id, entries) = (id_of(&read)?, all(&read)?);
    let known = Known { marks: marks(&read, &entries)?, spent: spent(&read)? };
    read.open_table(BODIES)?;
    read.open_table(UPDATES)?;
    drop(read);
    Ok((id, database, entries, known))
}

fn id_of(read: &redb::ReadTransaction) -> Result<JournalId, JournalError> {
    let meta = read.open_table(META).map_err(|_| JournalError::Broken("it is no journal".to_owned()))?;
    let word = |name| Ok::<_, JournalError>(meta.get(name)?.map(|value| value.value().to_owned()).unwrap_or_default());
    let format = word("format")?;
    if format != FORMAT {
        return Err(JournalError::Broken(format!("it has format {format:?}")));
    }
    word("journal")?.parse().map_err(|_| JournalError::Broken("it has no id".to_owned()))
}

fn create(state: &StateDir, now: Timestamp) -> Result<(JournalId, Database), JournalError> {
    let file = |doing| move |source| JournalError::File { doing, source };
    let (fresh, path) = (state.path().join(FRESH), state.path().join(FILE));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(file("remove half of one")(error)),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(file("make it"))?;
    let id = JournalId::generate();
    let database = builder().create(&fresh).map_err(opening)?;
    let write = database.begin_write()?;
    {
        let mut meta = write.open_table(META)?;
        meta.insert("format", FORMAT)?;
        meta.insert("journal", id.to_string().as_str())?;
        meta.insert("begun", now.to_string().as_str())?;
        write.open_table(ENTRIES)?;
        write.open_table(BODIES)?;
        write.open_table(UPDATES)?;
        write.open_table(CONSUMED)?;
        write.open_table(ALLOWANCE)?;
    }
    write.commit()?;
    database.close().map_err(opening)?;
    File::open(&fresh).and_then(|made| made.sync_all()).map_err(file("sync it"))?;
    fs::rename(&fresh, &path).map_err(file("put it into place"))?;
    sync_directory(state)?;
    Ok((id, load(&path)?))
}

fn keep_aside(state: &StateDir, path: &Path) -> Result<String, JournalError> {
    let name = |number| format!("{FILE}.broken-{number}");
    let free = (1..ASIDE).find(|number| !state.path().join(name(*number)).exists()).unwrap_or(ASIDE);
    let aside = state.path().join(name(free));
    fs::rename(path, &aside).map_err(|source| JournalError::File { doing: "keep it aside", source })?;
    sync_directory(state)?;
    Ok(aside.display().to_string())
}

fn sync_directory(state: &StateDir) -> Result<(), JournalError> {
    File::open(state.path())
        .and_then(|directory| directory.sync_all())
        .map_err(|source| JournalError::File { doing: "sync its directory", source })
}
