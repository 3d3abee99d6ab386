//! What needs authority is forwarded, in process and over internal mutual TLS.

use std::sync::Arc;

use gateway::{AuthorityClient, ControlPlane as _};
use pki::tls::{internal_client, internal_server};
use proto::{
    agent::v1::{self as pb, join_client::JoinClient},
    internal::v1::authority_server::AuthorityServer,
};
use schema::id::NodeId;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, transport::Server};

use crate::world::World;

#[tokio::test]
async fn join_needs_no_certificate_and_its_answers_travel_unchanged() {
    let world = World::new().await;
    let gateway = world.gateway();
    let mut machine = world.stranger(&world.keys.node_issuer());
    machine.identity = None;
    let mut client = JoinClient::new(machine.channel(gateway.address).await);

    let anchor = client.get_anchor(pb::GetAnchorRequest {}).await.unwrap().into_inner().anchor;
    assert_eq!(anchor, world.keys.anchor(&world.realm.fleet_id).to_bytes());
    let refused = client.join(pb::JoinRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().starts_with("the token of 127.0.0.1:"), "{}", refused.message());
    assert_eq!(refused.metadata().get("bc-code").unwrap(), "token-expired");
    let renewed = client.renew(pb::RenewRequest::default()).await.unwrap().into_inner();
    assert_eq!(renewed.certificate_chain, [[1]]);

    let huge = pb::JoinRequest { claims: vec![0; 600 * 1024], ..pb::JoinRequest::default() };
    assert_eq!(client.join(huge).await.unwrap_err().code(), Code::OutOfRange);
    gateway.stop().await;
}

#[tokio::test]
async fn one_address_cannot_take_the_whole_join_service() {
    let world = World::new().await;
    let gateway = world.gateway();
    let machine = world.stranger(&world.keys.node_issuer());
    let client = JoinClient::new(machine.channel(gateway.address).await);
    let mut limited = None;
    // Several at a time, so that a slow machine asks faster than it is forgiven, too.
    for _ in 0..50 {
        let mut calls = tokio::task::JoinSet::new();
        for mut client in vec![client.clone(); 8] {
            calls.spawn(async move { client.get_anchor(pb::GetAnchorRequest {}).await.err() });
        }
        limited = calls.join_all().await.into_iter().flatten().next();
        if limited.is_some() {
            break;
        }
    }
    assert_eq!(limited.expect("the limit is reached").code(), Code::ResourceExhausted);
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_apart_reaches_the_authority_over_internal_tls_and_says_when_it_cannot() {
    let world = World::new().await;
    let authority = world.keys.internal_authorities();
    let served = world.keys.issue_internal("control-1", world.clock.now()).unwrap();
    let tls = internal_server(&served, &authority, Arc::clone(&world.clock)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (connections, incoming) = tokio::sync::mpsc::channel(4);
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let accepting = tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            if let Ok(tls) = acceptor.accept(tcp).await {
                connections.send(Ok::<_, std::io::Error>(tls)).await.unwrap();
            }
        }
    });
    let service = AuthorityServer::from_arc(world.authority());
    let serving =
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(ReceiverStream::new(incoming)));

    let keys = world.keys.issue_gateway("gw-1", &["127.0.0.1".to_owned()], world.clock.now()).unwrap();
    let client = |identity| {
        let tls = internal_client(identity, &authority, Arc::clone(&world.clock)).unwrap();
        AuthorityClient::new(address.to_string(), tls)
    };
    let good = client(&keys.internal);
    assert_eq!(good.anchor().await.unwrap().anchor, world.keys.anchor(&world.realm.fleet_id).to_bytes());
    assert_eq!(good.server_time(NodeId::generate(), vec![1; 32]).await.unwrap().nonce, vec![1; 32]);
    assert!(!good.trust(0).await.unwrap().trust_bundle.unwrap().bundle.is_empty());
    let refused = good.join(pb::JoinRequest::default(), "192.0.2.1:5".parse().unwrap()).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "the token of 192.0.2.1:5 has expired"));

    let foreign = client(&keys.serving);
    assert_eq!(foreign.anchor().await.unwrap_err().code(), Code::Unavailable);
    // Who does not believe the control plane needs new keys, and who finds nobody there does not.
    let others = pki::keys::Keys::generate(world.keys.trust_domain(), world.clock.now()).unwrap();
    let tls = internal_client(&keys.internal, &others.internal_authorities(), Arc::clone(&world.clock)).unwrap();
    assert!(AuthorityClient::new(address.to_string(), tls).follow_keys(0, None).await.unwrap_err().is_outside);

    serving.abort();
    accepting.abort();
    accepting.await.ok();
    assert_eq!(client(&keys.internal).trust(0).await.unwrap_err().code(), Code::Unavailable);
    assert!(!client(&keys.internal).follow_keys(0, None).await.unwrap_err().is_outside);
}
