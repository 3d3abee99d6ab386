//! Renewals.

use pki::{issue::Serial, report::RenewalAsked};
use schema::{clock::Clock as _, command::CommandKind};
use store::{node_certs, nodes};

use super::*;
use crate::custody::Custody;

/// A machine that joined: its id, its key and its certificate.
struct Joined {
    id: NodeId,
    machine: Machine,
    certificate: Vec<u8>,
}

impl Joined {
    async fn new(house: &House, serial: &str) -> Self {
        let machine = Machine::new(serial);
        let request = machine.request(house, &house.token(1).await);
        let answer = house.join(&request).await.expect("joins");
        let id = house.identity(&request, &answer).node_id;
        Self { id, machine, certificate: answer.certificate_chain[0].clone() }
    }

    fn serial(&self, house: &House) -> Serial {
        let chain = [self.certificate.as_slice().into()];
        house.keys.node_verifier().identify(&chain, Validity::Open).expect("ours").serial
    }

    async fn challenge(&self, house: &House) -> Result<pb::RenewChallengeResponse, Status> {
        let request =
            pb::RenewChallengeRequest { certificate: self.certificate.clone(), nonce: vec![7; 32], trust_version: 1 };
        Authority::renew_challenge(&*house.service, Request::new(request)).await.map(tonic::Response::into_inner)
    }

    async fn renewal(&self, house: &House) -> pb::RenewRequest {
        self.renewal_of(house, &self.machine.claims).await
    }

    /// A renewal that shows this hardware.
    async fn renewal_of(&self, house: &House, claims: &JoinClaims) -> pb::RenewRequest {
        let challenge = self.challenge(house).await.expect("a challenge").challenge;
        let csr = self.machine.key.request();
        let realm = Realm::new("bc.local", "fleet_test");
        let (serial, claims) = (self.serial(house), claims.to_bytes());
        let asked = RenewalAsked { csr: csr::hash(&csr), serial: &serial, challenge: &challenge, claims: &claims };
        let possession = self.machine.key.sign_possession(&realm, &asked);
        let certificate = self.certificate.clone();
        pb::RenewRequest { csr, certificate, possession, challenge, claims, keeps_identity: true }
    }
}

async fn renew(house: &House, request: pb::RenewRequest) -> Result<pb::RenewResponse, Status> {
    Authority::renew(&*house.service, Request::new(request)).await.map(tonic::Response::into_inner)
}

async fn refusal(house: &House, request: pb::RenewRequest) -> String {
    code(&renew(house, request).await.expect_err("refused")).1
}

#[tokio::test]
async fn a_node_renews_by_its_key_and_the_new_certificate_renews_again() {
    let house = House::new().await;
    let mut node = Joined::new(&house, "SERIAL0001").await;
    for _ in 0..3 {
        house.clock.advance(Duration::from_secs(12 * 3600));
        let answer = renew(&house, node.renewal(&house).await).await.expect("renews");
        assert_ne!(answer.certificate_chain[0], node.certificate);
        node.certificate = answer.certificate_chain[0].clone();
        let row = node_certs::find(&house.db, &node.serial(&house).to_bytes()).await.expect("read").expect("recorded");
        assert_eq!(row.node_id, node.id);
    }
}

