//! The metadata services of clouds: one address on every instance, asked with a deadline and never through a proxy.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, redirect::Policy};
use schema::attested::AttestKind;
use serde::Deserialize;

use super::AttestError;

const DEADLINE: Duration = Duration::from_secs(5);
/// A document is a few kilobytes.
const MAX_BYTES: usize = 64 * 1024;

/// Where instances find what their cloud says of them.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// Scheme, host and port.
    pub base: String,
}

impl Default for Metadata {
    fn default() -> Self {
        Self { base: "http://169.254.169.254".to_owned() }
    }
}

/// A place that no cloud has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("only http://127.0.0.1:PORT can stand for a metadata service")]
pub struct NotHere;

impl std::str::FromStr for Metadata {
    type Err = NotHere;

    /// For tests: whoever could name any other place could have documents of another machine shown.
    fn from_str(text: &str) -> Result<Self, NotHere> {
        let port = text.strip_prefix("http://127.0.0.1:").and_then(|port| port.parse::<u16>().ok());
        port.map(|port| Self { base: format!("http://127.0.0.1:{port}") }).ok_or(NotHere)
    }
}

#[derive(Deserialize)]
struct Attested {
    encoding: String,
    signature: String,
}

impl Metadata {
    /// The signed identity document of an AWS instance.
    pub(super) async fn aws(&self) -> Result<String, AttestError> {
        const KIND: AttestKind = AttestKind::Aws;
        let client = self.client(KIND)?;
        let asked = client.put(format!("{}/latest/api/token", self.base));
        let token = self.ask(KIND, asked.header("X-aws-ec2-metadata-token-ttl-seconds", "60")).await?;
        let asked = client.get(format!("{}/latest/dynamic/instance-identity/rsa2048", self.base));
        self.ask(KIND, asked.header("X-aws-ec2-metadata-token", token.trim())).await
    }

    /// The identity token of a Google Cloud instance for an audience.
    pub(super) async fn gcp(&self, audience: &str) -> Result<String, AttestError> {
        const KIND: AttestKind = AttestKind::Gcp;
        let path = "computeMetadata/v1/instance/service-accounts/default/identity";
        let asked = self.client(KIND)?.get(format!("{}/{path}?audience={audience}&format=full", self.base));
        self.ask(KIND, asked.header("Metadata-Flavor", "Google")).await
    }

    /// The attested document of an Azure machine with a nonce.
    pub(super) async fn azure(&self, nonce: &str) -> Result<String, AttestError> {
        const KIND: AttestKind = AttestKind::Azure;
        let path = "metadata/attested/document?api-version=2020-09-01";
        let asked = self.client(KIND)?.get(format!("{}/{path}&nonce={nonce}", self.base));
        let answer = self.ask(KIND, asked.header("Metadata", "true")).await?;
        match serde_json::from_str::<Attested>(&answer) {
            Ok(attested) if attested.encoding == "pkcs7" => Ok(attested.signature),
            _ => Err(self.refuse(KIND, "it answered with something else".to_owned())),
        }
    }

    fn client(&self, kind: AttestKind) -> Result<Client, AttestError> {
        let client = Client::builder().no_proxy().redirect(Policy::none()).timeout(DEADLINE).build();
        client.map_err(|error| self.refuse(kind, error.to_string()))
    }

    async fn ask(&self, kind: AttestKind, asked: RequestBuilder) -> Result<String, AttestError> {
        let refuse = |error: reqwest::Error| {
            let why = if error.is_timeout() { "it took too long".to_owned() } else { error.without_url().to_string() };
            self.refuse(kind, why)
        };
        let mut answer = asked.send().await.and_then(reqwest::Response::error_for_status).map_err(refuse)?;
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(refuse)? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_BYTES {
                return Err(self.refuse(kind, "its answer is too long".to_owned()));
            }
        }
        String::from_utf8(body).map_err(|_| self.refuse(kind, "its answer is no text".to_owned()))
    }

    fn refuse(&self, kind: AttestKind, why: String) -> AttestError {
        AttestError::Metadata { kind, endpoint: self.base.clone(), why }
    }
}
