//! Weekly windows: zones, days that are longer or shorter, and where a window begins and ends.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn window(days: &[Weekday], hours: Option<(&str, &str)>, zone: &str) -> Window {
    let clock = |text: &str| text.parse().expect("a time of day");
    Window {
        days: days.to_vec(),
        hours: hours.map(|(from, until)| (clock(from), clock(until))),
        zone: zone.parse().expect("a zone"),
    }
}

#[test]
fn a_weekend_begins_and_ends_at_local_midnight() {
    let weekend = window(&[Weekday::Saturday, Weekday::Sunday], None, "Europe/Berlin");
    let friday = weekend.standing(at("2026-06-05T12:00:00Z"));
    assert_eq!((friday.holds, friday.next_edge), (false, Some(at("2026-06-05T22:00:00Z"))));
    let saturday = weekend.standing(at("2026-06-05T22:00:00Z"));
    assert_eq!((saturday.holds, saturday.next_edge), (true, Some(at("2026-06-07T22:00:00Z"))), "two days are one span");
}

#[test]
fn a_night_ends_on_the_next_day() {
    let night = window(&[Weekday::Friday], Some(("22:00", "06:00")), "UTC");
    let saturday = night.standing(at("2026-06-06T05:59:59Z"));
    assert_eq!((saturday.holds, saturday.next_edge), (true, Some(at("2026-06-06T06:00:00Z"))));
    assert!(!night.standing(at("2026-06-05T05:00:00Z")).holds, "Thursday night is not meant");
}

#[test]
fn an_hour_that_is_skipped_is_the_jump_and_one_that_comes_twice_is_both() {
    // Berlin jumps from 02:00 to 03:00 on 29 March 2026, at 01:00 UTC.
    let spring = window(&[], Some(("02:30", "05:00")), "Europe/Berlin");
    let before = spring.standing(at("2026-03-29T00:30:00Z"));
    assert_eq!((before.holds, before.next_edge), (false, Some(at("2026-03-29T01:00:00Z"))));
    let skipped = window(&[], Some(("02:10", "02:50")), "Europe/Berlin");
    assert_eq!(skipped.standing(at("2026-03-29T00:30:00Z")).next_edge, Some(at("2026-03-30T00:10:00Z")));
    // And back from 03:00 to 02:00 on 25 October, at 01:00 UTC: 02:30 is 00:30 and 01:30 UTC.
    let autumn = window(&[], Some(("02:15", "02:30")), "Europe/Berlin").standing(at("2026-10-25T00:15:00Z"));
    assert_eq!((autumn.holds, autumn.next_edge), (true, Some(at("2026-10-25T01:30:00Z"))));
}

#[test]
fn a_window_of_every_hour_has_no_edge() {
    assert_eq!(
        window(&[], None, "UTC").standing(at("2026-01-01T00:00:00Z")),
        Standing { holds: true, next_edge: None }
    );
    assert!(window(Weekday::ALL, Some(("00:00", "24:00")), "UTC").is_always());
}

#[test]
fn zones_are_those_of_iana_in_their_spelling() {
    for text in ["Europe/Berlin", "UTC", "America/Argentina/Buenos_Aires", "Asia/Kolkata"] {
        assert!(text.parse::<Zone>().is_ok(), "{text}");
    }
    for text in ["europe/berlin", "Berlin", "CEST", "+02:00", "", "../etc/passwd"] {
        assert!(text.parse::<Zone>().is_err(), "{text}");
    }
}

#[test]
fn times_of_day_have_two_digits_each() {
    for text in ["00:00", "06:30", "24:00"] {
        assert_eq!(text.parse::<ClockTime>().expect(text).to_string(), text);
    }
    for text in ["6:30", "24:01", "12:60", "1200", "", "+1:00", "12:0é"] {
        assert!(text.parse::<ClockTime>().is_err(), "{text}");
    }
}

const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
];

fn any_window() -> impl Strategy<Value = Window> {
    let days = prop::collection::btree_set(prop::sample::select(Weekday::ALL), 0..4);
    let hours = prop::option::of((0_u16..24 * 60, 1_u16..=24 * 60));
    (days, hours, prop::sample::select(&ZONES)).prop_map(|(days, hours, zone)| Window {
        days: days.into_iter().collect(),
        hours: hours.filter(|(from, until)| from != until).map(|(from, until)| (ClockTime(from), ClockTime(until))),
        zone: zone.parse().expect("a zone"),
    })
}

/// Whether the local clock shows a time of the window: the plain reading, which is right away from jumps.
fn shows(window: &Window, at: Timestamp) -> bool {
    let local = window.zone.rules().to_datetime(at);
    let minute = u16::try_from(local.hour()).unwrap_or(0) * 60 + u16::try_from(local.minute()).unwrap_or(0);
    let on = |date: Date| window.days.is_empty() || window.days.contains(&Weekday::of(date));
    let (from, until) = window.hours.unwrap_or((ClockTime::START, ClockTime::END));
    if until > from {
        return on(local.date()) && (from.0..until.0).contains(&minute);
    }
    let yesterday = local.date().saturating_sub(Span::new().days(1));
    (on(local.date()) && minute >= from.0) || (on(yesterday) && minute < until.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_next_edge_is_where_it_changes_and_nothing_changes_before(
        window in any_window(),
        // Around the changes of clocks of 2026 as often as anywhere.
        second in prop_oneof![1_735_689_600_i64..1_830_297_600, 1_774_600_000_i64..1_774_900_000, 1_792_800_000_i64..1_793_000_000],
        inside in 0_u64..1_000_000,
    ) {
        let now = Timestamp::from_second(second).expect("a time");
        let standing = window.standing(now);
        let Some(edge) = standing.next_edge else {
            prop_assert!(window.is_always());
            return Ok(());
        };
        prop_assert!(edge > now);
        prop_assert_ne!(window.standing(edge).holds, standing.holds);
        let between = now.as_second() + i64::try_from(inside).unwrap_or(0) % (edge.as_second() - now.as_second());
        let between = window.standing(Timestamp::from_second(between).expect("a time"));
        prop_assert_eq!((between.holds, between.next_edge), (standing.holds, Some(edge)));
    }

    #[test]
    fn away_from_jumps_it_holds_when_the_local_clock_says_so(window in any_window(), second in 1_735_689_600_i64..1_830_297_600) {
        let now = Timestamp::from_second(second).expect("a time");
        let zone = window.zone.rules();
        let day = jiff::SignedDuration::from_hours(30);
        let (before, after) = (now - day, now + day);
        let jumps = zone.following(before).next().is_some_and(|jump| jump.timestamp() < after);
        if !jumps {
            prop_assert_eq!(window.standing(now).holds, shows(&window, now));
        }
    }
}
