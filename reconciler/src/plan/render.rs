//! A plan as people read it on a terminal. Pure: a plan in, a text out.

use std::{collections::BTreeMap, fmt::Write as _};

use schema::{digest::Digest, name::Name};
use serde_json::Value;

use super::{Change, FieldChange, MoveReason, NodeMove, ObjectChange, Plan, PoolPlan, TargetChange};

/// How a plan is shown.
#[derive(Debug, Clone, Copy)]
pub struct RenderOptions {
    /// Colours, for a terminal that has them.
    pub colour: bool,
    /// The width of a line.
    pub width: usize,
    /// How many machines, objects and fields of one kind are named before the rest is counted.
    pub fold: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { colour: false, width: 100, fold: 12 }
    }
}

/// The whole plan.
#[must_use]
pub fn render(plan: &Plan, options: RenderOptions) -> String {
    let mut page = Page { out: String::new(), options };
    page.head(plan);
    if plan.objects.is_empty() && plan.nodes.is_empty() && plan.holds.is_empty() {
        page.line(0, "Nothing changes.");
        page.notes(plan);
        return page.out;
    }
    page.objects(plan);
    page.machines(plan);
    page.cordons(plan);
    page.gates(plan);
    page.retained(plan);
    page.notes(plan);
    page.summary(plan);
    page.out
}

struct Page {
    out: String,
    options: RenderOptions,
}

#[derive(Clone, Copy)]
enum Ink {
    Green,
    Yellow,
    Red,
    Bold,
    Dim,
}

