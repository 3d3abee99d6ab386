//! Two documents that a single machine could match.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::Arc,
};

use crate::{
    diagnostic::{Diagnostic, codes},
    fleet::{Located, Node},
    name::Name,
};

/// Reports machines that two documents claim by what they are attested as, by MAC address, board serial or serial. `claims` are those of the documents,
/// of [`claims`]: while no two of them meet, nobody is claimed twice.
pub(super) fn machines(nodes: &BTreeMap<Name, Arc<Node>>, claims: Vec<u64>, found: &mut Vec<Diagnostic>) {
    if meet(claims) {
        search(nodes, found);
    }
}

/// What a document claims a machine by, each as a number that is the same for the same claim. The last bit says whether
/// nobody else may have it; the serial of a chassis is shared by machines that have a board serial of their own.
pub(in crate::fleet) fn claims(node: &Node) -> Box<[u64]> {
    let claim = |what: &str, value: &str, alone: bool| {
        let mut hasher = DefaultHasher::new();
        (what, value).hash(&mut hasher);
        hasher.finish() & !1 | u64::from(alone)
    };
    let macs = node.mac.iter().map(|mac| claim("mac", &mac.value, true));
    let board = node.board_serial.iter().map(|board| claim("board", &board.value, true));
    let serial = node.serial.iter().map(|serial| claim("serial", &serial.value, node.board_serial.is_none()));
    let attested = node.attested.iter().map(|attested| claim("attested", &attested.value.to_string(), true));
    macs.chain(board).chain(serial).chain(attested).collect()
}

/// Whether two claims are the same and one of them is alone. Two that differ may meet by chance, and then it is looked at
/// what they are.
fn meet(mut claims: Vec<u64>) -> bool {
    claims.sort_unstable();
    claims.windows(2).any(|pair| pair[0] >> 1 == pair[1] >> 1 && pair[1] & 1 == 1)
}

fn search(nodes: &BTreeMap<Name, Arc<Node>>, found: &mut Vec<Diagnostic>) {
    let mut macs = HashMap::with_capacity(nodes.len() * 2);
    let mut boards = HashMap::with_capacity(nodes.len());
    let mut serials: HashMap<&str, Vec<&Node>> = HashMap::with_capacity(nodes.len());
    let mut attested = HashMap::new();
    for node in nodes.values() {
        for identity in &node.attested {
            claim("attested identity", identity, node, &mut attested, found);
        }
        for mac in &node.mac {
            claim("MAC address", mac, node, &mut macs, found);
        }
        if let Some(board) = &node.board_serial {
            claim("board serial", board, node, &mut boards, found);
        }
        let Some(serial) = &node.serial else { continue };
        let others = serials.entry(&serial.value).or_default();
        // Blades share the serial of their chassis and are told apart by their boards.
        if let Some(other) = others.iter().find(|other| other.board_serial.is_none() || node.board_serial.is_none()) {
            let first = other.serial.as_ref().map_or(&other.at, |serial| &serial.at);
            let diagnostic = twice("serial", serial, node, (other, first))
                .help("machines that share a chassis serial are told apart by `board-serial`");
            found.push(diagnostic);
        }
        others.push(node);
    }
}

fn claim<'n, T: Display + Eq + Hash>(
    what: &str,
    value: &'n Located<T>,
    node: &'n Node,
    claims: &mut HashMap<&'n T, (&'n Located<T>, &'n Node)>,
    found: &mut Vec<Diagnostic>,
) {
    match claims.get(&value.value) {
        Some((first, other)) => found.push(twice(what, value, node, (other, &first.at))),
        None => {
            claims.insert(&value.value, (value, node));
        }
    }
}

fn twice<T: Display>(
    what: &str,
    value: &Located<T>,
    node: &Node,
    (other, first): (&Node, &crate::diagnostic::SourceRef),
) -> Diagnostic {
    let message = if node.name == other.name {
        format!("node/{} names the {what} {} twice", node.name, value.value)
    } else {
        format!("node/{} and node/{} both claim the machine with the {what} {}", other.name, node.name, value.value)
    };
    Diagnostic::new(codes::DUPLICATE_MACHINE, &value.at, message).label("the second").also(first, "the first")
}
