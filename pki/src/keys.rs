//! Every key of a control plane, and what each role gets of them.
//!
//! One document, sealed under a deployment secret. This module makes, seals and opens bytes; where they lie is the
//! composition root's business. A gateway gets [`GatewayKeys`] and nothing else: no authority can be derived from them.

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;
use schema::{id::FleetId, time::Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::{
    Realm,
    anchor::{Anchor, AnchorTrust},
    challenge::{ChallengeKey, Use},
    encoding::Secret,
    issue::{Authority, AuthorityKind, IssueError, NodeIssuer, TlsIdentity},
    provider::random,
    realm::is_trust_domain,
    sealed::JoinKey,
    secret::SecretStore,
    trust::service::ServiceKeys,
    verify::NodeVerifier,
    worker::CommandRoot,
};

mod envelope;
mod gateway;
mod minimal;
mod pin;
mod rotation;

pub use envelope::OpenError;
pub use gateway::{GatewayIssuer, GatewayKeys, GatewayRefusal, IssuedGateway, Renewing};
pub use minimal::{SigningKeys, SourceKeys};
pub use pin::{PinRefusal, TrustPin};
pub use rotation::{Advanced, MAX_OFFLINE, Phase, Rotation, RotationKind, RotationStatus};

use rotation::Rotations;

/// The name under which every internal server answers.
pub const INTERNAL_NAME: &str = "authority.internal";

/// A text that cannot be a trust domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a trust domain (lower-case DNS labels)")]
pub struct BadTrustDomain(pub String);

/// All keys of one control plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Keys {
    trust_domain: String,
    /// The fleet that these keys are of; none until the database of a control plane was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fleet_id: Option<FleetId>,
    root: Authority,
    node: Authority,
    serving: Authority,
    internal: Authority,
    command_root: CommandRoot,
    join: JoinKey,
    /// What challenges are made with, and what checkpoints, manifests and the tags of commands follow from.
    checkpoint: Secret,
    /// Encrypts the secret store (AES-256-GCM).
    secret_store: Secret,
    /// How many steps of rotations these keys have behind them.
    #[serde(default)]
    revision: u64,
    /// When the keys were made that are used.
    #[serde(default)]
    born: BTreeMap<RotationKind, Timestamp>,
    /// What is being replaced, and what is left of what was.
    #[serde(default, skip_serializing_if = "Rotations::is_empty")]
    rotations: Rotations,
    /// The commit that authority over the fleet begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trust: Option<TrustPin>,
    /// What it proposes batches with, once somebody made it.
    #[serde(default, skip_serializing_if = "ServiceKeys::is_empty")]
    service: ServiceKeys,
}

impl Keys {
    /// Fresh keys for a trust domain.
    ///
    /// # Errors
    /// When the text cannot be a trust domain.
    pub fn generate(trust_domain: &str, now: Timestamp) -> Result<Self, BadTrustDomain> {
        if !is_trust_domain(trust_domain) {
            return Err(BadTrustDomain(trust_domain.to_owned()));
        }
        let root = Authority::root(trust_domain, now);
        Ok(Self {
            trust_domain: trust_domain.to_owned(),
            fleet_id: None,
            node: root.issuing(AuthorityKind::Node, trust_domain, now),
            serving: root.issuing(AuthorityKind::Serving, trust_domain, now),
            internal: root.issuing(AuthorityKind::Internal, trust_domain, now),
            root,
            command_root: CommandRoot::generate(),
            join: JoinKey::generate(),
            checkpoint: Secret(random::<32>().to_vec()),
            secret_store: Secret(random::<32>().to_vec()),
            revision: 0,
            born: RotationKind::ALL.into_iter().map(|kind| (kind, now)).collect(),
            rotations: Rotations::default(),
            trust: None,
            service: ServiceKeys::default(),
        })
    }

    /// The keys as bytes that only the deployment secret opens.
    #[must_use]
    pub fn seal(&self, secret: &[u8]) -> Vec<u8> {
        seal(self, secret)
    }

    /// The keys in sealed bytes.
    ///
    /// # Errors
    /// When the secret is another one, or the bytes were changed or are something else.
    pub fn open(sealed: &[u8], secret: &[u8]) -> Result<Self, OpenError> {
        let keys: Self = open(sealed, secret)?;
        let authorities = [&keys.root, &keys.node, &keys.serving, &keys.internal];
        let sound = authorities.into_iter().all(Authority::is_sound) && keys.command_root.is_sound();
        if sound && keys.rotations.is_sound() && keys.service.is_sound() { Ok(keys) } else { Err(OpenError::Malformed) }
    }

    /// The trust domain of all certificates.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// The fleet that these keys are of, once they were bound to one.
    #[must_use]
    pub const fn fleet_id(&self) -> Option<FleetId> {
        self.fleet_id
    }

    /// These keys, of one fleet for good; keys of a fleet stay what they are.
    #[must_use]
    pub fn of_fleet(mut self, fleet_id: FleetId) -> Self {
        self.fleet_id.get_or_insert(fleet_id);
        self
    }

    /// How many steps of rotations these keys have behind them: a process that works with another number is behind.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// What it signs with as a service of the trust policy.
    #[must_use]
    pub const fn service(&self) -> &ServiceKeys {
        &self.service
    }

