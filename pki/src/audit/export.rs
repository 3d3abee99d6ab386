//! The export: one line of text for each thing, in an order in which everything can be checked as it is read.
//!
//! ```text
//! better-compute audit export 1
//! anchor BASE64                     what people know by its pin
//! key JSON                          a worker's word for the key of the last checkpoint
//! row JSON                          …
//! checkpoint SIGNATURE JSON         after the rows that it stands by
//! end SIGNATURE JSON                how much there was when the file was made; nothing comes after it
//! ```

use std::ops::RangeInclusive;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schema::{digest::Digest, time::Timestamp};
use serde::{Deserialize, Serialize};

use super::{Checkpoint, Row, Vouch, link, read, text};
use crate::{
    Realm,
    anchor::{Anchor, AnchorRefusal},
    batch::merkle,
    checkpoint::{AuditSigner, CheckpointKey},
    worker::SignatureRefusal,
};

const MAGIC: &str = "better-compute audit export 1";
/// What a row does that says what was set aside.
const MENDED: &str = "audit.mend";

/// The last line: a file that was cut off anywhere lacks it, and one of before says when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportEnd {
    /// How many rows there are.
    pub rows: u64,
    /// The digest of the last checkpoint.
    pub checkpoint: Digest,
    /// The digest of the anchor.
    pub anchor: Digest,
    /// When the file was made.
    pub exported_at: Timestamp,
    /// What the database has beside the chain; none when there is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
}

/// Lines that are in no chain: whoever wrote them had the database, and nothing stands by them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outside {
    /// How many.
    pub count: u64,
    /// The ids of the first of them.
    pub ids: Vec<String>,
}

impl ExportEnd {
    /// The text that is signed.
    #[must_use]
    pub fn text(&self) -> String {
        text(self)
    }

    /// The signature over it; `None` when the key of the last checkpoint is not held here.
    #[must_use]
    pub fn sign(&self, signer: &AuditSigner, key: CheckpointKey) -> Option<Vec<u8>> {
        signer.sign_end(key, self.text().as_bytes())
    }
}

/// The lines of a file.
#[derive(Debug)]
pub struct Export;

impl Export {
    /// The first lines.
    #[must_use]
    pub fn head(anchor: &[u8], vouch: &str) -> String {
        format!("{MAGIC}\nanchor {}\nkey {vouch}\n", STANDARD.encode(anchor))
    }

    /// A row's line.
    #[must_use]
    pub fn row(text: &str) -> String {
        format!("row {text}\n")
    }

    /// A checkpoint's line.
    #[must_use]
    pub fn checkpoint(text: &str, signature: &[u8]) -> String {
        format!("checkpoint {} {text}\n", STANDARD.encode(signature))
    }

    /// The last line.
    #[must_use]
    pub fn end(text: &str, signature: &[u8]) -> String {
        format!("end {} {text}\n", STANDARD.encode(signature))
    }
}

/// What an auditor knows from elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// The pin of the anchor.
    pub pin: Option<Digest>,
    /// The fleet's id.
    pub fleet: Option<String>,
}

