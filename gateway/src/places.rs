//! Places for connections: by address for peers without a good certificate, by identity for nodes.
//!
//! A node is known by its certificate and not by its address, so that a site behind one address is no crowd. All peers without a
//! certificate have a part of the places only, so that a node always finds one.

use std::{net::IpAddr, sync::Arc};

use pki::verify::Peer;
use schema::{
    id::NodeId,
    places::{Full, Place, Places, network},
};

/// How many places there are for whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// For all peers without a good certificate.
    pub(crate) strangers: usize,
    /// For those of one address.
    pub(crate) per_address: usize,
    /// For one node.
    pub(crate) per_identity: usize,
}

/// Connections whose peers are known, counted.
#[derive(Debug)]
pub(crate) struct Peers {
    strangers: Arc<Places<IpAddr>>,
    nodes: Arc<Places<NodeId>>,
}

/// A place that is taken.
#[derive(Debug)]
pub(crate) enum PeerPlace {
    Stranger(#[expect(dead_code, reason = "held")] Place<IpAddr>),
    Node(#[expect(dead_code, reason = "held")] Place<NodeId>),
}

impl Peers {
    pub(crate) fn new(Shares { strangers, per_address, per_identity }: Shares) -> Self {
        // How many nodes there may be is told by how many connections there are at all.
        Self { strangers: Places::new(strangers, per_address), nodes: Places::new(usize::MAX, per_identity) }
    }

    /// A place for one connection, for as long as it is held.
    pub(crate) fn take(&self, peer: &Peer, address: IpAddr) -> Result<PeerPlace, Full> {
        match peer {
            Peer::Node(identity) => self.nodes.take(identity.node_id).map(PeerPlace::Node),
            Peer::Anonymous | Peer::Refused(_) => self.strangers.take(network(address)).map(PeerPlace::Stranger),
        }
    }
}

#[cfg(test)]
mod tests {
    use pki::{
        issue::{CertifiedKinds, Serial},
        node_key::NodePublicKey,
        verify::NodeIdentity,
    };
    use schema::time::Timestamp;

    use super::*;

    #[test]
    fn strangers_from_everywhere_leave_a_node_its_place() {
        let peers = Peers::new(Shares { strangers: 10, per_address: 2, per_identity: 1 });
        let stranger = |address: [u8; 4]| peers.take(&Peer::Anonymous, IpAddr::from(address));
        let taken: Vec<_> = (0..200).filter_map(|last| stranger([192, 0, 2, last]).ok()).collect();
        assert_eq!(taken.len(), 10);
        let node = Peer::Node(NodeIdentity {
            node_id: NodeId::generate(),
            serial: Serial::from_bytes(&[1]),
            public_key: NodePublicKey::from_bytes(&[]),
            kinds: CertifiedKinds::All,
            not_before: Timestamp::UNIX_EPOCH,
            not_after: Timestamp::MAX,
        });
        let place = peers.take(&node, IpAddr::from([192, 0, 2, 1])).expect("a place");
        assert_eq!(peers.take(&node, IpAddr::from([192, 0, 2, 1])).map(drop), Err(Full::Share));
        drop((taken, place));
        assert!(stranger([192, 0, 2, 1]).is_ok());
    }
}
