//! What people say about the history: that they vouch for a commit, agree to a policy, revoke a key, or mean a rewritten branch.

use clap::{Args, ValueEnum};
use pki::trust::{
    key::TrustKey,
    object::ObjectId,
    policy::{Policy, Rule},
    statement::{Body, RevokeReason, Statement, Step, Under},
    walk::{Ended, Judged, Refusal},
};
use schema::{
    fleet::trust::FILE,
    name::Name,
    time::{Duration, Timestamp},
};
use serde_json::json;

use crate::{
    args::Sure,
    command::verify::remedy,
    exit::{During as _, Exit, Failure},
    output::{
        Output,
        text::{printable, printable_lines},
    },
    statement::{self, Written, write_and_push},
    verified::{Place, Verified, branch_that_is_named, commit},
};

/// Vouch for a commit that waits for another person, whoever signed it.
///
/// Shows which files it changes, asks, and says that its tree is good in the place where it stands. `git show COMMIT` shows all of it.
#[derive(Debug, Args)]
pub struct Vouch {
    /// The commit [default: the first that waits for it]
    #[arg(value_name = "COMMIT")]
    pub commit: Option<String>,
    /// How long it holds
    #[arg(long, value_name = "DURATION", default_value = "168h")]
    pub expires_in: Duration,
    /// What you say
    #[command(flatten)]
    pub said: Said,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

/// Agree to the change of the policy that waits, and prove a key that it gives you.
///
/// Shows what changes and asks. Signs a trust/v1 statement when your word is asked for, and a possess/v1 statement when the key that git
/// signs with is one that the policy adds.
#[derive(Debug, Args)]
pub struct Agree {
    /// What you say
    #[command(flatten)]
    pub said: Said,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

/// Revoke a key at once, without a change of the policy.
///
/// Works forward: nothing that was verified is taken back. A key of your own you may always give up.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The key: SHA256:…, or an OpenPGP fingerprint
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Why
    #[arg(long, value_enum)]
    pub reason: Reason,
    /// The last commit that its owner signed [default: the last that counts]
    #[arg(long, value_name = "COMMIT")]
    pub last_good: Option<String>,
    /// What you say
    #[command(flatten)]
    pub said: Said,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

/// Accept that a branch was rewritten.
///
/// `status` names both commits when a branch does not follow what was verified. It goes on from NEW once enough people of the reseal
/// rule say so; they answer for all of it.
#[derive(Debug, Args)]
pub struct Reseal {
    /// The commit that was verified last
    #[arg(value_name = "OLD")]
    pub old: String,
    /// The commit that takes its place
    #[arg(value_name = "NEW")]
    pub new: String,
    /// How long it holds
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub expires_in: Duration,
    /// What you say
    #[command(flatten)]
    pub said: Said,
    /// Where
    #[command(flatten)]
    pub place: Place,
}

/// How it is said.
#[derive(Debug, Clone, Args)]
pub struct Said {
    /// A line for people
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub message: String,
    /// Sign it, and push nothing
    #[arg(long)]
    pub no_push: bool,
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
}

/// Why a key is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reason {
    /// Its owner has another one
    Superseded,
    /// Somebody else has it
    Compromised,
}

fn under(policy: &Policy) -> Under {
    Under { epoch: policy.epoch(), digest: policy.digest() }
}

/// To the second, as statements have it.
fn ends(after: Duration, now: Timestamp) -> Result<Timestamp, Failure> {
    Timestamp::from_second(after.after(now).as_second()).during("the end is too far away")
}

impl Verified {
    /// Who sits here, when their word counts under a rule of the policy in force.
    fn counts(&self, rule: Option<&Rule>, name: &str) -> Result<Name, Failure> {
        let policy = self.policy()?;
        let you = statement::speaker(&self.dir, policy)?;
        self.refuse_ended(&you.key, policy.reseal().filter(|_| name == "reseal"))?;
        let Some(rule) = rule else {
            return Err(Failure::failed(format!("the policy has no `{name}` rule: nobody's word counts for that")));
        };
        if rule.names(&policy.principals()[&you.principal]) {
            return Ok(you.principal);
        }
        let roles: Vec<&str> = rule.roles.iter().map(|role| role.as_str()).collect();
        Err(Failure::failed(format!(
            "the word of {} does not count: `{name}` names {}",
            you.principal,
            roles.join(", ")
        ))
        .hint("better-compute trust show"))
    }