impl Told {
    /// Reads an anchor and compares it with what is known.
    pub(crate) fn anchor(&self, bytes: &[u8]) -> Result<Anchor, Fault> {
        let anchor = match self.pin {
            Some(pin) => Anchor::from_pinned(bytes, pin),
            None => Anchor::from_bytes(bytes),
        }
        .map_err(Fault::Anchor)?;
        let realm = anchor.realm();
        match &self.fleet {
            Some(fleet) if *fleet != realm.fleet_id => {
                Err(Fault::OtherFleet { told: fleet.clone(), found: realm.fleet_id })
            }
            _ => Ok(anchor),
        }
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not such a file.
    #[error("this is no audit export of Better Compute")]
    NoExport,
    /// Another kind of line was due.
    #[error("{0} was expected here")]
    Expected(&'static str),
    /// A line is not in its one form.
    #[error("the line is not in its canonical form")]
    NotCanonical,
    /// The anchor.
    #[error("the anchor does not count")]
    Anchor(#[source] AnchorRefusal),
    /// The file is of another fleet.
    #[error("the file is of the fleet {found}, not of {told}")]
    OtherFleet {
        /// What was asked for.
        told: String,
        /// What came.
        found: String,
    },
    /// The key of the checkpoints.
    #[error("nobody whom the anchor names vouches for the key of the checkpoints")]
    Vouch(#[source] SignatureRefusal),
    /// The rows do not follow one another.
    #[error("row {expected} is due here, and this is row {found}")]
    Place {
        /// The next one.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The checkpoint is over other rows.
    #[error("the rows in the lines {} to {} are not those that checkpoint {n} stands by: one of them was changed", .lines.start(), .lines.end())]
    OtherRows {
        /// The checkpoint.
        n: u64,
        /// The lines of the file.
        lines: RangeInclusive<usize>,
    },
    /// The checkpoint does not follow the one before.
    #[error("checkpoint {0} does not follow the one before it, or its key was not announced there")]
    DoesNotFollow(u64),
    /// The signature of a checkpoint.
    #[error("the signature of checkpoint {0} does not match")]
    CheckpointSignature(u64),
    /// The last line is about another file.
    #[error("the end does not fit what comes before it")]
    End,
    /// The signature of the last line.
    #[error("the signature of the end does not match")]
    EndSignature,
    /// The checkpoints end with a key that nobody vouches for.
    #[error("the last checkpoint is signed by another key than the one that is vouched for")]
    OtherKey,
    /// Something comes after the end.
    #[error("something comes after the end")]
    AfterEnd,
    /// The end is missing.
    #[error("the file ends before its end: it was cut off")]
    CutOff,
}

/// Where it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}")]
pub struct Broken {
    /// The line, counted from one.
    pub line: usize,
    /// What.
    #[source]
    pub fault: Fault,
}

/// What a file proves.
#[derive(Debug, Clone, PartialEq)]
pub struct Verified {
    /// Whose log it is.
    pub realm: Realm,
    /// The pin of the anchor.
    pub pin: Digest,
    /// How many rows.
    pub rows: u64,
    /// How many checkpoints.
    pub checkpoints: u64,
    /// The key that signs them.
    pub key: CheckpointKey,
    /// When the first row was written.
    pub first: Option<Timestamp>,
    /// When the last one was.
    pub last: Option<Timestamp>,
    /// When the file was made.
    pub exported_at: Timestamp,
    /// The rows that say that something before them was set aside, because nothing signed stood by it.
    pub mended: Vec<Row>,
    /// Lines that were in the database when the file was made, and in no chain.
    pub outside: Option<Outside>,
}

#[derive(Debug)]
struct Known {
    anchor: Anchor,
    pin: Digest,
}

/// Checks a file line by line.
#[derive(Debug)]
pub struct Reader {
    told: Told,
    line: usize,
    known: Option<Known>,
    vouch: Option<Vouch>,
    link: Option<Digest>,
    rows: u64,
    leaves: Vec<Digest>,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    checkpoint: Option<Checkpoint>,
    mended: Vec<Row>,
    end: Option<ExportEnd>,
}

impl Reader {
    /// Nothing was read yet.
    #[must_use]
    pub const fn new(told: Told) -> Self {
        Self {
            told,
            line: 0,
            known: None,
            vouch: None,
            link: None,
            rows: 0,
            leaves: Vec::new(),
            first: None,
            last: None,
            checkpoint: None,
            mended: Vec::new(),
            end: None,
        }
    }

    /// Reads the next line, without what ends it.
    ///
    /// # Errors
    /// With what is wrong, and where.
    pub fn line(&mut self, line: &str) -> Result<(), Broken> {
        self.line += 1;
        self.take(line).map_err(|fault| Broken { line: self.line, fault })
    }

    fn take(&mut self, line: &str) -> Result<(), Fault> {
        if self.end.is_some() {
            return Err(Fault::AfterEnd);
        }
        match self.line {
            1 if line == MAGIC => return Ok(()),
            1 => return Err(Fault::NoExport),
            2 => return self.anchor(line.strip_prefix("anchor ").ok_or(Fault::Expected("the anchor"))?),
            3 => return self.key(line.strip_prefix("key ").ok_or(Fault::Expected("the key"))?),
            _ => {}
        }
        if let Some(text) = line.strip_prefix("row ") {
            self.row(text)
        } else if let Some(rest) = line.strip_prefix("checkpoint ") {
            let (signature, text) = signed(rest)?;
            self.checkpoint(text, &signature)
        } else if let Some(rest) = line.strip_prefix("end ") {
            let (signature, text) = signed(rest)?;
            self.end(text, &signature)
        } else {
            Err(Fault::Expected("a row, a checkpoint or the end"))
        }
    }

    fn anchor(&mut self, text: &str) -> Result<(), Fault> {
        let bytes = STANDARD.decode(text).map_err(|_| Fault::NotCanonical)?;
        let anchor = self.told.anchor(&bytes)?;
        self.known = Some(Known { pin: anchor.pin(), anchor });
        Ok(())
    }

    fn key(&mut self, text: &str) -> Result<(), Fault> {
        let vouch = Vouch::read(text).map_err(|_| Fault::NotCanonical)?;
        vouch.verify(&self.known()?.anchor.verifier()).map_err(Fault::Vouch)?;
        self.vouch = Some(vouch);
        Ok(())
    }

    fn known(&self) -> Result<&Known, Fault> {
        self.known.as_ref().ok_or(Fault::Expected("the anchor"))
    }

    fn row(&mut self, text: &str) -> Result<(), Fault> {
        let row = Row::read(text).map_err(|_| Fault::NotCanonical)?;
        if row.pos != self.rows {
            return Err(Fault::Place { expected: self.rows, found: row.pos });
        }
        self.rows += 1;
        self.link = Some(link(self.link, text));
        self.leaves.push(merkle::leaf(text.as_bytes()));
        self.first.get_or_insert(row.at);
        self.last = Some(row.at);
        if row.action == MENDED {
            self.mended.push(row);
        }
        Ok(())
    }

    fn checkpoint(&mut self, text: &str, signature: &[u8]) -> Result<(), Fault> {
        let checkpoint = Checkpoint::read(text).map_err(|_| Fault::NotCanonical)?;
        let n = checkpoint.n;
        let follows = match &self.checkpoint {
            Some(before) => checkpoint.follows(before),
            None => n == 0 && checkpoint.before.is_none(),
        };
        if !follows {
            return Err(Fault::DoesNotFollow(n));
        }
        let leaves = std::mem::take(&mut self.leaves);
        if (checkpoint.rows, Some(checkpoint.link), checkpoint.root) != (self.rows, self.link, merkle::root(&leaves)) {
            return Err(Fault::OtherRows { n, lines: self.line - leaves.len()..=self.line - 1 });
        }
        if !checkpoint.key.signed_audit(&self.known()?.anchor.realm(), text.as_bytes(), signature) {
            return Err(Fault::CheckpointSignature(n));
        }
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    fn end(&mut self, text: &str, signature: &[u8]) -> Result<(), Fault> {
        let end: ExportEnd = read(text).map_err(|_| Fault::NotCanonical)?;
        let known = self.known()?;
        let last = self.checkpoint.as_ref().ok_or(Fault::Expected("a checkpoint"))?;
        if end.rows != self.rows
            || !self.leaves.is_empty()
            || end.checkpoint != last.digest()
            || end.anchor != known.pin
        {
            return Err(Fault::End);
        }
        if !last.key.signed_end(&known.anchor.realm(), text.as_bytes(), signature) {
            return Err(Fault::EndSignature);
        }
        if self.vouch.as_ref().is_none_or(|vouch| vouch.key != last.key) {
            return Err(Fault::OtherKey);
        }
        self.end = Some(end);
        Ok(())
    }

    /// The file is over.
    ///
    /// # Errors
    /// When its end is missing.
    pub fn finish(self) -> Result<Verified, Broken> {
        let Self { known: Some(known), checkpoint: Some(checkpoint), end: Some(end), .. } = self else {
            return Err(Broken { line: self.line + 1, fault: Fault::CutOff });
        };
        Ok(Verified {
            realm: known.anchor.realm(),
            pin: known.pin,
            rows: self.rows,
            checkpoints: checkpoint.n + 1,
            key: checkpoint.key,
            first: self.first,
            last: self.last,
            exported_at: end.exported_at,
            mended: self.mended,
            outside: end.outside,
        })
    }
}

fn signed(rest: &str) -> Result<(Vec<u8>, &str), Fault> {
    let (signature, text) = rest.split_once(' ').ok_or(Fault::NotCanonical)?;
    Ok((STANDARD.decode(signature).map_err(|_| Fault::NotCanonical)?, text))
}
