//! Facts about `node`, `nodespec` and `liveness`, on a real database, one pass at a time.

use pki::report::ReportKind as Purpose;
use schema::{
    canonical,
    digest::Digest,
    effect::EffectClass,
    generation::Generation,
    inventory::InventorySection,
    node::{Connectivity, Hold, HoldSource, NoScheduleReason, ProvisionState, condition::*},
    report::{DriftCause, DriftEntry, DriftKind, DriftMode, ReportKind, SectionState},
    spec::Section,
};
use serde_json::json;
use store::{node_drift, node_holds, node_inventory, node_reports, nodes, outcomes, queue};

use super::REPORT_REFUSED;
use crate::reconcile::testing::{House, template};

fn waits(reason: &str) -> (String, String) {
    ("wait".to_owned(), reason.to_owned())
}

fn done() -> (String, String) {
    ("done".to_owned(), String::new())
}

#[tokio::test]
async fn the_first_complete_inventory_adopts_and_adoption_writes_generation_1() {
    let house = House::new().await;
    let machine = house.machine("gpu-1").await;
    house.assign(&machine, &template("1", "hello from {{ node.name }}\n")).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.outcome("node", &machine).await, waits("inventory-incomplete"));
    assert_eq!(house.outcome("nodespec", &machine).await, waits("not-adopted"));

    let mut partial = machine.inventory(1, 8);
    partial.sections.remove(&InventorySection::Gpus);
    house.report_inventory(&machine, &partial).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!(node.provision, ProvisionState::Adopting);
    assert_eq!(node.inventory_wanted, [InventorySection::Gpus]);

    house.report_inventory(&machine, &machine.inventory(2, 8)).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!(
        (node.provision, node.generation, node.observed),
        (ProvisionState::Adopted, Generation(1), Generation(0))
    );
    assert_eq!(node.inventory_wanted, []);
    let spec = house.spec(&machine).await;
    assert_eq!(spec.host.files[0].content, "hello from gpu-1\n");
    assert_eq!(house.outcome("node", &machine).await, waits("converging"));

    house.report_status(&machine, &machine.status(3, 1)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.observed, Generation(1));
    assert_eq!(house.outcome("node", &machine).await, done());
    assert_eq!(nodes::bucket(&house.db, machine.id).await.expect("read"), Some(Ok(())));
}

#[tokio::test]
async fn a_generation_moves_only_when_the_bytes_differ() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let before = nodes::find_spec(&house.db, machine.id).await.expect("read");
    // Another target that makes the same bytes for this machine.
    let mut same = template("1", "a\n");
    same.templates.insert("unused.j2".to_owned(), "x".to_owned());
    assert_ne!(same.digest(), template("1", "a\n").digest());
    house.assign(&machine, &same).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(nodes::find_spec(&house.db, machine.id).await.expect("read"), before);

    house.assign(&machine, &template("2", "a\n")).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.generation, Generation(2));
    assert_eq!(house.spec(&machine).await.host.sysctl["vm.swappiness"], "2");
}

#[tokio::test]
async fn a_machine_counts_as_converged_only_for_what_it_is_assigned() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let converged = async || store::pools::progress(&house.db).await.expect("read").items[0].converged;
    assert_eq!(converged().await, 1);
    house.assign(&machine, &template("2", "a\n")).await;
    assert_eq!(converged().await, 0);
    house.jobs.settle().await.expect("settled");
    assert_eq!(converged().await, 0);
    house.report_status(&machine, &machine.status(3, 2)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(converged().await, 1);

    // Another target that makes the same bytes is confirmed without the machine.
    let mut same = template("2", "a\n");
    same.templates.insert("unused.j2".to_owned(), "x".to_owned());
    house.assign(&machine, &same).await;
    assert_eq!(converged().await, 0);
    house.jobs.settle().await.expect("settled");
    assert_eq!(converged().await, 1);
}

