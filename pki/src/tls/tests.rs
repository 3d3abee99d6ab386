//! Real handshakes, in memory.

use std::io::{Read as _, Write as _};

use rustls::{ClientConnection, Error, ServerConnection};
use rustls_pki_types::ServerName;
use schema::clock::ManualClock;

use super::*;
use crate::{
    keys::{INTERNAL_NAME, Keys},
    testing::{Node, after, keys, now},
    verify::{IdentityRefusal, Peer},
};

const NAME: &str = "gw.example.org";

fn clock(seconds: i64) -> SharedClock {
    Arc::new(ManualClock::new(after(seconds)))
}

/// Runs a handshake and one message each way; gives the client's view and the server's view.
pub(crate) fn handshake(
    client: ClientConfig,
    server: ServerConfig,
    name: &str,
) -> (Result<(), Error>, Result<ServerConnection, Error>) {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let mut client = ClientConnection::new(Arc::new(client), name).expect("client");
    let mut server = ServerConnection::new(Arc::new(server)).expect("server");
    client.writer().write_all(b"ping").expect("buffered");
    let (mut client_end, mut server_end) = (Ok(()), Ok(()));
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("memory");
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() && server_end.is_ok() {
            server.read_tls(&mut wire).expect("memory");
            server_end = server.process_new_packets().map(|_| ());
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("memory");
        }
        let mut wire = wire.as_slice();
        while !wire.is_empty() && client_end.is_ok() {
            client.read_tls(&mut wire).expect("memory");
            client_end = client.process_new_packets().map(|_| ());
        }
    }
    let server = server_end.map(|()| {
        let mut message = [0; 4];
        server.reader().read_exact(&mut message).expect("the message came");
        server
    });
    (client_end, server)
}

fn gateway(keys: &Keys) -> ServerConfig {
    let serving = keys.issue_serving(&[NAME.to_owned(), "127.0.0.1".to_owned()], now()).expect("issued");
    gateway_server(ServingCertificate::new(&serving).expect("serving"), clock(0))
}

fn agent(keys: &Keys, identity: Option<&TlsIdentity>) -> ClientConfig {
    agent_client(&[keys.root_certificate()], identity, ServerTimes::Clock(clock(0))).expect("client")
}

fn peer(keys: &Keys, identity: Option<&TlsIdentity>, seconds: i64) -> Peer {
    let (client, server) = handshake(agent(keys, identity), gateway(keys), NAME);
    client.expect("the client believes the gateway");
    keys.node_verifier().peer(server.expect("the handshake ends").peer_certificates(), after(seconds))
}

#[test]
fn a_good_node_is_known_by_its_id() {
    let keys = keys();
    let node = Node::of(&keys);
    let Peer::Node(identity) = peer(&keys, Some(&node.identity()), 0) else { panic!("not a node") };
    assert_eq!(identity.node_id, node.id);
}

#[test]
fn no_certificate_is_anonymous() {
    assert_eq!(peer(&keys(), None, 0), Peer::Anonymous);
}

#[test]
fn a_foreign_and_an_expired_node_are_refused_with_their_reason() {
    let keys = keys();
    let foreign = Node::of(&crate::testing::keys()).identity();
    assert_eq!(peer(&keys, Some(&foreign), 0), Peer::Refused(IdentityRefusal::ForeignCa));
    let expired = Node::of(&keys).identity();
    assert_eq!(peer(&keys, Some(&expired), 86_401), Peer::Refused(IdentityRefusal::Expired));
}

#[test]
fn a_certificate_without_its_key_ends_the_handshake() {
    let keys = keys();
    let (node, thief) = (Node::of(&keys), Node::of(&keys));
    let stolen = thief.key.identity(node.issued.chain.clone());
    let config = agent_client(&[keys.root_certificate()], Some(&stolen), ServerTimes::Clock(clock(0)));
    // Either the client notices that key and certificate do not fit, or the server does.
    if let Ok(config) = config {
        assert!(handshake(config, gateway(&keys), NAME).1.is_err());
    }
}

#[test]
fn a_node_believes_its_own_gateway_only() {
    let (ours, theirs) = (keys(), keys());
    let (client, _) = handshake(agent(&ours, None), gateway(&theirs), NAME);
    assert!(matches!(client, Err(Error::InvalidCertificate(_))), "{client:?}");
    let (client, _) = handshake(agent(&ours, None), gateway(&ours), "other.example.org");
    assert!(matches!(client, Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }))));
    assert!(handshake(agent(&ours, None), gateway(&ours), "127.0.0.1").0.is_ok());
}

