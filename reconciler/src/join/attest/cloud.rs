//! Instances of clouds: the cloud says whose they are, by keys that a pool believes.

use pki::attest::{Refusal, aws, azure, gcp};
use schema::attested::AttestKind;

use super::{
    Attestor, Case, JoinRefusal, Testimony,
    rule::{Rule, by_rules},
};

pub(super) struct Aws;
pub(super) struct Gcp;
pub(super) struct Azure;

impl Attestor for Aws {
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal> {
        const KIND: AttestKind = AttestKind::Aws;
        let Some(document) = &case.evidence.aws else { return Ok(None) };
        let prove = |rule: &Rule| {
            let roots = rule.roots.as_ref().ok_or(Refusal::Untrusted(KIND))?;
            aws::prove(document, roots, case.now)
        };
        Ok(Some(by_rules(KIND, case.rules, prove)?))
    }
}

impl Attestor for Gcp {
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal> {
        const KIND: AttestKind = AttestKind::Gcp;
        let Some(token) = &case.evidence.gcp else { return Ok(None) };
        let prove = |rule: &Rule| {
            let keys = rule.keys.as_ref().ok_or(Refusal::Untrusted(KIND))?;
            gcp::prove(token, keys, &case.binding, case.now)
        };
        Ok(Some(by_rules(KIND, case.rules, prove)?))
    }
}

impl Attestor for Azure {
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal> {
        const KIND: AttestKind = AttestKind::Azure;
        let Some(document) = &case.evidence.azure else { return Ok(None) };
        let prove = |rule: &Rule| {
            let roots = rule.roots.as_ref().ok_or(Refusal::Untrusted(KIND))?;
            azure::prove(document, roots, &case.binding, case.now)
        };
        Ok(Some(by_rules(KIND, case.rules, prove)?))
    }
}
