//! The journal: what this node knows of each command, in an embedded store that survives a kill at any instruction.
//!
//! Each call is one transaction, on disk (data and checksums, in two phases) when it returns. A write that fails, as on a
//! full disk, has not happened, and the next call tries again. The file is made beside its place and renamed, so that
//! there is never half of one; a file that cannot be trusted is kept aside, and another journal begins under another id.
//!
//! The journal says what was; [`super::desk`] decides what follows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, ReadableDatabase as _, WriteTransaction};
use schema::{
    command::Lane,
    id::{CommandId, JournalId},
    time::Timestamp,
};

use super::{
    fault,
    quorum::{Clocks, Spent, Toll},
};
use crate::state::StateDir;

mod entry;
mod error;
mod file;
mod tables;

use tables::{BODIES, ENTRIES, META, SINCE, UPDATES, all, mark_of, marks, pay, put, spent};

pub use entry::{Ended, Entry, Happened, Ran, Stored};
pub use error::JournalError;
pub use file::{Begun, FILE, Opened};

#[cfg(test)]
mod tests;

/// How many commands a journal remembers at most.
pub const MAX_ENTRIES: usize = 4096;
/// How many of these places only the control lane gets.
const RESERVED: usize = 256;
/// How many bytes of bodies and results a journal holds at most.
pub const MAX_BYTES: u64 = 256 * 1024 * 1024;
/// How many of these bytes only the control lane gets.
const RESERVED_BYTES: u64 = 16 * 1024 * 1024;
/// How many effects one command may write down.
pub const MAX_EFFECTS: usize = 256;

/// The highest number of a command that a journal ever took, by lane. What it forgets stays counted.
pub type Marks = [u64; Lane::ALL.len()];

/// The journal of one node. Shared by the loop and the lanes.
#[derive(Debug, Clone)]
pub struct Journal {
    id: JournalId,
    marks: Arc<Mutex<Marks>>,
    spent: Arc<Mutex<Spent>>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    state: StateDir,
    database: Option<Database>,
    closed: bool,
    count: usize,
    bytes: u64,
    marks: Arc<Mutex<Marks>>,
    spent: Arc<Mutex<Spent>>,
}

impl Journal {
    /// Opens the journal of a state directory, or begins one.
    ///
    /// # Errors
    /// When the file system refuses, or another process has it. A broken file is no error: [`Opened::begun`] says so.
    pub fn open(state: &StateDir, now: Timestamp) -> Result<Opened, JournalError> {
        file::open(state, now)
    }

    fn new(state: &StateDir, id: JournalId, database: Database, entries: &[Entry], known: file::Known) -> Self {
        let file::Known { marks, spent } = known;
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        let count = entries.len();
        let (marks, spent) = (Arc::new(Mutex::new(marks)), Arc::new(Mutex::new(spent)));
        let inner = Inner {
            state: state.clone(),
            database: Some(database),
            closed: false,
            count,
            bytes,
            marks: Arc::clone(&marks),
            spent: Arc::clone(&spent),
        };
        Self { id, marks, spent, inner: Arc::new(Mutex::new(inner)) }
    }

