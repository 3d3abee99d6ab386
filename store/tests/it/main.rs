//! Every function of `store` against a real PostgreSQL, each test in its own clone of a migrated template.

mod api;
mod apply;
mod audit;
mod batches;
mod brakes;
mod clock;
mod commands;
mod drift;
mod embedded;
mod join;
mod leases;
mod manifests;
mod migrate;
mod nodes;
mod outbox;
mod placements;
mod poke;
mod queue;
mod renames;
mod reports;
mod revision_files;
mod schedulable;
mod secrets;
mod sessions;
mod statements;
mod testing;
mod trust;
mod unreadable;

use schema::{id::NodeId, name::Name};
use store::{
    Db,
    nodes::{NewNode, Node},
};

/// Names are DNS labels.
fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A machine that joins, with nothing special about it.
fn new_node(text: &str) -> NewNode {
    NewNode { site: Some(name("fra1")), pool: Some(name("h100")), ..NewNode::unknown(NodeId::generate(), name(text)) }
}

/// Inserts a machine with a certificate and reads it back.
async fn node(db: &Db, text: &str) -> Node {
    let new = new_node(text);
    let mut txn = db.begin().await.expect("a transaction");
    store::nodes::insert(&mut txn, &new).await.expect("a node");
    store::node_certs::insert(&mut txn, &certificate(new.id, 1)).await.expect("a certificate");
    txn.commit().await.expect("a commit");
    read(db, new.id).await
}

/// The certificate of a machine's identity, valid for all times.
fn certificate(id: NodeId, identity: u64) -> store::node_certs::NodeCert {
    store::node_certs::NodeCert {
        serial: serial(id, identity),
        node_id: id,
        public_key: b"key".to_vec(),
        identity_generation: schema::generation::IdentityGeneration(identity),
        not_before: schema::time::Timestamp::UNIX_EPOCH,
        not_after: schema::time::Timestamp::from_second(32_503_680_000).expect("a time"),
        revoked_at: None,
        allowed_kinds: None,
        node_name: None,
    }
}

fn serial(id: NodeId, identity: u64) -> Vec<u8> {
    format!("{id}/{identity}").into_bytes()
}

/// What a machine of [`node`] says when its session opens.
fn session(id: NodeId) -> store::sessions::SessionOpen {
    store::sessions::SessionOpen {
        node_id: id,
        gateway_id: schema::id::GatewayId::generate(),
        serial: serial(id, 1),
        boot_id: schema::id::BootId::generate(),
        journal_id: schema::id::JournalId::generate(),
        version: "0.1.0".to_owned(),
        described: true,
        commands: true,
        marks: None,
    }
}

/// A node that is there.
async fn read(db: &Db, id: NodeId) -> Node {
    store::nodes::get(db, id).await.expect("the node")
}

/// Runs a body in one transaction and commits it.
macro_rules! commit {
    ($db:expr, |$txn:ident| $body:expr) => {{
        let mut $txn = $db.begin().await.expect("a transaction");
        let result = $body;
        $txn.commit().await.expect("a commit");
        result
    }};
}
pub(crate) use commit;
