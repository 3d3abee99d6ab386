//! Accounts: names to numbers, from the root's own `passwd` and `group`.

use std::collections::BTreeMap;

/// Users and groups of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
    root_user: u32,
    root_group: u32,
}

impl Accounts {
    /// Reads the two files. `root` needs no line in them: it is `root_ids`, which is (0, 0) on a host and whoever runs
    /// the daemon when a directory stands for the root and nobody can be anything else there.
    #[must_use]
    pub fn new(passwd: &str, group: &str, root_ids: (u32, u32)) -> Self {
        let table = |text: &str| {
            text.lines()
                .filter_map(|line| {
                    let mut fields = line.split(':');
                    let name = fields.next()?;
                    Some((name.to_owned(), fields.nth(1)?.parse().ok()?))
                })
                .collect()
        };
        Self { users: table(passwd), groups: table(group), root_user: root_ids.0, root_group: root_ids.1 }
    }

    /// A user's number.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<u32> {
        id(name, self.root_user, &self.users)
    }

    /// A group's number.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<u32> {
        id(name, self.root_group, &self.groups)
    }

    /// A user's name, or its number as text.
    #[must_use]
    pub fn user_name(&self, uid: u32) -> String {
        name(uid, self.root_user, &self.users)
    }

    /// A group's name, or its number as text.
    #[must_use]
    pub fn group_name(&self, gid: u32) -> String {
        name(gid, self.root_group, &self.groups)
    }
}

fn id(text: &str, root: u32, table: &BTreeMap<String, u32>) -> Option<u32> {
    match text {
        "root" | "0" => Some(root),
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            // The highest number means "leave it" to chown.
            text.parse().ok().filter(|id| *id != u32::MAX)
        }
        _ => table.get(text).copied(),
    }
}

fn name(id: u32, root: u32, table: &BTreeMap<String, u32>) -> String {
    if id == root {
        return "root".to_owned();
    }
    table.iter().find(|(_, other)| **other == id).map_or_else(|| id.to_string(), |(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_root_resolve() {
        let accounts = Accounts::new("root:x:0:0:::\nslurm:x:64030:64030:::\n", "video:x:44:\n", (0, 0));
        assert_eq!(accounts.user("slurm"), Some(64030));
        assert_eq!(accounts.user("1000"), Some(1000));
        assert_eq!(accounts.group("video"), Some(44));
        assert_eq!(accounts.user("nobody-here"), None);
        assert_eq!(accounts.user("4294967295"), None, "this number means no change to chown");
        assert_eq!(accounts.user_name(64030), "slurm");
    }

    #[test]
    fn root_is_whoever_runs_the_daemon_in_a_directory() {
        let accounts = Accounts::new("", "", (1000, 1001));
        assert_eq!((accounts.user("root"), accounts.group("root")), (Some(1000), Some(1001)));
        assert_eq!(accounts.user_name(1000), "root");
    }
}
