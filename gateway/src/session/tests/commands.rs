//! Commands in one session, input by input.

use schema::{
    command::{CommandKind, Lane, UpdateState},
    id::CommandId,
};

use super::*;

/// A kind of each lane, in the order of the lanes.
const KINDS: [CommandKind; 3] = [CommandKind::InventoryRefresh, CommandKind::DiagNvml, CommandKind::LogsCollect];

pub(super) fn dispatch(id: CommandId, seq: u64, lane: Lane) -> Dispatch {
    let frame = pb::Command { body: id.to_string().into_bytes(), signature: None, approval: Vec::new() };
    Dispatch { id, seq, lane, kind: KINDS[lane.index()], frame, cancel: false }
}

pub(super) fn update(id: CommandId, state: UpdateState) -> Input {
    let update = format!(r#"{{"command":"{id}","nodeId":"{}","state":"{state}"}}"#, node_id()).into_bytes();
    let signature = if state.is_terminal() { vec![1; 70] } else { Vec::new() };
    up(Up::CommandUpdate(pb::CommandUpdate { update, signature }))
}

/// The commands that effects send.
pub(super) fn sent(effects: &[Effect]) -> Vec<CommandId> {
    let command = |effect: &Effect| match effect {
        Effect::Send(frame) => match &**frame {
            Down::Command(command) => std::str::from_utf8(&command.body).ok()?.parse().ok(),
            _ => None,
        },
        _ => None,
    };
    effects.iter().filter_map(command).collect()
}

pub(super) fn cancelled(effects: &[Effect]) -> Vec<CommandId> {
    let cancel = |effect: &Effect| match effect {
        Effect::Send(frame) => match &**frame {
            Down::CancelCommand(cancel) => cancel.command_id.parse().ok(),
            _ => None,
        },
        _ => None,
    };
    effects.iter().filter_map(cancel).collect()
}

fn some(count: u64, lane: Lane) -> Vec<Dispatch> {
    (1..=count).map(|seq| dispatch(CommandId::generate(), seq, lane)).collect()
}

fn ids(commands: &[Dispatch]) -> Vec<CommandId> {
    commands.iter().map(|command| command.id).collect()
}

fn claimed(commands: &[Dispatch]) -> Input {
    Input::Claimed(Claimed { commands: commands.to_vec(), recalled: false })
}

fn claims(effects: &[Effect]) -> Vec<Room> {
    effects.iter().filter_map(|effect| if let Effect::Claim(room) = effect { Some(*room) } else { None }).collect()
}

#[test]
fn a_full_lane_asks_again_when_a_credit_returns_and_an_empty_one_does_not() {
    let mut core = open_session(rules());
    let bulk = some(2, Lane::Bulk);
    let effects = core.handle(claimed(&bulk), at(1));
    assert_eq!((sent(&effects), claims(&effects)), (ids(&bulk), vec![]));
    let effects = core.handle(update(bulk[0].id, UpdateState::Succeeded), at(1));
    assert!(
        matches!(&effects[..], [Effect::Beat, Effect::Settle(word), Effect::Claim([0, 0, 1])] if word.id == bulk[0].id)
    );
    assert_eq!(core.handle(claimed(&[]), at(1)), [], "the lane has no more");
    let effects = core.handle(update(bulk[1].id, UpdateState::Failed), at(1));
    assert!(claims(&effects).is_empty());
    assert_eq!(claims(&core.handle(Input::CommandsMayWait, at(1))), [[8, 4, 2]]);
}

#[test]
fn what_is_heard_while_a_claim_is_under_way_is_not_forgotten() {
    let mut core = open_session(rules());
    assert!(core.handle(Input::CommandsMayWait, at(1)).is_empty(), "one claim at a time");
    assert_eq!(claims(&core.handle(claimed(&[]), at(1))), [[8, 4, 2]], "the answer may be older than the news");
    assert!(core.handle(claimed(&[]), at(1)).is_empty());
}

#[test]
fn what_was_in_flight_is_sent_first_and_counts() {
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(hello())), at(0));
    let mut replay = some(3, Lane::Bulk);
    let order = ids(&replay);
    replay.reverse();
    let effects = core.handle(Input::Opened(Box::new(Opened { replay, ..opened(3) })), at(0));
    assert_eq!(sent(&effects), order[..2], "by number, and no more than there are credits");
    assert_eq!(claims(&effects), [[8, 4, 0]]);
    let effects = core.handle(update(order[0], UpdateState::Succeeded), at(1));
    assert_eq!(sent(&effects), order[2..]);
}

