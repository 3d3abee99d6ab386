//! Looking at one place: field by field, what is wished, and what is there instead.

use schema::{digest::Digest, report::DriftKind};

use crate::{
    converge::{Observed, Seen, normal},
    section::{Accounts, Key, Named, Shared, Want},
    tree::{Entry, FileState},
};

/// Which part of a place a field is: what has to be left alone so that the field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    Content,
    Mode,
    Owner,
    Group,
    /// One block of a shared file.
    Block(usize),
}

/// One field of a place.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// As `explain` names it.
    pub(super) path: String,
    /// What tells it from every other field of the host, for the ledger.
    pub(super) place: String,
    /// What is wished.
    pub(super) wish: Digest,
    /// Further wishes that stand and fall with this one.
    pub(super) also: Vec<(String, Digest)>,
    pub(super) part: Part,
    /// What is there instead; `None` when it is as wished.
    pub(super) found: Option<Found>,
}

/// What is there instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: DriftKind,
    /// Its bytes; `None` when nothing is there.
    pub(super) bytes: Option<Vec<u8>>,
    pub(super) desired: String,
    /// Everybody on the host may read both.
    pub(super) public: bool,
}

/// The fields of a place; none when it could not be looked at.
pub(super) fn look(
    key: &Key,
    want: &Want,
    name: &Named,
    observed: &Observed,
    accounts: &Accounts,
) -> Option<Vec<Look>> {
    let place = key.to_string();
    let public = !observed.private.contains(key);
    match (want, observed.seen.get(key)?, name) {
        (Want::File(wish), Seen::Entry(seen), Named::Shared(shared)) => {
            Some(blocks(&place, wish, seen, shared, public))
        }
        (Want::File(wish), Seen::Entry(Entry::File(seen)), Named::Secret(path, reference)) => Some(
            fields(&place, path, wish, seen, false, accounts).into_iter().map(|look| hidden(look, reference)).collect(),
        ),
        (Want::File(wish), Seen::Entry(Entry::File(seen)), _) => {
            Some(fields(&place, name.path(), wish, seen, public, accounts))
        }
        (Want::File(wish), Seen::Entry(seen), _) => {
            let mut all = fields(&place, name.path(), wish, wish, public, accounts);
            let mut whole = all.remove(0);
            whole.path = name.path().to_owned();
            whole.part = Part::Whole;
            whole.also = all.into_iter().map(|field| (field.place, field.wish)).collect();
            let text = String::from_utf8_lossy(&wish.content).into_owned();
            whole.found = Some(instead(seen, text, public && is_public(wish.mode)));
            if let Named::Secret(_, reference) = name {
                whole.part = Part::Content;
                whole = hidden(whole, reference);
                whole.part = Part::Whole;
            }
            Some(vec![whole])
        }
        (Want::Link(target), Seen::Entry(seen), _) => {
            let as_wished = *seen == Entry::Link(target.clone());
            Some(vec![one(name, &place, &format!("-> {target}"), (!as_wished).then(|| value("false", "true")))])
        }
        (Want::Absent, Seen::Entry(seen), _) => {
            let as_wished = *seen == Entry::Absent;
            Some(vec![one(name, &place, "", (!as_wished).then(|| value("true", "false")))])
        }
        (Want::Value(wish), Seen::Value(Some(seen)), _) => {
            let wish = normal(wish);
            let found = (wish != *seen).then(|| Found { public, ..value(seen, &wish) });
            Some(vec![one(name, &place, &wish, found)])
        }
        (Want::Loaded, Seen::Loaded(seen), _) => {
            Some(vec![one(name, &place, "loaded", (!seen).then(|| value("not loaded", "loaded")))])
        }
        (Want::Active(wish), Seen::Active(Some(seen)), _) => {
            let word = |runs: bool| if runs { "started" } else { "stopped" };
            Some(vec![one(name, &place, word(*wish), (wish != seen).then(|| value(word(*seen), word(*wish))))])
        }
        _ => None,
    }
}

/// A field of a file with a secret: the reference stands for the content, in the ledger too.
fn hidden(mut look: Look, reference: &str) -> Look {
    if look.part == Part::Content {
        look.wish = Digest::of(reference);
        look.found = look.found.map(|found| Found {
            bytes: found.bytes.map(|_| b"something else".to_vec()),
            desired: reference.to_owned(),
            public: false,
            ..found
        });
    }
    look
}

const fn is_public(mode: u32) -> bool {
    mode & 0o004 != 0
}

fn value(seen: &str, wish: &str) -> Found {
    Found { kind: DriftKind::Value, bytes: Some(seen.as_bytes().to_vec()), desired: wish.to_owned(), public: true }
}

