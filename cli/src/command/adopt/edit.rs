//! The edit that makes a fleet repository say what a machine has. Pure: files, a field and its value in, the same files
//! with one value replaced out, proven by loading both.

use std::{collections::BTreeMap, sync::Arc};

use schema::{
    fleet::{
        self, Fleet, Provenance, SourceBlob, SourceRef, Sources,
        edit::{self, EditError, NewValue},
    },
    name::Name,
    report::{DriftEntry, DriftKind},
    spec::NodeSpec,
};

use crate::exit::Failure;

/// A machine as the fleet repository knows it.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) pool: Option<String>,
}

/// One value that was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    /// The file below the fleet's root.
    pub(super) file: Arc<str>,
    /// The layer that it is a part of, such as `profile/gpu-host`.
    pub(super) layer: String,
}

impl Machine {
    /// Its profile: its own document's, else its pool's.
    fn profile<'f>(&self, fleet: &'f Fleet) -> Option<(&'f Name, &'f Name)> {
        let node = fleet.nodes.get(self.name.as_str());
        let pool = node.and_then(|node| node.pool.as_ref()).map(|pool| pool.value.as_str()).or(self.pool.as_deref())?;
        let pool = fleet.pools.get(pool)?;
        let profile = node.and_then(|node| node.profile.as_ref()).unwrap_or(&pool.profile);
        Some((&pool.name, &profile.value))
    }

    fn explain(&self, fleet: &Fleet, path: &str) -> Vec<Provenance> {
        let declared = fleet.explain(&self.name, Some(path));
        declared.or_else(|| fleet.explain_pool(self.pool.as_deref()?, Some(path))).unwrap_or_default()
    }

    /// The block of a file whose owner, group or mode nobody wrote down.
    fn default_of(&self, fleet: &Fleet, path: &str) -> Option<Place> {
        let (file, word) = path.strip_prefix("files.")?.rsplit_once('.')?;
        let missing = ["mode", "owner", "group"].into_iter().find(|key| *key == word)?;
        let (_, profile) = self.profile(fleet)?;
        let layer = fleet.resolved(profile.as_str())?.files.get(file)?;
        let (at, layer) = (layer.value.at.clone(), format!("profile/{}", layer.profile));
        Some(Place { at, layer, missing: Some(missing) })
    }

    /// What it would be told to be.
    pub(super) fn spec(&self, fleet: &Fleet) -> Option<NodeSpec> {
        let (pool, profile) = self.profile(fleet)?;
        let template = fleet.host_template(pool.as_str(), profile.as_str())?;
        let overlay = fleet.overlay(&self.name).unwrap_or_default();
        let composed = fleet::compose(&template, &overlay, &self.name).ok()?;
        Some(NodeSpec { host: composed.host, access: composed.access })
    }
}

/// Takes one field over.
///
/// # Errors
/// Why it cannot be, with the place where a person can do it.
pub(super) fn adopt(
    sources: &mut Sources,
    machine: &Machine,
    entry: &DriftEntry,
    into: Option<&str>,
) -> Result<Edit, Failure> {
    let before = load(sources)?;
    let place = place(&before, machine, entry)?;
    let Place { at, layer, missing } = &place;
    if let Some(into) = into.filter(|into| into != layer) {
        let why = format!("{layer} says {} of {}, at {at}", entry.path, machine.name);
        return Err(Failure::failed(format!("{why}; a value in {into} would not replace it by itself"))
            .hint(format!("leave out --into, or write the value into {into} by hand and take it out of {layer}")));
    }
    let text = written(sources, at).unwrap_or_default();
    let value = value(entry, &text, &at.file)?;
    let Some(SourceBlob::Bytes(bytes)) = sources.get(&at.file) else {
        return Err(Failure::failed(format!("{} cannot be read", at.file)));
    };
    let edited = match missing {
        Some(key) => edit::insert(&at.file, bytes, at.span, key, &value),
        None => edit::replace(&at.file, bytes, at.span, &value),
    };
    let edited = edited.map_err(|error| unwritable(&error, at))?;
    let mut after = sources.clone();
    after.insert_file(Arc::clone(&at.file), edited);
    prove(&before, &load(&after)?, machine, entry)?;
    *sources = after;
    Ok(Edit { file: place.at.file, layer: place.layer })
}

