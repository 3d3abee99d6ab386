//! Certificates: a root, three issuing authorities under it, and what they issue.
//!
//! The node authority certifies clients only, the serving authority servers only, the internal authority both, but only
//! among the control plane's own processes. Each is trusted on its own, so no certificate works in another's place.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SerialNumber,
    SubjectPublicKeyInfo,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use schema::{
    id::NodeId,
    time::{Duration, Timestamp},
};
use serde::{Deserialize, Serialize};
use x509_parser::{
    certificate::X509Certificate,
    der_parser::asn1_rs::{FromDer as _, Oid, ToDer as _, Utf8String},
};

use crate::{
    csr::Csr,
    encoding::{Base64, Secret},
    node_key::NodePublicKey,
    provider::random,
};

/// How long a root or an issuing authority lives.
pub const AUTHORITY_LIFE: Duration = Duration::from_secs(10 * 365 * 86_400);
/// How long a server's certificate lives.
pub const SERVING_LIFE: Duration = Duration::from_secs(30 * 86_400);
/// How long a node's certificate lives.
pub const NODE_LIFE: Duration = Duration::from_secs(86_400);
/// How far before its issue a certificate begins, for clocks that are behind.
pub const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// The same of authorities and servers. A control plane that was set up by a clock that ran ahead, as one in local time, is
/// reached by everybody when its clock is set right.
const BACKDATE_OF_SERVERS: Duration = Duration::from_secs(86_400);

/// Why nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// A name that cannot stand in a certificate.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    Name(String),
    /// The authority cannot sign.
    #[error("the authority cannot issue this certificate")]
    Issue(#[source] rcgen::Error),
}

/// A certificate serial number: 16 random bytes in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Serial(String);

impl Serial {
    fn generate() -> (Self, SerialNumber) {
        let mut bytes = random::<16>();
        // A serial is a positive integer of a fixed length: top bit clear, first byte not zero.
        bytes[0] = (bytes[0] & 0x3f) | 0x40;
        (Self(hex::encode(bytes)), SerialNumber::from_slice(&bytes))
    }

    /// The number in a column, or in a certificate.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(hex::encode(bytes))
    }

    /// The number for a column.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        hex::decode(&self.0).unwrap_or_default()
    }

    /// The number in hexadecimal.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<[u8]> for Serial {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl std::fmt::Display for Serial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// A certificate authority: its certificate and its private key.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Authority {
    certificate: Base64,
    key: Secret,
}

/// Which kind of issuing authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthorityKind {
    Node,
    Serving,
    Internal,
}

impl AuthorityKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Node => "node authority",
            Self::Serving => "serving authority",
            Self::Internal => "internal authority",
        }
    }

    pub(crate) fn usages(self) -> Vec<ExtendedKeyUsagePurpose> {
        match self {
            Self::Node => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Self::Serving => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Self::Internal => vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth],
        }
    }
}

impl Authority {
    /// A self-signed root.
    pub(crate) fn root(trust_domain: &str, now: Timestamp) -> Self {
        let key = generate_key();
        let (mut params, serial) = params(now, BACKDATE_OF_SERVERS, AUTHORITY_LIFE);
        params.distinguished_name = name(trust_domain, &numbered("root", &serial));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("a root signs itself");
        Self { certificate: Base64(certificate.der().to_vec()), key: Secret(key.serialize_der()) }
    }

    /// An issuing authority under this root.
    pub(crate) fn issuing(&self, kind: AuthorityKind, trust_domain: &str, now: Timestamp) -> Self {
        let key = generate_key();
        let (mut params, serial) = params(now, BACKDATE_OF_SERVERS, AUTHORITY_LIFE);
        params.distinguished_name = name(trust_domain, &numbered(kind.name(), &serial));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.extended_key_usages = kind.usages();
        let certificate = params.signed_by(&key, &self.issuer()).expect("a root signs its authorities");
        Self { certificate: Base64(certificate.der().to_vec()), key: Secret(key.serialize_der()) }
    }

