//! One connection: dials, opens the stream, passes frames both ways, and ends with one reason.

use proto::{
    MAX_FRAME_BYTES,
    agent::v1::{NodeFrame, gateway_frame, node_frame, session_client::SessionClient},
};
use rustls::ClientConfig;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use crate::dial::{Endpoint, dial};

const UP: usize = 64;

/// What a connection says to the loop; `number` tells connections apart.
#[derive(Debug)]
pub(super) struct LinkEvent {
    pub(super) number: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Frame(Box<gateway_frame::Frame>),
    Down(String),
}

/// A connection that is being opened or is open.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    up: mpsc::Sender<NodeFrame>,
    task: AbortHandle,
}

impl Link {
    pub(super) fn open(
        tasks: &mut JoinSet<()>,
        number: u64,
        endpoint: Endpoint,
        tls: ClientConfig,
        events: mpsc::Sender<LinkEvent>,
    ) -> Self {
        let (up, frames) = mpsc::channel(UP);
        let task = tasks.spawn(async move {
            let reason = match carry(number, &endpoint, tls, frames, &events).await {
                Ok(()) => "the gateway ended the session".to_owned(),
                Err(reason) => reason,
            };
            events.send(LinkEvent { number, what: What::Down(reason) }).await.ok();
        });
        Self { number, up, task }
    }

    /// Hands a frame over. Whether there was room: a gateway that takes nothing for so long is as good as gone.
    pub(super) fn send(&self, frame: node_frame::Frame) -> bool {
        self.up.try_send(NodeFrame { frame: Some(frame) }).is_ok()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    number: u64,
    endpoint: &Endpoint,
    tls: ClientConfig,
    frames: mpsc::Receiver<NodeFrame>,
    events: &mpsc::Sender<LinkEvent>,
) -> Result<(), String> {
    let channel = dial(endpoint, tls).await.map_err(|error| error.to_string())?;
    let said = |status: &tonic::Status| match status.code() {
        tonic::Code::Unknown | tonic::Code::Unavailable | tonic::Code::Internal | tonic::Code::Cancelled => {
            format!("{endpoint}: the connection was lost: {}", status.message())
        }
        code => format!("{endpoint}: {code}: {}", status.message()),
    };
    let mut client = SessionClient::new(channel).max_decoding_message_size(MAX_FRAME_BYTES);
    let mut down = client.open(ReceiverStream::new(frames)).await.map_err(|status| said(&status))?.into_inner();
    while let Some(frame) = down.next().await {
        let Some(frame) = frame.map_err(|status| said(&status))?.frame else { continue };
        if events.send(LinkEvent { number, what: What::Frame(Box::new(frame)) }).await.is_err() {
            break;
        }
    }
    Ok(())
}
