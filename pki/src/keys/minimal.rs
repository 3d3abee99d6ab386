//! What processes get that need few keys: of what follows from the checkpoint secret each its part, and never that secret.

use schema::id::FleetId;
use serde::{Deserialize, Serialize};

use super::{Keys, OpenError, TrustPin, open, seal};
use crate::{
    Realm,
    checkpoint::{
        AuditSigner, CheckpointKey, CheckpointSigner, CheckpointVerifier, Seal, Seed, command_secret, placement_secret,
    },
    encoding::Secret,
    signed::Purpose,
    trust::service::ServiceKeys,
    worker::CommandRoot,
};

/// A key and, while it is replaced, the other one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Pair<T> {
    present: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<T>,
}

impl<T> Pair<T> {
    fn map<U>(self, change: impl Fn(T) -> U) -> Pair<U> {
        Pair { present: change(self.present), other: self.other.map(change) }
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.present).chain(&self.other)
    }
}

/// What a process holds that verifies history and does nothing else with keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SourceKeys {
    trust_domain: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fleet_id: Option<FleetId>,
    history: Seed,
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<CheckpointKey>,
    /// What the places of machines and batches are marked with.
    placements: Pair<Secret>,
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trust: Option<TrustPin>,
    /// What it proposes batches with.
    #[serde(default, skip_serializing_if = "ServiceKeys::is_empty")]
    service: ServiceKeys,
}

impl SourceKeys {
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
        if keys.history.is_sound() && keys.service.is_sound() { Ok(keys) } else { Err(OpenError::Malformed) }
    }

    /// The trust domain of all certificates.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// The fleet that these keys are of, where they were made since keys say so.
    #[must_use]
    pub const fn fleet_id(&self) -> Option<FleetId> {
        self.fleet_id
    }

    /// Signs how far history was verified, and what its revisions consist of.
    #[must_use]
    pub fn checkpoint_signer(&self, fleet_id: &str) -> CheckpointSigner {
        CheckpointSigner::new(Realm::new(&self.trust_domain, fleet_id), self.history.clone(), self.other)
    }

    /// Marks the places of machines, and knows the marks of others.
    #[must_use]
    pub fn placement_seal(&self, fleet_id: &str) -> Seal {
        Seal::new(Realm::new(&self.trust_domain, fleet_id), Purpose::Placement, self.placements.iter())
    }

    /// Marks batches as they are put down, and knows the marks of others.
    #[must_use]
    pub fn batch_seal(&self, fleet_id: &str) -> Seal {
        Seal::new(Realm::new(&self.trust_domain, fleet_id), Purpose::PutBatch, self.placements.iter())
    }

    /// What it signs with as a service of the trust policy.
    #[must_use]
    pub const fn service(&self) -> &ServiceKeys {
        &self.service
    }

    /// The revision of the keys that these are of.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }
}

/// What a process holds that signs specs and commands and does nothing else.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SigningKeys {
    trust_domain: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fleet_id: Option<FleetId>,
    command_root: CommandRoot,
    /// Whose manifests it composes from.
    history: Pair<CheckpointKey>,
    /// What commands are marked with.
    commands: Pair<Secret>,
    /// What the places of machines and batches are marked with.
    placements: Pair<Secret>,
    /// What signs checkpoints of the audit log.
    audit: Pair<Seed>,
    audit_switched: bool,
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trust: Option<TrustPin>,
}

