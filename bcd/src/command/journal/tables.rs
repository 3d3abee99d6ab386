//! What stands in the journal's file: its tables, and what is read out of each.

use redb::{ReadableTable as _, TableDefinition, WriteTransaction};
use schema::{
    command::{Lane, UpdateState},
    digest::Digest,
    id::CommandId,
    time::Timestamp,
};

use super::{Entry, JournalError, Marks};
use crate::command::quorum::{Clocks, Spent, Toll};

pub(super) const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
pub(super) const ENTRIES: TableDefinition<'_, [u8; 16], &[u8]> = TableDefinition::new("entries");
pub(super) const BODIES: TableDefinition<'_, [u8; 16], &[u8]> = TableDefinition::new("bodies");
/// What began outside of batches: at which second by the proven time, and by the machine's clock.
pub(super) const ALLOWANCE: TableDefinition<'_, [u8; 16], (i64, i64)> = TableDefinition::new("allowance");
/// Since when this journal knows everything, as far as the time is proven.
pub(super) const SINCE: &str = "since";
pub(super) const UPDATES: TableDefinition<'_, [u8; 16], (&[u8], &[u8])> = TableDefinition::new("updates");
/// Approvals that were used up, and by which command: one that is here is never used again.
pub(super) const CONSUMED: TableDefinition<'_, [u8; 32], [u8; 16]> = TableDefinition::new("consumed");

/// Where the mark of a lane stands.
pub(super) fn mark_of(lane: Lane) -> String {
    format!("mark:{lane}")
}

/// What was taken, as it is written down; a journal from before that was begun says what it still holds.
pub(super) fn marks(read: &redb::ReadTransaction, entries: &[Entry]) -> Result<Marks, JournalError> {
    let meta = read.open_table(META)?;
    let mut marks = Marks::default();
    for lane in Lane::ALL {
        let kept = meta.get(mark_of(*lane).as_str())?.and_then(|mark| mark.value().parse().ok());
        let of_lane = entries.iter().filter(|entry| entry.row().is_some_and(|row| row.lane == *lane));
        // A refusal took no place in a lane.
        let took =
            of_lane.filter(|entry| entry.ended.as_ref().is_none_or(|ended| ended.state != UpdateState::Rejected));
        marks[lane.index()] = kept.or_else(|| took.map(|entry| entry.seq).max()).unwrap_or(0);
    }
    Ok(marks)
}

fn clocks((now, wall): (i64, i64)) -> Clocks {
    let at = |second| Timestamp::from_second(second).unwrap_or(Timestamp::MIN);
    Clocks { now: at(now), wall: at(wall) }
}

/// What was used up, as it is written down.
pub(super) fn spent(read: &redb::ReadTransaction) -> Result<Spent, JournalError> {
    let id = |bytes: [u8; 16]| CommandId::from_uuid(uuid::Uuid::from_bytes(bytes));
    let mut spent = Spent::default();
    for row in read.open_table(CONSUMED)?.iter()? {
        let (used, by) = row?;
        spent.uses.insert(Digest::from_bytes(used.value()), id(by.value()));
    }
    // A journal from before there were any has no such table.
    match read.open_table(ALLOWANCE) {
        Ok(table) => {
            for row in table.iter()? {
                spent.unbatched.push(clocks(row?.1.value()));
            }
        }
        Err(redb::TableError::TableDoesNotExist(_)) => {}
        Err(error) => return Err(error.into()),
    }
    spent.since = read.open_table(META)?.get(SINCE)?.and_then(|since| since.value().parse().ok());
    Ok(spent)
}

/// Writes down that a command pays.
pub(super) fn pay(write: &WriteTransaction, by: CommandId, toll: &Toll, at: Clocks) -> Result<(), JournalError> {
    let by = by.as_uuid().into_bytes();
    for used in toll.uses() {
        write.open_table(CONSUMED)?.insert(used.as_bytes(), by)?;
    }
    if let Toll::Unbatched { .. } = toll {
        let mut allowance = write.open_table(ALLOWANCE)?;
        allowance.retain(|_, then| !at.is_an_hour_after(clocks(then)))?;
        // A name that comes again within the hour is another beginning.
        let place = if allowance.get(by)?.is_some() { CommandId::generate().as_uuid().into_bytes() } else { by };
        allowance.insert(place, (at.now.as_second(), at.wall.as_second()))?;
    }
    Ok(())
}

/// Writes down what is known of a command.
pub(super) fn put(write: &WriteTransaction, entry: &Entry) -> Result<(), JournalError> {
    write.open_table(ENTRIES)?.insert(entry.id.as_uuid().into_bytes(), entry.to_bytes().as_slice())?;
    Ok(())
}

/// What is known of every command.
pub(super) fn all(read: &redb::ReadTransaction) -> Result<Vec<Entry>, JournalError> {
    let table = read.open_table(ENTRIES)?;
    let entries = table.iter()?.map(|row| Entry::read(row?.1.value()));
    entries.collect()
}
