//! The TPM: its key is known to a pool or to a document.

use pki::attest::tpm;

use super::{Attestor, Case, JoinRefusal, Testimony, rule};

pub(super) struct Tpm;

impl Attestor for Tpm {
    fn attest(&self, case: &Case<'_>) -> Result<Option<Testimony>, JoinRefusal> {
        let Some(shown) = &case.evidence.tpm else { return Ok(None) };
        let proof = tpm::prove(&shown.evidence, &case.binding, &shown.secret)?;
        Ok(Some(rule::stands(&proof, case.rules, case.now)?))
    }
}
