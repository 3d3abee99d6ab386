//! `housekeeping`: forgets what nobody can ask for any more. Key: `all`.

use std::time::Duration;

use async_trait::async_trait;
use store::{commands, idempotency, joins, node_certs, outbox, plans, pools, queue::Kind, suspensions};

use super::{Context, Failure, Outcome, Periodic, Reconciler, ShardBy};

/// The reconciler.
#[derive(Debug)]
pub struct Housekeeping;

const KIND: Kind = Kind::singleton("housekeeping");

#[async_trait]
impl Reconciler for Housekeeping {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn shard_by(&self) -> ShardBy {
        ShardBy::None
    }

    fn periodic(&self) -> &'static [Periodic] {
        const { &[Periodic { key: "all", every: Duration::from_secs(3_600), settle: Duration::ZERO }] }
    }

    async fn run(&self, context: &Context, _key: &str) -> Result<Outcome, Failure> {
        let answers = idempotency::prune(context.db()).await?;
        let certificates = node_certs::prune(context.db()).await?;
        let plans = plans::prune(context.db()).await?;
        let joins = joins::prune(context.db()).await?;
        let targets = pools::prune_targets(context.db()).await?;
        let suspensions = suspensions::prune(context.db()).await?;
        let commands = commands::prune(context.db()).await?;
        let events = outbox::prune(context.db()).await?;
        if answers + certificates + plans + joins + targets + suspensions + commands + events > 0 {
            tracing::debug!(
                answers,
                certificates,
                plans,
                joins,
                targets,
                suspensions,
                commands,
                events,
                "forgot what is over"
            );
        }
        Ok(Outcome::done())
    }
}
