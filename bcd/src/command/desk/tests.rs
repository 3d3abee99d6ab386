//! Facts about the desk: what becomes of a command, frame by frame, and over any history of crashes.

use schema::{
    command::CommandKind,
    generation::Generation,
    id::{BootId, JournalId},
};
use serde_json::json;

use super::{
    super::journal::{Ended, Ran},
    time::{CROWDED, ROOM},
    *,
};
use crate::testing::{People, payload, pen};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn signature() -> &'static Signature {
    static MADE: std::sync::LazyLock<Signature> = std::sync::LazyLock::new(|| Signature {
        worker: b"w".to_vec(),
        root_signature: b"r".to_vec(),
        signature: b"s".to_vec(),
    });
    &MADE
}

/// A frame as the session hands it over.
fn frame(bytes: Vec<u8>, verified: Result<(), SignatureRefusal>) -> Frame<'static> {
    Frame { bytes, signature: signature(), verified, approval: Vec::new() }
}

struct World {
    desk: Desk,
    start: Instant,
    applied: u64,
    seq: u64,
}

impl World {
    fn new() -> Self {
        let pen = pen(JournalId::generate());
        Self { desk: Desk::new(pen, Gate::default(), Vec::new()), start: Instant::now(), applied: 3, seq: 0 }
    }

    /// So many seconds after noon, which is proven.
    fn moment(&self, seconds: u64) -> Moment {
        let passed = Duration::from_secs(seconds);
        let now = at("2026-03-01T12:00:00Z").saturating_add(passed).expect("a time");
        Moment {
            now: Some(now),
            confirmed: true,
            wall: now,
            mono: self.start + passed,
            applied: Generation(self.applied),
        }
    }

    fn body(&mut self, kind: CommandKind) -> CommandBody {
        self.seq += 1;
        CommandBody {
            id: CommandId::generate(),
            node_id: self.desk.pen.node,
            kind,
            seq: self.seq,
            payload: payload(kind),
            not_after: at("2026-03-01T12:10:00Z"),
            min_generation: None,
            batch: None,
            secrets: Vec::new(),
            journal: None,
        }
    }

    fn offer_at(&mut self, body: &CommandBody, seconds: u64) -> Vec<Do> {
        let moment = self.moment(seconds);
        self.desk.offer(frame(body.to_bytes(), Ok(())), moment)
    }

    fn offer(&mut self, body: &CommandBody) -> Vec<Do> {
        self.offer_at(body, 1)
    }

    fn tell(&mut self, event: Event) -> Vec<Do> {
        let moment = self.moment(1);
        self.desk.handle(event, moment)
    }

    /// A command that waits in its lane.
    fn queued(&mut self, kind: CommandKind) -> CommandBody {
        let body = self.body(kind);
        self.offer(&body);
        self.tell(Event::Kept(body.id, true));
        body
    }

    /// The daemon is killed and begins again with what its journal holds of one command.
    fn again(&mut self, entry: Entry, same_boot: bool) -> Vec<Do> {
        let mut pen = self.desk.pen.clone();
        if !same_boot {
            pen.boot = BootId::generate();
        }
        self.desk = Desk::new(pen, Gate::default(), vec![entry]);
        self.desk.begin()
    }

    fn entry(&self, body: &CommandBody) -> Entry {
        self.desk.known[&body.id].entry.clone()
    }
}

fn word(what: &Do) -> String {
    let update = |said: &CommandUpdate| match &said.reason {
        Some(reason) => format!("{} {reason}", said.state),
        None => said.state.to_string(),
    };
    match what {
        Do::Accept { .. } => "accept".to_owned(),
        Do::Refuse { update: said, .. } => format!("refuse: {}", update(said)),
        Do::Settle(said) => format!("settle: {}", update(said)),
        Do::Say(said) => format!("say: {}", update(said)),
        Do::Spurn(said) => format!("spurn: {}", update(said)),
        Do::Answer(_) => "answer".to_owned(),
        Do::Run(_) => "run".to_owned(),
        Do::RunAgain { .. } => "run again".to_owned(),
        Do::Cancel(_) => "cancel".to_owned(),
        Do::Expire(_) => "expire".to_owned(),
        Do::GiveUp(_) => "give up".to_owned(),
        Do::Proven(_) => "proven".to_owned(),
        Do::WantSpec(generation) => format!("want {generation}"),
        Do::Forget(ids) => format!("forget {}", ids.len()),
        Do::Warn(_) => "warn".to_owned(),
    }
}

