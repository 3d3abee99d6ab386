//! Every function of `store` against a real PostgreSQL, each test in its own clone of a migrated template.

mod api;
mod apply;
mod brakes;
mod clock;
mod drift;
mod embedded;
mod join;
mod leases;
mod migrate;
mod nodes;
mod poke;
mod queue;
mod renames;
mod reports;
mod revision_files;
mod schedulable;
mod sessions;

use schema::{
    id::NodeId,
    name::Name,
    node::{Role, Trust},
};
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
    NewNode {
        id: NodeId::generate(),
        name: name(text),
        site: Some(name("fra1")),
        pool: Some(name("h100")),
        owner_tenant: None,
        role: Role::Host,
        trust: Trust::Platform,
        labels: std::collections::BTreeMap::new(),
        declared: false,
        hardware_key: None,
        hardware_key_trusted: false,
        target: None,
        overlay: "{}".to_owned(),
    }
}

/// Inserts a machine and reads it back.
async fn node(db: &Db, text: &str) -> Node {
    let new = new_node(text);
    let mut txn = db.begin().await.expect("a transaction");
    store::nodes::insert(&mut txn, &new).await.expect("a node");
    txn.commit().await.expect("a commit");
    read(db, new.id).await
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
