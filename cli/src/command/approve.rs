//! `approve`, `reject`, `withdraw`: what a person says about a batch, signed by their own key, after this program has made every
//! number of it again from their own clone.

mod check;
mod show;

use clap::Args;
use pki::{
    batch::{BatchApproval, BatchHeader, Flaw, Leaf, NoVote, may_say},
    trust::{
        policy::Policy,
        statement::{Body, Statement, Word},
    },
};
use serde_json::{Value, json};

use self::check::{Asked, Checked};
use crate::{
    args::{FormatArg, Sure},
    client::{Client, Target},
    exit::{During as _, Exit, Failure},
    output::{Output, note},
    statement::{self, Speaker, Written},
    verified::Place,
};

const APPROVE: &str = "\
Examples:
  better-compute approve batch/2026-12-kernel            in a clone of the fleet repository
  better-compute approve batch/2026-12-kernel --repo ~/fleet --yes
  better-compute approve batch/2026-12-kernel --no-push  sign, and push by hand

Signs with the key that git signs with here (git config gpg.format, user.signingKey). docs/guides/approvals.md has the whole way.";

const REJECT: &str = "\
Examples:
  better-compute reject batch/2026-12-kernel

One rejection is enough, and nothing takes it back: the batch needs another name.";

const WITHDRAW: &str = "\
Examples:
  better-compute withdraw batch/2026-12-kernel

It counts for what was not sent yet, and for this batch for good.";

/// Approve a batch of destructive commands.
///
/// Shows what would be done to which machines, makes the digest of the batch again from this clone and from what each machine signed,
/// asks, and pushes your signed approval to a branch of its own. Nothing is believed that the control plane alone says.
#[derive(Debug, Args)]
#[command(after_help = APPROVE)]
pub struct Approve {
    /// What is said about
    #[command(flatten)]
    pub say: Say,
}

/// Reject a batch of destructive commands.
///
/// Shows the batch as `approve` does, asks, and pushes your signed no. One is enough.
#[derive(Debug, Args)]
#[command(after_help = REJECT)]
pub struct Reject {
    /// What is said about
    #[command(flatten)]
    pub say: Say,
}

/// Take your approval of a batch back.
///
/// Shows the batch as `approve` does, asks, and pushes your signed withdrawal. What was sent already is not called back.
#[derive(Debug, Args)]
#[command(after_help = WITHDRAW)]
pub struct Withdraw {
    /// What is said about
    #[command(flatten)]
    pub say: Say,
}

/// What something is said about, and from where.
#[derive(Debug, Args)]
pub struct Say {
    /// The batch
    #[arg(value_name = "batch/NAME")]
    pub batch: String,
    /// Sign it, and push nothing
    #[arg(long)]
    pub no_push: bool,
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
    /// Where
    #[command(flatten)]
    pub place: Place,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
    /// Which control plane
    #[command(flatten)]
    pub target: Target,
}

impl Approve {
    /// Looks, asks, signs and pushes.
    ///
    /// # Errors
    /// When the batch is not what the clone says, nobody agrees, or git does not sign.
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        self.say.run(Word::Approve, output).await
    }
}

impl Reject {
    /// Looks, asks, signs and pushes.
    ///
    /// # Errors
    /// As [`Approve::run`].
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        self.say.run(Word::Reject, output).await
    }
}

impl Withdraw {
    /// Looks, asks, signs and pushes.
    ///
    /// # Errors
    /// As [`Approve::run`].
    pub async fn run(&self, output: &Output) -> Result<Exit, Failure> {
        self.say.run(Word::Withdraw, output).await
    }
}