fn words(decided: &[Do]) -> Vec<String> {
    decided.iter().map(word).collect()
}

#[test]
fn a_command_is_written_down_before_it_is_acknowledged_or_run() {
    let mut world = World::new();
    let body = world.body(CommandKind::NodeReboot);
    assert_eq!(words(&world.offer(&body)), ["accept"]);
    assert_eq!(words(&world.tell(Event::Kept(body.id, true))), ["say: acked", "run"]);
    assert_eq!(words(&world.tell(Event::Began(body.id))), ["say: running"]);
    assert_eq!(words(&world.tell(Event::Ended(body.id))), ["answer"]);
}

#[test]
fn a_command_that_cannot_be_written_down_is_sent_back_and_not_run() {
    let mut world = World::new();
    let body = world.body(CommandKind::NodeReboot);
    world.offer(&body);
    assert_eq!(words(&world.tell(Event::Kept(body.id, false))), ["say: busy BUSY"]);
    assert_eq!(words(&world.offer(&body)), ["accept"], "it comes again and is taken then");
}

#[test]
fn a_duplicate_gets_the_answer_of_where_the_command_stands() {
    let mut world = World::new();
    let body = world.body(CommandKind::NodeReboot);
    world.offer(&body);
    assert_eq!(words(&world.offer(&body)), [""; 0], "the journal has the word");
    world.tell(Event::Kept(body.id, true));
    assert_eq!(words(&world.offer(&body)), ["say: acked"]);
    world.tell(Event::Began(body.id));
    assert_eq!(words(&world.offer(&body)), ["say: running"]);
    world.tell(Event::Ended(body.id));
    for seconds in [2, 599, 600, 86_400] {
        assert_eq!(words(&world.offer_at(&body, seconds)), ["answer"]);
    }
}

#[test]
fn what_is_cancelled_while_it_is_written_down_does_not_begin() {
    let mut world = World::new();
    let body = world.body(CommandKind::NodeReboot);
    world.offer(&body);
    assert_eq!(words(&world.desk.cancel(body.id)), [""; 0], "the journal has the word");
    assert_eq!(words(&world.tell(Event::Kept(body.id, true))), ["settle: cancelled cancelled"]);
}

#[test]
fn a_refusal_is_written_down_and_stays() {
    let mut world = World::new();
    let body = world.body(CommandKind::NodeReboot);
    assert_eq!(words(&world.offer_at(&body, 600)), ["warn", "refuse: rejected EXPIRED"]);
    assert_eq!(words(&world.tell(Event::Closed(body.id, true))), ["answer"]);
    assert_eq!(words(&world.offer_at(&body, 1)), ["answer"]);
    let other = world.body(CommandKind::NodeReboot);
    world.offer_at(&other, 600);
    assert_eq!(
        words(&world.tell(Event::Closed(other.id, false))),
        ["say: busy BUSY"],
        "nothing is said that is not kept"
    );
}

#[test]
fn a_forged_copy_is_named_and_poisons_nothing() {
    let mut world = World::new();
    let body = world.body(CommandKind::NodeReboot);
    let moment = world.moment(1);
    let forged = world.desk.offer(frame(body.to_bytes(), Err(SignatureRefusal::BadSignature)), moment);
    assert_eq!(words(&forged), ["warn", "spurn: rejected BAD_SIGNATURE"]);
    let Some(Do::Spurn(update)) = forged.last() else { unreachable!("{forged:?}") };
    assert_eq!(update.copy, Some(command_copy(&body.to_bytes(), signature())));
    assert!(world.desk.known.is_empty());
    assert_eq!(words(&world.offer(&body)), ["accept"]);
    world.tell(Event::Kept(body.id, true));
    let forged = world.desk.offer(frame(body.to_bytes(), Err(SignatureRefusal::BadSignature)), moment);
    assert_eq!(words(&forged), ["say: acked"], "where it stands is no secret");
    let other = CommandBody { seq: 99, ..body };
    assert_eq!(words(&world.offer(&other)), ["warn"], "one name, one text");
}

