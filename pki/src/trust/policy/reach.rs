//! What a policy asks for and nobody can give, and where it asks fewer people than elsewhere.
//!
//! All of it warns and refuses nothing: a policy that was agreed to stays one for every later version of a machine and of a control
//! plane, so what is refused is refused from the beginning.

use std::collections::BTreeSet;

use schema::{
    diagnostic::{Diagnostic, SourceRef, codes},
    fleet::{
        Located,
        trust::{FILE, FOLDER, PathDocument, PolicyDocument, PrincipalKind, TierDocument},
    },
    name::Name,
};

use super::{Policy, Principal, Tier};
use crate::{batch::judge::open_slots, release};

/// What is likely not meant in a policy without mistakes.
pub(super) fn reach(document: &PolicyDocument, policy: &Policy) -> Vec<Diagnostic> {
    let reach = Reach { document, policy };
    let found = [reach.changed_by_fewer(), reach.nobody_vouches(), reach.usual_vouching(), reach.releases()];
    found.into_iter().flatten().chain(reach.asked_by_paths()).chain(reach.own_file()).chain(reach.slots()).collect()
}

struct Reach<'d> {
    document: &'d PolicyDocument,
    policy: &'d Policy,
}

impl Reach<'_> {
    /// Fewer people change the policy than something else takes: they can add the others themselves.
    fn changed_by_fewer(&self) -> Option<Diagnostic> {
        let Self { document, policy } = self;
        let mut asked: Vec<(u32, &SourceRef, String)> = Vec::new();
        // Beside them stands whoever signs the change or proposes the batch.
        let others = |people: u32| people.max(2);
        if let Some(rule) = &document.change {
            asked.push((others(rule.threshold.value), &rule.threshold.at, "a change of what runs on hosts".to_owned()));
        }
        for (pattern, rule) in &document.paths {
            if let Some(changes) = rule.changes.as_ref().filter(|changes| changes.value > 0) {
                asked.push((others(changes.value), &changes.at, format!("a change of {pattern}")));
            }
        }
        for (name, tier) in &document.tiers {
            asked.push((others(tier.threshold.value), &tier.threshold.at, format!("a batch of tier {name}")));
        }
        if let Some(rule) = &document.reseal {
            asked.push((rule.threshold.value, &rule.threshold.at, "a rewritten history".to_owned()));
        }
        if let Some(rule) = &document.releases {
            asked.push((rule.threshold.value, &rule.threshold.at, "a release of the daemon".to_owned()));
        }
        if let Some(tier) = &document.breakglass {
            asked.push((tier.threshold.value, &tier.threshold.at, "an emergency".to_owned()));
        }
        let own = policy.trust().threshold;
        let (needed, at, what) = asked.into_iter().rev().max_by_key(|(people, ..)| *people)?;
        if own >= needed {
            return None;
        }
        let who = if own == 1 {
            "one person changes this policy".to_owned()
        } else {
            format!("{own} people change this policy")
        };
        let message = format!("{who}, and {what} takes {needed}: whoever adds people to a policy can be all of them");
        Some(
            Diagnostic::new(codes::CHANGED_BY_FEWER, &document.trust.threshold.at, message)
                .also(at, "this takes more people")
                .help(format!("threshold {needed} in `trust`, once the keys of so many people are there")),
        )
    }

    /// Some things need a second person, and no rule says who that is.
    fn nobody_vouches(&self) -> Option<Diagnostic> {
        let (_, rule) = self.watched().next().filter(|_| self.policy.change().is_none())?;
        let message = "units, files and the kernel of a profile, templates and releases take a second person, and no `change` \
                       rule says who that is: nobody can change them";
        let help = "change { roles \"…\"; threshold 1; }, or `changes 0` in the path rules of who is alone";
        Some(Diagnostic::new(codes::OUT_OF_REACH, &rule.at, message).help(help))
    }

    /// So many vouch by `change`, and whoever signs is one of them.
    fn usual_vouching(&self) -> Option<Diagnostic> {
        let rule = self.document.change.as_ref()?;
        let signers: BTreeSet<&Name> = self.watched().flat_map(|(pattern, _)| self.signers(pattern)).collect();
        let what = "what runs on hosts as root, and releases";
        self.beyond(rule.threshold.value, &signers, &rule.threshold.at, what)
    }

    /// So many vouch by a path rule, and whoever signs is one of them.
    fn asked_by_paths(&self) -> Vec<Diagnostic> {
        let asked = self.document.paths.iter().filter_map(|(pattern, rule)| {
            let changes = rule.changes.as_ref()?;
            self.beyond(changes.value, &self.signers(pattern), &changes.at, &format!("the files of {pattern}"))
        });
        asked.collect()
    }

    /// A manifest carries so many signatures and no more.
    fn releases(&self) -> Option<Diagnostic> {
        let threshold = &self.document.releases.as_ref()?.threshold;
        (threshold.value as usize > release::MOST).then(|| {
            let (most, needed) = (release::MOST, threshold.value);
            let message =
                format!("a release is signed by {needed} of those who may, and its manifest carries {most} signatures");
            Diagnostic::new(codes::OUT_OF_REACH, &threshold.at, message).help("lower the threshold")
        })
    }

    /// The same for the policy's own file, which a wider rule may cover: fewer people sign changes of it.
    fn own_file(&self) -> Option<Diagnostic> {
        let asked = self.document.paths.iter().filter_map(|(pattern, rule)| Some((pattern, rule.changes.as_ref()?)));
        let covers = |pattern: &str| schema::fleet::pattern_covers(pattern, FILE);
        let (pattern, most) = asked.filter(|(pattern, _)| covers(pattern)).max_by_key(|(_, changes)| changes.value)?;
        let told = self.beyond(most.value, &self.signers(pattern), &most.at, pattern).is_some();
        self.beyond(most.value, &self.signers(FILE), &most.at, FILE).filter(|_| !told)
    }

    /// The slots of a tier are filled by different people, and there are not so many.
    fn slots(&self) -> Vec<Diagnostic> {
        let policy = self.policy;
        let emergency = policy.breakglass().zip(self.document.breakglass.as_ref());
        let tiers = policy.tiers().iter().zip(self.document.tiers.iter().map(|(_, tier)| tier)).chain(emergency);
        let open = |(tier, written): (&Tier, &Located<TierDocument>)| {
            let people: BTreeSet<Name> = policy
                .eligible(&tier.rule)
                .filter(|(name, principal)| !tier.exclude.contains(*name) && policy.signs(principal, &tier.keys))
                .map(|(name, _)| name.clone())
                .collect();
            let (group, _) = open_slots(&people, policy, tier).pop_first()?;
            let at = written.groups.get(group.as_str()).map_or(&written.at, |slots| &slots.at);
            let message =
                format!("tier {}: one person fills one slot, and then nobody is left for the group {group}", tier.name);
            let help = "give the group to somebody who fills no other slot, or ask for fewer";
            Some(Diagnostic::new(codes::OUT_OF_REACH, at, message).help(help))
        };
        tiers.filter_map(open).collect()
    }

    /// The path rules that leave it to `change` how many look at what runs as root, and cover files in which that can stand.
    fn watched(&self) -> impl Iterator<Item = (&str, &Located<PathDocument>)> {
        let document = self.document;
        let own = |pattern: &str| pattern.strip_prefix(FOLDER).is_some_and(|rest| rest.starts_with('/'));
        let holds = |pattern: &str| {
            pattern.ends_with('*') || [".kdl", ".yaml", ".yml", ".j2"].iter().any(|end| pattern.ends_with(end))
        };
        let decided = move |pattern: &str| {
            let decides = |(wide, rule): (&String, &Located<PathDocument>)| {
                rule.changes.is_some() && schema::fleet::pattern_covers(wide, pattern)
            };
            document.paths.iter().any(decides)
        };
        let watched = move |pattern: &str| !own(pattern) && holds(pattern) && !decided(pattern);
        document
            .paths
            .iter()
            .map(|(pattern, rule)| (pattern.as_str(), rule))
            .filter(move |(pattern, _)| watched(pattern))
    }

    /// Who signs changes of what a pattern covers.
    fn signers(&self, pattern: &str) -> BTreeSet<&Name> {
        let policy = self.policy;
        let signs = |principal: &Principal| {
            let may = policy.grants(principal, pattern) && policy.signs(principal, &BTreeSet::new());
            principal.kind != PrincipalKind::Forge && may
        };
        policy.principals().iter().filter(|(_, principal)| signs(principal)).map(|(name, _)| name).collect()
    }

    /// A number of people that nobody who signs gets together, for nobody vouches for an own change.
    fn beyond(&self, needed: u32, signers: &BTreeSet<&Name>, at: &SourceRef, what: &str) -> Option<Diagnostic> {
        let rule = self.policy.change()?;
        let vouching: BTreeSet<&Name> = self.policy.eligible(rule).map(|(name, _)| name).collect();
        let others = |signer: &&Name| vouching.len() - usize::from(vouching.contains(*signer));
        let most = signers.iter().map(others).max()?;
        let people = |number: usize| if number == 1 { "one person".to_owned() } else { format!("{number} people") };
        (most < needed as usize).then(|| {
            let message = format!(
                "{what}: {} beside whoever signs have to vouch, and {} can: nobody can change them",
                people(needed as usize),
                if most == 0 { "nobody".to_owned() } else { people(most) },
            );
            Diagnostic::new(codes::OUT_OF_REACH, at, message)
                .help("lower it, or give a role of the `change` rule to more people: nobody vouches for an own change")
        })
    }
}
