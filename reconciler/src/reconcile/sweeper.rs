//! `command-sweeper`: ends commands that are past their time, every five seconds, in one process. Key: `all`.
//!
//! What waited past its deadline is expired. What is in flight past its deadline and its kind's timeout is failed: whatever
//! becomes of it on the machine, nobody waits for it any more. What waits is marked anew while the key of its mark is replaced.

use std::time::Duration;

use async_trait::async_trait;
use store::{
    commands,
    queue::{self, Kind},
};

use super::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy};

/// The reconciler.
#[derive(Debug)]
pub struct CommandSweeper;

const AT_ONCE: u32 = 1_000;

#[async_trait]
impl Reconciler for CommandSweeper {
    fn kind(&self) -> &'static Kind {
        &queue::COMMAND_SWEEPER
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::None
    }

    fn periodic(&self) -> &'static [Periodic] {
        // After PostgreSQL was away gateways first put down what their nodes said meanwhile.
        const { &[Periodic { key: "all", every: Duration::from_secs(5), settle: Duration::from_secs(10) }] }
    }

    async fn run(&self, context: &Context, _key: &str) -> Result<Outcome, Failure> {
        while commands::is_sweep_due(context.db()).await? {
            let mut txn = context.begin().await?;
            let swept = commands::sweep(&mut txn, AT_ONCE).await?;
            txn.commit().await?;
            tracing::info!(
                expired = swept.expired,
                timed_out = swept.timed_out,
                cancelled = swept.cancelled,
                "commands are past their time"
            );
            if !swept.more {
                break;
            }
        }
        context.custody().mark_anew(context.db()).await?;
        Ok(Outcome::done())
    }
}
