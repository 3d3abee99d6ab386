//! From the nodes of the file to a [`PolicyDocument`].

use std::collections::BTreeMap;

use super::{
    COMMANDS, KEY_CLASSES, PathDocument, PolicyDocument, PrincipalDocument, PrincipalKind, Revocation, RevokedDocument,
    RuleDocument, TierDocument, Unknown,
};
use crate::{
    diagnostic::{Span, codes},
    fleet::{
        Located,
        decode::{Fields, Findings},
        doc::{Entry, Form, Object, Scalar},
        kind::form,
    },
    name::Name,
};

/// The highest threshold that is written.
const MOST_PEOPLE: u32 = 100;

/// The format that a policy names, whatever else it holds.
pub(super) fn format(objects: &[Object]) -> Option<u64> {
    let head = objects.iter().find(|object| object.kind.0 == "policy")?;
    let entry = head.fields.iter().find(|entry| entry.key == "format")?;
    match entry.args.first()?.value {
        Scalar::Int(format) => u64::try_from(format).ok(),
        Scalar::Bool(_) | Scalar::Float | Scalar::Text(_) => None,
    }
}

pub(super) fn policy(objects: Vec<Object>, unknown: Unknown, findings: &mut Findings<'_>) -> Option<PolicyDocument> {
    // A policy is one document: its nodes are the keys of it.
    let entries: Vec<Entry> = objects
        .into_iter()
        .map(|object| Entry {
            key: object.kind.0,
            span: object.kind.1,
            args: object.name.into_iter().collect(),
            fields: object.fields,
            form: Form::Node,
        })
        .collect();
    let mut fields = Fields::new("a trust policy", Span::START, &entries);
    let head = fields.record("policy", None, findings, head);
    let head = fields.require("policy", head);
    let principals = named(
        fields.named("principal", ("id", None), findings, |_, fields, findings| principal(fields, findings)),
        findings,
    );
    let paths = fields.named("path", ("pattern", None), findings, path);
    let tiers = fields.named("tier", ("id", None), findings, |_, fields, findings| tier(unknown, fields, findings));
    let mut tiers: Vec<_> = named(tiers, findings).into_iter().collect();
    tiers.sort_by_key(|(_, tier)| tier.at.span);
    let trust = fields.record("trust", None, findings, rule);
    let trust = fields.require("trust", trust);
    let change = fields.record("change", None, findings, rule);
    let reseal = fields.record("reseal", None, findings, rule);
    let revoke = fields.record("revoke", None, findings, alone);
    let releases = fields.record("releases", None, findings, rule);
    let breakglass = fields.record("breakglass", None, findings, |fields, findings| tier(unknown, fields, findings));
    let revoked = fields.named("revoked", ("key", None), findings, |_, fields, findings| revoked(fields, findings));
    if principals.is_empty() {
        fields.require("principal", None::<()>);
    }
    fields.finish(findings);
    let head = head?.value;
    Some(PolicyDocument {
        epoch: head.epoch,
        prev: head.prev,
        unbatched_destructive_per_hour: head.unbatched,
        principals,
        paths,
        tiers,
        trust: trust?,
        change,
        reseal,
        revoke,
        releases,
        breakglass,
        revoked,
    })
}

struct Head {
    epoch: Located<u64>,
    prev: Option<Located<crate::digest::Digest>>,
    unbatched: Option<Located<u32>>,
}