#[test]
fn a_busy_command_waits_in_the_database_and_may_come_again() {
    let mut core = open_session(rules());
    let bulk = some(1, Lane::Bulk);
    core.handle(claimed(&bulk), at(1));
    let effects = core.handle(update(bulk[0].id, UpdateState::Busy), at(1));
    assert_eq!(effects, [Effect::Beat, Effect::Progress(bulk[0].id, UpdateState::Busy)]);
    assert_eq!(sent(&core.handle(claimed(&bulk), at(2))), ids(&bulk));
}

/// The database may speak of the first time or of another claim whose answer was lost; that one nobody would send.
#[test]
fn a_lost_answer_that_may_hold_a_busy_command_ends_the_session() {
    let mut core = open_session(rules());
    let bulk = some(2, Lane::Bulk);
    core.handle(claimed(&bulk), at(1));
    core.handle(update(bulk[0].id, UpdateState::Busy), at(1));
    core.handle(update(bulk[1].id, UpdateState::Succeeded), at(1));
    let recalled = |commands: &[Dispatch]| Input::Claimed(Claimed { commands: commands.to_vec(), recalled: true });
    assert_eq!(sent(&core.handle(recalled(&bulk[1..]), at(2))), [], "what ended is not sent again");
    let effects = core.handle(recalled(&bulk), at(3));
    assert!(sent(&effects).is_empty() && core.is_closed(), "{effects:?}");

    let mut core = open_session(rules());
    core.handle(claimed(&bulk), at(1));
    core.handle(update(bulk[0].id, UpdateState::Busy), at(1));
    core.handle(claimed(&bulk[..1]), at(2));
    core.handle(recalled(&bulk), at(3));
    assert!(!core.is_closed(), "it is out again, and that is known");
}

#[test]
fn every_step_is_written_once_and_none_goes_back() {
    use UpdateState::{Acked, Busy, Running, Succeeded};
    let mut core = open_session(rules());
    let command = some(1, Lane::Control);
    core.handle(claimed(&command), at(1));
    let mut said = Vec::new();
    for state in [Acked, Acked, Running, Acked, Busy, Running, Succeeded, Running, Succeeded] {
        for effect in core.handle(update(command[0].id, state), at(1)) {
            match effect {
                Effect::Progress(_, state) => said.push(state.as_str()),
                Effect::Settle(_) => said.push("settled"),
                _ => {}
            }
        }
    }
    assert_eq!(said, ["acked", "running", "settled"]);
}

#[test]
fn a_last_word_that_nobody_asked_for_is_passed_on_and_other_news_is_not() {
    let mut core = open_session(rules());
    let unknown = CommandId::generate();
    assert_eq!(core.handle(update(unknown, UpdateState::Running), at(1)), [Effect::Beat]);
    assert_eq!(core.handle(update(unknown, UpdateState::Busy), at(1)), [Effect::Beat]);
    let effects = core.handle(update(unknown, UpdateState::Succeeded), at(1));
    assert!(matches!(&effects[..], [Effect::Beat, Effect::Settle(word)] if word.id == unknown));
    assert_eq!(core.handle(update(unknown, UpdateState::Succeeded), at(1)), [Effect::Beat], "once");
}

#[test]
fn a_cancellation_is_sent_until_the_last_word() {
    let mut core = open_session(rules());
    let mut commands = some(2, Lane::Control);
    commands[1].cancel = true;
    let effects = core.handle(claimed(&commands), at(1));
    assert_eq!(cancelled(&effects), [commands[1].id], "right after the command");
    let wanted = || Input::Facts(Facts { cancels: vec![commands[0].id, CommandId::generate()], ..facts(3) });
    assert_eq!(cancelled(&core.handle(wanted(), at(2))), [commands[0].id]);
    assert!(cancelled(&core.handle(wanted(), at(5))).is_empty());
    assert_eq!(cancelled(&core.handle(wanted(), at(32))), [commands[0].id], "again after a while");
    core.handle(update(commands[0].id, UpdateState::Cancelled), at(33));
    assert!(cancelled(&core.handle(wanted(), at(90))).is_empty());
}

#[test]
fn a_daemon_that_runs_no_commands_is_sent_none() {
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(pb::Hello { capabilities: Vec::new(), ..hello() })), at(0));
    let effects = core.handle(Input::Opened(Box::new(Opened { replay: some(1, Lane::Bulk), ..opened(3) })), at(0));
    assert!(matches!(effects.as_slice(), [Effect::Send(_)]), "Welcome, and no more: {effects:?}");
    assert!(core.handle(Input::CommandsMayWait, at(1)).is_empty());
    assert!(core.handle(Input::Facts(Facts { commands_waiting: true, ..facts(3) }), at(1)).is_empty());
}