#[tokio::test]
async fn an_expired_certificate_renews_for_thirty_days_and_later_once_somebody_let_it() {
    let house = House::new().await;
    let mut node = Joined::new(&house, "SERIAL0001").await;
    // A certificate ends at a whole second.
    house.clock.advance(Duration::from_secs(31 * 86_400 - 1));
    renew(&house, node.renewal(&house).await).await.expect("30 days after its end it renews");
    house.clock.advance(Duration::from_secs(2));

    for attempt in 1..=2 {
        let status = renew(&house, node.renewal(&house).await).await.expect_err("waits");
        assert_eq!(code(&status), (Code::FailedPrecondition, "renewal-too-late".to_owned()));
        let waiting = joins::list(&house.db, Some(JoinState::Waiting), 10).await.expect("read").items;
        assert_eq!((waiting.len(), waiting[0].attempts, waiting[0].join.node_id), (1, attempt, Some(node.id)));
    }
    let waiting = joins::list(&house.db, Some(JoinState::Waiting), 10).await.expect("read").items.remove(0);
    let mut txn = house.db.begin().await.expect("begin");
    assert!(joins::approve(&mut txn, waiting.id, "ada", None).await.expect("approved"));
    txn.commit().await.expect("commit");
    let answer = renew(&house, node.renewal(&house).await).await.expect("let through");
    let late = joins::find(&house.db, waiting.id).await.expect("read").expect("kept");
    assert_eq!((late.join.state, late.approval), (JoinState::Admitted, None));

    node.certificate = answer.certificate_chain[0].clone();
    renew(&house, node.renewal(&house).await).await.expect("the new one renews by itself");
}

/// Lets the one renewal through that waits.
async fn approve(house: &House) {
    let waiting = joins::list(&house.db, Some(JoinState::Waiting), 10).await.expect("read").items;
    assert_eq!(waiting.len(), 1);
    let mut txn = house.db.begin().await.expect("begin");
    assert!(joins::approve(&mut txn, waiting[0].id, "ada", None).await.expect("approved"));
    txn.commit().await.expect("commit");
}

#[tokio::test]
async fn a_late_renewal_whose_answer_is_lost_is_let_through_again_until_its_machine_is_back() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    house.clock.advance(Duration::from_secs(40 * 86_400));
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    approve(&house).await;
    renew(&house, node.renewal(&house).await).await.expect("let through, and its answer is lost");
    let answer = renew(&house, node.renewal(&house).await).await.expect("let through again");

    let serial = node_certs::find(&house.db, &node.serial(&house).to_bytes()).await.expect("read");
    let old = serial.expect("recorded").serial;
    let chain = [answer.certificate_chain[0].as_slice().into()];
    let new = house.keys.node_verifier().identify(&chain, Validity::Open).expect("ours").serial.to_bytes();
    assert_ne!(new, old);
    house.session(node.id, new).await;
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    approve(&house).await;
    renew(&house, node.renewal(&house).await).await.expect("a person may let it through again");
}

#[tokio::test]
async fn a_late_renewal_is_let_through_on_the_hardware_that_was_seen_only() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    house.clock.advance(Duration::from_secs(40 * 86_400));
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    let waiting =
        || async { joins::list(&house.db, Some(JoinState::Waiting), 10).await.expect("read").items.remove(0) };
    let seen = waiting().await;
    assert_eq!(seen.join.hardware_key, node.machine.claims.hardware_key().digest);
    assert!(seen.join.message.ends_with("it shows the node's hardware"), "{}", seen.join.message);
    approve(&house).await;

    let other = Machine::new("SERIAL0002").claims;
    assert_eq!(refusal(&house, node.renewal_of(&house, &other).await).await, "renewal-too-late");
    let shown = waiting().await;
    assert_eq!((shown.id, shown.approval), (seen.id, None), "the word was for other hardware");
    assert!(shown.join.message.ends_with("it shows other hardware than the node's"), "{}", shown.join.message);
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    approve(&house).await;
    renew(&house, node.renewal(&house).await).await.expect("let through");
}

#[tokio::test]
async fn a_late_renewal_that_did_not_come_for_a_day_waits_for_another_word() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    house.clock.advance(Duration::from_secs(40 * 86_400));
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    approve(&house).await;
    renew(&house, node.renewal(&house).await).await.expect("let through");
    house.test.advance(std::time::Duration::from_secs(86_400)).await;
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    approve(&house).await;
    renew(&house, node.renewal(&house).await).await.expect("no dead end");
}

