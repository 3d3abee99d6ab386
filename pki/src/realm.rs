//! The realm: the trust domain and the fleet that every signed thing names.

use serde::{Deserialize, Serialize};

/// Which fleet of which trust domain. A signature made for one realm means nothing in another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Realm {
    /// The SPIFFE trust domain, for example `gpu.example.org`.
    pub trust_domain: String,
    /// The fleet's id as text.
    pub fleet_id: String,
}

impl Realm {
    /// A realm from its two names.
    #[must_use]
    pub fn new(trust_domain: impl Into<String>, fleet_id: impl Into<String>) -> Self {
        Self { trust_domain: trust_domain.into(), fleet_id: fleet_id.into() }
    }
}

/// Whether a text can be a trust domain: lower-case DNS labels, as SPIFFE asks.
#[must_use]
pub fn is_trust_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::is_trust_domain;

    #[test]
    fn trust_domains_are_lower_case_dns_names() {
        for good in ["bc.local", "a", "gpu-1.example.org"] {
            assert!(is_trust_domain(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "A.b", "a_b", "-a", "a-", "a/b", "a b", "é"] {
            assert!(!is_trust_domain(bad), "{bad}");
        }
    }
}
