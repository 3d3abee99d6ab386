//! What follows from what people said and from the time, case by case.

mod people;
mod steps;

use std::collections::BTreeSet;

use pki::{
    batch::{
        BatchHeader, Flaw,
        testing::{Fleet, object},
    },
    trust::statement::Under,
};
use schema::{digest::Digest, id::BatchId};
use store::batches::{Ended, NewBatch, Origin};

use super::{
    decide::{Decision, Known, decide},
    dispatch::Pace,
    *,
};
use crate::reconcile::WaitReason as _;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

const OPENS: &str = "2026-12-07T08:00:00Z";
const NOW: &str = "2026-12-07T09:00:00Z";
const ENDS: &str = "2026-12-07T10:00:00Z";

fn batch(origin: Origin, quorum: bool) -> Batch {
    Batch {
        id: BatchId::generate(),
        new: NewBatch {
            name: name("kernel"),
            origin,
            quorum,
            kind: "node.reboot".to_owned(),
            doc: "{}".to_owned(),
            place: None,
            why: "a kernel".to_owned(),
            plan: Some(("plan".to_owned(), "tree".to_owned())),
            signed: None,
            proposer: None,
            evidence: None,
            created_by: "source".to_owned(),
            not_before: at(OPENS),
            expires: at(ENDS),
            max_in_flight: 20_000,
            max_failures: 20_000,
            spread: None,
        },
        document: Digest::of("{}"),
        state: BatchState::Proposed,
        reason: None,
        message: None,
        leaves: 1,
        created_at: at(OPENS),
        resolved_at: at(OPENS),
        decided_at: None,
        ended_at: None,
        closed: None,
        mark: None,
    }
}

/// People's words, under the policy in force.
fn standing(yes: &[&str], no: &[&str], approved: bool) -> Standing {
    let fleet = Fleet::new("acme.example");
    let names = |all: &[&str]| all.iter().map(|text| name(text)).collect::<BTreeSet<_>>();
    Standing {
        header: BatchHeader {
            trust_domain: fleet.trust_domain,
            fleet: fleet.id,
            name: name("kernel"),
            tier: name("reboot"),
            proposer: None,
            excluded: BTreeSet::new(),
            not_before: at(OPENS),
            expires: at(ENDS),
            plan_commit: object("plan"),
            plan_tree: object("tree"),
            under: Under { epoch: 1, digest: Digest::of("policy") },
            reason: "a kernel".to_owned(),
            max_in_flight: 2,
            max_failures: 1,
            spread: Some("rack".to_owned()),
            leaves: 1,
            root: Digest::of("root"),
        },
        statements: Vec::new(),
        tally: Some(Tally {
            approved,
            yes: names(yes),
            no: names(no),
            withdrawn: BTreeSet::new(),
            missing: if approved { Vec::new() } else { vec!["one more person".to_owned()] },
            refused: Vec::new(),
            flaw: None,
            opens: at(OPENS),
            closes: at(ENDS),
            evidence: Vec::new(),
        }),
        lapsed: Vec::new(),
        candidates: BTreeSet::new(),
        attainable: true,
        revoked: BTreeSet::new(),
    }
}

/// A batch that is as it was put down, of a fleet that is pinned or not.
fn known(pinned: bool, standing: Option<&Standing>) -> Known<'_> {
    Known { ended: None, ours: true, pinned, called: false, standing }
}

fn said(decision: &Decision) -> String {
    match decision {
        Decision::End(state, reason, _) => format!("{state} {reason}"),
        Decision::Wait(waiting, _) => format!("waits {}", waiting.code()),
        Decision::Go { opens } => format!("goes {opens}"),
    }
}

