//! API tokens, repeated mutations, the audit log, the control plane's row.

use schema::{digest::Digest, id::ApiTokenId, time::Duration};
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};
use store::{
    Db,
    api_tokens::{self, NewApiToken},
    audit,
    control_plane::{self, TrustDomainError},
    idempotency::{self, Begin},
    testing::TestDb,
};

use crate::commit;

#[tokio::test]
async fn a_token_works_until_it_is_revoked_or_expires() {
    let test = TestDb::create().await;
    let soon = Duration::from_secs(60).after(test.db().now().await.expect("now"));
    let new = |expires_at| NewApiToken {
        id: ApiTokenId::generate(),
        hash: Digest::of("s"),
        name: "ci".to_owned(),
        scopes: vec!["nodes:read".to_owned()],
        expires_at,
        created_by: "ada".to_owned(),
    };
    let (forever, brief) = (new(None), new(Some(soon)));
    for token in [&forever, &brief] {
        commit!(test.db(), |txn| api_tokens::create(&mut txn, token).await.expect("create"));
    }
    let valid = async |id| api_tokens::find_valid(test.db(), id).await.expect("find");
    assert_eq!(valid(forever.id).await.map(|token| token.token), Some(forever.clone()));
    assert!(valid(brief.id).await.is_some());
    test.advance(std::time::Duration::from_secs(61)).await;
    assert!(valid(brief.id).await.is_none());
    assert!(commit!(test.db(), |txn| api_tokens::revoke(&mut txn, forever.id).await.expect("revoke")));
    assert!(valid(forever.id).await.is_none());
    assert_eq!(api_tokens::list(test.db()).await.expect("list").items.len(), 2);
}

#[tokio::test]
async fn the_last_use_is_noted_once_a_minute() {
    let test = TestDb::create().await;
    let id = ApiTokenId::generate();
    let token = NewApiToken {
        id,
        hash: Digest::of("s"),
        name: String::new(),
        scopes: vec![],
        expires_at: None,
        created_by: "ada".to_owned(),
    };
    commit!(test.db(), |txn| api_tokens::create(&mut txn, &token).await.expect("create"));
    let used = async || {
        api_tokens::touch(test.db(), id).await.expect("touch");
        api_tokens::find_valid(test.db(), id).await.expect("find").and_then(|token| token.last_used_at).expect("a time")
    };
    let first = used().await;
    assert_eq!(used().await, first);
    test.advance(std::time::Duration::from_secs(61)).await;
    assert!(used().await > first);
}

async fn begin(db: &Db, who: &str, method: &str, request: &str) -> Begin {
    let mut txn = db.begin().await.expect("begin");
    let begun = idempotency::begin(&mut txn, who, "key", method, &Digest::of(request)).await.expect("begin");
    if begun == Begin::New {
        idempotency::finish(&mut txn, who, "key", "{\"done\":1}").await.expect("finish");
    }
    txn.commit().await.expect("commit");
    begun
}

#[tokio::test]
async fn a_repeat_replays_and_another_request_under_the_key_conflicts() {
    let test = TestDb::create().await;
    assert_eq!(begin(test.db(), "ada", "nodes.cordon", "r").await, Begin::New);
    assert_eq!(begin(test.db(), "ada", "nodes.cordon", "r").await, Begin::Replay("{\"done\":1}".to_owned()));
    assert_eq!(begin(test.db(), "ada", "nodes.cordon", "other").await, Begin::Conflict);
    assert_eq!(begin(test.db(), "ada", "nodes.uncordon", "r").await, Begin::Conflict);
    assert_eq!(begin(test.db(), "bob", "nodes.cordon", "other").await, Begin::New, "keys belong to an identity");
    test.advance(std::time::Duration::from_secs(86_401)).await;
    assert_eq!(idempotency::prune(test.db()).await.expect("prune"), 2);
}

#[tokio::test]
async fn a_mutation_that_was_not_committed_claims_no_key() {
    let test = TestDb::create().await;
    let mut txn = test.db().begin().await.expect("begin");
    idempotency::begin(&mut txn, "ada", "key", "m", &Digest::of("r")).await.expect("begin");
    drop(txn);
    assert_eq!(begin(test.db(), "ada", "m", "r").await, Begin::New);
}

#[tokio::test]
async fn the_audit_log_only_grows() {
    let test = TestDb::create().await;
    for subject in ["node_a", "node_b", "node_a"] {
        commit!(test.db(), |txn| audit::append(&mut txn, "ada", "nodes.cordon", subject, &json!({"reason": "fan"}))
            .await
            .expect("append"));
    }
    let all = audit::list(test.db(), None, None, 10).await.expect("list");
    assert_eq!(all.len(), 3);
    assert!(all[0].seq > all[1].seq);
    assert_eq!(audit::list(test.db(), Some("node_a"), Some(all[0].seq), 10).await.expect("list").len(), 1);
    let mut conn = PgConnection::connect(&test.config().url()).await.expect("a connection");
    for statement in ["UPDATE audit SET actor = 'eve'", "DELETE FROM audit", "TRUNCATE audit CASCADE"] {
        let refused = conn.execute(statement).await.expect_err(statement);
        assert!(refused.to_string().contains("append only"), "{refused}");
    }
}

#[tokio::test]
async fn what_the_control_plane_is_was_decided_at_its_creation() {
    let test = TestDb::create().await;
    assert_eq!(control_plane::find(test.db()).await.expect("find"), None);
    let first = commit!(test.db(), |txn| control_plane::ensure(&mut txn, true, None).await.expect("ensure"));
    let second = commit!(test.db(), |txn| control_plane::ensure(&mut txn, false, Some("other")).await.expect("ensure"));
    assert_eq!(first, second);
    assert!(second.dev);
    let set = async |domain| {
        let mut txn = test.db().begin().await.expect("begin");
        let done = control_plane::set_trust_domain(&mut txn, domain).await;
        txn.commit().await.expect("commit");
        done
    };
    set("bc.local").await.expect("the first");
    set("bc.local").await.expect("the same");
    assert!(matches!(set("else").await, Err(TrustDomainError::Differs { .. })));
    let stored = control_plane::find(test.db()).await.expect("find").expect("a row");
    assert_eq!((stored.fleet_id, stored.trust_domain.as_deref()), (first.fleet_id, Some("bc.local")));
}
