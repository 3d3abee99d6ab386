//! Machines that come in.

use schema::node::{HoldSource, ProvisionState, Role};
use store::{audit, node_certs, node_holds, nodes, queue};

use super::*;

#[tokio::test]
async fn a_machine_with_a_token_becomes_an_adopting_node() {
    let house = House::new().await;
    let (machine, token) = (Machine::new("SERIAL0001"), house.token(1).await);
    let request = machine.request(&house, &token);
    let answer = house.join(&request).await.expect("joins");

    let identity = house.identity(&request, &answer);
    let short = machine.claims.hardware_key().short().expect("a key");
    assert_eq!(identity.node_name, format!("h100-{short}"));
    let node = nodes::get(&house.db, identity.node_id).await.expect("a row");
    assert_eq!((node.provision, node.role, node.declared), (ProvisionState::Adopting, Role::Host, false));
    assert_eq!(node.pool, Some(name("h100")));

    let chain: Vec<_> = answer.certificate_chain.iter().map(|der| der.as_slice().into()).collect();
    let now = house.db.now().await.expect("time");
    let peer = house.keys.node_verifier().identify(&chain, Validity::At(now)).expect("our certificate");
    assert_eq!((peer.node_id, &peer.public_key), (identity.node_id, &machine.key.public()));
    let row = node_certs::find(&house.db, &peer.serial.to_bytes()).await.expect("read").expect("recorded");
    assert_eq!((row.node_id, row.public_key.as_slice()), (identity.node_id, peer.public_key.as_bytes()));

    assert_eq!(house.stored(&request).await, Some((JoinState::Admitted, "admitted".to_owned())));
    let line = audit::list(&house.db, Some(&identity.node_id.to_string()), None, 10).await.expect("audit").remove(0);
    assert_eq!(line.action, "nodes.join");
    let depth = queue::depth(&house.db).await.expect("queue");
    assert_eq!(depth, [("node".to_owned(), 1), ("nodespec".to_owned(), 1)]);
}

#[tokio::test]
async fn the_same_request_gets_the_same_answer() {
    let house = House::new().await;
    let (machine, token) = (Machine::new("SERIAL0001"), house.token(1).await);
    let request = machine.request(&house, &token);
    let first = house.join(&request).await.expect("joins");
    // Sealed anew, as a daemon does that was restarted.
    let again = machine.request(&house, &token);
    assert_ne!(request.token, again.token);
    assert_eq!(house.join(&again).await.expect("answered"), first);
}

#[tokio::test]
async fn the_same_request_many_times_at_once_makes_one_node() {
    let house = House::new().await;
    let (machine, token) = (Machine::new("SERIAL0001"), house.token(8).await);
    let request = machine.request(&house, &token);
    let answers = futures_util::future::join_all((0..8).map(|_| house.join(&request))).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("answered")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert_eq!(nodes::of_pool(&house.db, &["h100".parse().expect("a name")]).await.expect("read").items.len(), 1);
}

