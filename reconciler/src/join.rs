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
//! | `attest` | the attestors: what may vouch for a machine, its token and what it proves |
//! | `voucher` | what they say, weighed |
//! | [`rules`] | what a token expects of the machines that use it |
//! | [`decide`] | which name and pool a machine gets, or why not: a pure function |
//! | [`claim`] | whether it becomes a node of its own or takes one back: a pure function |
//! | [`refusal`] | every reason against a join or a renewal, typed |
//! | [`signer`] | the worker key in memory and its rotation |
//! | [`admission`] | the document that would let a waiting machine in |

use std::sync::{Arc, PoisonError, RwLock};

use pki::{
    Realm,
    anchor::{Anchor, AnchorTrust},
    bundle::SignedBundle,
    challenge::ChallengeKey,
    issue::NodeIssuer,
    keys::{GatewayIssuer, Keys},
    sealed::{JoinKey, SealedTokenRefusal},
    secret::SecretStore,
    verify::NodeVerifier,
    worker::Signature,
};
use rustls_pki_types::CertificateDer;
use schema::{clock::SharedClock, id::NodeId, shard};
use store::Db;

pub mod admission;
pub mod claim;
pub mod decide;
pub mod refusal;
pub mod rules;
pub mod signer;

mod admit;
mod attest;
mod authority;
mod documents;
mod enter;
mod gateways;
mod knocks;
mod renew;
mod secrets;
mod voucher;
mod wire;

pub use authority::{ServeError, serve};
pub use refusal::{JoinRefusal, RenewRefusal};
#[cfg(test)]
pub(crate) use secrets::BrokerRefusal;
pub use signer::Signer;

use crate::reconcile::SpecSigner as _;
use knocks::Knocks;

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
    keyring: RwLock<Arc<Keyring>>,
    knocks: Knocks,
    documents: documents::InForce,
    secrets: SecretStore,
    asked: secrets::Asked,
    said: gateways::Said,
}

/// What the service takes of the control plane's keys; replaced as a whole when they are rotated.
#[derive(Debug)]
struct Keyring {
    issuer: NodeIssuer,
    /// Certifies gateways apart.
    gateways: GatewayIssuer,
    /// Whose node certificates open sessions.
    node_authorities: Vec<CertificateDer<'static>>,
    /// Judges certificates that are renewed.
    renewals: NodeVerifier,
    challenges: ChallengeKey,
    join_challenges: ChallengeKey,
    join_keys: Vec<JoinKey>,
    anchor: Anchor,
    /// Oldest first.
    bundles: Vec<SignedBundle>,
}

impl Keyring {
    fn of(keys: &Keys, realm: &Realm, clock: &SharedClock) -> Self {
        Self {
            issuer: keys.node_issuer(),
            gateways: keys.gateway_issuer(clock.now()),
            node_authorities: keys.node_authorities(),
            renewals: keys.renewal_verifier(clock.now()),
            challenges: keys.challenge_key(),
            join_challenges: keys.join_challenge_key(),
            join_keys: keys.join_keys(),
            anchor: keys.anchor(&realm.fleet_id),
            bundles: keys.bundles(&realm.fleet_id),
        }
    }

    fn newest(&self) -> &SignedBundle {
        self.bundles.last().expect("there is a first bundle")
    }

    /// Every bundle after this version. Versions count from 1 without gaps.
    fn since(&self, version: u64) -> &[SignedBundle] {
        let from = usize::try_from(version).unwrap_or(usize::MAX);
        self.bundles.get(from..).unwrap_or_default()
    }

    /// Opens what is sealed to one of the join keys.
    fn open<T>(&self, open: impl Fn(&JoinKey) -> Result<T, SealedTokenRefusal>) -> Result<T, SealedTokenRefusal> {
        let mut refusal = SealedTokenRefusal::UnknownKey;
        for key in &self.join_keys {
            match open(key) {
                Ok(opened) => return Ok(opened),
                Err(SealedTokenRefusal::UnknownKey) => {}
                Err(other) => refusal = other,
            }
        }
        Err(refusal)
    }
}

impl JoinService {
    /// The service of one control plane.
    #[must_use]
    pub fn new(config: JoinConfig<'_>) -> Self {
        let JoinConfig { db, keys, realm, dev, clock, signer } = config;
        let keyring = RwLock::new(Arc::new(Keyring::of(keys, &realm, &clock)));
        let knocks = Knocks::new(clock.now());
        let (secrets, asked) = (keys.secret_store(&realm.fleet_id), secrets::Asked::default());
        let said = gateways::Said::default();
        let documents = documents::InForce::default();
        Self { db, realm, dev, clock, signer, keyring, knocks, documents, secrets, asked, said }
    }

    /// Works with these keys from now on: the next step of a rotation.
    pub fn use_keys(&self, keys: &Keys) {
        self.signer.use_root(keys.command_root(), self.clock.now());
        self.secrets.follow(&keys.secret_store(&self.realm.fleet_id));
        let next = Arc::new(Keyring::of(keys, &self.realm, &self.clock));
        *self.keyring.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Seals and opens the values of secrets, with whatever keys this service works with.
    #[must_use]
    pub fn secrets(&self) -> SecretStore {
        self.secrets.clone()
    }

    fn keyring(&self) -> Arc<Keyring> {
        Arc::clone(&self.keyring.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether the command root that signs now stands behind a signature.
    #[must_use]
    pub fn signs_like(&self, signature: &Signature) -> bool {
        self.signer.is_current(signature)
    }

    /// What machines recognise this control plane by.
    #[must_use]
    pub fn anchor(&self) -> Anchor {
        self.keyring().anchor.clone()
    }

    /// The newest trust bundle.
    #[must_use]
    pub fn trust_bundle(&self) -> SignedBundle {
        self.keyring().newest().clone()
    }

    /// The time, signed for the node that chose the nonce.
    #[must_use]
    pub fn server_time(&self, node: NodeId, nonce: &[u8]) -> (schema::time::Timestamp, Signature) {
        let now = self.clock.now();
        (now, self.signer.worker(now).sign_server_time(node, nonce, now))
    }

    /// With which trust policy the fleet begins, signed for machines that joined before that was pinned.
    fn first_policy(&self, trust: &AnchorTrust) -> proto::agent::v1::FirstPolicy {
        let signature = self.signer.worker(self.clock.now()).sign_first_policy(trust);
        proto::agent::v1::FirstPolicy {
            fleet: trust.fleet.to_string(),
            digest: trust.digest.to_string(),
            signature: Some(wire::signature(signature)),
        }
    }
}

/// Has every spec looked at: what a root of before signed is signed again.
///
/// # Errors
/// When the database does not answer; specs are looked at from time to time anyway.
pub async fn wake_nodes(db: &Db) -> Result<(), store::DbError> {
    let shards: Vec<u16> = (0..shard::COUNT).collect();
    let mut after = None;
    loop {
        let some = store::nodes::ids_in_shards(db, &shards, after, 1_000).await?;
        let Some(last) = some.last().copied() else { return Ok(()) };
        let mut txn = db.begin().await?;
        store::queue::enqueue(&mut txn, &store::queue::NODESPEC, some).await?;
        txn.commit().await?;
        after = Some(last);
    }
}

#[cfg(test)]
mod tests;