#[test]
fn approvals_that_were_spoilt_on_the_way_are_named_and_others_are_judged_anew() {
    let people = People::new(0);
    let mut world = World::new();
    world.desk.gate().change(|guard| *guard = people.guard());
    let body = world.body(CommandKind::NodeReboot);
    let good = people.approval("b", &body, world.desk.pen.journal);
    let offer = |world: &mut World, approval: &[u8], verified| {
        let moment = world.moment(1);
        world.desk.offer(Frame { approval: approval.to_vec(), ..frame(body.to_bytes(), verified) }, moment)
    };
    for spoilt in [&b""[..], b"spoilt"] {
        let decided = offer(&mut world, spoilt, Ok(()));
        assert_eq!(words(&decided), ["warn", "refuse: rejected BATCH_UNAPPROVED"]);
        let Some(Do::Refuse { update, .. }) = decided.last() else { unreachable!("{decided:?}") };
        assert_eq!(update.approvals, Some(Digest::of(spoilt)));
        world.tell(Event::Closed(body.id, true));
        assert_eq!(words(&offer(&mut world, spoilt, Ok(()))), ["answer"], "the same approvals, the same answer");
    }
    // Also by the daemon after this one.
    let entry = world.entry(&body);
    world.again(entry, true);
    world.desk.gate().change(|guard| *guard = people.guard());
    assert_eq!(words(&offer(&mut world, b"spoilt", Ok(()))), ["answer"]);
    assert_eq!(words(&offer(&mut world, &good, Err(SignatureRefusal::BadSignature))), ["answer"]);
    assert_eq!(words(&offer(&mut world, &good, Ok(()))), ["accept"]);
    // Another refusal is final, whatever comes with the command afterwards.
    let late = world.body(CommandKind::NodeReboot);
    world.offer_at(&late, 600);
    world.tell(Event::Closed(late.id, true));
    let moment = world.moment(1);
    let again = world.desk.offer(Frame { approval: good, ..frame(late.to_bytes(), Ok(())) }, moment);
    assert_eq!(words(&again), ["answer"]);
}

#[test]
fn a_forged_copy_asks_for_nothing_and_waits_for_nothing() {
    let mut world = World::new();
    let body = CommandBody { min_generation: Some(Generation(9)), ..world.body(CommandKind::NodeReboot) };
    let moment = world.moment(1);
    let forged = world.desk.offer(frame(body.to_bytes(), Err(SignatureRefusal::UnknownRoot)), moment);
    assert_eq!(words(&forged), ["warn", "spurn: rejected STALE_GENERATION"]);
}

#[test]
fn an_early_command_asks_for_the_spec_and_runs_when_it_is_applied() {
    let mut world = World::new();
    let body = CommandBody { min_generation: Some(Generation(4)), ..world.body(CommandKind::NodeReboot) };
    assert_eq!(words(&world.offer(&body)), ["want 4"]);
    assert_eq!(words(&world.offer(&body)), ["want 4"], "an ask may be lost");
    assert_eq!(words(&world.desk.tick(world.moment(60))), [""; 0]);
    assert_eq!(words(&world.desk.tick(world.moment(61))), ["want 4"]);
    assert_eq!(words(&world.desk.tick(world.moment(62))), [""; 0]);
    world.applied = 4;
    assert_eq!(words(&world.desk.tick(world.moment(599))), ["accept"]);
}

#[test]
fn an_early_command_is_judged_by_the_approvals_that_came_last_with_a_good_signature() {
    let people = People::new(0);
    let mut world = World::new();
    world.desk.gate().change(|guard| *guard = people.guard());
    let body = CommandBody { min_generation: Some(Generation(4)), ..world.body(CommandKind::NodeReboot) };
    let approval = people.approval("b", &body, world.desk.pen.journal);
    for (approval, verified) in [
        (b"over by then".to_vec(), Ok(())),
        (approval, Ok(())),
        (b"nobody's word".to_vec(), Err(SignatureRefusal::UnknownRoot)),
        (Vec::new(), Ok(())),
    ] {
        let moment = world.moment(1);
        world.desk.offer(Frame { approval, ..frame(body.to_bytes(), verified) }, moment);
    }
    world.applied = 4;
    assert_eq!(words(&world.desk.tick(world.moment(2))), ["accept"]);
}

