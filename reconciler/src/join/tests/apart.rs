//! The service as a gateway in another process calls it.

use pki::{anchor::Anchor, issue::TlsIdentity, keys::INTERNAL_NAME, tls};
use proto::internal::v1 as internal;
use schema::id::NodeId;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;

struct Apart {
    house: House,
    address: std::net::SocketAddr,
    tls: Arc<tls::InternalServer>,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), super::super::ServeError>>,
}

impl Apart {
    async fn new() -> Self {
        Self::living(std::time::Duration::from_secs(600)).await
    }

    /// With connections that live for so long.
    async fn living(lives: std::time::Duration) -> Self {
        let house = House::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let now = house.db.now().await.expect("time");
        let identity = house.keys.issue_internal("worker", now).expect("issued");
        let (service, authority) = (Arc::clone(&house.service), house.keys.internal_authorities());
        let (clock, cancel) = (Arc::new(house.clock.clone()), CancellationToken::new());
        let stop = cancel.clone();
        let tls = tls::InternalServer::new(&identity, &authority, clock).expect("usable");
        let served = super::super::authority::serve_for(lives, service, listener, Arc::clone(&tls), stop);
        let task = tokio::spawn(served);
        Self { house, address, tls, cancel, task }
    }

    async fn client(
        &self,
        identity: &TlsIdentity,
    ) -> Result<internal::authority_client::AuthorityClient<tonic::transport::Channel>, tonic::transport::Error> {
        let clock = Arc::new(self.house.clock.clone());
        let config = tls::internal_client(identity, &self.house.keys.internal_authorities(), clock).expect("client");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let address = self.address;
        let connect = tower::service_fn(move |_: http::Uri| {
            let connector = connector.clone();
            async move {
                let stream = TcpStream::connect(address).await?;
                let name = rustls_pki_types::ServerName::try_from(INTERNAL_NAME).expect("a name");
                connector.connect(name, stream).await.map(hyper_util::rt::TokioIo::new)
            }
        });
        let endpoint = tonic::transport::Endpoint::from_static("http://authority.internal");
        endpoint.connect_with_connector(connect).await.map(internal::authority_client::AuthorityClient::new)
    }
}

#[tokio::test]
async fn a_gateway_apart_fetches_anchor_time_and_bundle() {
    pki::install_provider();
    let apart = Apart::new().await;
    let house = &apart.house;
    let now = house.db.now().await.expect("time");
    let gateway = house.keys.issue_gateway("gw-one", &["localhost".to_owned()], now).expect("issued");
    let mut client = apart.client(&gateway.internal).await.expect("connects");

    let answer = client.get_anchor(pb::GetAnchorRequest {}).await.expect("answers").into_inner();
    let anchor = Anchor::from_pinned(&answer.anchor, house.service.anchor().pin()).expect("the pinned one");

    let (node, nonce) = (NodeId::generate(), vec![7; 32]);
    let request = internal::ServerTimeRequest { node_id: node.to_string(), nonce: nonce.clone() };
    let time = client.server_time(request).await.expect("answers").into_inner().time.expect("a time");
    let pb::Signature { worker, root_signature, signature } = time.signature.expect("signed");
    let signature = pki::worker::Signature { worker, root_signature, signature };
    let stated = time.time.parse().expect("RFC 3339");
    assert_eq!(anchor.verifier().server_time(node, &nonce, stated, &signature), Ok(()));

    let answer = client.trust_bundle(internal::TrustBundleRequest { since: 0 }).await.expect("answers").into_inner();
    assert_eq!((answer.trust_steps.len(), answer.node_authorities.len()), (1, 1));
    let pb::SignedTrustBundle { bundle, signature } = answer.trust_bundle.expect("a bundle");
    let signed = pki::bundle::SignedBundle { bytes: bundle, signature };
    assert_eq!(signed.first(&anchor.verifier()).map(|bundle| bundle.version), Ok(1));

    apart.cancel.cancel();
    drop(client);
    apart.task.await.expect("no panic").expect("ends well");
}

#[tokio::test]
async fn nobody_without_an_internal_certificate_is_answered() {
    pki::install_provider();
    let apart = Apart::new().await;
    let house = &apart.house;
    let now = house.db.now().await.expect("time");
    let serving = house.keys.issue_serving(&["localhost".to_owned()], now).expect("issued");
    let answered = match apart.client(&serving).await {
        Ok(mut client) => client.get_anchor(pb::GetAnchorRequest {}).await.is_ok(),
        Err(_) => false,
    };
    assert!(!answered);
    apart.cancel.cancel();
}

#[tokio::test]
async fn a_gateway_that_is_believed_no_more_does_not_go_on_with_the_connection_that_it_has() {
    pki::install_provider();
    let apart = Apart::living(std::time::Duration::from_millis(50)).await;
    let house = &apart.house;
    let now = house.db.now().await.expect("time");
    let gateway = house.keys.issue_gateway("gw-one", &["localhost".to_owned()], now).expect("issued");
    let mut client = apart.client(&gateway.internal).await.expect("connects");
    client.get_anchor(pb::GetAnchorRequest {}).await.expect("answers");
    let others = Keys::generate("bc.local", now).expect("keys");
    let identity = house.keys.issue_internal("worker", now).expect("issued");
    let clock = Arc::new(house.clock.clone());
    apart.tls.replace(&identity, &others.internal_authorities(), clock).expect("replaced");
    let refused = async { while client.get_anchor(pb::GetAnchorRequest {}).await.is_ok() {} };
    tokio::time::timeout(std::time::Duration::from_secs(90), refused).await.expect("it is refused");
    apart.cancel.cancel();
}
