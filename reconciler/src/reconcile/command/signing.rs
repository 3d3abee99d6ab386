//! Signing commands: many at a time, outside any transaction.

use std::sync::Arc;

use schema::{id::CommandId, time::Timestamp};
use store::{
    Db, DbError, Role,
    commands::{self, Unsigned},
    poke::Poke,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::{SpecSigner, nodespec::encode_signature};

/// Signatures as they are stored, in the order of the ids.
pub(super) fn sign_all(signer: &dyn SpecSigner, waiting: &[Unsigned], now: Timestamp) -> Vec<(CommandId, Vec<u8>)> {
    let mut signed: Vec<(CommandId, Vec<u8>)> = waiting
        .iter()
        .map(|command| (command.id, encode_signature(signer.sign_command(command.node_id, &command.body, now))))
        .collect();
    signed.sort_unstable_by_key(|(id, _)| *id);
    signed
}

/// Signs commands as soon as they are committed, in the process that committed them. It holds no truth: what it does not
/// sign the `command` reconciler does.
#[derive(Debug, Clone)]
pub struct FastSigner {
    waiting: mpsc::Sender<Unsigned>,
    db: Db,
}

/// So many wait here at most, and so many are signed at a time.
const MOST: usize = 4_096;
const AT_ONCE: usize = 256;

impl FastSigner {
    /// A signer, and the loop that does its work until it is cancelled.
    pub fn new(db: Db, signer: Arc<dyn SpecSigner>, cancel: CancellationToken) -> (Self, impl Future<Output = ()>) {
        let (waiting, commands) = mpsc::channel(MOST);
        (Self { waiting, db: db.clone() }, run(db, signer, commands, cancel))
    }

    /// A command that was just committed. When there is no room the reconciler is poked for it.
    pub async fn committed(&self, command: Unsigned) {
        if self.waiting.try_send(command).is_err() {
            self.db.poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn run(db: Db, signer: Arc<dyn SpecSigner>, mut commands: mpsc::Receiver<Unsigned>, cancel: CancellationToken) {
    let mut waiting = Vec::new();
    loop {
        waiting.clear();
        tokio::select! {
            () = cancel.cancelled() => return,
            taken = commands.recv_many(&mut waiting, AT_ONCE) => if taken == 0 { return },
        }
        if let Err(error) = put_down(&db, &*signer, &waiting).await {
            tracing::debug!(commands = waiting.len(), %error, "commands are left to the reconciler to sign");
            db.poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn put_down(db: &Db, signer: &dyn SpecSigner, waiting: &[Unsigned]) -> Result<(), DbError> {
    let now = db.now().await?;
    let signed = sign_all(signer, waiting, now);
    let mut txn = db.begin().await?;
    commands::sign(&mut txn, &signed).await?;
    txn.commit().await
}
