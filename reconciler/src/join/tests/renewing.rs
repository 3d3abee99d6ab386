//! Renewals.

use pki::issue::Serial;
use schema::{clock::Clock as _, id::NodeId};
use store::{node_certs, nodes};

use super::*;

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

    fn renewal(&self, house: &House) -> pb::RenewRequest {
        let csr = self.machine.key.request();
        let realm = Realm::new("bc.local", "fleet_test");
        let possession = self.machine.key.sign_possession(&realm, csr::hash(&csr), &self.serial(house));
        pb::RenewRequest { csr, certificate: self.certificate.clone(), possession }
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
        let answer = renew(&house, node.renewal(&house)).await.expect("renews");
        assert_ne!(answer.certificate_chain[0], node.certificate);
        node.certificate = answer.certificate_chain[0].clone();
        let row = node_certs::find(&house.db, &node.serial(&house).to_bytes()).await.expect("read").expect("recorded");
        assert_eq!(row.node_id, node.id);
    }
}

#[tokio::test]
async fn an_expired_certificate_renews_for_thirty_days() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    house.clock.advance(Duration::from_secs(30 * 86_400));
    assert!(renew(&house, node.renewal(&house)).await.is_ok());
    house.clock.advance(Duration::from_secs(86_401));
    assert_eq!(refusal(&house, node.renewal(&house)).await, "certificate-too-old");
}

#[tokio::test]
async fn a_renewal_needs_the_key_of_its_certificate() {
    let house = House::new().await;
    let (node, thief) = (Joined::new(&house, "SERIAL0001").await, Joined::new(&house, "SERIAL0002").await);
    let mut stolen = thief.renewal(&house);
    stolen.certificate.clone_from(&node.certificate);
    assert_eq!(refusal(&house, stolen).await, "no-possession");
    let mut swapped = node.renewal(&house);
    swapped.csr = thief.machine.key.request();
    assert_eq!(refusal(&house, swapped).await, "no-possession");
    let mut garbage = node.renewal(&house);
    garbage.certificate = vec![1, 2, 3];
    assert_eq!(refusal(&house, garbage).await, "malformed");
    let foreign = House::new().await;
    assert_eq!(refusal(&foreign, node.renewal(&house)).await, "foreign-ca");
}

#[tokio::test]
async fn a_revoked_identity_never_renews() {
    let house = House::new().await;
    let node = Joined::new(&house, "SERIAL0001").await;
    let mut txn = house.db.begin().await.expect("begin");
    nodes::bump_identity(&mut txn, node.id).await.expect("bumped");
    txn.commit().await.expect("commit");
    assert_eq!(refusal(&house, node.renewal(&house)).await, "identity-revoked");

    let node = Joined::new(&house, "SERIAL0002").await;
    let mut txn = house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, node.id, "lost").await.expect("revoked");
    txn.commit().await.expect("commit");
    assert_eq!(refusal(&house, node.renewal(&house)).await, "identity-revoked");
}

#[tokio::test]
async fn a_restored_database_renews_the_key_that_it_knows() {
    let house = House::new().await;
    let mut node = Joined::new(&house, "SERIAL0001").await;
    // Issued by the same authority after the backup: the database has no row of it.
    let later = |machine: &Machine, id| {
        let csr = csr::Csr::parse(&machine.key.request()).expect("a request");
        let issued = house.keys.node_issuer().issue(&csr, id, house.clock.now()).expect("issued");
        issued.chain[0].to_vec()
    };
    node.certificate = later(&node.machine, node.id);
    let answer = renew(&house, node.renewal(&house)).await.expect("renews");
    let before = std::mem::replace(&mut node.certificate, answer.certificate_chain[0].clone());
    assert!(node_certs::find(&house.db, &node.serial(&house).to_bytes()).await.expect("read").is_some());

    let stranger = Machine::new("SERIAL0002");
    let certificate = later(&stranger, node.id);
    let other = Joined { id: node.id, machine: stranger, certificate };
    assert_eq!(refusal(&house, other.renewal(&house)).await, "unknown-certificate");

    let mut txn = house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, node.id, "lost").await.expect("revoked");
    txn.commit().await.expect("commit");
    node.certificate = before;
    assert_eq!(refusal(&house, node.renewal(&house)).await, "unknown-certificate");
}
