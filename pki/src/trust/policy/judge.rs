//! From a document to a policy: admits its keys, and refuses what locks itself out or weakens silently.

use std::collections::{BTreeMap, BTreeSet};

use schema::{
    diagnostic::{Code, Diagnostic, SourceRef, codes},
    fleet::{
        Located,
        trust::{FILE, PolicyDocument, PrincipalDocument, RuleDocument, TierDocument},
    },
    name::Name,
};

use super::{KeyState, PathRule, Policy, Principal, Rule, Tier, reach::reach};
use crate::{
    release,
    trust::key::{Flaw, KeyRefusal, Part, RawKey, TrustKey},
};

/// The longest that any approval holds.
const LONGEST_HOURS: u64 = 24;
/// What an emergency never does.
const NEVER_IN_AN_EMERGENCY: [&str; 2] = ["node.reimage", "disk.wipe"];

/// How much harm a command does: a heavier one never stands in a lower tier than a lighter one. A machine that is older than its
/// policy does not know of every one.
fn weight(command: &str) -> Option<u8> {
    Some(match command {
        "node.reboot" => 0,
        "gpu.reset" => 1,
        "node.reimage" => 2,
        "disk.wipe" => 3,
        _ => return None,
    })
}

pub(super) fn judge(document: &PolicyDocument, found: &mut Vec<Diagnostic>) -> Option<Policy> {
    let mut judge = Judge { document, found, keys: BTreeMap::new(), wrong: false };
    let principals = judge.principals();
    judge.chain();
    let revoked = judge.revoked(&principals);
    let mut paths: Vec<PathRule> = document
        .paths
        .iter()
        .map(|(pattern, rule)| PathRule {
            pattern: pattern.clone(),
            roles: names(&rule.roles),
            changes: rule.changes.as_ref().map(|changes| changes.value),
        })
        .collect();
    paths.sort_by(|a, b| a.pattern.cmp(&b.pattern));
    let rule_of = |rule: &Option<Located<RuleDocument>>| rule.as_ref().map(|rule| rule_from(rule));
    let emergency = Name::new("breakglass").expect("a name");
    let mut policy = Policy {
        epoch: document.epoch.value,
        prev: document.prev.as_ref().map(|prev| prev.value),
        digest: schema::digest::Digest::of([]),
        unbatched_destructive_per_hour: document.unbatched_destructive_per_hour.as_ref().map_or(0, |most| most.value),
        principals,
        paths,
        tiers: document.tiers.iter().map(|(name, tier)| tier_from(name, tier)).collect(),
        trust: rule_from(&document.trust),
        change: rule_of(&document.change),
        reseal: rule_of(&document.reseal),
        revoke: rule_of(&document.revoke),
        releases: rule_of(&document.releases),
        breakglass: document.breakglass.as_ref().map(|tier| tier_from(&emergency, tier)),
        revoked,
    };
    judge.known_words(&policy);
    judge.thresholds(&policy);
    judge.tiers(&policy);
    judge.way_to_change(&policy);
    if judge.wrong {
        return None;
    }
    policy.digest = policy.digest_of();
    found.extend(reach(document, &policy));
    Some(policy)
}

fn names(located: &[Located<Name>]) -> BTreeSet<Name> {
    located.iter().map(|name| name.value.clone()).collect()
}

fn rule_from(rule: &RuleDocument) -> Rule {
    Rule { roles: names(&rule.roles), threshold: rule.threshold.value }
}

fn tier_from(name: &Name, tier: &TierDocument) -> Tier {
    let words = |words: &[Located<String>]| words.iter().map(|word| word.value.clone()).collect();
    let slots = |(group, slots): (&String, &Located<u32>)| Some((Name::new(group).ok()?, slots.value));
    Tier {
        name: name.clone(),
        commands: words(&tier.commands),
        rule: Rule { roles: names(&tier.roles), threshold: tier.threshold.value },
        groups: tier.groups.iter().filter_map(slots).collect(),
        exclude: names(&tier.exclude),
        keys: words(&tier.keys),
        max_nodes: tier.max_nodes.value,
        max_ttl: tier.max_ttl.value,
    }
}

