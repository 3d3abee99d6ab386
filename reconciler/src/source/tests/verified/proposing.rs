//! What callers ask to be proposed: one signed commit at its place, whatever dies in between, and in words why there is none.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use pki::trust::{
    commit::Commit,
    service::{ServiceKey, Unsigned},
    statement::Step,
};
use store::{
    batches::{self, Batch, NewBatch, Origin, Put, proposals},
    testing::steal,
};

use super::*;
use crate::{
    batch::proposal::{Wish, Written, write},
    source::{GitAccess, SourceConfig},
};

const PLACE: &str = "refs/heads/bc/proposals/kernel";

/// Where else the repository is, and how it is reached: over a stand-in for ssh that runs what a server would run.
pub(super) struct Server {
    pub(super) config: SourceConfig,
    pub(super) access: GitAccess,
    pub(super) data: tempfile::TempDir,
}

impl People {
    fn service_key(&self) -> ServiceKey {
        self.keys.service().iter().next().expect("a key")
    }

    /// A control plane with a key that the policy of the second epoch names; the key proves itself.
    async fn proposing() -> Option<Self> {
        let mut people = Self::pinned("").await?;
        people.keys.add_service_key();
        people.custody.use_keys(&people.keys.source());
        let before = people.in_tree();
        let line = people.service_key().line();
        let more = format!(
            "principal \"robot\" {{ kind \"service\"; roles \"proposer\"; key \"{line}\"; }}\npath \"batches/**\" {{ roles \"admin\" \"operator\" \"proposer\"; }}\n"
        );
        people.git().write(FILE, &people.policy(2, Some(&before), &more));
        let tip = people.sign("ada", "trust: the control plane proposes");
        let next = people.in_tree();
        let step = Step { prev: before.digest(), next: next.digest(), epoch: 2 };
        people.say("ada", Body::Trust(step));
        assert_eq!(people.held().await.detail.expect("why")["code"], "key-not-proven");
        let proof = people.statement("robot", Body::Possess(step));
        let tree = people.git().git(&["hash-object", "-t", "tree", "-w", "/dev/null"]).parse().expect("a tree");
        let (by, at) = ("robot <robot@test.example>", later());
        let unsigned = Unsigned { tree, parent: id(&tip), by, at, message: &proof.write("it has its key") };
        let raw = people.service_key().commit(&unsigned).expect("a commit");
        let file = people.secrets.path().join("raw");
        std::fs::write(&file, raw).expect("a file");
        let made = people.git().git(&["hash-object", "-t", "commit", "-w", &file.display().to_string()]);
        people.git().git(&["update-ref", &proof.reference(), &made]);
        people.goes().await;
        Some(people)
    }

    /// What `commandBatches.create` writes.
    async fn ask(&self, reason: &str, genuine: bool) -> Batch {
        let db = self.world.db.db();
        let (kernel, node) = (Name::new("kernel").expect("a name"), Name::new("h100-0a1b2c3d").expect("a name"));
        let wish = Wish {
            name: &kernel,
            command: "node.reboot",
            payload: serde_json::Map::new(),
            nodes: vec![&node],
            reason,
            proposer: None,
            not_before: None,
            expires: later(),
            max_in_flight: None,
            max_failures: None,
            spread: None,
        };
        let Written { text, doc, .. } = write(&wish).expect("it can be written");
        let mut txn = db.begin().await.expect("begins");
        let now = txn.now().await.expect("a time");
        let new = NewBatch {
            name: kernel.clone(),
            origin: Origin::Proposal,
            quorum: true,
            kind: "node.reboot".to_owned(),
            doc,
            place: None,
            why: reason.to_owned(),
            plan: None,
            signed: None,
            proposer: None,
            evidence: None,
            created_by: "token/ci".to_owned(),
            not_before: now,
            expires: later(),
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
        };
        let Put::Fresh(batch) = batches::put(&mut txn, &new, &[], None).await.expect("put") else {
            panic!("the name was used")
        };
        let seal = self.keys.service().seal(self.custody.realm());
        let words = proposals::words(batch, &kernel, &new.created_by, &text);
        let mark = seal.filter(|_| genuine).map_or_else(|| vec![0; 32], |seal| seal.tag(&words));
        proposals::ask(&mut txn, batch, &text, &mark).await.expect("asked");
        txn.commit().await.expect("commits");
        self.kernel().await
    }

