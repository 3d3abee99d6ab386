//! The block of a key in a policy: who its owner says it is for, judged once, when the policy is read.
//!
//! What counts is what `gpg` would go by, and never less: a key that `gpg` would not verify a commit with is not admitted.
//! Where an older and a newer word of the owner differ, and where one is too weak to be believed, both of them may take
//! away, and only what is strong and newest gives.

#[cfg(test)]
mod tests;

use aws_lc_rs::digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA224, digest};

use super::{
    HASHES, Hash,
    key::PublicKey,
    packet::{self, Fields},
    verifies,
};
use crate::trust::{
    armor::{self, Dress},
    key::{Flaw, KeyRefusal, Life, Material, Part, TrustKey, Wrapping},
    wire::Reader,
};

/// Keys of a block, and names of their owner.
const MOST_PARTS: usize = 64;
/// Signatures of a block that its primary key may have made.
const MOST_SIGNATURES: usize = 256;
/// Bytes of all names of the owner together.
const MOST_NAMES: usize = 64 << 10;

/// A signature of the owner over the key and one of their names.
const CERTIFIES: [u8; 4] = [0x10, 0x11, 0x12, 0x13];
const BINDS: u8 = 0x18;
const SIGNS_BACK: u8 = 0x19;
const DIRECT: u8 = 0x1f;
const REVOKES_KEY: u8 = 0x20;
const REVOKES_SUBKEY: u8 = 0x28;
const REVOKES_NAME: u8 = 0x30;

/// The flag of a key that signs documents.
const SIGNS: u8 = 0x02;

/// Parts that an owner's signature may call critical.
const UNDERSTOOD: [u8; 11] = [
    packet::CREATED,
    packet::KEY_EXPIRES,
    // Which ciphers, hashes and compressions, and what else the owner's program can do.
    11,
    21,
    22,
    30,
    // Which of the names is the first.
    25,
    packet::ISSUER,
    packet::ISSUER_FINGERPRINT,
    packet::KEY_FLAGS,
    packet::EMBEDDED,
];

/// Picks the key with a fingerprint, and judges the block around it; spaces in the fingerprint are for people.
pub(in crate::trust) fn pick(block: &str, fingerprint: &str) -> Result<TrustKey, KeyRefusal> {
    let digits: String = fingerprint.chars().filter(|letter| *letter != ' ').collect();
    let wanted = hex::decode(digits).unwrap_or_default();
    let bytes = armor::open(block, "PGP PUBLIC KEY BLOCK", Dress::OpenPgp).map_err(KeyRefusal::Armor)?;
    let mut packets = Vec::new();
    let mut rest = Reader(&bytes);
    while !rest.0.is_empty() {
        packets.push(packet::next(&mut rest)?);
    }
    let certificate = Certificate::read(&packets, &wanted)?;
    let pinned = certificate.pinned();
    let material = pinned.material()?;
    let life = certificate.judge(&material)?;
    let wrapping = Wrapping::OpenPgp { fingerprint: pinned.fingerprint.clone() };
    Ok(TrustKey { material, wrapping, life: Some(life) })
}

/// A name of the owner, as it is signed.
struct UserId {
    framed: Vec<u8>,
    /// Words, and not a picture or the like.
    words: bool,
}

/// One primary key, what it says of itself, and the key in it that is pinned.
struct Certificate<'a> {
    primary: PublicKey<'a>,
    /// When it is not the primary key itself.
    subkey: Option<PublicKey<'a>>,
    names: Vec<UserId>,
    /// Those that the primary key made, if it is true what they say, and every revocation.
    signatures: Vec<Fields<'a>>,
}