#[tokio::test]
async fn a_target_that_is_not_assigned_changes_nothing() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let next = template("9", "b\n");
    let mut txn = house.db.begin().await.expect("begin");
    let target = store::pools::Target {
        digest: next.digest(),
        pool: next.pool.clone(),
        profile: next.profile.clone(),
        doc: serde_json::to_string(&next).expect("json"),
    };
    store::pools::insert_targets(&mut txn, &[target]).await.expect("target");
    let wanted = nodes::Assignment { id: machine.id, target: next.digest(), overlay: "{}".to_owned() };
    nodes::set_targets(&mut txn, &[wanted]).await.expect("target");
    queue::enqueue(&mut txn, &queue::NODESPEC, [machine.id]).await.expect("enqueued");
    txn.commit().await.expect("commit");
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.generation, Generation(1));
    assert_eq!(house.spec(&machine).await.host.sysctl["vm.swappiness"], "1");
}

#[tokio::test]
async fn a_spec_that_does_not_compose_leaves_the_last_good_one_and_says_why() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    house.assign(&machine, &template("2", "{{ nothing.like.this }}\n")).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!(node.generation, Generation(1));
    assert_eq!(node.conditions.iter().map(|c| c.kind.as_str()).collect::<Vec<_>>(), ["SpecInvalid"]);
    assert_eq!(house.outcome("nodespec", &machine).await, waits("compose-failed"));

    house.assign(&machine, &template("2", "mended\n")).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.generation, node.conditions.len()), (Generation(2), 0));
}

#[tokio::test]
async fn a_spec_is_signed_again_past_the_half_life_of_its_worker_without_a_new_generation() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let before = nodes::find_spec(&house.db, machine.id).await.expect("read").expect("a spec");
    house.test.advance(std::time::Duration::from_secs(11 * 3_600)).await;
    house.jobs.resync("nodespec").await.expect("resynced");
    assert_eq!(nodes::find_spec(&house.db, machine.id).await.expect("read").expect("a spec"), before);
    house.test.advance(std::time::Duration::from_secs(2 * 3_600)).await;
    house.jobs.resync("nodespec").await.expect("resynced");
    let after = nodes::find_spec(&house.db, machine.id).await.expect("read").expect("a spec");
    assert_eq!((after.generation, &after.bytes), (before.generation, &before.bytes));
    assert_ne!(after.signature, before.signature);
}

#[tokio::test]
async fn observed_never_falls_and_old_reports_do_not_count() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    house.assign(&machine, &template("2", "a\n")).await;
    house.jobs.settle().await.expect("settled");
    house.report_status(&machine, &machine.status(5, 2)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.observed, Generation(2));

    let mut old = machine.status(4, 1);
    old.sections.get_mut(&Section::Host).expect("a section").state = SectionState::Failed;
    house.report_status(&machine, &old).await;
    house.report_status(&machine, &machine.status(6, 1)).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.observed, node.no_schedule), (Generation(2), vec![]));
    assert_eq!(node_reports::list(&house.db, machine.id).await.expect("read"), []);
}

#[tokio::test]
async fn only_the_nodes_own_signature_counts() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let other = house.machine("gpu-2").await;
    let status = machine.status(9, 7);

    // Another node's key, another purpose, and bytes that speak for another node.
    let (payload, signature) = other.sign(&house.shared.realm, Purpose::Status, &status);
    house.deliver(&machine, ReportKind::Status, 9, payload, signature).await;
    let (payload, signature) = machine.sign(&house.shared.realm, Purpose::Inventory, &status);
    house.deliver(&machine, ReportKind::Status, 10, payload, signature).await;
    let (payload, signature) = machine.sign(&house.shared.realm, Purpose::Status, &other.status(11, 7));
    house.deliver(&machine, ReportKind::Status, 11, payload, signature).await;
    house.report_status(&machine, &machine.status(8, u64::MAX)).await;
    let mut nul = machine.status(9, 7);
    nul.sections.get_mut(&Section::Host).expect("a section").reason = "a\0b".to_owned();
    let (payload, signature) = machine.sign(&house.shared.realm, Purpose::Status, &nul);
    house.deliver(&machine, ReportKind::Status, 13, payload, signature).await;
    house.jobs.settle().await.expect("settled");

    let node = house.node(&machine).await;
    assert_eq!((node.observed, node.generation), (Generation(1), Generation(1)));
    assert_eq!(node.conditions.iter().map(|c| c.kind.as_str()).collect::<Vec<_>>(), ["ReportRefused"]);
    assert_eq!(node_reports::list(&house.db, machine.id).await.expect("read"), []);

    house.report_status(&machine, &machine.status(12, 1)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.conditions, []);
}

