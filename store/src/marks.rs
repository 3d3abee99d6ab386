//! Tags over rows that act: whoever has no key writes none, and nobody acts on a row without one. The store makes no tags; it
//! asks the process that it runs in.

use std::{fmt, sync::Arc, sync::OnceLock};

/// Makes the tags of this process.
pub trait Marker: fmt::Debug + Send + Sync {
    /// The tag of a command's body; `None` when this process queues no commands.
    fn command(&self, body: &[u8]) -> Option<Vec<u8>>;

    /// The tag of a batch that is put down, with everything of it that acts.
    fn batch(&self, batch: &[u8]) -> Vec<u8>;

    /// The tag of what a machine is called and where it belongs, in the words of [`placement`].
    fn placement(&self, place: &[u8]) -> Vec<u8>;

    /// Whether a process of this control plane made a tag of a place.
    fn is_placement(&self, place: &[u8], tag: &[u8]) -> bool;
}

/// The process's marker, once it has one; shared by all that are made of one [`Db`](crate::Db).
pub(crate) type Slot = Arc<OnceLock<Arc<dyn Marker>>>;

/// What the tag of a machine's place is made over.
#[must_use]
pub fn placement(id: schema::id::NodeId, name: &str, pool: Option<&str>) -> Vec<u8> {
    serde_json::json!([id, name, pool]).to_string().into_bytes()
}