/// Where a value is to be written.
struct Place {
    /// The value, or the block that has none yet.
    at: SourceRef,
    /// The layer that it is a part of.
    layer: String,
    /// The key that the block has not, because its default was good enough.
    missing: Option<&'static str>,
}

fn load(sources: &Sources) -> Result<Fleet, Failure> {
    let loaded = fleet::load(sources);
    loaded.fleet.ok_or_else(|| {
        let first = loaded.diagnostics.iter().find(|diagnostic| diagnostic.is_error());
        let what =
            first.map_or_else(String::new, |first| format!(": {}:{}: {}", first.file, first.span.line, first.message));
        Failure::new(crate::exit::Exit::InvalidFleet, format!("the fleet repository has errors{what}"))
            .hint("`better-compute check` shows all of them")
    })
}

/// Where the desired value is written, when that is a place that a value can be put.
fn place(fleet: &Fleet, machine: &Machine, entry: &DriftEntry) -> Result<Place, Failure> {
    let path = entry.path.as_str();
    if machine.profile(fleet).is_none() {
        return Err(Failure::failed(format!("these files know neither a machine {} nor its pool", machine.name)));
    }
    if entry.kind == DriftKind::Removed {
        let place = machine.explain(fleet, path).into_iter().next();
        let place = place.map_or_else(|| "the fleet repository".to_owned(), |found| found.at.to_string());
        return Err(Failure::failed(format!("{path} is gone on {}, and nothing can stand for that", machine.name))
            .hint(format!("to let it be gone, take the block at {place} out by hand")));
    }
    let Some(found) = machine.explain(fleet, path).into_iter().find(|found| found.path == path) else {
        return machine.default_of(fleet, path).ok_or_else(|| {
            Failure::failed(format!("nothing in the fleet repository says {path}"))
                .hint("it is made by the daemon itself, not by a value of a fleet file")
        });
    };
    if let Some(template) = &found.template {
        return Err(Failure::failed(format!("{path} is made by the template {template}, named at {}", found.at)).hint(
            format!("change {template} so that it makes what the machine has, and look at `better-compute plan`"),
        ));
    }
    Ok(Place { at: found.at, layer: found.layer, missing: None })
}

/// The text at the place of a value.
fn written(sources: &Sources, at: &SourceRef) -> Option<String> {
    let SourceBlob::Bytes(bytes) = sources.get(&at.file)? else { return None };
    let text = std::str::from_utf8(bytes).ok()?.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    text.get(at.span.start as usize..at.span.end as usize).map(str::to_owned)
}

/// The observed value, as the language takes it at that place.
fn value(entry: &DriftEntry, written: &str, file: &str) -> Result<NewValue, Failure> {
    let Some(observed) = &entry.observed else {
        let bytes = entry.observed_bytes.unwrap_or_default();
        return Err(Failure::failed(format!(
            "the control plane does not know the value of {}, only its digest",
            entry.path
        ))
        .hint(format!(
            "{bytes} bytes that are no text, are longer than 64 KiB, or are not for everybody on the machine to read"
        )));
    };
    let number = || observed.parse::<i64>().ok().filter(|number| number.to_string() == *observed);
    let bare_number = written.parse::<i64>().is_ok();
    Ok(match observed.as_str() {
        "true" if entry.path.ends_with(".enabled") => NewValue::Boolean(true),
        "false" if entry.path.ends_with(".enabled") => NewValue::Boolean(false),
        // A file's mode is digits, and a text.
        _ => match number().filter(|_| bare_number) {
            Some(number) => NewValue::Integer(number),
            None if file.ends_with(".kdl") => NewValue::Text(without_end(entry, observed).to_owned()),
            None => NewValue::Text(observed.clone()),
        },
    })
}

