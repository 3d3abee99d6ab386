//! Facts about joins and renewals, against a real database.

use std::sync::Arc;

use pki::{
    Realm, csr,
    hardware::JoinClaims,
    keys::Keys,
    node_key::NodeKey,
    sealed,
    statement::JoinIdentity,
    token::{Token, TokenKind},
    verify::Validity,
};
use proto::{agent::v1 as pb, internal::v1::authority_server::Authority};
use schema::{
    clock::ManualClock,
    digest::Digest,
    generation::Epoch,
    id::{BootId, GatewayId, JoinTokenId, JournalId, NodeId, RevisionId},
    inventory::Dmi,
    name::Name,
    node::{PoolClass, connectivity::DEFAULT_LOST_GRACE},
    object::{Kind, ObjectRef},
    time::Duration,
};
use serde_json::json;
use store::{
    Db,
    join_tokens::{self, NewJoinToken},
    joins::{self, JoinState},
    pools::{self, NewPool},
    revisions::{self, NewRevision, ObjectChange, ObjectState},
    sessions, sources,
    testing::TestDb,
};
use tonic::{Code, Request, Status};

use super::{JoinConfig, JoinService, Signer};

mod admitting;
mod apart;
mod attesting;
mod refusing;
mod renewing;
mod returning;
mod secrets;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

/// A control plane with a database, a pool `h100` and a clock.
pub(super) struct House {
    pub(super) test: TestDb,
    pub(super) db: Db,
    pub(super) keys: Keys,
    pub(super) clock: ManualClock,
    pub(super) service: Arc<JoinService>,
}

impl House {
    pub(super) async fn new() -> Self {
        Self::with(true).await
    }

    pub(super) async fn with(dev: bool) -> Self {
        let test = TestDb::create().await;
        let db = test.db().clone();
        let now = db.now().await.expect("time");
        let keys = Keys::generate("bc.local", now).expect("keys");
        let realm = Realm::new("bc.local", "fleet_test");
        let clock = ManualClock::new(now);
        let signer = Arc::new(Signer::new(keys.command_root().clone(), realm.clone(), now));
        let config = JoinConfig { db: db.clone(), keys: &keys, realm, dev, clock: Arc::new(clock.clone()), signer };
        let service = Arc::new(JoinService::new(config));
        let house = Self { test, db, keys, clock, service };
        house.apply(&[]).await;
        house
    }

    /// A revision with the pool `h100` and these documents.
    pub(super) async fn apply(&self, documents: &[(Kind, serde_json::Value)]) {
        let revision = RevisionId::generate();
        let changes: Vec<ObjectChange> = documents
            .iter()
            .map(|(kind, doc)| ObjectChange {
                object: ObjectRef::new(*kind, name(doc["name"].as_str().expect("a name"))),
                digest: schema::canonical::digest(doc).expect("canonical"),
                doc: doc.to_string(),
                file: "nodes/fra1.kdl".to_owned(),
                line: 7,
                state: ObjectState::Declared,
            })
            .collect();
        let stored = NewRevision {
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
        };
        let pool = NewPool {
            name: name("h100"),
            site: name("fra1"),
            class: PoolClass::MetalHost,
            owner_tenant: None,
            policy: json!({}),
            target: None,
            profile_targets: std::collections::BTreeMap::new(),
        };
        let mut txn = self.db.begin().await.expect("begin");
        sources::ensure(&mut txn, "fleet", "/srv/fleet", "main", "").await.expect("source");
        revisions::insert(&mut txn, &stored, &changes).await.expect("revision");
        pools::upsert(&mut txn, revision, &[pool]).await.expect("pool");
        txn.commit().await.expect("commit");
    }

    /// A token for the pool `h100`, good for a day.
    pub(super) async fn token(&self, uses: u32) -> Token {
        self.token_for("h100", uses).await
    }

    pub(super) async fn token_for(&self, pool: &str, uses: u32) -> Token {
        self.token_with(pool, uses, &json!({}), false).await
    }

    pub(super) async fn token_with(&self, pool: &str, uses: u32, expect: &serde_json::Value, reclaim: bool) -> Token {
        self.mint(|row| NewJoinToken { pool: name(pool), uses, expect: expect.clone(), reclaim, ..row }).await
    }

    /// A token for one machine, which accepts these kinds of commands.
    pub(super) async fn token_of_kinds(&self, kinds: Option<Vec<String>>) -> Token {
        self.mint(|row| NewJoinToken { kinds, ..row }).await
    }

