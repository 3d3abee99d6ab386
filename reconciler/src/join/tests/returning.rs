//! Machines that come back: with a new disk, with a new board, after keys were rotated.

use pki::{bundle::SignedBundle, hardware::Claims, keys::RotationKind, report::RenewalAsked};
use schema::clock::Clock as _;
use schema::{
    generation::{Generation, IdentityGeneration},
    node::ProvisionState,
};
use store::{identities, node_certs, nodes};

use super::*;

/// After this many seconds of silence a node is lost.
const LOST: u64 = 90 + 900;

impl House {
    /// A machine that joined and has a session: its node, and the serial of its certificate.
    async fn living(&self, serial: &str) -> (NodeId, Vec<u8>) {
        let machine = Machine::new(serial);
        let request = machine.request(self, &self.token(1).await);
        let answer = self.join(&request).await.expect("joins");
        let chain = [answer.certificate_chain[0].as_slice().into()];
        let certificate = self.keys.node_verifier().identify(&chain, Validity::Open).expect("ours").serial.to_bytes();
        let id = self.identity(&request, &answer).node_id;
        self.session(id, certificate.clone()).await;
        (id, certificate)
    }

    async fn close(&self, node: NodeId) {
        let epoch = sessions::find(&self.db, node).await.expect("read").expect("a session").epoch;
        let mut txn = self.db.begin().await.expect("begin");
        sessions::close(&mut txn, &[(node, epoch)]).await.expect("closed");
        txn.commit().await.expect("commit");
    }

    async fn approve_as(&self, request: &pb::JoinRequest, node: NodeId) {
        self.approve(request, Some(node)).await;
    }

    async fn approve(&self, request: &pb::JoinRequest, node: Option<NodeId>) {
        let join = joins::find_by_csr(&self.db, &csr::hash(&request.csr)).await.expect("read").expect("stored");
        let mut txn = self.db.begin().await.expect("begin");
        assert!(joins::approve(&mut txn, join.id, "ada", node).await.expect("approved"));
        txn.commit().await.expect("commit");
    }

    async fn generation(&self, node: NodeId) -> IdentityGeneration {
        nodes::get(&self.db, node).await.expect("a row").identity_generation
    }

    async fn reclaiming(&self) -> Token {
        self.token_with("h100", 1, &json!({}), true).await
    }

    async fn held(&self, request: &pb::JoinRequest) -> String {
        code(&self.join(request).await.expect_err("held")).1
    }
}

#[tokio::test]
async fn a_machine_with_a_new_disk_takes_its_node_back() {
    let house = House::new().await;
    let first = Machine::new("SERIAL0001").request(&house, &house.token(1).await);
    let answer = house.join(&first).await.expect("joins");
    let before = house.identity(&first, &answer);

    house.silence(LOST).await;
    let anew = Machine::new("SERIAL0001");
    assert_eq!(house.held(&anew.request(&house, &house.token(1).await)).await, "duplicate-hardware");
    let request = anew.request(&house, &house.reclaiming().await);
    let answer = house.join(&request).await.expect("comes back");
    let after = house.identity(&request, &answer);
    assert_eq!((after.node_id, &after.node_name), (before.node_id, &before.node_name));
    assert_eq!(after.identity_generation, IdentityGeneration(2));

    let node = nodes::get(&house.db, after.node_id).await.expect("a row");
    assert_eq!((node.identity_generation, node.provision), (IdentityGeneration(2), ProvisionState::Adopting));
    assert_eq!((node.applied, node.observed), (Generation::NONE, Generation::NONE));
    // Only the new key speaks for it.
    let keys = node_certs::keys(&house.db, node.id).await.expect("read");
    assert_eq!(keys, [anew.key.public().as_bytes().to_vec()]);
    assert_eq!(house.stored(&request).await, Some((JoinState::Admitted, "admitted".to_owned())));
    assert_eq!(house.join(&request).await.expect("the same answer"), answer);
}

