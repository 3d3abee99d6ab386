//! The broker: who gets which value, and who gets none.

use pki::{broker::Asking, secret::Address};
use schema::{
    clock::Clock as _,
    effect::EffectClass,
    generation::Generation,
    node::{Condition, ConditionStatus},
    spec::{HostFile, HostSection, NodeSpec, SecretVersion},
};
use store::{node_certs, nodes, pools, secrets};

use super::*;

const VALUE: &[u8] = b"hunter2";

struct Holder {
    id: NodeId,
    machine: Machine,
}

impl Holder {
    /// A machine that joined, and whose stored spec names these secrets.
    async fn new(house: &House, serial: &str, names: &[&str]) -> Self {
        let machine = Machine::new(serial);
        let request = machine.request(house, &house.token(1).await);
        let answer = house.join(&request).await.expect("joins");
        let id = house.identity(&request, &answer).node_id;
        let files = names.iter().map(|name| HostFile {
            path: format!("/etc/{name}"),
            secret: Some(wanted(name, 1)),
            ..HostFile::default()
        });
        let spec =
            NodeSpec { host: HostSection { files: files.collect(), ..HostSection::default() }, ..NodeSpec::default() };
        let bytes = spec.to_bytes();
        let spec = nodes::NewSpec {
            generation: Generation(1),
            bytes: &bytes,
            signature: b"signature",
            from: &nodes::SpecFrom { target: Digest::of("target"), overlay: "{}".to_owned() },
            effect: EffectClass::None,
        };
        let (pool, profile) = (name("h100"), name("host"));
        let target = pools::Target { digest: Digest::of("target"), pool, profile, doc: "{}".to_owned() };
        let mut txn = house.db.begin().await.expect("begin");
        pools::insert_targets(&mut txn, &[target]).await.expect("a target");
        nodes::set_spec(&mut txn, id, Generation(0), &spec).await.expect("a spec");
        txn.commit().await.expect("commit");
        Self { id, machine }
    }

    fn asking(&self, house: &House, names: &[(&str, u32)]) -> Asking {
        let wanted = names.iter().map(|(name, version)| wanted(name, *version)).collect();
        Asking::new(&realm(), self.id, &self.machine.key, wanted, house.clock.now())
    }

    async fn refusal(&self, house: &House, names: &[(&str, u32)]) -> String {
        code(&ask(house, &self.asking(house, names)).await.expect_err("refused")).1
    }
}

fn realm() -> Realm {
    Realm::new("bc.local", "fleet_test")
}

fn wanted(name: &str, version: u32) -> SecretVersion {
    SecretVersion { name: name.parse().expect("a name"), version }
}

async fn put(house: &House, name: &str) {
    let name = name.parse().expect("a name");
    let address = Address { name: &name, version: 1, tenant: None };
    let envelope = house.service.secrets().seal(address, VALUE);
    let mut txn = house.db.begin().await.expect("begin");
    let version = secrets::next_version(&mut txn, &name).await.expect("a version");
    secrets::put(&mut txn, &name, version, &envelope, "test").await.expect("put");
    txn.commit().await.expect("commit");
}

