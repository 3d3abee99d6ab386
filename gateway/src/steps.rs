//! What nodes say about commands before their last word, and what was taken and never sent: written in batches.
//!
//! Of each command the newest step waits, so that what waits is bounded by what is in flight. A step that is lost with this
//! process is made good by the node's next word.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use schema::{
    cause::chain,
    generation::Epoch,
    id::{CommandId, NodeId},
};
use store::{
    Db, DbError,
    commands::{self, Progress},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    session::Claimed,
    writer::{self, Failure},
};

const PER_STATEMENT: usize = 512;

/// What waits to be written.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    steps: HashMap<CommandId, Progress>,
    unsent: HashMap<CommandId, (NodeId, Epoch)>,
}

impl Steps {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node said something.
    pub(crate) fn put(&self, step: Progress) {
        self.lock().steps.insert(step.id, step);
        self.wake.notify_one();
    }

    /// These were taken and never sent.
    pub(crate) fn release(&self, node_id: NodeId, epoch: Epoch, ids: impl IntoIterator<Item = CommandId>) {
        self.lock().unsent.extend(ids.into_iter().map(|id| (id, (node_id, epoch))));
        self.wake.notify_one();
    }

    /// The answer to a claim for which there is nobody any more. What was recalled may have been sent; the next session
    /// sends it again.
    pub(crate) fn give_back(&self, node_id: NodeId, epoch: Epoch, claimed: &Claimed) {
        if !claimed.recalled {
            self.release(node_id, epoch, claimed.commands.iter().map(|command| command.id));
        }
    }

    /// Writes what comes until it is cancelled.
    pub(crate) async fn run(&self, db: &Db, cancel: CancellationToken) {
        writer::run(PER_STATEMENT, writer::GATHERING, &self.wake, cancel, |most| self.write(db, most)).await;
    }

    /// Writes what still waits, as long as that works.
    pub(crate) async fn flush(&self, db: &Db) {
        writer::flush(PER_STATEMENT, |most| self.write(db, most)).await;
    }

    async fn write(&self, db: &Db, most: usize) -> Result<usize, Failure> {
        let steps: Vec<Progress> = {
            let mut waiting = self.lock();
            let steps = waiting.steps.extract_if(|_, _| true).take(most);
            steps.map(|(_, step)| step).collect()
        };
        if !steps.is_empty()
            && let Err(error) = writer::answer(commands::progress(db, &steps)).await
            && let Some(failure) = kept("steps of commands", steps.len(), &error, most)
        {
            let mut waiting = self.lock();
            for step in &steps {
                waiting.steps.entry(step.id).or_insert(*step);
            }
            return Err(failure);
        }
        let unsent: Vec<(CommandId, NodeId, Epoch)> = {
            let mut waiting = self.lock();
            let unsent = waiting.unsent.extract_if(|_, _| true).take(most);
            unsent.map(|(id, (node_id, epoch))| (id, node_id, epoch)).collect()
        };
        if !unsent.is_empty()
            && let Err(error) = writer::answer(commands::release(db, &unsent)).await
            && let Some(failure) = kept("commands that were not sent", unsent.len(), &error, most)
        {
            self.lock().unsent.extend(unsent.iter().map(|(id, node_id, epoch)| (*id, (*node_id, *epoch))));
            return Err(failure);
        }
        Ok(steps.len() + unsent.len())
    }
}

fn kept(what: &str, count: usize, error: &DbError, most: usize) -> Option<Failure> {
    let failure = Failure::of(error, most);
    match failure {
        Some(_) => tracing::warn!(count, error = %chain(error), "{what} wait for PostgreSQL"),
        None => tracing::error!(count, error = %chain(error), "{what} were not written"),
    }
    failure
}
