//! Nodes: axes, versions, specs, observations, holds.

use schema::{
    digest::Digest,
    generation::{Generation, Version},
    id::NodeId,
    node::{
        Condition, ConditionStatus, Connectivity, Hold, HoldSource, NoScheduleReason, Power, ProvisionEvent,
        ProvisionState, Trust,
    },
    time::Duration,
};
use store::{
    Db, node_holds,
    nodes::{self, ChangeError, Filter, GetError, InsertError, NewNode, NewSpec, SpecError, SpecFrom},
    pools::{self, Target},
    testing::TestDb,
};

use crate::{commit, name, new_node, node, read};

async fn insert(db: &Db, new: &NewNode) -> Result<(), InsertError> {
    let mut txn = db.begin().await.expect("begin");
    nodes::insert(&mut txn, new).await?;
    txn.commit().await.expect("commit");
    Ok(())
}

#[tokio::test]
async fn a_machine_comes_in_as_adopting_and_is_found_again() {
    let test = TestDb::create().await;
    let new = NewNode {
        hardware_key: Some(Digest::of("hw")),
        hardware_key_trusted: true,
        labels: [("rack".to_owned(), "r12".to_owned())].into(),
        ..new_node("h100-01")
    };
    insert(test.db(), &new).await.expect("insert");
    let stored = nodes::get(test.db(), new.id).await.expect("get");
    assert_eq!(
        (stored.provision, stored.connectivity, stored.generation),
        (ProvisionState::Adopting, Connectivity::Disconnected, Generation::NONE)
    );
    assert_eq!(stored.labels, new.labels);
    assert_eq!(stored.shard, schema::shard::of(&new.id.to_string()));
    assert_eq!(nodes::find_by_name(test.db(), "h100-01").await.expect("by name"), Some(stored.clone()));
    assert_eq!(nodes::find_by_hardware_key(test.db(), &Digest::of("hw")).await.expect("by key"), Some(stored.clone()));
    assert_eq!(nodes::of_pool(test.db(), &[name("h100")]).await.expect("of pool").items, [stored]);
    assert!(matches!(nodes::get(test.db(), NodeId::generate()).await, Err(GetError::Missing(_))));
}

#[tokio::test]
async fn names_and_trusted_hardware_are_unique() {
    let test = TestDb::create().await;
    let first = NewNode { hardware_key: Some(Digest::of("hw")), hardware_key_trusted: true, ..new_node("a") };
    insert(test.db(), &first).await.expect("insert");
    assert!(matches!(insert(test.db(), &new_node("a")).await, Err(InsertError::NameTaken(_))));
    let twin = NewNode { id: NodeId::generate(), name: name("b"), ..first.clone() };
    assert!(matches!(insert(test.db(), &twin).await, Err(InsertError::HardwareTaken)));
    let weak = NewNode { hardware_key_trusted: false, ..twin };
    insert(test.db(), &weak).await.expect("a weak key is no identity");
    assert_eq!(
        nodes::find_by_hardware_key(test.db(), &Digest::of("hw")).await.expect("find").map(|node| node.id),
        Some(first.id)
    );
}

#[tokio::test]
async fn lists_are_filtered_and_paged_by_name() {
    let test = TestDb::create().await;
    for text in ["a-1", "a-2", "a-3", "b-1"] {
        node(test.db(), text).await;
    }
    let names =
        |page: &store::Page<nodes::Node>| page.items.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
    let filter = Filter { name_prefix: Some("a-".to_owned()), pool: Some("h100".to_owned()), ..Filter::default() };
    let first = nodes::list(test.db(), &filter, None, 2).await.expect("list");
    assert_eq!((names(&first), first.next.as_deref()), (vec!["a-1".to_owned(), "a-2".to_owned()], Some("a-2")));
    let second = nodes::list(test.db(), &filter, first.next.as_deref(), 2).await.expect("list");
    assert_eq!((names(&second), second.next), (vec!["a-3".to_owned()], None));
    for nothing in [
        Filter { site: Some("ams1".to_owned()), ..Filter::default() },
        Filter { provision: Some(ProvisionState::Adopted), ..Filter::default() },
        Filter { connectivity: Some(Connectivity::Lost), ..Filter::default() },
        Filter { cordoned: Some(true), ..Filter::default() },
    ] {
        assert!(nodes::list(test.db(), &nothing, None, 10).await.expect("list").items.is_empty());
    }
}

