//! The frame of OpenPGP: packets, and the parts of a signature packet.

use crate::trust::wire::{Reader, Short};

pub(super) const SIGNATURE: u8 = 2;
pub(super) const PUBLIC_KEY: u8 = 6;
pub(super) const USER_ID: u8 = 13;
pub(super) const PUBLIC_SUBKEY: u8 = 14;
pub(super) const USER_ATTRIBUTE: u8 = 17;

pub(super) const CREATED: u8 = 2;
pub(super) const EXPIRES: u8 = 3;
pub(super) const KEY_EXPIRES: u8 = 9;
pub(super) const ISSUER: u8 = 16;
pub(super) const KEY_FLAGS: u8 = 27;
pub(super) const EMBEDDED: u8 = 32;
pub(super) const ISSUER_FINGERPRINT: u8 = 33;

/// Octets of an area of a signature: `gpg` takes no more.
const MOST_OCTETS: usize = 10_000;

/// The next packet: its tag and its body. Lengths are said up front, never in pieces.
pub(super) fn next<'a>(rest: &mut Reader<'a>) -> Result<(u8, &'a [u8]), Short> {
    let head = rest.byte()?;
    let (tag, length) = match head {
        0xc0.. => (head & 0x3f, length(rest)?),
        0x80.. => {
            let length = match head & 3 {
                0 => rest.byte()?.into(),
                1 => rest.u16()?.into(),
                2 => rest.u32()?,
                _ => return Err(Short),
            };
            ((head >> 2) & 0x0f, length)
        }
        _ => return Err(Short),
    };
    Ok((tag, rest.take(usize::try_from(length).map_err(|_| Short)?)?))
}

/// A length of one, two or five bytes.
fn length(rest: &mut Reader<'_>) -> Result<u32, Short> {
    match rest.byte()? {
        short @ 0..192 => Ok(short.into()),
        high @ 192..224 => Ok(((u32::from(high) - 192) << 8) + u32::from(rest.byte()?) + 192),
        255 => rest.u32(),
        224..=254 => Err(Short),
    }
}

/// One part of a signature packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subpacket<'a> {
    pub(super) kind: u8,
    pub(super) critical: bool,
    pub(super) body: &'a [u8],
}

/// All parts of an area.
pub(super) fn subpackets(area: &[u8]) -> Result<Vec<Subpacket<'_>>, Short> {
    let mut rest = Reader(area);
    let mut found = Vec::new();
    while !rest.0.is_empty() {
        // A part may be as long as two bytes can say, where a packet's length has other meanings.
        let length = match rest.byte()? {
            short @ 0..192 => usize::from(short),
            255 => usize::try_from(rest.u32()?).map_err(|_| Short)?,
            high => ((usize::from(high) - 192) << 8) + usize::from(rest.byte()?) + 192,
        };
        let [kind, body @ ..] = rest.take(length)? else { return Err(Short) };
        found.push(Subpacket { kind: kind & 0x7f, critical: kind & 0x80 != 0, body });
    }
    Ok(found)
}

/// A signature packet whose fields lie as they have to, and of which nothing is judged.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    pub(super) version: u8,
    pub(super) kind: u8,
    pub(super) algorithm: u8,
    pub(super) hash: u8,
    /// What the signature covers of itself.
    pub(super) covered: &'a [u8],
    pub(super) hashed: Vec<Subpacket<'a>>,
    pub(super) unhashed: Vec<Subpacket<'a>>,
    /// The first two bytes of the hash, as the packet repeats them.
    pub(super) left: [u8; 2],
    pub(super) salt: &'a [u8],
    pub(super) numbers: &'a [u8],
}

/// Why a signature packet is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Short,
    Version,
    TooLarge,
}

impl From<Short> for Fault {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

impl<'a> Fields<'a> {
    /// Reads the body of a signature packet, whose version is 4, 5 or 6.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let mut rest = Reader(body);
        let version = rest.byte()?;
        if !matches!(version, 4..=6) {
            return Err(Fault::Version);
        }
        let (kind, algorithm, hash) = (rest.byte()?, rest.byte()?, rest.byte()?);
        let area = |rest: &mut Reader<'a>| {
            let length = if version == 6 { rest.u32()? } else { rest.u16()?.into() };
            let length = usize::try_from(length).map_err(|_| Fault::TooLarge)?;
            if length > MOST_OCTETS { Err(Fault::TooLarge) } else { Ok(rest.take(length)?) }
        };
        let hashed = area(&mut rest)?;
        let covered = &body[..body.len() - rest.0.len()];
        let unhashed = area(&mut rest)?;
        let left = rest.array()?;
        let salt = if version == 6 {
            let length = rest.byte()?;
            rest.take(length.into())?
        } else {
            &[]
        };
        let (hashed, unhashed) = (subpackets(hashed)?, subpackets(unhashed)?);
        Ok(Self { version, kind, algorithm, hash, covered, hashed, unhashed, left, salt, numbers: rest.0 })
    }

    /// The bodies of the parts of a kind that the signature covers.
    pub(super) fn said(&self, kind: u8) -> impl Iterator<Item = &'a [u8]> {
        self.hashed.iter().filter(move |part| part.kind == kind).map(|part| part.body)
    }

    /// When it says to have been made, when it says so once.
    pub(super) fn created(&self) -> Option<u32> {
        let mut said = self.said(CREATED);
        let first = said.next()?.try_into().ok()?;
        if said.next().is_some() { None } else { Some(u32::from_be_bytes(first)) }
    }

    /// What is hashed: the salt, what is signed, and what the signature says of itself.
    pub(super) fn text(&self, signed: &[u8]) -> Vec<u8> {
        // An area has at most 10,000 octets.
        let length = u32::try_from(self.covered.len()).unwrap_or(u32::MAX).to_be_bytes();
        [self.salt, signed, self.covered, &[self.version, 0xff], &length].concat()
    }
}