#[tokio::test]
async fn many_machines_with_a_token_for_one_make_one_node() {
    let house = House::new().await;
    let token = house.token(1).await;
    let requests: Vec<_> = (0..12).map(|n| Machine::new(&format!("SERIAL{n:04}")).request(&house, &token)).collect();
    let answers = futures_util::future::join_all(requests.iter().map(|request| house.join(request))).await;
    let (good, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(good.len(), 1);
    for status in refused {
        assert_eq!(code(&status.expect_err("refused")), (Code::PermissionDenied, "token-used".to_owned()));
    }
    assert_eq!(nodes::of_pool(&house.db, &["h100".parse().expect("a name")]).await.expect("read").items.len(), 1);
}

#[tokio::test]
async fn a_document_names_labels_and_cordons_its_machine() {
    let house = House::new().await;
    let document = json!({
        "kind": "node", "name": "fra1-r12", "pool": "h100", "serial": "serial0001", "labels": {"rack": "r12"},
        "cordon": {"reason": "burn-in", "owner": "ada"},
    });
    house.apply(&[(Kind::Node, document)]).await;
    let request = Machine::new("SERIAL0001").request(&house, &house.token(1).await);
    let answer = house.join(&request).await.expect("joins");
    let node = nodes::get(&house.db, house.identity(&request, &answer).node_id).await.expect("a row");
    assert_eq!((node.name, node.pool, node.declared), (name("fra1-r12"), Some(name("h100")), true));
    assert_eq!(node.labels.get("rack").map(String::as_str), Some("r12"));
    assert!(node.cordoned);
    let holds = node_holds::list(&house.db, node.id).await.expect("holds").items;
    assert_eq!(holds[0].hold.source, HoldSource::Git);
    assert_eq!(holds[0].hold.place.as_deref(), Some("nodes/fra1.kdl:7"));
}

/// Serial numbers are on stickers: who has a token for one pool is no machine of another for that.
#[tokio::test]
async fn a_token_takes_no_machine_of_another_pool_unless_it_expects_it() {
    let house = House::new().await;
    let document = json!({"kind": "node", "name": "fra1-r12", "pool": "h100", "serial": "serial0001"});
    house.apply(&[(Kind::Node, document)]).await;
    let machine = Machine::new("SERIAL0001");
    let foreign = house.token_for("lab", 1).await;
    let status = house.join(&machine.request(&house, &foreign)).await.expect_err("held");
    assert_eq!(code(&status), (Code::FailedPrecondition, "token-for-another-pool".to_owned()));
    let expecting = house.token_with("lab", 1, &json!({"name": ["fra1-r12"]}), false).await;
    let request = machine.request(&house, &expecting);
    let answer = house.join(&request).await.expect("joins");
    assert_eq!(house.identity(&request, &answer).pool.as_deref(), Some("h100"));
}

/// Anybody may knock: what every machine is compared with is read once for each revision, and not once for each call.
#[tokio::test]
async fn the_documents_of_a_revision_are_read_once() {
    let house = House::new().await;
    let document = |number: u8| {
        let (name, serial) = (format!("fra1-r{number}"), format!("SERIAL000{number}"));
        (Kind::Node, json!({"kind": "node", "name": name, "pool": "h100", "serial": serial}))
    };
    house.apply(&[document(1), document(2), document(3)]).await;
    let name_of = async |number: u8| {
        let request = Machine::new(&format!("SERIAL000{number}")).request(&house, &house.token(1).await);
        let answer = house.join(&request).await.expect("joins");
        house.identity(&request, &answer).node_name
    };
    assert_eq!(name_of(1).await, "fra1-r1");
    store::testing::steal(&house.db, "UPDATE documents SET doc = '{}'").await.expect("written");
    assert_eq!(name_of(2).await, "fra1-r2");
    house.apply(&[]).await;
    assert_ne!(name_of(3).await, "fra1-r3", "another revision is read anew");
}

#[tokio::test]
async fn an_admission_that_another_version_wrote_lets_nobody_in_by_being_misunderstood() {
    let house = House::new().await;
    let word = "vouched";
    let fleet = json!({"kind": "fleet", "name": "lab", "format": 1, "trust-domain": "bc.local", "admission": word});
    house.apply(&[(Kind::Fleet, fleet)]).await;
    let token = house.token(1).await;
    let status = house.join(&Machine::new("SERIAL0001").request(&house, &token)).await.expect_err("waits");
    assert_eq!(code(&status), (Code::FailedPrecondition, "needs-document".to_owned()));
    // What it cannot read elsewhere in the document is no reason.
    let fleet = json!({"kind": "fleet", "name": "lab", "format": 1, "trust-domain": "bc.local", "prune": "a few"});
    house.apply(&[(Kind::Fleet, fleet)]).await;
    house.join(&Machine::new("SERIAL0001").request(&house, &token)).await.expect("joins");
}

#[tokio::test]
async fn a_waiting_machine_is_admitted_by_a_commit() {
    let house = House::new().await;
    let fleet = json!({"kind": "fleet", "name": "lab", "format": 1, "trust-domain": "bc.local", "admission": "strict"});
    house.apply(&[(Kind::Fleet, fleet)]).await;
    let token = house.token(1).await;
    let request = Machine::new("SERIAL0001").request(&house, &token);
    // However many strangers knock, a machine with a good token is seen.
    for n in 0..130 {
        house.join(&pb::JoinRequest { csr: vec![n], ..request.clone() }).await.expect_err("no request");
    }
    let status = house.join(&request).await.expect_err("waits");
    assert_eq!(code(&status), (Code::FailedPrecondition, "needs-document".to_owned()));
    assert_eq!(house.stored(&request).await, Some((JoinState::Waiting, "needs-document".to_owned())));

    house.apply(&[(Kind::Node, json!({"kind": "node", "name": "fra1-r12", "serial": "SERIAL0001"}))]).await;
    let answer = house.join(&request).await.expect("joins");
    assert_eq!(house.identity(&request, &answer).node_name, "fra1-r12");
    assert_eq!(house.stored(&request).await, Some((JoinState::Admitted, "admitted".to_owned())));
}