#[tokio::test]
async fn every_id_is_in_one_shard_and_resync_pages_through_them() {
    let test = TestDb::create().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(node(test.db(), &format!("n{n}")).await.id);
    }
    ids.sort_unstable();
    let all: Vec<u16> = (0..schema::shard::COUNT).collect();
    let first = nodes::ids_in_shards(test.db(), &all, None, 3).await.expect("ids");
    let rest = nodes::ids_in_shards(test.db(), &all, first.last().copied(), 3).await.expect("ids");
    assert_eq!([first, rest].concat(), ids);
    let shard = schema::shard::of(&ids[0].to_string());
    assert!(nodes::ids_in_shards(test.db(), &[shard], None, 10).await.expect("ids").contains(&ids[0]));
}

#[tokio::test]
async fn the_provision_axis_moves_by_its_table() {
    let test = TestDb::create().await;
    let adopting = node(test.db(), "a").await;
    commit!(test.db(), |txn| {
        let locked = nodes::lock(&mut txn, adopting.id).await.expect("lock").expect("a node");
        nodes::adopt(&mut txn, &locked).await.expect("adopt");
    });
    let adopted = read(test.db(), adopting.id).await;
    assert_eq!((adopted.provision, adopted.version), (ProvisionState::Adopted, adopting.version.next()));
    assert!(adopted.adopted_at.is_some());

    let mut txn = test.db().begin().await.expect("begin");
    assert!(matches!(nodes::adopt(&mut txn, &adopted).await, Err(ChangeError::Illegal(_))));
    assert!(matches!(adopted.expect_version(Some(Version(99))), Err(ChangeError::Conflict { .. })));
    adopted.expect_version(Some(adopted.version)).expect("the version that was read");
    nodes::set_provision(&mut txn, &adopted, ProvisionEvent::Retire).await.expect("retire");
    let retiring = nodes::lock(&mut txn, adopted.id).await.expect("lock").expect("a node");
    nodes::set_provision(&mut txn, &retiring, ProvisionEvent::Fail).await.expect("fail");
    let failed = nodes::lock(&mut txn, adopted.id).await.expect("lock").expect("a node");
    assert_eq!(
        (failed.provision, failed.failed_from, failed.maintenance),
        (ProvisionState::Failed, Some(ProvisionState::Retiring), true)
    );
    assert_eq!(
        nodes::set_provision(&mut txn, &failed, ProvisionEvent::Recover).await.expect("recover"),
        ProvisionState::Retiring
    );
}

#[tokio::test]
async fn the_other_axes_move_alone() {
    let test = TestDb::create().await;
    let before = node(test.db(), "a").await;
    let condition = Condition {
        kind: "RebootRequired".to_owned(),
        status: ConditionStatus::True,
        reason: "Staged".to_owned(),
        message: String::new(),
        since: before.created_at,
    };
    let taint = NoScheduleReason::Taint("gpu".to_owned());
    commit!(test.db(), |txn| {
        nodes::set_maintenance(&mut txn, before.id, Some("fan")).await.expect("maintenance");
        nodes::set_power(&mut txn, before.id, Power::On).await.expect("power");
        nodes::set_trust(&mut txn, before.id, Trust::TenantOwned).await.expect("trust");
        nodes::set_conditions(&mut txn, before.id, std::slice::from_ref(&condition)).await.expect("conditions");
        nodes::change_no_schedule(&mut txn, before.id, &[taint.clone(), NoScheduleReason::Draining], &[])
            .await
            .expect("reasons");
        nodes::change_no_schedule(&mut txn, before.id, &[], &[NoScheduleReason::Draining]).await.expect("reasons");
        nodes::set_inventory_wanted(&mut txn, before.id, &[schema::inventory::InventorySection::Gpus])
            .await
            .expect("wanted");
    });
    let after = read(test.db(), before.id).await;
    assert_eq!(
        (after.maintenance, after.maintenance_reason.as_deref(), after.power, after.trust),
        (true, Some("fan"), Power::On, Trust::TenantOwned)
    );
    assert_eq!((after.conditions, after.no_schedule), (vec![condition], vec![taint]));
    let mut txn = test.db().begin().await.expect("begin");
    assert_eq!(nodes::awaiting_boot(&mut txn).await.expect("reads"), std::slice::from_ref(&before.name));
    drop(txn);
    assert_eq!(after.inventory_wanted, [schema::inventory::InventorySection::Gpus]);
    assert_eq!((after.provision, after.connectivity), (before.provision, before.connectivity));
    commit!(test.db(), |txn| nodes::set_maintenance(&mut txn, before.id, None).await.expect("maintenance"));
    let cleared = read(test.db(), before.id).await;
    assert_eq!((cleared.maintenance, cleared.maintenance_reason), (false, None));
}