    /// What is in the journal of a state directory, while a daemon runs with it or not; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look(state: &StateDir) -> Result<Option<(JournalId, Vec<Entry>)>, JournalError> {
        file::look(state)
    }

    /// This life of the journal. Another one knows nothing of what happened in this one.
    #[must_use]
    pub const fn id(&self) -> JournalId {
        self.id
    }

    /// What it took, for Hello: a copy that was put back says less than the control plane heard. A disk that does not answer
    /// keeps nobody from asking.
    #[must_use]
    pub fn marks(&self) -> Marks {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was used up, for whoever asks before a command begins. What is in it is on disk.
    #[must_use]
    pub fn spent(&self) -> Arc<Mutex<Spent>> {
        Arc::clone(&self.spent)
    }

    /// The time is proven: from here on, at the latest, this journal knows everything.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn proven(&self, now: Timestamp) -> Result<(), JournalError> {
        // A time that was taken back does not stay.
        let known =
            || self.spent.lock().unwrap_or_else(PoisonError::into_inner).since.is_some_and(|since| since <= now);
        if known() {
            return Ok(());
        }
        let mut inner = self.lock();
        inner.write("proven", |write| {
            write.open_table(META)?.insert(SINCE, now.to_string().as_str())?;
            Ok(())
        })?;
        inner.spent().since = Some(now);
        Ok(())
    }

    /// Makes it another journal that knows the same: what it does not know is lost, and whoever opens it next has a new id.
    /// What it holds stays, so that nothing of that runs twice, whoever said that it is old.
    ///
    /// # Errors
    /// When it cannot be written: it is the same journal then.
    pub fn rename(&self) -> Result<JournalId, JournalError> {
        let id = JournalId::generate();
        self.lock().write("rename", |write| {
            let mut meta = write.open_table(META)?;
            meta.insert("journal", id.to_string().as_str())?;
            meta.remove(SINCE)?;
            Ok(())
        })?;
        Ok(id)
    }

    /// Writes down that a command was accepted. From here on it is this node's to answer for.
    ///
    /// # Errors
    /// When it cannot be kept: it is not accepted then.
    pub fn accept(&self, entry: &Entry, body: &[u8]) -> Result<(), JournalError> {
        self.insert("accept", entry, body, None)
    }

    /// Writes down that a command was refused or ended without having run, together with what the node says about it.
    ///
    /// # Errors
    /// When it cannot be kept: nothing was said then.
    pub fn refuse(&self, entry: &Entry, body: &[u8], said: &Stored) -> Result<(), JournalError> {
        self.insert("refuse", entry, body, Some(said))
    }

    fn insert(&self, step: &str, entry: &Entry, body: &[u8], said: Option<&Stored>) -> Result<(), JournalError> {
        let mut entry = entry.clone();
        // What never runs is never read again: its digest is enough.
        entry.bytes = said.map_or(body.len(), Stored::size) as u64;
        let mut inner = self.lock();
        // A write that said no may have been kept all the same.
        match (inner.entry(entry.id), said) {
            (Ok(kept), _) if kept.body != entry.body => return Err(JournalError::Over(entry.id)),
            // Other approvals came since, and it was judged anew.
            (Ok(kept), _)
                if kept.refused_approvals().is_some() && kept.refused_approvals() != entry.refused_approvals() =>
            {
                inner.forget(&[kept.id])?;
            }
            (Ok(kept), None) if kept.ended.is_none() => return Ok(()),
            (Ok(kept), Some(_)) if kept.ended.is_some() => return Ok(()),
            (Ok(kept), Some(said)) => return inner.settle(kept, entry.ended, said).map(drop),
            (Ok(_), None) => return Err(JournalError::Over(entry.id)),
            (Err(JournalError::Unknown(_)), _) => {}
            (Err(error), _) => return Err(error),
        }
        let lane = entry.row().map(|row| row.lane);
        let (places, bytes) = match lane {
            Some(Lane::Control) => (MAX_ENTRIES, MAX_BYTES),
            _ => (MAX_ENTRIES - RESERVED, MAX_BYTES - RESERVED_BYTES),
        };
        if inner.count >= places || inner.bytes + entry.bytes > bytes {
            return Err(JournalError::Full);
        }
        let mark = lane.filter(|lane| said.is_none() && entry.seq > inner.marks()[lane.index()]);
        inner.write(step, |write| {
            let id = entry.id.as_uuid().into_bytes();
            put(write, &entry)?;
            match said {
                Some(said) => {
                    write.open_table(UPDATES)?.insert(id, (said.update.as_slice(), said.signature.as_slice()))?;
                }
                None => {
                    write.open_table(BODIES)?.insert(id, body)?;
                }
            }
            if let Some(lane) = mark {
                write.open_table(META)?.insert(mark_of(lane).as_str(), entry.seq.to_string().as_str())?;
            }
            Ok(())
        })?;
        inner.count += 1;
        inner.bytes += entry.bytes;
        if let Some(lane) = mark {
            inner.marks()[lane.index()] = entry.seq;
        }
        Ok(())
    }

    /// Writes down that a command begins, and in the same breath what it uses up. Begun again, it keeps the effects of the
    /// runs before.
    ///
    /// # Errors
    /// When it cannot be kept, or what it costs is used up: it does not begin then.
    pub fn start(&self, id: CommandId, at: Clocks, toll: &Toll) -> Result<Entry, JournalError> {
        let mut inner = self.lock();
        let mut entry = inner.entry(id)?;
        if entry.ended.is_some() {
            return Err(JournalError::Over(id));
        }
        // A write that said no may have been kept all the same: then this very entry has begun, and paid.
        let pays = entry.runs.is_empty();
        if pays {
            inner.spent().affords(toll, at).map_err(JournalError::Unpaid)?;
        }
        entry.runs.push(Ran { at: at.now, effects: Vec::new() });
        inner.write("start", |write| {
            if pays {
                pay(write, id, toll, at)?;
            }
            put(write, &entry)
        })?;
        if pays {
            inner.spent().pay(id, toll, at);
        }
        Ok(entry)
    }

    /// Writes down that something is about to be done to the machine.
    ///
    /// # Errors
    /// When it cannot be kept, or the command has ended meanwhile: it is not to be done then.
    pub fn effect(&self, id: CommandId, name: &str, now: Timestamp) -> Result<(), JournalError> {
        let effect = Happened { name: name.to_owned(), at: now };
        let change = |entry: &mut Entry| {
            if entry.effects().count() >= MAX_EFFECTS {
                return Err(JournalError::Full);
            }
            entry.runs.last_mut().ok_or(JournalError::Unknown(id))?.effects.push(effect);
            Ok(())
        };
        self.lock().change("effect", id, change).map(drop)
    }

    /// Writes down how a command ended and what the node says about it, exactly. The first end is the end.
    ///
    /// # Errors
    /// When it cannot be kept: nothing is said then.
    pub fn settle(&self, id: CommandId, ended: &Ended, said: &Stored) -> Result<Entry, JournalError> {
        let mut inner = self.lock();
        let entry = inner.entry(id)?;
        if entry.ended.is_some() {
            return Err(JournalError::Over(id));
        }
        inner.settle(entry, Some(ended.clone()), said)
    }

    /// What the node said about a command that has ended; `None` when it has not.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn said(&self, id: CommandId) -> Result<Option<Stored>, JournalError> {
        let mut inner = self.lock();
        let read = inner.database()?.begin_read()?;
        let found = read.open_table(UPDATES)?.get(id.as_uuid().into_bytes())?;
        Ok(found.map(|row| {
            let (update, signature) = row.value();
            Stored { update: update.to_vec(), signature: signature.to_vec() }
        }))
    }

    /// The exact bytes of a command's body.
    ///
    /// # Errors
    /// When it cannot be read, or is not there.
    pub fn body(&self, id: CommandId) -> Result<Vec<u8>, JournalError> {
        let mut inner = self.lock();
        let read = inner.database()?.begin_read()?;
        let found = read.open_table(BODIES)?.get(id.as_uuid().into_bytes())?;
        found.map(|row| row.value().to_vec()).ok_or(JournalError::Unknown(id))
    }

    /// Everything that is known, in the order of the commands' ids.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, JournalError> {
        let mut inner = self.lock();
        all(&inner.database()?.begin_read()?)
    }

    /// Forgets commands that nobody will ask about again.
    ///
    /// # Errors
    /// When it cannot be written: they are remembered then.
    pub fn forget(&self, ids: &[CommandId]) -> Result<(), JournalError> {
        self.lock().forget(ids)
    }

    /// Lets go of the file: whoever still holds this journal changes nothing any more.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.database = None;
    }

    /// As a disk that does not answer: nobody gets anything out of the journal or into it.
    #[cfg(test)]
    pub(crate) fn hang(&self) -> MutexGuard<'_, impl Sized> {
        self.lock()
    }

    /// As one that holds all it may.
    #[cfg(test)]
    pub(crate) fn fill(&self) {
        self.lock().count = MAX_ENTRIES;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn forget(&mut self, ids: &[CommandId]) -> Result<(), JournalError> {
        let (mut count, mut freed) = (0, 0);
        for id in ids {
            match self.entry(*id) {
                Ok(entry) => (count, freed) = (count + 1, freed + entry.bytes),
                Err(JournalError::Unknown(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.write("forget", |write| {
            let (mut entries, mut bodies, mut updates) =
                (write.open_table(ENTRIES)?, write.open_table(BODIES)?, write.open_table(UPDATES)?);
            for id in ids.iter().map(|id| id.as_uuid().into_bytes()) {
                entries.remove(id)?;
                bodies.remove(id)?;
                updates.remove(id)?;
            }
            Ok(())
        })?;
        self.count -= count;
        self.bytes -= freed;
        Ok(())
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open store. After a write that failed it is opened anew: what was committed is there, and nothing else.
    fn database(&mut self) -> Result<&Database, JournalError> {
        if self.closed {
            return Err(JournalError::Closed);
        }
        if self.database.is_none() {
            let database = file::reopen(&self.state)?;
            let read = database.begin_read()?;
            let entries = all(&read)?;
            *self.marks() = marks(&read, &entries)?;
            *self.spent() = spent(&read)?;
            self.count = entries.len();
            self.bytes = entries.iter().map(|entry| entry.bytes).sum();
            self.database = Some(database);
        }
        self.database.as_ref().ok_or(JournalError::Closed)
    }

    fn entry(&mut self, id: CommandId) -> Result<Entry, JournalError> {
        let read = self.database()?.begin_read()?;
        let found = read.open_table(ENTRIES)?.get(id.as_uuid().into_bytes())?;
        Entry::read(found.ok_or(JournalError::Unknown(id))?.value())
    }

    fn settle(&mut self, mut entry: Entry, ended: Option<Ended>, said: &Stored) -> Result<Entry, JournalError> {
        entry.ended = ended;
        entry.bytes += said.size() as u64;
        self.write("settle", |write| {
            let row = (said.update.as_slice(), said.signature.as_slice());
            write.open_table(UPDATES)?.insert(entry.id.as_uuid().into_bytes(), row)?;
            put(write, &entry)
        })?;
        self.bytes += said.size() as u64;
        Ok(entry)
    }

    fn change(
        &mut self,
        step: &str,
        id: CommandId,
        change: impl FnOnce(&mut Entry) -> Result<(), JournalError>,
    ) -> Result<Entry, JournalError> {
        let mut entry = self.entry(id)?;
        if entry.ended.is_some() {
            return Err(JournalError::Over(id));
        }
        change(&mut entry)?;
        self.write(step, |write| put(write, &entry))?;
        Ok(entry)
    }

    fn write(
        &mut self,
        step: &str,
        write: impl FnOnce(&WriteTransaction) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        fault::before(step);
        let written = self.database().and_then(|database| {
            fault::disk()?;
            let transaction = database.begin_write()?;
            write(&transaction)?;
            transaction.commit()?;
            Ok(())
        });
        match &written {
            Ok(()) => fault::after(step),
            // The store trusts itself no more after a write that failed.
            Err(JournalError::Store(_) | JournalError::Broken(_)) => self.database = None,
            Err(_) => {}
        }
        written
    }
}