#[tokio::test]
async fn a_renewal_is_good_once_and_for_five_minutes() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    let request = node.renewal(&house).await;
    renew(&house, request.clone()).await.expect("renews");
    assert_eq!(refusal(&house, request).await, "challenge-used");
    let request = node.renewal(&house).await;
    house.clock.advance(Duration::from_secs(301));
    assert_eq!(refusal(&house, request).await, "challenge-too-old");
    let mut forged = node.renewal(&house).await;
    forged.challenge = vec![7; 56];
    assert_eq!(refusal(&house, forged).await, "challenge-not-ours");
    let bare = pb::RenewRequest { challenge: Vec::new(), ..node.renewal(&house).await };
    assert_eq!(refusal(&house, bare).await, "challenge-not-ours");
}

#[tokio::test]
async fn a_machine_that_does_not_know_the_time_gets_it_with_the_challenge() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    let answer = node.challenge(&house).await.expect("a challenge");
    assert!(answer.trust_steps.is_empty());
    let pb::SignedTime { time, nonce, signature } = answer.server_time.expect("a time");
    let pb::Signature { worker, root_signature, signature } = signature.expect("signed");
    let signature = pki::worker::Signature { worker, root_signature, signature };
    let verifier = house.keys.anchor("fleet_test").verifier();
    let time = time.parse().expect("RFC 3339");
    assert_eq!(verifier.server_time(node.id, &nonce, time, &signature), Ok(()));
    assert_eq!((time, nonce), (house.clock.now(), vec![7; 32]));
}

#[tokio::test]
async fn a_renewal_needs_the_key_of_its_certificate() {
    let house = House::new().await;
    let (node, thief) = (Joined::new(&house, "SERIAL0001").await, Joined::new(&house, "SERIAL0002").await);
    let mut stolen = thief.renewal(&house).await;
    stolen.certificate.clone_from(&node.certificate);
    assert_eq!(refusal(&house, stolen.clone()).await, "challenge-not-ours");
    stolen.challenge = node.renewal(&house).await.challenge;
    assert_eq!(refusal(&house, stolen).await, "no-possession");
    let mut swapped = node.renewal(&house).await;
    swapped.csr = thief.machine.key.request();
    assert_eq!(refusal(&house, swapped).await, "no-possession");
    let mut garbage = node.renewal(&house).await;
    garbage.certificate = vec![1, 2, 3];
    assert_eq!(refusal(&house, garbage).await, "malformed");
    let foreign = House::new().await;
    assert_eq!(refusal(&foreign, node.renewal(&house).await).await, "foreign-ca");
    assert_eq!(code(&node.challenge(&foreign).await.expect_err("refused")).1, "foreign-ca");
}

#[tokio::test]
async fn a_renewal_keeps_its_key_and_comes_no_oftener_than_a_machine_needs() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    let challenge = node.challenge(&house).await.expect("a challenge").challenge;
    let csr = NodeKey::generate().request();
    let (realm, serial) = (Realm::new("bc.local", "fleet_test"), node.serial(&house));
    let asked = RenewalAsked { csr: csr::hash(&csr), serial: &serial, challenge: &challenge, claims: &[] };
    let possession = node.machine.key.sign_possession(&realm, &asked);
    let certificate = node.certificate.clone();
    let other = pb::RenewRequest { csr, certificate, possession, challenge, ..pb::RenewRequest::default() };
    assert_eq!(refusal(&house, other).await, "other-key");

    // The certificate of the join counts.
    for _ in 1..60 {
        renew(&house, node.renewal(&house).await).await.expect("renews");
    }
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-often");
    house.test.advance(std::time::Duration::from_secs(3_601)).await;
    renew(&house, node.renewal(&house).await).await.expect("renews");
    assert_eq!(node_certs::keys(&house.db, node.id).await.expect("read").len(), 1);
}