#[test]
fn a_node_is_no_gateway() {
    let keys = keys();
    let node = Node::of(&keys).identity();
    let server = gateway_server(ServingCertificate::new(&node).expect("serving"), clock(0));
    assert!(handshake(agent(&keys, None), server, NAME).0.is_err());
}

#[test]
fn a_machine_whose_clock_says_2011_still_connects_but_only_to_its_own() {
    let keys = keys();
    let y2011: SharedClock = Arc::new(ManualClock::new("2011-01-01T00:00:00Z".parse().expect("a time")));
    let roots = [keys.root_certificate()];
    let strict = agent_client(&roots, None, ServerTimes::Clock(y2011)).expect("client");
    assert!(handshake(strict, gateway(&keys), NAME).0.is_err());
    let open = || agent_client(&roots, None, ServerTimes::Open(LeftOpen::default())).expect("client");
    assert!(handshake(open(), gateway(&keys), NAME).0.is_ok());
    assert!(handshake(open(), gateway(&crate::testing::keys()), NAME).0.is_err());
}

#[test]
fn the_first_contact_believes_anyone() {
    assert!(handshake(bootstrap_client_that_believes_any_server(), gateway(&keys()), "anything").0.is_ok());
}

#[test]
fn a_replaced_serving_certificate_is_served() {
    let keys = keys();
    let issue = |name: &str| keys.issue_serving(&[name.to_owned()], now()).expect("issued");
    let serving = ServingCertificate::new(&issue("old.example.org")).expect("serving");
    let server = || gateway_server(Arc::clone(&serving), clock(0));
    assert!(handshake(agent(&keys, None), server(), NAME).0.is_err());
    serving.replace(&issue(NAME)).expect("fits");
    assert!(handshake(agent(&keys, None), server(), NAME).0.is_ok());
}

#[test]
fn the_internal_service_admits_internal_certificates_only() {
    let keys = keys();
    let identity = keys.issue_internal("worker", now()).expect("issued");
    let server = || internal_server(&identity, &keys.internal_authorities(), clock(0)).expect("server");
    let gateway = keys.issue_gateway("gw-one", &[NAME.to_owned()], now()).expect("issued");
    let client = internal_client(&gateway.internal, &gateway.internal_authorities(), clock(0)).expect("client");
    assert!(handshake(client, server(), INTERNAL_NAME).1.is_ok());

    let node = Node::of(&keys).identity();
    for identity in [Some(&node), Some(&gateway.serving), None] {
        let client =
            agent_client(&keys.internal_authorities(), identity, ServerTimes::Clock(clock(0))).expect("client");
        let (client, server) = handshake(client, server(), INTERNAL_NAME);
        assert!(server.is_err());
        assert!(matches!(client, Err(Error::AlertReceived(_))), "{client:?}");
    }
}

#[test]
fn the_gateways_internal_certificate_serves_nothing() {
    let keys = keys();
    let gateway = keys.issue_gateway("gw-one", &[NAME.to_owned()], now()).expect("issued");
    let server = internal_server(&gateway.internal, &keys.internal_authorities(), clock(0)).expect("server");
    let own = keys.issue_internal("worker", now()).expect("issued");
    let client = internal_client(&own, &keys.internal_authorities(), clock(0)).expect("client");
    assert!(handshake(client, server, INTERNAL_NAME).0.is_err());
}

#[test]
fn a_client_whose_clock_is_wrong_is_told_by_how_much() {
    let keys = keys();
    let serving =
        ServingCertificate::new(&keys.issue_serving(&[NAME.to_owned()], now()).expect("issued")).expect("fits");
    let seen = |seconds: i64| {
        let roots = [keys.root_certificate()];
        let client = agent_client(&roots, None, ServerTimes::Clock(clock(seconds))).expect("a client");
        let server = api_server(Arc::clone(&serving), clock(0));
        let failed = handshake(client, server, NAME).0.expect_err("out of its time");
        // As whoever speaks HTTP over it finds it.
        untimely(&std::io::Error::other(std::io::Error::other(failed))).expect("told").to_string()
    };
    let year = 365 * 86_400;
    assert!(seen(-15 * year).contains("behind"), "{}", seen(-15 * year));
    assert!(seen(15 * year).contains("ahead"), "{}", seen(15 * year));
    assert_eq!(untimely(&Error::DecryptError), None);
}