impl<'a> Certificate<'a> {
    fn read(packets: &[(u8, &'a [u8])], wanted: &[u8]) -> Result<Self, KeyRefusal> {
        let of = |tags: &'static [u8]| packets.iter().filter(move |(tag, _)| tags.contains(tag));
        if of(&[packet::PUBLIC_KEY, packet::PUBLIC_SUBKEY]).count() > MOST_PARTS {
            return Err(KeyRefusal::TooMuch);
        }
        let keys = of(&[packet::PUBLIC_KEY, packet::PUBLIC_SUBKEY]).map(|(_, body)| PublicKey::read(body));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let Some(pinned) = keys.iter().find(|key| key.fingerprint == wanted) else {
            return Err(KeyRefusal::Fingerprint(keys.iter().map(|key| hex::encode_upper(&key.fingerprint)).collect()));
        };
        if of(&[packet::PUBLIC_KEY]).count() != 1 || packets.first().is_none_or(|(tag, _)| *tag != packet::PUBLIC_KEY) {
            return Err(KeyRefusal::NotOneCertificate);
        }
        let primary = keys[0].clone();
        if keys.iter().any(|key| key.version != primary.version) {
            return Err(KeyRefusal::Malformed);
        }
        let subkey = (pinned.fingerprint != primary.fingerprint).then(|| pinned.clone());
        let mut this = Self { primary, subkey, names: Vec::new(), signatures: Vec::new() };
        for (tag, body) in packets {
            match *tag {
                packet::PUBLIC_KEY | packet::PUBLIC_SUBKEY => {}
                packet::USER_ID => this.name(0xb4, body),
                packet::USER_ATTRIBUTE => this.name(0xd1, body),
                packet::SIGNATURE => this.signed(body)?,
                other => return Err(KeyRefusal::Packet(other)),
            }
        }
        let bytes: usize = this.names.iter().map(|name| name.framed.len()).sum();
        if this.names.len() > MOST_PARTS || this.signatures.len() > MOST_SIGNATURES || bytes > MOST_NAMES {
            return Err(KeyRefusal::TooMuch);
        }
        Ok(this)
    }

    fn name(&mut self, mark: u8, body: &[u8]) {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.names.push(UserId { framed: [&[mark], &length[..], body].concat(), words: mark == 0xb4 });
    }

    /// Keeps a signature, unless it is another key's opinion.
    fn signed(&mut self, body: &'a [u8]) -> Result<(), KeyRefusal> {
        match body {
            [4..=6, ..] => {
                let fields = Fields::read(body).map_err(|_| KeyRefusal::Malformed)?;
                let revokes = matches!(fields.kind, REVOKES_KEY | REVOKES_SUBKEY);
                if revokes || !self.is_others(&fields) {
                    self.signatures.push(fields);
                }
                Ok(())
            }
            // Older versions bring nothing that counts, and may still revoke.
            [..4, _, REVOKES_KEY | REVOKES_SUBKEY | REVOKES_NAME, ..] => Err(KeyRefusal::Revoked),
            _ => Ok(()),
        }
    }

    /// For each key that a signature names, whether it is the primary one; and whether it is named by its short name.
    fn named_by<'f>(&'f self, fields: &'f Fields<'_>) -> impl Iterator<Item = (bool, bool)> + 'f {
        fields.hashed.iter().chain(&fields.unhashed).filter_map(|part| match (part.kind, part.body) {
            (packet::ISSUER, id) => Some((id == self.primary.id(), true)),
            (packet::ISSUER_FINGERPRINT, [_, fingerprint @ ..]) => {
                Some((fingerprint == self.primary.fingerprint, false))
            }
            _ => None,
        })
    }

    /// Whether a signature names other keys and not the primary one.
    fn is_others(&self, fields: &Fields<'_>) -> bool {
        self.named_by(fields).next().is_some() && !self.named_by(fields).any(|(ours, _)| ours)
    }

