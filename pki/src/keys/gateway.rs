//! What a gateway apart holds, and how it gets the next of it without anybody's hands.
//!
//! It asks over the internal service, where the handshake proved that it holds its internal key. The request names two new
//! keys, each proven by a certificate request, and is signed with the key that it serves with; the names in the next
//! certificates are those in the present ones and no others.

use std::net::IpAddr;

use rustls_pki_types::CertificateDer;
use schema::{
    canonical,
    id::FleetId,
    time::{Duration, Timestamp},
};
use serde::{Deserialize, Serialize};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

use super::{Keys, OpenError, open, seal};
use crate::{
    Realm,
    csr::{Csr, CsrRefusal},
    encoding::Base64,
    issue::{Authority, IssueError, TlsIdentity},
    node_key::{BadNodeKey, NodeKey, NodePublicKey},
    provider::provider,
    signed::{Purpose, SignedBytes},
    verify::{IdentityRefusal, NodeVerifier, unix_time},
};

/// How far the time in a request may be from the control plane's.
const REQUEST_LIFE: Duration = Duration::from_secs(5 * 60);
const NAME_END: &str = ".gateway.internal";

/// The name of a gateway among the control plane's own.
pub(super) fn internal_name(gateway: &str) -> String {
    format!("{gateway}{NAME_END}")
}

/// What a gateway process holds: its certificates, and whom it believes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayKeys {
    trust_domain: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fleet_id: Option<FleetId>,
    /// What this gateway is called among the control plane's own.
    pub name: String,
    /// Shown to nodes.
    pub serving: TlsIdentity,
    /// Shown to the control plane's internal service.
    pub internal: TlsIdentity,
    node_authorities: Vec<Base64>,
    internal_authorities: Vec<Base64>,
    /// The revision of the control plane's keys that these were made from.
    #[serde(default)]
    pub revision: u64,
}

/// A request for the next keys, under way.
#[derive(Debug)]
pub struct Renewing {
    /// The request as it is signed and sent.
    pub request: Vec<u8>,
    /// By the key of the present serving certificate.
    pub signature: Vec<u8>,
    /// The present serving certificate, leaf first.
    pub serving_chain: Vec<CertificateDer<'static>>,
    fleet_id: Option<FleetId>,
    serving: NodeKey,
    internal: NodeKey,
}

/// What a gateway is given for its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedGateway {
    /// Shown to nodes, leaf first.
    pub serving: Vec<CertificateDer<'static>>,
    /// Shown to the internal service, leaf first.
    pub internal: Vec<CertificateDer<'static>>,
    /// Whose node certificates count.
    pub node_authorities: Vec<CertificateDer<'static>>,
    /// Whose internal certificates count.
    pub internal_authorities: Vec<CertificateDer<'static>>,
    /// The revision of the control plane's keys.
    pub revision: u64,
}

/// Why a gateway gets no certificates.
#[derive(Debug, thiserror::Error)]
pub enum GatewayRefusal {
    /// Not a request.
    #[error("the request is malformed")]
    Malformed,
    /// Too old, or of a clock that is far off.
    #[error("the time in the request is too far from the control plane's")]
    Time,
    /// Its internal certificate is none of a gateway, or ended.
    #[error("the internal certificate is not that of a gateway of this control plane")]
    NotAGateway,
    /// Its serving certificate is none of ours, or ended.
    #[error("the serving certificate was not issued by this control plane, or has ended")]
    Foreign,
    /// It does not hold the key of its serving certificate.
    #[error("the request is not signed by the key of the serving certificate")]
    Possession,
    /// A new key that is not proven.
    #[error(transparent)]
    Request(#[from] CsrRefusal),
    /// Nothing could be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Asked {
    at: Timestamp,
    serving: Base64,
    internal: Base64,
}

fn signed(realm: &Realm, request: &[u8]) -> SignedBytes {
    SignedBytes::new(Purpose::GatewayRenewal, realm).field(request)
}

impl GatewayKeys {
    pub(super) fn new(keys: &Keys, name: String, serving: TlsIdentity, internal: TlsIdentity) -> Self {
        Self {
            trust_domain: keys.trust_domain.clone(),
            fleet_id: keys.fleet_id,
            name,
            serving,
            internal,
            node_authorities: base64(&keys.node_authorities()),
            internal_authorities: base64(&keys.internal_authorities()),
            revision: keys.revision,
        }
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
        open(sealed, secret)
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

    /// Judges node certificates.
    ///
    /// # Errors
    /// When a node authority in these keys is not a certificate.
    pub fn node_verifier(&self) -> Result<NodeVerifier, IdentityRefusal> {
        NodeVerifier::new(&self.trust_domain, &certificates(&self.node_authorities))
    }

    /// The authorities behind the internal service's certificate.
    #[must_use]
    pub fn internal_authorities(&self) -> Vec<CertificateDer<'static>> {
        certificates(&self.internal_authorities)
    }

    /// Asks for the next keys.
    ///
    /// # Errors
    /// When the serving key is not one that this program makes.
    pub fn renewing(&self, realm: &Realm, now: Timestamp) -> Result<Renewing, BadNodeKey> {
        let (serving, internal) = (NodeKey::generate(), NodeKey::generate());
        let asked = Asked { at: now, serving: Base64(serving.request()), internal: Base64(internal.request()) };
        let request = canonical::to_vec(&asked).expect("a request serialises");
        let signature = NodeKey::from_pkcs8(self.serving.key().secret_der())?.sign(&signed(realm, &request));
        let (serving_chain, fleet_id) = (self.serving.chain().to_vec(), realm.fleet_id.parse().ok());
        Ok(Renewing { request, signature, serving_chain, fleet_id, serving, internal })
    }

