//! Facts about machines that prove what they are.

use pki::attest::{Binding, x509};
use prost::Message as _;
use schema::{
    attested::{AttestKind, Attested},
    fleet::Pool as PoolDocument,
};
use store::attestations;

use super::*;

const ROOT: &str = include_str!("evidence/racks.pem");
const R12: (&str, &str) = (include_str!("evidence/r12.pem"), include_str!("evidence/r12-key.pem"));
const R13: (&str, &str) = (include_str!("evidence/r13.pem"), include_str!("evidence/r13-key.pem"));
const EXPIRED: (&str, &str) = (include_str!("evidence/expired.pem"), include_str!("evidence/expired-key.pem"));
const REGION: &str = include_str!("../../../../pki/src/attest/fixtures/aws.pem");
const INSTANCE: &str = include_str!("../../../../pki/src/attest/fixtures/aws-open.b64");
const INSTANCE_ID: &str = "aws:123456789012/i-0123456789abcdef0";

/// The document of the pool `h100` with these rules.
fn pool(attest: serde_json::Value) -> (Kind, serde_json::Value) {
    let document = json!({ "name": "h100", "site": "fra1", "profile": "base", "attest": attest });
    serde_json::from_value::<PoolDocument>(document.clone()).expect("a pool");
    (Kind::Pool, document)
}

fn racks() -> (Kind, serde_json::Value) {
    pool(json!({ "x509": { "roots": ROOT } }))
}

fn account() -> (Kind, serde_json::Value) {
    pool(json!({ "aws": { "roots": REGION, "only": ["123456789012/*"] } }))
}

impl House {
    async fn challenge(&self, machine: &Machine) -> Vec<u8> {
        let csr_hash = csr::hash(&machine.csr).as_bytes().to_vec();
        let request = Request::new(pb::JoinChallengeRequest { csr_hash, tpm: None });
        Authority::join_challenge(&*self.service, request).await.expect("a challenge").into_inner().challenge
    }

    async fn attested(&self, text: &str) -> Option<NodeId> {
        attestations::node_of(&self.db, &text.parse().expect("an identity")).await.expect("read")
    }
}

impl Machine {
    fn shows(&self, house: &House, evidence: &pb::JoinEvidence, challenge: Vec<u8>) -> pb::JoinRequest {
        let anchor = house.keys.anchor("fleet_test");
        let sealed = sealed::seal_evidence(&anchor, csr::hash(&self.csr), &evidence.encode_to_vec()).expect("sealed");
        pb::JoinRequest {
            csr: self.csr.clone(),
            claims: self.claims.to_bytes(),
            described: true,
            agent_version: "0.1.0".to_owned(),
            evidence: Some(pb::SealedToken {
                key_id: sealed.key_id,
                encapsulated_key: sealed.encapsulated_key,
                ciphertext: sealed.ciphertext,
            }),
            challenge,
            token: None,
        }
    }

    fn signs(&self, (certificate, key): (&str, &str), challenge: &[u8]) -> pb::JoinEvidence {
        let realm = Realm::new("bc.local", "fleet_test");
        let binding = Binding { realm: &realm, csr: csr::hash(&self.csr), challenge };
        let signed = x509::sign(certificate.as_bytes(), key.as_bytes(), &binding).expect("signed");
        let x509::Evidence { chain, scheme, signature } = signed;
        let x509 = pb::X509Evidence { chain, scheme: u32::from(scheme), signature };
        pb::JoinEvidence { x509: Some(x509), ..pb::JoinEvidence::default() }
    }

    /// A request that shows a certificate, with a fresh challenge.
    async fn certified(&self, house: &House, pair: (&str, &str)) -> pb::JoinRequest {
        let challenge = house.challenge(self).await;
        self.shows(house, &self.signs(pair, &challenge), challenge)
    }

    /// A request that shows the document of an instance.
    fn instance(&self, house: &House) -> pb::JoinRequest {
        self.shows(house, &pb::JoinEvidence { aws: INSTANCE.to_owned(), ..Default::default() }, Vec::new())
    }
}

fn id_of((certificate, _): (&str, &str)) -> String {
    use rustls_pki_types::{CertificateDer, pem::PemObject as _};
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate");
    Attested::of_digest(AttestKind::X509, Digest::of(&der)).to_string()
}

async fn refusal(house: &House, request: &pb::JoinRequest) -> (Code, String) {
    code(&house.join(request).await.expect_err("not let in"))
}

