//! Binding: what is harder than the fleet lets go unseen goes only as a plan showed it.
//!
//! Nothing but the change itself is compared: the machine, the spec before, the spec after, and how hard that is. So a
//! plan that was shown stays good while other machines come, go and change, and is of no use for a machine whose change
//! is another one by now.

use schema::{digest::Digest, effect::EffectClass, name::Name};

use super::{GateWord, Held, Shown};

/// A move, as far as showing it matters.
pub(super) struct Move<'m> {
    pub(super) node: &'m Name,
    pub(super) pool: Option<&'m Name>,
    pub(super) declared: bool,
    /// It should be that already, and was held.
    pub(super) behind: bool,
    pub(super) before: Option<Digest>,
    pub(super) after: Option<Digest>,
    pub(super) before_spec: Option<Digest>,
    pub(super) after_spec: Option<Digest>,
    pub(super) effect: EffectClass,
    /// One of the specs cannot be made, so that `effect` is not the whole of it.
    pub(super) unknown: bool,
}

/// Nobody named a plan yet: what every plan of such a change says before it is merged.
pub(super) const UNNAMED: &str = "no plan is named";

/// Why a move does not go by what was shown; `None`: it goes.
pub(super) fn judge(class: EffectClass, shown: &[Shown], missing: &[Digest], one: &Move<'_>) -> Option<Held> {
    if (one.effect < class && !one.unknown) || shown.iter().any(|shown| covers(shown, one)) {
        return None;
    }
    let by = match (shown.last(), shown.iter().rev().find_map(|shown| shown.nodes.get(one.node))) {
        (_, None) if !missing.is_empty() => format!(
            "the commit names {}, which is not known here: plan again, and put its trailer into a new commit",
            missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ),
        (None, _) => UNNAMED.to_owned(),
        (Some(_), None) => "not in the plan that was shown".to_owned(),
        (Some(_), Some(known)) => against(known, one),
    };
    Some(Held { gate: GateWord::Bind, by, until: None })
}

/// What was shown, against what is the case.
fn against(known: &(Option<Digest>, Option<Digest>, EffectClass), one: &Move<'_>) -> String {
    let (before, after, effect) = *known;
    let mut differs = Vec::new();
    if effect != one.effect {
        differs.push(format!("shown as {effect}, {} now", one.effect));
    }
    if before != one.before_spec {
        differs.push("told something else now than when the plan was shown".to_owned());
    }
    if after != one.after_spec {
        differs.push("to be told something else than what the plan shows".to_owned());
    }
    differs.join("; ")
}

fn covers(shown: &Shown, one: &Move<'_>) -> bool {
    if shown.carried && !one.behind {
        return false;
    }
    match shown.nodes.get(one.node) {
        Some(known) => *known == (one.before_spec, one.after_spec, one.effect),
        // It joined after that: the change of its pool was shown, on the machines that were there. A plan made of trees
        // alone speaks of declared machines only.
        None if one.unknown || (shown.offline && !one.declared) => false,
        None => match (one.pool, one.before, one.after) {
            (Some(pool), Some(before), Some(after)) => {
                shown.targets.get(&(pool.clone(), before, after)).is_some_and(|hardest| one.effect <= *hardest)
            }
            _ => false,
        },
    }
}