    /// The next keys, with what was given for the request.
    #[must_use]
    pub fn renewed(&self, renewing: &Renewing, issued: IssuedGateway) -> Self {
        Self {
            trust_domain: self.trust_domain.clone(),
            // What was asked is signed with the fleet's id, and the control plane agreed.
            fleet_id: self.fleet_id.or(renewing.fleet_id),
            name: self.name.clone(),
            serving: renewing.serving.identity(issued.serving),
            internal: renewing.internal.identity(issued.internal),
            node_authorities: base64(&issued.node_authorities),
            internal_authorities: base64(&issued.internal_authorities),
            revision: issued.revision,
        }
    }
}

/// What certifies gateways apart.
#[derive(Debug, Clone)]
pub struct GatewayIssuer {
    serving: Authority,
    internal: Authority,
    serving_authorities: Vec<CertificateDer<'static>>,
    crosses: Vec<CertificateDer<'static>>,
    node_authorities: Vec<CertificateDer<'static>>,
    internal_authorities: Vec<CertificateDer<'static>>,
    revision: u64,
    outside: u64,
}

impl GatewayIssuer {
    pub(super) fn of(keys: &Keys, now: Timestamp) -> Self {
        Self {
            serving: keys.serving.clone(),
            internal: keys.internal.clone(),
            serving_authorities: keys.serving_authorities(now),
            crosses: keys.rotations.crosses(now).collect(),
            node_authorities: keys.node_authorities(),
            internal_authorities: keys.internal_authorities(),
            revision: keys.revision,
            outside: keys.internal_outside(),
        }
    }

    /// Whether a gateway whose keys are of this revision and the control plane do not believe each other any more: it was away while
    /// the internal authority was replaced, and needs new keys.
    #[must_use]
    pub const fn is_outside(&self, revision: u64) -> bool {
        revision < self.outside
    }

    /// The revision of the keys that this certifies with.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Which gateway showed this internal certificate in its handshake, and until when it counts.
    ///
    /// # Errors
    /// When it is none of a gateway, or ended.
    pub fn gateway(
        &self,
        internal: &CertificateDer<'_>,
        now: Timestamp,
    ) -> Result<(String, Timestamp), GatewayRefusal> {
        let name = || {
            let parsed =
                verified(std::slice::from_ref(internal), &self.internal_authorities, KeyUsage::client_auth(), now)?;
            let ends = Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?;
            let [name] = names(&parsed)?.try_into().ok()?;
            let name: String = name;
            Some((name.strip_suffix(NAME_END)?.to_owned(), ends))
        };
        name().ok_or(GatewayRefusal::NotAGateway)
    }

    /// The next certificates of a gateway.
    ///
    /// # Errors
    /// With the first reason against it.
    pub fn renew(
        &self,
        realm: &Realm,
        gateway: &str,
        serving_chain: &[CertificateDer<'_>],
        (request, signature): (&[u8], &[u8]),
        now: Timestamp,
    ) -> Result<IssuedGateway, GatewayRefusal> {
        let asked: Asked = serde_json::from_slice(request).map_err(|_| GatewayRefusal::Malformed)?;
        let life = REQUEST_LIFE.to_std();
        if asked.at.duration_since(now).unsigned_abs() > life {
            return Err(GatewayRefusal::Time);
        }
        let leaf = verified(serving_chain, &self.serving_authorities, KeyUsage::server_auth(), now)
            .ok_or(GatewayRefusal::Foreign)?;
        let hosts = names(&leaf).ok_or(GatewayRefusal::Foreign)?;
        NodePublicKey(leaf.public_key().subject_public_key.data.to_vec())
            .verify(&signed(realm, request), signature)
            .map_err(|_| GatewayRefusal::Possession)?;
        let (serving, internal) = (Csr::parse(&asked.serving.0)?, Csr::parse(&asked.internal.0)?);
        let server = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let client = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let mut serving = self.serving.certify_named(&serving, "server", &hosts, server, now)?;
        serving.extend(self.crosses.iter().cloned());
        Ok(IssuedGateway {
            serving,
            internal: self.internal.certify_named(&internal, gateway, &[internal_name(gateway)], client, now)?,
            node_authorities: self.node_authorities.clone(),
            internal_authorities: self.internal_authorities.clone(),
            revision: self.revision,
        })
    }
}

/// The leaf of a chain that one of these authorities issued.
fn verified<'c>(
    chain: &'c [CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    usage: KeyUsage,
    now: Timestamp,
) -> Option<X509Certificate<'c>> {
    let leaf = chain.first()?;
    let anchors: Vec<_> = authorities.iter().filter_map(|authority| anchor_from_trusted_cert(authority).ok()).collect();
    EndEntityCert::try_from(leaf)
        .ok()?
        .verify_for_usage(
            provider().signature_verification_algorithms.all,
            &anchors,
            &[],
            unix_time(now),
            usage,
            None,
            None,
        )
        .ok()?;
    Some(x509_parser::parse_x509_certificate(leaf).ok()?.1)
}

/// The DNS names and addresses in a certificate.
fn names(certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
    let names = certificate.subject_alternative_name().ok()??;
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    };
    names.value.general_names.iter().map(name).collect()
}

fn base64(certificates: &[CertificateDer<'_>]) -> Vec<Base64> {
    certificates.iter().map(|der| Base64(der.to_vec())).collect()
}

fn certificates(stored: &[Base64]) -> Vec<CertificateDer<'static>> {
    stored.iter().map(|Base64(der)| CertificateDer::from(der.clone())).collect()
}

#[cfg(test)]
mod tests;
