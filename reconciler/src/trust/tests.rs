//! What follows from stored rows is what follows on machines.

use pki::batch::testing::{Fleet, Person, policy as checked};
use store::{testing::TestDb, trust::NewStatement};

use super::*;

#[tokio::test]
async fn what_a_stolen_key_revoked_counts_again_once_a_policy_says_that_it_was_stolen() {
    let test = TestDb::create().await;
    let db = test.db();
    let (fleet, people) = (Fleet::new("bc.local"), ["ada", "bob", "p1", "p2"].map(Person::new));
    let [ada, bob, p1, p2] = &people;
    let text = |epoch: u64, prev: Option<&Policy>, more: &str| {
        let one = |person: &Person| {
            format!("principal \"{}\" {{ kind \"human\"; roles \"admin\"; key \"{}\"; }}\n", person.name, person.line())
        };
        let prev = prev.map_or_else(String::new, |prev| format!(" prev \"{}\";", prev.digest()));
        format!(
            "policy {{ format 1; epoch {epoch};{prev} }}\n{}path \"**\" {{ roles \"admin\"; }}\n\
             trust {{ roles \"admin\"; threshold 2; }}\nrevoke {{ roles \"admin\"; }}\n{more}",
            people.iter().map(one).collect::<String>()
        )
    };
    let gone = format!("revoked \"{}\" {{ as \"compromised\"; }}\n", ada.key());
    let first = text(1, None, "");
    let second = text(2, Some(&checked(&first)), &gone);
    let third = text(3, Some(&checked(&second)), &gone);
    let (one, two, three) = (checked(&first), checked(&second), checked(&third));
    let agree = |by: [&Person; 2], prev: &Policy, next: &Policy| {
        by.map(|person| fleet.trust(person, prev.digest(), next)).to_vec()
    };
    let raw = fleet.revoke(ada, &bob.key(), &one);
    let said = pki::trust::spoken::Spoken::hear(&raw, "bc.local", fleet.id, [&one]).expect("a statement");
    let mut txn = db.begin().await.expect("begin");
    let statement = NewStatement {
        digest: said.statement.digest(),
        key: said.key.name(),
        kind: said.statement.body.kind().to_owned(),
        subject: said.statement.body.subject(),
        principal: "ada".to_owned(),
        commit: said.commit.to_string(),
        raw,
    };
    store::trust::put_statements(&mut txn, &[statement]).await.expect("stored");
    store::trust::keep_revocations(&mut txn, &[(said.statement.digest(), said.key.name(), 1)]).await.expect("noted");
    for (text, policy, statements) in [
        (&first, &one, vec![]),
        (&second, &two, agree([p1, p2], &one, &two)),
        (&third, &three, agree([bob, p1], &two, &three)),
    ] {
        let (epoch, digest) = (policy.epoch(), policy.digest());
        let policy = text.clone().into_bytes();
        let row = Epoch { epoch, digest, policy, commit: "c".to_owned(), statements, at: jiff::Timestamp::UNIX_EPOCH };
        store::trust::put_epoch(&mut txn, &row).await.expect("stored");
    }
    txn.commit().await.expect("commit");
    let commit = "a".repeat(40).parse().expect("an id");
    let pin = TrustPin { commit, fleet: fleet.id, digest: one.digest() };
    let follows = Pinned::new(Some(pin)).follows(db, &pin, "bc.local").await.expect("reads");
    assert_eq!((follows.policies.len(), follows.revoked.len()), (3, 0), "Bob agreed to the third");
}
