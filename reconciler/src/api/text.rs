//! Words that are nearly the ones that exist.

/// The candidate that `word` most likely meant; `None` when none is near.
pub(super) fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let far = (word.chars().count() / 3).max(2);
    candidates
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min()
        .map(|(_, candidate)| candidate)
}

/// How many letters have to be added, taken away or replaced.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_word_is_found_and_a_far_one_is_not() {
        let words = ["nodes.list", "nodes.get", "tokens.create"];
        assert_eq!(closest("node.list", words.into_iter()), Some("nodes.list"));
        assert_eq!(closest("tokens.craete", words.into_iter()), Some("tokens.create"));
        assert_eq!(closest("reservations.extend", words.into_iter()), None);
    }
}
