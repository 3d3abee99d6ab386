//! The lines of a block: `field: value`, in order, each value in its one spelling.

use schema::{digest::Digest, name::Name, time::Timestamp};

use super::{StatementRefusal, Under};
use crate::trust::object::ObjectId;

type Read<T> = Result<T, StatementRefusal>;

pub(super) struct Block<'a> {
    lines: std::str::Split<'a, char>,
}

impl<'a> Block<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { lines: text.split('\n') }
    }

    /// The value of the field that comes.
    pub(super) fn text(&mut self, wanted: &'static str) -> Read<&'a str> {
        let line = self.lines.next().unwrap_or_default();
        let value = line.strip_prefix(wanted).and_then(|rest| rest.strip_prefix(": "));
        let value = value.ok_or_else(|| StatementRefusal::Field { wanted, found: line.chars().take(80).collect() })?;
        if value.is_empty() || value.trim() != value { Err(StatementRefusal::Value(wanted)) } else { Ok(value) }
    }

    fn parsed<T>(&mut self, wanted: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        self.text(wanted).and_then(|text| read(text).ok_or(StatementRefusal::Value(wanted)))
    }

    pub(super) fn name(&mut self, wanted: &'static str) -> Read<Name> {
        self.parsed(wanted, |text| Name::new(text).ok())
    }

    pub(super) fn digest(&mut self, wanted: &'static str) -> Read<Digest> {
        self.parsed(wanted, |text| text.parse().ok())
    }

    pub(super) fn id(&mut self, wanted: &'static str) -> Read<ObjectId> {
        self.parsed(wanted, |text| text.parse().ok())
    }

    /// A number without a sign or zeros in front.
    pub(super) fn number(&mut self, wanted: &'static str) -> Read<u64> {
        self.parsed(wanted, |text| text.parse().ok().filter(|number: &u64| number.to_string() == text))
    }

    pub(super) fn hex<const N: usize>(&mut self, wanted: &'static str) -> Read<[u8; N]> {
        self.parsed(wanted, |text| {
            let mut bytes = [0; N];
            let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
            hex::decode_to_slice(text, &mut bytes).ok().filter(|()| lower).map(|()| bytes)
        })
    }

    /// A moment in UTC, to the second.
    pub(super) fn time(&mut self, wanted: &'static str) -> Read<Timestamp> {
        self.parsed(wanted, |text| {
            text.parse().ok().filter(|time: &Timestamp| time.to_string() == text && text.len() == 20)
        })
    }

    pub(super) fn last_time(&mut self, wanted: &'static str) -> Read<Timestamp> {
        let time = self.time(wanted)?;
        self.end()?;
        Ok(time)
    }

    /// A branch's short name.
    pub(super) fn branch(&mut self) -> Read<String> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-+".contains(&byte);
        self.parsed("branch", |text| {
            let good = text.bytes().all(inner) && !text.starts_with("refs/") && !text.contains("..");
            good.then(|| text.to_owned())
        })
    }

    /// Things with commas between them, sorted, each once.
    pub(super) fn list<T>(&mut self, wanted: &'static str, read: impl Fn(&str) -> Option<T>) -> Read<Vec<T>> {
        self.parsed(wanted, |text| {
            let parts: Vec<&str> = text.split(',').collect();
            let sorted = parts.windows(2).all(|pair| pair[0] < pair[1]);
            let plain = |part: &&str| !part.is_empty() && !part.contains(' ');
            if !sorted || !parts.iter().all(plain) {
                return None;
            }
            parts.into_iter().map(read).collect()
        })
    }

    pub(super) fn under(&mut self) -> Read<Under> {
        Ok(Under { epoch: self.number("trust-epoch")?, digest: self.digest("trust-digest")? })
    }

    pub(super) fn end(&mut self) -> Read<()> {
        if self.lines.next().is_none() { Ok(()) } else { Err(StatementRefusal::More) }
    }
}
