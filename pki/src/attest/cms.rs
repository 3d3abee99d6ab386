//! Signed documents as clouds send them: CMS `SignedData` with its content inside, one signer, RSA with SHA-256.
//!
//! BER is read because AWS writes it (lengths that are not known beforehand, texts in pieces); what is signed is DER and
//! taken as it came.

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use rustls_pki_types::CertificateDer;
use schema::digest::Digest;
use subtle::ConstantTimeEq as _;

/// How deep elements lie in each other at most.
const DEPTH: usize = 16;

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
pub(super) const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
const CONSTRUCTED: u8 = 0x20;
const CONTEXT_0: u8 = 0xa0;
const CONTEXT_1: u8 = 0xa1;

const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
pub(super) const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

/// Why a document cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    /// It cannot be read.
    Malformed,
    /// It is signed in another way.
    Unsupported,
}

/// A signed document, as it was read. Nothing in it counts before [`SignedData::is_signed_by`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SignedData {
    /// What is signed.
    pub(super) content: Vec<u8>,
    /// The certificates that came with it, DER.
    pub(super) certificates: Vec<CertificateDer<'static>>,
    /// The bytes under the signature.
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl SignedData {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Bad> {
        let mut outer = Elements(bytes);
        let mut info = outer.want(SEQUENCE)?.inside()?;
        outer.end()?;
        is(info.want(OID)?.body, SIGNED_DATA)?;
        let mut explicit = info.want(CONTEXT_0)?.inside()?;
        let mut data = explicit.want(SEQUENCE)?.inside()?;
        explicit.end()?;
        info.end()?;

        data.want(INTEGER)?;
        data.want(SET)?;
        let mut inner = data.want(SEQUENCE)?.inside()?;
        is(inner.want(OID)?.body, DATA)?;
        let mut explicit = inner.want(CONTEXT_0)?.inside()?;
        let content = explicit.next()?.octets(DEPTH)?;
        explicit.end()?;
        let mut certificates = Vec::new();
        if let Some(some) = data.maybe(CONTEXT_0)? {
            let mut some = some.inside()?;
            while !some.0.is_empty() {
                certificates.push(CertificateDer::from(some.want(SEQUENCE)?.raw.to_vec()));
            }
        }
        data.maybe(CONTEXT_1)?;
        let mut signers = data.want(SET)?.inside()?;
        let signer = signers.want(SEQUENCE)?.inside()?;
        // Of several signers somebody would have to say whose word counts.
        signers.end()?;
        data.end()?;
        let (signed, signature) = signer_info(signer, &content)?;
        Ok(Self { content, certificates, signed, signature })
    }

    /// Whether the key in a certificate signed it.
    pub(super) fn is_signed_by(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((rest, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
        let key = parsed.public_key();
        rest.is_empty()
            && key.algorithm.algorithm.as_bytes() == RSA
            && UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &*key.subject_public_key.data)
                .verify(&self.signed, &self.signature)
                .is_ok()
    }
}

/// The bytes under the one signature, and the signature.
fn signer_info(mut signer: Elements<'_>, content: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Bad> {
    signer.want(INTEGER)?;
    signer.next()?;
    algorithm(&mut signer, &[SHA256])?;
    let signed = match signer.maybe(CONTEXT_0)? {
        None => content.to_vec(),
        Some(attributes) => {
            signs(&attributes, content)?;
            // Signed as a SET, sent under a tag of its own.
            [&[SET], &attributes.raw[1..]].concat()
        }
    };
    algorithm(&mut signer, &[RSA, RSA_SHA256])?;
    let signature = signer.next()?.octets(DEPTH)?;
    signer.maybe(CONTEXT_1)?;
    signer.end()?;
    Ok((signed, signature))
}

/// Whether signed attributes are about this content.
fn signs(attributes: &Element<'_>, content: &[u8]) -> Result<(), Bad> {
    if attributes.is_open {
        return Err(Bad::Malformed);
    }
    let (mut kind, mut digest) = (None, None);
    let mut rest = attributes.inside()?;
    while !rest.0.is_empty() {
        let mut attribute = rest.want(SEQUENCE)?.inside()?;
        let name = attribute.want(OID)?.body;
        let mut values = attribute.want(SET)?.inside()?;
        attribute.end()?;
        let known = match name {
            CONTENT_TYPE => &mut kind,
            MESSAGE_DIGEST => &mut digest,
            _ => continue,
        };
        let value = values.next()?;
        values.end()?;
        if known.replace(value.body).is_some() {
            return Err(Bad::Malformed);
        }
    }
    is(kind.ok_or(Bad::Malformed)?, DATA)?;
    let digest = digest.ok_or(Bad::Malformed)?;
    if bool::from(digest.ct_eq(Digest::of(content).as_bytes())) { Ok(()) } else { Err(Bad::Malformed) }
}

fn algorithm(elements: &mut Elements<'_>, taken: &[&[u8]]) -> Result<(), Bad> {
    let mut algorithm = elements.want(SEQUENCE)?.inside()?;
    if taken.contains(&algorithm.want(OID)?.body) { Ok(()) } else { Err(Bad::Unsupported) }
}

fn is(found: &[u8], wanted: &[u8]) -> Result<(), Bad> {
    if found == wanted { Ok(()) } else { Err(Bad::Unsupported) }
}

/// Elements one after another.
struct Elements<'b>(&'b [u8]);