struct Judge<'d> {
    document: &'d PolicyDocument,
    found: &'d mut Vec<Diagnostic>,
    /// Whose a raw key is, and where it is written.
    keys: BTreeMap<RawKey, (Name, SourceRef)>,
    wrong: bool,
}

impl Judge<'_> {
    fn tell(&mut self, diagnostic: Diagnostic) {
        self.wrong = true;
        self.found.push(diagnostic);
    }

    fn at(&mut self, code: Code, at: &SourceRef, message: impl Into<String>, help: &str) {
        self.tell(Diagnostic::new(code, at, message).help(help));
    }

    // --- keys ---

    fn principals(&mut self) -> BTreeMap<Name, Principal> {
        let mut principals = BTreeMap::new();
        for (name, principal) in &self.document.principals {
            let keys = self.keys_of(name, principal);
            let (roles, groups) = (names(&principal.roles), names(&principal.groups));
            principals.insert(name.clone(), Principal { kind: principal.kind.value, roles, groups, keys });
        }
        principals
    }

    fn keys_of(&mut self, name: &Name, principal: &PrincipalDocument) -> Vec<TrustKey> {
        let ssh = principal.keys.iter().map(|line| (TrustKey::from_ssh(line), &line.at));
        let openpgp = principal
            .openpgp
            .iter()
            .map(|(fingerprint, block)| (TrustKey::from_openpgp(block, fingerprint), &block.at));
        let mut kept = Vec::new();
        for (key, at) in ssh.chain(openpgp).collect::<Vec<_>>() {
            match key {
                Err(refusal) => self.key_refused(&refusal, at),
                Ok(key) => {
                    if let Some((other, first)) = self.keys.get(&key.raw()).cloned() {
                        let message = if other == *name {
                            format!("principal {name} has this key already")
                        } else {
                            format!("this key belongs to principal {other}, and a key is one principal's for ever")
                        };
                        let twice = Diagnostic::new(codes::KEY_TWICE, at, message)
                            .also(&first, "here it is first")
                            .help("one secret is one vote: everybody makes a key of their own");
                        self.tell(twice);
                        continue;
                    }
                    self.keys.insert(key.raw(), (name.clone(), at.clone()));
                    kept.push(key);
                }
            }
        }
        kept
    }

    fn key_refused(&mut self, refusal: &KeyRefusal, at: &SourceRef) {
        let help = match refusal {
            KeyRefusal::Fingerprint(_) => {
                "name the fingerprint of the key that signs: gpg --list-keys --with-subkey-fingerprint"
            }
            KeyRefusal::Armor(_) => "paste what `gpg --armor --export FINGERPRINT` prints, from BEGIN to END",
            KeyRefusal::NotOneCertificate | KeyRefusal::Packet(_) | KeyRefusal::TooMuch => {
                "paste what `gpg --armor --export --export-options export-minimal FINGERPRINT` prints, for one key"
            }
            KeyRefusal::Revoked => "make another key, and retire this one where it was in force already",
            KeyRefusal::NotForSigning => {
                "name the fingerprint of the key that signs: gpg --list-keys --with-subkey-fingerprint shows [S] beside it"
            }
            KeyRefusal::Unvouched(Part::Back, _) => {
                "sign back with `gpg --edit-key FINGERPRINT cross-certify save`, and paste what `gpg --armor --export FINGERPRINT` prints"
            }
            KeyRefusal::Unvouched(_, Flaw::Hash(_)) => {
                "sign it anew with a strong hash: gpg --cert-digest-algo SHA512 --quick-set-expire FINGERPRINT DATE (or --edit-key \
                 for a subkey), and paste what `gpg --armor --export FINGERPRINT` prints"
            }
            KeyRefusal::Unvouched(_, Flaw::Revoked) => {
                "give the key a user id that stays (gpg --quick-add-uid FINGERPRINT NAME), and export it again"
            }
            KeyRefusal::Unvouched(..) => {
                "paste the whole key, with its user id and its own signatures: gpg --armor --export FINGERPRINT"
            }
            _ => {
                "make one with: ssh-keygen -t ed25519 (or -t ed25519-sk for a security key), and write its .pub line here"
            }
        };
        self.at(codes::KEY_REFUSED, at, format!("this key is not admitted: {refusal}"), help);
    }

    fn revoked(&mut self, principals: &BTreeMap<Name, Principal>) -> BTreeMap<String, KeyState> {
        let known: BTreeSet<String> =
            principals.values().flat_map(|principal| &principal.keys).map(TrustKey::name).collect();
        let mut revoked = BTreeMap::new();
        for (key, revocation) in &self.document.revoked {
            if !known.contains(key) && !self.wrong {
                let message = format!("no principal has a key {key:?}");
                let help = "a key that was revoked stays listed under its principal, so that it is never anybody's again; its \
                            name is what `ssh-keygen -l` prints (SHA256:…), or an OpenPGP fingerprint in capitals";
                self.at(codes::REVOKED_NOBODYS, &revocation.at, message, help);
            }
            let state = match (KeyState::from(revocation.state.value), &revocation.since) {
                (KeyState::Compromised { .. }, Some(since)) => KeyState::Compromised { since: since.parse().ok() },
                (state, _) => state,
            };
            revoked.insert(key.clone(), state);
        }
        revoked
    }

    // --- the chain of policies ---

    fn chain(&mut self) {
        let epoch = &self.document.epoch;
        match (&self.document.prev, epoch.value) {
            (Some(prev), 1) => {
                let (at, help) = (prev.at.clone(), "delete `prev`");
                self.at(codes::POLICY_CHAIN, &at, "the first policy of a fleet follows none", help);
            }
            (None, 2..) => {
                let message = format!("the policy of epoch {} names the one before it", epoch.value);
                let (at, help) =
                    (epoch.at.clone(), "`better-compute verify --dry-run` prints the digest: prev \"sha256:…\"");
                self.at(codes::POLICY_CHAIN, &at, message, help);
            }
            _ => {}
        }
    }

    // --- words ---

    fn known_words(&mut self, policy: &Policy) {
        let document = self.document;
        let mut roles: Vec<&Located<Name>> = document.paths.values().flat_map(|rule| &rule.value.roles).collect();
        let rules = [&document.change, &document.reseal, &document.revoke, &document.releases];
        roles.extend(&document.trust.roles);
        roles.extend(rules.into_iter().flatten().flat_map(|rule| &rule.value.roles));
        let tiers = || document.tiers.iter().map(|(_, tier)| tier).chain(&document.breakglass);
        roles.extend(tiers().flat_map(|tier| &tier.value.roles));
        for role in roles {
            if !policy.principals.values().any(|principal| principal.roles.contains(&role.value)) {
                let message = format!("nobody has the role {:?}", role.as_str());
                self.at(codes::UNKNOWN_ROLE, &role.at, message, "give it to a principal: roles \"…\"");
            }
        }
        for (group, slots) in tiers().flat_map(|tier| &tier.value.groups) {
            let belongs = |principal: &Principal| principal.groups.iter().any(|own| own.as_str() == group);
            if !policy.principals.values().any(belongs) {
                let message = format!("nobody belongs to the group {group:?}");
                self.at(codes::UNKNOWN_ROLE, &slots.at, message, "give it to a principal: groups \"…\"");
            }
        }
        for name in tiers().flat_map(|tier| &tier.value.exclude) {
            if !policy.principals.contains_key(&name.value) {
                let message = format!("there is no principal {:?}", name.as_str());
                self.at(codes::UNKNOWN_ROLE, &name.at, message, "name a principal of this policy");
            }
        }
    }

    // --- thresholds ---

    fn too_few(&mut self, at: &SourceRef, what: &str, threshold: u32, people: usize) {
        if people < threshold as usize {
            let persons = if threshold == 1 { "one person" } else { &format!("{threshold} people") };
            let can = if people == 0 { "nobody can".to_owned() } else { format!("{people} can") };
            let message = format!("{what} takes {persons}, and {can}");
            let help = "lower the threshold, or give the role to more people who have a key that is not revoked; services and \
                        forges are no people";
            self.at(codes::TOO_FEW_PEOPLE, at, message, help);
        }
    }

    fn thresholds(&mut self, policy: &Policy) {
        let document = self.document;
        let rules = [
            ("changing this policy", Some(&document.trust), Some(&policy.trust)),
            ("vouching for a change", document.change.as_ref(), policy.change.as_ref()),
            ("accepting a rewritten history", document.reseal.as_ref(), policy.reseal.as_ref()),
            ("revoking a key", document.revoke.as_ref(), policy.revoke.as_ref()),
        ];
        for (what, written, rule) in rules {
            let Some((written, rule)) = written.zip(rule) else { continue };
            let people = policy.eligible(rule).count();
            self.too_few(&written.threshold.at, what, rule.threshold, people);
        }
        if let Some(written) = &document.releases {
            let (needed, signers) = (written.threshold.value, release::may_sign(policy, &BTreeSet::new()).len());
            if signers < needed as usize {
                let takes = if needed == 1 { "one".to_owned() } else { format!("{needed}") };
                let can = if signers == 0 { "nobody can".to_owned() } else { format!("{signers} can") };
                let message = format!("a release is signed by {takes} of those who may, and {can}");
                let help = "lower the threshold, or give the role to more people or services that have a key which is not revoked";
                self.at(codes::TOO_FEW_PEOPLE, &written.threshold.at, message, help);
            }
        }
        let vouching = policy.change.as_ref().map_or(0, |rule| policy.eligible(rule).count());
        for rule in document.paths.values() {
            if let Some(changes) = &rule.changes {
                self.too_few(&changes.at, "vouching for a change of these paths", changes.value, vouching);
            }
        }
    }

    // --- tiers ---

    fn tiers(&mut self, policy: &Policy) {
        let document = self.document;
        let written: Vec<&Located<TierDocument>> = document.tiers.iter().map(|(_, tier)| tier).collect();
        for (tier, at) in policy.tiers.iter().zip(&written) {
            // Whoever proposes a batch does not approve it, and may be any one of those who could.
            self.approvers(policy, tier, at, 1);
            if at.max_ttl.to_std().as_secs() > LONGEST_HOURS * 3600 {
                let message = format!("an approval holds for {LONGEST_HOURS} hours at most");
                self.at(codes::TIER_TOO_MUCH, &at.max_ttl.at, message, "max-ttl \"4h\" is usual");
            }
        }
        self.order(policy, &written);
        if let Some((tier, at)) = policy.breakglass.as_ref().zip(document.breakglass.as_ref()) {
            self.approvers(policy, tier, at, 0);
            if at.max_ttl.to_std().as_secs() > 3600 {
                self.at(codes::TIER_TOO_MUCH, &at.max_ttl.at, "an emergency lasts an hour at most", "max-ttl \"1h\"");
            }
            for command in at.commands.iter().filter(|command| NEVER_IN_AN_EMERGENCY.contains(&command.as_str())) {
                let message = format!("no emergency allows {}", command.as_str());
                self.at(codes::TIER_TOO_MUCH, &command.at, message, "what is gone cannot be brought back: use a batch");
            }
        }
    }

    fn approvers(&mut self, policy: &Policy, tier: &Tier, at: &Located<TierDocument>, may_be_excluded: usize) {
        let counts = |principal: &Principal| policy.signs(principal, &tier.keys);
        let eligible: Vec<(&Name, &Principal)> = policy
            .eligible(&tier.rule)
            .filter(|(name, principal)| !tier.exclude.contains(*name) && counts(principal))
            .collect();
        let people = eligible.len().saturating_sub(may_be_excluded);
        let what = if may_be_excluded == 0 {
            format!("{} ", tier.name)
        } else {
            format!("tier {}, when one of them proposes,", tier.name)
        };
        self.too_few(&at.threshold.at, what.trim_end(), tier.rule.threshold, people);
        for (group, slots) in &tier.groups {
            let members = eligible.iter().filter(|(_, principal)| principal.groups.contains(group)).count();
            let place = at.groups.get(group.as_str()).map_or_else(|| at.at.clone(), |slots| slots.at.clone());
            self.too_few(&place, &format!("group {group} in tier {}", tier.name), *slots, members);
        }
        let slots: u32 = tier.groups.values().sum();
        if slots > tier.rule.threshold {
            let message = format!("the groups ask for {slots} people, and the threshold for {}", tier.rule.threshold);
            self.at(codes::TOO_FEW_PEOPLE, &at.threshold.at, message, "one person fills one slot: raise the threshold");
        }
    }

    fn order(&mut self, policy: &Policy, written: &[&Located<TierDocument>]) {
        let mut seen: BTreeMap<&str, &SourceRef> = BTreeMap::new();
        for at in written {
            for command in &at.commands {
                if let Some(first) = seen.insert(command.as_str(), &command.at) {
                    let message = format!("{} is in two tiers: which one holds would be a guess", command.as_str());
                    let twice = Diagnostic::new(codes::TIER_ORDER, &command.at, message)
                        .also(first, "the first")
                        .help("write each command once");
                    self.tell(twice);
                }
            }
        }
        for (pair, places) in policy.tiers.windows(2).zip(written.windows(2)) {
            let ([lower, higher], [below, above]) = (pair, places) else { continue };
            let heaviest = lower.commands.iter().filter_map(|command| weight(command)).max();
            let lightest = higher.commands.iter().filter_map(|command| weight(command)).min();
            let mut weaker = Vec::new();
            if higher.rule.threshold < lower.rule.threshold {
                let people = match higher.rule.threshold {
                    1 => "takes one person".to_owned(),
                    many => format!("takes {many} people"),
                };
                weaker.push((&above.threshold.at, people));
            }
            if higher.max_nodes > lower.max_nodes {
                weaker.push((&above.max_nodes.at, format!("allows {} machines", higher.max_nodes)));
            }
            if higher.max_ttl.to_std() > lower.max_ttl.to_std() {
                weaker.push((&above.max_ttl.at, format!("holds for {}", higher.max_ttl)));
            }
            if !lower.keys.is_empty() && (higher.keys.is_empty() || !higher.keys.is_subset(&lower.keys)) {
                weaker.push((&above.at, "takes more classes of keys".to_owned()));
            }
            if heaviest.zip(lightest).is_some_and(|(heaviest, lightest)| lightest < heaviest) {
                weaker.push((&above.at, "has a command that does less harm".to_owned()));
            }
            for (at, how) in weaker {
                let message = format!("tier {} {how}, and the lower tier {} is stricter", higher.name, lower.name);
                let diagnostic = Diagnostic::new(codes::TIER_ORDER, at, message)
                    .also(&below.at, "the lower tier")
                    .help("tiers are written from the least harmful to the most; each is at least as strict as the one before");
                self.tell(diagnostic);
            }
        }
    }

    // --- the way out ---

    fn way_to_change(&mut self, policy: &Policy) {
        if self.wrong {
            return;
        }
        let may = policy.eligible(&policy.trust).any(|(_, principal)| policy.grants(principal, FILE));
        if !may {
            let message = format!("nobody who may change this policy may change {FILE}: it locks itself out");
            let mut out = Diagnostic::new(codes::LOCKED_OUT, &self.document.trust.at, message)
                .help("every path rule that covers trust/policy.kdl has to name a role of them: path \"trust/**\" { roles \"…\"; }");
            for (pattern, rule) in &self.document.paths {
                if schema::fleet::pattern_covers(pattern, FILE) {
                    out = out.also(&rule.at, "this rule covers it");
                }
            }
            self.tell(out);
        }
    }
}
