//! Join: the only part that lets machines in and issues certificates.
//!
//! ```text
//!  request ─▶ open token ─▶ read rows ─▶ decide ─▶ sign everything ─▶ one short transaction ─▶ answer
//!                              │           │                             (token, node, certificate, audit, work)
//!                              └───────────┴──▶ refused, held or waiting: stored in `joins`, told to the machine
//! ```
//!
//! A gateway forwards these calls and cannot answer them: it holds neither the node authority nor a worker key. Under
//! `up` it calls [`JoinService`] in process, through the generated `Authority` trait; apart, over [`serve`].
//!
//! | module | what it does |
//! |---|---|
//! | [`decide`] | who a machine becomes, or why not: a pure function |
//! | [`refusal`] | every reason against a join or a renewal, typed |
//! | [`signer`] | the worker key in memory and its rotation |
//! | [`admission`] | the document that would let a waiting machine in |

use std::sync::Arc;

use pki::{
    Realm,
    anchor::Anchor,
    bundle::{SignedBundle, TrustBundle},
    issue::NodeIssuer,
    keys::Keys,
    sealed::JoinKey,
    verify::NodeVerifier,
};
use schema::{clock::SharedClock, id::NodeId};
use store::Db;

pub mod admission;
pub mod decide;
pub mod refusal;
pub mod signer;

mod admit;
mod authority;
mod knocks;
mod renew;
mod wire;

pub use authority::{ServeError, serve};
pub use refusal::{JoinRefusal, RenewRefusal};
pub use signer::Signer;

use knocks::Knocks;

/// The version of the trust bundle that says what the first anchor says.
const FIRST_BUNDLE: u64 = 1;

/// What the join service is made of.
#[derive(Debug)]
pub struct JoinConfig<'k> {
    /// The database.
    pub db: Db,
    /// The control plane's keys; the service takes the node authority and the join key of them.
    pub keys: &'k Keys,
    /// Trust domain and fleet.
    pub realm: Realm,
    /// Machines that are described by a file are admitted.
    pub dev: bool,
    /// The clock that certificates are dated by.
    pub clock: SharedClock,
    /// Signs answers and time.
    pub signer: Arc<Signer>,
}

/// Lets machines in.
#[derive(Debug)]
pub struct JoinService {
    db: Db,
    realm: Realm,
    dev: bool,
    clock: SharedClock,
    signer: Arc<Signer>,
    issuer: NodeIssuer,
    verifier: NodeVerifier,
    join_key: JoinKey,
    anchor: Anchor,
    bundle: SignedBundle,
    knocks: Knocks,
}

impl JoinService {
    /// The service of one control plane.
    #[must_use]
    pub fn new(config: JoinConfig<'_>) -> Self {
        let JoinConfig { db, keys, realm, dev, clock, signer } = config;
        let anchor = keys.anchor(&realm.fleet_id);
        let bundle = keys.command_root().sign_bundle(&TrustBundle::of_anchor(&anchor, FIRST_BUNDLE));
        let knocks = Knocks::new(clock.now());
        Self {
            db,
            dev,
            clock,
            signer,
            issuer: keys.node_issuer(),
            verifier: keys.node_verifier(),
            join_key: keys.join_key().clone(),
            anchor,
            bundle,
            knocks,
            realm,
        }
    }

    /// What machines recognise this control plane by.
    #[must_use]
    pub const fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The newest trust bundle.
    #[must_use]
    pub const fn trust_bundle(&self) -> &SignedBundle {
        &self.bundle
    }

    /// The time, signed for the node that chose the nonce.
    #[must_use]
    pub fn server_time(&self, node: NodeId, nonce: &[u8]) -> (schema::time::Timestamp, pki::worker::Signature) {
        let now = self.clock.now();
        (now, self.signer.worker(now).sign_server_time(node, nonce, now))
    }
}

#[cfg(test)]
mod tests;
