//! A gateway apart and its keys: it says with which ones it works, and gets the next ones by itself, when the control plane's
//! changed and when its certificates are half over.

use std::{sync::Arc, time::Duration};

use gateway::{AuthorityClient, authority::Refused};
use pki::{
    Realm,
    issue::{SERVING_LIFE, TlsIdentity},
    keys::GatewayKeys,
    tls::{self, ServingCertificate},
};
use schema::{cause::chain, clock::SharedClock, time::Timestamp};
use tokio_util::sync::CancellationToken;

use super::keys::KeyDir;

/// How often it says with which keys it works.
const SAID_EVERY: Duration = Duration::from_secs(5);

/// The keys of a gateway that runs.
#[derive(Debug)]
pub struct GatewayHolder {
    /// Where they are kept.
    pub place: KeyDir,
    /// As they are.
    pub keys: GatewayKeys,
    /// Trust domain and fleet.
    pub realm: Realm,
    /// What nodes are shown.
    pub serving: Arc<ServingCertificate>,
    /// The control plane.
    pub authority: AuthorityClient,
    /// The clock of this process.
    pub clock: SharedClock,
}

/// Why there are no next keys yet.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the control plane answered without certificates")]
    Empty,
    #[error(transparent)]
    Key(#[from] pki::node_key::BadNodeKey),
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
}

impl Trouble {
    /// Whether nothing but new keys helps.
    const fn is_outside(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.is_outside)
    }
}

impl GatewayHolder {
    /// Follows until it is cancelled.
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let mut kept = self.keys.revision;
        let mut said = String::new();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = tokio::time::sleep(SAID_EVERY) => {}
            }
            match self.look(&mut kept).await {
                Ok(()) => said.clear(),
                Err(trouble) => {
                    let text = chain(&trouble);
                    if text != said && trouble.is_outside() {
                        tracing::error!(
                            code = "gateway-outside",
                            trouble = text,
                            "this gateway and the control plane do not believe each other, as when it was away while \
                             internal-authority was rotated: make new keys for it where the control plane's are, `better-compute \
                             keys gateway --keys DIR --out DIR --name HOST`, and start it with them"
                        );
                    } else if text != said {
                        tracing::warn!(
                            trouble = text,
                            "this gateway cannot follow the control plane's keys; where that runs, `better-compute keys status` says \
                             whether this gateway needs new ones"
                        );
                    }
                    said = text;
                }
            }
        }
    }

    /// `kept` is the revision that a restart would find: only that counts as followed.
    async fn look(&mut self, kept: &mut u64) -> Result<(), Trouble> {
        if *kept != self.keys.revision {
            self.keep(kept);
        }
        let (revision, _) = self.authority.follow_keys(*kept, None).await?;
        if revision == self.keys.revision && !self.is_old(self.clock.now()) {
            return Ok(());
        }
        self.renew(*kept).await?;
        self.keep(kept);
        // Whoever rotates waits until it is said.
        self.authority.follow_keys(*kept, None).await?;
        Ok(())
    }

    fn is_old(&self, now: Timestamp) -> bool {
        let half = i64::try_from(SERVING_LIFE.as_secs()).unwrap_or(i64::MAX) / 2;
        let ends = [&self.keys.serving, &self.keys.internal].into_iter().filter_map(TlsIdentity::not_after);
        ends.min().is_none_or(|end| end.as_second() - now.as_second() <= half)
    }

    async fn renew(&mut self, kept: u64) -> Result<(), Trouble> {
        let renewing = self.keys.renewing(&self.realm, self.clock.now())?;
        let (_, issued) = self.authority.follow_keys(kept, Some(&renewing)).await?;
        let issued = issued.ok_or(Trouble::Empty)?;
        let next = self.keys.renewed(&renewing, issued);
        let client = tls::internal_client(&next.internal, &next.internal_authorities(), Arc::clone(&self.clock))?;
        self.serving.replace(&next.serving)?;
        self.authority.use_tls(client);
        self.keys = next;
        tracing::info!(revision = self.keys.revision, "this gateway has its next certificates");
        Ok(())
    }

    fn keep(&self, kept: &mut u64) {
        match self.place.store_gateway(&self.keys) {
            Ok(()) => *kept = self.keys.revision,
            Err(error) => tracing::error!(%error, "the next keys of this gateway are in memory only"),
        }
    }
}
