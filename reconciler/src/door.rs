//! The door of a port: so many connections at once, of these so many of one address, and a line in the log now and then when
//! somebody finds no place.

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use schema::{
    places::{Full, Place, Places, network},
    seldom::Seldom,
};

/// How often the log says that connections are dropped.
pub(crate) const TOLD_EVERY: Duration = Duration::from_secs(60);

/// How many connections there may be at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Width {
    /// Of everybody.
    pub(crate) all: usize,
    /// Of one address, or of one IPv6 network of 64 bits.
    pub(crate) each: usize,
}

/// The door of one port.
#[derive(Debug)]
pub(crate) struct Door {
    port: &'static str,
    width: Width,
    places: Arc<Places<IpAddr>>,
    full: Seldom,
    crowded: Seldom,
}

impl Door {
    /// Of a port that the log calls so.
    pub(crate) fn new(port: &'static str, width: Width) -> Self {
        let (full, crowded) = (Seldom::new(TOLD_EVERY), Seldom::new(TOLD_EVERY));
        Self { port, width, places: Places::new(width.all, width.each), full, crowded }
    }

    /// A place for a connection, for as long as it is held; without one, what the log is told when it is time for a line.
    pub(crate) fn enter(&self, address: IpAddr, now: Instant) -> Result<Place<IpAddr>, Option<String>> {
        let (whose, Self { port, width: Width { all, each }, .. }) = (network(address), self);
        self.places.take(whose).map_err(|full| match full {
            Full::Share => self.crowded.happened(now).map(|dropped| {
                format!(
                    "{port}: {dropped} connections were dropped: {whose} has all {each} that one address may have at once; others \
                     are served. Where a proxy stands there, let it keep fewer connections or speak HTTP/2; if you do not \
                     know it, close the port to it"
                )
            }),
            Full::All => self.full.happened(now).map(|dropped| {
                let (most, has) = self.places.most().unwrap_or((whose, 0));
                format!(
                    "{port}: {dropped} connections were dropped: all {all} places are taken, most of them ({has}) by {most}; if \
                     you do not know it, close the port to it"
                )
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_whole_share_is_named_once_a_minute_and_others_come_in() {
        let (door, now) = (Door::new("the API", Width { all: 4, each: 2 }), Instant::now());
        let enter = |last: u8| door.enter(IpAddr::from([192, 0, 2, last]), now);
        let held: Vec<_> = (0..2).map(|_| enter(1).expect("a place")).collect();
        let told = enter(1).expect_err("no place").expect("a line");
        assert!(told.starts_with("the API: 1 connections were dropped: 192.0.2.1 has all 2 "), "{told}");
        assert_eq!(enter(1).expect_err("no place"), None, "not again");
        let others: Vec<_> = (2..4).map(|last| enter(last).expect("a place")).collect();
        let told = enter(4).expect_err("no place").expect("a line");
        assert!(told.contains("all 4 places are taken, most of them (2) by 192.0.2.1"), "{told}");
        drop((held, others));
        assert!(enter(1).is_ok());
        let held: Vec<_> = (0..2).map(|_| enter(1)).collect();
        let later = door.enter(IpAddr::from([192, 0, 2, 1]), now + TOLD_EVERY).expect_err("no place");
        assert!(later.expect("a line").starts_with("the API: 2 connections"));
        drop(held);
    }
}
