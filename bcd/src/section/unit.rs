//! systemd units as files: names, and the links that enabling one makes.

use crate::path::HostPath;

const SUFFIXES: [&str; 8] = [".service", ".socket", ".timer", ".mount", ".path", ".target", ".slice", ".automount"];

/// Whether a text is a unit name of a kind that can be enabled.
#[must_use]
pub(super) fn is_unit_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    name.len() <= 200
        && !name.starts_with(['.', '-', '@'])
        && name.bytes().all(allowed)
        && SUFFIXES.iter().any(|suffix| name.strip_suffix(suffix).is_some_and(|stem| !stem.is_empty()))
}

/// The links that enable a unit, from its `[Install]` section, with their target.
#[must_use]
pub(super) fn enable_links(name: &str, text: &str, unit_path: &str) -> Vec<(HostPath, String)> {
    let mut in_install = false;
    let mut links = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            in_install = line == "[Install]";
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| in_install) else { continue };
        let directory = match key.trim() {
            "WantedBy" => Some(".wants"),
            "RequiredBy" => Some(".requires"),
            "Alias" => None,
            _ => continue,
        };
        for word in value.split_whitespace().filter(|word| is_unit_name(word)) {
            let place = match directory {
                Some(suffix) => format!("/etc/systemd/system/{word}{suffix}/{name}"),
                None => format!("/etc/systemd/system/{word}"),
            };
            links.push((HostPath::known(&place), unit_path.to_owned()));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_are_judged() {
        for good in ["a.service", "nvidia-persistenced.service", "getty@tty1.service", "x.timer"] {
            assert!(is_unit_name(good), "{good}");
        }
        for bad in ["", ".service", "a", "../a.service", "a/b.service", "a b.service", "a.service\n", "-a.service"] {
            assert!(!is_unit_name(bad), "{bad}");
        }
    }

    #[test]
    fn install_sections_become_links() {
        let text = "[Unit]\nWantedBy=not.target\n[Install]\nWantedBy=multi-user.target a.target\nAlias=b.service\n";
        let links = enable_links("x.service", text, "/etc/systemd/system/x.service");
        let places: Vec<_> = links.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "/etc/systemd/system/multi-user.target.wants/x.service",
                "/etc/systemd/system/a.target.wants/x.service",
                "/etc/systemd/system/b.service",
            ]
        );
    }
}
