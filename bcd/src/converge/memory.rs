//! What was there before: enough to undo everything that was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    drift::Ledger,
    path::HostPath,
    section::{Action, Key},
    tree::{Entry, FileState},
    vault::Written,
};

/// What a place held before it was managed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Nothing: what is there now is ours.
    Absent,
    /// This file.
    File(#[serde(with = "file")] FileState),
    /// A link to this target.
    Link(String),
    /// This value.
    Value(String),
    /// Whether the unit ran.
    Active(bool),
}

impl Origin {
    /// The entry that restores a path; `None` for what is no path.
    #[must_use]
    pub fn entry(&self) -> Option<Entry> {
        match self {
            Self::Absent => Some(Entry::Absent),
            Self::File(file) => Some(Entry::File(file.clone())),
            Self::Link(target) => Some(Entry::Link(target.clone())),
            Self::Value(_) | Self::Active(_) => None,
        }
    }
}

/// The memory of one section.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// Managed places and what they held before.
    #[serde(with = "pairs")]
    pub items: BTreeMap<Key, Origin>,
    /// Directories that were made for them.
    pub dirs: BTreeSet<HostPath>,
    /// Programs that have to be run because something changed.
    pub owed: BTreeSet<Action>,
    /// Units that start again, if they run, after a managed file changed or went.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub restarts: BTreeMap<HostPath, BTreeSet<String>>,
    /// Files that hold secrets, and how what was written is recognised.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<HostPath, Written>,
}

/// Where the memory is kept.
pub trait Keep: std::fmt::Debug {
    /// Makes the memory outlast a power cut.
    ///
    /// # Errors
    /// When it could not be written: nothing may be changed then.
    fn keep(&mut self, memory: &Memory) -> io::Result<()>;

    /// Makes the ledger of drift outlast a power cut.
    ///
    /// # Errors
    /// When it could not be written: nothing may be put right then.
    fn keep_ledger(&mut self, ledger: &Ledger) -> io::Result<()>;
}

mod pairs {
    use serde::{Deserialize as _, Serialize as _};

    use super::{BTreeMap, Deserializer, Key, Origin, Serializer};

    pub(super) fn serialize<S: Serializer>(items: &BTreeMap<Key, Origin>, serializer: S) -> Result<S::Ok, S::Error> {
        items.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Key, Origin>, D::Error> {
        Vec::<(Key, Origin)>::deserialize(deserializer).map(|pairs| pairs.into_iter().collect())
    }
}

mod file {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::{Deserialize, Deserializer, FileState, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Stored {
        content: String,
        mode: u32,
        uid: u32,
        gid: u32,
    }

    pub(super) fn serialize<S: Serializer>(file: &FileState, serializer: S) -> Result<S::Ok, S::Error> {
        let content = STANDARD.encode(&file.content);
        Stored { content, mode: file.mode, uid: file.uid, gid: file.gid }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FileState, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        let content = STANDARD.decode(stored.content).map_err(serde::de::Error::custom)?;
        Ok(FileState { content, mode: stored.mode, uid: stored.uid, gid: stored.gid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_survives_its_text() {
        let mut memory = Memory::default();
        let file = FileState { content: vec![0, 255, b'x'], mode: 0o4755, uid: 0, gid: 44 };
        memory.items.insert(Key::Path(HostPath::known("/etc/x")), Origin::File(file));
        memory.items.insert(Key::Value(HostPath::known("/proc/sys/vm/x")), Origin::Value("60".into()));
        memory.items.insert(Key::Active("a.service".into()), Origin::Active(false));
        memory.dirs.insert(HostPath::known("/etc/dir"));
        memory.owed.insert(Action::Restart("a.service".into()));
        memory.restarts.insert(HostPath::known("/etc/x"), BTreeSet::from(["a.service".into()]));
        let text = serde_json::to_string(&memory).expect("serialises");
        assert_eq!(serde_json::from_str::<Memory>(&text).expect("parses"), memory);
    }
}
