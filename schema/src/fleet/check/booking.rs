//! Who books what: quotas that can be used, and MIG layouts that a GPU can have.

use std::collections::BTreeMap;

use super::references::Unread;
use crate::{
    diagnostic::{Diagnostic, codes, shown},
    fleet::{
        Pool, Quota,
        kind::{GpuSharing, Gpus, Policy},
        load::{Objects, ParsedFile},
        suggest::similar,
    },
    object::Kind,
};

/// Checks quotas and MIG layouts.
pub(super) fn check(objects: &Objects, files: &[ParsedFile], found: &mut Vec<Diagnostic>) {
    let models_known = !Unread::of(files, objects).doubts(Kind::Pool);
    let mut limits: BTreeMap<_, &Quota> = BTreeMap::new();
    for quota in objects.quotas.values() {
        let (pool, model) = (quota.pool.as_ref(), quota.gpu_model.as_ref());
        let key = (&quota.tenant.value, pool.map(|pool| &pool.value), model.map(|model| &model.value));
        if let Some(first) = limits.insert(key, quota) {
            let message = format!("quota/{} and quota/{} are about the same", first.name, quota.name);
            let diagnostic = Diagnostic::new(codes::BAD_QUOTA, &quota.at, message).also(&first.at, "the first");
            found.push(diagnostic.help("put both limits into one quota"));
        }
        let pool = pool.and_then(|pool| objects.pools.get(&pool.value));
        if let Some(pool) = pool {
            allowed(quota, pool, found);
        }
        // Another pool may have the model when not all pools are known.
        if pool.is_some() || (quota.pool.is_none() && models_known) {
            known_model(quota, pool, objects, found);
        }
    }
    for pool in objects.pools.values() {
        if let Some(policy) = &pool.policy {
            mig(pool, policy, found);
        }
    }
}

fn allowed(quota: &Quota, pool: &Pool, found: &mut Vec<Diagnostic>) {
    let tenants = pool.policy.as_ref().map(|policy| policy.tenants.as_slice()).unwrap_or_default();
    let Some(first) = tenants.first() else { return };
    if !tenants.contains(&quota.tenant) {
        let message = format!("tenant/{} may not book in pool/{}", quota.tenant.value, pool.name);
        let diagnostic = Diagnostic::new(codes::BAD_QUOTA, &quota.tenant.at, message);
        found.push(diagnostic.also(&first.at, "these tenants may"));
    }
}

fn gpus(pool: &Pool) -> Option<&Gpus> {
    pool.hardware.as_ref()?.gpus.as_ref().map(|gpus| &gpus.value)
}

/// A model that no pool has is a mistake; pools that do not say theirs may have any.
fn known_model(quota: &Quota, pool: Option<&Pool>, objects: &Objects, found: &mut Vec<Diagnostic>) {
    let Some(model) = &quota.gpu_model else { return };
    let pools: Vec<&Pool> = match pool {
        Some(pool) => vec![pool],
        None => objects.pools.values().collect(),
    };
    let models: Option<Vec<&str>> =
        pools.iter().map(|pool| gpus(pool).and_then(|gpus| Some(gpus.model.as_ref()?.value.as_str()))).collect();
    let Some(models) = models.filter(|models| !models.contains(&model.value.as_str())) else { return };
    let where_ = pool.map_or_else(|| "no pool".to_owned(), |pool| format!("not pool/{}", pool.name));
    let near = similar(model, models.iter().copied()).or(models.first().copied());
    let diagnostic =
        Diagnostic::new(codes::BAD_QUOTA, &model.at, format!("{where_} has GPUs of the model {:?}", model.value));
    found.push(diagnostic.maybe_help(near.map(|near| format!("did you mean {near:?}?"))));
}

/// Compute slices of a GPU that can be divided.
const SLICES: u32 = 7;

/// What a MIG profile takes: compute slices and GB of memory. Written `1g.10gb`, with `+me` and the like at its end.
fn profile(name: &str) -> Option<(u32, u32)> {
    let (base, extra) = name.split_once(['+', '-']).map_or((name, None), |(base, extra)| (base, Some(extra)));
    if extra.is_some_and(|extra| !matches!(extra, "me" | "me.all" | "gfx")) {
        return None;
    }
    let (slices, memory) = base.split_once('.')?;
    let whole = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
    let (slices, memory) = (whole(slices.strip_suffix('g')?)?, whole(memory.strip_suffix("gb")?)?);
    (matches!(slices, 1..=4 | 7) && (1..=1024).contains(&memory)).then_some((slices, memory))
}

fn mig(pool: &Pool, policy: &Policy, found: &mut Vec<Diagnostic>) {
    let Some((_, first)) = policy.mig.first_key_value() else { return };
    let sharing = policy.gpu_sharing.as_ref();
    if sharing.is_none_or(|sharing| sharing.value != GpuSharing::Mig) {
        let at = sharing.map_or(&first.at, |sharing| &sharing.at);
        let message = "GPUs are divided by `mig` and not shared as MIG";
        found.push(Diagnostic::new(codes::BAD_MIG, at, message).help("gpu-sharing \"mig\""));
    }
    let (mut slices, mut memory) = (0, 0);
    for (name, count) in &policy.mig {
        let Some((of_slices, of_memory)) = profile(name) else {
            let shown = shown(name);
            let diagnostic = Diagnostic::new(codes::BAD_MIG, &count.at, format!("{shown:?} is not a MIG profile"));
            found.push(diagnostic.help("a profile is written like 1g.10gb, 3g.40gb or 1g.10gb+me"));
            return;
        };
        slices += count.value * of_slices;
        memory += u64::from(count.value * of_memory);
    }
    if slices > SLICES {
        let message = format!("these instances take {slices} compute slices, and a GPU has {SLICES}");
        found.push(Diagnostic::new(codes::BAD_MIG, &first.at, message));
    }
    // Profiles are named by memory that is rounded, up and down: a layout may sum up to a little more than there is.
    let have = gpus(pool).and_then(|gpus| gpus.memory.as_ref());
    if let Some(have) = have.filter(|have| memory << 30 > have.value.0 + have.value.0 / 16) {
        let message = format!("these instances take {memory} GB, and a GPU of pool/{} has {}", pool.name, have.value);
        found.push(Diagnostic::new(codes::BAD_MIG, &first.at, message).also(&have.at, "the memory of each GPU"));
    }
}