    async fn mint(&self, change: impl FnOnce(NewJoinToken) -> NewJoinToken) -> Token {
        let id = JoinTokenId::generate();
        let text = id.to_string();
        let token = Token::mint(TokenKind::Join, text.strip_prefix(JoinTokenId::PREFIX).expect("a prefix"));
        let row = NewJoinToken {
            id,
            hash: token.hash(),
            pool: name("h100"),
            uses: 1,
            expires_at: DAY.after(self.db.now().await.expect("time")),
            expect: json!({}),
            reclaim: false,
            kinds: None,
            created_by: "test".to_owned(),
        };
        let mut txn = self.db.begin().await.expect("begin");
        join_tokens::create(&mut txn, &change(row)).await.expect("token");
        txn.commit().await.expect("commit");
        token
    }

    pub(super) async fn join(&self, request: &pb::JoinRequest) -> Result<pb::JoinResponse, Status> {
        let mut request = Request::new(request.clone());
        request.metadata_mut().insert("bc-peer", "10.0.0.9:4711".parse().expect("ascii"));
        Authority::join(&*self.service, request).await.map(tonic::Response::into_inner)
    }

    /// The identity in an answer, checked as a node checks it.
    pub(super) fn identity(&self, request: &pb::JoinRequest, answer: &pb::JoinResponse) -> JoinIdentity {
        let signature = answer.signature.clone().expect("signed");
        let signature = pki::worker::Signature {
            worker: signature.worker,
            root_signature: signature.root_signature,
            signature: signature.signature,
        };
        self.keys
            .anchor("fleet_test")
            .verifier()
            .identity(csr::hash(&request.csr), &answer.identity, &signature, Validity::Open)
            .expect("a good signature")
    }

    /// Opens a session of a node with one of its certificates, as a gateway does.
    pub(super) async fn session(&self, node: NodeId, serial: Vec<u8>) -> Epoch {
        let open = sessions::SessionOpen {
            node_id: node,
            gateway_id: GatewayId::generate(),
            boot_id: BootId::generate(),
            journal_id: JournalId::generate(),
            serial,
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

    /// Lets time pass for the database, and has silence judged.
    pub(super) async fn silence(&self, seconds: u64) {
        self.test.advance(std::time::Duration::from_secs(seconds)).await;
        let mut txn = self.db.begin().await.expect("begin");
        sessions::judge(&mut txn, &std::collections::BTreeMap::new(), DEFAULT_LOST_GRACE).await.expect("judged");
        txn.commit().await.expect("commit");
    }

    /// The stored state and reason of a request.
    pub(super) async fn stored(&self, request: &pb::JoinRequest) -> Option<(JoinState, String)> {
        let join = joins::find_by_csr(&self.db, &csr::hash(&request.csr)).await.expect("read");
        join.map(|join| (join.join.state, join.join.reason))
    }
}

/// A machine with a key, a request and two serial numbers of its own.
pub(super) struct Machine {
    pub(super) key: NodeKey,
    pub(super) claims: JoinClaims,
    csr: Vec<u8>,
}

impl Machine {
    pub(super) fn new(serial: &str) -> Self {
        let key = NodeKey::generate();
        let dmi = Dmi {
            serial: Some(serial.to_owned()),
            board_serial: Some(format!("BOARD{}", Digest::of(serial).short())),
            ..Dmi::default()
        };
        let csr = key.request();
        Self { key, claims: JoinClaims { dmi, ..JoinClaims::default() }, csr }
    }

    pub(super) fn request(&self, house: &House, token: &Token) -> pb::JoinRequest {
        let sealed = sealed::seal(&house.keys.anchor("fleet_test"), csr::hash(&self.csr), token).expect("sealed");
        pb::JoinRequest {
            csr: self.csr.clone(),
            token: Some(pb::SealedToken {
                key_id: sealed.key_id,
                encapsulated_key: sealed.encapsulated_key,
                ciphertext: sealed.ciphertext,
            }),
            claims: self.claims.to_bytes(),
            described: true,
            agent_version: "0.1.0".to_owned(),
            evidence: None,
            challenge: Vec::new(),
        }
    }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

pub(super) fn code(status: &Status) -> (Code, String) {
    let word = status.metadata().get("bc-code").expect("a code").to_str().expect("ascii");
    (status.code(), word.to_owned())
}