    async fn kernel(&self) -> Batch {
        batches::find(self.world.db.db(), "kernel").await.expect("reads").expect("a batch")
    }

    async fn forget_batches(&self) {
        steal(self.world.db.db(), "DELETE FROM batches").await.expect("deleted");
    }

    fn place(&self) -> String {
        self.git().git(&["for-each-ref", "--format=%(objectname)", PLACE])
    }

    /// Why the batch has no commit, after a pass.
    async fn hindered(&self) -> String {
        self.goes().await;
        let batch = self.kernel().await;
        assert!(batch.waits_for_commit(), "{batch:?}");
        assert!(batch.message.is_some_and(|message| !message.is_empty()));
        batch.reason.unwrap_or_default()
    }

    pub(super) fn server(&self, script: &str) -> Server {
        let data = tempfile::tempdir().expect("a directory");
        let ssh = data.path().join("ssh");
        let serve = "while [ \"$1\" != git@host.example ]; do shift; done; shift\nGIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null exec sh -c \"$*\"";
        std::fs::write(&ssh, format!("#!/bin/sh\n{script}\n{serve}\n")).expect("a file");
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let url = format!("ssh://git@host.example{}#main", self.git().path().display());
        let (config, _) = SourceConfig::parse(&url).expect("a url");
        Server {
            config,
            access: GitAccess { ssh_command: Some(ssh.display().to_string()), ..GitAccess::default() },
            data,
        }
    }

    async fn over_ssh(&self, server: &Server) -> Batch {
        let data: PathBuf = server.data.path().join("source");
        let pass = self.world.pass_reaching(server.config.clone(), server.access.clone(), data);
        let passed = pass.with_custody(Some(Arc::clone(&self.custody))).run(&self.world.lease, true).await;
        assert!(matches!(passed, Ok(Passed::InForce { .. })), "{passed:?}");
        self.kernel().await
    }
}

#[tokio::test]
async fn what_is_asked_for_becomes_one_signed_commit_and_no_crash_makes_another() {
    let Some(people) = People::proposing().await else { return };
    let asked = people.ask("a new kernel", true).await;
    people.goes().await;
    let (batch, commit) = (people.kernel().await, people.place());
    assert_eq!(batch.new.plan.as_ref().map(|(plan, _)| plan.as_str()), Some(commit.as_str()));
    assert_eq!((batch.id, batch.new.created_by.as_str(), batch.created_at), (asked.id, "token/ci", asked.created_at));
    assert_eq!(batch.new.proposer.as_deref(), Some("robot"));
    let parent = people.git().git(&["rev-parse", &format!("{commit}^")]);
    assert_eq!(parent, people.head());
    assert_eq!(people.git().git(&["diff", "--name-status", &parent, &commit]), "A\tbatches/kernel.yaml");
    assert!(people.git().git(&["log", "-1", "--format=%s%n%b", &commit]).contains("token/ci"));
    let raw = people.git().git(&["cat-file", "commit", &commit]) + "\n";
    let split = Commit::split(ObjectFormat::Sha1, raw.as_bytes()).expect("a commit");
    let policy = people.in_tree();
    assert_eq!(policy.signer_of(&split).map(|(name, _)| name.as_str()), Some("robot"));
    assert!(people.git().git(&["status", "--porcelain"]).is_empty(), "no work tree was touched");
    people.git().git(&["fsck", "--strict"]);

    // It died after the push, before anything of it was stored.
    people.forget_batches().await;
    people.ask("a new kernel", true).await;
    people.git().write("sites/fra2.kdl", "site \"fra2\" {\n    region \"eu\"\n}\n");
    people.sign("bob", "sites: fra2");
    people.goes().await;
    assert_eq!((people.place(), people.kernel().await.new.plan.map(|(plan, _)| plan)), (commit.clone(), Some(commit)));
}