#[tokio::test]
async fn two_machines_that_come_back_as_one_node_end_as_one() {
    let house = House::new().await;
    house.join(&Machine::new("SERIAL0001").request(&house, &house.token(1).await)).await.expect("joins");
    house.silence(LOST).await;
    let token = house.token_with("h100", 8, &json!({}), true).await;
    let requests: Vec<_> = (0..4).map(|_| Machine::new("SERIAL0001").request(&house, &token)).collect();
    let answers = futures_util::future::join_all(requests.iter().map(|request| house.join(request))).await;
    let generations: std::collections::BTreeSet<_> = answers
        .iter()
        .zip(&requests)
        .filter_map(|(answer, request)| Some(house.identity(request, answer.as_ref().ok()?).identity_generation))
        .collect();
    let key = Machine::new("SERIAL0001").claims.hardware_key().digest.expect("a key");
    let node = nodes::find_by_hardware_key(&house.db, &key).await.expect("read").expect("one node");
    // The first one that came in is no less here than the one before it.
    assert_eq!(generations.into_iter().collect::<Vec<_>>(), [IdentityGeneration(2)]);
    assert_eq!(node.identity_generation, IdentityGeneration(2));
    assert_eq!(node_certs::keys(&house.db, node.id).await.expect("read").len(), 1);
}

#[tokio::test]
async fn a_copy_that_waits_never_wins_against_a_machine_that_reconnects() {
    let house = House::new().await;
    let (node, certificate) = house.living("SERIAL0001").await;
    let copy = Machine::new("SERIAL0001").request(&house, &house.reclaiming().await);
    assert_eq!(house.held(&copy).await, "reclaim-not-lost");

    // Its session drops and comes back; the copy asks in between and afterwards.
    house.close(node).await;
    assert_eq!(house.held(&copy).await, "reclaim-not-lost");
    house.silence(60).await;
    assert_eq!(house.held(&copy).await, "reclaim-not-lost");
    house.session(node, certificate.clone()).await;
    assert_eq!(house.held(&copy).await, "reclaim-connected");

    // They were seen to be two: no silence makes one of them, and a person says which.
    house.close(node).await;
    house.silence(LOST).await;
    assert_eq!(house.held(&copy).await, "reclaim-connected");
    assert_eq!(house.generation(node).await, IdentityGeneration(1));
    house.session(node, certificate).await;
}

#[tokio::test]
async fn a_database_that_was_away_takes_no_machine_for_lost() {
    let house = House::new().await;
    let (node, _) = house.living("SERIAL0001").await;
    // Nobody was heard for an hour, and the first thing that happens is a judgement.
    house.silence(3_600).await;
    let epoch = sessions::find(&house.db, node).await.expect("read").expect("a session").epoch;
    sessions::beat(&house.db, &[(node, epoch)]).await.expect("heard");
    let copy = Machine::new("SERIAL0001").request(&house, &house.reclaiming().await);
    assert_eq!(house.held(&copy).await, "reclaim-not-lost");
    assert_eq!(house.generation(node).await, IdentityGeneration(1));
}

#[tokio::test]
async fn a_persons_word_counts_for_a_machine_that_stays_away() {
    let house = House::new().await;
    let (node, certificate) = house.living("SERIAL0001").await;
    let copy = Machine::new("SERIAL0001").request(&house, &house.token(1).await);
    assert_eq!(house.held(&copy).await, "duplicate-hardware");
    house.close(node).await;
    house.approve_as(&copy, node).await;
    assert_eq!(house.held(&copy).await, "reclaim-not-lost");
    // It was not gone after all.
    house.silence(30).await;
    house.session(node, certificate).await;
    house.close(node).await;
    house.silence(120).await;
    assert_eq!(house.held(&copy).await, "reclaim-connected");

    house.approve_as(&copy, node).await;
    house.join(&copy).await.expect("it stayed away");
    assert_eq!(house.generation(node).await, IdentityGeneration(2));
}

#[tokio::test]
async fn a_persons_word_makes_no_second_node_of_a_machine() {
    let house = House::new().await;
    let (first, _) = house.living("SERIAL0001").await;
    let (second, _) = house.living("SERIAL0002").await;
    let again = Machine::new("SERIAL0001").request(&house, &house.token(1).await);
    assert_eq!(house.held(&again).await, "duplicate-hardware");
    house.close(second).await;
    house.silence(LOST).await;
    house.approve_as(&again, second).await;
    assert_eq!(house.held(&again).await, "duplicate-hardware", "the hardware is the first one's");
    assert_eq!(house.generation(first).await, IdentityGeneration(1));
}

#[tokio::test]
async fn a_revoked_identity_is_taken_back_at_once() {
    let house = House::new().await;
    let (node, _) = house.living("SERIAL0001").await;
    let mut txn = house.db.begin().await.expect("begin");
    identities::revoke(&mut txn, node, "its disk was stolen").await.expect("revoked");
    txn.commit().await.expect("commit");
    let anew = Machine::new("SERIAL0001").request(&house, &house.reclaiming().await);
    house.join(&anew).await.expect("comes back");
    assert_eq!(house.generation(node).await, IdentityGeneration(3));
}

