//! Machines that do not come in, each with its reason stored and said.

use store::nodes;

use super::*;

async fn refusal(house: &House, request: &pb::JoinRequest) -> (Code, String) {
    let status = house.join(request).await.expect_err("refused");
    let (state, reason) = house.stored(request).await.expect("stored");
    let (code, word) = code(&status);
    assert_eq!(reason, word);
    assert_eq!(state == JoinState::Refused, code != Code::FailedPrecondition);
    (code, word)
}

fn denied(word: &str) -> (Code, String) {
    (Code::PermissionDenied, word.to_owned())
}

#[tokio::test]
async fn every_bad_token_has_its_own_reason() {
    let house = House::new().await;
    let ask = |token: &Token| Machine::new("SERIAL0001").request(&house, token);
    let good = house.token(1).await;

    let unknown = Token::mint(TokenKind::Join, "00000000000000000000000000");
    assert_eq!(refusal(&house, &ask(&unknown)).await, denied("token-unknown"));
    assert_eq!(refusal(&house, &ask(&Token::mint(TokenKind::Join, "x"))).await, denied("token-unknown"));
    let wrong = Token::mint(TokenKind::Join, good.id());
    assert_eq!(refusal(&house, &ask(&wrong)).await, denied("token-wrong"));

    let revoked = house.token(1).await;
    let id = format!("{}{}", JoinTokenId::PREFIX, revoked.id()).parse().expect("an id");
    let mut txn = house.db.begin().await.expect("begin");
    join_tokens::revoke(&mut txn, id).await.expect("revoked");
    txn.commit().await.expect("commit");
    assert_eq!(refusal(&house, &ask(&revoked)).await, denied("token-revoked"));

    house.join(&ask(&good)).await.expect("joins");
    let other = Machine::new("SERIAL0002").request(&house, &good);
    assert_eq!(refusal(&house, &other).await, denied("token-used"));

    let late = house.token(1).await;
    house.test.advance(DAY.to_std()).await;
    let other = Machine::new("SERIAL0003").request(&house, &late);
    assert_eq!(refusal(&house, &other).await, denied("token-expired"));
}

#[tokio::test]
async fn a_sealed_token_works_for_its_own_request_only() {
    let house = House::new().await;
    let token = house.token(1).await;
    let (mine, yours) = (Machine::new("SERIAL0001"), Machine::new("SERIAL0002"));
    let mut stolen = yours.request(&house, &token);
    stolen.token = mine.request(&house, &token).token;
    assert_eq!(refusal(&house, &stolen).await, denied("token-does-not-open"));
    let mut foreign = mine.request(&house, &token);
    foreign.token.as_mut().expect("a token").key_id = "other".to_owned();
    assert_eq!(refusal(&house, &foreign).await, denied("token-for-another-key"));
    assert!(house.join(&mine.request(&house, &token)).await.is_ok());
}

#[tokio::test]
async fn malformed_requests_and_claims_are_refused() {
    let house = House::new().await;
    let token = house.token(1).await;
    let mut request = Machine::new("SERIAL0001").request(&house, &token);
    request.claims = b"not json".to_vec();
    assert_eq!(refusal(&house, &request).await, (Code::InvalidArgument, "bad-claims".to_owned()));
    let mut request = Machine::new("SERIAL0001").request(&house, &token);
    request.csr.push(0);
    assert_eq!(refusal(&house, &request).await, (Code::InvalidArgument, "bad-request".to_owned()));
}

#[tokio::test]
async fn a_second_machine_with_the_same_hardware_is_held_and_both_are_named() {
    let house = House::new().await;
    let token = house.token(2).await;
    let first = Machine::new("SERIAL0001").request(&house, &token);
    let answer = house.join(&first).await.expect("joins");
    let node = house.identity(&first, &answer);
    let before = nodes::get(&house.db, node.node_id).await.expect("a row");

    let second = Machine::new("SERIAL0001").request(&house, &token);
    let status = house.join(&second).await.expect_err("held");
    assert_eq!(code(&status), (Code::FailedPrecondition, "duplicate-hardware".to_owned()));
    assert!(status.message().contains(&node.node_name));
    let held = joins::find_by_csr(&house.db, &csr::hash(&second.csr)).await.expect("read").expect("stored");
    assert_eq!((held.join.state, held.join.conflict_with), (JoinState::Held, Some(node.node_id)));
    assert_eq!(held.join.peer.as_deref(), Some("10.0.0.9:4711"));
    assert_eq!(nodes::get(&house.db, node.node_id).await.expect("a row"), before);

    house.join(&second).await.expect_err("still held");
    let held = joins::find_by_csr(&house.db, &csr::hash(&second.csr)).await.expect("read").expect("stored");
    assert_eq!(held.attempts, 2);
}

#[tokio::test]
async fn weak_hardware_is_held_and_an_unknown_pool_waits() {
    let house = House::new().await;
    let token = house.token(1).await;
    let mut weak = Machine::new("SERIAL0001");
    weak.claims.dmi.board_serial = Some("To be filled by O.E.M.".to_owned());
    assert_eq!(
        refusal(&house, &weak.request(&house, &token)).await,
        (Code::FailedPrecondition, "weak-hardware-key".to_owned())
    );
    let token = house.token_for("a100", 1).await;
    let early = Machine::new("SERIAL0001").request(&house, &token);
    assert_eq!(refusal(&house, &early).await, (Code::FailedPrecondition, "unknown-pool".to_owned()));
}

#[tokio::test]
async fn described_hardware_is_refused_unless_the_control_plane_is_for_development() {
    let house = House::with(false).await;
    let token = house.token(1).await;
    let mut request = Machine::new("SERIAL0001").request(&house, &token);
    assert_eq!(refusal(&house, &request).await, denied("described-hardware"));
    request.described = false;
    assert!(house.join(&request).await.is_ok());
}

#[tokio::test]
async fn no_secret_is_stored_or_said() {
    let house = House::new().await;
    let token = Token::mint(TokenKind::Join, house.token(1).await.id());
    let request = Machine::new("SERIAL0001").request(&house, &token);
    let status = house.join(&request).await.expect_err("refused");
    let stored = joins::find_by_csr(&house.db, &csr::hash(&request.csr)).await.expect("read").expect("stored");
    let revealed = token.reveal();
    let secret = revealed.rsplit_once('.').expect("two parts").1;
    assert!(!format!("{status:?}{stored:?}").contains(secret));
}
