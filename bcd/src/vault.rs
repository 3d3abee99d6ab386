//! Values of secrets: in memory while a pass needs them, on disk only in the files that they are for.
//!
//! A file that was written before is recognised by a keyed mark, so that a host that is as wanted asks nobody.

use std::collections::BTreeMap;

use pki::node_key::Marks;
use schema::{
    digest::Digest,
    secret::SecretName,
    spec::{NodeSpec, SecretVersion},
};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    converge::Memory,
    path::HostPath,
    tree::{Entry, Tree},
};

/// The word that a section fails with while a value cannot be had.
pub const UNAVAILABLE: &str = "secret-unavailable";

/// What was written to a file with a secret: enough to recognise it, and nothing to guess it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// The secret.
    pub name: SecretName,
    /// Its version.
    pub version: u32,
    /// The keyed mark of the content.
    pub mark: Digest,
}

/// Values that were released to this node.
#[derive(Debug)]
pub struct Vault {
    marks: Marks,
    values: BTreeMap<SecretVersion, Zeroizing<Vec<u8>>>,
    refusal: Option<String>,
}

/// What the broker said: the values, or why there are none.
pub type Released = Result<Vec<pki::broker::Value>, String>;

/// The values of the files of one spec, by path, as far as they are known.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Known(BTreeMap<String, (Zeroizing<Vec<u8>>, Digest)>);

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Known {
    /// The content of the file at a path, and its mark.
    pub(crate) fn get(&self, path: &str) -> Option<(&[u8], Digest)> {
        self.0.get(path).map(|(value, mark)| (value.as_slice(), *mark))
    }
}

impl Vault {
    /// An empty one.
    #[must_use]
    pub const fn new(marks: Marks) -> Self {
        Self { marks, values: BTreeMap::new(), refusal: None }
    }

    /// Takes in what the broker released, or why it released nothing.
    pub fn fill(&mut self, answer: Released) {
        match answer {
            Ok(values) => {
                self.values.extend(values);
                self.refusal = None;
            }
            Err(refusal) => self.refusal = Some(refusal),
        }
    }

    /// Forgets every value.
    pub fn clear(&mut self) {
        self.values.clear();
    }

    /// Why there are no values, for people.
    #[must_use]
    pub fn refusal(&self) -> &str {
        self.refusal.as_deref().unwrap_or("no gateway was asked yet")
    }

    /// What the files of a spec hold: from the broker, or from the host, where the very file was written before.
    #[must_use]
    pub fn known(&self, tree: &Tree, spec: &NodeSpec, memory: &Memory) -> Known {
        let files = spec.host.files.iter().filter_map(|file| Some((file, file.secret.as_ref()?)));
        let known = files.filter_map(|(file, secret)| {
            let path: HostPath = file.path.parse().ok()?;
            let value = match self.values.get(secret) {
                Some(value) => value.clone(),
                None => self.written(tree, &path, secret, memory)?,
            };
            let mark = self.marks.of(path.as_str(), &value);
            Some((path.as_str().to_owned(), (value, mark)))
        });
        Known(known.collect())
    }

    fn written(
        &self,
        tree: &Tree,
        path: &HostPath,
        secret: &SecretVersion,
        memory: &Memory,
    ) -> Option<Zeroizing<Vec<u8>>> {
        let written =
            memory.secrets.get(path).filter(|was| was.name == secret.name && was.version == secret.version)?;
        match tree.read(path) {
            Ok(Entry::File(file)) if self.marks.of(path.as_str(), &file.content) == written.mark => {
                Some(Zeroizing::new(file.content))
            }
            _ => None,
        }
    }

    /// The values that a spec needs and nobody here knows.
    #[must_use]
    pub fn missing(&self, tree: &Tree, spec: &NodeSpec, memory: &Memory) -> Vec<SecretVersion> {
        let known = self.known(tree, spec, memory);
        let files = spec.host.files.iter().filter(|file| known.get(&file.path).is_none());
        let missing: std::collections::BTreeSet<_> = files.filter_map(|file| file.secret.clone()).collect();
        missing.into_iter().collect()
    }
}
