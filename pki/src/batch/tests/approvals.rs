//! What a statement is bound to, and what travels to a node.

use proptest::prelude::*;

use super::*;

#[test]
fn a_word_about_anything_else_is_none_about_this_batch() {
    let world = World::new();
    let table: &[(&str, &str, &str)] = &[
        ("batch: b\n", "batch: other\n", "other-batch"),
        ("trust-domain: acme.example", "trust-domain: staging.example", "other-fleet"),
        ("trust-epoch: 1", "trust-epoch: 2", "other-policy"),
        ("tier: reboot", "tier: reset", "other-tier"),
        ("principal: ada", "principal: bob", "other-principal"),
        ("principal: ada", "principal: Ada", "no-statement"),
        ("batch: b\n", "batch: b\nbatch: b\n", "no-statement"),
        ("batch: b\n", "", "no-statement"),
        ("batch: b\n", "Batch: b\n", "no-statement"),
        ("trust-epoch: 1", "trust-epoch: 01", "no-statement"),
        ("bc-statement: approve/v1", "bc-statement: approve/v2", "no-statement"),
        ("bc-statement: approve/v1", "bc-statement: change/v1", "no-statement"),
    ];
    for (from, to, code) in table {
        let changed = world.say("approve", "ada", |text| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        assert_eq!(world.refusal(changed), *code, "{from:?} → {to:?}");
    }
    let digest = world.header.digest().to_string();
    let zeros = Digest::from_bytes([0; 32]).to_string();
    assert_eq!(world.refusal(world.say("approve", "ada", |text| text.replace(&digest, &zeros))), "other-batch");
    let under = world.policy.digest().to_string();
    assert_eq!(world.refusal(world.say("approve", "ada", |text| text.replace(&under, &zeros))), "other-policy");
    let (plan, other) = (world.header.plan_commit.to_string(), object("other").to_string());
    assert_eq!(world.refusal(world.say("approve", "ada", |text| text.replace(&plan, &other))), "other-batch");
    let fleet = world.fleet.id.to_string();
    assert_eq!(world.refusal(world.say("approve", "ada", |text| text.replace(&fleet, &"0".repeat(64)))), "other-fleet");
}

#[test]
fn everything_that_people_read_is_in_the_digest() {
    let world = World::new();
    let digest = world.header.digest();
    // A field that is not named here has no change below.
    let BatchHeader {
        trust_domain: _,
        fleet: _,
        name: _,
        tier: _,
        proposer: _,
        excluded: _,
        not_before: _,
        expires: _,
        plan_commit: _,
        plan_tree: _,
        under: Under { epoch: _, digest: _ },
        reason: _,
        max_in_flight: _,
        max_failures: _,
        spread: _,
        leaves: _,
        root: _,
    } = &world.header;
    let changes: [fn(&mut BatchHeader); 18] = [
        |header| header.trust_domain.push('x'),
        |header| header.fleet = Fleet::new("staging.example").id,
        |header| header.name = name("c"),
        |header| header.tier = name("reset"),
        |header| header.proposer = Some(name("ada")),
        |header| assert!(header.excluded.insert(name("ada"))),
        |header| header.not_before = after(1),
        |header| header.expires = after(1),
        |header| header.plan_commit = object("another plan"),
        |header| header.plan_tree = object("another tree"),
        |header| header.under.epoch = 2,
        |header| header.under.digest = Digest::of("another policy"),
        |header| header.reason.push('.'),
        |header| header.max_in_flight += 1,
        |header| header.max_failures += 1,
        |header| header.spread = Some("rack".to_owned()),
        |header| header.leaves += 1,
        |header| header.root = Digest::of("other leaves"),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut header = world.header.clone();
        change(&mut header);
        assert_ne!(header.digest(), digest, "{number}");
    }
    let mut header = world.header;
    header.proposer = Some(name("ada"));
    let proposed = header.digest();
    header.proposer = None;
    header.excluded.insert(name("ada"));
    assert_ne!(header.digest(), proposed, "fields do not slide into each other");
}

#[test]
fn an_approval_is_an_empty_commit_on_the_plan() {
    let world = World::new();
    let (header, ada) = (&world.header, &world.people["ada"]);
    let message = world.fleet.word("approve", "ada", header);
    let commit = |tree, parents: &[_]| ada.commit(tree, parents, &message);
    let (plan, tree) = (header.plan_commit, header.plan_tree);
    for wrong in [
        commit(object("with a file"), &[plan]),
        commit(tree, &[object("rebased")]),
        commit(tree, &[plan, object("merged")]),
        commit(tree, &[]),
    ] {
        assert_eq!(world.refusal(wrong), "not-empty");
    }
    assert_eq!(words(&world.tally(&[commit(tree, &[plan])]).yes), ["ada"]);
}

#[test]
fn what_somebody_else_signed_or_changed_is_nobodys() {
    let world = World::new();
    let good = String::from_utf8(world.approve("ada")).expect("text");
    let refused = |text: String| world.refusal(text.into_bytes());
    assert_eq!(refused(good.replace("I say so", "I said so")), "bad-signature");
    assert_eq!(refused(good.replace("A <a@b>", "B <a@b>")), "bad-signature");
    assert_eq!(refused(good.replace("\n\nI say so", "\r\n\r\nI say so")), "malformed");
    let (head, _) = good.split_once("gpgsig").expect("signed");
    let (_, message) = good.split_once("\n\n").expect("a message");
    assert_eq!(refused(format!("{head}\n{message}")), "unsigned");
    // Bob wraps Ada's words and signs them himself.
    let wrapped = world.people["bob"].commit(world.header.plan_tree, &[world.header.plan_commit], message);
    assert_eq!(world.refusal(wrapped), "other-principal");
    assert_eq!(world.refusal(b"not a commit".to_vec()), "malformed");
    assert_eq!(world.refusal(Vec::new()), "malformed");
}

#[test]
fn what_travels_is_read_in_one_form_only() {
    let world = World::new();
    let approval = node::approval(&world, 0);
    let bytes = approval.to_bytes();
    assert_eq!(Approval::read(&bytes), Ok(approval));
    for wrong in [&b""[..], b"{}", b"null", b"[]", &bytes[..bytes.len() - 1]] {
        assert_eq!(Approval::read(wrong), Err(ApprovalRefusal::Malformed));
    }
    let spaced = String::from_utf8(bytes).expect("text").replacen(':', ": ", 1).into_bytes();
    assert_eq!(Approval::read(&spaced), Err(ApprovalRefusal::Malformed));
    let huge = vec![b' '; approval::MAX_APPROVAL_BYTES + 1];
    assert_eq!(Approval::read(&huge), Err(ApprovalRefusal::TooLarge(huge.len())));
    let many = Approval::Breakglass(BreakglassApproval { statements: vec![vec![1]; approval::MAX_STATEMENTS + 1] });
    assert_eq!(Approval::read(&many.to_bytes()), Err(ApprovalRefusal::Malformed));
    for (bytes, read) in [(world.header.to_bytes(), true), ([world.header.to_bytes(), b"\n".to_vec()].concat(), false)]
    {
        assert_eq!(BatchHeader::read(&bytes).is_some(), read);
    }
    assert_eq!(Leaf::read(&world.leaves[1].to_bytes()).as_ref(), Some(&world.leaves[1]));
}

#[test]
fn what_a_machine_would_not_read_is_not_sent() {
    let world = World::new();
    let (header, leaf) = (&world.header, &world.leaves[0]);
    let fits = |statements: Vec<Vec<u8>>| BatchApproval::fits(header, leaf, statements);
    assert_eq!(fits(vec![world.approve("ada"), world.approve("bob")]), Ok(()));
    assert_eq!(fits(vec![vec![0; approval::STATEMENT_ROOM]]), Ok(()));
    assert!(matches!(fits(vec![vec![0; 12 << 10]; 8]), Err(ApprovalRefusal::TooLarge(_))));
    let many = approval::MAX_STATEMENTS + 1;
    assert_eq!(fits(vec![vec![1]; many]), Err(ApprovalRefusal::TooMany(many)));
    // Whatever is sent is read.
    let approval = node::approval(&world, 0);
    assert_eq!(approval.to_send().map(|bytes| Approval::read(&bytes)), Ok(Ok(approval)));
}

#[test]
fn a_large_quorum_fits() {
    let world = World::new();
    let Approval::Batch(mut batch) = node::approval(&world, 0) else { panic!("a batch") };
    batch.proof = vec![Digest::of("x"); 32];
    batch.statements = (0..32).map(|_| world.approve("ada")).collect();
    assert!(Approval::Batch(batch).to_bytes().len() < approval::MAX_APPROVAL_BYTES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is changed in what travels: it is refused, or permits exactly the same.
    #[test]
    fn no_changed_bit_permits_anything_else(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        thread_local!(static WORLD: (World, Vec<u8>) = {
            let world = World::new();
            let bytes = node::approval(&world, 1).to_bytes();
            (world, bytes)
        });
        WORLD.with(|(world, bytes)| {
            let whole = node::permit_of(world, 1, &Approval::read(bytes).expect("whole")).expect("permitted");
            let mut changed = bytes.clone();
            changed[at.index(bytes.len())] ^= 1 << bit;
            if let Ok(approval) = Approval::read(&changed)
                && let Ok(permit) = node::permit_of(world, 1, &approval)
            {
                prop_assert_eq!(permit, whole);
            }
            Ok(())
        })?;
    }

    /// More bytes never make more of one person.
    #[test]
    fn votes_of_one_person_stay_one(copies in 1_usize..6, junk in proptest::collection::vec(any::<u8>(), 0..200)) {
        let world = World::new();
        let mut all: Vec<Vec<u8>> = (0..copies).map(|_| world.approve("ada")).collect();
        all.push(junk.clone());
        let mut longer = world.approve("ada");
        longer.extend(&junk);
        all.push(longer);
        let tally = world.tally(&all);
        prop_assert!(!tally.approved && words(&tally.yes) == ["ada"]);
    }
}
