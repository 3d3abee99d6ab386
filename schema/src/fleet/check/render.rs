//! Whether every template parses and every host that the documents describe can be rendered: each declared machine, and
//! for every pool that admits others one machine without a document.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use super::{clean::Clean, hosts as groups, partial::Partial};
use crate::{
    diagnostic::{Diagnostic, Lines, SourceRef, codes, shown},
    fleet::{
        Fleet, HostTemplate, Located, NodeOverlay, Profile, ResolvedProfile, Stop,
        host::Composer,
        kind::Admission,
        suggest::similar,
        template::{RenderError, Renderer, includes},
    },
    name::Name,
};

/// Checks the templates themselves, and that the named ones exist.
pub(super) fn templates(
    templates: &BTreeMap<Arc<str>, Arc<str>>,
    profiles: &BTreeMap<Name, Profile>,
    stop: &Stop<'_>,
    found: &mut Vec<Diagnostic>,
) {
    for (name, text) in templates.iter().take_while(|_| !stop.is_said()) {
        if let Err(error) = Renderer::new([(&**name, &**text)]) {
            found.push(diagnostic(&error, templates));
            continue;
        }
        for include in includes(text).into_iter().filter(|include| !templates.contains_key(*include)) {
            let start = text.find(include).unwrap_or(0);
            let at = SourceRef::new(Arc::clone(name), Lines::new(text).span(start, start + include.len()));
            found.push(missing(include, &at, templates));
        }
    }
    for profile in profiles.values() {
        let files = profile.file.values().filter_map(|file| file.template.as_ref());
        let units = profile.unit.values().filter_map(|unit| unit.template.as_ref());
        for template in files.chain(units).filter(|template| !templates.contains_key(template.value.as_str())) {
            found.push(missing(template, &template.at, templates));
        }
    }
}

fn missing(name: &str, at: &SourceRef, templates: &BTreeMap<Arc<str>, Arc<str>>) -> Diagnostic {
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let others = || templates.keys().map(|path| &**path).filter(|path| **path != *at.file);
    let near = others().find(|path| last(path) == last(name)).or_else(|| similar(name, others()));
    let help = match near {
        Some(near) => format!("did you mean {near:?}? templates are named by their path from the fleet's root"),
        None => "templates are *.j2 files, named by their path from the fleet's root".to_owned(),
    };
    let shown = shown(name);
    Diagnostic::new(codes::TEMPLATE_MISSING, at, format!("there is no template {shown:?}"))
        .label("not in the repository")
        .help(help)
}

/// Times that the hosts of a profile are rendered again without what was missing.
const ROUNDS: usize = 50;

/// Renders every host, as far as it is known. What goes wrong in many of them is said once.
pub(super) fn hosts(fleet: &Fleet, partial: &Partial, clean: &mut Clean, stop: &Stop<'_>, found: &mut Vec<Diagnostic>) {
    let mut said: BTreeSet<(String, usize, String)> = BTreeSet::new();
    let strict = fleet.document.admission.as_ref().is_some_and(|admission| admission.value == Admission::Strict);
    for (pool, profile, nodes) in groups(fleet).take_while(|_| !stop.is_said()) {
        let Some(template) = fleet.host_template(&pool.name, profile) else { continue };
        let Some(resolved) = fleet.resolved(profile) else { continue };
        if template.templates.is_empty() {
            continue;
        }
        let undeclared = *profile == pool.profile.value && !strict;
        let sample = undeclared.then(|| format!("{}-00000000", pool.name));
        let unknown = partial.unknown(pool, resolved);
        let mended = sound(&template, &unknown);
        if unknown.is_empty() && clean.covers(&template, &mended, &nodes, sample.as_deref(), stop) {
            continue;
        }
        let sample = sample.map(|name| (name, NodeOverlay::default(), None));
        let declared = nodes.iter().map(|node| (node.name.to_string(), NodeOverlay::of(node), Some(&node.at)));
        let machines: Vec<_> = declared.chain(sample).collect();
        render(mended, &machines, stop, |error, (name, _, at)| {
            if !said.insert((error.template.clone(), error.line, error.message.clone())) {
                return;
            }
            let mut diagnostic = diagnostic(error, &fleet.templates);
            diagnostic = match at {
                Some(at) => {
                    diagnostic.also(at, format!("rendered for node/{name}, pool/{}, profile/{profile}", pool.name))
                }
                None => diagnostic
                    .also(&pool.at, format!("rendered for a machine of pool/{} that has no node document", pool.name)),
            };
            if let Some(user) = user(resolved, &template.templates, &error.template) {
                diagnostic = diagnostic.also(&user.at, "the template is used here");
            }
            found.push(diagnostic);
        });
    }
    clean.keep(|pool, profile| fleet.pools.contains_key(pool) && fleet.profiles.contains_key(profile));
}

type Machine<'m> = (String, NodeOverlay, Option<&'m SourceRef>);

