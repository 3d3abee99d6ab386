//! Signing commands: many at a time, outside any transaction. What only the control plane can say is said just before.

use std::{sync::Arc, time::Duration};

use schema::time::Timestamp;
use store::{
    Db, DbError, Role,
    commands::{self, Signed, Unsigned},
    db,
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

impl Signing<'_> {
    pub(super) fn all(self, waiting: &[Unsigned], now: Timestamp) -> Vec<Signed> {
        let sign = |command: &Unsigned| {
            let completed = self.logs.and_then(|logs| logs.complete(command, now));
            let body = completed.as_deref().unwrap_or(&command.body);
            let signature = encode_signature(self.signer.sign_command(command.node_id, body, now));
            Signed { id: command.id, body: completed, signature }
        };
        waiting.iter().map(sign).collect()
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
/// How long signing so many may take.
const PATIENCE: Duration = Duration::from_secs(20);

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
        if let Err(error) = db::in_time(PATIENCE, put_down(db, signing, &waiting)).await {
            tracing::debug!(commands = waiting.len(), %error, "commands are left to the reconciler to sign");
            db.poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn put_down(db: &Db, signing: Signing<'_>, waiting: &[Unsigned]) -> Result<(), DbError> {
    let now = db.now().await?;
    let signed = signing.all(waiting, now);
    let mut txn = db.begin().await?;
    commands::sign(&mut txn, &signed).await?;
    txn.commit().await
}