    fn pinned(&self) -> &PublicKey<'a> {
        self.subkey.as_ref().unwrap_or(&self.primary)
    }

    /// When the pinned key lives, if its owner made it for signing and did not revoke it.
    fn judge(&self, pinned: &Material) -> Result<Life, KeyRefusal> {
        if self.signatures.iter().any(|fields| fields.kind == REVOKES_KEY) {
            return Err(KeyRefusal::Revoked);
        }
        let primary = self.primary.material();
        let primary = if self.subkey.is_some() {
            primary.map_err(|refusal| KeyRefusal::Primary(Box::new(refusal)))?
        } else {
            primary?
        };
        let own = self.of_primary(&primary)?;
        let Some(subkey) = &self.subkey else {
            if own.iter().any(|fields| fields.said(packet::KEY_FLAGS).any(|flags| !signs(flags))) {
                return Err(KeyRefusal::NotForSigning);
            }
            return Ok(Life { from: self.primary.created, until: end(&self.primary, &own) });
        };
        let bindings = self.of_subkey(subkey, &primary, pinned)?;
        let until = [end(&self.primary, &own), end(subkey, &bindings)].into_iter().flatten().min();
        Ok(Life { from: subkey.created, until })
    }

    /// What the primary key says of itself, alone and with each of its names.
    fn of_primary(&self, key: &Material) -> Result<Vec<&Fields<'a>>, KeyRefusal> {
        let framed = self.primary.framed();
        let direct = self.heard(&framed, &[DIRECT], Part::Primary, key)?;
        // `gpg` does not take a key of version 4 without a name; version 6 needs none.
        let mut vouched = direct.good && self.primary.version == 6;
        let (mut stand, mut flaw) = (direct.stand, direct.flaw);
        for name in &self.names {
            let text = [&framed[..], &name.framed].concat();
            let heard = self.heard(&text, &CERTIFIES, Part::Primary, key)?;
            let taken_back =
                self.signatures.iter().filter(|fields| fields.kind == REVOKES_NAME && speaks(fields, &text));
            let taken_back: Vec<_> = taken_back.collect();
            if taken_back.is_empty() {
                vouched |= heard.good && name.words;
                flaw = flaw.or(heard.flaw);
            } else {
                flaw = flaw.or(Some(Flaw::Revoked));
            }
            let newest = heard.stand.iter().map(|fields| fields.created()).max().flatten();
            let surely = |fields: &Fields<'_>| self.check(fields, &text, key).is_ok() && fields.created() >= newest;
            if !taken_back.iter().any(|fields| surely(fields)) {
                stand.extend(heard.stand);
            }
        }
        if vouched { Ok(stand) } else { Err(KeyRefusal::Unvouched(Part::Primary, flaw.unwrap_or(Flaw::Missing))) }
    }

    /// How the primary key binds the pinned subkey, and the subkey itself agrees.
    fn of_subkey(
        &self,
        subkey: &PublicKey<'a>,
        primary: &Material,
        own: &Material,
    ) -> Result<Vec<&Fields<'a>>, KeyRefusal> {
        let text = [self.primary.framed(), subkey.framed()].concat();
        if self.signatures.iter().any(|fields| fields.kind == REVOKES_SUBKEY && speaks(fields, &text)) {
            return Err(KeyRefusal::Revoked);
        }
        let heard = self.heard(&text, &[BINDS], Part::Subkey, primary)?;
        if !heard.good {
            return Err(KeyRefusal::Unvouched(Part::Subkey, heard.flaw.unwrap_or(Flaw::Missing)));
        }
        for fields in &heard.stand {
            let mut flags = fields.said(packet::KEY_FLAGS).peekable();
            if flags.peek().is_none() || flags.any(|flags| !signs(flags)) {
                return Err(KeyRefusal::NotForSigning);
            }
            let parts = fields.hashed.iter().chain(&fields.unhashed).filter(|part| part.kind == packet::EMBEDDED);
            let mut flaw = Flaw::Missing;
            let back = parts.into_iter().any(|part| {
                let embedded = Fields::read(part.body).ok().filter(|fields| fields.kind == SIGNS_BACK);
                let checked = embedded.map_or(Err(Flaw::Bad), |fields| check(&fields, subkey, &text, own));
                checked.map_err(|why| flaw = why).is_ok()
            });
            if !back {
                return Err(KeyRefusal::Unvouched(Part::Back, flaw));
            }
        }
        Ok(heard.stand)
    }

    /// What the primary key says of something.
    fn heard(&self, text: &[u8], kinds: &[u8], part: Part, key: &Material) -> Result<Heard<'_, 'a>, KeyRefusal> {
        let said = self.signatures.iter().filter(|fields| kinds.contains(&fields.kind) && speaks(fields, text));
        let mut heard = Heard { good: false, flaw: None, stand: Vec::new() };
        let (mut good, mut doubtful) = (Vec::new(), Vec::new());
        for fields in said {
            match self.check(fields, text, key) {
                Ok(()) => good.push(fields),
                Err(Flaw::Expires) => return Err(KeyRefusal::Unvouched(part, Flaw::Expires)),
                Err(flaw) => {
                    if !matches!(flaw, Flaw::Bad | Flaw::Early) {
                        doubtful.push(fields);
                    }
                    heard.flaw = heard.flaw.or(Some(flaw));
                }
            }
        }
        let newest = good.iter().map(|fields| fields.created()).max().flatten();
        heard.good = !good.is_empty();
        heard.stand = good.into_iter().chain(doubtful).filter(|fields| fields.created() >= newest).collect();
        Ok(heard)
    }

    /// Whether a signature is the primary key's. `gpg` finds those of version 4 by the short name of the key.
    fn check(&self, fields: &Fields<'_>, text: &[u8], key: &Material) -> Result<(), Flaw> {
        check(fields, &self.primary, text, key)?;
        let named = self.primary.version == 6 || self.named_by(fields).any(|(_, short)| short);
        if named && self.named_by(fields).all(|(ours, _)| ours) { Ok(()) } else { Err(Flaw::Issuer) }
    }
}

