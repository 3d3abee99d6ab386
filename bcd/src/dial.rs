//! Connections to a gateway: one address, one TLS configuration, one readable reason when it fails.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig, Error as TlsError};
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Channel, Endpoint as Transport, Uri};

const CONNECT: Duration = Duration::from_secs(10);
/// Later than any heartbeat and its answer: only a wire that says nothing is asked.
const PING_EVERY: Duration = Duration::from_secs(40);
const PING_ANSWER: Duration = Duration::from_secs(10);

/// A text that is no address of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address of the form https://HOST:PORT")]
pub struct BadEndpoint(pub String);

/// Where a gateway listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || BadEndpoint(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| refuse())?;
        let path_is_plain = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if uri.scheme_str() != Some("https") || !path_is_plain {
            return Err(refuse());
        }
        let host = uri.host().ok_or_else(refuse)?.trim_matches(['[', ']']).to_owned();
        ServerName::try_from(host.as_str()).map_err(|_| refuse())?;
        Ok(Self { host, port: uri.port_u16().unwrap_or(443) })
    }
}

impl TryFrom<String> for Endpoint {
    type Error = BadEndpoint;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.to_string()
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "https://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "https://{}:{}", self.host, self.port)
        }
    }
}

/// Why a gateway could not be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No connection at all.
    #[error("{endpoint} cannot be reached: {source}")]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// What the system said.
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("{0} did not answer in time")]
    Silent(Endpoint),
    /// The server is not the one that this node trusts.
    #[error("{endpoint}: {}", tls_reason(.source))]
    Untrusted {
        /// Where.
        endpoint: Endpoint,
        /// What TLS said.
        source: TlsError,
    },
    /// The connection ended while it was being set up.
    #[error("{endpoint}: the connection could not be set up")]
    Transport {
        /// Where.
        endpoint: Endpoint,
        /// What the transport said.
        source: tonic::transport::Error,
    },
}

impl DialError {
    /// Whether trying again may help without anybody doing anything.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        !matches!(self, Self::Untrusted { .. })
    }
}

fn tls_reason(error: &TlsError) -> String {
    use CertificateError as Bad;
    match error {
        TlsError::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "its certificate was not issued by this fleet's authority: another control plane, or something in between"
                .to_owned()
        }
        TlsError::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "its certificate has expired; check this machine's clock, then the gateway's certificate".to_owned()
        }
        TlsError::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; check this machine's clock".to_owned()
        }
        TlsError::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "its certificate does not name this host; use an address that the control plane was told about".to_owned()
        }
        TlsError::InvalidCertificate(other) => format!("its certificate cannot be used: {other:?}"),
        TlsError::AlertReceived(alert) => format!("it refused the connection: {alert:?}"),
        TlsError::InvalidMessage(_) => "it does not speak TLS; check the port".to_owned(),
        other => format!("TLS failed: {other}"),
    }
}

/// Connects and speaks HTTP/2 over TLS.
///
/// # Errors
/// With one readable reason.
pub async fn dial(endpoint: &Endpoint, tls: ClientConfig) -> Result<Channel, DialError> {
    let stream =
        timeout(CONNECT, handshake(endpoint, tls)).await.map_err(|_| DialError::Silent(endpoint.clone()))??;
    let transport = |source| DialError::Transport { endpoint: endpoint.clone(), source };
    // The connector hands out this one connection; a second attempt on the channel fails instead of dialling unseen.
    let once = Arc::new(Mutex::new(Some(TokioIo::new(stream))));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = once.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move { stream.ok_or_else(|| std::io::Error::other("the connection is used up")) }
    });
    let origin = endpoint.to_string();
    Transport::from_shared(origin.replacen("https://", "http://", 1))
        .map_err(transport)?
        .origin(origin.parse().expect("an endpoint's text is a URI"))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(transport)
}

async fn handshake(endpoint: &Endpoint, tls: ClientConfig) -> Result<TlsStream<TcpStream>, DialError> {
    let unreachable = |source| DialError::Unreachable { endpoint: endpoint.clone(), source };
    let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(unreachable)?;
    tcp.set_nodelay(true).map_err(unreachable)?;
    let name = ServerName::try_from(endpoint.host.clone()).expect("an endpoint's host was checked");
    TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
            Some(tls) => DialError::Untrusted { endpoint: endpoint.clone(), source: tls.clone() },
            None => unreachable(error),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_strictly() {
        for (text, shown) in [
            ("https://gw.example.org:7443", "https://gw.example.org:7443"),
            ("https://10.0.0.1", "https://10.0.0.1:443"),
            ("https://[::1]:7443/", "https://[::1]:7443"),
        ] {
            assert_eq!(text.parse::<Endpoint>().expect("an address").to_string(), shown);
        }
        for text in ["", "gw:7443", "http://gw:7443", "https://gw/path", "https://", "https://a b"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_closed_port_is_said() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint: Endpoint =
            format!("https://{}", listener.local_addr().expect("bound")).parse().expect("an address");
        drop(listener);
        let tls = pki::tls::bootstrap_client_that_believes_any_server();
        let error = dial(&endpoint, tls).await.expect_err("nobody listens");
        assert!(error.may_pass());
        assert!(error.to_string().contains("cannot be reached"), "{error}");
    }

    #[tokio::test]
    async fn a_server_without_tls_is_said() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint: Endpoint =
            format!("https://{}", listener.local_addr().expect("bound")).parse().expect("an address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.ok();
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
        });
        let tls = pki::tls::bootstrap_client_that_believes_any_server();
        let error = dial(&endpoint, tls).await.expect_err("no TLS");
        assert!(error.to_string().ends_with("it does not speak TLS; check the port"), "{error}");
    }
}
