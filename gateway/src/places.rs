//! Places for connections: by address for peers without a good certificate, by identity for nodes.
//!
//! Whoever takes more than a share is refused alone; a node is known by its certificate and not by its address, so that a
//! site behind one address is no crowd. All peers without a certificate have a part of the places only, so that a node
//! always finds one.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
};

use pki::verify::Peer;
use schema::id::NodeId;

/// How many places there are for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// For all peers without a good certificate.
    pub(crate) strangers: usize,
    /// For those of one address.
    pub(crate) per_address: usize,
    /// For one node.
    pub(crate) per_identity: usize,
}

/// Connections, counted.
#[derive(Debug)]
pub(crate) struct Places {
    shares: Shares,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    strangers: usize,
    of: HashMap<Whose, usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Address(IpAddr),
    Node(NodeId),
}

impl Places {
    pub(crate) fn new(shares: Shares) -> Arc<Self> {
        Arc::new(Self { shares, taken: Mutex::default() })
    }

    /// A place for one connection, for as long as it is held.
    pub(crate) fn take(self: &Arc<Self>, peer: &Peer, address: IpAddr) -> Option<Place> {
        let (whose, most) = match peer {
            Peer::Node(identity) => (Whose::Node(identity.node_id), self.shares.per_identity),
            Peer::Anonymous | Peer::Refused(_) => (Whose::Address(network(address)), self.shares.per_address),
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stranger = matches!(whose, Whose::Address(_));
        let has = taken.of.get(&whose).copied().unwrap_or_default();
        if has >= most || (is_stranger && taken.strangers >= self.shares.strangers) {
            return None;
        }
        taken.of.insert(whose, has + 1);
        taken.strangers += usize::from(is_stranger);
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
        taken.strangers -= usize::from(matches!(self.whose, Whose::Address(_)));
        if let Some(count) = taken.of.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&self.whose);
            }
        }
    }
}

/// Whose an address is, as far as addresses tell: whoever has one of an IPv6 network of 64 bits has all of it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
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
    use pki::{
        issue::{CertifiedKinds, Serial},
        node_key::NodePublicKey,
        verify::NodeIdentity,
    };
    use schema::time::Timestamp;

    use super::*;

    const SHARES: Shares = Shares { strangers: 100, per_address: 2, per_identity: 1 };

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn held(places: &Arc<Places>, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Place> {
        addresses.into_iter().filter_map(|address| places.take(&Peer::Anonymous, address)).collect()
    }

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let places = Places::new(SHARES);
        let (one, two) = (address("192.0.2.1"), address("192.0.2.2"));
        let taken = held(&places, [one; 5]);
        assert_eq!(taken.len(), 2);
        assert!(places.take(&Peer::Anonymous, two).is_some());
        drop(taken);
        let taken = places.taken.lock().expect("not poisoned");
        assert!(taken.of.is_empty() && taken.strangers == 0);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_however_many_it_has() {
        let places = Places::new(SHARES);
        let many = (0..50_u16).map(|host| Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host).into());
        let taken = held(&places, many);
        assert_eq!(taken.len(), 2);
        assert!(places.take(&Peer::Anonymous, address("2001:db8:0:2::1")).is_some());
        // A socket for both shows IPv4 like this.
        assert_eq!(held(&places, ["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"].map(address)).len(), 3);
        assert_eq!(network(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }

    #[test]
    fn strangers_from_everywhere_leave_a_node_its_place() {
        let places = Places::new(Shares { strangers: 10, ..SHARES });
        let taken = held(&places, (0..200_u8).map(|last| IpAddr::from([192, 0, 2, last])));
        assert_eq!(taken.len(), 10);
        let node = Peer::Node(NodeIdentity {
            node_id: NodeId::generate(),
            serial: Serial::from_bytes(&[1]),
            public_key: NodePublicKey::from_bytes(&[]),
            kinds: CertifiedKinds::All,
            not_before: Timestamp::UNIX_EPOCH,
            not_after: Timestamp::MAX,
        });
        assert!(places.take(&node, address("192.0.2.1")).is_some());
        drop(taken);
        assert_eq!(held(&places, [address("192.0.2.1")]).len(), 1);
    }

    #[test]
    fn the_crowd_is_where_the_most_are() {
        assert_eq!(most_crowded([1, 2, 2, 3, 3].into_iter()), Some(2));
        assert_eq!(most_crowded(std::iter::empty::<u8>()), None);
    }
}
