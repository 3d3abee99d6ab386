//! Whether new work may be placed on a machine: one ordered predicate.
//!
//! The order decides which bucket of a pool's capacity a machine's devices count in. `store` has the same predicate in
//! SQL, and a property test holds the two together.

use super::{Connectivity, NoScheduleReason, ProvisionState, Role, Trust, words};
use crate::generation::Generation;

words! {
    /// Why a machine is not schedulable: the first check that it fails.
    Bucket {
        /// Not a host, or not ours to offer.
        Excluded = "excluded",
        /// In maintenance or cordoned.
        Maintenance = "maintenance",
        /// Not adopted or deployed, or it never converged a spec.
        Provisioning = "provisioning",
        /// No session.
        Unreachable = "unreachable",
        /// Some reason not to schedule is set.
        Unhealthy = "unhealthy",
    }
}

/// What the predicate reads.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The machine's role.
    pub role: Role,
    /// Who controls it.
    pub trust: Trust,
    /// Whether it sits in a pool of the tenant that owns it. Only read when it is tenant-owned.
    pub in_owners_pool: bool,
    /// Work on it failed or a person stopped it.
    pub maintenance: bool,
    /// Any hold exists.
    pub cordoned: bool,
    /// How far it is.
    pub provision: ProvisionState,
    /// The highest generation that it converged, by its own signature.
    pub observed: Generation,
    /// Its session.
    pub connectivity: Connectivity,
    /// Every reason not to schedule.
    pub no_schedule: Vec<NoScheduleReason>,
}

/// `Ok` when new work may be placed, else the bucket of the first check that fails.
///
/// # Errors
/// The bucket is the answer, not a failure.
pub fn schedulable(facts: &Facts) -> Result<(), Bucket> {
    let ours = match facts.trust {
        Trust::Platform => true,
        Trust::TenantOwned => facts.in_owners_pool,
        Trust::TenantControlled => false,
    };
    if facts.role != Role::Host || !ours {
        return Err(Bucket::Excluded);
    }
    if facts.maintenance || facts.cordoned {
        return Err(Bucket::Maintenance);
    }
    if !facts.provision.receives_spec() || facts.observed < Generation(1) {
        return Err(Bucket::Provisioning);
    }
    if facts.connectivity != Connectivity::Connected {
        return Err(Bucket::Unreachable);
    }
    if !facts.no_schedule.is_empty() {
        return Err(Bucket::Unhealthy);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            role: Role::Host,
            trust: Trust::Platform,
            in_owners_pool: false,
            maintenance: false,
            cordoned: false,
            provision: ProvisionState::Adopted,
            observed: Generation(1),
            connectivity: Connectivity::Connected,
            no_schedule: Vec::new(),
        }
    }

    #[test]
    fn the_first_check_that_fails_names_the_bucket() {
        assert_eq!(schedulable(&good()), Ok(()));
        let mut facts = good();
        facts.no_schedule.push(NoScheduleReason::Draining);
        assert_eq!(schedulable(&facts), Err(Bucket::Unhealthy));
        facts.connectivity = Connectivity::Unreachable;
        assert_eq!(schedulable(&facts), Err(Bucket::Unreachable));
        facts.observed = Generation(0);
        assert_eq!(schedulable(&facts), Err(Bucket::Provisioning));
        facts.cordoned = true;
        assert_eq!(schedulable(&facts), Err(Bucket::Maintenance));
        facts.role = Role::Site;
        assert_eq!(schedulable(&facts), Err(Bucket::Excluded));
    }

    #[test]
    fn a_tenants_machine_counts_in_its_owners_pool_only() {
        let facts = Facts { trust: Trust::TenantOwned, ..good() };
        assert_eq!(schedulable(&facts), Err(Bucket::Excluded));
        assert_eq!(schedulable(&Facts { in_owners_pool: true, ..facts }), Ok(()));
    }
}
