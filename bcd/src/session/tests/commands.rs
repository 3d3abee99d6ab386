//! Facts about commands in a session: with real signatures, and with clocks that are wrong.

use schema::{
    command::{CommandBody, CommandKind, CommandUpdate, Refusal, UpdateState},
    id::CommandId,
};

use super::*;
use crate::testing::payload;

impl World {
    fn body(&self, kind: CommandKind) -> CommandBody {
        CommandBody {
            id: CommandId::generate(),
            node_id: self.node,
            kind,
            seq: 1,
            payload: payload(kind),
            not_after: wall().saturating_add(Duration::from_secs(600)).expect("a time"),
            min_generation: None,
            batch: None,
            secrets: Vec::new(),
            journal: None,
        }
    }

    fn command(&self, body: &CommandBody) -> gateway_frame::Frame {
        let bytes = body.to_bytes();
        let signature = self.worker.sign_command(self.node, &bytes);
        gateway_frame::Frame::Command(pb::Command {
            body: bytes,
            signature: Some(message(&signature)),
            approval: Vec::new(),
        })
    }
}

fn accepts(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Command(what)] if matches!(**what, Do::Accept { .. }))
}

fn refused(effects: &[Effect]) -> Option<Refusal> {
    effects.iter().find_map(|effect| {
        let Effect::Command(what) = effect else { return None };
        let update = match what.as_ref() {
            Do::Refuse { update, .. } => update.as_ref(),
            Do::Spurn(update) | Do::Say(update) => update,
            _ => return None,
        };
        update.reason.as_ref().and_then(schema::command::Reason::refusal)
    })
}

#[test]
fn hello_says_that_this_daemon_takes_commands() {
    let world = World::new();
    assert!(world.core.hello(NONCE).capabilities.contains(&"commands".to_owned()));
}

#[test]
fn a_command_that_the_control_plane_signed_is_accepted_and_no_other() {
    let mut world = World::new();
    world.open();
    let body = world.body(CommandKind::NodeReboot);
    let gateway_frame::Frame::Command(command) = world.command(&body) else { unreachable!("a command") };

    let unsigned = pb::Command { signature: None, ..command.clone() };
    assert_eq!(refused(&world.frame(gateway_frame::Frame::Command(unsigned))), Some(Refusal::BadSignature));
    let later = CommandBody { not_after: wall().saturating_add(Duration::from_secs(601)).expect("a time"), ..body };
    let changed = pb::Command { body: later.to_bytes(), ..command.clone() };
    assert_eq!(refused(&world.frame(gateway_frame::Frame::Command(changed))), Some(Refusal::BadSignature));
    let stranger =
        Keys::generate("bc.local", wall()).expect("keys").command_root().certify(&world.anchor.realm(), wall());
    let forged =
        pb::Command { signature: Some(message(&stranger.sign_command(world.node, &command.body))), ..command.clone() };
    assert_eq!(refused(&world.frame(gateway_frame::Frame::Command(forged))), Some(Refusal::BadSignature));
    let spec = world.worker.sign_desired_state(world.node, Generation(1), &command.body);
    let borrowed = pb::Command { signature: Some(message(&spec)), ..command.clone() };
    assert_eq!(refused(&world.frame(gateway_frame::Frame::Command(borrowed))), Some(Refusal::BadSignature));

    assert!(accepts(&world.frame(gateway_frame::Frame::Command(command))));
}

#[test]
fn another_nodes_command_is_unsupported_whoever_signed_it() {
    let mut world = World::new();
    world.open();
    let body = CommandBody { node_id: NodeId::generate(), ..world.body(CommandKind::NodeReboot) };
    assert_eq!(refused(&world.frame(world.command(&body))), Some(Refusal::Unsupported));
}

