//! Where the fields of a host template are written: the profile layer that won, or the template file.

use schema::{
    diagnostic::SourceRef,
    fleet::{Fleet, Layer, Pool, ResolvedProfile},
    name::Name,
    object::{Kind, ObjectRef},
};

use super::FieldChange;

/// Gives every field its place, where the new tree has one.
pub(super) fn of_template(fleet: &Fleet, pool: &Pool, profile: &Name, fields: &mut [FieldChange]) {
    let Some(resolved) = fleet.resolved(profile) else { return };
    for field in fields.iter_mut().filter(|field| field.after.is_some()) {
        field.place = place(fleet, pool, resolved, &field.path);
    }
}

fn place(fleet: &Fleet, pool: &Pool, resolved: &ResolvedProfile, path: &str) -> Option<String> {
    let (root, rest) = match path.find(['.', '[']) {
        Some(at) => (&path[..at], path[at + 1..].trim_start_matches('.')),
        None => (path, ""),
    };
    // `files[/etc/motd].mode`: the item's name ends at the bracket.
    let item = rest.split(']').next().unwrap_or(rest);
    let field = rest.split_once("].").map_or("", |(_, field)| field);
    let at = match root {
        "sysctl" => layer(resolved.sysctl.get(rest)),
        "packages" => layer(resolved.packages.get(item)),
        "hugepages" => layer(resolved.hugepages.get(item)),
        "modules" => layer(resolved.modules.get(item)),
        "drift" => layer(resolved.drift.get(item)),
        "access" => resolved.access.values().find_map(|layer| {
            let key = &layer.value.value;
            key.principal.as_ref().is_some_and(|principal| principal.value == item).then_some(&layer.value.at)
        }),
        "kernelArgs" => resolved.kernel_args.last().map(|layer| &layer.value.at),
        "files" => resolved.files.get(item).map(|layer| {
            let file = &layer.value.value;
            let own = match field.split('.').next().unwrap_or_default() {
                "mode" => file.mode.as_ref().map(|mode| &mode.at),
                "owner" => file.owner.as_ref().map(|owner| &owner.at),
                "group" => file.group.as_ref().map(|group| &group.at),
                "restart" => file.restart.first().map(|unit| &unit.at),
                "content" => file.template.as_ref().or(file.content.as_ref()).map(|content| &content.at),
                _ => None,
            };
            own.unwrap_or(&layer.value.at)
        }),
        "units" => resolved.units.get(item).map(|layer| {
            let unit = &layer.value.value;
            let own = match field.split('.').next().unwrap_or_default() {
                "enabled" => unit.enable.as_ref().map(|enable| &enable.at),
                "active" => unit.state.as_ref().map(|state| &state.at),
                "drain" => unit.drain.as_ref().map(|drain| &drain.at),
                "content" => unit.template.as_ref().or(unit.content.as_ref()).map(|content| &content.at),
                _ => None,
            };
            own.unwrap_or(&layer.value.at)
        }),
        // A template's text is a file of its own.
        "templates" => return Some(format!("{rest}:1")),
        "values" => {
            let (of, key) = rest.split_once('.').unwrap_or((rest, ""));
            let object = match of {
                "fleet" => ObjectRef::new(Kind::Fleet, fleet.document.name.clone()),
                "site" => ObjectRef::new(Kind::Site, pool.site.value.clone()),
                "pool" => ObjectRef::new(Kind::Pool, pool.name.clone()),
                "profile" => ObjectRef::new(Kind::Profile, resolved.name.clone()),
                _ => return None,
            };
            fleet.place(&object, key)
        }
        "pool" => Some(&pool.at),
        "profile" => Some(&pool.profile.at),
        _ => None,
    };
    at.map(|at| format!("{}:{}", at.file, at.line()))
}

fn layer<T>(layer: Option<&Layer<T>>) -> Option<&SourceRef> {
    layer.map(|layer| &layer.value.at)
}