#[tokio::test]
async fn a_new_board_is_the_same_node_by_its_document_or_by_a_person() {
    let house = House::new().await;
    house.apply(&[(Kind::Node, json!({"kind": "node", "name": "fra1-r12", "serial": "SERIAL0001"}))]).await;
    let first = Machine::new("SERIAL0001").request(&house, &house.token(1).await);
    let id = house.identity(&first, &house.join(&first).await.expect("joins")).node_id;

    house.silence(LOST).await;
    let mut repaired = Machine::new("SERIAL0001");
    repaired.claims.dmi.board_serial = Some("BOARDNEW17".to_owned());
    assert_eq!(house.held(&repaired.request(&house, &house.token(1).await)).await, "name-taken");
    let request = repaired.request(&house, &house.reclaiming().await);
    let answer = house.join(&request).await.expect("the document vouches");
    assert_eq!(house.identity(&request, &answer).node_id, id);
    let node = nodes::get(&house.db, id).await.expect("a row");
    assert_eq!(node.hardware_key, repaired.claims.hardware_key().digest);

    let mut again = Machine::new("SERIAL0001");
    again.claims.dmi.board_serial = Some("BOARDNEW18".to_owned());
    let request = again.request(&house, &house.token(1).await);
    assert_eq!(house.held(&request).await, "name-taken");
    house.approve_as(&request, id).await;
    let answer = house.join(&request).await.expect("ada said so");
    let identity = house.identity(&request, &answer);
    assert_eq!((identity.node_id, identity.identity_generation), (id, IdentityGeneration(3)));
}

#[tokio::test]
async fn a_token_that_expects_something_lets_nobody_else_in() {
    let house = House::new().await;
    let expect = json!({"serial": ["SERIAL0001"], "name": ["fra1-r12"]});
    let token = house.token_with("h100", 2, &expect, false).await;
    let request = Machine::new("SERIAL0002").request(&house, &token);
    let status = house.join(&request).await.expect_err("refused");
    assert_eq!(code(&status), (Code::PermissionDenied, "token-expects-another".to_owned()));
    assert!(status.message().contains("serial SERIAL0001 and name fra1-r12"), "{}", status.message());
    assert_eq!(house.held(&Machine::new("SERIAL0001").request(&house, &token)).await, "token-expects-another");
    house.apply(&[(Kind::Node, json!({"kind": "node", "name": "fra1-r12", "serial": "SERIAL0001"}))]).await;
    house.join(&Machine::new("SERIAL0001").request(&house, &token)).await.expect("the right one joins");

    let unknown = house.token_with("h100", 1, &json!({"colour": ["red"]}), false).await;
    assert_eq!(house.held(&Machine::new("SERIAL0003").request(&house, &unknown)).await, "token-expects-another");
}

#[tokio::test]
async fn a_word_for_one_machine_lets_no_other_one_in() {
    let house = House::new().await;
    let mut weak = Machine::new("SERIAL0001");
    weak.claims.dmi.board_serial = None;
    let token = house.token(1).await;
    assert_eq!(house.held(&weak.request(&house, &token)).await, "weak-hardware-key");
    house.approve(&weak.request(&house, &token), None).await;
    weak.claims.dmi.serial = Some("SERIAL0002".to_owned());
    assert_eq!(
        house.held(&weak.request(&house, &token)).await,
        "weak-hardware-key",
        "the same request, another machine"
    );
    weak.claims.dmi.serial = Some("SERIAL0001".to_owned());
    assert_eq!(house.held(&weak.request(&house, &token)).await, "weak-hardware-key", "the word is used up");
}

#[tokio::test]
async fn a_person_lets_weak_hardware_in_once() {
    let house = House::new().await;
    let mut weak = Machine::new("SERIAL0001");
    weak.claims.dmi.board_serial = None;
    let request = weak.request(&house, &house.token(1).await);
    assert_eq!(house.held(&request).await, "weak-hardware-key");
    house.approve(&request, None).await;
    house.join(&request).await.expect("joins");

    let mut other = Machine::new("SERIAL0001");
    other.claims.dmi.board_serial = None;
    assert_eq!(house.held(&other.request(&house, &house.token(1).await)).await, "weak-hardware-key");
}

