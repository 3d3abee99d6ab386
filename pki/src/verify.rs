//! Who a peer is: a certificate chain judged against our node authorities.
//!
//! Strict on purpose: exactly one URI name, exactly the SPIFFE form, our trust domain, a client certificate, one of our
//! node authorities. Every other answer has a typed reason.

use std::sync::{Arc, PoisonError, RwLock};

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use schema::{id::NodeId, time::Timestamp};
use serde::{Deserialize, Serialize};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use crate::{
    issue::{CertifiedKinds, Serial},
    node_key::NodePublicKey,
    provider::provider,
    realm::is_trust_domain,
};

/// When something has to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// At this time.
    At(Timestamp),
    /// At any time at all: for a machine that does not know the time yet, and for what was verified when it came.
    Open,
}

/// Why a peer is not one of our nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityRefusal {
    /// No node authority of ours issued it.
    #[error("the certificate was not issued by this control plane")]
    ForeignCa,
    /// It ended.
    #[error("the certificate has expired")]
    Expired,
    /// It has not begun.
    #[error("the certificate is not valid yet")]
    NotYetValid,
    /// It names another trust domain.
    #[error("the certificate is of another trust domain")]
    WrongTrustDomain,
    /// It is ours, but names no node.
    #[error("the certificate is not a node certificate")]
    NotANode,
    /// It is not a certificate.
    #[error("the certificate is malformed")]
    Malformed,
}

impl IdentityRefusal {
    /// The stored word.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ForeignCa => "foreign-ca",
            Self::Expired => "expired",
            Self::NotYetValid => "not-yet-valid",
            Self::WrongTrustDomain => "wrong-trust-domain",
            Self::NotANode => "not-a-node",
            Self::Malformed => "malformed",
        }
    }
}

/// A node, as its certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Which node.
    pub node_id: NodeId,
    /// The certificate's serial number; the control plane knows the identity generation behind it.
    pub serial: Serial,
    /// The certified key.
    pub public_key: NodePublicKey,
    /// The kinds of commands that it accepts.
    pub kinds: CertifiedKinds,
    /// Valid from.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
}

/// What a connection's other end is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// It showed no certificate: it may join, renew and ask for the anchor.
    Anonymous,
    /// One of our nodes.
    Node(NodeIdentity),
    /// It showed a certificate that is not good.
    Refused(IdentityRefusal),
}