impl Page {
    fn ink(&self, ink: Ink, text: &str) -> String {
        if !self.options.colour {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Green => 32,
            Ink::Yellow => 33,
            Ink::Red => 31,
            Ink::Bold => 1,
            Ink::Dim => 2,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    fn line(&mut self, indent: usize, text: &str) {
        let _ = writeln!(self.out, "{:indent$}{}", "", text.trim_end());
    }

    fn title(&mut self, text: &str) {
        let text = self.ink(Ink::Bold, text);
        self.out.push('\n');
        self.line(0, &text);
    }

    fn head(&mut self, plan: &Plan) {
        let commit = |commit: &Option<String>| {
            commit.as_deref().map_or("nothing", |commit| commit.get(..10).unwrap_or(commit)).to_owned()
        };
        let from =
            if plan.base.is_some() { format!("from {}", commit(&plan.base)) } else { "the first one".to_owned() };
        let to = if plan.commit.is_some() { format!(" to {}", commit(&plan.commit)) } else { String::new() };
        let text = self.ink(Ink::Bold, &format!("Plan{to}"));
        let dim = self.ink(Ink::Dim, &format!("({from}; unverified: the fleet has no trust policy)"));
        self.line(0, &format!("{text} {dim}"));
    }

    fn objects(&mut self, plan: &Plan) {
        let shown: Vec<&ObjectChange> =
            plan.objects.iter().filter(|object| !matches!(object.change, Change::Retain | Change::Hold)).collect();
        if shown.is_empty() {
            return;
        }
        self.title("Objects");
        let fold = self.options.fold.max(1);
        let mut by_kind: BTreeMap<_, Vec<&ObjectChange>> = BTreeMap::new();
        for object in shown {
            by_kind.entry((object.object.kind, object.change)).or_default().push(object);
        }
        for ((kind, change), objects) in by_kind {
            let named = if objects.len() > fold + 2 { fold } else { objects.len() };
            for object in &objects[..named] {
                self.object(object);
            }
            if objects.len() > named {
                let text = self.ink(
                    Ink::Dim,
                    &format!(
                        "{} {} more {}",
                        sign(change),
                        objects.len() - named,
                        plural(objects.len() - named, kind.as_str())
                    ),
                );
                self.line(2, &text);
            }
        }
    }

    fn object(&mut self, object: &ObjectChange) {
        let ink = match object.change {
            Change::Create | Change::Restore => Ink::Green,
            Change::Update | Change::Retain => Ink::Yellow,
            Change::Remove | Change::Hold => Ink::Red,
        };
        let name = self.ink(ink, &format!("{} {}", sign(object.change), object.object));
        let place = self.ink(Ink::Dim, &format!("{}:{}", object.file, object.line));
        let gap = " ".repeat(34_usize.saturating_sub(object.object.to_string().len() + 2).max(2));
        let note = match (object.change, &object.reason) {
            (Change::Restore, _) => "  its document is back".to_owned(),
            (_, Some(reason)) => format!("  {}", quiet(reason)),
            _ => String::new(),
        };
        self.line(2, &format!("{name}{gap}{place}{note}"));
        self.fields(6, &object.fields);
    }

    fn fields(&mut self, indent: usize, fields: &[FieldChange]) {
        let fold = self.options.fold.max(1);
        let named = if fields.len() > fold + 2 { fold } else { fields.len() };
        let width = fields[..named].iter().map(|field| field.path.chars().count()).max().unwrap_or(0).min(44);
        for field in &fields[..named] {
            self.field(indent, field, width);
        }
        if fields.len() > named {
            let text = self.ink(Ink::Dim, &format!("and {} more fields", fields.len() - named));
            self.line(indent, &text);
        }
    }

    fn field(&mut self, indent: usize, field: &FieldChange, width: usize) {
        let path = quiet(&field.path);
        let lines = |value: &Option<Value>| matches!(value, Some(Value::String(text)) if text.contains('\n'));
        if lines(&field.before) || lines(&field.after) {
            self.line(indent, &path);
            let text = |value: &Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            self.text(indent + 2, &text(&field.before), &text(&field.after));
            return;
        }
        if let (Some(Value::Array(before)), Some(Value::Array(after))) = (&field.before, &field.after) {
            self.line(indent, &path);
            let items = |values: &[Value]| {
                values
                    .iter()
                    .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                    .collect::<Vec<_>>()
            };
            self.text(indent + 2, &items(before).join("\n"), &items(after).join("\n"));
            return;
        }
        let room = self.options.width.saturating_sub(indent + width + 8).max(24);
        let change = match (&field.before, &field.after) {
            (Some(before), Some(after)) => format!(
                "{} → {}",
                self.ink(Ink::Red, &short(before, room / 2)),
                self.ink(Ink::Green, &short(after, room / 2))
            ),
            (None, Some(after)) => self.ink(Ink::Green, &format!("+ {}", short(after, room))),
            (Some(Value::Object(_)), None) => self.ink(Ink::Red, "- goes"),
            (Some(before), None) => self.ink(Ink::Red, &format!("- {}", short(before, room))),
            (None, None) => String::new(),
        };
        let place = field.place.as_deref().map_or_else(String::new, |place| format!("  {}", self.ink(Ink::Dim, place)));
        self.line(indent, &format!("{path:width$}  {change}{place}"));
    }

    /// The lines of a text that differ, between the ones that its two versions begin and end with.
    fn text(&mut self, indent: usize, before: &str, after: &str) {
        let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
        let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
        let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
        let fold = self.options.fold.max(1);
        for (lines, sign, ink) in
            [(&old[head..old.len() - tail], '-', Ink::Red), (&new[head..new.len() - tail], '+', Ink::Green)]
        {
            for line in lines.iter().take(fold) {
                let text =
                    self.ink(ink, &cut(&format!("{sign} {}", quiet(line)), self.options.width.saturating_sub(indent)));
                self.line(indent, &text);
            }
            if lines.len() > fold {
                let text = self.ink(Ink::Dim, &format!("{sign} and {} more lines", lines.len() - fold));
                self.line(indent, &text);
            }
        }
    }

    fn machines(&mut self, plan: &Plan) {
        if plan.nodes.is_empty() && plan.targets.is_empty() {
            return;
        }
        self.title("Machines");
        let mut by_pool: BTreeMap<Option<&Name>, Vec<&NodeMove>> = BTreeMap::new();
        for node in &plan.nodes {
            by_pool.entry(node.pool.as_ref()).or_default().push(node);
        }
        for pool in &plan.pools {
            let targets: Vec<&TargetChange> = plan.targets.iter().filter(|target| target.pool == pool.pool).collect();
            let moves = by_pool.remove(&Some(&pool.pool)).unwrap_or_default();
            if targets.is_empty() && moves.is_empty() {
                continue;
            }
            self.pool(pool);
            for target in targets {
                self.target(target);
            }
            self.moves(&moves);
        }
        for (pool, moves) in by_pool {
            let text = pool.map_or_else(|| "without a pool".to_owned(), |pool| format!("pool/{pool}"));
            self.line(2, &text);
            self.moves(&moves);
        }
    }

    fn pool(&mut self, pool: &PoolPlan) {
        let how = match &pool.rollout {
            Some(rollout) => format!("all at once, by rollout/{rollout}"),
            None => "names no rollout: all at once for now".to_owned(),
        };
        let moves = if pool.machines == 0 {
            "no machine yet".to_owned()
        } else {
            format!("{} of {} {}", pool.moves, pool.machines, if pool.moves == 1 { "moves" } else { "move" })
        };
        let name = self.ink(Ink::Bold, &format!("pool/{}", pool.pool));
        let how = self.ink(Ink::Dim, &how);
        self.line(2, &format!("{name}  {moves}  {how}"));
    }

    fn target(&mut self, target: &TargetChange) {
        let digest = |digest: &Option<Digest>| digest.as_ref().map_or_else(|| "nothing".to_owned(), Digest::short);
        let text = self.ink(
            Ink::Dim,
            &format!("hosts with profile/{}: {} → {}", target.profile, digest(&target.before), target.after.short()),
        );
        self.line(4, &text);
        // What templates see of the profile repeats what the profile says; it is told when nothing else is.
        let repeats =
            |field: &FieldChange| field.path.starts_with("values.profile.") || field.path == "values.pool.profile";
        let fields: Vec<FieldChange> = target.fields.iter().filter(|field| !repeats(field)).cloned().collect();
        self.fields(6, if fields.is_empty() { &target.fields } else { &fields });
    }

    /// Machines that move for the same reasons stand on one line.
    fn moves(&mut self, moves: &[&NodeMove]) {
        let mut alike: BTreeMap<&[MoveReason], Vec<&str>> = BTreeMap::new();
        for node in moves {
            alike.entry(&node.why).or_default().push(node.node.as_str());
        }
        for (why, nodes) in alike {
            let why = why.iter().map(said).collect::<Vec<_>>().join("; ");
            let named = if nodes.len() > self.options.fold + 2 { self.options.fold } else { nodes.len() };
            self.line(4, &format!("{} {}: {why}", nodes.len(), plural(nodes.len(), "machine")));
            let mut line = String::new();
            for name in &nodes[..named] {
                if !line.is_empty() && line.len() + name.len() + 8 > self.options.width {
                    self.line(6, &line);
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(name);
            }
            if nodes.len() > named {
                let _ = write!(line, " … and {} more", nodes.len() - named);
            }
            self.line(6, &line);
        }
    }

    fn cordons(&mut self, plan: &Plan) {
        if plan.holds.is_empty() {
            return;
        }
        self.title("Cordons");
        let named = plan.holds.len().min(self.options.fold.max(1));
        for hold in &plan.holds[..named] {
            let verb = if hold.holds { self.ink(Ink::Yellow, "cordoned") } else { self.ink(Ink::Green, "released") };
            let until = hold.until.filter(|_| hold.holds).map_or_else(String::new, |until| format!(", until {until}"));
            let place =
                hold.place.as_deref().map_or_else(String::new, |place| self.ink(Ink::Dim, &format!("  {place}")));
            self.line(
                2,
                &format!("node/{} {verb}: {} ({}{until}){place}", hold.node, quiet(&hold.reason), quiet(&hold.owner)),
            );
        }
        if plan.holds.len() > named {
            let text = self.ink(Ink::Dim, &format!("and {} more", plan.holds.len() - named));
            self.line(2, &text);
        }
    }

    fn gates(&mut self, plan: &Plan) {
        if plan.gates.is_empty() {
            return;
        }
        self.title("Held (the rest goes)");
        for gate in &plan.gates {
            let named: Vec<String> =
                gate.objects.iter().take(self.options.fold.max(1)).map(ToString::to_string).collect();
            let more = gate.objects.len() - named.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let names = self.ink(Ink::Red, &format!("{}{more}", named.join(", ")));
            self.line(2, &format!("{names} stay{}: {}", if gate.objects.len() == 1 { "s" } else { "" }, gate.wait));
        }
    }

    fn retained(&mut self, plan: &Plan) {
        let retained: Vec<&ObjectChange> =
            plan.objects.iter().filter(|object| object.change == Change::Retain).collect();
        if retained.is_empty() {
            return;
        }
        self.title("Retained (the document is gone, its last text stays in force)");
        let named = retained.len().min(self.options.fold.max(1));
        for object in &retained[..named] {
            let name = self.ink(Ink::Yellow, &object.object.to_string());
            let place = self.ink(Ink::Dim, &format!("was {}:{}", object.file, object.line));
            self.line(2, &format!("{name}  {place}"));
        }
        if retained.len() > named {
            let text = self.ink(Ink::Dim, &format!("and {} more", retained.len() - named));
            self.line(2, &text);
        }
        self.line(2, "To let them go, paste into a fleet file and say why:");
        for object in &retained[..named] {
            self.line(4, object.paste.as_deref().unwrap_or_default());
        }
    }

    fn notes(&mut self, plan: &Plan) {
        if plan.warnings.is_empty() {
            return;
        }
        self.title("Worth knowing");
        for warning in plan.warnings.iter().take(self.options.fold.max(1)) {
            let place =
                warning.place.as_deref().map_or_else(String::new, |place| self.ink(Ink::Dim, &format!("  {place}")));
            self.line(2, &format!("{}: {}{place}", warning.object, quiet(&warning.message)));
        }
    }

    fn summary(&mut self, plan: &Plan) {
        let counts = &plan.counts;
        let mut parts = Vec::new();
        for (count, word) in [
            (counts.create, "new"),
            (counts.update, "changed"),
            (counts.restore, "back"),
            (counts.remove, "removed"),
            (counts.held, "held"),
            (counts.retain, "retained"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        if parts.is_empty() {
            parts.push("no object changes".to_owned());
        }
        let mut machines = format!(
            "{} of {} machines {}",
            counts.moves,
            counts.machines,
            if counts.moves == 1 { "moves" } else { "move" }
        );
        if counts.undeclared > 0 {
            let _ = write!(machines, ", {} without a document", counts.undeclared);
        }
        if counts.awaited > 0 {
            let _ = write!(machines, ", {} declared and not joined yet", counts.awaited);
        }
        let text = self.ink(Ink::Bold, &format!("{} ({} unchanged); {machines}.", parts.join(", "), counts.unchanged));
        self.out.push('\n');
        self.line(0, &text);
    }
}

const fn sign(change: Change) -> char {
    match change {
        Change::Create | Change::Restore => '+',
        Change::Update => '~',
        Change::Remove => '-',
        Change::Retain | Change::Hold => '!',
    }
}

fn said(why: &MoveReason) -> String {
    let none = |name: &Option<Name>| name.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    match why {
        MoveReason::Target => "what the hosts should be changes".to_owned(),
        MoveReason::Membership { from, to } => format!("pool {} → {}", none(from), none(to)),
        MoveReason::Profile { from, to } => format!("own profile {} → {}", none(from), none(to)),
        MoveReason::Labels => "labels change".to_owned(),
        MoveReason::First => "told for the first time".to_owned(),
        MoveReason::Behind => "behind what it should be".to_owned(),
        MoveReason::Declaration { declared: true } => "a document names it now".to_owned(),
        MoveReason::Declaration { declared: false } => "its document goes".to_owned(),
    }
}

fn plural(count: usize, word: &str) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

fn short(value: &Value, room: usize) -> String {
    let text = match value {
        Value::String(text) if !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control()) => {
            text.clone()
        }
        other => other.to_string(),
    };
    cut(&quiet(&text), room)
}

fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let head: String = text.chars().take(room.saturating_sub(1)).collect();
    format!("{head}…")
}

/// A text of a repository cannot steer the terminal.
fn quiet(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    text.chars().map(|c| if hidden(c) { '\u{fffd}' } else { c }).collect()
}