/// The firmware tables of machines as they are, through the whole of a join.
#[tokio::test]
async fn blades_duplicates_and_placeholders_come_in_as_what_they_are() {
    let house = House::new().await;
    let blade = |serial: &str, board: &str| {
        let mut machine = Machine::new(serial);
        machine.claims.dmi = Dmi {
            product: Some("ProLiant BL460c Gen10".to_owned()),
            serial: Some(serial.to_owned()),
            board_serial: Some(board.to_owned()),
            chassis_serial: Some("PFB0000001".to_owned()),
            ..Dmi::default()
        };
        machine
    };
    let token = house.token(8).await;
    for machine in [blade("BLADE00001", "BOARD00001"), blade("BLADE00002", "BOARD00002")] {
        house.join(&machine.request(&house, &token)).await.expect("two blades are two nodes");
    }
    // Two boards with one UUID and no other witness: neither is trusted, so both wait for a word.
    let twin = || {
        let mut machine = Machine::new("x");
        let uuid = Some("11223344-5566-7788-99aa-bbccddeeff00".to_owned());
        machine.claims.dmi = Dmi { uuid, serial: Some("Default string".to_owned()), ..Dmi::default() };
        machine
    };
    for machine in [twin(), twin()] {
        assert_eq!(house.held(&machine.request(&house, &token)).await, "weak-hardware-key");
    }
    let mut nothing = Machine::new("x");
    nothing.claims.dmi = Dmi {
        serial: Some("To Be Filled By O.E.M.".to_owned()),
        uuid: Some("03000200-0400-0500-0006-000700080009".to_owned()),
        ..Dmi::default()
    };
    assert_eq!(pki::hardware::HardwareKey::derive(&Claims::of_dmi(&nothing.claims.dmi)).digest, None);
    assert_eq!(house.held(&nothing.request(&house, &token)).await, "weak-hardware-key");
}

#[tokio::test]
async fn a_machine_that_was_away_over_two_rotations_renews_by_itself() {
    let house = House::new().await;
    let machine = Machine::new("SERIAL0001");
    let request = machine.request(&house, &house.token(1).await);
    let answer = house.join(&request).await.expect("joins");
    let anchor = house.keys.anchor("fleet_test");
    let signed = |bundle: pb::SignedTrustBundle| SignedBundle { bytes: bundle.bundle, signature: bundle.signature };
    let trust = signed(answer.trust_bundle.clone().expect("a bundle")).first(&anchor.verifier()).expect("good");

    let mut keys = house.keys.clone();
    for _ in 0..2 {
        house.clock.advance(DAY);
        for kind in RotationKind::ALL {
            while keys.advance(kind, "fleet_test", house.clock.now()) != pki::keys::Advanced::Finished {}
        }
        house.service.use_keys(&keys);
    }
    assert_eq!(house.service.anchor().pin(), keys.anchor("fleet_test").pin());

    let certificate = answer.certificate_chain[0].clone();
    let call = pb::RenewChallengeRequest { certificate: certificate.clone(), nonce: vec![7; 32], trust_version: 1 };
    let challenge = Authority::renew_challenge(&*house.service, Request::new(call)).await.expect("given").into_inner();
    let steps: Vec<_> = challenge.trust_steps.into_iter().map(signed).collect();
    let (trust, refusal) = trust.step_through(&steps);
    assert_eq!((steps.len(), trust.version, refusal), (12, 13, None));
    let pb::SignedTime { time, nonce, signature } = challenge.server_time.expect("a time");
    let pb::Signature { worker, root_signature, signature } = signature.expect("signed");
    let signature = pki::worker::Signature { worker, root_signature, signature };
    let id = house.identity(&request, &answer).node_id;
    let time = time.parse().expect("RFC 3339");
    assert_eq!(trust.verifier().server_time(id, &nonce, time, &signature), Ok(()));

    let leaf = [certificate.as_slice().into()];
    let serial = keys.renewal_verifier(time).identify(&leaf, Validity::Open).expect("recognised").serial;
    let csr = machine.key.request();
    let possession = machine.key.sign_possession(
        &trust.realm(),
        &RenewalAsked { csr: csr::hash(&csr), serial: &serial, challenge: &challenge.challenge, claims: &[] },
    );
    let call = pb::RenewRequest {
        csr,
        certificate,
        possession,
        challenge: challenge.challenge,
        claims: Vec::new(),
        ..Default::default()
    };
    let renewed = Authority::renew(&*house.service, Request::new(call)).await.expect("renews").into_inner();
    let chain: Vec<_> = renewed.certificate_chain.iter().map(|der| der.as_slice().into()).collect();
    let node = keys.node_verifier().identify(&chain, Validity::At(time)).expect("of the present authority");
    assert_eq!(node.node_id, id);
}