    /// Makes another key for that. Counts as a step of the keys, so that processes take it over as they do rotations.
    pub fn add_service_key(&mut self) {
        self.service.add();
        self.revision += 1;
    }

    /// What machines recognise this control plane by.
    #[must_use]
    pub fn anchor(&self, fleet_id: &str) -> Anchor {
        let realm = Realm::new(&self.trust_domain, fleet_id);
        let trust = self.trust_pin().map(|pin| AnchorTrust { fleet: pin.fleet, digest: pin.digest });
        Anchor::new(&realm, &self.roots(), self.command_roots(), self.join.public(), trust)
    }

    /// The root certificate, which API clients and nodes trust.
    #[must_use]
    pub fn root_certificate(&self) -> CertificateDer<'static> {
        self.root.certificate()
    }

    /// The authority that certifies nodes.
    #[must_use]
    pub fn node_issuer(&self) -> NodeIssuer {
        NodeIssuer { trust_domain: self.trust_domain.clone(), authority: self.node.clone() }
    }

    /// Judges node certificates.
    #[must_use]
    pub fn node_verifier(&self) -> NodeVerifier {
        NodeVerifier::new(&self.trust_domain, &self.node_authorities()).expect("an own authority is a certificate")
    }

    /// Seals and opens the values of secrets.
    #[must_use]
    pub fn secret_store(&self, fleet_id: &str) -> SecretStore {
        let keys = std::iter::once(&self.secret_store).chain(self.rotations.other_secret_store());
        SecretStore::new(keys.map(|key| key.0.as_slice()), fleet_id)
    }

    /// These keys, with the fleet and the key of the secret store of others: what was sealed before still opens.
    #[must_use]
    pub fn keeping_secrets_of(mut self, other: &Self) -> Self {
        self.fleet_id = other.fleet_id;
        self.secret_store = other.secret_store.clone();
        self.rotations.secret_store.clone_from(&other.rotations.secret_store);
        self
    }

    /// Makes and checks what renewals are signed over.
    #[must_use]
    pub fn challenge_key(&self) -> ChallengeKey {
        self.challenges(Use::Renew)
    }

    /// Makes and checks what machines prove themselves over when they join.
    #[must_use]
    pub fn join_challenge_key(&self) -> ChallengeKey {
        self.challenges(Use::Join)
    }

    fn challenges(&self, usage: Use) -> ChallengeKey {
        let key = ChallengeKey::derive(&self.checkpoint.0, usage);
        match self.rotations.other_checkpoint() {
            Some(other) => key.or(ChallengeKey::derive(&other.0, usage)),
            None => key,
        }
    }

    /// The command-signing root.
    #[must_use]
    pub const fn command_root(&self) -> &CommandRoot {
        &self.command_root
    }

    /// Open sealed join tokens: the key in the anchor first.
    #[must_use]
    pub fn join_keys(&self) -> Vec<JoinKey> {
        std::iter::once(&self.join).chain(self.rotations.other_join_key()).cloned().collect()
    }

    /// A serving certificate for these DNS names and addresses: for the API, or for a gateway in this process.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate.
    pub fn issue_serving(&self, names: &[String], now: Timestamp) -> Result<TlsIdentity, IssueError> {
        let issued =
            self.serving.issue_named("server", names, vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth], now)?;
        // Whoever knows only a root of before gets from it to the present one.
        let chain = issued.chain().iter().cloned().chain(self.rotations.crosses(now)).collect();
        Ok(TlsIdentity::new(chain, issued.key().clone_key()))
    }

    /// A certificate for a control-plane process, as client and as server of the internal service.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate.
    pub fn issue_internal(&self, process: &str, now: Timestamp) -> Result<TlsIdentity, IssueError> {
        let usages = AuthorityKind::Internal.usages();
        self.internal.issue_named(process, &[INTERNAL_NAME.to_owned()], usages, now)
    }

    /// What certifies gateways apart.
    #[must_use]
    pub fn gateway_issuer(&self, now: Timestamp) -> GatewayIssuer {
        GatewayIssuer::of(self, now)
    }

    /// What one gateway process is given. Its name is the label with something of its own behind it.
    ///
    /// # Errors
    /// When a name cannot stand in a certificate.
    pub fn issue_gateway(&self, label: &str, names: &[String], now: Timestamp) -> Result<GatewayKeys, IssueError> {
        let label: String = label.chars().take(40).collect();
        let gateway = format!("{label}-{}", hex::encode(random::<3>()));
        let internal = self.internal.issue_named(
            &gateway,
            &[gateway::internal_name(&gateway)],
            vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth],
            now,
        )?;
        Ok(GatewayKeys::new(self, gateway, self.issue_serving(names, now)?, internal))
    }
}

/// A fresh deployment secret, for a file with mode 0600.
#[must_use]
pub fn generate_secret() -> Zeroizing<String> {
    Zeroizing::new(hex::encode(random::<32>()))
}

fn seal(document: &impl Serialize, secret: &[u8]) -> Vec<u8> {
    let text = Zeroizing::new(serde_json::to_vec(document).expect("keys serialise"));
    envelope::seal(&text, secret)
}

fn open<T: DeserializeOwned>(sealed: &[u8], secret: &[u8]) -> Result<T, OpenError> {
    let text = envelope::open(sealed, secret)?;
    serde_json::from_slice(&text).map_err(|_| OpenError::Malformed)
}

#[cfg(test)]
mod tests;
