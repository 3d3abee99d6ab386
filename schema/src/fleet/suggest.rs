//! "Did you mean": the most similar word.

/// The most similar candidate, when one is similar enough to be meant.
pub fn similar<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word: String = word.chars().take(64).collect::<String>().to_lowercase();
    let allowed = ((word.chars().count() + 1) / 3).clamp(1, 3);
    let length = word.chars().count();
    let near = |candidate: &'c str| {
        let lower = candidate.to_lowercase();
        let related = prefixes(&word, &lower);
        if !related && lower.chars().count().abs_diff(length) > allowed {
            return None;
        }
        let distance = distance(&word, &lower);
        (related || distance <= allowed).then_some((distance, candidate))
    };
    candidates.into_iter().filter_map(near).min().map(|(_, candidate)| candidate)
}

/// The candidates that were probably meant, likeliest first: those that have the word in them, then those that are a few
/// letters away.
pub(super) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Vec<&'c str> {
    let word: String = word.chars().take(128).collect::<String>().to_lowercase();
    let length = word.chars().count();
    let allowed = (length / 4).clamp(1, 4);
    let near = |candidate: &'c str| {
        let lower = candidate.to_lowercase();
        if length >= 3 && lower.contains(&word) {
            return Some((0, candidate));
        }
        let far = lower.chars().count().abs_diff(length) > allowed;
        let distance = if far { usize::MAX } else { distance(&word, &lower) };
        (distance <= allowed).then_some((distance, candidate))
    };
    let mut found: Vec<_> = candidates.into_iter().filter_map(near).collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|(_, candidate)| candidate).take(5).collect()
}

fn prefixes(word: &str, candidate: &str) -> bool {
    word.len() >= 3
        && candidate.len() >= 3
        && (candidate.starts_with(word) || word.starts_with(candidate) || candidate.ends_with(&format!(".{word}")))
}

/// Edits (insert, delete, replace, swap of neighbours) from one word to another.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().take(128).collect());
    let mut rows: [Vec<usize>; 3] = [vec![0; b.len() + 1], (0..=b.len()).collect(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        rows[2][0] = i;
        for j in 1..=b.len() {
            let replace = rows[1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[1][j] + 1).min(rows[2][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[0][j - 2] + 1);
            }
            rows[2][j] = best;
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let keys = ["sysctl", "kernel", "hugepages", "file", "unit"];
        assert_eq!(similar("sysctls", keys), Some("sysctl"));
        assert_eq!(similar("kernal", keys), Some("kernel"));
        assert_eq!(similar("flie", keys), Some("file"));
        assert_eq!(similar("files", keys), Some("file"));
        assert_eq!(similar("gpu", keys), None);
        assert_eq!(similar("reboot", ["node.reboot", "gpu.reset"]), Some("node.reboot"));
    }
}