impl SigningKeys {
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
        let sound = keys.command_root.is_sound() && keys.audit.iter().all(Seed::is_sound);
        if sound { Ok(keys) } else { Err(OpenError::Malformed) }
    }

    /// The trust domain of all certificates.
    #[must_use]
    pub fn trust_domain(&self) -> &str {
        &self.trust_domain
    }

    /// The fleet that these keys are of, where they were made since keys say so.
    #[must_use]
    pub const fn fleet_id(&self) -> Option<FleetId> {
        self.fleet_id
    }

    /// The command-signing root.
    #[must_use]
    pub const fn command_root(&self) -> &CommandRoot {
        &self.command_root
    }

    /// Checks manifests.
    #[must_use]
    pub fn checkpoint_verifier(&self, fleet_id: &str) -> CheckpointVerifier {
        CheckpointVerifier::new(Realm::new(&self.trust_domain, fleet_id), self.history.iter().copied())
    }

    /// Marks commands, and knows the marks of others.
    #[must_use]
    pub fn command_seal(&self, fleet_id: &str) -> Seal {
        Seal::new(Realm::new(&self.trust_domain, fleet_id), Purpose::QueuedCommand, self.commands.iter())
    }

    /// Marks the places of machines, and knows the marks of others.
    #[must_use]
    pub fn placement_seal(&self, fleet_id: &str) -> Seal {
        Seal::new(Realm::new(&self.trust_domain, fleet_id), Purpose::Placement, self.placements.iter())
    }

    /// Marks batches as they are put down, and knows the marks of others.
    #[must_use]
    pub fn batch_seal(&self, fleet_id: &str) -> Seal {
        Seal::new(Realm::new(&self.trust_domain, fleet_id), Purpose::PutBatch, self.placements.iter())
    }

    /// Signs checkpoints of the audit log.
    #[must_use]
    pub fn audit_signer(&self, fleet_id: &str) -> AuditSigner {
        let Pair { present, other } = self.audit.clone();
        AuditSigner::new(Realm::new(&self.trust_domain, fleet_id), present, other, self.audit_switched)
    }

    /// The revision of the keys that these are of.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }
}

impl Keys {
    fn checkpoints(&self) -> Pair<&Secret> {
        Pair { present: &self.checkpoint, other: self.rotations.other_checkpoint() }
    }

    /// What a process needs that verifies history and does nothing else with keys.
    #[must_use]
    pub fn source(&self) -> SourceKeys {
        let Pair { present, other } = self.checkpoints().map(Seed::of_history);
        SourceKeys {
            trust_domain: self.trust_domain.clone(),
            fleet_id: self.fleet_id,
            history: present,
            other: other.map(|seed| seed.public()),
            placements: self.checkpoints().map(placement_secret),
            revision: self.revision,
            trust: self.trust,
            service: self.service.clone(),
        }
    }

    /// What a process needs that signs specs and commands and does nothing else.
    #[must_use]
    pub fn signing(&self) -> SigningKeys {
        SigningKeys {
            trust_domain: self.trust_domain.clone(),
            fleet_id: self.fleet_id,
            command_root: self.command_root.clone(),
            history: self.checkpoints().map(|secret| Seed::of_history(secret).public()),
            commands: self.checkpoints().map(command_secret),
            placements: self.checkpoints().map(placement_secret),
            audit: self.checkpoints().map(Seed::of_audit),
            audit_switched: self.rotations.checkpoint_switched(),
            revision: self.revision,
            trust: self.trust,
        }
    }

    /// Signs how far history was verified, and what its revisions consist of.
    #[must_use]
    pub fn checkpoint_signer(&self, fleet_id: &str) -> CheckpointSigner {
        self.source().checkpoint_signer(fleet_id)
    }

    /// Checks what [`Keys::checkpoint_signer`] signed.
    #[must_use]
    pub fn checkpoint_verifier(&self, fleet_id: &str) -> CheckpointVerifier {
        self.signing().checkpoint_verifier(fleet_id)
    }

    /// Marks commands, and knows the marks of others.
    #[must_use]
    pub fn command_seal(&self, fleet_id: &str) -> Seal {
        self.signing().command_seal(fleet_id)
    }

    /// Marks the places of machines, and knows the marks of others.
    #[must_use]
    pub fn placement_seal(&self, fleet_id: &str) -> Seal {
        self.signing().placement_seal(fleet_id)
    }

    /// Marks batches as they are put down, and knows the marks of others.
    #[must_use]
    pub fn batch_seal(&self, fleet_id: &str) -> Seal {
        self.signing().batch_seal(fleet_id)
    }

    /// Signs checkpoints of the audit log.
    #[must_use]
    pub fn audit_signer(&self, fleet_id: &str) -> AuditSigner {
        self.signing().audit_signer(fleet_id)
    }
}
