//! What a pass writes about the source itself, each fenced by the lease.

use std::time::{Duration, Instant};

use store::{
    Txn,
    leases::{self, Lease},
    sources::{self, Source, Stage},
};

use super::{Pass, PassError, Passed};
use crate::source::{SourceState, Trouble, git::chain};

impl Pass {
    pub(super) async fn begin(&self, lease: &Lease) -> Result<Txn, PassError> {
        let mut txn = self.db.begin().await?;
        leases::fence(&mut txn, self.worker, lease).await?;
        Ok(txn)
    }

    /// Stores that a pass failed, for whoever looks; the next one that does not clears it.
    pub(super) async fn failed(&self, lease: &Lease, error: &PassError) -> Result<(), PassError> {
        let mut txn = self.begin(lease).await?;
        let reason = chain(error);
        sources::set_state(&mut txn, &self.name, SourceState::ApplyFailed.as_str(), Some(&reason), None).await?;
        txn.commit().await?;
        Ok(())
    }

    /// The row of the source, pointing where the configuration points.
    pub(super) async fn ensure(&self, lease: &Lease) -> Result<Source, PassError> {
        let url = self.config.url();
        let path = self.config.path.as_str();
        let stored = sources::find(&self.db, &self.name).await?;
        let pinned = stored.as_ref().filter(|stored| stored.url == url).map(|stored| stored.branch.clone());
        let branch = self.config.branch.clone().or(pinned).unwrap_or_default();
        match stored {
            Some(stored) if stored.url == url && stored.path == path && stored.branch == branch => Ok(stored),
            _ => {
                let mut txn = self.begin(lease).await?;
                let source = sources::ensure(&mut txn, &self.name, &url, &branch, path).await?;
                txn.commit().await?;
                Ok(source)
            }
        }
    }

    pub(super) async fn saw(&self, lease: &Lease, source: &Source, branch: &str, tip: &str) -> Result<(), PassError> {
        let before = source.remote.as_ref().map(|at| at.commit.as_str());
        if before == Some(tip) && source.branch == branch {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        sources::set_branch(&mut txn, &self.name, branch).await?;
        sources::advance(&mut txn, &self.name, Stage::Remote, before, tip).await?;
        txn.commit().await?;
        Ok(())
    }

    pub(super) async fn advance(
        &self,
        lease: &Lease,
        stage: Stage,
        expected: Option<&str>,
        commit: &str,
    ) -> Result<(), PassError> {
        if expected == Some(commit) {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        sources::advance(&mut txn, &self.name, stage, expected, commit).await?;
        txn.commit().await?;
        Ok(())
    }

    /// Everything is in force: says so when something else is stored, with what is worth knowing about it.
    pub(super) async fn settle(&self, lease: &Lease, said: Option<&str>) -> Result<(), PassError> {
        let mut txn = self.begin(lease).await?;
        sources::follow(&mut txn, &self.name).await?;
        sources::set_state(&mut txn, &self.name, SourceState::Ok.as_str(), said, None).await?;
        txn.commit().await?;
        Ok(())
    }

    /// Stores why the tip does not come into force. Nothing else changes.
    pub(super) async fn hold(
        &mut self,
        lease: &Lease,
        source: &Source,
        tip: Option<&str>,
        trouble: Trouble,
    ) -> Result<Passed, PassError> {
        let same = source.state == trouble.state.as_str() && source.reason.as_deref() == Some(trouble.reason.as_str());
        if !(same && source.detail == trouble.detail) {
            tracing::warn!(source = %self.name, state = %trouble.state, reason = %trouble.reason, commit = tip, "the source is held; the last good revision stays in force");
            let mut txn = self.begin(lease).await?;
            sources::set_state(
                &mut txn,
                &self.name,
                trouble.state.as_str(),
                Some(&trouble.reason),
                trouble.detail.as_ref(),
            )
            .await?;
            txn.commit().await?;
        } else if !matches!(trouble.state, SourceState::Unreachable | SourceState::AuthFailed) {
            self.touch(lease).await?;
        }
        Ok(Passed::Held(trouble))
    }

    /// Notes now and then that the remote was looked at, so that an idle source writes next to nothing.
    pub(super) async fn touch(&mut self, lease: &Lease) -> Result<(), PassError> {
        if self.touched.is_some_and(|touched| touched.elapsed() < Duration::from_secs(60)) {
            return Ok(());
        }
        let mut txn = self.begin(lease).await?;
        sources::touch_checked(&mut txn, &self.name).await?;
        txn.commit().await?;
        self.touched = Some(Instant::now());
        Ok(())
    }
}