impl Say {
    async fn run(&self, word: Word, output: &Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.target)?;
        let asked = Asked::get(&client, &self.batch).await?;
        let checked = check::check(&asked, &self.place, output.now())?;
        let speaker = statement::speaker(&self.place.repo, &checked.policy)?;
        let clock = asked.clock(output.now());
        may(word, &asked, &checked, &speaker, clock.as_deref())?;
        if let Some(clock) = clock {
            note(clock);
        }
        if !output.is_json() {
            output.line(show::render(&asked, &checked, &speaker, output))?;
        }
        if word == Word::Withdraw && asked.machines.iter().any(|machine| machine["state"] == "sent") {
            note("machines of it have begun, and nothing calls that back");
        }
        if word == Word::Withdraw && !approved(&asked, &checked, &speaker) {
            note("no approval of yours is known here; a withdrawal counts all the same, and for good");
        }
        let question = match word {
            Word::Approve => format!("Approve this as {}?", speaker.principal),
            Word::Reject => format!("Reject this for good as {}?", speaker.principal),
            Word::Withdraw => format!("Take your approval back for good as {}?", speaker.principal),
        };
        if !self.sure.ask(output, &question, "nothing was signed")? {
            return Ok(Exit::Failed);
        }
        let written = self.write(word, &checked, &speaker)?;
        self.told(word, (&asked, &checked, &speaker), &written, output)?;
        Ok(Exit::Ok)
    }

    fn write(&self, word: Word, checked: &Checked, speaker: &Speaker) -> Result<Written, Failure> {
        let header = &checked.header;
        let body = Body::Batch {
            word,
            batch: header.name.clone(),
            digest: header.digest(),
            plan_commit: header.plan_commit,
            tier: header.tier.clone(),
            under: header.under,
            not_before: header.not_before,
            expires: header.expires,
        };
        let nonce: [u8; 16] = rand::random();
        let statement = Statement::new(&header.trust_domain, header.fleet, speaker.principal.clone(), nonce, body)
            .during("the statement cannot be written")?;
        let line = match word {
            Word::Approve => format!("approve batch/{}", header.name),
            Word::Reject => format!("reject batch/{}", header.name),
            Word::Withdraw => format!("withdraw the approval of batch/{}", header.name),
        };
        let place = (header.plan_commit, header.plan_tree);
        let (made, raw) = statement::make(&self.place.repo, place, &line, &statement)?;
        if let (Word::Approve, Some(machine)) = (word, checked.machines.first()) {
            reaches_machines(header, &checked.policy, &machine.leaf, &raw)?;
        }
        let signed = (made.as_str(), raw.as_slice());
        statement::keep_and_push(&self.place.repo, place, signed, &statement, &checked.policy, !self.no_push)
    }

    fn told(
        &self,
        word: Word,
        (asked, checked, speaker): (&Asked, &Checked, &Speaker),
        written: &Written,
        output: &Output,
    ) -> Result<(), Failure> {
        let header = &checked.header;
        if output.is_json() {
            return output.json(&json!({
                "batch": header.name, "digest": header.digest(), "principal": speaker.principal, "said": said(word),
                "command": checked.document.command.value.as_str(), "payload": checked.payload,
                "machines": checked.machines.iter().map(|machine| &machine.leaf).collect::<Vec<_>>(),
                "commit": written.commit.to_string(), "reference": written.reference, "remote": written.pushed_to(),
            }));
        }
        let done = match word {
            Word::Approve => "approved",
            Word::Reject => "rejected",
            Word::Withdraw => "withdrawn",
        };
        output.line(format!("batch/{} {done} by {}", header.name, speaker.principal))?;
        written.tell(asked.sources().any(|url| statement::is_here(&self.place.repo, url)), output)?;
        note(format!("how it goes on: better-compute batches {} --watch", header.name));
        Ok(())
    }
}

const fn said(word: Word) -> &'static str {
    match word {
        Word::Approve => "approve",
        Word::Reject => "reject",
        Word::Withdraw => "withdraw",
    }
}

/// Refuses to sign what would not count.
fn may(word: Word, asked: &Asked, checked: &Checked, speaker: &Speaker, clock: Option<&str>) -> Result<(), Failure> {
    let who = &speaker.principal;
    let heard = |word: &str| asked.said(word).contains(&who.as_str());
    let why = match may_say(&checked.question(), word, who, &speaker.key) {
        Err(why) => why,
        // The control plane may have heard what this clone did not fetch.
        Ok(()) if word != Word::Reject && heard("withdrawn") => NoVote::TakenBack(who.clone()),
        Ok(()) if asked.said("revoked").contains(&speaker.key.name().as_str()) => {
            let why = format!("the control plane heard that {} is revoked, and this clone did not", speaker.key.name());
            return Err(Failure::refused(NoVote::KeyRevoked.code(), why).hint("nothing was signed; git pull"));
        }
        Ok(()) => return Ok(()),
    };
    let what = match word {
        Word::Approve => "approval",
        Word::Reject => "rejection",
        Word::Withdraw => "withdrawal",
    };
    let failure = statement::refused(why.code(), format!("this {what} does not count: {why}"));
    if let Some(clock) = clock.filter(|_| is_of_time(&why)) {
        return Err(failure.hint(format!("nothing was signed; {clock}")));
    }
    let others: Vec<String> = checked.candidates().iter().map(ToString::to_string).collect();
    let somebody_else = matches!(why, NoVote::Excluded(_) | NoVote::NoRole(_) | NoVote::TakenBack(_));
    Err(if word == Word::Approve && somebody_else && !others.is_empty() {
        failure.hint(format!("nothing was signed; who can still approve it: {}", others.join(", ")))
    } else {
        failure
    })
}

/// Whether it would count at another time.
const fn is_of_time(why: &NoVote) -> bool {
    matches!(why, NoVote::Expired(_) | NoVote::Flaw(Flaw::Expired(_)))
}

