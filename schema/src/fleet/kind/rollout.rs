//! `rollout`: how a change travels. This version carries `immediate` only; waves are refused.

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Findings, Subject},
    },
    name::Name,
};

/// A rollout's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rollout {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// All hosts of a pool at once; always true in this version.
    pub immediate: Located<bool>,
}

const WAVES: [&str; 6] = ["wave", "max-unavailable", "spread", "gate", "window", "on-failure"];

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Rollout> {
    let fields = &mut subject.fields;
    let immediate = fields.boolean("immediate", findings);
    let mut waves = false;
    for key in WAVES {
        let Some(entry) = fields.all(key).next() else { continue };
        waves = true;
        let diagnostic = findings
            .at(
                codes::ROLLOUT_WAVES,
                entry.span,
                format!("this version changes all hosts of a pool at once and does not carry `{key}`"),
            )
            .help(
                "write `immediate`, or keep the waves in another branch until a version that carries them is installed",
            );
        findings.push(diagnostic);
    }
    if waves {
        return None;
    }
    let immediate = fields.require("immediate", immediate, findings)?;
    if !immediate.value {
        let diagnostic =
            findings.at(codes::ROLLOUT_WAVES, immediate.at.span, "this version changes all hosts of a pool at once");
        findings.push(diagnostic);
        return None;
    }
    Some(Rollout { name: subject.name.clone(), at: subject.at.clone(), immediate })
}