#[tokio::test]
async fn a_spec_is_stored_only_against_the_generation_it_was_composed_for() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let targets = ["{}", "{\"v\":2}"].map(|doc| Target {
        digest: Digest::of(doc),
        pool: name("h100"),
        profile: name("gpu"),
        doc: doc.to_owned(),
    });
    commit!(test.db(), |txn| pools::insert_targets(&mut txn, &targets).await.expect("targets"));
    let [from, later] = targets.map(|target| SpecFrom { target: target.digest, overlay: "{}".to_owned() });
    let store = async |expected: u64, to: u64, bytes: &str| {
        let mut txn = test.db().begin().await.expect("begin");
        let spec = NewSpec {
            generation: Generation(to),
            bytes: bytes.as_bytes(),
            signature: b"sig",
            from: &from,
            effect: schema::effect::EffectClass::Live,
        };
        nodes::set_spec(&mut txn, id, Generation(expected), &spec).await?;
        txn.commit().await.expect("commit");
        Ok::<(), SpecError>(())
    };
    assert_eq!(nodes::find_spec(test.db(), id).await.expect("spec"), None);
    store(0, 1, "one").await.expect("the first");
    assert!(matches!(store(0, 1, "other").await, Err(SpecError::Moved { .. })));
    assert!(matches!(store(1, 1, "same").await, Err(SpecError::NotForward { .. })));
    store(1, 7, "seven").await.expect("past what a node reported");
    let spec = nodes::find_spec(test.db(), id).await.expect("spec").expect("a spec");
    assert_eq!(
        (spec.generation, spec.bytes.as_slice(), spec.digest),
        (Generation(7), b"seven".as_slice(), Digest::of("seven"))
    );

    let resigned = async |generation: u64| {
        commit!(test.db(), |txn| nodes::resign_spec(&mut txn, id, Generation(generation), b"new")
            .await
            .expect("resign"))
    };
    assert!(!resigned(1).await);
    assert!(resigned(7).await);
    let again = nodes::find_spec(test.db(), id).await.expect("spec").expect("a spec");
    assert_eq!((again.generation, again.signature.as_slice()), (Generation(7), b"new".as_slice()));

    assert_eq!(read(test.db(), id).await.spec_from, Some(from));
    let confirm = async |generation: u64| {
        commit!(test.db(), |txn| nodes::confirm_spec(&mut txn, id, Generation(generation), &later)
            .await
            .expect("confirm"))
    };
    assert!(!confirm(1).await);
    assert!(confirm(7).await);
    let confirmed = read(test.db(), id).await;
    assert_eq!((confirmed.generation, confirmed.spec_from), (Generation(7), Some(later)));
}

#[tokio::test]
async fn what_was_observed_never_falls() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    for (applied, observed, expected) in [(3, 2, (3, 2)), (1, 1, (3, 2)), (3, 5, (3, 5)), (9, 4, (9, 5))] {
        commit!(test.db(), |txn| nodes::observe(&mut txn, id, Generation(applied), Generation(observed))
            .await
            .expect("observe"));
        let node = read(test.db(), id).await;
        assert_eq!((node.applied.0, node.observed.0), expected);
    }
}

#[tokio::test]
async fn an_identity_that_is_replaced_counts_up_and_a_deleted_node_is_gone() {
    let test = TestDb::create().await;
    let before = node(test.db(), "a").await;
    commit!(test.db(), |txn| nodes::bump_identity(&mut txn, before.id).await.expect("bump"));
    assert_eq!(read(test.db(), before.id).await.identity_generation, before.identity_generation.next());
    commit!(test.db(), |txn| nodes::delete(&mut txn, before.id).await.expect("delete"));
    assert_eq!(nodes::find(test.db(), before.id).await.expect("find"), None);
}