#[test]
fn an_early_command_is_refused_as_early_when_its_deadline_comes_first() {
    let mut world = World::new();
    let body = CommandBody { min_generation: Some(Generation(4)), ..world.body(CommandKind::NodeReboot) };
    world.offer(&body);
    assert_eq!(words(&world.desk.tick(world.moment(600))), ["refuse: rejected STALE_GENERATION"]);
    world.tell(Event::Closed(body.id, true));
    world.applied = 4;
    assert_eq!(words(&world.offer(&body)), ["answer"]);
}

#[test]
fn early_commands_go_on_in_the_order_of_their_numbers() {
    let mut world = World::new();
    let mut bodies: Vec<_> = (0..4)
        .map(|_| CommandBody { min_generation: Some(Generation(4)), ..world.body(CommandKind::NodeReboot) })
        .collect();
    bodies.reverse();
    for body in &bodies {
        world.offer(body);
    }
    world.applied = 4;
    let accepted: Vec<u64> = world
        .desk
        .tick(world.moment(2))
        .iter()
        .filter_map(|what| match what {
            Do::Accept { entry, .. } => Some(entry.seq),
            _ => None,
        })
        .collect();
    assert_eq!(accepted, [1, 2, 3, 4]);
}

#[test]
fn a_lane_takes_what_it_offers_and_sends_the_rest_back() {
    for (kind, credits) in [(CommandKind::NodeReboot, 8), (CommandKind::DiagNvml, 4), (CommandKind::LogsCollect, 2)] {
        let mut world = World::new();
        let taken: Vec<_> = (0..credits).map(|_| world.queued(kind)).collect();
        let more = world.body(kind);
        assert_eq!(words(&world.offer(&more)), ["say: busy BUSY"], "{kind}");
        world.tell(Event::Ended(taken[0].id));
        assert_eq!(words(&world.offer(&more)), ["accept"], "{kind}: there is room again");
    }
}

#[test]
fn what_waits_for_its_spec_is_bounded_too() {
    let mut world = World::new();
    let early = |world: &mut World| {
        let body = CommandBody { min_generation: Some(Generation(4)), ..world.body(CommandKind::LogsCollect) };
        words(&world.offer(&body))
    };
    assert_eq!([early(&mut world), early(&mut world)].concat(), ["want 4", "want 4"]);
    assert_eq!(early(&mut world), ["say: busy BUSY"]);
}

#[test]
fn a_cancellation_reaches_the_command_wherever_it_stands() {
    let mut world = World::new();
    assert_eq!(words(&world.desk.cancel(CommandId::generate())), [""; 0]);
    let early = CommandBody { min_generation: Some(Generation(4)), ..world.body(CommandKind::NodeReboot) };
    world.offer(&early);
    assert_eq!(words(&world.desk.cancel(early.id)), ["refuse: cancelled cancelled"]);
    let queued = world.queued(CommandKind::NodeReboot);
    assert_eq!(words(&world.desk.cancel(queued.id)), ["cancel"]);
    world.tell(Event::Began(queued.id));
    assert_eq!(words(&world.desk.cancel(queued.id)), ["cancel"]);
    world.tell(Event::Ended(queued.id));
    assert_eq!(words(&world.desk.cancel(queued.id)), ["answer"]);

    let left = world.queued(CommandKind::LogsCollect);
    let entry = world.entry(&left);
    let ran = Entry { runs: vec![Ran { at: entry.at, effects: Vec::new() }], ..entry.clone() };
    for (entry, expected) in [(entry, "settle: cancelled cancelled"), (ran, "settle: failed interrupted")] {
        assert!(world.again(entry, true).is_empty());
        assert_eq!(words(&world.desk.cancel(left.id)), [expected]);
    }
}