/// One element.
struct Element<'b> {
    tag: u8,
    /// All of it.
    raw: &'b [u8],
    /// What is in it.
    body: &'b [u8],
    /// Its length was not known beforehand.
    is_open: bool,
}

impl<'b> Elements<'b> {
    fn next(&mut self) -> Result<Element<'b>, Bad> {
        let (element, rest) = element(self.0, DEPTH)?;
        self.0 = rest;
        Ok(element)
    }

    fn want(&mut self, tag: u8) -> Result<Element<'b>, Bad> {
        let element = self.next()?;
        if element.tag == tag { Ok(element) } else { Err(Bad::Malformed) }
    }

    fn maybe(&mut self, tag: u8) -> Result<Option<Element<'b>>, Bad> {
        if self.0.first() == Some(&tag) { self.next().map(Some) } else { Ok(None) }
    }

    const fn end(&self) -> Result<(), Bad> {
        if self.0.is_empty() { Ok(()) } else { Err(Bad::Malformed) }
    }
}

impl<'b> Element<'b> {
    const fn inside(&self) -> Result<Elements<'b>, Bad> {
        if self.tag & CONSTRUCTED == 0 { Err(Bad::Malformed) } else { Ok(Elements(self.body)) }
    }

    /// The bytes of an octet string, whole or in pieces.
    fn octets(&self, depth: usize) -> Result<Vec<u8>, Bad> {
        if self.tag == OCTETS {
            return Ok(self.body.to_vec());
        }
        if self.tag != OCTETS | CONSTRUCTED || depth == 0 {
            return Err(Bad::Malformed);
        }
        let (mut pieces, mut whole) = (Elements(self.body), Vec::new());
        while !pieces.0.is_empty() {
            whole.extend(pieces.next()?.octets(depth - 1)?);
        }
        Ok(whole)
    }
}

fn element(bytes: &[u8], depth: usize) -> Result<(Element<'_>, &[u8]), Bad> {
    let [tag, length, rest @ ..] = bytes else { return Err(Bad::Malformed) };
    // Tags of several bytes are in none of these documents.
    if tag & 0x1f == 0x1f || depth == 0 {
        return Err(Bad::Malformed);
    }
    if *length == 0x80 {
        return open(*tag, bytes, rest, depth);
    }
    let (length, body) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x84 => {
            let (digits, body) = rest.split_at_checked(usize::from(length & 0x7f)).ok_or(Bad::Malformed)?;
            (digits.iter().fold(0_usize, |length, digit| length << 8 | usize::from(*digit)), body)
        }
        _ => return Err(Bad::Malformed),
    };
    let (body, rest) = body.split_at_checked(length).ok_or(Bad::Malformed)?;
    let raw = &bytes[..bytes.len() - rest.len()];
    Ok((Element { tag: *tag, raw, body, is_open: false }, rest))
}

/// An element that ends where two zeros stand in place of another one.
fn open<'b>(tag: u8, bytes: &'b [u8], start: &'b [u8], depth: usize) -> Result<(Element<'b>, &'b [u8]), Bad> {
    if tag & CONSTRUCTED == 0 {
        return Err(Bad::Malformed);
    }
    let mut left = start;
    loop {
        if let [0, 0, rest @ ..] = left {
            let body = &start[..start.len() - left.len()];
            let raw = &bytes[..bytes.len() - rest.len()];
            return Ok((Element { tag, raw, body, is_open: true }, rest));
        }
        (_, left) = element(left, depth - 1)?;
    }
}
