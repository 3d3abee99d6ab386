//! The HTTP API: where people and programs look, and the few things they may change by hand.
//!
//! ```text
//! POST /api/compute/{group}/{method} ─▶ token ─▶ authorize ─▶ decode ─▶ handler ─▶ answer
//!                                                                │
//!                              a mutation: one transaction with its idempotency row and its audit row
//! ```
//!
//! [`table`] has every method once: routing, OpenAPI, the reference page and the scopes are read from it, and a new method
//! is a new row. Desired state is not changed here but in the fleet repository; a hold of git is not lifted here either.
//! An answer never shows SQL or a stack: the cause of an internal error is logged once, under the request's id.

pub mod auth;
pub mod dispatch;
pub mod error;
pub mod openapi;
pub mod reference;
pub mod serve;
pub mod table;
pub mod tokens;

mod groups;
mod idempotency;
#[cfg(test)]
mod tests;
mod text;
mod webhook;

use std::sync::{Arc, PoisonError, RwLock};

use pki::secret::SecretStore;
use schema::digest::Digest;
use store::Db;
use tokio_util::sync::CancellationToken;

pub use error::{ApiError, Code};

use crate::{
    custody::{Custody, SourceCustody},
    join::JoinService,
    reconcile::command::FastSigner,
};
pub use webhook::Webhook;

/// What the API serves, and where.
#[derive(Debug)]
pub struct Config {
    /// Where it listens; bound already.
    pub listener: tokio::net::TcpListener,
    /// The serving certificate.
    pub tls: Arc<rustls::ServerConfig>,
    /// What the handlers use.
    pub app: App,
}

/// What the handlers use.
#[derive(Debug, Clone)]
pub struct App {
    /// The database.
    pub db: Db,
    /// Where machines dial, as URLs; shown with a join token.
    pub gateways: Vec<String>,
    /// What a machine that joins holds the control plane against.
    pub pin: Pin,
    /// What the fleet is pinned to.
    pub pinned: crate::trust::Pinned,
    /// Signs commands as soon as they are committed; without one the `command` reconciler does, a little later.
    pub signer: Option<FastSigner>,
    /// Seals the values of secrets.
    pub secrets: SecretStore,
    /// Who may poke the source over HTTP; `None` answers such calls with NOT_FOUND.
    pub webhook: Option<Webhook>,
    /// What exports of the audit log are made with.
    pub auditor: Option<Auditor>,
    /// What proposals are asked for with.
    pub service: Option<Arc<SourceCustody>>,
}

impl App {
    fn auditor(&self) -> Result<&Auditor, ApiError> {
        self.auditor.as_ref().ok_or_else(|| ApiError::new(Code::Unsupported, "this process has no keys for that"))
    }

    /// Whether a gateway gets in no more by itself.
    fn is_outside(&self, holder: &store::key_holders::Holder, now: schema::time::Timestamp) -> bool {
        self.auditor.as_ref().is_some_and(|auditor| auditor.joins.is_outside(holder, now))
    }
}

/// What exports of the audit log are made with.
#[derive(Debug, Clone)]
pub struct Auditor {
    /// Signs where a file ends.
    pub custody: Arc<Custody>,
    /// Has the anchor that the key follows from.
    pub joins: Arc<JoinService>,
}

/// The pin of the anchor in force; clones follow when keys are rotated.
#[derive(Debug, Clone)]
pub struct Pin(Arc<RwLock<Digest>>);

impl Pin {
    /// From now on it is this.
    pub fn replace(&self, pin: Digest) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pin;
    }
}

impl From<Digest> for Pin {
    fn from(pin: Digest) -> Self {
        Self(Arc::new(RwLock::new(pin)))
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.read().unwrap_or_else(PoisonError::into_inner).fmt(f)
    }
}

/// Serves until `cancel`, then lets open requests end.
///
/// # Errors
/// When the listener breaks.
pub async fn run(config: Config, cancel: CancellationToken) -> std::io::Result<()> {
    let address = config.listener.local_addr()?;
    tracing::info!(%address, "the API listens");
    serve::serve(config.listener, config.tls, dispatch::router(config.app), serve::Limits::default(), cancel).await;
    tracing::info!("the API stopped");
    Ok(())
}