#[tokio::test]
async fn a_node_ahead_of_the_database_is_jumped_past() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    house.report_status(&machine, &machine.status(3, 7)).await;
    house.jobs.tick("node").await.expect("ticked");
    let node = house.node(&machine).await;
    assert_eq!(node.observed, Generation(7));
    assert_eq!(node.no_schedule, [NoScheduleReason::Condition(GENERATION_AHEAD.to_owned())]);

    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.generation, node.observed), (Generation(8), Generation(7)));
    assert_eq!((node.conditions, node.no_schedule), (vec![], vec![]));
}

#[tokio::test]
async fn a_node_with_another_spec_of_the_same_generation_is_jumped_past() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    // What a control plane said that was restored from a backup since.
    let mut other = machine.status(3, 1);
    other.sections.get_mut(&Section::Host).expect("a section").digest = Digest::of("another host");
    house.report_status(&machine, &other).await;
    house.jobs.tick("node").await.expect("ticked");
    let node = house.node(&machine).await;
    assert_eq!((node.observed, node.generation), (Generation(1), Generation(1)));
    assert_eq!(node.no_schedule, [NoScheduleReason::Condition(GENERATION_AHEAD.to_owned())]);

    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.generation, node.conditions), (Generation(2), vec![]));
    house.report_status(&machine, &machine.status(4, 2)).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.generation, node.observed, node.no_schedule), (Generation(2), Generation(2), vec![]));
}

#[tokio::test]
async fn a_status_that_waited_says_its_own_sections_and_the_highest_generation() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    house.assign(&machine, &template("2", "a\n")).await;
    house.jobs.settle().await.expect("settled");
    // A newer journal that begins behind the older one: its sections are those of generation 1.
    house.report_status(&machine, &machine.status(3, 2)).await;
    let mut behind = machine.status(1, 1);
    behind.journal_id = schema::id::JournalId::generate();
    house.report_status(&machine, &behind).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.generation, node.observed), (Generation(2), Generation(2)));
}

#[tokio::test]
async fn more_reports_than_one_run_takes_are_all_taken() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    for seq in 3..=150 {
        house.report_status(&machine, &machine.status(seq, 1)).await;
    }
    house.jobs.settle().await.expect("settled");
    assert_eq!(node_reports::list(&house.db, machine.id).await.expect("read"), []);
    assert_eq!(house.outcome("node", &machine).await, done());
}

#[tokio::test]
async fn a_state_directory_that_was_put_back_is_named() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    house.report_status(&machine, &machine.status(9, 1)).await;
    house.jobs.settle().await.expect("settled");
    // The same report again is no news and no fault.
    house.connect(&machine).await;
    house.report_status(&machine, &machine.status(9, 1)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.conditions, []);

    house.report_status(&machine, &machine.status(5, 1)).await;
    house.jobs.settle().await.expect("settled");
    let conditions = house.node(&machine).await.conditions;
    assert_eq!(conditions.iter().map(|c| c.kind.as_str()).collect::<Vec<_>>(), ["ReportRefused"]);
    assert!(conditions[0].message.contains("put back from a copy"), "{conditions:?}");
    house.report_status(&machine, &machine.status(10, 1)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.conditions, []);
}

#[tokio::test]
async fn what_a_node_can_no_longer_read_is_no_longer_known() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let mut without = machine.inventory(3, 8);
    without.digests.remove(&InventorySection::Gpus);
    without.sections.clear();
    house.report_inventory(&machine, &without).await;
    house.jobs.settle().await.expect("settled");
    let stored = node_inventory::list(&house.db, machine.id).await.expect("read");
    assert!(!stored.contains_key(&InventorySection::Gpus) && stored.contains_key(&InventorySection::Os));
    let node = house.node(&machine).await;
    assert_eq!((node.provision, node.conditions[0].message.as_str()), (ProvisionState::Adopted, "gpus"));

    house.report_inventory(&machine, &machine.inventory(4, 8)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.conditions, []);
}

