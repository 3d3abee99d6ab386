//! Certificate requests: what a node asks for, read as little as possible.
//!
//! A request proves one thing, that whoever made it holds the private key. Names and extensions in it are ignored; the
//! control plane writes the certificate from what it knows.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls_pki_types::PrivatePkcs8KeyDer;
use schema::digest::Digest;
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY},
    prelude::FromDer as _,
};

use crate::node_key::NodePublicKey;

/// The largest request that is looked at.
const MAX_BYTES: usize = 8 * 1024;

/// Why a certificate request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CsrRefusal {
    /// Not one DER certificate request and nothing else.
    #[error("the certificate request is malformed")]
    Malformed,
    /// Only P-256 keys are certified.
    #[error("the certificate request holds another kind of key than P-256")]
    WrongKey,
    /// The request is not signed by its own key.
    #[error("the certificate request is not signed by its own key")]
    BadSignature,
}

/// A request that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csr {
    hash: Digest,
    public_key: NodePublicKey,
    pub(crate) spki: Vec<u8>,
}

impl Csr {
    /// Reads and checks a DER request.
    ///
    /// # Errors
    /// With what is wrong with it.
    pub fn parse(der: &[u8]) -> Result<Self, CsrRefusal> {
        if der.len() > MAX_BYTES {
            return Err(CsrRefusal::Malformed);
        }
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| CsrRefusal::Malformed)?;
        if !rest.is_empty() {
            return Err(CsrRefusal::Malformed);
        }
        let info = &request.certification_request_info;
        let key = &info.subject_pki;
        let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
        if key.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || curve.as_ref() != Some(&OID_EC_P256) {
            return Err(CsrRefusal::WrongKey);
        }
        let point = key.subject_public_key.data.as_ref();
        if point.len() != 65 || point[0] != 4 {
            return Err(CsrRefusal::WrongKey);
        }
        // The parser forgives what DER does not; outside the signed part only one spelling is taken.
        if der != only_spelling(info.raw, request.signature_value.data.as_ref()) {
            return Err(CsrRefusal::Malformed);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point)
            .verify(info.raw, request.signature_value.data.as_ref())
            .map_err(|_| CsrRefusal::BadSignature)?;
        Ok(Self { hash: hash(der), public_key: NodePublicKey(point.to_vec()), spki: key.raw.to_vec() })
    }

    /// What stands for this request wherever it is bound: the digest of its exact bytes.
    #[must_use]
    pub const fn hash(&self) -> Digest {
        self.hash
    }

    /// The key that is to be certified.
    #[must_use]
    pub const fn public_key(&self) -> &NodePublicKey {
        &self.public_key
    }
}

/// A request of this signed part, signed with ECDSA and SHA-256.
fn only_spelling(info: &[u8], signature: &[u8]) -> Vec<u8> {
    const ECDSA_WITH_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    let bits = element(0x03, &[&[0], signature].concat());
    element(0x30, &[info, ECDSA_WITH_SHA256, &bits].concat())
}

/// A DER element.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut der = vec![tag];
    if content.len() >= 0x80 {
        der.push(0x80 | u8::try_from(length.len()).expect("a length has at most eight bytes"));
    }
    der.extend_from_slice(length);
    der.extend_from_slice(content);
    der
}

/// The digest that stands for a request, before it was looked at.
#[must_use]
pub fn hash(der: &[u8]) -> Digest {
    Digest::of(der)
}

pub(crate) fn create(pkcs8: &[u8]) -> Vec<u8> {
    let key = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(pkcs8), &PKCS_ECDSA_P256_SHA256)
        .expect("a node key parses");
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.serialize_request(&key).expect("an empty request serialises").der().to_vec()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, IsCa, PKCS_ED25519, SanType};

    use super::*;
    use crate::node_key::NodeKey;

    #[test]
    fn a_node_request_names_its_key() {
        let key = NodeKey::generate();
        let csr = Csr::parse(&key.request()).expect("good");
        assert_eq!(csr.public_key(), &key.public());
    }

    #[test]
    fn what_a_request_asks_for_is_ignored() {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.subject_alt_names = vec![SanType::URI("spiffe://bc.local/node/other".try_into().expect("ascii"))];
        let der = params.serialize_request(&key).expect("request").der().to_vec();
        let csr = Csr::parse(&der).expect("only the key counts");
        assert_eq!(csr.public_key().as_bytes(), key.public_key_raw());
    }

    #[test]
    fn trailing_bytes_are_refused() {
        let mut der = NodeKey::generate().request();
        der.push(0);
        assert_eq!(Csr::parse(&der), Err(CsrRefusal::Malformed));
    }

    #[test]
    fn other_keys_are_refused() {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("key");
        let der = CertificateParams::default().serialize_request(&key).expect("request").der().to_vec();
        assert_eq!(Csr::parse(&der), Err(CsrRefusal::WrongKey));
    }

    #[test]
    fn no_bit_of_a_request_can_change() {
        let der = NodeKey::generate().request();
        for bit in 0..der.len() * 8 {
            let mut changed = der.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Csr::parse(&changed).is_err(), "bit {bit}");
        }
    }
}
