//! Keeps the commits that batches were planned at, with their bytes: a receipt of a batch shows who asked for it.

use std::{sync::atomic::AtomicBool, time::Duration};

use pki::trust::{object::ObjectId, walk::History as _};
use store::{batches, leases::Lease};

use super::{Pass, PassError, batches::At};

/// How long reading them may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// So many are read in one pass.
const AT_ONCE: u32 = 256;

impl Pass {
    /// Keeps those that are not kept yet. One that the repository does not have is looked for again in a later pass.
    pub(super) async fn keep_plans(&self, lease: &Lease, at: At) -> Result<(), PassError> {
        let wanted = batches::plans_to_keep(&self.db, AT_ONCE).await?;
        if wanted.is_empty() {
            return Ok(());
        }
        let (repo, path) = (at.repo.again(), at.path.clone());
        let work = move |_: &AtomicBool| {
            let history = repo.trust_history(&path);
            let mut found = Vec::with_capacity(wanted.len());
            for commit in wanted {
                let Ok(id) = commit.parse::<ObjectId>() else { continue };
                found.extend(history.commit(id)?.map(|raw| (commit, raw)));
            }
            Ok(found)
        };
        match self.blocking(DEADLINE, work).await {
            Ok(found) if !found.is_empty() => {
                let mut txn = self.begin(lease).await?;
                batches::keep_plans(&mut txn, &found).await?;
                txn.commit().await?;
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "commits that batches were planned at were not read"),
        }
        Ok(())
    }
}
