//! Sizes and shares as people write them.

use std::{fmt, str::FromStr};

/// A size in bytes, written `512MiB`, `80GiB` or `2TiB`; decimal units such as `20GB` are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// A share of a whole in percent, written `5%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Share(u8);

/// Why a text is not a size or a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// Not a size.
    #[error("{0:?} is not a size such as 512MiB, 80GiB or 2TiB")]
    Size(String),
    /// Not a share.
    #[error("{0:?} is not a share such as 5%, at most 100%")]
    Share(String),
}

const UNITS: [(&str, u64); 11] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseQuantityError::Size(text.chars().take(80).collect());
        let (number, unit) =
            UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit))).ok_or_else(refuse)?;
        whole(number).and_then(|number| number.checked_mul(unit)).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = UNITS
            .iter()
            .find(|(name, unit)| name.len() != 2 && self.0 >= *unit && self.0.is_multiple_of(*unit))
            .unwrap_or(&("B", 1));
        f.pad(&format!("{}{name}", self.0 / unit))
    }
}

impl Share {
    /// A share in percent; `None` above 100.
    #[must_use]
    pub const fn percent(percent: u8) -> Option<Self> {
        if percent <= 100 { Some(Self(percent)) } else { None }
    }

    /// The share in percent.
    #[must_use]
    pub const fn as_percent(self) -> u8 {
        self.0
    }
}

impl FromStr for Share {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseQuantityError::Share(text.chars().take(80).collect());
        let number = text.strip_suffix('%').and_then(whole).and_then(|number| u8::try_from(number).ok());
        number.and_then(Self::percent).ok_or_else(refuse)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}%", self.0))
    }
}

fn whole(digits: &str) -> Option<u64> {
    (digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}

crate::as_text! {
    ByteSize = "^[0-9]+(PiB|TiB|GiB|MiB|KiB|PB|TB|GB|MB|kB|B)$",
    Share = "^(100|[0-9]{1,2})%$",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print_in_the_largest_binary_unit() {
        for (text, bytes, printed) in [
            ("2TiB", 2 << 40, "2TiB"),
            ("1024MiB", 1 << 30, "1GiB"),
            ("20GB", 20_000_000_000, "19531250KiB"),
            ("7B", 7, "7B"),
            ("0B", 0, "0B"),
        ] {
            let size: ByteSize = text.parse().expect(text);
            assert_eq!((size.0, size.to_string().as_str()), (bytes, printed));
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        for text in ["", "2", "TiB", "-1B", "+1B", "1.5GiB", "2 TiB", "99999999PiB", "1gib"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_whole_and_at_most_all() {
        assert_eq!("5%".parse::<Share>().map(Share::as_percent), Ok(5));
        for text in ["5", "101%", "%", "-1%", "0.5%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
