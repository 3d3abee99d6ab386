//! Hosts that render without a finding, which nearly all do: looked at side by side, and not again while neither the
//! pool's template nor the machine's document changed.

use std::{
    collections::HashMap,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    digest::Digest,
    fleet::{HostTemplate, Node, NodeOverlay, Stop, host::Composer, template},
    name::Name,
};

/// What was found clean: by pool and profile, of which template. A copy shares it.
#[derive(Debug, Clone, Default)]
pub(in crate::fleet) struct Clean {
    groups: HashMap<(Name, Name), Arc<Group>>,
}

#[derive(Debug)]
struct Group {
    target: Digest,
    /// The machines, by name.
    nodes: Vec<Arc<Node>>,
    /// The machine without a document that was looked at as well.
    sample: Option<String>,
}

impl Group {
    /// Those of some machines, given by name, that were not looked at as they are.
    fn fresh<'n>(&self, nodes: &[&'n Arc<Node>]) -> Vec<&'n Arc<Node>> {
        let mut known = self.nodes.iter().peekable();
        let mut fresh = Vec::new();
        for node in nodes {
            let same = known.next_if(|known| Arc::ptr_eq(known, node)).is_some();
            if !same {
                while known.next_if(|known| known.name < node.name).is_some() {}
                if known.next_if(|known| Arc::ptr_eq(known, node)).is_none() {
                    fresh.push(*node);
                }
            }
        }
        fresh
    }
}

impl Clean {
    /// Whether the hosts of a pool under a profile, given by name, and a machine without a document are clean. `mended`
    /// is the template without what was reported already; it is a function of `template`.
    pub(super) fn covers(
        &mut self,
        template: &HostTemplate,
        mended: &HostTemplate,
        nodes: &[&Arc<Node>],
        sample: Option<&str>,
        stop: &Stop<'_>,
    ) -> bool {
        let key = (template.pool.clone(), template.profile.clone());
        let target = template.digest();
        let known = self.groups.get(&key).filter(|known| known.target == target);
        let fresh = known.map_or_else(|| nodes.to_vec(), |known| known.fresh(nodes));
        let sample_known = known.is_some_and(|known| known.sample.as_deref() == sample);
        let same = sample_known && fresh.is_empty() && known.is_some_and(|known| known.nodes.len() == nodes.len());
        if same {
            return true;
        }
        let clean = are_clean(mended, &fresh, sample.filter(|_| !sample_known), stop);
        if clean {
            let nodes = nodes.iter().map(|node| Arc::clone(node)).collect();
            self.groups.insert(key, Arc::new(Group { target, nodes, sample: sample.map(str::to_owned) }));
        } else {
            self.groups.remove(&key);
        }
        clean
    }

    /// Forgets all but the pools and profiles that are there.
    pub(super) fn keep(&mut self, seen: impl Fn(&Name, &Name) -> bool) {
        self.groups.retain(|(pool, profile), _| seen(pool, profile));
    }
}

/// Machines that a thread takes at once.
const TAKEN: usize = 32;

/// Renders the texts of machines until one fails; what was stopped is not clean.
fn are_clean(template: &HostTemplate, nodes: &[&Arc<Node>], sample: Option<&str>, stop: &Stop<'_>) -> bool {
    let Ok(composer) = Composer::new(template) else { return false };
    let texts = composer.texts();
    let first = nodes.first().map(|node| (NodeOverlay::of(node), node.name.as_str()));
    let first = first.or_else(|| sample.map(|name| (NodeOverlay::default(), name)));
    let Some((overlay, name)) = first else { return true };
    // What cannot tell machines apart is rendered for one of them.
    if !composer.renders(&texts.alike, &overlay, name) {
        return false;
    }
    if texts.apart.is_empty() {
        return true;
    }
    if sample.is_some_and(|name| !composer.renders(&texts.apart, &NodeOverlay::default(), name)) {
        return false;
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let start = next.fetch_add(TAKEN, Ordering::Relaxed);
            let Some(taken) = nodes.get(start..(start + TAKEN).min(nodes.len())).filter(|taken| !taken.is_empty())
            else {
                return;
            };
            if !taken
                .iter()
                .all(|node| !stop.is_said() && composer.renders(&texts.apart, &NodeOverlay::of(node), &node.name))
            {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, NonZero::get).min(8).min(nodes.len().div_ceil(TAKEN));
    thread::scope(|scope| {
        let spawn = |_| thread::Builder::new().stack_size(template::STACK).spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..workers).filter_map(spawn).collect();
        // This thread has the stack for it as well, and is enough where there is no other.
        work();
        // What panicked may have left machines out.
        let whole = helpers.into_iter().all(|helper| helper.join().is_ok());
        whole && !failed.load(Ordering::Relaxed)
    })
}