#[tokio::test]
async fn a_certificate_of_a_pools_authority_lets_in_without_a_token() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let machine = Machine::new("A5M2DG769504");
    let request = machine.certified(&house, R12).await;
    let answer = house.join(&request).await.expect("in");
    let identity = house.identity(&request, &answer);
    assert_eq!(identity.pool.as_deref(), Some("h100"));
    assert_eq!(house.attested(&id_of(R12)).await, Some(identity.node_id));
    assert_eq!(house.join(&request).await.expect("the same answer"), answer);
    let join = joins::find_by_csr(&house.db, &csr::hash(&request.csr)).await.expect("read").expect("a join");
    let attested: Vec<String> = join.join.attested.iter().map(ToString::to_string).collect();
    assert_eq!((join.join.state, attested), (JoinState::Admitted, vec![id_of(R12)]));
}

#[tokio::test]
async fn evidence_is_good_for_its_request_its_challenge_and_its_time() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let (mine, other) = (Machine::new("A5M2DG769504"), Machine::new("A5M2DG769505"));
    let challenge = house.challenge(&mine).await;
    let evidence = mine.signs(R12, &challenge);

    let carried = pb::JoinRequest { csr: other.csr.clone(), ..mine.shows(&house, &evidence, challenge.clone()) };
    assert_eq!(refusal(&house, &carried).await, (Code::PermissionDenied, "token-does-not-open".into()));
    let sealed_anew = other.shows(&house, &evidence, challenge.clone());
    assert_eq!(refusal(&house, &sealed_anew).await, (Code::Aborted, "challenge-not-ours".into()));
    let sealed_anew = other.shows(&house, &evidence, house.challenge(&other).await);
    assert_eq!(refusal(&house, &sealed_anew).await, (Code::PermissionDenied, "attestation-not-proven".into()));
    let without = mine.shows(&house, &mine.signs(R12, b""), Vec::new());
    assert_eq!(refusal(&house, &without).await, (Code::Aborted, "challenge-not-ours".into()));

    house.clock.advance(Duration::from_secs(301));
    let late = mine.shows(&house, &evidence, challenge);
    assert_eq!(refusal(&house, &late).await, (Code::Aborted, "challenge-too-old".into()));
    assert!(house.join(&mine.certified(&house, R12).await).await.is_ok());
}

#[tokio::test]
async fn an_expired_certificate_and_somebody_elses_are_refused() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let machine = Machine::new("A5M2DG769504");
    let expired = machine.certified(&house, EXPIRED).await;
    assert_eq!(refusal(&house, &expired).await, (Code::PermissionDenied, "attestation-expired".into()));
    let theirs = machine.certified(&house, (R13.0, R12.1)).await;
    assert_eq!(refusal(&house, &theirs).await, (Code::PermissionDenied, "attestation-not-proven".into()));
    // A good token does not make up for bad evidence.
    let token = house.token(1).await;
    let both = pb::JoinRequest { token: machine.request(&house, &token).token, ..theirs };
    assert_eq!(refusal(&house, &both).await, (Code::PermissionDenied, "attestation-not-proven".into()));
    let nothing = pb::JoinRequest { token: None, ..machine.request(&house, &token) };
    assert_eq!(refusal(&house, &nothing).await, (Code::PermissionDenied, "no-token".into()));
}

#[tokio::test]
async fn a_proven_machine_that_nobody_knows_waits_for_a_document_that_names_it() {
    let house = House::new().await;
    let machine = Machine::new("A5M2DG769504");
    let request = machine.certified(&house, R12).await;
    assert_eq!(refusal(&house, &request).await, (Code::FailedPrecondition, "attestation-unknown".into()));
    assert_eq!(house.stored(&request).await, Some((JoinState::Waiting, "attestation-unknown".into())));
    // That a document has its serial is no reason: serials are written on machines.
    house.apply(&[(Kind::Node, json!({ "name": "r12", "pool": "h100", "serial": "A5M2DG769504" }))]).await;
    assert_eq!(refusal(&house, &request).await.1, "attestation-unknown");
    house.apply(&[(Kind::Node, json!({ "name": "r12", "pool": "h100", "attested": [id_of(R12)] }))]).await;
    let answer = house.join(&request).await.expect("in");
    assert_eq!(house.identity(&request, &answer).node_name, "r12");
    // Another one with a token and that serial is not it.
    let other = Machine::new("A5M2DG769505");
    let request = other.request(&house, &house.token(1).await);
    let answer = house.join(&request).await.expect("in");
    assert_ne!(house.identity(&request, &answer).node_name, "r12");
}