fn one(name: &Named, place: &str, wish: &str, found: Option<Found>) -> Look {
    let path = name.path().to_owned();
    Look { path, place: place.to_owned(), wish: Digest::of(wish), also: Vec::new(), part: Part::Whole, found }
}

/// What is there instead of a file.
fn instead(seen: &Entry, desired: String, public: bool) -> Found {
    let (kind, bytes) = match seen {
        Entry::Absent => (DriftKind::Removed, None),
        Entry::Link(target) => (DriftKind::Changed, Some(format!("a link to {target}"))),
        Entry::Other(what) => (DriftKind::Changed, Some(what.clone())),
        Entry::File(file) => (DriftKind::Changed, Some(format!("a file of {} bytes", file.content.len()))),
    };
    Found { kind, bytes: bytes.map(String::into_bytes), desired, public }
}

fn fields(place: &str, path: &str, wish: &FileState, seen: &FileState, public: bool, accounts: &Accounts) -> Vec<Look> {
    let public = public && is_public(wish.mode) && is_public(seen.mode);
    let content = (wish.content != seen.content).then(|| Found {
        kind: DriftKind::Changed,
        bytes: Some(seen.content.clone()),
        desired: String::from_utf8_lossy(&wish.content).into_owned(),
        public,
    });
    let metadata = |differs: bool, seen: String, wish: String| {
        differs.then(|| Found { kind: DriftKind::Metadata, ..value(&seen, &wish) })
    };
    let mode = |mode: u32| format!("{mode:04o}");
    let (user, group) = (|id| accounts.user_name(id), |id| accounts.group_name(id));
    let field = |part, word: &str, wish: &[u8], found| Look {
        path: format!("{path}.{word}"),
        place: if part == Part::Content { place.to_owned() } else { format!("{place} {word}") },
        wish: Digest::of(wish),
        also: Vec::new(),
        part,
        found,
    };
    vec![
        field(Part::Content, "content", &wish.content, content),
        field(
            Part::Mode,
            "mode",
            mode(wish.mode).as_bytes(),
            metadata(wish.mode != seen.mode, mode(seen.mode), mode(wish.mode)),
        ),
        field(
            Part::Owner,
            "owner",
            wish.uid.to_string().as_bytes(),
            metadata(wish.uid != seen.uid, user(seen.uid), user(wish.uid)),
        ),
        field(
            Part::Group,
            "group",
            wish.gid.to_string().as_bytes(),
            metadata(wish.gid != seen.gid, group(seen.gid), group(wish.gid)),
        ),
    ]
}

/// A shared file: setting by setting, and last what is not a setting's.
fn blocks(place: &str, wish: &FileState, seen: &Entry, shared: &Shared, public: bool) -> Vec<Look> {
    let file = match seen {
        Entry::File(file) => Some(file),
        _ => None,
    };
    let public = public && is_public(wish.mode) && file.is_none_or(|file| is_public(file.mode));
    let text = file.and_then(|file| std::str::from_utf8(&file.content).ok());
    let there = text.map(|text| shared.style.split(text)).unwrap_or_default();
    let find = |key: &str| there.iter().find(|(other, _)| other == key).map(|(_, text)| text.as_str());

    let mut looks: Vec<Look> = Vec::with_capacity(shared.blocks.len() + 1);
    for (index, block) in shared.blocks.iter().enumerate() {
        let seen = find(&block.key);
        let value = |text: &str| shared.style.value(text);
        // A file that is gone or no such file at all is one finding, not one for each of its settings.
        let differs = text.is_some() && seen != Some(block.text.as_str());
        let found = differs.then(|| Found {
            kind: if seen.is_some() { DriftKind::Changed } else { DriftKind::Removed },
            bytes: seen.map(|text| value(text).into_bytes()),
            desired: value(&block.text),
            public,
        });
        looks.push(Look {
            path: block.path.clone(),
            place: format!("{place} {}", block.key),
            wish: Digest::of(&block.text),
            also: Vec::new(),
            part: Part::Block(index),
            found,
        });
    }
    let rebuilt = shared.content_with(shared.blocks.iter().filter_map(|block| find(&block.key)));
    let rest_differs = match file {
        Some(file) => {
            text != Some(rebuilt.as_str()) || (file.mode, file.uid, file.gid) != (wish.mode, wish.uid, wish.gid)
        }
        None => true,
    };
    let found = rest_differs.then(|| instead(seen, "a file of the daemon's own".to_owned(), public));
    looks.push(Look {
        path: shared.group.clone(),
        place: place.to_owned(),
        wish: Digest::of(&wish.content),
        also: Vec::new(),
        part: Part::Whole,
        found,
    });
    looks
}
