//! Rows of sessions that begin: one transaction opens those of all that wait.
//!
//! While it runs others come, and they go with the next, so that a storm of reconnects costs few transactions and one
//! connection to the database. A row that somebody holds, or a wire that says nothing any more, costs its own session only: what
//! does not end soon is tried one by one.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schema::{cause::chain, id::NodeId};
use store::{
    Db, DbError,
    commands::{self, Back, Dispatch},
    sessions::{self, OpenError, Opened, SessionOpen},
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{
    pokes::Pokes,
    refusal::Refusal,
    writer::{self, Failure},
};

const PER_TRANSACTION: usize = 64;
/// How long one transaction may take.
const PATIENCE: Duration = Duration::from_secs(5);
pub(crate) const NO_DATABASE: Refusal = Refusal::Unavailable("the database is not reachable");

/// A row that is open, and what its node had in flight.
pub(crate) type Row = (Opened, Vec<Dispatch>);

/// Sessions whose row is to be opened, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    waiting: Mutex<VecDeque<Asked>>,
    wake: Notify,
}

#[derive(Debug)]
struct Asked {
    session: SessionOpen,
    /// The session is over: nothing need be opened any more.
    over: CancellationToken,
    answer: oneshot::Sender<Result<Row, Refusal>>,
}

impl Opens {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Asked>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the row of a session, unless the session is over before its turn comes.
    pub(crate) async fn open(&self, session: SessionOpen, over: CancellationToken) -> Result<Row, Refusal> {
        let (answer, answered) = oneshot::channel();
        self.lock().push_back(Asked { session, over, answer });
        self.wake.notify_one();
        answered.await.unwrap_or(Err(NO_DATABASE))
    }

    /// Opens what comes until it is cancelled.
    pub(crate) async fn run(&self, db: &Db, pokes: &Pokes, cancel: CancellationToken) {
        writer::run(PER_TRANSACTION, writer::GATHERING, &self.wake, cancel, |most| {
            self.answer(db, pokes, PATIENCE, most)
        })
        .await;
    }

    async fn answer(&self, db: &Db, pokes: &Pokes, patience: Duration, most: usize) -> Result<usize, Failure> {
        let asked = self.take(most);
        if asked.is_empty() {
            return Ok(0);
        }
        let sessions: Vec<SessionOpen> = asked.iter().map(|asked| asked.session.clone()).collect();
        let (mut rows, one_by_one) = match tokio::time::timeout(patience, open_rows(db, &sessions)).await {
            Ok(Ok(rows)) => (rows, false),
            Ok(Err(error)) => {
                tracing::warn!(sessions = asked.len(), error = %chain(&error), "sessions could not be opened");
                (Vec::new(), Failure::of(&error, most) == Some(Failure::Refused))
            }
            Err(_) => {
                tracing::warn!(sessions = asked.len(), "sessions could not be opened in time");
                (Vec::new(), most > 1)
            }
        };
        if one_by_one {
            let mut waiting = self.lock();
            asked.into_iter().rev().for_each(|asked| waiting.push_front(asked));
            return Err(Failure::Refused);
        }
        rows.resize_with(asked.len(), || Err(NO_DATABASE));
        let count = asked.len();
        for (asked, row) in asked.into_iter().zip(rows) {
            if row.as_ref().is_ok_and(|(opened, _)| opened.taken_over) {
                // The gateway that holds the node, as far as the database knows, looks at its row.
                pokes.put(asked.session.node_id);
            }
            asked.answer.send(row).ok();
        }
        Ok(count)
    }

    /// Some of those that wait, no two of the same node.
    fn take(&self, most: usize) -> Vec<Asked> {
        let mut waiting = self.lock();
        waiting.retain(|asked| !asked.over.is_cancelled());
        let mut nodes = HashSet::new();
        let (taken, left): (VecDeque<Asked>, VecDeque<Asked>) =
            waiting.drain(..).partition(|asked| nodes.len() < most && nodes.insert(asked.session.node_id));
        *waiting = left;
        taken.into()
    }
}

