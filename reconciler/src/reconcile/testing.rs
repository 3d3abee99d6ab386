//! A small control plane for tests: a database, keys, a pool with a target, and machines that sign.

use std::{collections::BTreeMap, sync::Arc};

use pki::{Realm, keys::Keys, node_key::NodeKey, report::ReportKind as Purpose};
use schema::{
    canonical,
    digest::Digest,
    fleet::HostTemplate,
    generation::{Epoch, Generation, IdentityGeneration},
    id::{BootId, GatewayId, JournalId, NodeId, RevisionId},
    inventory::InventorySection,
    name::Name,
    node::{PoolClass, Role, Trust},
    object::{Kind, ObjectRef},
    report::{InventoryReport, ReportKind, SectionState, SectionStatus, StatusReport},
    spec::{NodeSpec, Section},
    time::Duration,
};
use serde_json::{Value, json};
use store::{
    Db, manifests, node_certs, node_reports, nodes,
    pools::{self, NewPool, Target},
    queue,
    revisions::{self, NewRevision, ObjectChange, ObjectState},
    sessions, sources,
    testing::TestDb,
};

use super::{Registry, Shared, jobs::Jobs};
use crate::{
    custody::{Custody, Manifest, Part},
    join::Signer,
};

pub(crate) struct House {
    pub(crate) test: TestDb,
    pub(crate) db: Db,
    pub(crate) shared: Shared,
    pub(crate) jobs: Jobs,
    pub(crate) keys: Keys,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A template with one kernel parameter and one file.
pub(crate) fn template(swappiness: &str, motd: &str) -> HostTemplate {
    serde_json::from_value(json!({
        "pool": "h100",
        "profile": "base",
        "sysctl": { "vm.swappiness": swappiness },
        "files": [{ "path": "/etc/motd", "content": { "template": "motd.j2" }, "owner": "root", "group": "root", "mode": "0644" }],
        "templates": { "motd.j2": motd },
    }))
    .expect("a template")
}

impl House {
    pub(crate) async fn new() -> Self {
        let test = TestDb::create().await;
        let db = test.db().clone();
        let now = db.now().await.expect("time");
        let keys = Keys::generate("bc.local", now).expect("keys");
        let realm = Realm::new("bc.local", "fleet_test");
        let signer = Arc::new(Signer::new(keys.command_root().clone(), realm.clone(), now));
        let custody = Custody::new(&keys.signing(), &realm.fleet_id);
        db.set_marker(Arc::clone(&custody) as _);
        let shared = Shared { db: db.clone(), realm, signer: Some(signer), custody: Some(custody), logs: None };
        let jobs = Jobs::new(shared.clone(), Registry::standard());
        let house = Self { test, db, shared, jobs, keys };
        house.apply(json!({ "name": "h100", "site": "fra1", "profile": "base" }), &[]).await;
        house
    }

    /// A revision with this pool and these documents.
    pub(crate) async fn apply(&self, pool: Value, documents: &[(Kind, Value)]) {
        let revision = RevisionId::generate();
        let all = [(Kind::Pool, pool.clone()), (Kind::Site, json!({ "name": "fra1" }))];
        let changes: Vec<ObjectChange> = all
            .iter()
            .chain(documents)
            .map(|(kind, doc)| ObjectChange {
                object: ObjectRef::new(*kind, name(doc["name"].as_str().expect("a name"))),
                digest: canonical::digest(doc).expect("canonical"),
                doc: doc.to_string(),
                file: format!("{kind}s.kdl"),
                line: 7,
                state: ObjectState::Declared,
            })
            .collect();
        let stored = self.revision(revision).await;
        let pool = NewPool {
            name: name(pool["name"].as_str().expect("a name")),
            site: name("fra1"),
            class: PoolClass::MetalHost,
            owner_tenant: None,
            policy: pool,
            target: None,
            profile_targets: BTreeMap::new(),
        };
        let mut txn = self.db.begin().await.expect("begin");
        sources::ensure(&mut txn, "fleet", "/srv/fleet", "main", "").await.expect("source");
        revisions::insert(&mut txn, &stored, &changes).await.expect("revision");
        pools::upsert(&mut txn, revision, &[pool]).await.expect("pool");
        txn.commit().await.expect("commit");
    }

    /// A signed revision in which the hosts of a pool should be this, verified from the anchor where one is pinned.
    pub(crate) async fn vouch(&self, template: &HostTemplate) {
        let revision = RevisionId::generate();
        let part = Part {
            pool: template.pool.clone(),
            profile: template.profile.clone(),
            targets: BTreeMap::from([(template.profile.clone(), template.digest())]),
            nodes: BTreeMap::new(),
        };
        let manifest = Manifest {
            source: "fleet".to_owned(),
            revision,
            commit: revision.to_string(),
            tree: "tree".to_owned(),
            verified: self.shared.custody.as_ref().and_then(|custody| custody.anchor()),
            files: Digest::of("files"),
            objects: Digest::of("objects"),
            pools: BTreeMap::from([(part.pool.clone(), Digest::of(part.to_bytes()))]),
            moved: Vec::new(),
            before: None,
        };
        let signer = self.keys.checkpoint_signer(&self.shared.realm.fleet_id);
        let signed = manifest.sign(vec![part], &signer);
        let stored = self.revision(revision).await;
        let mut txn = self.db.begin().await.expect("begin");
        revisions::insert(&mut txn, &stored, &[]).await.expect("revision");
        manifests::put(&mut txn, &signed.rows()).await.expect("manifest");
        txn.commit().await.expect("commit");
    }

