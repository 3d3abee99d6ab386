//! Facts about the states of a command.

use proptest::prelude::*;

use super::super::{CommandEvent as E, CommandState as S, UpdateState};

type Row = &'static [(E, S)];

/// What every state in flight takes alike.
const IN_FLIGHT: [(E, S); 5] = [
    (E::Start, S::Running),
    (E::Succeed, S::Succeeded),
    (E::Fail, S::Failed),
    (E::Reject, S::Rejected),
    (E::Cancel, S::Cancelled),
];

/// The whole table, written out: for each state what each event makes of it. Everything else is refused.
fn expected(state: S, event: E) -> Option<S> {
    let (own, alike): (Row, Row) = match state {
        S::Pending => (&[(E::Dispatch, S::Dispatched), (E::Expire, S::Expired), (E::Cancel, S::Cancelled)], &[]),
        S::Dispatched => (&[(E::Dispatch, S::Dispatched), (E::Busy, S::Pending), (E::Ack, S::Acked)], &IN_FLIGHT),
        S::Acked => (&[(E::Dispatch, S::Acked), (E::Ack, S::Acked)], &IN_FLIGHT),
        S::Running => (&[(E::Dispatch, S::Running), (E::Ack, S::Running)], &IN_FLIGHT),
        S::Succeeded | S::Failed | S::Rejected | S::Expired | S::Cancelled => (&[], &[]),
    };
    own.iter().chain(alike).find(|(known, _)| *known == event).map(|(_, to)| *to)
}

#[test]
fn every_state_and_event_is_as_the_table_says() {
    for state in S::ALL {
        for event in E::ALL {
            assert_eq!(state.transition(*event).ok(), expected(*state, *event), "{state} {event}");
        }
    }
}

#[test]
fn a_state_waits_or_is_in_flight_or_is_over() {
    for state in S::ALL {
        let (waits, flies, over) = (*state == S::Pending, state.is_in_flight(), state.is_terminal());
        assert_eq!([waits, flies, over].into_iter().filter(|is| *is).count(), 1, "{state}");
    }
}

#[test]
fn what_a_node_says_leads_where_its_word_says() {
    for said in UpdateState::ALL {
        assert_eq!(S::Dispatched.transition(said.event()), Ok(said.state()), "{said}");
        assert_eq!(said.is_terminal(), said.state().is_terminal(), "{said}");
    }
}

proptest! {
    #[test]
    fn whatever_happens_a_command_ends_once_and_no_word_comes_after_its_end(
        events in prop::collection::vec(prop::sample::select(E::ALL), 0..60),
    ) {
        let mut state = S::Pending;
        let mut was_in_flight = false;
        for event in events {
            let before = state;
            if let Ok(next) = state.transition(event) {
                state = next;
            }
            prop_assert!(!before.is_terminal() || state == before);
            // Expiry is for what was never begun, and a node's own words for what was sent.
            if state == S::Expired && before != state {
                prop_assert_eq!(before, S::Pending);
            }
            was_in_flight |= before.is_in_flight();
            if matches!(state, S::Succeeded | S::Failed | S::Rejected) {
                prop_assert!(was_in_flight);
            }
        }
    }
}
