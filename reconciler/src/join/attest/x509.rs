//! The certificate: somebody whose authority the pool believes gave it to this machine, or a document names it.

use pki::attest::x509;

use super::{Attestor, Case, JoinRefusal, Testimony, rule};

pub(super) struct X509;

impl Attestor for X509 {
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal> {
        let Some(evidence) = &case.evidence.x509 else { return Ok(None) };
        let proof = x509::prove(evidence, &case.binding)?;
        Ok(Some(rule::stands(&proof, case.rules, case.now)?))
    }
}
