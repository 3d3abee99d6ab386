//! Looking up in order: two lists that have the same order are walked side by side, so that what is the same in both costs
//! a step and no search.

use std::iter::Peekable;

/// Entries in the order of their keys, each found at most in that order.
pub(super) struct InOrder<I: Iterator> {
    rest: Peekable<I>,
}

impl<'k, K: Ord + 'k, V: Copy, I: Iterator<Item = (&'k K, V)>> InOrder<I> {
    pub(super) fn new(entries: impl IntoIterator<IntoIter = I>) -> Self {
        Self { rest: entries.into_iter().peekable() }
    }

    /// The entry of a key that is not before the one that was asked for last.
    pub(super) fn find(&mut self, key: &K) -> Option<V> {
        while self.rest.next_if(|(other, _)| *other < key).is_some() {}
        self.rest.peek().filter(|(other, _)| *other == key).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_in_order_is_found() {
        let entries = [(1, 'a'), (3, 'c'), (4, 'd'), (9, 'z')];
        let mut entries = InOrder::new(entries.iter().map(|(key, value)| (key, *value)));
        let found: Vec<_> = [0, 1, 1, 2, 4, 5].iter().map(|key| entries.find(key)).collect();
        assert_eq!(found, [None, Some('a'), Some('a'), None, Some('d'), None]);
    }
}
