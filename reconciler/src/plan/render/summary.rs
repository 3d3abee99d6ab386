//! What a reviewer needs before anything else: how many machines, how hard, where, and what does not go.

use std::collections::BTreeMap;

use schema::effect::EffectClass;

use super::{
    groups::{self, Row},
    page::{Ink, Line},
    quiet::quiet,
    sections::{self, Fold, count},
};
use crate::plan::{ObservedFrom, Plan, PoolPlan, Verification};

/// Whether the plan would change nothing at all.
pub(in crate::plan) const fn is_empty(plan: &Plan) -> bool {
    plan.objects.is_empty()
        && plan.nodes.is_empty()
        && plan.targets.is_empty()
        && plan.holds.is_empty()
        && plan.moved.is_empty()
}

/// What is compared with what.
pub(in crate::plan) fn compared(plan: &Plan) -> (String, String) {
    let short = |commit: &String| quiet(commit.get(..10).unwrap_or(commit));
    let to = plan.commit.as_ref().map_or_else(|| "the working tree".to_owned(), short);
    (to, plan.base.as_ref().map_or_else(|| "nothing: it is the first".to_owned(), short))
}

/// Where the facts come from, and who vouches for the commit.
pub(in crate::plan) fn facts(plan: &Plan) -> [String; 2] {
    let observed = match plan.inputs.observed {
        ObservedFrom::Offline => "offline: declared machines only",
        ObservedFrom::Live => "live: the machines that the control plane knows",
    };
    let signatures = match (&plan.signatures, plan.verification) {
        (Some(said), _) => quiet(said),
        (None, Verification::Verified) => "verified: people whom the trust policy names signed for it".to_owned(),
        (None, Verification::Unverified) => "unverified: nobody's signature was looked at".to_owned(),
    };
    [observed.to_owned(), signatures]
}

/// The number of machines per class, of those that go or of those that are held.
fn classes(plan: &Plan, held: bool) -> BTreeMap<EffectClass, usize> {
    let mut classes = BTreeMap::new();
    for node in plan.nodes.iter().filter(|node| node.held.is_empty() != held) {
        *classes.entry(node.effect).or_default() += 1;
    }
    classes
}

/// Machines in one sentence.
pub(in crate::plan) fn machines(plan: &Plan) -> String {
    let counts = &plan.counts;
    let mut text = match (counts.machines, counts.moves) {
        (0, _) => "no machine is known yet".to_owned(),
        (machines, 0) => format!("no machine of {machines} moves"),
        (machines, moves) => {
            let (going, held) = (classes(plan, false), classes(plan, true));
            let waiting = held.values().sum::<usize>();
            let mut parts = Vec::new();
            match moves.saturating_sub(waiting) {
                0 => parts.push(format!("no machine of {machines} moves now")),
                going_on => {
                    let verb = if going_on == 1 { "moves" } else { "move" };
                    let machines = count(machines, "machine");
                    parts.push(format!("{going_on} of {machines} {verb} ({})", groups::classes(&going)));
                }
            }
            if waiting > 0 {
                let verb = if waiting == 1 { "is" } else { "are" };
                parts.push(format!("{waiting} {verb} held ({})", groups::classes(&held)));
            }
            parts.join(", ")
        }
    };
    if let Some(waiting) = counts.awaiting_boot.filter(|waiting| *waiting > 0) {
        text.push_str(&format!(", {waiting} {} for a boot already", if waiting == 1 { "waits" } else { "wait" }));
    }
    if counts.undeclared > 0 {
        text.push_str(&format!(", {} without a document", counts.undeclared));
    }
    if counts.awaited > 0 {
        text.push_str(&format!(", {} declared and not joined yet", counts.awaited));
    }
    text
}

/// Objects in one sentence.
pub(in crate::plan) fn objects(plan: &Plan) -> String {
    let counts = &plan.counts;
    let parts: Vec<String> = [
        (counts.create, "new"),
        (counts.update, "changed"),
        (counts.moved, "renamed"),
        (counts.restore, "back"),
        (counts.remove, "removed"),
        (counts.held, "kept by a gate"),
        (counts.retain, "retained"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, word)| format!("{number} {word}"))
    .collect();
    let changes = if parts.is_empty() { "no object changes".to_owned() } else { parts.join(", ") };
    format!("{changes} ({} unchanged)", counts.unchanged)
}

