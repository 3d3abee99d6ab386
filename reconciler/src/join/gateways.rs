//! Gateways apart: with which keys they work, and their next ones.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use pki::keys::GatewayRefusal;
use proto::internal::v1 as internal;
use rustls_pki_types::CertificateDer;
use schema::time::{Duration, Timestamp};
use serde_json::json;
use store::{
    DbError, audit,
    key_holders::{self, Holder},
};

use super::{JoinService, knocks::Knocks, wire};

/// How many certificates a gateway gets in a row: more than all rotations there are, taken step by step in one breath.
const RENEWALS: u64 = 40;
/// One more after this.
const RENEWAL_EVERY: Duration = Duration::from_secs(600);
/// How often a gateway that says the same is written down.
const WRITTEN_EVERY: i64 = 10;
/// One that says nothing for so long gets no answer: whoever gets one says something every few seconds.
const QUIET: i64 = 30;

/// Why a gateway is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowRefusal {
    /// What it shows or asks is wrong.
    #[error(transparent)]
    Keys(#[from] GatewayRefusal),
    /// It asked for more certificates than a gateway needs.
    #[error("this gateway asks for certificates too often; it keeps those that it has")]
    TooOften,
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
            Self::TooOften => "too-often",
            Self::Ended => "gateway-ended",
            Self::Db(_) => "unavailable",
        }
    }
}

/// What each gateway said last and when that was written down, and how many certificates it may still ask for.
#[derive(Debug, Default)]
pub(super) struct Said {
    last: Mutex<HashMap<String, (u64, Timestamp)>>,
    renewals: Mutex<HashMap<String, Knocks>>,
}

impl Said {
    fn is_due(&self, gateway: &str, revision: u64, now: Timestamp) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(gateway)
            .is_none_or(|(last, at)| *last != revision || now.as_second() - at.as_second() >= WRITTEN_EVERY)
    }

    fn note(&self, gateway: String, revision: u64, now: Timestamp) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(gateway, (revision, now));
    }

    fn may_renew(&self, gateway: &str, now: Timestamp) -> bool {
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = renewals.entry(gateway.to_owned()).or_insert_with(|| Knocks::of(RENEWALS, RENEWAL_EVERY, now));
        bucket.take(now)
    }
}

impl JoinService {
    /// Whether a gateway gets in no more by itself: it was away while the internal authority was replaced.
    pub(crate) fn is_outside(&self, holder: &Holder, now: Timestamp) -> bool {
        let lives = holder.is_gateway && holder.ended_by.is_none();
        lives
            && now.as_second() - holder.seen_at.as_second() > QUIET
            && self.keyring().gateways.is_outside(holder.revision)
    }

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
        if !self.said.may_renew(&gateway, now) {
            return Err(FollowRefusal::TooOften);
        }
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
