//! What nodes should trust, kept at hand: the newest bundle, and the steps to it that came since this gateway began.
//!
//! One call to the control plane every few seconds serves all sessions. A node that missed more than is at hand is
//! answered by the control plane itself. When a bundle comes, so do the authorities by which node certificates are judged.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pki::verify::NodeVerifier;
use proto::agent::v1 as pb;
use rustls_pki_types::CertificateDer;
use schema::cause::chain;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{authority::ControlPlane, registry::Registry, session::Input, shared::Shared};

/// More than are ever made while one gateway runs.
const STEPS_KEPT: usize = 64;
/// Later than any bundle: whoever says that they have it is given the newest one, and no steps.
pub(crate) const NO_STEPS: u64 = u32::MAX as u64;

/// The trust bundles of this control plane, as far as this gateway knows.
#[derive(Debug)]
pub(crate) struct Trust {
    verifier: NodeVerifier,
    known: Mutex<Option<Known>>,
}

#[derive(Debug, Clone)]
struct Known {
    version: u64,
    newest: pb::SignedTrustBundle,
    /// By version, each the one after the one before it.
    steps: Vec<(u64, pb::SignedTrustBundle)>,
}

/// What one node is given.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// Of the newest bundle.
    pub(crate) version: u64,
    pub(crate) newest: pb::SignedTrustBundle,
    pub(crate) steps: Vec<pb::SignedTrustBundle>,
}

impl Known {
    /// What leads from `since` to the newest one; `None` when not all of it is at hand.
    fn after(&self, since: u64) -> Option<Vec<pb::SignedTrustBundle>> {
        if since >= self.version {
            return Some(Vec::new());
        }
        let first = self.steps.iter().position(|(version, _)| *version == since + 1)?;
        Some(self.steps[first..].iter().map(|(_, step)| step.clone()).collect())
    }
}

impl Trust {
    pub(crate) const fn new(verifier: NodeVerifier) -> Self {
        Self { verifier, known: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a node with bundle `since` is given when its session opens.
    pub(crate) async fn give(&self, control_plane: &dyn ControlPlane, since: u64) -> Result<Given, Status> {
        let at_hand = self.lock().as_ref().and_then(|known| {
            let steps = known.after(since)?;
            Some(Given { version: known.version, newest: known.newest.clone(), steps })
        });
        if let Some(given) = at_hand {
            return Ok(given);
        }
        let answer = control_plane.trust(since).await?;
        let newest = answer.trust_bundle.ok_or_else(|| Status::internal("the control plane has no trust bundle"))?;
        Ok(Given { version: version(&newest), newest, steps: answer.trust_steps })
    }

    /// Asks every `period`, and when people agreed on something, until it is cancelled, and tells every session what came into force: trust bundles, and the
    /// policies that people agreed on.
    pub(crate) async fn run(&self, shared: &Shared, period: Duration, cancel: CancellationToken) {
        let (control_plane, registry) = (&*shared.control_plane, &*shared.registry);
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = ticks.tick() => {}
                () = shared.policies.news() => {}
            }
            match self.look(shared).await {
                Ok(()) => self.tell(control_plane, registry).await,
                Err(status) => {
                    tracing::warn!(code = ?status.code(), message = status.message(), "trust bundles could not be looked at");
                }
            }
            match shared.policies.look(&shared.db).await {
                Ok(()) => shared.policies.tell(registry),
                Err(error) => tracing::warn!(error = %chain(&error), "trust policies could not be looked at"),
            }
        }
    }

    async fn look(&self, shared: &Shared) -> Result<(), Status> {
        let known = self.lock().as_ref().map(|known| known.version);
        // The steps before this gateway began are the control plane's to give.
        let answer = shared.control_plane.trust(known.unwrap_or(NO_STEPS)).await?;
        shared.policies.begin_with(answer.first_policy);
        let Some(newest) = answer.trust_bundle else { return Ok(()) };
        let version = version(&newest);
        if known.is_some_and(|known| version <= known) {
            return Ok(());
        }
        if !answer.node_authorities.is_empty() {
            let authorities: Vec<CertificateDer<'_>> =
                answer.node_authorities.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
            if let Err(refusal) = self.verifier.replace(&authorities) {
                tracing::error!(%refusal, "the authorities of node certificates are not readable; the old ones stay");
            }
        }
        let mut slot = self.lock();
        let mut steps = slot.take().map(|known| known.steps).unwrap_or_default();
        if known.is_some() {
            steps.extend(answer.trust_steps.into_iter().map(|step| (self::version(&step), step)));
            steps.drain(..steps.len().saturating_sub(STEPS_KEPT));
        }
        *slot = Some(Known { version, newest, steps });
        Ok(())
    }

    async fn tell(&self, control_plane: &dyn ControlPlane, registry: &Registry) {
        let Some(known) = self.lock().clone() else { return };
        for seat in registry.all() {
            let has = seat.trust();
            if has >= known.version {
                continue;
            }
            let steps = match known.after(has) {
                Some(steps) => steps,
                // It opened before this gateway began to look.
                None => match control_plane.trust(has).await {
                    Ok(answer) => answer.trust_steps,
                    // It is asked for again with the next look.
                    Err(_) => return,
                },
            };
            seat.mailbox.put(Input::Trust(steps));
            seat.trusts(known.version);
        }
    }
}

fn version(bundle: &pb::SignedTrustBundle) -> u64 {
    #[derive(Deserialize)]
    struct Head {
        version: u64,
    }
    serde_json::from_slice::<Head>(&bundle.bundle).map_or(0, |head| head.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(version: u64) -> pb::SignedTrustBundle {
        pb::SignedTrustBundle { bundle: format!(r#"{{"version":{version}}}"#).into_bytes(), signature: vec![1] }
    }

    #[test]
    fn a_node_gets_the_steps_that_it_misses_when_all_of_them_are_at_hand() {
        let steps = (5..=7).map(|version| (version, bundle(version))).collect();
        let known = Known { version: 7, newest: bundle(7), steps };
        let versions = |since| known.after(since).map(|steps| steps.iter().map(version).collect::<Vec<_>>());
        assert_eq!(versions(7), Some(vec![]));
        assert_eq!(versions(9), Some(vec![]));
        assert_eq!(versions(5), Some(vec![6, 7]));
        assert_eq!(versions(4), Some(vec![5, 6, 7]));
        assert_eq!(versions(3), None, "the control plane has what came before");
    }
}