#[test]
fn a_signature_of_an_expired_worker_is_none() {
    let mut world = World::new();
    world.open();
    let body = CommandBody {
        not_after: wall().saturating_add(Duration::from_secs(3 * 86_400)).expect("a time"),
        ..world.body(CommandKind::NodeReboot)
    };
    let command = world.command(&body);
    let late = world.now(2 * 86_400);
    assert_eq!(refused(&world.core.handle(Event::Frame(command), late)), Some(Refusal::BadSignature));
}

#[test]
fn deadlines_follow_proven_time_whatever_the_machines_clock_says_and_does() {
    let clocks = [
        "1970-01-01T00:00:00Z",
        "2011-01-01T00:00:00Z",
        "2026-03-01T11:50:00Z",
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:10:00Z",
        "2038-01-19T03:14:07Z",
    ];
    for at_welcome in clocks {
        for later in clocks {
            for (seconds, in_time) in [(0, true), (599, true), (600, false), (86_000, false)] {
                let mut world = World::new();
                let wrong = |clock: &str, seconds: u64| Now {
                    wall: clock.parse().expect("a time"),
                    mono: world.start + Duration::from_secs(seconds),
                    proven: None,
                };
                let (opening, now) = (wrong(at_welcome, 0), wrong(later, seconds));
                world.core.handle(Event::Opening { nonce: NONCE }, opening);
                world.core.handle(Event::Frame(world.welcome(wall())), opening);
                let command = world.command(&world.body(CommandKind::NodeReboot));
                let effects = world.core.handle(Event::Frame(command), now);
                let what = format!("{at_welcome}, then {later} after {seconds} s");
                assert_eq!(accepts(&effects), in_time, "{what}");
                assert_eq!(refused(&effects), (!in_time).then_some(Refusal::Expired), "{what}");
            }
        }
    }
}

#[test]
fn a_machine_that_slept_knows_how_long() {
    let mut world = World::new();
    world.open();
    let command = world.command(&world.body(CommandKind::NodeReboot));
    // Only the clock that goes on in sleep has moved.
    let slept = Now { proven: wall().saturating_add(Duration::from_secs(600)).ok(), ..world.now(1) };
    assert_eq!(refused(&world.core.handle(Event::Frame(command), slept)), Some(Refusal::Expired));
}

#[test]
fn what_a_slow_wire_may_have_cost_counts_against_the_deadline() {
    let mut world = World::new();
    let (asked, answered) = (world.now(0), world.now(20));
    world.core.handle(Event::Opening { nonce: NONCE }, asked);
    let welcome = world.welcome(wall());
    world.core.handle(Event::Frame(welcome), answered);
    let at = |world: &mut World, seconds| {
        let command = world.command(&world.body(CommandKind::NodeReboot));
        let now = world.now(seconds);
        refused(&world.core.handle(Event::Frame(command), now))
    };
    assert_eq!(at(&mut world, 599), None);
    assert_eq!(at(&mut world, 600), Some(Refusal::Expired));
    assert_eq!(world.core.time(answered), wall(), "reports say what is certain");
}

#[test]
fn a_time_more_than_a_day_ahead_takes_a_second_word_a_while_later() {
    let hours = |count: i64| wall().saturating_add(jiff::SignedDuration::from_hours(count)).expect("a time");
    let mut world = World::new();
    world.open();
    let welcome = |world: &mut World, seconds: u64, hours: Timestamp| {
        let now = world.now(seconds);
        world.core.handle(Event::Closed, now);
        world.core.handle(Event::Opening { nonce: NONCE }, now);
        world.worker = world.keys.command_root().certify(&world.anchor.realm(), hours);
        let welcome = world.welcome(hours);
        world.core.handle(Event::Frame(welcome), now).contains(&Effect::Opened)
    };
    assert!(welcome(&mut world, 1, hours(23)), "a day is no leap");
    for seconds in [2, 3, 60, 121] {
        assert!(!welcome(&mut world, seconds, hours(23 + 25)), "after {seconds} s");
    }
    assert!(welcome(&mut world, 121, hours(23)), "the bad clock is mended, and nothing happened");
    assert!(!welcome(&mut world, 200, hours(23 + 25)), "the first word counts anew");
    assert!(!welcome(&mut world, 319, hours(23 + 30)), "another word is another leap");
    assert!(!welcome(&mut world, 320, hours(23 + 25)), "and so is this");
    assert!(welcome(&mut world, 441, hours(23 + 25)));
}

