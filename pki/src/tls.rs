//! rustls configurations: who shows what to whom, and who believes it.
//!
//! | connection | server shows | client shows | client believes |
//! |---|---|---|---|
//! | first contact of `bcd join` | serving certificate | nothing | anything (the anchor is checked by its pin) |
//! | join, renew | serving certificate | nothing | the anchor's roots |
//! | session | serving certificate | node certificate | the trust bundle's roots |
//! | API | serving certificate | nothing (a token later) | the root |
//! | gateway to control plane | internal certificate | internal certificate | the internal authority |

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::{
    CertificateError, ClientConfig, RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::CryptoProvider,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
    time_provider::TimeProvider,
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, UnixTime};
use schema::{
    clock::SharedClock,
    time::{Duration, Moment, Timestamp},
};

use crate::{issue::TlsIdentity, provider::provider, verify::unix_time};

mod accept;

use accept::{AnyServer, JudgedLater, OpenTime};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate or a key cannot be used.
    #[error("a certificate or its key cannot be used for TLS")]
    Identity(#[source] rustls::Error),
    /// A root cannot be trusted, or there is none.
    #[error("a root certificate cannot be used")]
    Root,
}

/// How a client judges the server's times.
#[derive(Debug, Clone)]
pub enum ServerTimes {
    /// By this clock.
    Clock(SharedClock),
    /// Not yet: this machine does not know the time, and asks the server for signed time next. What was left open is judged
    /// by [`LeftOpen::judge`] then.
    Open(LeftOpen),
}

/// What a handshake left open for want of the time.
#[derive(Debug, Clone, Default)]
pub struct LeftOpen(Arc<Mutex<Option<(Timestamp, Timestamp)>>>);

/// A server whose certificate is not valid now that the time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's certificate was valid from {from} to {until}, and it is {now}")]
pub struct OutOfTime {
    /// Its begin.
    pub from: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// A server whose certificate is refused for the time alone, by the clock here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Untimely {
    /// It begins later.
    #[error("the clock says {}, and it begins at {}: your clock is at least {} behind", Moment(*now), Moment(*from), Duration::between(*now, *from))]
    Early {
        /// What the clock says.
        now: Timestamp,
        /// Its begin.
        from: Timestamp,
    },
    /// It ended.
    #[error("the clock says {}, and it ended at {}: your clock is {} ahead, or more", Moment(*now), Moment(*until), Duration::between(*until, *now))]
    Late {
        /// What the clock says.
        now: Timestamp,
        /// Its end.
        until: Timestamp,
    },
}

/// Whether what a client failed with is that, wherever in the causes it stands.
#[must_use]
pub fn untimely(error: &(dyn std::error::Error + 'static)) -> Option<Untimely> {
    let at = |time: UnixTime| Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok();
    let mut next = Some(error);
    while let Some(error) = next {
        match error.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before })) => {
                return Some(Untimely::Early { now: at(*time)?, from: at(*not_before)? });
            }
            Some(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after })) => {
                return Some(Untimely::Late { now: at(*time)?, until: at(*not_after)? });
            }
            _ => {}
        }
        // What an I/O error wraps is not among its causes.
        next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}

impl LeftOpen {
    fn note(&self, from: Timestamp, until: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((from, until));
    }

    /// Judges the latest server by the time that is known now.
    ///
    /// # Errors
    /// When its certificate is not valid at this time.
    pub fn judge(&self, now: Timestamp) -> Result<(), OutOfTime> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((from, until)) if !(from..=until).contains(&now) => Err(OutOfTime { from, until, now }),
            _ => Ok(()),
        }
    }
}

/// A serving certificate that can be replaced while connections go on.
#[derive(Debug)]
pub struct ServingCertificate(RwLock<Arc<CertifiedKey>>);

impl ServingCertificate {
    /// Serves this identity.
    ///
    /// # Errors
    /// When certificate and key do not fit.
    pub fn new(identity: &TlsIdentity) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(certified(identity)?))))
    }

    /// Serves another identity from the next handshake on.
    ///
    /// # Errors
    /// When certificate and key do not fit; the old one stays.
    pub fn replace(&self, identity: &TlsIdentity) -> Result<(), TlsError> {
        let next = certified(identity)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn certified(identity: &TlsIdentity) -> Result<Arc<CertifiedKey>, TlsError> {
    CertifiedKey::from_der(identity.chain().to_vec(), identity.key().clone_key(), &provider())
        .map(Arc::new)
        .map_err(TlsError::Identity)
}

#[derive(Debug)]
struct ClockTime(SharedClock);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(self.0.now()))
    }
}

