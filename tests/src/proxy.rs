//! A wire that can be cut, stopped, slowed and harmed, byte by byte.
//!
//! It stands before TCP and before Unix sockets. What a wire does to one connection it does to all that go through it;
//! whoever wants to harm one machine gives it a wire of its own.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Where a wire leads.
#[derive(Debug, Clone)]
pub enum Target {
    /// To a port.
    Tcp(SocketAddr),
    /// To a socket of this machine.
    Unix(PathBuf),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<PathBuf> for Target {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

/// In which direction bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From who connected.
    Up,
    /// To who connected.
    Down,
}

/// What befalls a piece of what goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// It comes twice.
    Twice,
    /// Its halves change places.
    Swapped,
}

/// The shortest piece that is harmed.
const HARMED: usize = 32;

/// A proxy between clients and servers.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    targets: Mutex<Vec<Target>>,
    turn: AtomicUsize,
    open: Mutex<Vec<Wire>>,
    weather: Mutex<Weather>,
    changed: Condvar,
    harms: Mutex<VecDeque<(Way, Harm)>>,
    /// New connections are closed at once.
    refusing: AtomicBool,
    /// Bytes pass one by one.
    dripping: AtomicBool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Weather {
    /// No byte passes, in no direction, and nobody is told.
    frozen: bool,
    /// What goes up is lost, and nobody is told.
    loses_up: bool,
    /// The same downwards.
    loses_down: bool,
    /// How late everything comes.
    late: Duration,
    ended: bool,
}

/// Both ends of one connection.
#[derive(Debug)]
struct Wire {
    client: TcpStream,
    server: Stream,
    /// Its end is no farewell.
    torn: Arc<AtomicBool>,
}

impl Proxy {
    /// A proxy before `target`, on a free port.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn before(target: impl Into<Target>) -> Self {
        Self::before_any([target])
    }

    /// A proxy that leads to each of its targets in turn, as an address with several servers behind it.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn before_any<T: Into<Target>>(targets: impl IntoIterator<Item = T>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(State {
            targets: Mutex::new(targets.into_iter().map(Into::into).collect()),
            turn: AtomicUsize::new(0),
            open: Mutex::default(),
            weather: Mutex::default(),
            changed: Condvar::new(),
            harms: Mutex::default(),
            refusing: AtomicBool::new(false),
            dripping: AtomicBool::new(false),
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
    pub fn lead_to(&self, target: impl Into<Target>) {
        *lock(&self.state.targets) = vec![target.into()];
    }

    /// Ends every open connection; both sides are told.
    pub fn cut(&self) {
        for wire in lock(&self.state.open).drain(..) {
            wire.client.shutdown(Shutdown::Both).ok();
            wire.server.shutdown(Shutdown::Both).ok();
        }
    }

    /// Tears every open connection: no farewell, a reset.
    pub fn tear(&self) {
        for wire in lock(&self.state.open).drain(..) {
            wire.torn.store(true, Ordering::SeqCst);
            socket2::SockRef::from(&wire.client).set_linger(Some(Duration::ZERO)).ok();
            if let Stream::Tcp(server) = &wire.server {
                socket2::SockRef::from(server).set_linger(Some(Duration::ZERO)).ok();
            }
            // Who reads here stops; nobody out there hears of it before the last handle is gone.
            wire.client.shutdown(Shutdown::Read).ok();
            wire.server.shutdown(Shutdown::Read).ok();
        }
    }

    /// Refuses new connections, or lets them through.
    pub fn refuse(&self, refuse: bool) {
        self.state.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Holds every byte back, or lets them go: a half-open wire.
    pub fn freeze(&self, freeze: bool) {
        self.weather(|weather| weather.frozen = freeze);
    }

    /// Loses what goes one way, or nothing more: a wire that is cut on one side.
    pub fn lose(&self, way: Way, lose: bool) {
        self.weather(|weather| match way {
            Way::Up => weather.loses_up = lose,
            Way::Down => weather.loses_down = lose,
        });
    }

    /// Makes everything come so much later.
    pub fn delay(&self, late: Duration) {
        self.weather(|weather| weather.late = late);
    }

    /// Lets bytes pass one by one.
    pub fn drip(&self, drip: bool) {
        self.state.dripping.store(drip, Ordering::SeqCst);
    }

    /// Harms the next piece that goes this way.
    pub fn harm(&self, way: Way, harm: Harm) {
        lock(&self.state.harms).push_back((way, harm));
    }

    /// Fair weather. Connections whose bytes were lost do not come back by that: [`Self::cut`] them.
    pub fn clear(&self) {
        self.drip(false);
        self.refuse(false);
        lock(&self.state.harms).clear();
        self.weather(|weather| *weather = Weather { ended: weather.ended, ..Weather::default() });
    }

    fn weather(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut lock(&self.state.weather));
        self.state.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.weather(|weather| *weather = Weather { ended: true, ..Weather::default() });
        self.cut();
        TcpStream::connect(self.address).ok();
    }
}

