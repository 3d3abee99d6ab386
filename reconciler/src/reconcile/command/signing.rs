//! Signing commands: many at a time, outside any transaction. What only the control plane can say is said just before.
//!
//! What is not safe to run twice is signed for the journal that its machine has, as the machine last signed that: whoever keeps
//! such a command from it and sends it once the journal is lost is refused. A machine that never said that it looks for that gets
//! it as ever.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use schema::{
    command::CommandBody,
    id::{JournalId, NodeId},
    time::Timestamp,
};
use store::{
    Db, DbError, Dedicated, Role,
    commands::{self, Journal, Signed, Unsigned},
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
    /// Signs what can be: not what may not run twice, on a machine whose journal nobody knows yet.
    pub(super) fn all(self, waiting: &[Unsigned], journals: &Journals, now: Timestamp) -> Vec<Signed> {
        waiting.iter().filter_map(|command| self.one(command, journals, now)).collect()
    }

    fn one(self, command: &Unsigned, journals: &Journals, now: Timestamp) -> Option<Signed> {
        let (journal, completed) = match journals.of(command) {
            For::Any => (None, self.logs.and_then(|logs| logs.complete(command, now))),
            For::One(journal, body) => {
                (Some(journal), Some(CommandBody { journal: Some(journal), ..*body }.to_bytes()))
            }
            For::Unknown => return None,
        };
        let body = completed.as_deref().unwrap_or(&command.body);
        let signature = encode_signature(self.signer.sign_command(command.node_id, body, now));
        Some(Signed { id: command.id, body: completed, signature, journal })
    }
}

/// For which journal a command is signed.
#[derive(Debug, PartialEq, Eq)]
enum For {
    /// Every one: it is safe to run twice, or its machine looks for none.
    Any,
    /// This one; the body of the command beside it.
    One(JournalId, Box<CommandBody>),
    /// Its machine has signed no report yet.
    Unknown,
}

/// The journals of the machines that commands which may not run twice are for.
#[derive(Debug, Default)]
pub(super) struct Journals(HashMap<NodeId, Journal>);

impl Journals {
    pub(super) async fn read(db: &Db, waiting: impl Iterator<Item = &Unsigned>) -> Result<Self, DbError> {
        let once = waiting.filter(|command| runs_once(command).is_some());
        let nodes: BTreeSet<NodeId> = once.map(|command| command.node_id).collect();
        Ok(Self(commands::journals(db, &nodes).await?))
    }

    /// Whether it is known for which journal a command is.
    pub(super) fn know(&self, command: &Unsigned) -> bool {
        self.of(command) != For::Unknown
    }

    fn of(&self, command: &Unsigned) -> For {
        let Some(body) = runs_once(command) else { return For::Any };
        match self.0.get(&command.node_id) {
            None => For::Unknown,
            Some(Journal { id, binds: true }) => For::One(*id, Box::new(body)),
            Some(_) => For::Any,
        }
    }
}

/// Its body, when it may not run twice.
fn runs_once(command: &Unsigned) -> Option<CommandBody> {
    CommandBody::read(&command.body).ok().filter(|body| !body.kind.row().retry_safe)
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
/// One that it keeps, and one for what it asks seldom.
const OWN_CONNECTIONS: u32 = 2;
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
        // Hundreds of times a second when there is much to sign: nothing is planned again, and no other work is waited for.
        let own = db.planning_once(OWN_CONNECTIONS).dedicated();
        let run = async move { run(&own, Signing { signer: &*signer, logs: logs.as_deref() }, commands, cancel).await };
        (fast, run)
    }

    /// A command that was just committed. When there is no room the reconciler is poked for it.
    pub async fn committed(&self, command: Unsigned) {
        if self.waiting.try_send(command).is_err() {
            self.db.poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn run(db: &Dedicated, signing: Signing<'_>, mut commands: mpsc::Receiver<Unsigned>, cancel: CancellationToken) {
    let mut waiting = Vec::new();
    loop {
        waiting.clear();
        tokio::select! {
            () = cancel.cancelled() => return,
            taken = commands.recv_many(&mut waiting, AT_ONCE) => if taken == 0 { return },
        }
        if let Err(error) = db::in_time(PATIENCE, put_down(db, signing, &waiting)).await {
            tracing::debug!(commands = waiting.len(), %error, "commands are left to the reconciler to sign");
            db.pooled().poke([Poke::Work(Role::Controllers)]).await;
        }
    }
}

async fn put_down(db: &Dedicated, signing: Signing<'_>, waiting: &[Unsigned]) -> Result<(), DbError> {
    let now = db.now().await?;
    let journals = Journals::read(db.pooled(), waiting.iter()).await?;
    let signed = signing.all(waiting, &journals, now);
    commands::sign_alone(db, &signed).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use schema::{
        command::CommandKind,
        id::{BatchId, CommandId},
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_may_not_run_twice_is_for_one_journal_and_only_where_the_machine_looks_for_that() {
        let (node, id) = (NodeId::generate(), JournalId::generate());
        for kind in CommandKind::ALL.iter().copied() {
            for batch in [None, Some(BatchId::generate())] {
                let payload = match kind {
                    CommandKind::GpuReset => json!({ "gpus": ["GPU-1"] }),
                    CommandKind::DaemonUpgrade => json!({ "version": "1.2.3", "manifest": "bWFuaWZlc3Q=" }),
                    CommandKind::DiagDcgm => json!({ "level": 1 }),
                    _ => json!({}),
                };
                let body = CommandBody {
                    id: CommandId::generate(),
                    node_id: node,
                    kind,
                    seq: 1,
                    payload: kind.check_payload(&payload).expect("a payload"),
                    not_after: Timestamp::UNIX_EPOCH,
                    min_generation: None,
                    batch,
                    secrets: Vec::new(),
                    journal: None,
                };
                let command = Unsigned { id: body.id, node_id: node, body: body.to_bytes() };
                let known = |binds| Journals([(node, Journal { id, binds })].into());
                let (once, body) = (!kind.row().retry_safe, Box::new(body));
                assert_eq!(Journals::default().of(&command), if once { For::Unknown } else { For::Any }, "{kind}");
                assert_eq!(known(false).of(&command), For::Any, "{kind}: a daemon from before");
                assert_eq!(known(true).of(&command), if once { For::One(id, body) } else { For::Any }, "{kind}");
            }
        }
    }
}