#[tokio::test]
async fn a_renewal_tells_a_renamed_machine_its_name_and_says_so_of_its_certificate() {
    let house = House::new().await;
    let mut node = Joined::new(&house, "SERIAL0001").await;
    let before = nodes::get(&house.db, node.id).await.expect("a row").name;
    let mut txn = house.db.begin().await.expect("begin");
    let object = |name: &Name| ObjectRef::new(Kind::Node, name.clone());
    store::renames::apply(&mut txn, &[(object(&before), object(&name("fra1-r12")))]).await.expect("renamed");
    txn.commit().await.expect("commit");

    let of = async |certificate: &[u8]| {
        let chain = [certificate.into()];
        let serial = house.keys.node_verifier().identify(&chain, Validity::Open).expect("ours").serial;
        node_certs::find(&house.db, &serial.to_bytes()).await.expect("read").expect("a row").node_name
    };
    assert_eq!(of(&node.certificate).await, Some(before.to_string()));
    // A daemon that does not keep the answer goes by its old name still.
    let older = pb::RenewRequest { keeps_identity: false, ..node.renewal(&house).await };
    node.certificate = renew(&house, older).await.expect("renews").certificate_chain[0].clone();
    assert_eq!(of(&node.certificate).await, Some(before.to_string()));

    let request = node.renewal(&house).await;
    let answer = renew(&house, request.clone()).await.expect("renews");
    assert_eq!(of(&answer.certificate_chain[0]).await.as_deref(), Some("fra1-r12"));
    let signature = answer.signature.expect("signed");
    let signature = pki::worker::Signature {
        worker: signature.worker,
        root_signature: signature.root_signature,
        signature: signature.signature,
    };
    let verifier = house.keys.anchor("fleet_test").verifier();
    let identity = verifier.identity(csr::hash(&request.csr), &answer.identity, &signature, Validity::Open);
    let identity = identity.expect("for this request");
    assert_eq!((identity.node_id, identity.node_name.as_str()), (node.id, "fra1-r12"));
}

#[tokio::test]
async fn a_name_that_somebody_else_wrote_into_a_row_is_told_to_no_machine() {
    let house = House::new().await;
    house.db.set_marker(Custody::new(&house.keys.signing(), "fleet_test"));
    let node = Joined::new(&house, "SERIAL0001").await;
    let before = nodes::get(&house.db, node.id).await.expect("a row").name;
    let steal = async |name: &str| {
        let theft = format!("UPDATE nodes SET name = '{name}' WHERE id = '{}'", node.id.as_uuid());
        assert_eq!(store::testing::steal(&house.db, &theft).await.expect("a superuser may"), 1);
    };
    steal("fra1-r12").await;
    let answer = renew(&house, node.renewal(&house).await).await.expect("its certificate is renewed");
    assert!(answer.identity.is_empty() && answer.signature.is_none(), "it keeps the name that it had");
    let chain = [answer.certificate_chain[0].as_slice().into()];
    let serial = house.keys.node_verifier().identify(&chain, Validity::Open).expect("ours").serial;
    let row = node_certs::find(&house.db, &serial.to_bytes()).await.expect("read").expect("a row");
    assert_eq!(row.node_name, Some(before.to_string()));

    // Nor to one that comes back with a new disk.
    house.silence(90 + 900).await;
    let anew = Machine::new("SERIAL0001");
    let request = anew.request(&house, &house.token_with("h100", 1, &json!({}), true).await);
    assert_eq!(code(&house.join(&request).await.expect_err("held")).1, "reclaim-unvouched");
    steal(before.as_str()).await;
    let answer = house.join(&request).await.expect("comes back");
    assert_eq!(house.identity(&request, &answer).node_name, before.to_string());
}