/// The language ends every text of a file with a line end, and several lines of KDL read better without a last, empty one.
fn without_end<'o>(entry: &DriftEntry, observed: &'o str) -> &'o str {
    let lines = entry.path.ends_with(".content") && observed.lines().count() > 1;
    match observed.strip_suffix('\n') {
        Some(text) if lines && !text.ends_with('\n') => text,
        _ => observed,
    }
}

fn unwritable(error: &EditError, at: &SourceRef) -> Failure {
    Failure::because(format!("{} cannot be changed at {at}", at.file), error).hint("change it there by hand")
}

/// The edit says what the machine has there, and nothing else about it.
fn prove(before: &Fleet, after: &Fleet, machine: &Machine, entry: &DriftEntry) -> Result<(), Failure> {
    let (Some(before), Some(after)) = (machine.spec(before), machine.spec(after)) else {
        return Err(Failure::failed(format!("the spec of {} cannot be composed", machine.name)));
    };
    let (before, after) = (fields(&before), fields(&after));
    let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed: Vec<&str> =
        names.into_iter().filter(|name| before.get(*name) != after.get(*name)).map(String::as_str).collect();
    let says = after.get(&entry.path);
    let wanted = entry.observed.as_ref();
    if changed.iter().any(|name| *name != entry.path) {
        let others = changed.into_iter().filter(|name| *name != entry.path).collect::<Vec<_>>().join(", ");
        return Err(Failure::failed(format!("the edit would change {others} of {}, too", machine.name))
            .hint("templates read the value; change it by hand and look at `better-compute plan`"));
    }
    if says != wanted {
        let failure = Failure::failed(format!("the value of {} cannot be said by a fleet file as it is", entry.path));
        let ended = says.map(String::as_str) == wanted.map(|wanted| format!("{wanted}\n")).as_deref();
        let hint = "the file on the machine ends without a line end, and a text of the language always has one";
        return Err(if ended { failure.hint(hint) } else { failure });
    }
    Ok(())
}

/// Every field of a spec that can drift, by the name that drift has for it.
pub(super) fn fields(spec: &NodeSpec) -> BTreeMap<String, String> {
    let host = &spec.host;
    let mut fields = BTreeMap::new();
    let mut say = |path: String, value: &str| fields.insert(path, value.to_owned());
    for (name, value) in &host.sysctl {
        say(format!("sysctl.{name}"), &value.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    for module in &host.modules {
        say(format!("modules.{}", module.name), if module.blacklist { "blacklisted" } else { "loaded" });
        say(format!("modules.{}.options", module.name), &module.options);
    }
    say("kernelArgs".to_owned(), &host.kernel_args.join(" "));
    for pages in &host.hugepages {
        let size = if pages.size_kib == 1_048_576 { "1GiB" } else { "2MiB" };
        say(format!("hugepages.{size}"), &pages.count.to_string());
    }
    for file in &host.files {
        for (word, value) in
            [("content", &file.content), ("mode", &file.mode), ("owner", &file.owner), ("group", &file.group)]
        {
            say(format!("files.{}.{word}", file.path), value);
        }
    }
    for unit in &host.units {
        say(format!("units.{}.content", unit.name), &unit.content);
        if let Some(enabled) = unit.enabled {
            say(format!("units.{}.enabled", unit.name), if enabled { "true" } else { "false" });
        }
        if let Some(active) = unit.active {
            say(format!("units.{}.state", unit.name), if active { "started" } else { "stopped" });
        }
    }
    for pin in &host.packages {
        say(format!("packages.{}", pin.name), &pin.version);
    }
    fields
}

#[cfg(test)]
mod tests;
