//! Merkle trees in the shape of RFC 6962: leaves behind a zero byte, nodes behind a one, and every tree split at the
//! largest power of two below its size. A node never passes for a leaf, and no shape has a second root.

use schema::digest::{Digest, Running};

/// The hash of a leaf with these bytes.
#[must_use]
pub fn leaf(bytes: &[u8]) -> Digest {
    let mut running = Running::default();
    running.add(&[0]);
    running.add(bytes);
    running.finish()
}

fn node(left: Digest, right: Digest) -> Digest {
    let mut running = Running::default();
    running.add(&[1]);
    running.add(left.as_bytes());
    running.add(right.as_bytes());
    running.finish()
}

/// Where a tree of more than one leaf is split.
fn split(size: usize) -> usize {
    1 << (usize::BITS - 1 - (size - 1).leading_zeros())
}

/// The root over the hashes of leaves; over none it is the hash of nothing.
#[must_use]
pub fn root(leaves: &[Digest]) -> Digest {
    match leaves {
        [] => Digest::of([]),
        [only] => *only,
        more => {
            let (left, right) = more.split_at(split(more.len()));
            node(root(left), root(right))
        }
    }
}

/// What leads from a leaf to the root, the nearest first; `None` when there is no such leaf.
#[must_use]
pub fn proof(leaves: &[Digest], index: usize) -> Option<Vec<Digest>> {
    if index >= leaves.len() {
        return None;
    }
    if leaves.len() == 1 {
        return Some(Vec::new());
    }
    let (left, right) = leaves.split_at(split(leaves.len()));
    let (mut inner, other) = match index.checked_sub(left.len()) {
        None => (proof(left, index)?, root(right)),
        Some(index) => (proof(right, index)?, root(left)),
    };
    inner.push(other);
    Some(inner)
}

/// Whether a leaf's hash stands at an index of a tree of a size with a root.
#[must_use]
pub fn verify(leaf: Digest, index: u32, size: u32, proof: &[Digest], root: Digest) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut hash) = (index, size - 1, leaf);
    for other in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            hash = node(*other, hash);
            // The right edge of an incomplete tree has no neighbour on the levels in between.
            while at & 1 == 0 && at != 0 {
                at >>= 1;
                last >>= 1;
            }
        } else {
            hash = node(hash, *other);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && hash == root
}

#[cfg(test)]
mod tests;
