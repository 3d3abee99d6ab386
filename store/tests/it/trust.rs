//! Facts about stored policies and checkpoints of the verified history.

use schema::{digest::Digest, time::Timestamp};
use store::{
    Db,
    testing::{TestDb, steal},
    trust::{self, Checkpoint, CheckpointError, Epoch},
};

use super::commit;

fn epoch(number: u64, policy: &str) -> Epoch {
    Epoch {
        epoch: number,
        digest: Digest::of(policy),
        policy: policy.as_bytes().to_vec(),
        commit: format!("commit of {policy}"),
        statements: vec![policy.as_bytes().to_vec()],
        at: Timestamp::UNIX_EPOCH,
    }
}

async fn put(db: &Db, epoch: &Epoch) {
    commit!(db, |txn| trust::put_epoch(&mut txn, epoch).await.expect("put"));
}

async fn stored(db: &Db, after: u64) -> Vec<Epoch> {
    let epochs = trust::epochs_after(db, after).await.expect("read");
    epochs.into_iter().map(|epoch| Epoch { at: Timestamp::UNIX_EPOCH, ..epoch }).collect()
}

#[tokio::test]
async fn policies_come_in_order_and_a_damaged_one_ends_them() {
    let test = TestDb::create().await;
    let db = test.db();
    let all = [epoch(1, "one"), epoch(2, "two"), epoch(3, "three")];
    for one in all.iter().rev() {
        put(db, one).await;
    }
    assert_eq!(stored(db, 0).await, all);
    assert_eq!(stored(db, 2).await, all[2..]);
    steal(db, "UPDATE trust_epochs SET digest = 'none' WHERE epoch = 2").await.expect("changed");
    assert_eq!(stored(db, 0).await, all[..1]);
    put(db, &all[1]).await;
    assert_eq!(stored(db, 0).await, all, "what was verified goes before what is there");
}

#[tokio::test]
async fn a_policy_that_is_there_keeps_when_it_came() {
    let test = TestDb::create().await;
    let db = test.db();
    put(db, &epoch(1, "one")).await;
    let before = trust::epochs(db).await.expect("read");
    put(db, &epoch(1, "one")).await;
    assert_eq!(trust::epochs(db).await.expect("read"), before);
}

fn checkpoint(seq: u64) -> Checkpoint {
    Checkpoint {
        commit: format!("commit {seq}"),
        epoch: 1,
        seq,
        body: seq.to_be_bytes().to_vec(),
        signature: b"s".to_vec(),
    }
}

async fn go_on(db: &Db, source: &str, expected: Option<u64>, to: u64) -> Result<(), CheckpointError> {
    let mut txn = db.begin().await.expect("begin");
    trust::put_checkpoint(&mut txn, source, expected, &checkpoint(to)).await?;
    txn.commit().await.expect("commit");
    Ok(())
}

#[tokio::test]
async fn whoever_did_not_see_the_last_checkpoint_writes_none() {
    let test = TestDb::create().await;
    let db = test.db();
    go_on(db, "fleet", None, 1).await.expect("the first");
    go_on(db, "fleet", Some(1), 2).await.expect("the next");
    for (expected, to) in [(None, 3), (Some(1), 3), (Some(3), 4)] {
        let refused = go_on(db, "fleet", expected, to).await.expect_err("somebody was faster");
        assert!(matches!(refused, CheckpointError::Moved { found: Some(2), .. }), "{refused}");
    }
    let refused = go_on(db, "other", Some(1), 2).await.expect_err("there is none");
    assert!(matches!(refused, CheckpointError::Moved { found: None, .. }), "{refused}");
    assert_eq!(trust::checkpoint(db, "fleet").await.expect("read"), Some(checkpoint(2)));
    assert_eq!(trust::checkpoint(db, "other").await.expect("read"), None);
}
