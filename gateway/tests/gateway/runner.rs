//! A node that does what it is told: it keeps a journal, answers a duplicate with the stored word, and goes from gateway to
//! gateway when its session ends.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use pki::verify::Validity;
use proto::agent::v1::{self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::{
    command::{CommandBody, UpdateState},
    id::CommandId,
};
use tokio::task::JoinHandle;

use crate::{
    node::{Node, Session},
    sessions::unwire,
};

/// The gateways that there are.
pub(crate) type Gateways = Arc<Mutex<Vec<SocketAddr>>>;

/// What a node has been told and has done.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The last word on each command.
    words: BTreeMap<CommandId, pb::CommandUpdate>,
    /// How often each command was run.
    pub(crate) ran: BTreeMap<CommandId, u32>,
    /// How often a command came that was known.
    pub(crate) duplicates: u32,
    pub(crate) sessions: u32,
    /// Commands twice in one session.
    pub(crate) twice: u32,
}

pub(crate) struct Runner {
    pub(crate) journal: Arc<Mutex<Journal>>,
    pub(crate) task: JoinHandle<()>,
}

/// Lives until it is aborted.
pub(crate) fn start(node: Node, gateways: Gateways) -> Runner {
    let journal = Arc::<Mutex<Journal>>::default();
    let task = tokio::spawn({
        let journal = Arc::clone(&journal);
        async move {
            let mut turn = 0;
            loop {
                let address = {
                    let gateways = gateways.lock().unwrap();
                    gateways.get(turn % gateways.len().max(1)).copied()
                };
                turn += 1;
                if let Some(address) = address
                    && let Some(session) = open(&node, address).await
                {
                    live(&node, session, &journal).await;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    });
    Runner { journal, task }
}

async fn open(node: &Node, address: SocketAddr) -> Option<Session> {
    let mut session = node.try_stream(address).await?;
    session.say(Up::Hello(node.hello())).await;
    match session.try_next().await {
        Some(Down::Welcome(_)) => Some(session),
        _ => None,
    }
}

async fn live(node: &Node, mut session: Session, journal: &Mutex<Journal>) {
    journal.lock().unwrap().sessions += 1;
    let mut seen = std::collections::BTreeSet::new();
    loop {
        match session.try_next().await {
            Some(Down::Command(command)) => {
                let body = CommandBody::read(&command.body).unwrap();
                let verifier = node.verifier.as_ref().unwrap();
                verifier
                    .command(node.id, &command.body, &unwire(command.signature), Validity::At(node.clock.now()))
                    .expect("what a gateway sends, the control plane signed");
                let known = {
                    let mut journal = journal.lock().unwrap();
                    journal.twice += u32::from(!seen.insert(body.id));
                    let known = journal.words.get(&body.id).cloned();
                    journal.duplicates += u32::from(known.is_some());
                    known
                };
                let word = match known {
                    Some(word) => word,
                    None => {
                        session.say(Up::CommandUpdate(node.update(body.id, UpdateState::Acked))).await;
                        session.say(Up::CommandUpdate(node.update(body.id, UpdateState::Running))).await;
                        let word = node.update(body.id, UpdateState::Succeeded);
                        let mut journal = journal.lock().unwrap();
                        *journal.ran.entry(body.id).or_default() += 1;
                        journal.words.insert(body.id, word.clone());
                        word
                    }
                };
                session.say(Up::CommandUpdate(word)).await;
            }
            Some(Down::Goodbye(_) | Down::Refused(_)) | None => return,
            Some(_) => {}
        }
    }
}