    /// A certificate for another root's key under this one: whoever knows only this root believes what that one vouches for.
    pub(crate) fn cross(&self, next: &Self, life: Duration, now: Timestamp) -> CertificateDer<'static> {
        let certificate = next.certificate();
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .expect("a root's certificate was checked when it was opened");
        let subject = parsed.subject();
        let text = |mut found: Box<dyn Iterator<Item = &x509_parser::x509::AttributeTypeAndValue<'_>> + '_>| {
            found.next().and_then(|attribute| attribute.as_str().ok()).unwrap_or_default().to_owned()
        };
        let (mut params, _) = params(now, BACKDATE_OF_SERVERS, life);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, text(Box::new(subject.iter_organization())));
        params.distinguished_name.push(DnType::CommonName, text(Box::new(subject.iter_common_name())));
        // Below it stand the roots that came later, each under the one before.
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let crossed = params.signed_by(&next.key_pair(), &self.issuer()).expect("a root signs the next one");
        crossed.der().clone()
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from(self.certificate.0.clone())
    }

    fn key_pair(&self) -> KeyPair {
        KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(self.key.0.as_slice()), &PKCS_ECDSA_P256_SHA256)
            .expect("an authority's key was checked when it was opened")
    }

    /// Whether certificate and key can be used, for keys that were just opened.
    pub(crate) fn is_sound(&self) -> bool {
        let key = KeyPair::from_pkcs8_der_and_sign_algo(
            &PrivatePkcs8KeyDer::from(self.key.0.as_slice()),
            &PKCS_ECDSA_P256_SHA256,
        );
        key.is_ok_and(|key| Issuer::from_ca_cert_der(&self.certificate(), key).is_ok())
    }

    fn issuer(&self) -> Issuer<'static, KeyPair> {
        Issuer::from_ca_cert_der(&self.certificate(), self.key_pair())
            .expect("an authority's certificate was checked when it was opened")
    }

    /// A certificate for a new key, valid under these DNS names and addresses.
    pub(crate) fn issue_named(
        &self,
        common_name: &str,
        names: &[String],
        usages: Vec<ExtendedKeyUsagePurpose>,
        now: Timestamp,
    ) -> Result<TlsIdentity, IssueError> {
        let key = generate_key();
        let certificate = self.sign(&named(common_name, names, usages, now)?, &key)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(TlsIdentity::new(vec![certificate, self.certificate()], key))
    }

    /// The same for the key of a checked request; leaf first.
    pub(crate) fn certify_named(
        &self,
        csr: &Csr,
        common_name: &str,
        names: &[String],
        usages: Vec<ExtendedKeyUsagePurpose>,
        now: Timestamp,
    ) -> Result<Vec<CertificateDer<'static>>, IssueError> {
        let key = SubjectPublicKeyInfo::from_der(&csr.spki).map_err(IssueError::Issue)?;
        let certificate = self.sign(&named(common_name, names, usages, now)?, &key)?;
        Ok(vec![certificate, self.certificate()])
    }

    fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, IssueError> {
        params.signed_by(key, &self.issuer()).map(|certificate| certificate.der().clone()).map_err(IssueError::Issue)
    }
}

/// The authority that certifies nodes, held by the join service.
#[derive(Debug, Clone)]
pub struct NodeIssuer {
    pub(crate) trust_domain: String,
    pub(crate) authority: Authority,
}

/// A node certificate, to be stored and sent.
#[derive(Debug, Clone)]
pub struct IssuedCertificate {
    /// Its serial number, by which it is revoked.
    pub serial: Serial,
    /// Leaf first, then the node authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// The certified key.
    pub public_key: NodePublicKey,
    /// Valid from, five minutes before the issue.
    pub not_before: Timestamp,
    /// Valid until.
    pub not_after: Timestamp,
}

impl NodeIssuer {
    /// Certifies the key of a checked request as this node, for 24 hours, and the kinds of commands that it accepts; `None`: all.
    ///
    /// # Errors
    /// When the authority cannot sign.
    pub fn issue(
        &self,
        csr: &Csr,
        node: NodeId,
        kinds: Option<&[String]>,
        now: Timestamp,
    ) -> Result<IssuedCertificate, IssueError> {
        let key = SubjectPublicKeyInfo::from_der(&csr.spki).map_err(IssueError::Issue)?;
        let (mut params, serial) = params(now, BACKDATE, NODE_LIFE);
        let id = spiffe_id(&self.trust_domain, node);
        params.subject_alt_names = vec![SanType::URI(id.as_str().try_into().map_err(IssueError::Issue)?)];
        params.distinguished_name.push(DnType::CommonName, node.to_string());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.custom_extensions = vec![CertifiedKinds::extension(kinds)];
        let certificate = self.authority.sign(&params, &key)?;
        Ok(IssuedCertificate {
            serial,
            chain: vec![certificate, self.authority.certificate()],
            public_key: csr.public_key().clone(),
            not_before: from_offset(params.not_before),
            not_after: from_offset(params.not_after),
        })
    }
}

/// The kinds of commands that a node accepts, as its certificate says: whoever writes to the database does not change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertifiedKinds {
    /// The certificate is from before certificates said it.
    Unsaid,
    /// All.
    All,
    /// These.
    Only(Vec<String>),
}