#[tokio::test]
async fn why_there_is_no_commit_is_said_and_passes_when_it_is_mended() {
    let Some(mut people) = People::proposing().await else { return };
    people.ask("a new kernel", false).await;
    assert_eq!(people.hindered().await, "proposal-unproven");
    people.forget_batches().await;

    people.ask("a new kernel", true).await;
    people.keys.add_service_key();
    people.keys.add_service_key();
    people.custody.use_keys(&people.keys.source());
    assert_eq!(people.hindered().await, "service-unknown");
    people.forget_batches().await;
    assert_eq!(people.place(), "");
}

#[tokio::test]
async fn what_lies_at_its_place_is_left_alone() {
    let Some(people) = People::proposing().await else { return };
    people.git().git(&["update-ref", PLACE, "HEAD"]);
    people.ask("a new kernel", true).await;
    assert_eq!(people.hindered().await, "proposal-taken");
    assert_eq!(people.place(), people.head());
    people.git().git(&["update-ref", "-d", PLACE]);
    people.goes().await;
    let commit = people.place();
    assert_eq!(people.kernel().await.new.plan.map(|(plan, _)| plan), Some(commit));

    people.forget_batches().await;
    people.git().git(&["update-ref", "-d", PLACE]);
    people.git().write("batches/kernel.yaml", "kind: site\nname: fra9\nregion: eu\n");
    people.sign("bob", "sites: in an odd file");
    people.ask("a new kernel", true).await;
    assert_eq!(people.hindered().await, "proposal-taken");
}

#[tokio::test]
async fn a_repository_that_takes_nothing_says_so() {
    let Some(people) = People::proposing().await else { return };
    people.ask("a new kernel", true).await;
    if std::process::Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n") {
        eprintln!("skipped: whoever is root writes everywhere");
        return;
    }
    let objects = people.git().path().join(".git/objects");
    std::fs::set_permissions(&objects, std::fs::Permissions::from_mode(0o555)).expect("permissions");
    let code = people.hindered().await;
    std::fs::set_permissions(&objects, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    assert_eq!(code, "proposal-denied");
}

#[tokio::test]
async fn a_remote_is_pushed_to_and_what_it_says_is_told() {
    let Some(people) = People::proposing().await else { return };
    people.ask("a new kernel", true).await;
    let reads = people.server(
        "case \"$*\" in *receive-pack*) echo 'git@host.example: Permission denied (publickey).' >&2; exit 255;; esac",
    );
    let batch = people.over_ssh(&reads).await;
    assert_eq!(batch.reason.as_deref(), Some("proposal-denied"), "{batch:?}");

    let server = people.server("");
    let hook = people.git().path().join(".git/hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().expect("a folder")).expect("a folder");
    std::fs::write(&hook, "#!/bin/sh\necho 'nobody pushes here' >&2\nexit 1\n").expect("a file");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    let batch = people.over_ssh(&server).await;
    assert_eq!(batch.reason.as_deref(), Some("proposal-refused"), "{batch:?}");
    assert!(batch.message.is_some_and(|message| message.contains("nobody pushes here")));
    assert_eq!(people.place(), "");

    std::fs::remove_file(&hook).expect("it was there");
    let batch = people.over_ssh(&server).await;
    let commit = people.place();
    assert_eq!(batch.new.plan.map(|(plan, _)| plan), Some(commit.clone()), "found in the pass that pushed it");
    assert_eq!(people.git().git(&["rev-parse", &format!("{commit}^")]), people.head());

    // Another process, whose own repository does not have it yet, finds it there.
    people.forget_batches().await;
    people.ask("a new kernel", true).await;
    let other = people.server("");
    let batch = people.over_ssh(&other).await;
    assert_eq!((batch.new.plan.map(|(plan, _)| plan), people.place()), (Some(commit.clone()), commit));
}
