//! Tokens, their uses, attempts to join, certificates.

use schema::{
    attested::{AttestKind, Attested},
    digest::Digest,
    generation::IdentityGeneration,
    id::{JoinTokenId, NodeId},
    time::Duration,
};
use serde_json::json;
use store::{
    Db,
    attestations::{self, RecordError},
    identities,
    join_tokens::{self, ConsumeError, NewJoinToken},
    joins::{self, JoinKind, JoinState, NewJoin},
    node_certs::{self, NodeCert},
    nodes,
    testing::TestDb,
};

use crate::{commit, name, new_node, node};

#[tokio::test]
async fn nobody_waits_for_a_node_whose_identity_was_revoked() {
    let test = TestDb::create().await;
    let (kept, gone) = (node(test.db(), "kept").await, node(test.db(), "gone").await);
    let behind = async || identities::progress(test.db(), 2, None).await.expect("read").behind.names;
    assert_eq!(behind().await, ["gone", "kept"]);
    commit!(test.db(), |txn| identities::revoke(&mut txn, gone.id, "stolen").await.expect("revoked"));
    assert_eq!(behind().await, ["kept"]);
    commit!(test.db(), |txn| identities::set_trust_version(&mut txn, kept.id, 2).await.expect("said"));
    assert!(behind().await.is_empty());
}

#[tokio::test]
async fn what_a_node_was_attested_as_is_forgotten_by_kind_or_as_a_whole() {
    let test = TestDb::create().await;
    let node = node(test.db(), "one").await.id;
    let [tpm, aws] = [Digest::of("key").to_string(), "123456789012/i-0abc".to_owned()]
        .into_iter()
        .zip(["tpm", "aws"])
        .map(|(subject, kind)| format!("{kind}:{subject}").parse().expect("an identity"))
        .collect::<Vec<Attested>>()
        .try_into()
        .expect("two");
    for attested in [&tpm, &aws] {
        commit!(test.db(), |txn| attestations::record(&mut txn, attested, node).await.expect("recorded"));
    }
    commit!(test.db(), |txn| attestations::forget(&mut txn, node, Some(AttestKind::Tpm)).await.expect("forgotten"));
    assert_eq!(attestations::of_node(test.db(), node).await.expect("read"), [aws]);
    commit!(test.db(), |txn| attestations::forget(&mut txn, node, None).await.expect("forgotten"));
    assert!(attestations::of_node(test.db(), node).await.expect("read").is_empty());
}

async fn token(db: &Db, uses: u32) -> JoinTokenId {
    let new = NewJoinToken {
        id: JoinTokenId::generate(),
        hash: Digest::of("secret"),
        pool: name("h100"),
        uses,
        expires_at: Duration::from_secs(3_600).after(db.now().await.expect("now")),
        expect: json!({}),
        reclaim: false,
        kinds: None,
        created_by: "ada".to_owned(),
    };
    commit!(db, |txn| join_tokens::create(&mut txn, &new).await.expect("create"));
    new.id
}

/// Inserts a node and consumes the token for it, together or not at all.
async fn join(db: &Db, token: JoinTokenId, csr: &str) -> Result<NodeId, ConsumeError> {
    let new = new_node(&format!("n-{csr}"));
    let mut txn = db.begin().await?;
    nodes::insert(&mut txn, &new).await.expect("a node");
    join_tokens::consume(&mut txn, token, &Digest::of(csr), new.id, csr.as_bytes()).await?;
    txn.commit().await?;
    Ok(new.id)
}

#[tokio::test]
async fn a_token_admits_as_often_as_it_says_and_then_no_more() {
    let test = TestDb::create().await;
    let id = token(test.db(), 2).await;
    let first = join(test.db(), id, "a").await.expect("the first");
    join(test.db(), id, "b").await.expect("the second");
    assert!(matches!(join(test.db(), id, "c").await, Err(ConsumeError::Exhausted)));
    assert!(nodes::find_by_name(test.db(), "n-c").await.expect("find").is_none(), "nothing of a refused join stays");
    let used = join_tokens::find_use(test.db(), &Digest::of("a")).await.expect("find").expect("an answer");
    assert_eq!((used.token_id.expect("a token"), used.node_id, used.answer.as_slice()), (id, first, b"a".as_slice()));
    assert_eq!(join_tokens::find(test.db(), id).await.expect("find").map(|token| token.uses_left), Some(0));
}

