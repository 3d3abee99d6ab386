//! PostgreSQL behind TLS. The private server listens on a Unix socket, where it has none: this speaks it in its place, so that a wire
//! before it may be harmed and whoever reads from it notices.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use pki::{
    keys::Keys,
    tls::{ServingCertificate, api_server},
};
use schema::clock::{Clock as _, SystemClock};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixStream},
    runtime::{Builder, Runtime},
};
use tokio_rustls::TlsAcceptor;

/// How long the words are in which a client asks for TLS.
const REQUEST: usize = 8;

/// PostgreSQL's end of TLS.
#[derive(Debug)]
pub struct Sealed {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Sealed {
    /// Before the socket of a server, on a free port.
    ///
    /// # Panics
    /// When there is no port, or no certificate for it.
    #[must_use]
    pub fn before(socket: PathBuf) -> Self {
        pki::install_provider();
        let clock = Arc::new(SystemClock);
        let keys = Keys::generate("database.local", clock.now()).expect("keys");
        let identity = keys.issue_serving(&["127.0.0.1".to_owned()], clock.now()).expect("a certificate");
        let mut tls = api_server(ServingCertificate::new(&identity).expect("a certificate"), clock);
        tls.alpn_protocols.clear();
        let tls = TlsAcceptor::from(Arc::new(tls));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a thread");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("its address");
        runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, socket) = (tls.clone(), socket.clone());
                // Whoever breaks off knows it.
                tokio::spawn(async move { serve(client, &tls, &socket).await.ok() });
            }
        });
        Self { address, _runtime: runtime }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(mut client: TcpStream, tls: &TlsAcceptor, socket: &Path) -> io::Result<()> {
    client.set_nodelay(true)?;
    client.read_exact(&mut [0; REQUEST]).await?;
    client.write_all(b"S").await?;
    let mut client = tls.accept(client).await?;
    let mut server = UnixStream::connect(socket).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
