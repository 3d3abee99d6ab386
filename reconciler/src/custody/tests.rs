//! What is written into the database by somebody without keys: composed by nobody, and told.

mod batches;
mod pinned;
mod rotation;

use pki::keys::Keys;
use schema::{fleet::HostTemplate, generation::Generation};
use store::{audit, queue, testing::probes};

use crate::reconcile::testing::{House, Machine, template};

async fn steal(house: &House, statement: &str) {
    assert!(probes::steal(&house.db, statement).await.expect("a superuser may") > 0, "{statement}");
}

/// Looks at the machine again, as it is looked at anyway now and then.
async fn look(house: &House, machine: &Machine) -> (String, String) {
    let mut txn = house.db.begin().await.expect("begin");
    queue::enqueue(&mut txn, &queue::NODESPEC, [machine.id]).await.expect("enqueued");
    txn.commit().await.expect("commit");
    house.jobs.settle().await.expect("settled");
    house.outcome("nodespec", machine).await
}

struct Thief {
    house: House,
    machine: Machine,
}

impl Thief {
    async fn new() -> Self {
        let house = House::new().await;
        let machine = house.converged("gpu-1", &template("1", "a\n")).await;
        Self { house, machine }
    }

    fn uuid(&self) -> uuid::Uuid {
        self.machine.id.as_uuid()
    }

    /// The machine's row names another target.
    async fn point(&self, target: &HostTemplate) {
        let (id, digest) = (self.uuid(), hex::encode(target.digest().as_bytes()));
        let target = format!("decode('{digest}', 'hex')");
        let set = format!("UPDATE nodes SET assigned_digest = {target}, target_digest = {target} WHERE id = '{id}'");
        steal(&self.house, &set).await;
    }

    /// The process works with the keys as they are.
    fn use_keys(&self) {
        self.house.shared.custody.as_ref().expect("custody").use_keys(&self.house.keys.signing());
    }

    /// Nothing of it was composed, it is told under this word, and in the audit log.
    async fn finds_out(&self, code: &str) {
        let outcome = look(&self.house, &self.machine).await;
        assert_eq!(outcome, ("wait".to_owned(), code.to_owned()));
        let node = self.house.node(&self.machine).await;
        assert_eq!(node.generation, Generation(1), "{code}");
        assert_eq!(self.house.spec(&self.machine).await.host.sysctl["vm.swappiness"], "1", "{code}");
        assert!(node.conditions.iter().any(|condition| condition.kind == "SpecInvalid"), "{code}");
        let told = audit::list(&self.house.db, Some(&self.machine.id.to_string()), None, 10).await.expect("read");
        assert!(told.iter().any(|line| line.action == "nodes.specRefused" && line.detail["code"] == code), "{told:?}");
    }
}

/// A template of a thief, as a statement that stores it.
fn planted(motd: &str) -> (HostTemplate, String) {
    let evil = template("9", motd);
    let digest = hex::encode(evil.digest().as_bytes());
    let doc = String::from_utf8(schema::canonical::to_vec(&evil).expect("canonical")).expect("text");
    let insert = format!(
        "INSERT INTO targets (digest, pool, profile, doc) VALUES (decode('{digest}', 'hex'), 'h100', 'base', $doc${doc}$doc$)"
    );
    (evil, insert)
}

#[tokio::test]
async fn a_template_that_is_written_into_the_database_is_not_composed() {
    let thief = Thief::new().await;
    let (evil, insert) = planted("planted\n");
    steal(&thief.house, &insert).await;
    thief.point(&evil).await;
    thief.finds_out("assignment-unproven").await;

    // What the machine should be by a signed revision is composed again.
    thief.house.assign(&thief.machine, &template("2", "b\n")).await;
    thief.house.jobs.settle().await.expect("settled");
    let node = thief.house.node(&thief.machine).await;
    assert_eq!(node.generation, Generation(2));
    assert!(node.conditions.is_empty(), "{:?}", node.conditions);
}

#[tokio::test]
async fn a_template_whose_text_was_changed_is_not_composed() {
    let thief = Thief::new().await;
    steal(&thief.house, r#"UPDATE targets SET doc = replace(doc, '"vm.swappiness":"1"', '"vm.swappiness":"9"')"#).await;
    thief.finds_out("target-altered").await;
}

#[tokio::test]
async fn words_of_a_machine_that_no_document_has_are_not_composed() {
    let thief = Thief::new().await;
    let words =
        format!(r#"UPDATE nodes SET assigned_overlay = '{{"labels":{{"a":"b"}}}}' WHERE id = '{}'"#, thief.uuid());
    steal(&thief.house, &words).await;
    thief.finds_out("assignment-unproven").await;
}

#[tokio::test]
async fn another_name_and_another_pool_are_not_composed_for() {
    for change in ["name = 'gpu-2'", "pool = 'other'", "placement = NULL", "placement = '\\x00'"] {
        let thief = Thief::new().await;
        steal(&thief.house, &format!("UPDATE nodes SET {change} WHERE id = '{}'", thief.uuid())).await;
        thief.finds_out("place-unproven").await;
    }
    let thief = Thief::new().await;
    steal(&thief.house, &format!("UPDATE nodes SET assigned_name = 'gpu-2' WHERE id = '{}'", thief.uuid())).await;
    thief.finds_out("assignment-unproven").await;
}

#[tokio::test]
async fn a_row_that_is_right_again_is_found_out_by_itself() {
    let thief = Thief::new().await;
    let name = async |name: &str| {
        steal(&thief.house, &format!("UPDATE nodes SET name = '{name}' WHERE id = '{}'", thief.uuid())).await;
    };
    name("gpu-2").await;
    thief.finds_out("place-unproven").await;
    name("gpu-1").await;
    thief.house.test.advance(std::time::Duration::from_secs(61)).await;
    thief.house.jobs.settle().await.expect("settled");
    assert_ne!(thief.house.outcome("nodespec", &thief.machine).await.1, "place-unproven");
    assert!(thief.house.node(&thief.machine).await.conditions.is_empty());
}

#[tokio::test]
async fn a_revision_that_another_key_signed_grants_nothing() {
    let mut thief = Thief::new().await;
    let ours = thief.house.keys.clone();
    let evil = template("9", "forged\n");
    thief.house.keys = Keys::generate("bc.local", thief.house.db.now().await.expect("time")).expect("keys");
    thief.house.assign(&thief.machine, &evil).await;
    thief.finds_out("assignment-unproven").await;

    // A genuine revision's signature under other parts is none.
    thief.house.keys = ours;
    thief.house.assign(&thief.machine, &template("1", "a\n")).await;
    thief.house.jobs.settle().await.expect("settled");
    assert!(thief.house.node(&thief.machine).await.conditions.is_empty());
    thief.point(&evil).await;
    steal(
        &thief.house,
        "UPDATE manifests SET signature = (SELECT m.signature FROM manifests m JOIN revisions r ON r.id = m.revision ORDER BY r.seq LIMIT 1)",
    )
    .await;
    thief.finds_out("assignment-unproven").await;
}

#[tokio::test]
async fn a_genuine_target_of_another_pool_is_not_composed() {
    let thief = Thief::new().await;
    let mut other = template("5", "other\n");
    other.pool = "l40s".parse().expect("a name");
    thief.house.vouch(&other).await;
    thief.house.assign(&thief.machine, &other).await;
    thief.finds_out("assignment-unproven").await;
}