/// A gateway: TLS 1.3, HTTP/2, client certificate optional.
///
/// The handshake proves that a client holds the key of the certificate that it shows, and **nothing about who issued
/// it**: every connection must be judged by [`crate::verify::NodeVerifier::peer`] before a session is opened. A node
/// that is refused there is told why, which a failed handshake cannot do.
#[must_use]
pub fn gateway_server(serving: Arc<ServingCertificate>, clock: SharedClock) -> ServerConfig {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(ClockTime(clock)))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider speaks TLS 1.3")
        .with_client_cert_verifier(Arc::new(JudgedLater::new(provider())))
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed connection would carry a certificate that was judged another day.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}

/// The API: no client certificate.
#[must_use]
pub fn api_server(serving: Arc<ServingCertificate>, clock: SharedClock) -> ServerConfig {
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(ClockTime(clock)))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks the default versions")
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// The internal service: both sides are certified by the internal authority, checked in the handshake.
///
/// # Errors
/// When the identity or the authority cannot be used.
pub fn internal_server(
    identity: &TlsIdentity,
    internal_authorities: &[CertificateDer<'_>],
    clock: SharedClock,
) -> Result<ServerConfig, TlsError> {
    let roots = Arc::new(root_store(internal_authorities)?);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots, provider()).build().map_err(|_| TlsError::Root)?;
    let mut config = ServerConfig::builder_with_details(provider(), Arc::new(ClockTime(clock)))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider speaks TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(ServingCertificate::new(identity)?);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The configuration of the internal service, which can be replaced while connections go on.
#[derive(Debug)]
pub struct InternalServer(RwLock<Arc<ServerConfig>>);

impl InternalServer {
    /// Shows this identity, and believes these authorities.
    ///
    /// # Errors
    /// When the identity or an authority cannot be used.
    pub fn new(
        identity: &TlsIdentity,
        internal_authorities: &[CertificateDer<'_>],
        clock: SharedClock,
    ) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(Arc::new(internal_server(identity, internal_authorities, clock)?)))))
    }

    /// Shows and believes others from the next handshake on.
    ///
    /// # Errors
    /// When they cannot be used; what was before stays.
    pub fn replace(
        &self,
        identity: &TlsIdentity,
        internal_authorities: &[CertificateDer<'_>],
        clock: SharedClock,
    ) -> Result<(), TlsError> {
        let next = Arc::new(internal_server(identity, internal_authorities, clock)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    /// For the next handshake.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A client of the internal service. It connects to the name [`crate::keys::INTERNAL_NAME`], wherever that is.
///
/// # Errors
/// When the identity or the authority cannot be used.
pub fn internal_client(
    identity: &TlsIdentity,
    internal_authorities: &[CertificateDer<'_>],
    clock: SharedClock,
) -> Result<ClientConfig, TlsError> {
    client(internal_authorities, Some(identity), ServerTimes::Clock(clock))
}

/// A node: TLS 1.3, HTTP/2, believes these roots, shows its certificate when it has one.
///
/// # Errors
/// When a root or the identity cannot be used.
pub fn agent_client(
    roots: &[CertificateDer<'_>],
    identity: Option<&TlsIdentity>,
    times: ServerTimes,
) -> Result<ClientConfig, TlsError> {
    client(roots, identity, times)
}

/// **Believes any server whatsoever.** For one use only: to fetch the anchor, whose pin is checked next. Nothing secret
/// may be sent over such a connection, and nothing received may be believed for any other reason.
#[must_use]
pub fn bootstrap_client_that_believes_any_server() -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider speaks TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer::new(provider())))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

fn client(
    roots: &[CertificateDer<'_>],
    identity: Option<&TlsIdentity>,
    times: ServerTimes,
) -> Result<ClientConfig, TlsError> {
    let store = Arc::new(root_store(roots)?);
    let webpki = WebPkiServerVerifier::builder_with_provider(store, provider()).build().map_err(|_| TlsError::Root)?;
    let (verifier, builder): (Arc<dyn ServerCertVerifier>, _) = match times {
        ServerTimes::Clock(clock) => {
            (webpki, ClientConfig::builder_with_details(provider(), Arc::new(ClockTime(clock))))
        }
        ServerTimes::Open(left) => {
            (Arc::new(OpenTime::new(webpki, left)), ClientConfig::builder_with_provider(provider()))
        }
    };
    let builder = builder
        .with_protocol_versions(&[&TLS13])
        .expect("the provider speaks TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(identity.chain().to_vec(), identity.key().clone_key())
            .map_err(TlsError::Identity)?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn root_store(roots: &[CertificateDer<'_>]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.clone().into_owned()).map_err(|_| TlsError::Root)?;
    }
    if store.is_empty() { Err(TlsError::Root) } else { Ok(store) }
}

/// The provider, where a verifier needs only its algorithms.
type Provider = Arc<CryptoProvider>;

#[cfg(test)]
pub(crate) mod tests;