impl CertifiedKinds {
    /// Of the extension that says it. Its value is a UTF8String: JSON, `null` for all or a list of words. The arc below 2.25 needs no
    /// registration (ITU-T X.667).
    const OID: [u64; 3] = [2, 25, 7_031_964_287_516_430_223];

    fn extension(kinds: Option<&[String]>) -> CustomExtension {
        let said = serde_json::to_string(&kinds).expect("words are JSON");
        let value = Utf8String::from(said).to_der_vec().expect("a text has a length");
        CustomExtension::from_oid_content(&Self::OID, value)
    }

    /// What a certificate says; `None` when that cannot be read.
    pub(crate) fn read(certificate: &X509Certificate<'_>) -> Option<Self> {
        let oid = Oid::from(&Self::OID).ok()?;
        let Some(extension) = certificate.get_extension_unique(&oid).ok()? else { return Some(Self::Unsaid) };
        let (rest, said) = Utf8String::from_der(extension.value).ok()?;
        let kinds: Option<Vec<String>> = serde_json::from_str(said.as_ref()).ok()?;
        rest.is_empty().then(|| kinds.map_or(Self::All, Self::Only))
    }
}

/// The SPIFFE id of a node.
#[must_use]
fn spiffe_id(trust_domain: &str, node: NodeId) -> String {
    format!("spiffe://{trust_domain}/node/{node}")
}

/// A certificate chain, leaf first, with its private key.
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsIdentity").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Clone for TlsIdentity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl TlsIdentity {
    /// A chain and the key of its leaf.
    #[must_use]
    pub const fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key }
    }

    /// Leaf first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The private key.
    #[must_use]
    pub const fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }

    /// When the leaf ends, if it is a certificate.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        let (_, leaf) = x509_parser::parse_x509_certificate(self.chain.first()?).ok()?;
        Timestamp::from_second(leaf.validity().not_after.timestamp()).ok()
    }
}

#[derive(Serialize, Deserialize)]
struct StoredIdentity {
    chain: Vec<Base64>,
    key: Secret,
}

impl Serialize for TlsIdentity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let chain = self.chain.iter().map(|certificate| Base64(certificate.to_vec())).collect();
        StoredIdentity { chain, key: Secret(self.key.secret_der().to_vec()) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TlsIdentity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = StoredIdentity::deserialize(deserializer)?;
        let chain = stored.chain.into_iter().map(|Base64(der)| CertificateDer::from(der)).collect();
        Ok(Self::new(chain, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(stored.key.0.clone()))))
    }
}

/// Certificates as one PEM text.
#[must_use]
pub fn to_pem(certificates: &[CertificateDer<'_>]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let body = STANDARD.encode(certificate);
        for line in body.as_bytes().chunks(64) {
            text.push_str(std::str::from_utf8(line).expect("base64 is ASCII"));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn generate_key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("the provider generates P-256 keys")
}

fn name(trust_domain: &str, role: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, trust_domain);
    name.push(DnType::CommonName, format!("Better Compute {role}"));
    name
}

/// Authorities of one kind have names of their own, so that a chain is built without guessing.
fn numbered(role: &str, serial: &Serial) -> String {
    format!("{role} {}", serial.as_str().get(..8).unwrap_or_default())
}

fn params(now: Timestamp, back: Duration, life: Duration) -> (CertificateParams, Serial) {
    let (serial, number) = Serial::generate();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serial_number = Some(number);
    params.use_authority_key_identifier_extension = true;
    params.not_before = to_offset(now.saturating_sub(back.to_std()).unwrap_or(Timestamp::UNIX_EPOCH));
    params.not_after = to_offset(life.after(now));
    (params, serial)
}

fn named(
    common_name: &str,
    names: &[String],
    usages: Vec<ExtendedKeyUsagePurpose>,
    now: Timestamp,
) -> Result<CertificateParams, IssueError> {
    let (mut params, _) = params(now, BACKDATE_OF_SERVERS, SERVING_LIFE);
    params.subject_alt_names = names.iter().map(|name| alternative_name(name)).collect::<Result<_, _>>()?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = usages;
    Ok(params)
}

fn alternative_name(name: &str) -> Result<SanType, IssueError> {
    if let Ok(address) = name.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let is_dns = rustls_pki_types::DnsName::try_from(name).is_ok();
    match name.try_into() {
        Ok(text) if is_dns => Ok(SanType::DnsName(text)),
        _ => Err(IssueError::Name(name.to_owned())),
    }
}

fn to_offset(time: Timestamp) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(time.as_second()).expect("both types hold the years 0 to 9999")
}

fn from_offset(time: time::OffsetDateTime) -> Timestamp {
    Timestamp::from_second(time.unix_timestamp()).expect("both types hold the years 0 to 9999")
}
