//! Known roots, every shape, and what does not verify.

use proptest::prelude::*;

use super::*;

/// The inputs that Certificate Transparency's own tests use, and the roots over the first one, two, three … of them.
const INPUTS: [&str; 8] =
    ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

fn leaves(count: usize) -> Vec<Digest> {
    (0..count).map(|number| leaf(&number.to_be_bytes())).collect()
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("few")
}

#[test]
fn the_roots_are_those_that_others_publish() {
    let leaves: Vec<Digest> = INPUTS.iter().map(|input| leaf(&hex::decode(input).expect("hex"))).collect();
    for (count, expected) in ROOTS.iter().enumerate() {
        assert_eq!(hex::encode(root(&leaves[..=count]).as_bytes()), *expected, "{} leaves", count + 1);
    }
    let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(hex::encode(root(&[]).as_bytes()), nothing);
}

#[test]
fn every_leaf_of_every_shape_has_its_proof_and_no_other() {
    for size in 1..=33 {
        let leaves = leaves(size);
        let root = root(&leaves);
        for index in 0..size {
            let own = proof(&leaves, index).expect("a leaf");
            for claimed in 0..=size {
                let verified = verify(leaves[index], number(claimed), number(size), &own, root);
                assert_eq!(verified, claimed == index, "{index} as {claimed} of {size}");
            }
            for other in (0..size).filter(|other| *other != index) {
                assert!(
                    !verify(leaves[other], number(index), number(size), &own, root),
                    "{other} as {index} of {size}"
                );
            }
        }
        assert_eq!(proof(&leaves, size), None);
    }
}

#[test]
fn a_node_of_the_tree_is_no_leaf_and_a_leaf_no_node() {
    let leaves = leaves(4);
    let root = root(&leaves);
    let (left, right) = (node(leaves[0], leaves[1]), node(leaves[2], leaves[3]));
    // The classic second preimage: the two halves taken for two leaves.
    assert_eq!(node(left, right), root);
    let bytes = [left.as_bytes().as_slice(), right.as_bytes()].concat();
    assert_ne!(leaf(&bytes), root, "leaves and nodes are hashed apart");
    assert!(!verify(leaf(&bytes), 0, 1, &[], root));
    let pair = [leaves[0].as_bytes().as_slice(), leaves[1].as_bytes()].concat();
    assert!(!verify(leaf(&pair), 0, 2, &[right], root), "an inner node sent as a leaf");
}

#[test]
fn an_odd_leaf_is_not_doubled() {
    let (three, four) = (leaves(3), [leaves(3), vec![leaves(3)[2]]].concat());
    assert_ne!(root(&three), root(&four));
}

proptest! {
    #[test]
    fn a_proof_with_any_bit_changed_or_any_step_more_or_less_verifies_nothing(
        size in 1_usize..200, pick in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0_usize..256,
    ) {
        let leaves = leaves(size);
        let (root, index) = (root(&leaves), pick.index(size));
        let whole = proof(&leaves, index).expect("a leaf");
        prop_assert!(verify(leaves[index], number(index), number(size), &whole, root));
        let mut longer = whole.clone();
        longer.push(root);
        prop_assert!(!verify(leaves[index], number(index), number(size), &longer, root));
        if !whole.is_empty() {
            let step = at.index(whole.len());
            let mut changed = whole.clone();
            let mut bytes = *changed[step].as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            changed[step] = Digest::from_bytes(bytes);
            prop_assert!(!verify(leaves[index], number(index), number(size), &changed, root));
            prop_assert!(!verify(leaves[index], number(index), number(size), &whole[..whole.len() - 1], root));
            let mut swapped = whole.clone();
            swapped.rotate_left(1);
            prop_assert!(swapped == whole || !verify(leaves[index], number(index), number(size), &swapped, root));
        }
    }
}