    /// What a key signs that has ended is not heard. One that somebody revoked still votes on a policy or a history where it is needed.
    fn refuse_ended(&self, key: &TrustKey, vote: Option<&Rule>) -> Result<(), Failure> {
        let needed = |rule: &Rule| {
            let reached = self.walked.reached.as_ref();
            reached
                .zip(self.walked.policy.as_ref())
                .is_some_and(|(reached, policy)| !reached.memory.revoked.denies_vote(key, policy, rule))
        };
        match self.walked.ended(key) {
            None => Ok(()),
            Some(Ended::Revoked(_)) if vote.is_some_and(needed) => Ok(()),
            Some(ended) => {
                Err(Failure::failed(format!("the key {key}, with which git signs here, is {ended}: nobody hears it"))
                    .hint("sign with another key of yours: git config user.signingKey"))
            }
        }
    }
}

impl Vouch {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let looked = Verified::open(&self.place, None)?;
        let branch = branch_that_is_named(&looked.branch)?;
        let refused = looked.walked.refused();
        let named = self.commit.as_deref().map(|name| commit(&looked.repo, name)).transpose()?;
        let Some((judged, refusal)) = refused.filter(|(judged, _)| named.is_none_or(|named| judged.id == named)) else {
            return Err(Failure::failed("no such commit waits for anybody to vouch for it")
                .hint("better-compute verify --dry-run"));
        };
        let Refusal::NotVouched { base, tree, by, may, .. } = refusal else {
            return Err(no_word_helps(judged, refusal));
        };
        let you = looked.counts(looked.policy()?.change(), "change")?;
        let commit = judged.id.short();
        if judged.signer.as_ref().is_some_and(|signer| signer.principal == you) {
            return Err(Failure::failed(format!("{you} signed {commit}, and nobody vouches for an own change"))
                .hint("another person of the `change` rule does it: better-compute trust vouch"));
        }
        if by.contains(&you) {
            return Err(Failure::failed(format!("{you} vouches for {commit} already; others are missing")));
        }
        if !may.contains(&you) {
            let others: Vec<&str> = may.iter().map(Name::as_str).collect();
            let who = if others.is_empty() { "nobody of the `change` rule".to_owned() } else { others.join(", ") };
            return Err(Failure::failed(format!(
                "the word of {you} does not count: a forge signed {commit}, so that who vouches has to be one who may change all of it"
            ))
            .hint(format!("nothing was signed; who may: {who}")));
        }
        let body = Body::Change {
            branch: branch.to_owned(),
            base: *base,
            tree: *tree,
            under: under(looked.policy()?),
            expires: ends(self.expires_in, output.now)?,
        };
        looked.show(judged, &["--stat=72"], output)?;
        let what = format!("vouch for {commit} ({})", judged.subject);
        self.said.say(&looked, looked.policy()?, vec![body], &what, output)
    }
}

impl Agree {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let looked = Verified::open(&self.place, None)?;
        let (judged, step) = waiting_step(&looked)?;
        let next = looked.policy_in(judged)?;
        let you = statement::speaker(&looked.dir, &next)?;
        let old = looked.walked.policy.as_ref();
        looked.refuse_ended(&you.key, looked.walked.policy.as_ref().map(Policy::trust))?;
        let may =
            |policy: &Policy| policy.principals().get(&you.principal).is_some_and(|held| policy.trust().names(held));
        let mut bodies = Vec::new();
        if may(&next) || old.is_some_and(may) {
            bodies.push(Body::Trust(step));
        }
        if old.is_some_and(|old| !old.keys().any(|key| key.raw() == you.key.raw())) {
            bodies.push(Body::Possess(step));
        }
        if bodies.is_empty() {
            return Err(Failure::failed(format!("nobody asks {} about this policy", you.principal)));
        }
        looked.show(judged, &["--unified=1", "--", &looked.in_folder(FILE)], output)?;
        let what = format!("agree to the policy of epoch {} in {} ({})", step.epoch, judged.id.short(), judged.subject);
        self.said.say(&looked, &next, bodies, &what, output)
    }
}

/// The change of the policy that waits for people.
fn waiting_step(looked: &Verified) -> Result<(&Judged, Step), Failure> {
    match looked.walked.refused() {
        Some((judged, Refusal::TrustThreshold { step, .. } | Refusal::NotProven { step, .. })) => Ok((judged, *step)),
        Some((judged, refusal)) => Err(no_word_helps(judged, refusal)),
        None => Err(Failure::failed("no change of the trust policy waits for anybody")
            .hint("commit it first, on the branch that is checked out; better-compute verify --dry-run")),
    }
}

/// What is wrong with the commit that is next, where nobody's word mends it.
fn no_word_helps(judged: &Judged, refusal: &Refusal) -> Failure {
    let failure = Failure::refused(refusal.code(), format!("{} does not count: {refusal}", judged.id.short()));
    failure.hint(remedy(refusal).unwrap_or("better-compute verify --dry-run"))
}

