//! What waits outlives a rotation of the checkpoint key.

use pki::keys::RotationKind;
use schema::{
    command::CommandKind,
    id::{BatchId, CommandId},
    time,
};
use serde_json::json;
use store::commands::{self, NewCommand};

use super::*;

/// A command that is held, and a batch, both marked with the key of then.
struct Waiting {
    thief: Thief,
    command: CommandId,
}

impl Waiting {
    async fn new() -> Self {
        let thief = Thief::new().await;
        let now = thief.house.db.now().await.expect("time");
        let new = NewCommand {
            node_id: thief.machine.id,
            kind: CommandKind::NodeReboot,
            payload: json!({}),
            idempotency_key: "held".to_owned(),
            not_after: time::Duration::from_secs(3_600).after(now),
            min_generation: None,
            batch_id: Some(BatchId::generate()),
            secrets: Vec::new(),
            created_by: "test".to_owned(),
        };
        let mut txn = thief.house.db.begin().await.expect("begin");
        let command = commands::enqueue(&mut txn, &new).await.expect("queued").command.id;
        assert!(commands::hold(&mut txn, command).await.expect("held"));
        txn.commit().await.expect("commit");
        thief.put("kernel").await;
        Self { thief, command }
    }

    fn advance(&mut self) {
        let fleet = self.thief.house.shared.realm.fleet_id.clone();
        self.thief.house.keys.advance(RotationKind::Checkpoint, &fleet, jiff::Timestamp::UNIX_EPOCH);
        self.thief.use_keys();
    }

    fn custody(&self) -> &crate::custody::Custody {
        self.thief.house.shared.custody.as_ref().expect("custody")
    }

    async fn before(&self) -> u64 {
        self.custody().signed_before(&self.thief.house.db).await.expect("counted")
    }

    async fn is_put_here(&self) -> bool {
        self.thief.is_put_here().await
    }

    async fn is_queued_here(&self) -> bool {
        let marked = commands::marked(&self.thief.house.db, None, 9).await.expect("read");
        let one = marked.iter().find(|one| one.id == self.command).expect("it waits");
        self.custody().is_queued_here(&one.body, Some(&one.mark))
    }
}

#[tokio::test]
async fn what_waits_is_marked_anew_and_a_rotation_waits_for_that() {
    let mut waiting = Waiting::new().await;
    waiting.advance();
    assert_eq!(waiting.before().await, 0, "the key that is still the present one signs");
    waiting.advance();
    let before = waiting.before().await;
    waiting.thief.house.jobs.tick("command-sweeper").await.expect("a pass");
    assert_eq!(waiting.before().await, before - 2, "the command and the batch");
    waiting.advance();
    assert!(waiting.is_queued_here().await && waiting.is_put_here().await);
    assert_eq!(waiting.before().await, 0, "there is no key before any more");
}

#[tokio::test]
async fn what_nobody_marks_anew_is_over_with_its_key() {
    let mut waiting = Waiting::new().await;
    for _ in 0..3 {
        assert!(waiting.is_queued_here().await && waiting.is_put_here().await);
        waiting.advance();
    }
    assert!(!waiting.is_queued_here().await && !waiting.is_put_here().await);
}