#[tokio::test]
async fn hardware_is_held_against_the_pools_document() {
    let house = House::new().await;
    let pool = json!({ "name": "h100", "site": "fra1", "profile": "base", "hardware": { "gpus": { "count": 8, "model": "NVIDIA H100 80GB HBM3" } } });
    house.apply(pool, &[]).await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    assert_eq!(house.node(&machine).await.conditions, []);

    let mut seven = machine.inventory(3, 7);
    let gpus = seven.sections.get_mut(&InventorySection::Gpus).expect("a section");
    gpus[0]["model"] = "NVIDIA A100".into();
    seven.digests.insert(InventorySection::Gpus, canonical::digest(gpus).expect("canonical"));
    house.report_inventory(&machine, &seven).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    let reasons = [GPU_COUNT_MISMATCH, GPU_MODEL_MISMATCH].map(|kind| NoScheduleReason::Condition(kind.to_owned()));
    assert_eq!(node.no_schedule, reasons);

    house.report_inventory(&machine, &machine.inventory(4, 8)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.no_schedule, []);
}

#[tokio::test]
async fn a_document_without_its_signed_digest_is_asked_for_again() {
    let house = House::new().await;
    let machine = house.machine("gpu-1").await;
    let mut inventory = machine.inventory(1, 8);
    inventory.digests.insert(InventorySection::Os, Digest::of("something else"));
    house.report_inventory(&machine, &inventory).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.inventory_wanted, [InventorySection::Os]);
    assert!(!node_inventory::list(&house.db, machine.id).await.expect("read").contains_key(&InventorySection::Os));
}

#[tokio::test]
async fn a_failed_section_keeps_work_away_until_it_converges() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let mut status = machine.status(3, 1);
    let host = status.sections.get_mut(&Section::Host).expect("a section");
    (host.state, host.reason) = (SectionState::Failed, "the disk is full".to_owned());
    house.report_status(&machine, &status).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!(node.no_schedule, [NoScheduleReason::Condition(SECTION_FAILED.to_owned())]);
    assert_eq!(node.conditions[0].message, "host: the disk is full");
    assert_eq!(house.outcome("node", &machine).await, waits("section-failed"));

    house.report_status(&machine, &machine.status(4, 1)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!((house.node(&machine).await.no_schedule, house.outcome("node", &machine).await), (vec![], done()));
}

#[tokio::test]
async fn a_node_without_a_pool_says_so() {
    let house = House::new().await;
    let lonely = house.machine_of("gpu-1", None).await;
    let lost = house.machine_of("gpu-2", Some("elsewhere")).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.outcome("node", &lonely).await, waits("no-pool"));
    assert_eq!(house.outcome("node", &lost).await, waits("pool-unknown"));
}

#[tokio::test]
async fn silence_leads_to_unreachable_then_to_lost_and_a_session_leads_back() {
    let house = House::new().await;
    let pool = json!({ "name": "h100", "site": "fra1", "profile": "base", "policy": { "lost-after": "10m" } });
    house.apply(pool, &[]).await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;

    house.test.advance(std::time::Duration::from_secs(85)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.connectivity, Connectivity::Connected);
    house.test.advance(std::time::Duration::from_secs(10)).await;
    house.jobs.settle().await.expect("settled");
    let node = house.node(&machine).await;
    assert_eq!((node.connectivity, node.no_schedule), (Connectivity::Unreachable, vec![NoScheduleReason::Unreachable]));
    house.test.advance(std::time::Duration::from_secs(600)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(house.node(&machine).await.connectivity, Connectivity::Lost);

    house.connect(&machine).await;
    house.jobs.resync("node").await.expect("resynced");
    let node = house.node(&machine).await;
    assert_eq!((node.connectivity, node.no_schedule), (Connectivity::Connected, vec![]));
}

#[tokio::test]
async fn an_ended_hold_is_lifted_and_only_apply_lifts_what_git_holds() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let git = Hold { source: HoldSource::Git, owner: "ada".into(), reason: "fan".into(), until: None, place: None };
    let mut txn = house.db.begin().await.expect("begin");
    node_holds::place(&mut txn, machine.id, &git).await.expect("placed");
    txn.commit().await.expect("commit");
    house.jobs.resync("node").await.expect("resynced");
    assert!(house.node(&machine).await.cordoned);
    let mut txn = house.db.begin().await.expect("begin");
    node_holds::lift(&mut txn, machine.id, HoldSource::Git).await.expect("lifted");
    txn.commit().await.expect("commit");

    let until = schema::time::Duration::from_secs(60).after(house.db.now().await.expect("time"));
    let hold =
        Hold { source: HoldSource::Api, owner: "ada".into(), reason: "look".into(), until: Some(until), place: None };
    let mut txn = house.db.begin().await.expect("begin");
    node_holds::place(&mut txn, machine.id, &hold).await.expect("placed");
    txn.commit().await.expect("commit");
    house.test.advance(std::time::Duration::from_secs(61)).await;
    house.jobs.tick("liveness").await.expect("ticked");
    assert!(!house.node(&machine).await.cordoned);
}