impl Revoke {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let looked = Verified::open(&self.place, None)?;
        let policy = looked.policy()?;
        let Some(key) = policy.keys().find(|key| key.name() == self.key) else {
            return Err(
                Failure::failed(format!("the policy lists no key {}", self.key)).hint("better-compute trust show")
            );
        };
        let (holder, _) = policy.holder(key).expect("a key of a policy has a holder");
        if let Some(ended) = looked.walked.ended(key) {
            return Err(Failure::failed(format!("the key {key} of {holder} is {ended} already")));
        }
        if statement::speaker(&looked.dir, policy)?.principal != *holder {
            looked.counts(policy.revoke(), "revoke")?;
        }
        let last = looked.walked.reached.as_ref().map_or(looked.tip, |reached| reached.commit);
        let last_good = self.last_good.as_deref().map_or(Ok(last), |name| commit(&looked.repo, name))?;
        let reason = match self.reason {
            Reason::Superseded => RevokeReason::Superseded,
            Reason::Compromised => RevokeReason::Compromised,
        };
        let body = Body::Revoke { key: self.key.clone(), reason, last_good, trust_epoch: policy.epoch() };
        self.said.say(&looked, policy, vec![body], &format!("revoke {key} of {holder}"), output)
    }
}

impl Reseal {
    pub(super) fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let (repo, folder) = self.place.open()?;
        let branch = self.place.branch_of(&repo);
        let branch = branch_that_is_named(&branch)?;
        let new = commit(&repo, &self.new)?;
        // What was verified may be on no branch here any more: its id is enough.
        let old = commit(&repo, &self.old).or_else(|failure| self.old.parse::<ObjectId>().map_err(|_| failure))?;
        if old == new {
            let why = format!("OLD and NEW are the same commit, {new}: nothing takes the place of itself");
            return Err(Failure::usage(why).hint(
                "OLD was verified last, NEW is the tip of the rewritten branch: better-compute status names both",
            ));
        }
        // The policy in force is that of the history that was verified.
        let on = Place { branch: Some(old.to_string()), path: Some(folder), ..self.place.clone() };
        let looked = Verified::open(&on, None).or_else(|_| Verified::open(&self.place, None))?;
        let policy = looked.policy()?;
        looked.counts(policy.reseal(), "reseal")?;
        let expires = ends(self.expires_in, output.now)?;
        let body = Body::Reseal { branch: branch.to_owned(), old, new, under: under(policy), expires };
        let what = format!("let {branch} go on from {} in place of {}", new.short(), old.short());
        self.said.say(&looked, policy, vec![body], &what, output)
    }
}

impl Verified {
    /// What a commit changes, as git shows it.
    fn show(&self, judged: &Judged, how: &[&str], output: &Output) -> Result<(), Failure> {
        if output.is_json() {
            return Ok(());
        }
        let id = judged.id.to_string();
        let plain = ["show", "--format=", "--no-color", "--no-ext-diff", "--no-textconv", "--first-parent", &id];
        let text = statement::git(&self.dir, &[&plain, how].concat()).map_err(Failure::failed)?;
        let by = judged.signer.as_ref().map_or_else(String::new, |signer| format!(", signed by {}", signer.principal));
        output.line(format!(
            "{} ({}{by})\n\n{}\n",
            judged.id.short(),
            printable(&judged.subject),
            printable_lines(&text)
        ))
    }

    /// A path of the fleet from the top of the work tree.
    fn in_folder(&self, path: &str) -> String {
        format!(":(top){}", [self.folder.as_str(), path].join("/").trim_start_matches('/'))
    }
}

impl Said {
    /// Asks, signs, and pushes.
    fn say(
        &self,
        looked: &Verified,
        policy: &Policy,
        bodies: Vec<Body>,
        what: &str,
        output: &Output,
    ) -> Result<Exit, Failure> {
        let you = statement::speaker(&looked.dir, policy)?;
        let question = format!("As {}: {}?", you.principal, printable(what));
        if !self.sure.ask(output, &question, "nothing was signed")? {
            return Ok(Exit::Failed);
        }
        let tree = statement::empty_tree(&looked.dir)?;
        let mut written: Vec<(Statement, Written)> = Vec::new();
        for body in bodies {
            let (domain, fleet) = (&looked.walked.trust_domain, looked.walked.fleet);
            let said = Statement::new(domain, fleet, you.principal.clone(), Statement::fresh_nonce(), body);
            let said = said.during("this cannot be said")?;
            let line = if self.message.is_empty() { what } else { self.message.as_str() };
            let made = write_and_push(&looked.dir, (looked.tip, tree), line, &said, policy, !self.no_push)?;
            written.push((said, made));
        }
        if output.is_json() {
            let one = |(said, made): &(Statement, Written)| json!({ "statement": said.body.kind(), "digest": said.digest(), "principal": you.principal, "commit": made.commit, "reference": made.reference, "pushedTo": made.pushed_to() });
            output.json(&written.iter().map(one).collect())?;
            return Ok(Exit::Ok);
        }
        for (said, made) in &written {
            output.line(format!("{} by {}", said.body.kind(), you.principal))?;
            made.tell(false, output)?;
        }
        Ok(Exit::Ok)
    }
}