    async fn revision(&self, revision: RevisionId) -> NewRevision {
        NewRevision {
            id: revision,
            source: "fleet".to_owned(),
            commit: revision.to_string(),
            tree: "tree".to_owned(),
            branch: "main".to_owned(),
            author: "Ada".to_owned(),
            committer: "Ada".to_owned(),
            subject: "a change".to_owned(),
            committed_at: self.db.now().await.expect("time"),
            applied_by: "source".to_owned(),
            digest: Digest::of(revision.to_string()),
            summary: json!({}),
            plan: None,
        }
    }

    /// Assigns a machine to a template, as apply does with the strategy `immediate`.
    pub(crate) async fn assign(&self, machine: &Machine, template: &HostTemplate) {
        let target = Target {
            digest: template.digest(),
            pool: template.pool.clone(),
            profile: template.profile.clone(),
            doc: String::from_utf8(canonical::to_vec(template).expect("canonical")).expect("text"),
        };
        self.vouch(template).await;
        let mut txn = self.db.begin().await.expect("begin");
        pools::insert_targets(&mut txn, &[target]).await.expect("target");
        let assignment = nodes::Assignment { id: machine.id, target: template.digest(), overlay: "{}".to_owned() };
        nodes::set_targets(&mut txn, std::slice::from_ref(&assignment)).await.expect("target");
        nodes::assign(&mut txn, &[assignment]).await.expect("assigned");
        queue::enqueue(&mut txn, &queue::NODESPEC, [machine.id]).await.expect("enqueued");
        txn.commit().await.expect("commit");
    }

    /// A machine that joined the pool `h100` and has a session.
    pub(crate) async fn machine(&self, called: &str) -> Machine {
        let machine = self.machine_of(called, Some("h100")).await;
        self.connect(&machine).await;
        machine
    }

    pub(crate) async fn machine_of(&self, called: &str, pool: Option<&str>) -> Machine {
        let id = NodeId::generate();
        let key = NodeKey::generate();
        let now = self.db.now().await.expect("time");
        let node = nodes::NewNode {
            id,
            name: name(called),
            site: None,
            pool: pool.map(name),
            owner_tenant: None,
            role: Role::Host,
            trust: Trust::Platform,
            labels: BTreeMap::new(),
            declared: false,
            hardware_key: None,
            hardware_key_trusted: false,
            target: None,
            overlay: "{}".to_owned(),
        };
        let cert = node_certs::NodeCert {
            serial: id.as_uuid().as_bytes().to_vec(),
            node_id: id,
            public_key: key.public().as_bytes().to_vec(),
            identity_generation: IdentityGeneration(1),
            not_before: now,
            not_after: Duration::from_secs(86_400).after(now),
            revoked_at: None,
            allowed_kinds: None,
            node_name: None,
        };
        let mut txn = self.db.begin().await.expect("begin");
        nodes::insert(&mut txn, &node).await.expect("node");
        node_certs::insert(&mut txn, &cert).await.expect("certificate");
        queue::enqueue(&mut txn, &queue::NODE, [id]).await.expect("enqueued");
        txn.commit().await.expect("commit");
        Machine { id, key, journal: JournalId::generate(), boot: BootId::generate() }
    }

    pub(crate) async fn connect(&self, machine: &Machine) -> Epoch {
        let open = sessions::SessionOpen {
            node_id: machine.id,
            gateway_id: GatewayId::generate(),
            boot_id: machine.boot,
            journal_id: machine.journal,
            serial: machine.id.as_uuid().as_bytes().to_vec(),
            version: "test".to_owned(),
            described: true,
            commands: true,
            marks: None,
        };
        let mut txn = self.db.begin().await.expect("begin");
        let opened = sessions::open(&mut txn, &open).await.expect("a session");
        txn.commit().await.expect("commit");
        opened.epoch
    }

    /// Stores signed bytes as a gateway does.
    pub(crate) async fn deliver(
        &self,
        machine: &Machine,
        kind: ReportKind,
        seq: u64,
        payload: Vec<u8>,
        signature: Vec<u8>,
    ) {
        let session = sessions::find(&self.db, machine.id).await.expect("read").expect("a session");
        let report =
            node_reports::NewReport { node_id: machine.id, epoch: session.epoch, kind, seq, payload, signature };
        let mut txn = self.db.begin().await.expect("begin");
        assert_eq!(node_reports::insert(&mut txn, &[report]).await.expect("stored").stored, [machine.id]);
        queue::enqueue(&mut txn, &queue::NODE, [machine.id]).await.expect("enqueued");
        txn.commit().await.expect("commit");
    }