/// What an owner says of one thing.
struct Heard<'c, 'a> {
    /// Whether anything of it is to be believed.
    good: bool,
    flaw: Option<Flaw>,
    /// The newest word, and those that may be as new and are too weak to be believed.
    stand: Vec<&'c Fields<'a>>,
}

/// Whether a signature may be over these bytes. Of one with a hash that is not known nothing else can be said.
fn speaks(fields: &Fields<'_>, text: &[u8]) -> bool {
    let algorithm: &Algorithm = match fields.hash {
        2 => &SHA1_FOR_LEGACY_USE_ONLY,
        11 => &SHA224,
        number => match HASHES.iter().find(|known| known.id == number) {
            Some(known) => known.algorithm,
            None => return true,
        },
    };
    digest(algorithm, &fields.text(text)).as_ref()[..2] == fields.left
}

/// Whether a signature over these bytes by a key is to be believed.
fn check(fields: &Fields<'_>, by: &PublicKey<'_>, text: &[u8], key: &Material) -> Result<(), Flaw> {
    let hash = Hash::strong(fields.hash).map_err(Flaw::Hash)?;
    if fields.version != by.version {
        return Err(Flaw::Version);
    }
    if !verifies(fields, hash, text, key).unwrap_or(false) {
        return Err(Flaw::Bad);
    }
    if fields.created().is_none_or(|created| created < by.created) {
        return Err(Flaw::Early);
    }
    if fields.said(packet::EXPIRES).any(|time| time != [0; 4]) {
        return Err(Flaw::Expires);
    }
    let mut parts = fields.hashed.iter().chain(&fields.unhashed);
    if parts.any(|part| part.critical && !UNDERSTOOD.contains(&part.kind)) { Err(Flaw::Critical) } else { Ok(()) }
}

fn signs(flags: &[u8]) -> bool {
    flags.first().is_some_and(|first| first & SIGNS != 0)
}

/// When a key ends by what stands of its owner's words: the earliest that one of them says.
fn end(key: &PublicKey<'_>, stand: &[&Fields<'_>]) -> Option<u32> {
    let spans = stand.iter().flat_map(|fields| fields.said(packet::KEY_EXPIRES));
    // A span that is not of four bytes is over at once, none is for ever, and a sum begins again at 0 as that of `gpg` does.
    let spans = spans.map(|span| span.try_into().map_or(1, u32::from_be_bytes)).filter(|span| *span != 0);
    spans.map(|span| key.created.wrapping_add(span)).min()
}