/// What a reader has to know of reboots, where the plan has some: what they are, and which machines wait for one anyhow.
pub(in crate::plan) fn staged(plan: &Plan) -> Vec<String> {
    let reboots = plan.nodes.iter().filter(|node| node.effect == EffectClass::Reboot);
    let (mut all, mut already) = (0, 0);
    for node in reboots {
        all += 1;
        already += usize::from(node.awaits_boot);
    }
    if all == 0 {
        return Vec::new();
    }
    let mut out =
        vec!["reboot: staged, and in effect from each machine's next boot; nothing reboots by itself".to_owned()];
    out.extend(plan.counts.awaiting_boot.filter(|waiting| *waiting > 0).map(|waiting| {
        let wait = if waiting == 1 { "waits" } else { "wait" };
        format!(
            "{} already {wait} for a boot, {already} of these among them; this plan adds {}",
            count(waiting, "machine"),
            all - already
        )
    }));
    out
}

/// What is bound to a plan that is shown, where this plan has such effects.
pub(in crate::plan) struct Bound<'p> {
    /// From which class on, and how.
    pub(in crate::plan) from: String,
    /// Machines that wait for it, and for what.
    pub(in crate::plan) held: Option<String>,
    /// What to do with the trailer.
    pub(in crate::plan) how: String,
    /// The line for the merge.
    pub(in crate::plan) trailer: &'p str,
}

/// The same; nothing when no machine of the plan is bound, so that a line to paste would do nothing.
pub(in crate::plan) fn bound(plan: &Plan) -> Option<Bound<'_>> {
    let bind = plan.bind.as_ref()?;
    if bind.held == 0 && !plan.nodes.iter().any(|node| node.effect >= bind.class) {
        return None;
    }
    let class = groups::said(bind.class);
    let held = (bind.held > 0).then(|| match &bind.shown {
        None => format!("{} for a commit that names this plan.", waits(bind.held)),
        Some(shown) => format!(
            "{}: the plan that the commit names ({}) does not show them like this.",
            waits(bind.held),
            shown.short()
        ),
    });
    Some(Bound {
        from: format!("Effects from {class} on go only when the commit names a plan that shows them."),
        held,
        how: format!(
            "To let exactly this plan go{}, end the message of the merge with this line; when it is merged already, that of an empty commit:",
            offline_lets_go(plan)
        ),
        trailer: &bind.trailer,
    })
}

fn waits(machines: usize) -> String {
    format!("{} {}", count(machines, "machine"), if machines == 1 { "waits" } else { "wait" })
}

/// How many machines go in one step, where that is more than one: nothing of theirs travels in waves.
pub(in crate::plan) fn at_once(plan: &Plan) -> Option<usize> {
    let going = |pool: &PoolPlan| pool.moves.saturating_sub(pool.held);
    let going = plan.pools.iter().filter(|pool| pool.strategy == "immediate").map(going).sum();
    (going > 1 && plan.nodes.iter().any(|node| node.effect > EffectClass::None)).then_some(going)
}

/// What a plan that was made offline cannot let go.
fn offline_lets_go(plan: &Plan) -> &'static str {
    match plan.inputs.observed {
        ObservedFrom::Offline => " (declared machines only: for the others a live plan's line is needed)",
        ObservedFrom::Live => "",
    }
}

/// The table of machines: class, how many, where.
pub(in crate::plan) fn table(plan: &Plan, fold: Fold) -> Vec<Line> {
    let rows = groups::rows(plan);
    let shown = if rows.len() <= fold.most.saturating_add(2) { rows.len() } else { fold.most.max(1) };
    let column = rows.iter().map(|row| groups::pool_words(&row.pools).chars().count()).max().unwrap_or(0).min(40);
    let mut out = Vec::new();
    let mut last = None;
    for Row { class, pools, nodes, held } in &rows[..shown] {
        let word = if last == Some(*class) { "" } else { groups::said(*class) };
        last = Some(*class);
        let held = if *held > 0 { format!("{held} held  ") } else { String::new() };
        let room = if fold.most == usize::MAX {
            usize::MAX
        } else {
            fold.width.saturating_sub(30 + column + held.len()).max(24)
        };
        out.push(
            Line::new(2)
                .with(sections::ink(*class), &format!("{word:<15}"))
                .with(Ink::Bold, &format!("{:>7}", nodes.len()))
                .with(Ink::Plain, &format!("  {:column$}  ", groups::pool_words(pools)))
                .with(Ink::Bad, &held)
                .with(Ink::Dim, &groups::few(nodes, room)),
        );
    }
    if rows.len() > shown {
        let machines: usize = rows[shown..].iter().map(|row| row.nodes.len()).sum();
        let text = format!("and {} in {} more lines", count(machines, "machine"), rows.len() - shown);
        out.push(Line::new(2).with(Ink::Dim, &text));
    }
    out.extend(
        at_once(plan).map(|going| Line::new(2).with(Ink::Bad, &format!("all at once: {going} machines in one step"))),
    );
    out.extend(staged(plan).iter().map(|text| Line::new(2).with(Ink::Dim, text)));
    out
}