#[tokio::test]
async fn what_proved_to_be_one_node_is_no_other() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let first = Machine::new("A5M2DG769504").certified(&house, R12).await;
    house.join(&first).await.expect("in");
    let second = Machine::new("A5M2DG769505").certified(&house, R12).await;
    assert_eq!(refusal(&house, &second).await, (Code::FailedPrecondition, "attested-elsewhere".into()));
    assert_eq!(house.stored(&second).await, Some((JoinState::Held, "attested-elsewhere".into())));
    // A token changes nothing about that.
    let other = Machine::new("A5M2DG769506");
    let token = house.token(1).await;
    let with = pb::JoinRequest { token: other.request(&house, &token).token, ..other.certified(&house, R12).await };
    assert_eq!(refusal(&house, &with).await.1, "attested-elsewhere");
    let token = join_tokens::list(&house.db).await.expect("read").items.remove(0);
    assert_eq!(token.uses_left, 1);
}

#[tokio::test]
async fn a_document_of_an_instance_makes_one_node() {
    let house = House::new().await;
    house.apply(&[account()]).await;
    let machine = Machine::new("ec2a5b8f-1");
    let request = machine.instance(&house);
    let answer = house.join(&request).await.expect("in");
    let node = house.identity(&request, &answer).node_id;
    assert_eq!(house.attested(INSTANCE_ID).await, Some(node));
    let thief = Machine::new("ec2a5b8f-2").instance(&house);
    assert_eq!(refusal(&house, &thief).await, (Code::FailedPrecondition, "attested-elsewhere".into()));
    // It can be carried away, so it does not take a node back either, with the same hardware and a long time after.
    house.silence(40 * 86_400).await;
    let copy = Machine { csr: NodeKey::generate().request(), ..machine };
    assert_eq!(refusal(&house, &copy.instance(&house)).await, (Code::FailedPrecondition, "duplicate-hardware".into()));
}

#[tokio::test]
async fn a_document_that_nobody_here_believes_proves_nothing() {
    let house = House::new().await;
    let request = Machine::new("ec2a5b8f-1").instance(&house);
    assert_eq!(refusal(&house, &request).await, (Code::PermissionDenied, "attestation-untrusted".into()));
    house.apply(&[pool(json!({ "aws": { "roots": ROOT, "only": ["123456789012/*"] } }))]).await;
    assert_eq!(refusal(&house, &request).await, (Code::PermissionDenied, "attestation-untrusted".into()));
    house.apply(&[pool(json!({ "aws": { "roots": REGION, "only": ["210987654321/*"] } }))]).await;
    assert_eq!(refusal(&house, &request).await, (Code::FailedPrecondition, "attestation-unknown".into()));
}

#[tokio::test]
async fn token_and_evidence_that_disagree_let_nobody_in() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let machine = Machine::new("A5M2DG769504");
    let other = house.token_for("a100", 1).await;
    let request =
        pb::JoinRequest { token: machine.request(&house, &other).token, ..machine.certified(&house, R12).await };
    assert_eq!(refusal(&house, &request).await, (Code::FailedPrecondition, "attestation-disagrees".into()));
    let same = house.token_for("h100", 1).await;
    let request =
        pb::JoinRequest { token: machine.request(&house, &same).token, ..machine.certified(&house, R12).await };
    assert!(house.join(&request).await.is_ok());
}

#[tokio::test]
async fn a_pool_that_asks_for_more_takes_nobody_for_a_token_alone() {
    let house = House::new().await;
    house.apply(&[pool(json!({ "x509": { "roots": ROOT, "only": ["r12.*"], "required": true } }))]).await;
    let machine = Machine::new("A5M2DG769504");
    let token = house.token(2).await;
    let bare = machine.request(&house, &token);
    assert_eq!(refusal(&house, &bare).await, (Code::PermissionDenied, "attestation-required".into()));
    let other = pb::JoinRequest { token: bare.token.clone(), ..machine.certified(&house, R13).await };
    assert_eq!(refusal(&house, &other).await.1, "attestation-required", "the pool names another one");
    let both = pb::JoinRequest { token: bare.token, ..machine.certified(&house, R12).await };
    assert!(house.join(&both).await.is_ok());
}

#[tokio::test]
async fn a_token_can_expect_what_a_machine_proves() {
    let house = House::new().await;
    let token = house.token_with("h100", 1, &json!({ "attested": [id_of(R12)] }), false).await;
    let machine = Machine::new("A5M2DG769504");
    let bare = machine.request(&house, &token);
    assert_eq!(refusal(&house, &bare).await.1, "token-expects-another");
    let good = pb::JoinRequest { token: bare.token, ..machine.certified(&house, R12).await };
    assert!(house.join(&good).await.is_ok());
}