    /// What a machine says that has the stored spec, unless the status names other digests.
    pub(crate) async fn report_status(&self, machine: &Machine, status: &StatusReport) {
        let mut status = status.clone();
        if let Some(stored) = nodes::find_spec(&self.db, machine.id).await.expect("read")
            && stored.generation == status.applied
        {
            let digests = NodeSpec::from_bytes(&stored.bytes).expect("a spec").section_digests();
            let unsaid = status.sections.iter_mut().filter(|(name, ended)| ended.digest == Digest::of(name.as_str()));
            unsaid.for_each(|(name, ended)| ended.digest = digests[name]);
        }
        let (payload, signature) = machine.sign(&self.shared.realm, Purpose::Status, &status);
        self.deliver(machine, ReportKind::Status, status.seq, payload, signature).await;
    }

    pub(crate) async fn report_inventory(&self, machine: &Machine, inventory: &InventoryReport) {
        let (payload, signature) = machine.sign(&self.shared.realm, Purpose::Inventory, inventory);
        self.deliver(machine, ReportKind::Inventory, inventory.seq, payload, signature).await;
    }

    /// A machine that is adopted and has observed generation 1.
    pub(crate) async fn converged(&self, called: &str, template: &HostTemplate) -> Machine {
        let machine = self.machine(called).await;
        self.assign(&machine, template).await;
        self.report_inventory(&machine, &machine.inventory(1, 8)).await;
        self.jobs.settle().await.expect("settled");
        self.report_status(&machine, &machine.status(2, 1)).await;
        self.jobs.settle().await.expect("settled");
        machine
    }

    pub(crate) async fn node(&self, machine: &Machine) -> nodes::Node {
        nodes::get(&self.db, machine.id).await.expect("a node")
    }

    pub(crate) async fn spec(&self, machine: &Machine) -> NodeSpec {
        let stored = nodes::find_spec(&self.db, machine.id).await.expect("read").expect("a spec");
        NodeSpec::from_bytes(&stored.bytes).expect("a spec")
    }

    /// State and reason of the last outcome.
    pub(crate) async fn outcome(&self, reconciler: &str, machine: &Machine) -> (String, String) {
        let outcome = store::outcomes::find(&self.db, reconciler, &machine.id.to_string()).await.expect("read");
        outcome.map_or_else(Default::default, |outcome| (outcome.state, outcome.reason))
    }
}

pub(crate) struct Machine {
    pub(crate) id: NodeId,
    pub(crate) key: NodeKey,
    pub(crate) journal: JournalId,
    pub(crate) boot: BootId,
}

impl Machine {
    pub(crate) fn sign(&self, realm: &Realm, purpose: Purpose, report: &impl serde::Serialize) -> (Vec<u8>, Vec<u8>) {
        let payload = canonical::to_vec(report).expect("canonical");
        let signature = self.key.sign_report(realm, purpose, self.id, &payload);
        (payload, signature)
    }

    /// A status with both sections converged at this generation.
    pub(crate) fn status(&self, seq: u64, generation: u64) -> StatusReport {
        let ended = |section: &str| SectionStatus {
            digest: Digest::of(section),
            state: SectionState::Converged,
            reason: String::new(),
        };
        StatusReport {
            node_id: self.id,
            journal_id: self.journal,
            boot_id: self.boot,
            seq,
            at: "2026-11-29T12:00:00Z".parse().expect("a time"),
            applied: Generation(generation),
            observed: Generation(generation),
            sections: Section::ALL.iter().map(|section| (*section, ended(section.as_str()))).collect(),
            conditions: Vec::new(),
            drift: Vec::new(),
            trust_version: None,
            policy: None,
            binds: false,
        }
    }

    /// A complete inventory with this many GPUs.
    pub(crate) fn inventory(&self, seq: u64, gpus: usize) -> InventoryReport {
        let gpu = |n: usize| json!({ "uuid": format!("GPU-{n}"), "model": "NVIDIA H100 80GB HBM3" });
        let document = |section: &InventorySection| match section {
            InventorySection::Gpus => (0..gpus).map(gpu).collect(),
            InventorySection::Links | InventorySection::Nics | InventorySection::Disks => json!([]),
            InventorySection::Dmi | InventorySection::Cpu | InventorySection::Memory | InventorySection::Os => {
                json!({})
            }
        };
        let sections: BTreeMap<InventorySection, Value> =
            InventorySection::ALL.iter().map(|section| (*section, document(section))).collect();
        InventoryReport {
            node_id: self.id,
            journal_id: self.journal,
            seq,
            at: "2026-11-29T12:00:00Z".parse().expect("a time"),
            described: true,
            digests: sections
                .iter()
                .map(|(section, value)| (*section, canonical::digest(value).expect("canonical")))
                .collect(),
            sections,
        }
    }
}