#[tokio::test]
async fn what_an_identity_accepts_is_said_by_its_token_and_stays_with_every_renewal() {
    let house = House::new().await;
    let kinds = vec!["inventory.refresh".to_owned()];
    let machine = Machine::new("SERIAL0001");
    let request = machine.request(&house, &house.token_of_kinds(Some(kinds.clone())).await);
    let answer = house.join(&request).await.expect("joins");
    let identity = house.identity(&request, &answer);
    assert_eq!(identity.kinds, Some(kinds.clone()));
    let mut node = Joined { id: identity.node_id, machine, certificate: answer.certificate_chain[0].clone() };
    for _ in 0..2 {
        // Whoever writes to the database does not widen it.
        let theft = "UPDATE node_certs SET allowed_kinds = NULL";
        assert!(store::testing::steal(&house.db, theft).await.expect("a superuser may") > 0);
        let answer = renew(&house, node.renewal(&house).await).await.expect("renews");
        node.certificate = answer.certificate_chain[0].clone();
    }
    assert_eq!(node_certs::allowed_kinds(&house.db, node.id).await.expect("read"), Some(kinds));
    let may = async |kind| store::commands::may_enqueue(&house.db, node.id, kind).await.is_ok();
    assert!(may(CommandKind::InventoryRefresh).await && !may(CommandKind::NodeReboot).await);

    // An identity that is over accepts nothing, and one that a token without kinds brings accepts all.
    let mut txn = house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, node.id, "stolen").await.expect("revoked");
    txn.commit().await.expect("commit");
    assert_eq!(node_certs::allowed_kinds(&house.db, node.id).await.expect("read"), Some(Vec::new()));
    let whole = Joined::new(&house, "SERIAL0002").await;
    assert_eq!(node_certs::allowed_kinds(&house.db, whole.id).await.expect("read"), None);
}

#[tokio::test]
async fn a_revoked_identity_never_renews() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    let mut txn = house.db.begin().await.expect("begin");
    nodes::bump_identity(&mut txn, node.id).await.expect("bumped");
    txn.commit().await.expect("commit");
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "identity-revoked");

    let node = Joined::new(&house, "SERIAL0002").await;
    let mut txn = house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, node.id, "lost").await.expect("revoked");
    txn.commit().await.expect("commit");
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "identity-revoked");
}

#[tokio::test]
async fn a_restored_database_renews_the_key_that_it_knows() {
    let house = House::new().await;
    let mut node = Joined::new(&house, "SERIAL0001").await;
    // Issued by the same authority after the backup: the database has no row of it.
    let later = |machine: &Machine, id| {
        let csr = csr::Csr::parse(&machine.key.request()).expect("a request");
        let issued = house.keys.node_issuer().issue(&csr, id, None, house.clock.now()).expect("issued");
        issued.chain[0].to_vec()
    };
    node.certificate = later(&node.machine, node.id);
    let answer = renew(&house, node.renewal(&house).await).await.expect("renews");
    let before = std::mem::replace(&mut node.certificate, answer.certificate_chain[0].clone());
    assert!(node_certs::find(&house.db, &node.serial(&house).to_bytes()).await.expect("read").is_some());

    // What the database knows of the machine is older than any report that may wait.
    house.test.advance(std::time::Duration::from_secs(40 * 86_400)).await;
    assert_eq!(node_certs::keys(&house.db, node.id).await.expect("read"), Vec::<Vec<u8>>::new());
    node.certificate = later(&node.machine, node.id);
    let unknown = node.renewal(&house).await;
    renew(&house, unknown).await.expect("renews");
    node.certificate = later(&node.machine, node.id);
    house.clock.advance(Duration::from_secs(32 * 86_400));
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "renewal-too-late");
    approve(&house).await;
    renew(&house, node.renewal(&house).await).await.expect("let through");
    node.certificate = before.clone();

    let stranger = Machine::new("SERIAL0002");
    let certificate = later(&stranger, node.id);
    let other = Joined { id: node.id, machine: stranger, certificate };
    assert_eq!(refusal(&house, other.renewal(&house).await).await, "unknown-certificate");

    let mut txn = house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, node.id, "lost").await.expect("revoked");
    txn.commit().await.expect("commit");
    assert_eq!(refusal(&house, node.renewal(&house).await).await, "unknown-certificate");
}