impl State {
    fn connect(&self) -> Option<Stream> {
        let targets = lock(&self.targets).clone();
        let first = self.turn.fetch_add(1, Ordering::SeqCst);
        (0..targets.len()).find_map(|step| match &targets[(first + step) % targets.len()] {
            Target::Tcp(address) => TcpStream::connect(address).ok().map(Stream::Tcp),
            Target::Unix(path) => UnixStream::connect(path).ok().map(Stream::Unix),
        })
    }

    /// The weather once bytes may pass.
    fn wait(&self) -> Weather {
        let held = |weather: &mut Weather| weather.frozen && !weather.ended;
        let weather = self.changed.wait_while(lock(&self.weather), held).unwrap_or_else(PoisonError::into_inner);
        let late = weather.late;
        if late.is_zero() {
            return *weather;
        }
        let on_its_way = |weather: &mut Weather| !weather.ended && weather.late == late;
        let waited = self.changed.wait_timeout_while(weather, late, on_its_way);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn harm(&self, way: Way, length: usize) -> Option<Harm> {
        let mut harms = lock(&self.harms);
        let due = length >= HARMED && harms.front().is_some_and(|(harmed, _)| *harmed == way);
        due.then(|| harms.pop_front()).flatten().map(|(_, harm)| harm)
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming().map_while(Result::ok) {
        if lock(&state.weather).ended {
            return;
        }
        if state.refusing.load(Ordering::SeqCst) {
            continue;
        }
        let Some(server) = state.connect() else { continue };
        client.set_nodelay(true).ok();
        let torn = Arc::new(AtomicBool::new(false));
        let (Ok(above), Ok(below)) = (client.try_clone(), server.try_clone()) else { continue };
        let ends = [
            (Way::Up, Stream::Tcp(above), server.try_clone()),
            (Way::Down, below, client.try_clone().map(Stream::Tcp)),
        ];
        for (way, from, to) in ends {
            let Ok(to) = to else { continue };
            let (shared, torn) = (Arc::clone(state), Arc::clone(&torn));
            thread::spawn(move || {
                let (from, to) = pump(way, from, to, &shared);
                if !torn.load(Ordering::SeqCst) {
                    from.shutdown(Shutdown::Both).ok();
                    to.shutdown(Shutdown::Both).ok();
                }
            });
        }
        let mut open = lock(&state.open);
        open.retain(|wire| Arc::strong_count(&wire.torn) > 1);
        open.push(Wire { client, server, torn });
    }
}

fn pump(way: Way, mut from: Stream, mut to: Stream, state: &State) -> (Stream, Stream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let weather = state.wait();
        let lost = match way {
            Way::Up => weather.loses_up,
            Way::Down => weather.loses_down,
        };
        if lost {
            continue;
        }
        let (whole, half) = (&buffer[..count], count / 2);
        let pieces: [&[u8]; 2] = match state.harm(way, count) {
            None => [whole, &[]],
            Some(Harm::Twice) => [whole, whole],
            Some(Harm::Swapped) => [&whole[half..], &whole[..half]],
        };
        let step = if state.dripping.load(Ordering::SeqCst) { 1 } else { count };
        if pieces.iter().flat_map(|piece| piece.chunks(step)).any(|part| to.write_all(part).is_err()) {
            break;
        }
    }
    (from, to)
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client and a server with a wire between them.
    fn ends() -> (Proxy, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy::before(listener.local_addr().expect("bound"));
        let client = TcpStream::connect(proxy.address()).expect("connects");
        let server = listener.accept().expect("is connected").0;
        (proxy, client, server)
    }

    fn heard(server: &mut TcpStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        server.read_exact(&mut bytes).expect("bytes");
        bytes
    }

    #[test]
    fn what_is_sent_arrives_and_harmed_pieces_come_twice_or_swapped_or_not_at_all() {
        let (proxy, mut client, mut server) = ends();
        let piece: Vec<u8> = (0..64).collect();
        client.write_all(&piece).expect("sent");
        assert_eq!(heard(&mut server, 64), piece);
        proxy.harm(Way::Up, Harm::Twice);
        client.write_all(&piece).expect("sent");
        assert_eq!(heard(&mut server, 128), [&piece[..], &piece[..]].concat());
        proxy.harm(Way::Up, Harm::Swapped);
        client.write_all(&piece).expect("sent");
        assert_eq!(heard(&mut server, 64), [&piece[32..], &piece[..32]].concat());
        proxy.lose(Way::Up, true);
        client.write_all(b"lost").expect("sent");
        // The other way still passes, and by then what was sent before is lost.
        server.write_all(&piece).expect("sent");
        assert_eq!(heard(&mut client, 64), piece);
    }

    #[test]
    fn a_torn_wire_is_a_reset_and_a_cut_one_an_end() {
        let (proxy, mut client, mut server) = ends();
        client.write_all(b"hello").expect("sent");
        heard(&mut server, 5);
        proxy.tear();
        let error = server.read(&mut [0; 8]).expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        let (proxy, mut client, mut server) = ends();
        client.write_all(b"hello").expect("sent");
        heard(&mut server, 5);
        proxy.cut();
        assert_eq!(server.read(&mut [0; 8]).expect("an end"), 0);
    }
}
