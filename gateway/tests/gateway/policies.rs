//! What people agreed on, from its rows to the nodes that read it.

use proto::agent::v1::{self as pb, gateway_frame::Frame as Down, node_frame::Frame as Up};
use schema::digest::Digest;
use store::trust::{self, Epoch, NewStatement};

use crate::{node::Session, world::World};

async fn put(world: &World, number: u64) {
    let mut txn = world.db.begin().await.unwrap();
    let epoch = Epoch {
        epoch: number,
        digest: Digest::of(number.to_string()),
        policy: number.to_string().into_bytes(),
        commit: "0".repeat(40),
        statements: vec![vec![7]],
        at: world.clock.now(),
    };
    trust::put_epoch(&mut txn, &epoch).await.unwrap();
    txn.commit().await.unwrap();
}

async fn policies(session: &mut Session) -> pb::Policies {
    loop {
        match session.next().await {
            Some(Down::Policies(policies)) => return policies,
            Some(_) => {}
            None => panic!("the session ended"),
        }
    }
}

#[tokio::test]
async fn policies_and_revocations_reach_nodes_that_read_them_as_they_come() {
    let world = World::new().await;
    let gateway = world.gateway();
    let node = world.node().await;
    let mut session = node.stream(gateway.address).await;
    let capabilities = vec!["commands".to_owned(), "approvals".to_owned()];
    session.say(Up::Hello(pb::Hello { capabilities, policy_epoch: 1, ..node.hello() })).await;
    assert!(matches!(session.next().await, Some(Down::Welcome(_))));

    put(&world, 1).await;
    put(&world, 2).await;
    let told = policies(&mut session).await;
    let said = (told.policies[0].epoch, told.policies[0].document.as_slice(), told.policies[0].statements.len());
    assert_eq!((told.policies.len(), said), (1, (2, &b"2"[..], 1)), "it has the first one");

    let mut txn = world.db.begin().await.unwrap();
    let revocation = NewStatement {
        digest: Digest::of("revoke"),
        key: "another key".to_owned(),
        kind: "revoke/v1".to_owned(),
        subject: "a key".to_owned(),
        principal: "ada".to_owned(),
        commit: "1".repeat(40),
        raw: b"revoked".to_vec(),
    };
    trust::put_statements(&mut txn, std::slice::from_ref(&revocation)).await.unwrap();
    trust::keep_revocations(&mut txn, &[(revocation.digest, revocation.key, 2)]).await.unwrap();
    txn.commit().await.unwrap();
    while policies(&mut session).await.revocations != [b"revoked".to_vec()] {}

    // A node of an earlier version is told nothing of it.
    let old = world.node().await;
    let (mut plain, _) = old.open(gateway.address).await;
    plain.say(Up::Heartbeat(pb::Heartbeat { sequence: 1 })).await;
    while let Some(frame) = plain.next().await {
        assert!(!matches!(frame, Down::Policies(_)), "{frame:?}");
        if matches!(frame, Down::HeartbeatAck(_)) {
            break;
        }
    }
    gateway.stop().await;
}
