//! Gateways apart: with which keys they work, and their next ones.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use pki::keys::GatewayRefusal;
use proto::internal::v1 as internal;
use rustls_pki_types::CertificateDer;
use schema::time::Timestamp;
use serde_json::json;
use store::{DbError, audit, key_holders};

use super::{JoinService, wire};

/// How often a gateway that says the same is written down.
const WRITTEN_EVERY: i64 = 30;

/// Why a gateway is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowRefusal {
    /// What it shows or asks is wrong.
    #[error(transparent)]
    Keys(#[from] GatewayRefusal),
    /// Somebody ended it.
    #[error("this gateway was ended: it gets no more certificates")]
    Ended,
    /// The database did not do its part.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl FollowRefusal {
    /// The stable word.
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Keys(GatewayRefusal::NotAGateway) => "not-a-gateway",
            Self::Keys(GatewayRefusal::Foreign) => "foreign-certificate",
            Self::Keys(GatewayRefusal::Possession) => "no-possession",
            Self::Keys(GatewayRefusal::Time) => "request-too-old",
            Self::Keys(_) => "bad-request",
            Self::Ended => "gateway-ended",
            Self::Db(_) => "unavailable",
        }
    }
}

/// What each gateway said last, and when that was written down.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<HashMap<String, (u64, Timestamp)>>);

impl Said {
    fn is_due(&self, gateway: &str, revision: u64, now: Timestamp) -> bool {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.get(gateway)
            .is_none_or(|(last, at)| *last != revision || now.as_second() - at.as_second() >= WRITTEN_EVERY)
    }

    fn note(&self, gateway: String, revision: u64, now: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(gateway, (revision, now));
    }
}

impl JoinService {
    /// Takes note of a gateway, and certifies its next keys when it asks for that.
    pub(super) async fn follow(
        &self,
        shown: Option<&CertificateDer<'_>>,
        request: internal::FollowKeysRequest,
    ) -> Result<internal::FollowKeysResponse, FollowRefusal> {
        let (now, keyring) = (self.clock.now(), self.keyring());
        let issuer = &keyring.gateways;
        let (gateway, ends) = issuer.gateway(shown.ok_or(GatewayRefusal::NotAGateway)?, now)?;
        if request.renewal.is_some() || self.said.is_due(&gateway, request.revision, now) {
            if !key_holders::gateway(&self.db, &gateway, request.revision, ends).await? {
                return Err(FollowRefusal::Ended);
            }
            self.said.note(gateway.clone(), request.revision, now);
        }
        let Some(renewal) = request.renewal else {
            return Ok(internal::FollowKeysResponse { revision: issuer.revision(), issued: None });
        };
        let chain: Vec<_> = renewal.serving_chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
        let issued = issuer.renew(&self.realm, &gateway, &chain, (&renewal.request, &renewal.signature), now)?;
        let mut txn = self.db.begin().await?;
        let detail = json!({ "revision": issued.revision });
        audit::append(&mut txn, &format!("gateway/{gateway}"), "keys.renewGateway", &gateway, &detail).await?;
        txn.commit().await?;
        tracing::info!(gateway, revision = issued.revision, "a gateway got its next certificates");
        Ok(internal::FollowKeysResponse {
            revision: issued.revision,
            issued: Some(internal::IssuedGateway {
                serving: wire::chain(&issued.serving),
                internal: wire::chain(&issued.internal),
                node_authorities: wire::chain(&issued.node_authorities),
                internal_authorities: wire::chain(&issued.internal_authorities),
            }),
        })
    }
}
