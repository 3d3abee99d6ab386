//! Fixtures for the tests of this crate.

use schema::{id::NodeId, time::Timestamp};

use crate::{
    Realm,
    csr::Csr,
    issue::{IssuedCertificate, TlsIdentity},
    keys::Keys,
    node_key::NodeKey,
};

/// The time at which every fixture is made.
pub(crate) fn now() -> Timestamp {
    "2026-11-29T12:00:00Z".parse().expect("a time")
}

/// A time that many seconds from [`now`].
pub(crate) fn after(seconds: i64) -> Timestamp {
    Timestamp::from_second(now().as_second() + seconds).expect("a time")
}

pub(crate) fn realm() -> Realm {
    Realm::new("bc.local", "fleet-one")
}

pub(crate) fn keys() -> Keys {
    Keys::generate("bc.local", now()).expect("a trust domain")
}

/// A node with a certificate of these keys.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: NodeKey,
    pub(crate) issued: IssuedCertificate,
}

impl Node {
    pub(crate) fn of(keys: &Keys) -> Self {
        Self::at(keys, now())
    }

    pub(crate) fn at(keys: &Keys, now: Timestamp) -> Self {
        let (id, key) = (NodeId::generate(), NodeKey::generate());
        let csr = Csr::parse(&key.request()).expect("own request");
        let issued = keys.node_issuer().issue(&csr, id, None, now).expect("issued");
        Self { id, key, issued }
    }

    pub(crate) fn identity(&self) -> TlsIdentity {
        self.key.identity(self.issued.chain.clone())
    }
}