#[test]
fn a_pinned_fleet_waits_for_enough_people_and_goes_on_nobody_elses_word() {
    let document = batch(Origin::Document, true);
    let asked = |standing: Option<&Standing>, now: &str| said(&decide(&document, &known(true, standing), at(now)));
    let goes = format!("goes {OPENS}");
    assert_eq!(asked(Some(&standing(&["ada", "bob"], &[], true)), NOW), goes);
    assert_eq!(asked(Some(&standing(&["ada"], &[], false)), NOW), "waits batch-approvals");
    assert_eq!(asked(Some(&standing(&["ada", "bob"], &["cleo"], false)), NOW), "rejected rejected");
    assert_eq!(asked(None, NOW), "waits batch-policy", "a row that says it is approved is no person");
    assert_eq!(asked(Some(&standing(&["ada", "bob"], &[], true)), ENDS), "expired not-approved");
    let over = Standing { tally: None, ..standing(&[], &[], false) };
    assert_eq!(asked(Some(&over), NOW), "void trust-changed");
    let with = |change: fn(&mut Tally)| {
        let mut standing = standing(&["ada", "bob"], &[], true);
        standing.tally.as_mut().map(change).expect("a tally");
        asked(Some(&standing), NOW)
    };
    assert_eq!(with(|tally| tally.flaw = Some(Flaw::Window)), "void window");
    assert_eq!(with(|tally| tally.closes = at(OPENS)), "waits batch-approvals", "one of them ran out");
    assert_eq!(with(|tally| tally.opens = at(ENDS)), format!("goes {ENDS}"));
}

#[test]
fn what_nobody_had_to_approve_does_not_outlive_the_pin() {
    for origin in [Origin::Document, Origin::Api] {
        let free = batch(origin, false);
        assert_eq!(said(&decide(&free, &known(false, None), at(NOW))), format!("goes {OPENS}"));
        assert_eq!(said(&decide(&free, &known(true, None), at(NOW))), "void trust-changed");
    }
    let before = batch(Origin::Document, true);
    assert_eq!(said(&decide(&before, &known(false, None), at(NOW))), "waits batch-policy", "the pin is not seen here");
}

#[test]
fn an_emergency_goes_while_it_is_called_and_not_because_a_row_says_so() {
    let emergency = batch(Origin::Breakglass, true);
    let asked = |called: bool, now: &str| said(&decide(&emergency, &Known { called, ..known(true, None) }, at(now)));
    assert_eq!(asked(true, NOW), format!("goes {OPENS}"));
    assert_eq!(asked(false, NOW), "void not-called");
    assert_eq!(asked(true, ENDS), "expired not-approved");
}

#[test]
fn what_the_log_says_has_ended_ends_again_and_what_nobody_here_put_down_is_void() {
    let document = batch(Origin::Document, true);
    let enough = standing(&["ada", "bob"], &[], true);
    for state in [BatchState::Done, BatchState::Expired, BatchState::Void, BatchState::Rejected, BatchState::Cancelled]
    {
        let ended = Some(Ended { state, by: "cleo".to_owned(), at: at(OPENS) });
        // Whatever else is wrong with it: that it ended is what people have to know.
        for ours in [true, false] {
            let decision =
                decide(&document, &Known { ended: ended.clone(), ours, ..known(true, Some(&enough)) }, at(NOW));
            assert_eq!(said(&decision), format!("{state} ended-before"));
            let Decision::End(_, _, why) = decision else { panic!("it ends") };
            assert!(why.contains(&format!("it is {state}, by cleo")), "{why}");
        }
    }
    let planted = decide(&document, &Known { ours: false, ..known(true, Some(&enough)) }, at(NOW));
    assert_eq!(said(&planted), "void not-ours");
}

#[test]
fn where_too_few_are_left_to_approve_it_says_so_and_what_was_sent_is_not_called_back() {
    let document = batch(Origin::Document, true);
    let alone = Standing { attainable: false, ..standing(&["ada"], &[], false) };
    let Decision::Wait(waiting, _) = decide(&document, &known(true, Some(&alone)), at(NOW)) else { panic!("it waits") };
    assert_eq!(waiting.code(), "batch-out-of-reach");
    let said = "nobody can give the approvals it lacks: it needs one more person; ada said yes";
    assert_eq!(waiting.to_string(), said);
    let late = waiting.with(Some("gpu-1".to_owned())).to_string();
    assert_eq!(late, format!("{said}; it was sent to gpu-1 before, which nothing calls back"));
}

#[test]
fn the_pace_is_the_one_that_people_signed() {
    let batch = batch(Origin::Document, true);
    let standing = standing(&["ada"], &[], true);
    let pace = Pace::of(&batch, Some(&standing));
    assert_eq!((pace.max_in_flight, pace.max_failures, pace.spread), (2, 1, Some("rack")), "whatever the row says");
    let pace = Pace::of(&batch, None);
    assert_eq!((pace.max_in_flight, pace.max_failures, pace.spread), (20_000, 20_000, None));
}