/// Renders every machine. A rendering ends where a value is missing: it is told, and the template is rendered again with
/// an empty text in its place, so that the next one is told too.
fn render<'m>(
    mut mended: Cow<'_, HostTemplate>,
    machines: &[Machine<'m>],
    stop: &Stop<'_>,
    mut tell: impl FnMut(&RenderError, &Machine<'m>),
) {
    let mut blanks: BTreeMap<String, Vec<Range<usize>>> = BTreeMap::new();
    let mut next = 0;
    for _ in 0..ROUNDS {
        let mut stopped: Vec<(String, Option<Range<usize>>)> = Vec::new();
        let Ok(composer) = Composer::new(&mended) else { return };
        for (index, machine) in machines.iter().enumerate().skip(next) {
            if stop.is_said() {
                return;
            }
            let Err(errors) = composer.compose(&machine.1, &machine.0) else { continue };
            for error in errors {
                let missing = error.range.clone().filter(|_| error.code == codes::TEMPLATE_UNDEFINED);
                match (blanks.get(&error.template), missing) {
                    // What fails around a value that was replaced may fail for that.
                    (Some(earlier), Some(range)) if earlier.iter().any(|blank| overlap(blank, &range)) => {
                        stopped.push((error.template, None));
                    }
                    (Some(_), None) => stopped.push((error.template, None)),
                    (_, missing) => {
                        tell(&error, machine);
                        stopped.extend(missing.map(|range| (error.template, Some(range))));
                    }
                }
            }
            if !stopped.is_empty() {
                next = index;
                break;
            }
        }
        if stopped.is_empty() {
            return;
        }
        for (name, range) in stopped {
            let Some(text) = mended.to_mut().templates.get_mut(&name) else { continue };
            let blanked = range.and_then(|range| blank(text, range));
            let parses = Renderer::new([(name.as_str(), text.as_str())]).is_ok();
            match blanked.filter(|_| parses) {
                Some(range) => blanks.entry(name).or_default().push(range),
                None => text.clear(),
            }
        }
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Puts an empty text in place of an expression and of what is asked of it, so that every other place stays where it is.
fn blank(text: &mut String, mut range: Range<usize>) -> Option<Range<usize>> {
    let asked = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.');
    range.end += text.as_bytes().get(range.end..)?.iter().take_while(|byte| asked(**byte)).count();
    let width = range.len();
    text.get(range.clone())?;
    text.replace_range(range.clone(), &format!("{:width$}", if width > 1 { "''" } else { "0" }));
    Some(range)
}

/// A host without the texts of templates that are missing, do not parse or read what is not known, and of those that
/// include such: what is wrong with them was reported, and the others are still looked at.
fn sound<'t>(template: &'t HostTemplate, unknown: &[&str]) -> Cow<'t, HostTemplate> {
    let texts = &template.templates;
    let mut bad: BTreeSet<String> =
        template.named().filter(|name| !texts.contains_key(*name)).map(str::to_owned).collect();
    let reads = |renderer: &Renderer<'_>, name: &str| {
        !unknown.is_empty() && renderer.inputs(name).iter().any(|root| unknown.contains(&root.as_str()))
    };
    let broken = texts.iter().filter(|(name, text)| {
        Renderer::new([(name.as_str(), text.as_str())]).map_or(true, |renderer| reads(&renderer, name))
    });
    bad.extend(broken.map(|(name, _)| name.clone()));
    loop {
        let unsound = |name: &str| bad.contains(name) || !texts.contains_key(name);
        let more: Vec<String> = texts
            .iter()
            .filter(|(name, text)| !bad.contains(*name) && includes(text).into_iter().any(unsound))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        bad.extend(more);
    }
    let mut sound = Cow::Borrowed(template);
    for name in bad {
        sound.to_mut().templates.insert(name, String::new());
    }
    sound
}

fn used(resolved: &ResolvedProfile) -> impl Iterator<Item = &Located<String>> {
    let files = resolved.files.values().filter_map(|file| file.value.value.template.as_ref());
    files.chain(resolved.units.values().filter_map(|unit| unit.value.value.template.as_ref()))
}

/// Where a profile names a template, or one that includes it.
fn user<'r>(
    resolved: &'r ResolvedProfile,
    templates: &BTreeMap<String, String>,
    name: &str,
) -> Option<&'r Located<String>> {
    let direct = used(resolved).find(|template| template.value == name);
    direct.or_else(|| {
        used(resolved).find(|template| templates.get(&template.value).is_some_and(|text| includes(text).contains(name)))
    })
}

fn diagnostic(error: &RenderError, templates: &BTreeMap<Arc<str>, Arc<str>>) -> Diagnostic {
    let (file, text) = templates
        .get_key_value(error.template.as_str())
        .map_or((Arc::from(error.template.as_str()), ""), |(file, text)| (Arc::clone(file), &**text));
    let lines = Lines::new(text);
    let span = match &error.range {
        Some(range) => lines.span(range.start, range.end),
        None => {
            let start: usize = text.split_inclusive('\n').take(error.line.saturating_sub(1)).map(str::len).sum();
            lines.span(start, start + text[start..].lines().next().unwrap_or("").len())
        }
    };
    let help = match error.code {
        codes::TEMPLATE_UNDEFINED => Some(
            "templates see node, pool, site, profile and fleet, and of those only what the documents declare; {{ x | default(\"y\") }} says what to write without it",
        ),
        _ => None,
    };
    Diagnostic::new(error.code, &SourceRef::new(file, span), error.message.clone()).maybe_help(help.map(str::to_owned))
}
