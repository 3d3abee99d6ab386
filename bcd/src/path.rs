//! Paths on a host: absolute, normalised, and nothing else.
//!
//! A spec is signed, and its paths are still judged here: what is refused can never reach the file system.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The longest path and the longest component that Linux takes.
const MAX_PATH: usize = 4095;
const MAX_COMPONENT: usize = 255;

/// What `bcd` never writes, whoever asks: kernel trees are reached by name (`sysctl`, `hugepages`), devices not at all.
const RESERVED: [&str; 4] = ["/proc", "/sys", "/dev", "/var/lib/bcd"];

/// Why a text is not a path on a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// It does not begin with `/`, or is `/` itself.
    #[error("{0:?} is not an absolute path to a file")]
    NotAbsolute(String),
    /// It holds `.`, `..`, an empty component or a `/` at the end.
    #[error("{0:?} is not normalised: no empty component, no '.', no '..'")]
    NotNormalised(String),
    /// It holds a control character.
    #[error("{0:?} holds a control character")]
    Control(String),
    /// It is longer than Linux takes.
    #[error("the path is longer than Linux takes")]
    TooLong,
    /// It lies in a tree that is not configured by files.
    #[error("{path:?} lies under {tree}, where no file may be managed")]
    Reserved {
        /// The path.
        path: String,
        /// The tree.
        tree: &'static str,
    },
}

/// An absolute, normalised path on a host, read relative to the root that the daemon works under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct HostPath(String);

impl HostPath {
    /// A path that this program wrote itself.
    #[must_use]
    pub fn known(text: &str) -> Self {
        text.parse().expect("paths in this program are absolute and normalised")
    }

    /// The same path, if a spec may put a file there.
    ///
    /// # Errors
    /// When the path lies in a tree of the kernel or of this daemon.
    pub fn manageable(self) -> Result<Self, BadPath> {
        match RESERVED.into_iter().find(|tree| self.is_under(tree)) {
            Some(tree) => Err(BadPath::Reserved { path: self.0, tree }),
            None => Ok(self),
        }
    }

    /// Whether this is `tree` or lies in it.
    #[must_use]
    pub fn is_under(&self, tree: &str) -> bool {
        self.0.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The text, with its leading `/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components, in order.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0[1..].split('/')
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().expect("a split has a last part")
    }

    /// The directory that holds it; `None` for what is directly under the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/').expect("a path begins with /");
        (!parent.is_empty()).then(|| Self(parent.to_owned()))
    }
}

impl FromStr for HostPath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_PATH {
            return Err(BadPath::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(BadPath::Control(text.to_owned()));
        }
        let Some(rest) = text.strip_prefix('/').filter(|rest| !rest.is_empty()) else {
            return Err(BadPath::NotAbsolute(text.to_owned()));
        };
        for component in rest.split('/') {
            if matches!(component, "" | "." | "..") {
                return Err(BadPath::NotNormalised(text.to_owned()));
            }
            if component.len() > MAX_COMPONENT {
                return Err(BadPath::TooLong);
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for HostPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused() {
        for text in
            ["", "/", "etc/motd", "/etc//motd", "/etc/./motd", "/etc/../shadow", "/..", "/etc/", "/a\0b", "/a\nb"]
        {
            assert!(text.parse::<HostPath>().is_err(), "{text:?}");
        }
        assert_eq!(format!("/{}", "a".repeat(256)).parse::<HostPath>(), Err(BadPath::TooLong));
    }

    #[test]
    fn kernel_trees_and_the_daemons_own_are_reserved() {
        for text in ["/proc/sys/vm/swappiness", "/sys/x", "/dev/sda", "/var/lib/bcd/memory.json", "/proc"] {
            assert!(HostPath::known(text).manageable().is_err(), "{text}");
        }
        for text in ["/process", "/etc/motd", "/var/lib/bcd-cache/x"] {
            assert!(HostPath::known(text).manageable().is_ok(), "{text}");
        }
    }

    #[test]
    fn parents_end_at_the_root() {
        let path = HostPath::known("/etc/ssh/keys");
        assert_eq!(path.parent(), Some(HostPath::known("/etc/ssh")));
        assert_eq!(HostPath::known("/etc").parent(), None);
        assert_eq!(path.name(), "keys");
    }
}