#[test]
fn signed_time_never_runs_backwards() {
    let mut world = World::new();
    world.open();
    let late = world.now(700);
    world.core.handle(Event::Opening { nonce: NONCE }, late);
    let welcome = world.welcome(wall());
    world.core.handle(Event::Frame(welcome), late);
    let command = world.command(&world.body(CommandKind::NodeReboot));
    assert_eq!(refused(&world.core.handle(Event::Frame(command), late)), Some(Refusal::Expired));
}

#[test]
fn a_command_before_the_welcome_ends_the_session() {
    let mut world = World::new();
    let now = world.now(0);
    world.core.handle(Event::Opening { nonce: NONCE }, now);
    let command = world.command(&world.body(CommandKind::NodeReboot));
    assert!(world.core.handle(Event::Frame(command), now).contains(&Effect::Close(Again::BackOff)));
}

#[test]
fn an_early_command_asks_for_its_spec_and_goes_on_when_it_is_applied() {
    let mut world = World::new();
    world.open();
    let body = CommandBody { min_generation: Some(Generation(1)), ..world.body(CommandKind::NodeReboot) };
    let effects = world.frame(world.command(&body));
    let wanted = pb::DesiredStateWanted { generation: 1 };
    assert_eq!(effects, [Effect::Send(node_frame::Frame::DesiredStateWanted(wanted))]);
    assert!(applies(&world.frame(world.spec(world.node, 1, "1"))));
    let now = world.now(2);
    world.core.handle(world.settled(1), now);
    let effects = world.core.handle(Event::Tick, now);
    assert!(accepts(&effects), "{effects:?}");
}

#[test]
fn what_happens_between_two_sessions_is_said_when_it_is_asked_for() {
    let mut world = World::new();
    world.open();
    let body = world.body(CommandKind::LogsCollect);
    let command = world.command(&body);
    world.frame(command.clone());
    let now = world.now(2);
    let said = |effects: &[Effect]| {
        let told = |what: &Do| matches!(what, Do::Say(_) | Do::Answer(_));
        effects.iter().any(|effect| matches!(effect, Effect::Command(what) if told(what)))
    };
    world.core.handle(Event::Closed, now);
    for event in [desk::Event::Kept(body.id, true), desk::Event::Began(body.id), desk::Event::Ended(body.id)] {
        assert!(!said(&world.core.handle(Event::Command(event), now)));
    }
    world.open();
    assert_eq!(world.frame(command), [Effect::Command(Box::new(Do::Answer(body.id)))]);
}

#[test]
fn a_cancellation_needs_a_command() {
    let mut world = World::new();
    world.open();
    let cancel = |id: String| gateway_frame::Frame::CancelCommand(pb::CancelCommand { command_id: id });
    assert!(refusal(&world.frame(cancel("noise".into()))).contains("names no command"));
    assert!(world.frame(cancel(CommandId::generate().to_string())).is_empty());
    let body = world.body(CommandKind::LogsCollect);
    world.frame(world.command(&body));
    let now = world.now(2);
    world.core.handle(Event::Command(desk::Event::Kept(body.id, true)), now);
    assert_eq!(world.frame(cancel(body.id.to_string())), [Effect::Command(Box::new(Do::Cancel(body.id)))]);
    let update =
        CommandUpdate::new(body.id, world.node, UpdateState::Acked, world.core.progress().journal_id, world.boot());
    assert_eq!(world.frame(world.command(&body)), [Effect::Command(Box::new(Do::Say(update)))]);
}