#[test]
fn a_kind_that_the_identity_does_not_accept_is_not_sent() {
    let mut core = SessionCore::new(rules(), at(0));
    core.handle(up(Up::Hello(hello())), at(0));
    let allowed = Some(vec![KINDS[0].to_string()]);
    core.handle(Input::Opened(Box::new(Opened { allowed, ..opened(3) })), at(0));
    let (good, bad) = (some(1, Lane::Control), some(1, Lane::Bulk));
    let effects = core.handle(claimed(&[good[0].clone(), bad[0].clone()]), at(1));
    assert_eq!(sent(&effects), ids(&good));
    assert!(effects.contains(&Effect::Progress(bad[0].id, UpdateState::Busy)), "it waits, and its deadline ends it");
}

#[test]
fn what_comes_after_goodbye_is_given_back_or_kept() {
    let mut core = open_session(rules());
    let commands = some(2, Lane::Bulk);
    core.handle(claimed(&commands), at(1));
    core.handle(update(commands[0].id, UpdateState::Succeeded), at(1));
    core.handle(Input::Drain, at(1));
    let late = some(1, Lane::Bulk);
    assert_eq!(core.handle(claimed(&late), at(1)), [Effect::Release(ids(&late))]);
    let effects = core.handle(update(commands[1].id, UpdateState::Succeeded), at(2));
    assert!(matches!(&effects[..], [Effect::Beat, Effect::Settle(_)]), "and no claim: {effects:?}");
}

#[test]
fn an_update_that_cannot_be_ends_the_session() {
    type Fault = fn(&mut pb::CommandUpdate);
    let table: [(&str, Fault); 6] = [
        ("WRONG_NODE", |u| u.update = String::from_utf8_lossy(&u.update).replace("00a", "00c").into_bytes()),
        ("FRAME_MALFORMED", |u| u.update = b"{}".to_vec()),
        ("FRAME_MALFORMED", |u| u.update = String::from_utf8_lossy(&u.update).replace("succeeded", "won").into_bytes()),
        ("FRAME_MALFORMED", |u| u.signature.clear()),
        ("FRAME_MALFORMED", |u| u.signature = vec![0; 129]),
        ("FRAME_TOO_LARGE", |u| u.update = vec![b' '; schema::command::update::MAX_UPDATE + 1]),
    ];
    for (expected, fault) in table {
        let Input::Frame(mut frame) = update(CommandId::generate(), UpdateState::Succeeded) else { panic!("a frame") };
        if let Some(Up::CommandUpdate(update)) = &mut frame.frame {
            fault(update);
        }
        assert_eq!(code(&open_session(rules()).handle(Input::Frame(frame), at(1))), Some(expected));
    }
}

#[test]
fn a_flood_of_updates_ends_the_session() {
    let mut core = open_session(rules());
    let mut stored = 0;
    while !core.is_closed() {
        let effects = core.handle(update(CommandId::generate(), UpdateState::Succeeded), at(1));
        stored += effects.iter().filter(|effect| matches!(effect, Effect::Settle(_))).count();
        assert!(stored < 1000);
    }
    assert_eq!(stored, 32, "nobody asked");

    let mut core = open_session(rules());
    let command = some(1, Lane::Control);
    core.handle(claimed(&command), at(1));
    let said = (0..1000).take_while(|_| !core.handle(update(command[0].id, UpdateState::Acked), at(1)).is_empty());
    assert_eq!(said.count(), 4 + 256 + 1, "what one command may bring, a burst, and the last is told why");
    assert!(core.is_closed());
}

#[test]
fn a_thousand_quick_commands_end_in_one_session() {
    let mut core = open_session(rules());
    for command in some(1_000, Lane::Control) {
        let mut effects = core.handle(claimed(std::slice::from_ref(&command)), at(1));
        assert_eq!(sent(&effects), [command.id]);
        for said in [UpdateState::Acked, UpdateState::Running, UpdateState::Succeeded] {
            effects = core.handle(update(command.id, said), at(1));
        }
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Settle(_))), "{effects:?}");
        core.handle(Input::CommandsMayWait, at(1));
    }
    assert!(!core.is_closed());
}

#[test]
fn what_each_of_a_thousand_commands_asks_for_is_no_flood_and_more_of_it_is() {
    let mut core = open_session(rules());
    let inventory = |seq| up(Up::Inventory(report(seq)));
    let commands = some(1_000, Lane::Control);
    for (seq, command) in (1..).zip(&commands) {
        core.handle(claimed(std::slice::from_ref(command)), at(1));
        let effects = core.handle(inventory(seq), at(1));
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Store(_))), "{seq}: {effects:?}");
        core.handle(update(command.id, UpdateState::Succeeded), at(1));
        core.handle(Input::CommandsMayWait, at(1));
    }
    let flood = (1_001..).take_while(|seq| !core.handle(inventory(*seq), at(1)).is_empty() && *seq < 2_000);
    assert_eq!(flood.count(), 16 + 1, "and the last is told why");
    assert!(core.is_closed());
}