fn head(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Head> {
    let format = fields.integer("format", (1_u32, 1), findings);
    let format = fields.require("format", format);
    let epoch = fields.integer("epoch", (1_u64, u64::from(u32::MAX)), findings);
    let epoch = fields.require("epoch", epoch);
    let prev = fields.parse("prev", "sha256: and 64 hexadecimal digits", findings);
    let unbatched = fields.integer("unbatched-destructive-per-hour", (0_u32, 1_000), findings);
    format?;
    Some(Head { epoch: epoch?, prev, unbatched })
}

/// Things by names that are names.
fn named<T>(things: BTreeMap<String, Located<T>>, findings: &mut Findings<'_>) -> BTreeMap<Name, Located<T>> {
    let mut kept = BTreeMap::new();
    for (text, thing) in things {
        match Name::new(&text) {
            Ok(name) => {
                kept.insert(name, thing);
            }
            Err(error) => {
                let diagnostic = findings.at(codes::BAD_NAME, thing.at.span, error.to_string());
                findings.push(diagnostic);
            }
        }
    }
    kept
}

fn roles(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Vec<Located<Name>> {
    let roles = fields.names("roles", findings);
    if !fields.has("roles") {
        fields.require("roles", None::<()>);
    }
    fields.filled("roles", roles.is_empty(), findings);
    roles
}

fn principal(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<PrincipalDocument> {
    const KINDS: [&str; 3] = ["human", "service", "forge"];
    let kind = fields.word::<PrincipalKind>("kind", &KINDS, findings);
    let kind = fields.require("kind", kind);
    let roles = fields.names("roles", findings);
    let groups = fields.names("groups", findings);
    let keys = fields.lines("key", findings);
    let openpgp = fields.named("openpgp", ("fingerprint", Some("block")), findings, |_, fields, findings| {
        let block = fields.text("block", findings);
        fields.require("block", block).map(|block| block.value)
    });
    fields.filled("key", keys.is_empty(), findings);
    if !fields.has("key") && !fields.has("openpgp") && !fields.unclear() {
        fields.require_either("key", &["openpgp"], None::<()>);
    }
    Some(PrincipalDocument { kind: kind?, roles, groups, keys, openpgp })
}

fn path(pattern: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<PathDocument> {
    let written = Located::new(pattern.to_owned(), fields.place(findings));
    let good = form::keep(Some(written), "a pattern of paths such as pools/**", plain_pattern, findings);
    let roles = roles(fields, findings);
    let changes = fields.integer("changes", (0, MOST_PEOPLE), findings);
    good.map(|_| PathDocument { roles, changes })
}

/// A pattern that begins at the fleet's root.
fn plain_pattern(text: &str) -> bool {
    form::pattern(text) && !text.starts_with('/') && !text.ends_with('/')
}

fn rule(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<RuleDocument> {
    let roles = roles(fields, findings);
    let threshold = fields.integer("threshold", (1, MOST_PEOPLE), findings);
    let threshold = fields.require("threshold", threshold);
    Some(RuleDocument { roles, threshold: threshold? })
}

/// A rule of which one person is enough: whatever it does only takes away.
fn alone(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<RuleDocument> {
    let at = fields.place(findings);
    Some(RuleDocument { roles: roles(fields, findings), threshold: Located::new(1, at) })
}

fn tier(unknown: Unknown, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<TierDocument> {
    let commands = match unknown {
        Unknown::Refused => choices("commands", &COMMANDS, fields, findings),
        Unknown::Kept => fields.lines("commands", findings),
    };
    if !fields.has("commands") {
        fields.require("commands", None::<()>);
    }
    fields.filled("commands", commands.is_empty(), findings);
    let roles = roles(fields, findings);
    let threshold = fields.integer("threshold", (1, MOST_PEOPLE), findings);
    let threshold = fields.require("threshold", threshold);
    let groups =
        fields.table("groups", findings, |entry, findings| Fields::integer_of(entry, (1, MOST_PEOPLE), findings));
    let exclude = fields.names("exclude", findings);
    let keys = choices("keys", &KEY_CLASSES, fields, findings);
    fields.filled("keys", keys.is_empty(), findings);
    let max_nodes = fields.integer("max-nodes", (1, 100_000), findings);
    let max_nodes = fields.require("max-nodes", max_nodes);
    let max_ttl = fields.parse("max-ttl", "a duration such as 4h", findings);
    let max_ttl = fields.require("max-ttl", max_ttl);
    Some(TierDocument {
        commands,
        roles,
        threshold: threshold?,
        groups,
        exclude,
        keys,
        max_nodes: max_nodes?,
        max_ttl: max_ttl?,
    })
}

/// A list of words.
fn choices(
    key: &'static str,
    words: &[&str],
    fields: &mut Fields<'_>,
    findings: &mut Findings<'_>,
) -> Vec<Located<String>> {
    let texts = fields.lines(key, findings);
    texts.into_iter().filter(|text| crate::fleet::decode::one_of(text, words, findings)).collect()
}

fn revoked(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<RevokedDocument> {
    const STATES: [&str; 2] = ["retired", "compromised"];
    let state = fields.word::<Revocation>("as", &STATES, findings);
    let state = fields.require("as", state);
    let id = |text: &str| {
        matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let since = form::keep(fields.text("since", findings), "the whole id of a commit", id, findings);
    if let Some((since, Revocation::Retired)) = since.as_ref().zip(state.as_ref().map(|state| state.value)) {
        let message = "a key that is retired signs no more from here on: `since` belongs to one that is compromised";
        let diagnostic = findings.at(codes::CONFLICT, since.at.span, message);
        findings.push(diagnostic);
    }
    let reason = fields.line("reason", findings);
    Some(RevokedDocument { state: state?, since, reason })
}
