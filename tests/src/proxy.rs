//! A wire that can be cut, stopped and slowed, byte by byte.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// A proxy between a client and a server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    target: Mutex<SocketAddr>,
    open: Mutex<Vec<TcpStream>>,
    /// No byte passes, in no direction, and nobody is told.
    frozen: Mutex<bool>,
    thawed: Condvar,
    /// New connections are closed at once.
    refusing: AtomicBool,
    /// Bytes pass one by one.
    dripping: AtomicBool,
    ended: AtomicBool,
}

impl Proxy {
    /// A proxy before `target`, on a free port.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(State {
            target: Mutex::new(target),
            open: Mutex::default(),
            frozen: Mutex::new(false),
            thawed: Condvar::new(),
            refusing: AtomicBool::new(false),
            dripping: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || accept(&listener, &shared));
        Self { address, state }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections somewhere else.
    pub fn lead_to(&self, target: SocketAddr) {
        *lock(&self.state.target) = target;
    }

    /// Cuts every open connection.
    pub fn cut(&self) {
        for stream in lock(&self.state.open).drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    /// Refuses new connections, or lets them through.
    pub fn refuse(&self, refuse: bool) {
        self.state.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Holds every byte back, or lets them go: a half-open wire.
    pub fn freeze(&self, freeze: bool) {
        *lock(&self.state.frozen) = freeze;
        self.state.thawed.notify_all();
    }

    /// Lets bytes pass one by one.
    pub fn drip(&self, drip: bool) {
        self.state.dripping.store(drip, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        self.cut();
        self.freeze(false);
        TcpStream::connect(self.address).ok();
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming().map_while(Result::ok) {
        if state.ended.load(Ordering::SeqCst) {
            return;
        }
        let target = *lock(&state.target);
        if state.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let Ok(server) = TcpStream::connect(target) else { continue };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            let shared = Arc::clone(state);
            thread::spawn(move || pump(from, to, &shared));
        }
        lock(&state.open).extend([client, server]);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        drop(state.thawed.wait_while(lock(&state.frozen), |frozen| *frozen));
        let step = if state.dripping.load(Ordering::SeqCst) { 1 } else { count };
        if buffer[..count].chunks(step).any(|part| to.write_all(part).is_err()) {
            break;
        }
    }
    from.shutdown(Shutdown::Both).ok();
    to.shutdown(Shutdown::Both).ok();
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