fn hold(source: HoldSource, reason: &str) -> Hold {
    Hold { source, owner: "ada".to_owned(), reason: reason.to_owned(), until: None, place: None }
}

#[tokio::test]
async fn a_node_is_cordoned_while_any_hold_exists() {
    let test = TestDb::create().await;
    let before = node(test.db(), "a").await;
    let id = before.id;
    commit!(test.db(), |txn| {
        node_holds::place(&mut txn, id, &hold(HoldSource::Api, "one")).await.expect("place");
        node_holds::place(&mut txn, id, &hold(HoldSource::Api, "two")).await.expect("place");
        node_holds::place(&mut txn, id, &hold(HoldSource::Health, "xid")).await.expect("place");
    });
    let cordoned = read(test.db(), id).await;
    assert!(cordoned.cordoned && cordoned.version > before.version);
    let reasons = |holds: Vec<node_holds::NodeHold>| holds.into_iter().map(|hold| hold.hold.reason).collect::<Vec<_>>();
    assert_eq!(reasons(node_holds::list(test.db(), id).await.expect("list").items), ["two", "xid"]);

    let lift = async |source| commit!(test.db(), |txn| node_holds::lift(&mut txn, id, source).await.expect("lift"));
    assert!(lift(HoldSource::Api).await);
    assert!(!lift(HoldSource::Api).await);
    assert!(read(test.db(), id).await.cordoned, "the other source still holds");
    assert!(lift(HoldSource::Health).await);
    assert!(!read(test.db(), id).await.cordoned);
}

#[tokio::test]
async fn holds_of_git_are_exactly_what_the_documents_say() {
    let test = TestDb::create().await;
    let (a, b) = (node(test.db(), "a").await.id, node(test.db(), "b").await.id);
    let set = async |of_a: Option<Hold>, of_b: Option<Hold>| {
        commit!(test.db(), |txn| node_holds::replace_git(&mut txn, &[(a, of_a), (b, of_b)]).await.expect("replace"));
        (read(test.db(), a).await.cordoned, read(test.db(), b).await.cordoned)
    };
    let git = |reason| Some(Hold { place: Some("nodes/a.kdl:3".to_owned()), ..hold(HoldSource::Git, reason) });
    assert_eq!(set(git("x"), None).await, (true, false));
    assert_eq!(set(git("y"), git("z")).await, (true, true));
    assert_eq!(node_holds::list(test.db(), a).await.expect("list").items[0].hold, git("y").expect("a hold"));
    assert_eq!(set(None, git("z")).await, (false, true));
}

#[tokio::test]
async fn a_hold_with_an_end_ends() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let until = Duration::from_secs(60).after(test.db().now().await.expect("now"));
    commit!(test.db(), |txn| node_holds::place(
        &mut txn,
        id,
        &Hold { until: Some(until), ..hold(HoldSource::Api, "soon") }
    )
    .await
    .expect("place"));
    assert!(node_holds::expired(test.db()).await.expect("expired").is_empty());
    test.advance(std::time::Duration::from_secs(61)).await;
    assert_eq!(node_holds::expired(test.db()).await.expect("expired"), [id]);
    assert_eq!(commit!(test.db(), |txn| node_holds::expire(&mut txn).await.expect("expire")), [id]);
    assert!(!read(test.db(), id).await.cordoned);
}

#[tokio::test]
async fn two_changes_of_one_node_take_turns() {
    let test = TestDb::create().await;
    let id = node(test.db(), "a").await.id;
    let mut txn = test.db().begin().await.expect("begin");
    nodes::lock(&mut txn, id).await.expect("lock").expect("a node");
    let db = test.db().clone();
    let other = tokio::spawn(async move {
        let mut txn = db.begin().await.expect("begin");
        let locked = nodes::lock(&mut txn, id).await.expect("lock").expect("a node");
        nodes::adopt(&mut txn, &locked).await
    });
    let locked = nodes::lock(&mut txn, id).await.expect("lock").expect("a node");
    nodes::adopt(&mut txn, &locked).await.expect("adopt");
    txn.commit().await.expect("commit");
    assert!(matches!(other.await.expect("the other"), Err(ChangeError::Illegal(_))), "it saw the first one's change");
}