async fn ask(house: &House, asking: &Asking) -> Result<pb::SecretResponse, Status> {
    let request = pb::SecretRequest { request: asking.bytes.clone(), signature: asking.signature.clone() };
    Authority::request_secrets(&*house.service, Request::new(request)).await.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn a_node_gets_what_its_stored_spec_names_and_nothing_else() {
    let house = House::new().await;
    for name in ["mine", "theirs", "nobodys"] {
        put(&house, name).await;
    }
    let mine = Holder::new(&house, "SERIAL0001", &["mine"]).await;
    let _theirs = Holder::new(&house, "SERIAL0002", &["theirs"]).await;

    let asking = mine.asking(&house, &[("mine", 1)]);
    let answer = ask(&house, &asking).await.expect("released");
    let signature = answer.signature.expect("signed");
    let signature = pki::worker::Signature {
        worker: signature.worker,
        root_signature: signature.root_signature,
        signature: signature.signature,
    };
    let sealed = pki::broker::SealedValues { encapsulated_key: answer.encapsulated_key, ciphertext: answer.ciphertext };
    let verifier = house.keys.anchor("fleet_test").verifier();
    let opened = asking.open(&sealed, &signature, &verifier, Validity::At(house.clock.now())).expect("opens");
    assert_eq!(opened[0].1.as_slice(), VALUE);

    // A secret of another node, one of nobody, one that is not there, and another version of its own are one refusal.
    for other in ["theirs", "nobodys", "nowhere"] {
        assert_eq!(mine.refusal(&house, &[(other, 1)]).await, "not-referred");
        assert_eq!(mine.refusal(&house, &[("mine", 1), (other, 1)]).await, "not-referred");
    }
    assert_eq!(mine.refusal(&house, &[("mine", 2)]).await, "not-referred");
}

#[tokio::test]
async fn strangers_and_the_revoked_get_nothing() {
    let house = House::new().await;
    put(&house, "mine").await;
    let node = Holder::new(&house, "SERIAL0001", &["mine"]).await;

    let stranger = Holder { id: NodeId::generate(), machine: Machine::new("SERIAL0003") };
    assert_eq!(stranger.refusal(&house, &[("mine", 1)]).await, "no-possession");
    let impostor = Holder { id: node.id, machine: Machine::new("SERIAL0004") };
    assert_eq!(impostor.refusal(&house, &[("mine", 1)]).await, "no-possession");

    let late = node.asking(&house, &[("mine", 1)]);
    house.clock.advance(Duration::from_secs(301));
    assert_eq!(code(&ask(&house, &late).await.expect_err("late")).1, "request-too-old");
    let senseless = pb::SecretRequest { request: b"{}".to_vec(), signature: Vec::new() };
    let status = Authority::request_secrets(&*house.service, Request::new(senseless)).await.expect_err("senseless");
    assert_eq!(code(&status), (Code::InvalidArgument, "bad-request".to_owned()));

    ask(&house, &node.asking(&house, &[("mine", 1)])).await.expect("released");
    let mut txn = house.db.begin().await.expect("begin");
    node_certs::revoke_all(&mut txn, node.id, "stolen").await.expect("revoked");
    txn.commit().await.expect("commit");
    assert_eq!(node.refusal(&house, &[("mine", 1)]).await, "no-possession");
}

#[tokio::test]
async fn what_shows_other_hardware_than_the_node_gets_nothing_until_it_is_the_node_again() {
    let house = House::new().await;
    put(&house, "mine").await;
    let node = Holder::new(&house, "SERIAL0001", &["mine"]).await;
    let shows = async |status| {
        let condition = Condition {
            kind: "HardwareChanged".to_owned(),
            status,
            reason: "OtherIdentifiers".to_owned(),
            message: String::new(),
            since: house.clock.now(),
        };
        let mut txn = house.db.begin().await.expect("begin");
        nodes::set_conditions(&mut txn, node.id, &[condition]).await.expect("set");
        txn.commit().await.expect("commit");
    };
    shows(ConditionStatus::True).await;
    assert_eq!(node.refusal(&house, &[("mine", 1)]).await, "hardware-changed");
    shows(ConditionStatus::False).await;
    ask(&house, &node.asking(&house, &[("mine", 1)])).await.expect("released");
}

#[tokio::test]
async fn what_another_key_sealed_is_not_called_missing() {
    let house = House::new().await;
    put(&house, "mine").await;
    let node = Holder::new(&house, "SERIAL0001", &["mine"]).await;
    let other = Keys::generate("bc.local", house.clock.now()).expect("keys");
    house.service.secrets().follow(&other.secret_store("fleet_test"));
    assert_eq!(node.refusal(&house, &[("mine", 1)]).await, "secret-unreadable");
}
