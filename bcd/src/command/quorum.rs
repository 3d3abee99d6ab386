//! The step at which a node asks for people's approval of destructive work.
//!
//! Its place in the order is fixed; what it checks follows from the trust policy. A node that holds no policy lets go.

use schema::command::{CommandBody, Refusal};

/// What people have to approve, and who may. This version reads no policy, so there is no value of this type.
#[derive(Debug)]
pub enum TrustPolicy {}

/// Whether a destructive command has the approvals that it needs.
///
/// # Errors
/// With the refusal and why.
pub(super) const fn approved(_: &CommandBody, policy: Option<&TrustPolicy>) -> Result<(), (Refusal, String)> {
    match policy {
        None => Ok(()),
        Some(policy) => match *policy {},
    }
}
