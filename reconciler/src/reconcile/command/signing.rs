//! Signing commands: many at a time, outside any transaction. What only the control plane can say is said just before.

use std::sync::Arc;

use schema::{id::CommandId, time::Timestamp};
use store::{
    Db, DbError, Role, Txn,
    commands::{self, Unsigned},
    poke::Poke,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::{SpecSigner, nodespec::encode_signature};
use crate::logs::LogStore;

/// What a process signs with.
#[derive(Clone, Copy)]
pub(super) struct Signing<'a> {
    pub(super) signer: &'a dyn SpecSigner,
    pub(super) logs: Option<&'a LogStore>,
}

/// Signed commands, in the order of the ids.
#[derive(Debug, Default)]
pub(super) struct Signed {
    /// Bodies that were completed.
    bodies: Vec<(CommandId, Vec<u8>)>,
    /// Signatures as they are stored.
    signatures: Vec<(CommandId, Vec<u8>)>,
}

impl Signing<'_> {
    pub(super) fn all(self, waiting: &[Unsigned], now: Timestamp) -> Signed {
        let mut signed = Signed::default();
        for command in waiting {
            let completed = self.logs.and_then(|logs| logs.complete(command, now));
            let body = completed.as_deref().unwrap_or(&command.body);
            let signature = encode_signature(self.signer.sign_command(command.node_id, body, now));
            signed.signatures.push((command.id, signature));
            signed.bodies.extend(completed.map(|body| (command.id, body)));
        }
        signed.signatures.sort_unstable_by_key(|(id, _)| *id);
        signed.bodies.sort_unstable_by_key(|(id, _)| *id);
        signed
    }
}

impl Signed {
    /// Puts bodies and signatures down. A body is locked from here on, so that its signature is the one beside it.
    pub(super) async fn put_down(&self, txn: &mut Txn) -> Result<(), DbError> {
        if !self.bodies.is_empty() {
            commands::complete(txn, &self.bodies).await?;
        }
        commands::sign(txn, &self.signatures).await.map(drop)
    }
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
    pub fn new(
        db: Db,
        signer: Arc<dyn SpecSigner>,
        logs: Option<Arc<LogStore>>,
        cancel: CancellationToken,
    ) -> (Self, impl Future<Output = ()>) {
        let (waiting, commands) = mpsc::channel(MOST);
        let fast = Self { waiting, db: db.clone() };
        let run = async move { run(&db, Signing { signer: &*signer, logs: logs.as_deref() }, commands, cancel).await };
        (fast, run)
    }

    /// A command that was just committed. When there is no room the reconciler is poked for it.
    pub async fn committed(&self, command: Unsigned) {
        if self.waiting.try_send(command).is_err() {
            self.db.poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn run(db: &Db, signing: Signing<'_>, mut commands: mpsc::Receiver<Unsigned>, cancel: CancellationToken) {
    let mut waiting = Vec::new();
    loop {
        waiting.clear();
        tokio::select! {
            () = cancel.cancelled() => return,
            taken = commands.recv_many(&mut waiting, AT_ONCE) => if taken == 0 { return },
        }
        if let Err(error) = put_down(db, signing, &waiting).await {
            tracing::debug!(commands = waiting.len(), %error, "commands are left to the reconciler to sign");
            db.poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn put_down(db: &Db, signing: Signing<'_>, waiting: &[Unsigned]) -> Result<(), DbError> {
    let now = db.now().await?;
    let signed = signing.all(waiting, now);
    let mut txn = db.begin().await?;
    signed.put_down(&mut txn).await?;
    txn.commit().await
}
