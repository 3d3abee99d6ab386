//! The three verifiers that deliberately leave something open, each named for what it leaves.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{verify_tls12_signature, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use schema::time::Timestamp;

use super::{LeftOpen, Provider};

/// Client certificates are optional; who issued one is judged after the handshake.
#[derive(Debug)]
pub(super) struct JudgedLater(Provider);

impl JudgedLater {
    pub(super) const fn new(provider: Provider) -> Self {
        Self(provider)
    }
}

impl ClientCertVerifier for JudgedLater {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Any server is believed: for fetching the anchor only.
#[derive(Debug)]
pub(super) struct AnyServer(Provider);

impl AnyServer {
    pub(super) const fn new(provider: Provider) -> Self {
        Self(provider)
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Everything is checked but the time: the chain has to be good at the end of the leaf's own life.
#[derive(Debug)]
pub(super) struct OpenTime(Arc<WebPkiServerVerifier>, LeftOpen);

impl OpenTime {
    pub(super) const fn new(verifier: Arc<WebPkiServerVerifier>, left: LeftOpen) -> Self {
        Self(verifier, left)
    }
}

impl ServerCertVerifier for OpenTime {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, leaf) = x509_parser::parse_x509_certificate(end_entity).map_err(|_| bad())?;
        let end = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or(0);
        let own_time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(end));
        let verified = self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, own_time)?;
        let time = |seconds| Timestamp::from_second(seconds).map_err(|_| bad());
        self.1.note(time(leaf.validity().not_before.timestamp())?, time(leaf.validity().not_after.timestamp())?);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
