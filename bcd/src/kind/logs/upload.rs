//! One PUT of a file to a presigned URL. The URL is a key to its place: no message ever holds it.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    pin::Pin,
    task::{Context as Wakes, Poll},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::command::{Context, Stop};

const PIECE: usize = 256 * 1024;
const CONNECT: Duration = Duration::from_secs(20);

/// Why the file is not there.
pub(super) enum Failure {
    /// The command is to stop.
    Stop(Stop),
    /// The destination did not take it; why, for people.
    Refused(String),
}

/// A file that is read as it is sent. It says its length, which presigned places want to know beforehand.
struct Content {
    file: File,
    left: u64,
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Wakes<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; PIECE.min(usize::try_from(self.left).unwrap_or(PIECE))];
        match self.file.read(&mut piece) {
            Ok(0) => Poll::Ready(Some(Err(io::Error::other("the bundle is shorter than it was")))),
            Ok(length) => {
                piece.truncate(length);
                self.left -= length as u64;
                Poll::Ready(Some(Ok(Frame::data(piece.into()))))
            }
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Sends a file. Blocks, and stops when the command is to.
pub(super) fn put(context: &Context, path: &Path, bytes: u64, url: &str) -> Result<(), Failure> {
    let refused = |why: String| Failure::Refused(why);
    let file = File::open(path).map_err(|error| refused(format!("reading the bundle: {error}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refused(format!("starting the upload: {error}")))?;
    let ended = runtime.block_on(async {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .timeout(context.remaining())
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| refused(said(error)))?;
        let body = reqwest::Body::wrap(Content { file, left: bytes });
        tokio::select! {
            answer = client.put(url).body(body).send() => judge(answer).await,
            stop = context.stopped() => Err(Failure::Stop(stop)),
        }
    });
    // A resolver that hangs does not keep the lane.
    runtime.shutdown_background();
    ended
}

async fn judge(answer: reqwest::Result<reqwest::Response>) -> Result<(), Failure> {
    let answer = answer.map_err(|error| Failure::Refused(said(error)))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let mut answer = answer;
    let first = answer.chunk().await.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&first);
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(200).collect();
    Err(Failure::Refused(format!("the destination answers {status}: {text}")))
}

/// The error and its causes without the URL.
fn said(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
