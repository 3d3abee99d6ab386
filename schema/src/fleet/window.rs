//! Weekly windows: days, hours and an IANA time zone, judged with the time zone database that is compiled in.
//!
//! A window is as many spans of time, each from its first local hour to its last on one day. Where clocks jump, a span
//! begins at the first instant whose local time has reached the hour, and ends at the last one that has not: an hour
//! that is skipped counts as the jump, and an hour that comes twice lies inside both times.

use std::{fmt, str::FromStr, sync::LazyLock};

use jiff::{
    Span,
    civil::{Date, Time},
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{node::words, time::Timestamp};

words! {
    /// A day of the week.
    Weekday {
        /// Monday.
        Monday = "mon",
        /// Tuesday.
        Tuesday = "tue",
        /// Wednesday.
        Wednesday = "wed",
        /// Thursday.
        Thursday = "thu",
        /// Friday.
        Friday = "fri",
        /// Saturday.
        Saturday = "sat",
        /// Sunday.
        Sunday = "sun",
    }
}

impl Weekday {
    fn of(date: Date) -> Self {
        Self::ALL[usize::try_from(date.weekday().to_monday_zero_offset()).unwrap_or(0)]
    }
}

/// A time of a day, `06:00` to `24:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockTime(u16);

impl ClockTime {
    /// The day's beginning.
    pub const START: Self = Self(0);
    /// The day's end.
    pub const END: Self = Self(24 * 60);

    /// The date and time on a day; the day's end is the beginning of the next.
    fn on(self, date: Date) -> jiff::civil::DateTime {
        let date = if self == Self::END { date.saturating_add(Span::new().days(1)) } else { date };
        let (hour, minute) = (self.0 / 60 % 24, self.0 % 60);
        let part = |part: u16| i8::try_from(part).expect("an hour or a minute");
        date.to_datetime(Time::constant(part(hour), part(minute), 0, 0))
    }
}

/// An IANA time zone that this version knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Zone(String);

/// Why a text is not a time of day or a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseWindowError {
    /// Not a time of day.
    #[error("{0:?} is not a time of day such as 06:00")]
    Clock(String),
    /// Not a zone.
    #[error("there is no time zone {0:?}")]
    Zone(String),
}

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

impl Zone {
    /// The names of all zones.
    #[must_use]
    pub fn names() -> &'static [String] {
        static NAMES: LazyLock<Vec<String>> =
            LazyLock::new(|| ZONES.available().map(|name| name.to_string()).collect());
        &NAMES
    }

    fn rules(&self) -> TimeZone {
        ZONES.get(&self.0).unwrap_or(TimeZone::UTC)
    }
}

impl FromStr for Zone {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseWindowError::Zone(text.chars().take(80).collect());
        let zone = ZONES.get(text).map_err(|_| refuse())?;
        // The database finds names in any case; a document has one spelling.
        zone.iana_name().filter(|name| *name == text).map(|name| Self(name.to_owned())).ok_or_else(refuse)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ClockTime {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = |text: &str| -> Option<u16> {
            (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
        };
        let minutes = text.split_once(':').and_then(|(hour, minute)| {
            let minute = part(minute).filter(|minute| *minute < 60)?;
            Some(part(hour)? * 60 + minute).filter(|minutes| *minutes <= Self::END.0)
        });
        minutes.map(Self).ok_or_else(|| ParseWindowError::Clock(text.chars().take(80).collect()))
    }
}

impl fmt::Display for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:02}:{:02}", self.0 / 60, self.0 % 60))
    }
}

crate::as_text! {
    ClockTime = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$",
    Zone = "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
}

/// A window that comes back every week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Window {
    /// The days on which it begins; every day when none is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Weekday>,
    /// From when to when; the whole day when it is not said. A window that ends before it begins ends on the next day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<(ClockTime, ClockTime)>,
    /// Where these are the local days and hours.
    pub zone: Zone,
}

/// Whether something holds now, and when that changes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Whether it holds.
    pub holds: bool,
    /// When that changes; `None`: it does not change by itself.
    pub next_edge: Option<Timestamp>,
}

/// Days that are looked at around an instant: the one on which a span may have begun, and more than a week after it.
const LOOK_BACK: i32 = 2;
const LOOK_AHEAD: i32 = 9;

impl Window {
    /// Whether an instant lies inside, and when that changes.
    #[must_use]
    pub fn standing(&self, now: Timestamp) -> Standing {
        if self.is_always() {
            return Standing { holds: true, next_edge: None };
        }
        let zone = self.zone.rules();
        let mut spans: Vec<(Timestamp, Timestamp)> = Vec::new();
        let today = zone.to_datetime(now).date();
        for offset in -LOOK_BACK..=LOOK_AHEAD {
            let date = today.saturating_add(Span::new().days(offset));
            let Some((start, end)) = self.span(date, &zone) else { continue };
            match spans.last_mut() {
                Some((_, last)) if *last >= start => *last = end.max(*last),
                _ => spans.push((start, end)),
            }
        }
        match spans.into_iter().find(|(_, end)| *end > now) {
            Some((start, end)) if start <= now => Standing { holds: true, next_edge: Some(end) },
            Some((start, _)) => Standing { holds: false, next_edge: Some(start) },
            None => Standing { holds: false, next_edge: None },
        }
    }

    /// Whether the window has no end.
    #[must_use]
    pub fn is_always(&self) -> bool {
        let whole = self.hours.is_none_or(|hours| hours == (ClockTime::START, ClockTime::END));
        whole && Weekday::ALL.iter().all(|day| self.days.is_empty() || self.days.contains(day))
    }

    /// The span that begins on a day.
    fn span(&self, date: Date, zone: &TimeZone) -> Option<(Timestamp, Timestamp)> {
        if !self.days.is_empty() && !self.days.contains(&Weekday::of(date)) {
            return None;
        }
        let (from, until) = self.hours.unwrap_or((ClockTime::START, ClockTime::END));
        let last = if until <= from { date.saturating_add(Span::new().days(1)) } else { date };
        let start = instant(from.on(date), zone, Side::First)?;
        let end = instant(until.on(last), zone, Side::Last)?;
        (start < end).then_some((start, end))
    }
}

enum Side {
    First,
    Last,
}

/// The instant of a local time: of one that comes twice the first or the last, of one that never comes the jump over it.
fn instant(local: jiff::civil::DateTime, zone: &TimeZone, side: Side) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { .. } => ambiguous.unambiguous().ok(),
        AmbiguousOffset::Fold { .. } => match side {
            Side::First => ambiguous.earlier().ok(),
            Side::Last => ambiguous.later().ok(),
        },
        AmbiguousOffset::Gap { .. } => {
            let before = ambiguous.earlier().ok()?;
            zone.following(before).next().map(|jump| jump.timestamp())
        }
    }
}

#[cfg(test)]
mod tests;