/// Judges node certificates. Clones judge alike, also after [`NodeVerifier::replace`].
#[derive(Debug, Clone)]
pub struct NodeVerifier {
    trust_domain: String,
    anchors: Arc<RwLock<Arc<[TrustAnchor<'static>]>>>,
}

impl NodeVerifier {
    /// A verifier that trusts these node authorities.
    ///
    /// # Errors
    /// When one of them is not a certificate.
    pub fn new(trust_domain: &str, authorities: &[CertificateDer<'_>]) -> Result<Self, IdentityRefusal> {
        let anchors = Arc::new(RwLock::new(anchors(authorities)?));
        Ok(Self { trust_domain: trust_domain.to_owned(), anchors })
    }

    /// From now on these node authorities count, here and in every clone.
    ///
    /// # Errors
    /// When one of them is not a certificate; the old ones stay.
    pub fn replace(&self, authorities: &[CertificateDer<'_>]) -> Result<(), IdentityRefusal> {
        let next = anchors(authorities)?;
        *self.anchors.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// Judges the chain that a TLS peer showed; the handshake itself proved that the peer holds the key.
    #[must_use]
    pub fn peer(&self, chain: Option<&[CertificateDer<'_>]>, now: Timestamp) -> Peer {
        match chain {
            None | Some([]) => Peer::Anonymous,
            Some(chain) => match self.identify(chain, Validity::At(now)) {
                Ok(identity) => Peer::Node(identity),
                Err(refusal) => Peer::Refused(refusal),
            },
        }
    }

    /// The node that a chain (leaf first) identifies.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn identify(&self, chain: &[CertificateDer<'_>], validity: Validity) -> Result<NodeIdentity, IdentityRefusal> {
        let (leaf, intermediates) = chain.split_first().ok_or(IdentityRefusal::Malformed)?;
        let parsed = parse(leaf)?;
        let at = match validity {
            Validity::At(now) => now,
            Validity::Open => times(&parsed)?.1,
        };
        let certificate = EndEntityCert::try_from(leaf).map_err(|_| IdentityRefusal::Malformed)?;
        let anchors = Arc::clone(&self.anchors.read().unwrap_or_else(PoisonError::into_inner));
        certificate
            .verify_for_usage(
                provider().signature_verification_algorithms.all,
                &anchors,
                intermediates,
                unix_time(at),
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map_err(|error| refusal(&error))?;

        read(&self.trust_domain, &parsed)
    }
}

impl NodeIdentity {
    /// A node's own certificate, from its own disk: who issued it was checked when it came, and may be over since.
    ///
    /// # Errors
    /// When it is no node certificate of this trust domain.
    pub fn of_own(trust_domain: &str, chain: &[CertificateDer<'_>]) -> Result<Self, IdentityRefusal> {
        read(trust_domain, &parse(chain.first().ok_or(IdentityRefusal::Malformed)?)?)
    }
}

fn parse<'a>(leaf: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, IdentityRefusal> {
    let (rest, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| IdentityRefusal::Malformed)?;
    if rest.is_empty() { Ok(parsed) } else { Err(IdentityRefusal::Malformed) }
}

fn times(certificate: &X509Certificate<'_>) -> Result<(Timestamp, Timestamp), IdentityRefusal> {
    let time = |seconds| Timestamp::from_second(seconds).map_err(|_| IdentityRefusal::Malformed);
    let validity = certificate.validity();
    Ok((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

fn read(trust_domain: &str, certificate: &X509Certificate<'_>) -> Result<NodeIdentity, IdentityRefusal> {
    let (not_before, not_after) = times(certificate)?;
    Ok(NodeIdentity {
        node_id: node_id(trust_domain, certificate)?,
        serial: Serial::from_bytes(certificate.raw_serial()),
        public_key: NodePublicKey(certificate.public_key().subject_public_key.data.to_vec()),
        kinds: CertifiedKinds::read(certificate).ok_or(IdentityRefusal::Malformed)?,
        not_before,
        not_after,
    })
}

fn node_id(trust_domain: &str, certificate: &X509Certificate<'_>) -> Result<NodeId, IdentityRefusal> {
    let names = certificate
        .subject_alternative_name()
        .map_err(|_| IdentityRefusal::Malformed)?
        .ok_or(IdentityRefusal::NotANode)?;
    let [GeneralName::URI(uri)] = names.value.general_names.as_slice() else {
        return Err(IdentityRefusal::NotANode);
    };
    let (domain, path) =
        uri.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/')).ok_or(IdentityRefusal::NotANode)?;
    if !is_trust_domain(domain) {
        return Err(IdentityRefusal::NotANode);
    }
    if domain != trust_domain {
        return Err(IdentityRefusal::WrongTrustDomain);
    }
    path.strip_prefix("node/").and_then(|id| id.parse().ok()).ok_or(IdentityRefusal::NotANode)
}

fn anchors(authorities: &[CertificateDer<'_>]) -> Result<Arc<[TrustAnchor<'static>]>, IdentityRefusal> {
    let anchor = |der| anchor_from_trusted_cert(der).map(|anchor| anchor.to_owned());
    authorities.iter().map(anchor).collect::<Result<_, _>>().map_err(|_| IdentityRefusal::Malformed)
}

pub(crate) fn unix_time(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0)))
}

const fn refusal(error: &webpki::Error) -> IdentityRefusal {
    match error {
        webpki::Error::CertExpired { .. } => IdentityRefusal::Expired,
        webpki::Error::CertNotValidYet { .. } => IdentityRefusal::NotYetValid,
        webpki::Error::RequiredEkuNotFoundContext(_) | webpki::Error::CaUsedAsEndEntity => IdentityRefusal::NotANode,
        webpki::Error::BadDer | webpki::Error::BadDerTime | webpki::Error::TrailingData(_) => {
            IdentityRefusal::Malformed
        }
        _ => IdentityRefusal::ForeignCa,
    }
}

#[cfg(test)]
mod tests;
