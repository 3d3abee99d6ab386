//! The thread that spawns the server and waits for it. It lives as long as the server should: the kernel's signal at a
//! parent's death counts the thread that spawned, not the process.

use std::{
    os::unix::process::CommandExt,
    process::Child,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::sync::oneshot;

use super::{EmbeddedError, cluster::Cluster, identity};

/// How long a server may take to accept connections; recovery after a crash is part of it.
const READY_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct State {
    pid: Option<u32>,
    stopping: bool,
    /// What the server said when it ended before it was ever ready.
    ended: Option<String>,
}

/// Keeps one server running until it is told to stop.
#[derive(Debug)]
pub(super) struct Supervisor {
    state: Arc<Mutex<State>>,
    done: Option<oneshot::Receiver<()>>,
}

fn with<T>(state: &Mutex<State>, body: impl FnOnce(&mut State) -> T) -> T {
    body(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Supervisor {
    /// Spawns the server and begins to watch it.
    pub(super) fn start(cluster: Cluster) -> Result<Self, EmbeddedError> {
        let state = Arc::new(Mutex::new(State::default()));
        let (done, receiver) = oneshot::channel();
        let watched = Arc::clone(&state);
        let thread = thread::Builder::new().name("postgresql".to_owned()).spawn(move || {
            watch(&cluster, &watched);
            cluster.clean();
            // The directory is free before anybody hears of the end.
            drop(cluster);
            // Nobody waits when the supervisor was dropped.
            let _dropped = done.send(());
        });
        thread.map_err(|e| EmbeddedError::Tool { tool: "the watching thread", output: e.to_string() })?;
        Ok(Self { state, done: Some(receiver) })
    }

    /// The server's process id.
    pub(super) fn pid(&self) -> Option<u32> {
        with(&self.state, |state| state.pid)
    }

    /// Connects as soon as the server accepts.
    pub(super) async fn wait_ready(&self, options: &PgConnectOptions) -> Result<PgConnection, EmbeddedError> {
        let until = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            match PgConnection::connect_with(options).await {
                Ok(conn) => return Ok(conn),
                Err(error) if refuses_password(&error) => return Err(EmbeddedError::Password),
                Err(error) => {
                    if let Some(output) = with(&self.state, |state| state.ended.take()) {
                        return Err(EmbeddedError::Tool { tool: "postgres", output });
                    }
                    if tokio::time::Instant::now() > until {
                        return Err(EmbeddedError::Db(error.into()));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Tells the server to shut down, and answers when it has.
    pub(super) fn stop(&mut self) -> impl Future<Output = ()> + use<> {
        with(&self.state, |state| {
            state.stopping = true;
            interrupt(state);
        });
        let done = self.done.take();
        async move {
            if let Some(done) = done {
                // The sender is dropped at the latest when the thread ends.
                let _ended = done.await;
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        with(&self.state, |state| {
            state.stopping = true;
            interrupt(state);
        });
    }
}

fn refuses_password(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|refused| refused.code()).is_some_and(|code| code == "28P01")
}

/// Asks for a fast shutdown: sessions are cut, data is written.
fn interrupt(state: &State) {
    if let Some(pid) = state.pid.and_then(|pid| i32::try_from(pid).ok()) {
        // It may have ended by itself a moment ago.
        let _gone = kill(Pid::from_raw(pid), Signal::SIGINT);
    }
}

fn watch(cluster: &Cluster, state: &Mutex<State>) {
    let mut quick_ends = 0_u32;
    loop {
        let started = Instant::now();
        match spawn(cluster, state) {
            Ok(Some(child)) => wait(child, state),
            Ok(None) => return,
            Err(error) => with(state, |state| state.ended = Some(error.to_string())),
        }
        if with(state, |state| state.stopping) {
            return;
        }
        cluster.end_rest();
        quick_ends = if started.elapsed() < Duration::from_secs(5) { quick_ends + 1 } else { 0 };
        if quick_ends > 8 {
            with(state, |state| state.ended = Some(cluster.last_words()));
        }
        tracing::warn!("postgresql ended; starting it again");
        thread::sleep(Duration::from_millis(100) * quick_ends.clamp(1, 20));
    }
}

/// `None` when it was told to stop in the meantime.
fn spawn(cluster: &Cluster, state: &Mutex<State>) -> Result<Option<Child>, EmbeddedError> {
    let mut server = cluster.server()?;
    server.process_group(0);
    identity::die_with_parent(&mut server);
    with(state, |state| {
        if state.stopping {
            return Ok(None);
        }
        let child = server.spawn().map_err(|e| EmbeddedError::Tool { tool: "postgres", output: e.to_string() })?;
        state.pid = Some(child.id());
        Ok(Some(child))
    })
}

fn wait(mut child: Child, state: &Mutex<State>) {
    let ended = child.wait();
    with(state, |state| state.pid = None);
    if let Err(error) = ended {
        tracing::error!(%error, "waiting for postgresql failed");
    }
}
