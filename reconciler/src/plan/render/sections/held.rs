//! What does not go with the rest: what is held and by whom, what comes back when a hold ends, what is bound to what was
//! shown, and cordons.

use super::{Fold, count, more, named};
use crate::plan::{
    GateWord, Plan, PlanBrake,
    render::{
        groups::{self, moment},
        page::{Ink, Line},
        summary,
    },
};

pub(super) fn held(plan: &Plan, fold: Fold) -> Vec<Line> {
    let shown = named(plan.gates.len(), fold);
    let mut out = Vec::new();
    for gate in &plan.gates[..shown] {
        let some: Vec<String> = gate.objects.iter().take(fold.most.clamp(1, 12)).map(ToString::to_string).collect();
        let rest = gate.objects.len() - some.len();
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let stay = if gate.objects.len() == 1 { "stays" } else { "stay" };
        out.push(
            Line::marked(2, '!')
                .with(Ink::Bad, &format!("{}{rest}", some.join(", ")))
                .with(Ink::Plain, &format!(" {stay}: {}", gate.wait)),
        );
    }
    out.extend(more(plan.gates.len(), shown, "", 2));
    let kept = groups::kept(plan);
    let shown = named(kept.len(), fold);
    for kept in &kept[..shown] {
        let wait = if kept.nodes.len() == 1 { "waits" } else { "wait" };
        out.push(
            Line::marked(2, '!')
                .with(Ink::Bad, &count(kept.nodes.len(), "machine"))
                .with(Ink::Plain, &format!(" {wait} for {}", groups::keeper(kept.held, plan))),
        );
        let room = if fold.most == usize::MAX { usize::MAX } else { fold.width.saturating_sub(6).max(24) };
        out.push(Line::new(6).with(Ink::Dim, &groups::few(&kept.nodes, room)));
    }
    out.extend(more(kept.len(), shown, " reasons", 2));
    out
}

/// The brakes that matter to this plan, each in two lines, and the others in one.
pub(super) fn brakes(plan: &Plan, fold: Fold) -> Vec<Line> {
    let all = fold.most == usize::MAX;
    let matters = |brake: &&PlanBrake| all || brake.ends || (brake.active && !brake.returns.is_empty());
    let (here, others): (Vec<&PlanBrake>, Vec<&PlanBrake>) = plan.brakes.iter().partition(matters);
    let shown = named(here.len(), fold);
    let lines = here[..shown].iter().flat_map(|one| brake(one));
    let mut out: Vec<Line> = lines.chain(more(here.len(), shown, "", 2)).collect();
    if !others.is_empty() {
        let words: Vec<String> = others.iter().take(OTHERS).map(|one| in_a_word(one)).collect();
        let rest = others.len() - words.len();
        let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let text = format!("nothing of this plan waits for: {}{rest}", words.join("; "));
        out.push(Line::new(2).with(Ink::Dim, &text));
    }
    out
}

/// How many brakes that hold nothing of a plan are named.
const OTHERS: usize = 3;

fn called(brake: &PlanBrake) -> String {
    match brake.kind {
        GateWord::Pin => format!("pin of {}", brake.name),
        GateWord::Suspend => format!("suspension of {}", brake.name),
        _ => brake.name.clone(),
    }
}

/// A brake that holds nothing of the plan.
fn in_a_word(brake: &PlanBrake) -> String {
    let when = match (brake.active, brake.until, brake.next) {
        (true, Some(until), _) => format!("holds until {}", moment(until)),
        (true, None, _) => "holds".to_owned(),
        (false, _, Some(next)) => format!("begins {}", moment(next)),
        (false, _, None) => "over".to_owned(),
    };
    format!("{} ({when})", called(brake))
}

fn brake(brake: &PlanBrake) -> Vec<Line> {
    let name = called(brake);
    let (state, ink) = match (brake.active, brake.until, brake.next) {
        _ if brake.ends => ("is in force, and this commit ends or narrows it".to_owned(), Ink::Bad),
        (true, Some(until), _) => (format!("holds until {}", moment(until)), Ink::Attention),
        (true, None, Some(next)) => (format!("holds, lets go at {}", moment(next)), Ink::Attention),
        (true, None, None) => ("holds, without an end".to_owned(), Ink::Attention),
        (false, _, Some(next)) => (format!("does not hold, begins at {}", moment(next)), Ink::Dim),
        (false, _, None) => ("is over".to_owned(), Ink::Dim),
    };
    let place = brake.place.as_ref().map_or_else(|| "  said by hand".to_owned(), |place| format!("  {place}"));
    let head = Line::new(2)
        .with(Ink::Bold, &name)
        .with(ink, &format!(" {state}"))
        .with(Ink::Plain, &format!(" ({}: {})", brake.owner, brake.reason))
        .with(Ink::Dim, &place);
    let returning: usize = brake.returns.values().sum();
    let what = match (brake.active, returning) {
        (true, 0) if brake.ends => {
            format!("{} covered, none of them changes with it", count(brake.machines, "machine"))
        }
        (true, _) if brake.ends => format!(
            "{} covered; {returning} that the commit itself changes wait for the next commit (an empty one will do): {}",
            count(brake.machines, "machine"),
            groups::classes(&brake.returns)
        ),
        (true, 0) => format!("{} covered, none of them waits", count(brake.machines, "machine")),
        (true, _) => format!(
            "{} covered; when it ends, {} go: {}",
            count(brake.machines, "machine"),
            returning,
            groups::classes(&brake.returns)
        ),
        (false, _) => format!("{} covered", count(brake.machines, "machine")),
    };
    vec![head, Line::new(6).with(Ink::Plain, &what)]
}

pub(super) fn bind(plan: &Plan) -> Vec<Line> {
    let Some(bound) = summary::bound(plan) else { return Vec::new() };
    let mut out = vec![Line::new(2).with(Ink::Plain, &bound.from)];
    out.extend(bound.held.map(|held| Line::marked(2, '!').with(Ink::Bad, &held)));
    out.push(Line::new(2).with(Ink::Plain, &bound.how));
    out.push(Line::new(4).with(Ink::Bold, bound.trailer));
    out
}

pub(super) fn cordons(plan: &Plan, fold: Fold) -> Vec<Line> {
    let shown = named(plan.holds.len(), fold);
    let lines = plan.holds[..shown].iter().map(|hold| {
        let (verb, ink) = if hold.holds { ("cordoned", Ink::Attention) } else { ("released", Ink::Good) };
        let until =
            hold.until.filter(|_| hold.holds).map_or_else(String::new, |until| format!(", until {}", moment(until)));
        Line::new(2)
            .with(Ink::Bold, &format!("node/{}", hold.node))
            .with(ink, &format!(" {verb}"))
            .with(Ink::Plain, &format!(": {} ({}{until})", hold.reason, hold.owner))
            .with(Ink::Dim, &hold.place.as_ref().map_or_else(String::new, |place| format!("  {place}")))
    });
    lines.chain(more(plan.holds.len(), shown, "", 2)).collect()
}
