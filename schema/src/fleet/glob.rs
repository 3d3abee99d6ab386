//! The patterns of `ignore` in `fleet.kdl`.
//!
//! A pattern is a path from the fleet's root. `*` stands for anything inside one component, `**` for any number of
//! components, `?` for one character. A pattern that names a folder covers everything below it.

/// Whether a pattern covers a path.
#[must_use]
pub fn covers(pattern: &str, path: &str) -> bool {
    let pattern: Vec<&str> = pattern.trim_matches('/').split('/').collect();
    let path: Vec<&str> = path.split('/').collect();
    parts(&pattern, &path)
}

fn parts(pattern: &[&str], path: &[&str]) -> bool {
    // reachable[i]: the pattern so far matches the first i components.
    let mut reachable = vec![false; path.len() + 1];
    reachable[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if *part == "**" {
            let mut open = false;
            for (index, here) in reachable.iter().enumerate() {
                open |= here;
                next[index] = open;
            }
        } else {
            for (index, name) in path.iter().enumerate() {
                next[index + 1] = reachable[index] && component(part.as_bytes(), name.as_bytes());
            }
        }
        reachable = next;
    }
    reachable[1..].iter().any(|here| *here)
}

/// Whether a pattern with `*` for any letters and `?` for one fits a text as a whole.
pub(super) fn text(pattern: &str, text: &str) -> bool {
    component(pattern.as_bytes(), text.as_bytes())
}

fn component(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut into) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while into < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, into));
                at += 1;
            }
            Some(letter) if *letter == b'?' || *letter == name[into] => {
                at += 1;
                into += 1;
            }
            _ => match &mut star {
                Some((from, upto)) => {
                    *upto += 1;
                    at = *from + 1;
                    into = *upto;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_files_and_folders() {
        for (pattern, path) in [
            ("docs", "docs/a.yaml"),
            ("docs/", "docs/x/y.yaml"),
            ("docs/**", "docs/a.yaml"),
            ("*.yml", "a.yml"),
            ("**/*.yml", "a/b/c.yml"),
            ("**/charts/**", "a/charts/b/c.yaml"),
            ("nodes/fra1-r??.kdl", "nodes/fra1-r12.kdl"),
        ] {
            assert!(covers(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in
            [("docs", "docs2/a.yaml"), ("*.yml", "a/b.yml"), ("docs/*.kdl", "docs/a/b.yaml"), ("", "a.kdl")]
        {
            assert!(!covers(pattern, path), "{pattern} {path}");
        }
    }
}
