//! Shards: how node-keyed work is spread over processes.

use crate::digest::Digest;

/// How many shards there are, for ever.
pub const COUNT: u16 = 256;

/// The shard of a node id's text.
#[must_use]
pub fn of(key: &str) -> u16 {
    u16::from(Digest::of(key).as_bytes()[0])
}

/// Which of `workers` owns `shard`: the one with the highest hash for it (rendezvous hashing), so that a worker that
/// comes or goes moves only its own share. `None` when there are no workers.
#[must_use]
pub fn owner(shard: u16, workers: &[String]) -> Option<&str> {
    workers
        .iter()
        .max_by_key(|worker| (*Digest::of(format!("{worker}/{shard}")).as_bytes(), worker.as_str()))
        .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaving_worker_moves_only_its_own_shards() {
        let three = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let two = ["a".to_owned(), "b".to_owned()];
        for shard in 0..COUNT {
            let before = owner(shard, &three).expect("an owner");
            if before != "c" {
                assert_eq!(owner(shard, &two), Some(before));
            }
        }
    }

    #[test]
    fn every_worker_gets_a_share() {
        let workers: Vec<String> = (0..4).map(|n| format!("wrk-{n}")).collect();
        for worker in &workers {
            let share = (0..COUNT).filter(|shard| owner(*shard, &workers) == Some(worker)).count();
            assert!(share > 30, "{worker} has {share}");
        }
    }
}