/// In the order of the sessions.
async fn open_rows(db: &Db, sessions: &[SessionOpen]) -> Result<Vec<Result<Row, Refusal>>, DbError> {
    let mut txn = db.begin().await?;
    let opened = sessions::open_all(&mut txn, sessions).await?;
    let back: Vec<Back> = sessions
        .iter()
        .zip(&opened)
        .filter_map(|(session, opened)| {
            let SessionOpen { node_id: node, boot_id: boot, journal_id: journal, .. } = *session;
            opened.as_ref().ok().map(|opened| Back { node, epoch: opened.epoch, boot, journal })
        })
        .collect();
    let mut replays: HashMap<NodeId, Vec<Dispatch>> =
        commands::resume_all(&mut txn, &back).await?.into_iter().collect();
    txn.commit().await?;
    let row = |(session, opened): (&SessionOpen, Result<Opened, OpenError>)| {
        let opened = opened.map_err(refusal)?;
        Ok((opened, replays.remove(&session.node_id).unwrap_or_default()))
    };
    Ok(sessions.iter().zip(opened).map(row).collect())
}

fn refusal(error: OpenError) -> Refusal {
    match error {
        // The certificates of a node go with it.
        OpenError::Unknown(_) | OpenError::Uncertified => Refusal::UnknownCertificate,
        OpenError::Retired => Refusal::NodeGone,
        OpenError::CertificateRevoked => Refusal::CertificateRevoked,
        OpenError::Replaced { .. } => Refusal::IdentityReplaced,
        OpenError::OldJournal => Refusal::JournalOld,
        OpenError::Db(error) => {
            tracing::warn!(error = %chain(&error), "a session could not be opened");
            NO_DATABASE
        }
    }
}

#[cfg(test)]
mod tests {
    use schema::id::{BootId, GatewayId, JournalId};
    use store::nodes;

    use super::*;

    fn ask(opens: &Opens, node_id: NodeId) -> (CancellationToken, oneshot::Receiver<Result<Row, Refusal>>) {
        let session = SessionOpen {
            node_id,
            gateway_id: GatewayId::generate(),
            boot_id: BootId::generate(),
            journal_id: JournalId::generate(),
            serial: vec![1],
            version: String::new(),
            described: false,
            commands: true,
            marks: None,
        };
        let (over, (answer, answered)) = (CancellationToken::new(), oneshot::channel());
        opens.lock().push_back(Asked { session, over: over.clone(), answer });
        (over, answered)
    }

    #[test]
    fn a_node_is_opened_once_at_a_time_in_the_order_of_its_streams_and_who_left_is_not() {
        let (opens, one, two) = (Opens::default(), NodeId::generate(), NodeId::generate());
        let held = [one, one, two, two].map(|node| ask(&opens, node));
        held[2].0.cancel();
        let nodes = |most| opens.take(most).iter().map(|asked| asked.session.node_id).collect::<Vec<_>>();
        assert_eq!(nodes(8), [one, two]);
        assert_eq!(nodes(8), [one]);
        assert!(nodes(8).is_empty());
    }

    #[tokio::test]
    async fn a_row_that_somebody_holds_costs_its_own_session_only() {
        let test = store::testing::TestDb::create().await;
        let (db, held, free) = (test.db(), NodeId::generate(), NodeId::generate());
        let mut txn = db.begin().await.expect("begin");
        for (id, name) in [(held, "held"), (free, "free")] {
            let row = nodes::NewNode::unknown(id, name.parse().expect("a name"));
            nodes::insert(&mut txn, &row).await.expect("inserted");
        }
        txn.commit().await.expect("commit");
        let mut txn = db.begin().await.expect("begin");
        nodes::lock(&mut txn, held).await.expect("locked");

        let (opens, pokes) = (Opens::default(), Pokes::default());
        let [(_held, of_held), (_free, of_free)] = [held, free].map(|node| ask(&opens, node));
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
        assert_eq!(opens.answer(db, &pokes, short, PER_TRANSACTION).await, Err(Failure::Refused));
        assert_eq!(opens.answer(db, &pokes, short, 1).await, Ok(1));
        assert_eq!(of_held.await.expect("answered").expect_err("refused"), NO_DATABASE);
        assert_eq!(opens.answer(db, &pokes, long, 1).await, Ok(1));
        assert_eq!(of_free.await.expect("answered").expect_err("refused"), Refusal::UnknownCertificate);
    }
}