#[test]
fn a_command_in_its_lane_expires_and_a_running_one_is_given_up_again_and_again_until_it_is_over() {
    let mut world = World::new();
    let (queued, running) = (world.queued(CommandKind::NodeReboot), world.queued(CommandKind::LogsCollect));
    world.tell(Event::Began(running.id));
    assert_eq!(words(&world.desk.tick(world.moment(599))), [""; 0]);
    assert_eq!(words(&world.desk.tick(world.moment(600))), ["expire"]);
    assert_eq!(words(&world.desk.tick(world.moment(600))), [""; 0]);
    assert_eq!(words(&world.desk.tick(world.moment(601))), ["expire"]);
    world.tell(Event::Ended(queued.id));
    assert_eq!(words(&world.desk.tick(world.moment(1801))), ["give up"]);
    assert_eq!(words(&world.desk.tick(world.moment(1802))), ["give up"]);
    world.tell(Event::Ended(running.id));
    assert_eq!(words(&world.desk.tick(world.moment(1803))), [""; 0]);
    assert_eq!(world.desk.wake_at(world.moment(1803)), None);
}

#[test]
fn what_is_over_is_forgotten_a_day_after_it_could_last_have_run_and_only_by_proven_time() {
    let mut world = World::new();
    let body = world.queued(CommandKind::NodeReboot);
    world.tell(Event::Ended(body.id));
    let last = 600 + 1800 + 86_400;
    let unproven = Moment { now: None, ..world.moment(10 * last) };
    assert_eq!(words(&world.desk.tick(unproven)), [""; 0]);
    let on_one_word = Moment { confirmed: false, ..world.moment(10 * last) };
    assert_eq!(words(&world.desk.tick(on_one_word)), [""; 0], "a second word may take it back");
    assert_eq!(words(&world.desk.tick(world.moment(last))), [""; 0]);
    let moment = world.moment(last + 3601);
    assert_eq!(words(&world.desk.tick(moment)), ["forget 1"]);
    world.tell(Event::Forgotten(vec![body.id], true));
    assert!(world.desk.known.is_empty());
    assert_eq!(words(&world.offer_at(&body, last + 3602)), ["warn", "refuse: rejected EXPIRED"]);
}

#[test]
fn what_an_earlier_life_left_behind_ends_or_waits_to_be_asked_for() {
    // kind, began, same boot: at once, and when it is sent again in time
    let table = [
        (CommandKind::NodeReboot, false, true, "settle: failed interrupted", "answer"),
        (CommandKind::NodeReboot, true, true, "settle: failed interrupted", "answer"),
        (CommandKind::NodeReboot, true, false, "settle: succeeded", "answer"),
        (CommandKind::GpuReset, true, false, "settle: failed interrupted", "answer"),
        (CommandKind::LogsCollect, false, true, "", "say: acked run again"),
        (CommandKind::LogsCollect, true, false, "", "say: acked run again"),
    ];
    for (kind, began, same_boot, at_once, asked) in table {
        let mut world = World::new();
        let body = world.body(kind);
        world.offer(&body);
        let mut entry = world.entry(&body);
        if began {
            entry.runs.push(Ran { at: entry.at, effects: Vec::new() });
        }
        assert_eq!(words(&world.again(entry, same_boot)).join(" "), at_once, "{kind}, began {began}");
        if !at_once.is_empty() {
            world.tell(Event::Closed(body.id, true));
        }
        assert_eq!(words(&world.offer(&body)).join(" "), asked, "{kind}, began {began}");
    }
}

#[test]
fn what_cannot_be_settled_now_is_settled_when_it_is_sent_again() {
    let mut world = World::new();
    let body = world.queued(CommandKind::NodeReboot);
    let entry = world.entry(&body);
    assert_eq!(words(&world.again(entry, true)), ["settle: failed interrupted"]);
    assert_eq!(words(&world.tell(Event::Closed(body.id, false))), [""; 0]);
    assert_eq!(words(&world.offer(&body)), ["settle: failed interrupted"]);
    world.tell(Event::Closed(body.id, false));
    assert_eq!(words(&world.desk.tick(world.moment(2))), ["settle: failed interrupted"], "and by itself");
}

#[test]
fn what_cannot_be_read_now_is_tried_again_by_itself() {
    let mut world = World::new();
    let body = world.queued(CommandKind::LogsCollect);
    let entry = world.entry(&body);
    assert!(world.again(entry, true).is_empty());
    assert_eq!(words(&world.offer(&body)), ["say: acked", "run again"]);
    world.tell(Event::Closed(body.id, false));
    assert_eq!(words(&world.desk.tick(world.moment(1))), [""; 0]);
    assert_eq!(words(&world.desk.tick(world.moment(2))), ["say: acked", "run again"]);
}