#[tokio::test]
async fn a_resync_of_a_quiet_fleet_changes_nothing_and_leaves_no_row() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let (node, outcomes) =
        (house.node(&machine).await, outcomes::of_key(&house.db, &machine.id.to_string()).await.expect("read").items);
    for reconciler in ["node", "nodespec", "liveness"] {
        let ran = house.jobs.resync(reconciler).await.expect("resynced");
        assert!(ran.iter().all(|ran| ran.verdict == outcomes::Verdict::Done), "{ran:?}");
    }
    assert_eq!(house.node(&machine).await, node);
    assert_eq!(outcomes::of_key(&house.db, &machine.id.to_string()).await.expect("read").items, outcomes);
    assert_eq!(queue::depth(&house.db).await.expect("read"), []);
}

fn drifted(path: &str) -> DriftEntry {
    DriftEntry {
        path: path.to_owned(),
        mode: DriftMode::Warn,
        kind: DriftKind::Changed,
        cause: DriftCause::WhileRunning,
        observed: Some("mine\n".to_owned()),
        observed_digest: Some(Digest::of("mine\n")),
        observed_bytes: Some(5),
        desired: Some("a".to_owned()),
        first_seen: "2026-11-29T11:00:00Z".parse().expect("a time"),
        last_seen: "2026-11-29T11:00:00Z".parse().expect("a time"),
        corrected: false,
        times: 1,
    }
}

#[tokio::test]
async fn drift_is_taken_over_from_signed_reports_and_moves_no_generation() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let all = async || {
        let page = node_drift::list(&house.db, &node_drift::Filter::default(), None, None, 10).await;
        page.expect("read").items.into_iter().map(|drift| drift.entry).collect::<Vec<_>>()
    };
    let mut status = machine.status(3, 1);
    status.drift = vec![drifted("files./etc/motd.content")];
    house.report_status(&machine, &status).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(all().await, status.drift);
    assert_eq!(house.node(&machine).await.generation, Generation(1));

    // Unbounded, or said twice: the whole report does not count.
    let mut absurd = machine.status(4, 1);
    absurd.drift = vec![drifted("files./etc/motd.content"), drifted("files./etc/motd.content")];
    house.report_status(&machine, &absurd).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(all().await, status.drift);
    assert!(house.node(&machine).await.conditions.iter().any(|condition| condition.kind == REPORT_REFUSED));

    // A daemon that says nothing of drift, as an older one does, has none.
    house.report_status(&machine, &machine.status(5, 1)).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(all().await, []);
}

#[tokio::test]
async fn each_generation_is_stored_with_the_class_of_what_it_does() {
    let house = House::new().await;
    let machine = house.converged("gpu-1", &template("1", "a\n")).await;
    let effect = async || nodes::find_spec(&house.db, machine.id).await.expect("read").and_then(|spec| spec.effect);
    let first = effect().await.expect("judged");
    assert!(first >= EffectClass::Live, "{first}");
    house.assign(&machine, &template("2", "a\n")).await;
    house.jobs.settle().await.expect("settled");
    assert_eq!(effect().await, Some(EffectClass::Live));
}