/// Refuses an approval of which as many as it takes are more than a machine reads.
fn reaches_machines(header: &BatchHeader, policy: &Policy, leaf: &Leaf, raw: &[u8]) -> Result<(), Failure> {
    let Some(tier) = policy.tiers().iter().find(|tier| tier.name == header.tier) else { return Ok(()) };
    let people = tier.rule.threshold.max(tier.groups.values().sum());
    let all = vec![raw.to_vec(); people as usize];
    BatchApproval::fits(header, leaf, all).map_err(|why| {
        let bytes = raw.len();
        let what = format!("this approval has {bytes} bytes, and {people} of that size reach no machine: {why}");
        statement::refused("approval-too-large", what)
    })
}

/// Whether somebody's approval is known, here or where the control plane listens.
fn approved(asked: &Asked, checked: &Checked, speaker: &Speaker) -> bool {
    asked.said("yes").contains(&speaker.principal.as_str()) || checked.tally().yes.contains(&speaker.principal)
}

/// A member of an answer as text; `-` when it is not there.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or("-")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use pki::{
        batch::testing::{Fleet, Person, object, policy},
        trust::statement::Under,
    };
    use schema::{
        digest::Digest,
        generation::{Generation, IdentityGeneration},
        id::{JournalId, NodeId},
        name::Name,
        time::Timestamp,
    };

    use super::*;

    #[test]
    fn a_clock_that_is_far_off_is_told_by_how_much_and_one_that_is_near_is_not() {
        let asked = Asked {
            batch: json!({}),
            machines: Vec::new(),
            status: json!({ "now": "2026-12-07T08:00:00.123Z" }),
            realm: pki::Realm::new("acme.example", "fleet"),
        };
        let told = |now: &str| asked.clock(now.parse().expect("a time"));
        assert_eq!(told("2026-12-07T08:00:29Z"), None);
        let ahead = told("2026-12-07T13:00:03Z").expect("told");
        assert!(
            ahead.starts_with("your clock is 5h ahead of the control plane's, which says 2026-12-07 08:00"),
            "{ahead}"
        );
        assert!(told("2026-12-05T08:00:00Z").is_some_and(|told| told.contains("2d behind")));
        assert!(is_of_time(&NoVote::Flaw(Flaw::Expired(Timestamp::UNIX_EPOCH))));
        assert!(!is_of_time(&NoVote::KeyRevoked));
    }

    #[test]
    fn an_approval_that_reaches_no_machine_is_not_kept() {
        let (ada, name) = (Person::new("ada"), |text: &str| Name::new(text).expect("a name"));
        let people: Vec<Person> = (0..10).map(|number| Person::new(&format!("p{number}"))).collect();
        let line = |who: &Person| {
            format!("principal \"{}\" {{ kind \"human\"; roles \"ops\"; key \"{}\"; }}\n", who.name, who.line())
        };
        let text = format!(
            "policy {{ format 1; epoch 1; }}\n{}path \"**\" {{ roles \"ops\"; }}\ntrust {{ roles \"ops\"; threshold 1; }}\n\
             tier \"reboot\" {{ commands \"node.reboot\"; roles \"ops\"; threshold 9; max-nodes 4; max-ttl \"4h\"; }}\n",
            people.iter().chain([&ada]).map(line).collect::<String>()
        );
        let (fleet, policy) = (Fleet::new("acme.example"), policy(&text));
        let leaf = Leaf {
            index: 0,
            name: name("n0"),
            node: NodeId::generate(),
            identity_generation: IdentityGeneration(1),
            hardware_key: "none".to_owned(),
            journal: JournalId::generate(),
            kind: "node.reboot".to_owned(),
            payload: Digest::of("{}"),
            min_generation: Generation(0),
            preconditions: BTreeMap::new(),
        };
        let header = BatchHeader {
            trust_domain: fleet.trust_domain.clone(),
            fleet: fleet.id,
            name: name("kernel"),
            tier: name("reboot"),
            proposer: None,
            excluded: BTreeSet::new(),
            not_before: Timestamp::UNIX_EPOCH,
            expires: Timestamp::UNIX_EPOCH,
            plan_commit: object("plan"),
            plan_tree: object("tree"),
            under: Under { epoch: 1, digest: policy.digest() },
            reason: "a kernel".to_owned(),
            max_in_flight: 1,
            max_failures: 0,
            spread: None,
            leaves: 1,
            root: leaf.hash(),
        };
        let usual = fleet.approve(&ada, &header);
        reaches_machines(&header, &policy, &leaf, &usual).expect("small enough");
        let large = [usual, vec![b'x'; 12 << 10]].concat();
        let refused = reaches_machines(&header, &policy, &leaf, &large).expect_err("too large");
        assert!(refused.message.contains("(approval-too-large)") && refused.hint.is_some(), "{refused}");
    }
}