#[test]
fn a_crowded_journal_forgets_what_is_over_and_could_not_begin_any_more() {
    let mut world = World::new();
    let body = world.body(CommandKind::LogsCollect);
    world.offer(&body);
    let entry = world.entry(&body);
    let ended = Ended { state: UpdateState::Succeeded, reason: None, at: entry.at, approvals: None };
    let entries =
        (0..=CROWDED).map(|_| Entry { id: CommandId::generate(), ended: Some(ended.clone()), ..entry.clone() });
    world.desk = Desk::new(world.desk.pen.clone(), Gate::default(), entries.collect());
    let over = 600 + 1800;
    assert_eq!(words(&world.desk.tick(world.moment(over))), [""; 0]);
    let on_one_word = Moment { confirmed: false, ..world.moment(over + 1) };
    assert_eq!(words(&world.desk.tick(on_one_word)), [format!("forget {ROOM}")], "these may run twice");
    assert_eq!(words(&world.desk.tick(world.moment(over + 1))), [format!("forget {ROOM}")]);
    let moment = world.moment(over + 1);
    assert_eq!(words(&world.desk.handle(Event::Full(entry.id), moment)), [format!("forget {ROOM}")]);
    assert_eq!(words(&world.tell(Event::Full(entry.id))), [""; 0], "not what may still be asked for");
}

#[test]
fn a_journal_that_does_not_take_a_command_says_why() {
    let mut world = World::new();
    let (one, two) = (world.body(CommandKind::LogsCollect), world.body(CommandKind::LogsCollect));
    world.offer(&one);
    world.offer(&two);
    world.tell(Event::Full(one.id));
    assert_eq!(words(&world.tell(Event::Kept(one.id, false))), ["say: busy journal-full"]);
    world.tell(Event::Full(CommandId::generate()));
    assert_eq!(words(&world.tell(Event::Kept(two.id, false))), ["say: busy BUSY"], "it was another one's");
    world.offer(&two);
    world.tell(Event::Unusable(two.id));
    assert_eq!(words(&world.tell(Event::Kept(two.id, false))), ["say: busy journal-unusable"]);
}

#[test]
fn an_unproven_time_accepts_nothing_and_runs_nothing_again() {
    let mut world = World::new();
    let body = world.body(CommandKind::LogsCollect);
    let unproven = Moment { now: None, ..world.moment(1) };
    let decided = world.desk.offer(frame(body.to_bytes(), Ok(())), unproven);
    assert_eq!(words(&decided), ["say: busy BUSY"]);
    world.offer(&body);
    let entry = world.entry(&body);
    assert!(world.again(entry, true).is_empty());
    let decided = world.desk.offer(frame(body.to_bytes(), Ok(())), unproven);
    assert_eq!(words(&decided), [""; 0]);
}

#[test]
fn noise_is_ignored_and_a_stranger_s_kind_is_unsupported() {
    let mut world = World::new();
    let moment = world.moment(1);
    assert_eq!(words(&world.desk.offer(frame(b"{".to_vec(), Ok(())), moment)), ["warn"]);
    let text = json!({
        "id": CommandId::generate(), "nodeId": world.desk.pen.node, "kind": "disk.wipe", "seq": 4, "payload": {},
        "notAfter": "2026-03-01T12:10:00Z",
    });
    let decided = world.desk.offer(frame(text.to_string().into_bytes(), Ok(())), moment);
    assert_eq!(words(&decided), ["warn", "refuse: rejected UNSUPPORTED"]);
    let Some(Do::Refuse { entry, .. }) = decided.last() else { unreachable!("{decided:?}") };
    assert_eq!(entry.kind, "disk.wipe");
    let entry = Entry {
        ended: Some(Ended {
            state: UpdateState::Rejected,
            reason: Some(Refusal::Unsupported.into()),
            at: entry.at,
            approvals: None,
        }),
        ..entry.as_ref().clone()
    };
    assert!(world.again(entry, true).is_empty());
}
