//! Places for connections: by address for peers without a good certificate, by identity for nodes.
//!
//! Whoever takes more than a share is refused alone; a node is known by its certificate and not by its address, so that a
//! site behind one address is no crowd.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use pki::verify::Peer;
use schema::id::NodeId;

/// Connections, counted.
#[derive(Debug)]
pub(crate) struct Places {
    per_address: usize,
    per_identity: usize,
    taken: Mutex<HashMap<Whose, usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Address(IpAddr),
    Node(NodeId),
}

impl Places {
    pub(crate) fn new(per_address: usize, per_identity: usize) -> Arc<Self> {
        Arc::new(Self { per_address, per_identity, taken: Mutex::default() })
    }

    /// A place for one connection, for as long as it is held.
    pub(crate) fn take(self: &Arc<Self>, peer: &Peer, address: IpAddr) -> Option<Place> {
        let (whose, most) = match peer {
            Peer::Node(identity) => (Whose::Node(identity.node_id), self.per_identity),
            Peer::Anonymous | Peer::Refused(_) => (Whose::Address(address), self.per_address),
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(whose).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(taken);
        Some(Place { places: Arc::clone(self), whose })
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    whose: Whose,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.whose);
            }
        }
    }
}

/// Of all that are counted, the one with the most; the first of several.
pub(crate) fn most_crowded<K: Eq + Hash + Copy>(all: impl Iterator<Item = K> + Clone) -> Option<K> {
    let mut counts: HashMap<K, usize> = HashMap::new();
    all.clone().for_each(|key| *counts.entry(key).or_default() += 1);
    let most = counts.values().copied().max()?;
    all.into_iter().find(|key| counts.get(key) == Some(&most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let places = Places::new(2, 1);
        let (one, two): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let held: Vec<_> = (0..5).filter_map(|_| places.take(&Peer::Anonymous, one)).collect();
        assert_eq!(held.len(), 2);
        assert!(places.take(&Peer::Anonymous, two).is_some());
        drop(held);
        assert!(places.taken.lock().expect("not poisoned").is_empty());
    }

    #[test]
    fn the_crowd_is_where_the_most_are() {
        assert_eq!(most_crowded([1, 2, 2, 3, 3].into_iter()), Some(2));
        assert_eq!(most_crowded(std::iter::empty::<u8>()), None);
    }
}
