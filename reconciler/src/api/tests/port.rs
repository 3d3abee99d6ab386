//! Facts about the API's port: who finds a place, and for how long.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode},
    routing::get,
};
use schema::{
    clock::{Clock as _, ManualClock},
    time::Timestamp,
};
use store::{Db, DbConfig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Notify,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::{
    serve::{self, Limits},
    webhook,
};
use crate::door::Width;

/// Longer than anything takes; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(90);

struct Port {
    address: SocketAddr,
    /// Lets the answer to `/slow` go.
    answers: Arc<Notify>,
    _stop: DropGuard,
}

impl Port {
    async fn new(limits: Limits) -> Self {
        pki::install_provider();
        let clock = ManualClock::new(Timestamp::from_second(1_800_000_000).expect("a time"));
        let keys = pki::keys::Keys::generate("bc.local", clock.now()).expect("keys");
        let identity = keys.issue_serving(&["localhost".to_owned()], clock.now()).expect("a certificate");
        let serving = pki::tls::ServingCertificate::new(&identity).expect("a certificate");
        let tls = Arc::new(pki::tls::api_server(serving, Arc::new(clock)));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (answers, cancel) = (Arc::new(Notify::new()), CancellationToken::new());
        let wait = Arc::clone(&answers);
        let slow = get(move || async move {
            wait.notified().await;
            "slow"
        });
        let router = Router::new().route("/slow", slow).route("/quick", get(|| async { "quick" }));
        tokio::spawn(serve::serve(listener, tls, router, limits, cancel.clone()));
        Self { address, answers, _stop: cancel.drop_guard() }
    }

    /// A connection from an address of this machine; `None` when it is dropped.
    async fn connect(&self, from: &str) -> Option<TlsStream<TcpStream>> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("bound");
        let stream = socket.connect(self.address).await.expect("connected");
        let mut client = pki::tls::bootstrap_client_that_believes_any_server();
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = "localhost".try_into().expect("a name");
        TlsConnector::from(Arc::new(client)).connect(name, stream).await.ok()
    }
}

async fn ask(stream: &mut TlsStream<TcpStream>, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.expect("sent");
}

/// What comes until the connection ends.
async fn rest(stream: &mut TlsStream<TcpStream>) -> String {
    let mut all = Vec::new();
    // An end without a farewell is an end.
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("it ends").ok();
    String::from_utf8(all).expect("text")
}

async fn answer(stream: &mut TlsStream<TcpStream>, ending: &str) {
    let mut all = Vec::new();
    while !all.ends_with(ending.as_bytes()) {
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut all)).await.expect("an answer").expect("read");
        assert_ne!(read, 0, "it ended: {}", String::from_utf8_lossy(&all));
    }
}

#[tokio::test]
async fn one_address_that_opens_all_that_it_may_shuts_nobody_else_out() {
    let port = Port::new(Limits { width: Width { all: 8, each: 4 }, ..Limits::default() }).await;
    let mut held = Vec::new();
    for _ in 0..12 {
        held.extend(port.connect("127.0.0.2").await);
    }
    assert_eq!(held.len(), 4);
    let mut other = port.connect("127.0.0.3").await.expect("a place");
    ask(&mut other, "/quick").await;
    answer(&mut other, "quick").await;
    held.pop();
    let again = async {
        loop {
            if let Some(stream) = port.connect("127.0.0.2").await {
                return stream;
            }
        }
    };
    let mut again = tokio::time::timeout(PATIENCE, again).await.expect("a place that was given back is there again");
    ask(&mut again, "/quick").await;
    answer(&mut again, "quick").await;
}

#[tokio::test]
async fn a_connection_without_a_request_ends_and_one_with_a_request_does_not() {
    let port = Port::new(Limits { unused: Duration::from_millis(50), ..Limits::default() }).await;
    let mut slow = port.connect("127.0.0.1").await.expect("a place");
    ask(&mut slow, "/slow").await;
    let mut silent = port.connect("127.0.0.1").await.expect("a place");
    assert_eq!(rest(&mut silent).await, "", "it never said a word");
    let mut halting = port.connect("127.0.0.1").await.expect("a place");
    halting.write_all(b"GET /quick HTTP/1.1\r\nhost:").await.expect("sent");
    let mut used = port.connect("127.0.0.1").await.expect("a place");
    ask(&mut used, "/quick").await;
    assert!(rest(&mut used).await.ends_with("quick"), "it was answered, and ended when nothing more came");
    port.answers.notify_one();
    answer(&mut slow, "slow").await;
    assert_eq!(rest(&mut halting).await, "", "half a request is none");
}

#[tokio::test]
async fn a_call_whose_body_never_ends_is_let_go_before_anybody_is_known() {
    let db = Db::lazy(&DbConfig::from_url("postgresql://nobody@localhost/nothing").expect("a URL"));
    let app = super::app_over(db);
    let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>());
    let call = Request::post("/hooks/source").header("x-hub-signature-256", "sha256=00").body(body);
    let call = call.expect("a request");
    let answer = webhook::receive_within(Duration::from_millis(20), &app, call);
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn a_proxy_has_many_connections_and_is_not_the_one_who_ends_up_with_a_dead_one() {
    let Limits { width, unused } = Limits::default();
    assert!(width.each >= 256 && width.each * 4 <= width.all, "three other addresses find places");
    assert!(unused > Duration::from_secs(60), "nginx and others keep one for a minute");
}