#[tokio::test]
async fn one_certificate_request_uses_one_use() {
    let test = TestDb::create().await;
    let id = token(test.db(), 5).await;
    join(test.db(), id, "a").await.expect("the first");
    let other = node(test.db(), "other").await.id;
    let mut txn = test.db().begin().await.expect("begin");
    assert!(matches!(
        join_tokens::consume(&mut txn, id, &Digest::of("a"), other, b"x").await,
        Err(ConsumeError::Answered)
    ));
    drop(txn);
    assert_eq!(join_tokens::find(test.db(), id).await.expect("find").map(|token| token.uses_left), Some(4));
}

#[tokio::test]
async fn a_token_that_is_unknown_revoked_or_expired_says_so() {
    let test = TestDb::create().await;
    let (revoked, expired) = (token(test.db(), 1).await, token(test.db(), 1).await);
    assert!(commit!(test.db(), |txn| join_tokens::revoke(&mut txn, revoked).await.expect("revoke")));
    assert!(!commit!(test.db(), |txn| join_tokens::revoke(&mut txn, revoked).await.expect("revoke")));
    assert!(matches!(join(test.db(), revoked, "a").await, Err(ConsumeError::Revoked)));
    assert!(matches!(join(test.db(), JoinTokenId::generate(), "b").await, Err(ConsumeError::Unknown)));
    test.advance(std::time::Duration::from_secs(3_600)).await;
    assert!(matches!(join(test.db(), expired, "c").await, Err(ConsumeError::Expired)));
    let ids: Vec<JoinTokenId> =
        join_tokens::list(test.db()).await.expect("list").items.into_iter().map(|token| token.token.id).collect();
    assert_eq!(ids, [expired, revoked]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_machines_share_the_uses_of_a_token() {
    let test = TestDb::create().await;
    let id = token(test.db(), 3).await;
    let mut racers = tokio::task::JoinSet::new();
    for n in 0..8 {
        let db = test.db().clone();
        racers.spawn(async move { join(&db, id, &format!("{n}")).await.is_ok() });
    }
    assert_eq!(racers.join_all().await.into_iter().filter(|joined| *joined).count(), 3);
}

#[tokio::test]
async fn an_attempt_is_one_row_however_often_it_comes() {
    let test = TestDb::create().await;
    let other = node(test.db(), "other").await.id;
    let held = NewJoin {
        kind: JoinKind::Join,
        state: JoinState::Held,
        reason: "duplicate-hardware".to_owned(),
        message: "it looks like other".to_owned(),
        pool: Some("h100".to_owned()),
        token_id: None,
        attested: vec!["aws:123456789012/i-0abc".parse().unwrap()],
        csr_hash: Digest::of("csr"),
        hardware_key: Some(Digest::of("hw")),
        claims: json!({"serial": "x"}),
        node_id: None,
        conflict_with: Some(other),
        peer: Some("10.0.0.1:1".to_owned()),
    };
    let put = async |join: &NewJoin| commit!(test.db(), |txn| joins::upsert(&mut txn, join).await.expect("upsert"));
    let id = put(&held).await;
    assert_eq!(put(&held).await, id);
    let stored = joins::find(test.db(), id).await.expect("find").expect("a join");
    assert_eq!((stored.attempts, &stored.join), (2, &held));
    assert_eq!(joins::find_by_csr(test.db(), &held.csr_hash).await.expect("find"), Some(stored.clone()));

    assert_eq!(put(&NewJoin { state: JoinState::Admitted, ..held.clone() }).await, id);
    assert_eq!(put(&held).await, id);
    let admitted = joins::list(test.db(), Some(JoinState::Admitted), 10).await.expect("list").items;
    assert_eq!(admitted.iter().map(|join| join.id).collect::<Vec<_>>(), [id], "an admitted machine stays admitted");
    assert!(joins::list(test.db(), Some(JoinState::Held), 10).await.expect("list").items.is_empty());
    assert_eq!(joins::list(test.db(), None, 10).await.expect("list").items.len(), 1);
}

#[tokio::test]
async fn only_keys_of_the_present_identity_count() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let now = test.db().now().await.expect("now");
    let cert = |serial: u8, key: u8, days: u64, generation: u64| NodeCert {
        serial: vec![serial],
        node_id: id,
        public_key: vec![key],
        identity_generation: IdentityGeneration(generation),
        not_before: now,
        not_after: Duration::from_secs(days * 86_400).after(now),
        revoked_at: None,
        allowed_kinds: None,
        node_name: None,
    };
    // The identity that the machine came with is over.
    commit!(test.db(), |txn| nodes::bump_identity(&mut txn, id).await.expect("bump"));
    for one in [cert(1, 10, 1, 2), cert(2, 11, 2, 2), cert(3, 11, 3, 2), cert(4, 12, 4, 3)] {
        commit!(test.db(), |txn| node_certs::insert(&mut txn, &one).await.expect("insert"));
    }
    let keys = async || node_certs::keys(test.db(), id).await.expect("keys");
    assert_eq!(keys().await, [[11], [10]]);
    test.advance(std::time::Duration::from_secs(32 * 86_400 + 3_600)).await;
    assert_eq!(keys().await, [[11]], "a key that expired more than 31 days ago is out");
    commit!(test.db(), |txn| nodes::bump_identity(&mut txn, id).await.expect("bump"));
    assert_eq!(keys().await, [[12]]);
    assert_eq!(commit!(test.db(), |txn| node_certs::revoke_all(&mut txn, id, "stolen").await.expect("revoke")), 5);
    assert!(keys().await.is_empty());
    assert!(node_certs::find(test.db(), &[4]).await.expect("find").is_some_and(|cert| cert.revoked_at.is_some()));
    test.advance(std::time::Duration::from_secs(100 * 86_400)).await;
    assert_eq!(node_certs::prune(test.db()).await.expect("prune"), 4);
}

#[tokio::test]
async fn a_proven_identity_is_one_nodes_until_that_node_is_gone() {
    let test = TestDb::create().await;
    let (one, two) = (node(test.db(), "one").await.id, node(test.db(), "two").await.id);
    let attested = "aws:123456789012/i-0abc".parse().expect("an identity");
    let record = async |node: NodeId| {
        let mut txn = test.db().begin().await.expect("begin");
        let recorded = attestations::record(&mut txn, &attested, node).await;
        txn.commit().await.expect("commit");
        recorded
    };
    assert_eq!(attestations::node_of(test.db(), &attested).await.expect("read"), None);
    record(one).await.expect("the first");
    record(one).await.expect("the same again");
    assert!(matches!(record(two).await, Err(RecordError::Elsewhere)));
    assert_eq!(attestations::node_of(test.db(), &attested).await.expect("read"), Some(one));
    assert_eq!(attestations::of_node(test.db(), one).await.expect("read"), std::slice::from_ref(&attested));
    assert!(attestations::of_node(test.db(), two).await.expect("read").is_empty());
    commit!(test.db(), |txn| nodes::delete(&mut txn, one).await.expect("gone"));
    record(two).await.expect("it is free");
}

#[tokio::test]
async fn an_answer_without_a_token_is_given_once() {
    let test = TestDb::create().await;
    let id = node(test.db(), "one").await.id;
    let csr = Digest::of("csr");
    let put = async |answer: &'static [u8]| {
        commit!(test.db(), |txn| join_tokens::answer(&mut txn, &csr, id, answer).await.expect("stored"))
    };
    assert!(put(b"a").await);
    assert!(!put(b"b").await);
    let used = join_tokens::find_use(test.db(), &csr).await.expect("read").expect("an answer");
    assert_eq!((used.token_id, used.node_id, used.answer.as_slice()), (None, id, b"a".as_slice()));
}
