//! Places that are few: so many for all, and of these so many for each who comes.
//!
//! Whoever takes more than a share is refused alone. What a place is for, and who somebody is, is told by whoever counts.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Places, counted by who has them.
#[derive(Debug)]
pub struct Places<K: Eq + Hash> {
    all: usize,
    each: usize,
    taken: Mutex<Taken<K>>,
}

#[derive(Debug)]
struct Taken<K> {
    total: usize,
    of: HashMap<K, usize>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// All are taken.
    All,
    /// Who asks has a whole share.
    Share,
}

impl<K: Copy + Eq + Hash> Places<K> {
    /// So many for all, and so many of them for each.
    #[must_use]
    pub fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { all, each, taken: Mutex::new(Taken { total: 0, of: HashMap::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, Taken<K>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One place, for as long as it is held.
    ///
    /// # Errors
    /// What is full. Who has a whole share is told so, whatever others have.
    pub fn take(self: &Arc<Self>, whose: K) -> Result<Place<K>, Full> {
        let mut taken = self.lock();
        let has = taken.of.get(&whose).copied().unwrap_or_default();
        if has >= self.each {
            return Err(Full::Share);
        }
        if taken.total >= self.all {
            return Err(Full::All);
        }
        taken.of.insert(whose, has + 1);
        taken.total += 1;
        drop(taken);
        Ok(Place { places: Arc::clone(self), whose })
    }

    /// Who has the most, and how many.
    pub fn most(&self) -> Option<(K, usize)> {
        self.lock().of.iter().max_by_key(|(_, count)| **count).map(|(whose, count)| (*whose, *count))
    }
}

/// A place that is taken.
#[derive(Debug)]
pub struct Place<K: Copy + Eq + Hash> {
    places: Arc<Places<K>>,
    whose: K,
}

impl<K: Copy + Eq + Hash> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.total -= 1;
        if let Some(count) = taken.of.get_mut(&self.whose) {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&self.whose);
            }
        }
    }
}

/// Whose an address is, as far as addresses tell: whoever has one of an IPv6 network of 64 bits has all of it.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// Of all that are counted, the one with the most; the first of several.
pub fn most_crowded<K: Eq + Hash + Copy>(all: impl Iterator<Item = K> + Clone) -> Option<K> {
    let mut counts: HashMap<K, usize> = HashMap::new();
    all.clone().for_each(|key| *counts.entry(key).or_default() += 1);
    let most = counts.values().copied().max()?;
    all.into_iter().find(|key| counts.get(key) == Some(&most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn held(places: &Arc<Places<IpAddr>>, addresses: impl IntoIterator<Item = IpAddr>) -> Vec<Place<IpAddr>> {
        addresses.into_iter().filter_map(|address| places.take(network(address)).ok()).collect()
    }

    #[test]
    fn an_address_has_its_share_and_gives_it_back() {
        let places = Places::new(100, 2);
        let (one, two) = (address("192.0.2.1"), address("192.0.2.2"));
        let taken = held(&places, [one; 5]);
        assert_eq!(taken.len(), 2);
        assert_eq!(places.take(one).map(drop), Err(Full::Share));
        assert_eq!(places.most(), Some((one, 2)));
        assert!(places.take(two).is_ok());
        drop(taken);
        assert_eq!(places.most(), None);
        assert_eq!(places.lock().total, 0);
    }

    #[test]
    fn all_together_have_no_more_than_there_are() {
        let places = Places::new(10, 2);
        let taken = held(&places, (0..200_u8).map(|last| IpAddr::from([192, 0, 2, last])));
        assert_eq!(taken.len(), 10);
        assert_eq!(places.take(address("198.51.100.1")).map(drop), Err(Full::All));
        drop(taken);
        assert!(places.take(address("198.51.100.1")).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_however_many_it_has() {
        let places = Places::new(100, 2);
        let many = (0..50_u16).map(|host| Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, host).into());
        let taken = held(&places, many);
        assert_eq!(taken.len(), 2);
        assert_eq!(held(&places, [address("2001:db8:0:2::1")]).len(), 1);
        // A socket for both shows IPv4 like this.
        assert_eq!(held(&places, ["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"].map(address)).len(), 3);
        assert_eq!(network(address("::ffff:192.0.2.1")), address("192.0.2.1"));
    }

    #[test]
    fn the_crowd_is_where_the_most_are() {
        assert_eq!(most_crowded([1, 2, 2, 3, 3].into_iter()), Some(2));
        assert_eq!(most_crowded(std::iter::empty::<u8>()), None);
    }
}