#[tokio::test]
async fn a_machine_that_proves_to_be_a_lost_node_takes_it_back_by_itself() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let machine = Machine::new("A5M2DG769504");
    let request = machine.certified(&house, R12).await;
    let answer = house.join(&request).await.expect("in");
    let node = house.identity(&request, &answer).node_id;
    let serial = pki::verify::NodeIdentity::of_own(
        "bc.local",
        &answer.certificate_chain.iter().map(|der| der.as_slice().into()).collect::<Vec<_>>(),
    );
    house.session(node, serial.expect("a node").serial.to_bytes()).await;

    let again = Machine { csr: NodeKey::generate().request(), ..machine };
    let request = again.certified(&house, R12).await;
    assert_eq!(refusal(&house, &request).await.1, "reclaim-not-lost");
    house.silence(3 * 3_600).await;
    let request = again.certified(&house, R12).await;
    let answer = house.join(&request).await.expect("it is back");
    assert_eq!(house.identity(&request, &answer).node_id, node);
    // The same hardware with another certificate is not.
    let other = Machine { csr: NodeKey::generate().request(), ..again };
    house.silence(6 * 3_600).await;
    assert_eq!(refusal(&house, &other.certified(&house, R13).await).await.1, "duplicate-hardware");
}

#[tokio::test]
async fn whose_word_is_missing_and_which_name_does_not_fit_are_told_apart() {
    let house = House::new().await;
    let why = async |house: &House, pair| {
        let request = Machine::new("A5M2DG769504").certified(house, pair).await;
        let refused = house.join(&request).await.expect_err("not let in");
        refused.message().to_owned()
    };
    let unasked = why(&house, R12).await;
    assert!(unasked.contains("no pool has an `attest \"x509\"`") && unasked.contains("a certificate of"), "{unasked}");
    house.apply(&[pool(json!({ "x509": { "roots": ROOT, "only": ["r13.*"] } }))]).await;
    let name = why(&house, R12).await;
    assert!(name.contains("h100 believes who stands behind that") && name.contains("names nothing"), "{name}");
    house.apply(&[pool(json!({ "x509": { "roots": REGION } }))]).await;
    let chain = why(&house, R12).await;
    assert!(chain.contains("nobody whom a pool believes stands behind that"), "{chain}");
}

#[tokio::test]
async fn a_rule_that_came_into_force_counts_for_the_next_join() {
    let house = House::new().await;
    let request = async || Machine::new("A5M2DG769504").certified(&house, R12).await;
    house.apply(&[pool(json!({ "x509": { "roots": REGION } }))]).await;
    assert_eq!(refusal(&house, &request().await).await.1, "attestation-unknown");
    assert_eq!(refusal(&house, &request().await).await.1, "attestation-unknown");
    house.apply(&[racks()]).await;
    assert!(house.join(&request().await).await.is_ok());
}

#[tokio::test]
async fn a_board_that_was_replaced_is_not_the_node_any_more() {
    let house = House::new().await;
    house.apply(&[racks()]).await;
    let old = Machine::new("A5M2DG769504");
    let request = old.certified(&house, R12).await;
    let answer = house.join(&request).await.expect("in");
    let node = house.identity(&request, &answer).node_id;
    house.silence(3 * 3_600).await;
    // Another board, with another certificate: a person says that it is the node.
    let new = Machine::new("A5M2DG769505");
    let request = new.certified(&house, R13).await;
    let stored = joins::find_by_csr(&house.db, &csr::hash(&request.csr)).await.expect("read");
    assert_eq!(stored, None);
    house.apply(&[(Kind::Fleet, json!({ "name": "acme", "admission": "strict" }))]).await;
    assert_eq!(refusal(&house, &request).await.1, "needs-document");
    let stored = joins::find_by_csr(&house.db, &csr::hash(&request.csr)).await.expect("read").expect("a join");
    let mut txn = house.db.begin().await.expect("begins");
    assert!(joins::approve(&mut txn, stored.id, "ada", Some(node)).await.expect("approved"));
    txn.commit().await.expect("commits");
    let answer = house.join(&new.certified(&house, R13).await).await.expect("it is the node");
    assert_eq!(house.identity(&request, &answer).node_id, node);
    assert_eq!(house.attested(&id_of(R13)).await, Some(node));
    assert_eq!(house.attested(&id_of(R12)).await, None, "what the old board proved to be is nobody");
}

#[tokio::test]
async fn strangers_who_prove_something_do_not_fill_the_database() {
    let house = House::new().await;
    let mut stored = 0;
    for n in 0..130 {
        let request = Machine::new(&format!("STRANGER{n:04}")).certified(&house, R12).await;
        assert_eq!(refusal(&house, &request).await.1, "attestation-unknown");
        stored += usize::from(house.stored(&request).await.is_some());
    }
    assert_eq!(stored, 120);
}
