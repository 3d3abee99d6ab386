//! `rollout`: how a change travels through a pool: all hosts at once, or in waves.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{form, freeze::window};
use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located, Share,
        decode::{Fields, Findings, Subject},
        window::Window,
    },
    name::Name,
    node::words,
    time::Duration,
};

words! {
    /// What a wave has to show before the next one begins.
    Gate {
        /// Every machine is connected, converged and without a condition that counts.
        Healthy = "healthy",
        /// The pool's acceptance checks pass again.
        Acceptance = "acceptance",
        /// A person says go on.
        Approval = "approval",
    }
}

words! {
    /// What a run does when a wave fails.
    OnFailure {
        /// It stops and waits for a person.
        Pause = "pause",
        /// It goes back to what was proven last.
        Rollback = "rollback",
    }
}

/// How many machines of a pool have the change when a wave is done: a number, a share, or all with some labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Wave {
    /// That many machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Located<u32>>,
    /// That share of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<Located<Share>>,
    /// The machines that have all these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, Located<String>>,
    /// How long the wave has to stay healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<Located<Duration>>,
}

/// A rollout's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Rollout {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// All hosts of a pool at once; a rollout without it has waves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub immediate: Option<Located<bool>>,
    /// The waves, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wave: Vec<Located<Wave>>,
    /// Whether machines that no wave reaches stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Located<bool>>,
    /// How many machines may be out at once: a number or a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<Located<String>>,
    /// The label whose values are failure domains: machines of two of them are never out at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Located<String>>,
    /// What every wave has to show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<Located<Gate>>,
    /// The only time in which waves begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Located<Window>>,
    /// What happens when a wave fails; `pause` when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<Located<OnFailure>>,
}

impl Rollout {
    /// Whether all hosts of a pool change at once.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.wave.is_empty()
    }
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Rollout> {
    let fields = &mut subject.fields;
    let before = findings.errors();
    let rollout = Rollout {
        name: subject.name.clone(),
        at: subject.at.clone(),
        immediate: fields.boolean("immediate", findings),
        wave: fields.records("wave", findings, |fields, findings| Some(wave(fields, findings))),
        partial: fields.boolean("partial", findings).filter(|partial| partial.value),
        max_unavailable: fields.count_or_share("max-unavailable", findings),
        spread: form::keep(fields.text("spread", findings), "the key of a label", form::label_key, findings),
        gate: fields.words("gate", &["healthy", "acceptance", "approval"], findings),
        window: fields.record("window", None, findings, window),
        on_failure: fields.word("on-failure", &["pause", "rollback"], findings),
    };
    fields.filled("gate", rollout.gate.is_empty(), findings);
    // What is wrong with a wave itself would be told a second time.
    if findings.errors() == before {
        shape(&rollout, fields, findings);
    }
    Some(rollout)
}

fn wave(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Wave {
    let percent = fields.share("percent", findings);
    if let Some(none) = percent.as_ref().filter(|percent| percent.as_percent() == 0) {
        let diagnostic = findings.at(codes::BAD_WAVES, none.at.span, "a wave of 0% reaches nobody");
        findings.push(diagnostic);
    }
    let wave = Wave {
        nodes: fields.integer("nodes", (1, 1_000_000), findings),
        percent,
        selector: super::words_of("selector", fields, findings),
        soak: fields.parse("soak", "a duration such as 30m", findings),
    };
    fields.filled("selector", wave.selector.is_empty(), findings);
    let said = ["nodes", "percent", "selector"].into_iter().filter(|key| fields.has(key)).count();
    if said != 1 && !(said == 0 && fields.unclear()) {
        let at = fields.place(findings);
        let message = "a wave says who is in it: one of `nodes`, `percent` and `selector`";
        let diagnostic = findings.at(codes::BAD_WAVES, at.span, message).help("wave percent=\"10%\" soak=\"1h\"");
        findings.push(diagnostic);
    }
    wave
}

/// Either at once, or in waves that grow and end with everybody.
fn shape(rollout: &Rollout, fields: &mut Fields<'_>, findings: &mut Findings<'_>) {
    let at = rollout.at.clone();
    let immediate = rollout.immediate.as_ref().filter(|immediate| immediate.value);
    if let Some(immediate) = immediate {
        for key in ["wave", "partial", "max-unavailable", "spread", "gate", "window", "on-failure"] {
            let Some(span) = fields.all(key).next().map(|entry| entry.span) else { continue };
            let diagnostic = findings
                .at(codes::CONFLICT, span, format!("`{key}` is about waves, and this rollout is immediate"))
                .also(&immediate.at, "immediate");
            findings.push(diagnostic);
        }
        return;
    }
    let Some(last) = rollout.wave.last() else {
        if !fields.has("wave") && !["wave", "immediate"].iter().any(|key| fields.misspelt(key)) {
            let diagnostic = findings
                .at(codes::MISSING_KEY, at.span, "a rollout says `immediate`, or has waves")
                .help("wave nodes=1 soak=\"30m\"; wave percent=\"100%\"");
            findings.push(diagnostic);
        }
        return;
    };
    let all = Share::percent(100);
    if rollout.partial.is_none() && last.percent.as_ref().map(|percent| percent.value) != all {
        let diagnostic = findings
            .at(codes::BAD_WAVES, last.at.span, "the last wave does not reach every machine")
            .help("end with wave percent=\"100%\", or say `partial` when the others are to stay as they are");
        findings.push(diagnostic);
    }
    // Machines with some labels come in addition.
    let counted: Vec<&Located<Wave>> = rollout.wave.iter().filter(|wave| wave.selector.is_empty()).collect();
    for (before, wave) in counted.iter().zip(counted.iter().skip(1)) {
        let grows = match (&before.nodes, &before.percent, &wave.nodes, &wave.percent) {
            (Some(before), _, Some(wave), _) => wave.value > before.value,
            (_, Some(before), _, Some(wave)) => wave.value > before.value,
            (_, Some(_), Some(_), _) => false,
            _ => true,
        };
        if !grows {
            let diagnostic = findings
                .at(codes::BAD_WAVES, wave.at.span, "this wave reaches nobody that the one before has not reached")
                .also(&before.at, "the one before")
                .help("waves count everybody who has the change: numbers first, then growing shares");
            findings.push(diagnostic);
        }
    }
}
