//! Everything that a commit can be instead of well-formed.

/// Why bytes are not a commit that anything is concluded from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is larger than any commit that people write.
    #[error("it has more than {max} bytes, and no commit of people has", max = super::MAX_COMMIT_BYTES)]
    TooLarge,
    /// Programs would guess what it says.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// Some programs stop reading there.
    #[error("it holds a NUL byte, behind which text can hide")]
    Nul,
    /// Some programs drop it, and what is verified is not what is stored.
    #[error("it holds a carriage return; lines end with LF")]
    CarriageReturn,
    /// A control character, a character without width, or one that turns the direction of text.
    #[error("it holds the hidden character U+{:04X}", u32::from(*.0))]
    HiddenCharacter(char),
    /// A header that every commit has.
    #[error("it has no {0} where one has to be")]
    Missing(&'static str),
    /// A header that every commit has once.
    #[error("it has a second {0} header")]
    Twice(&'static str),
    /// A header at another place than git writes it.
    #[error("its {0} header is out of order")]
    OutOfOrder(String),
    /// The name of an object in another form than the repository's.
    #[error("its {0} is not a whole object id of this repository")]
    BadId(&'static str),
    /// Not `Name <mail> seconds zone`.
    #[error("its {0} line is not a name, a mail address, seconds and a time zone")]
    BadPerson(&'static str),
    /// More parents than any merge has.
    #[error("it has more than 64 parents")]
    TooManyParents,
    /// An encoding header: the text would be read in two ways.
    #[error("it has an encoding header; messages are UTF-8 (git config i18n.commitEncoding)")]
    Encoding,
    /// A merged tag inside the commit.
    #[error("it has a merged tag in it; merge the commit of the tag (git merge v1^{{}})")]
    MergeTag,
    /// A header that git does not write.
    #[error("it has the unknown header {0:?}")]
    UnknownHeader(String),
    /// Something between the signature and the message: not everything that it covers came before it.
    #[error("it has the header {0:?} behind its signature")]
    AfterSignature(String),
    /// A signature for a repository with other names of objects, which nobody checks here.
    #[error("it has the signature header {0:?}, which belongs to another kind of repository")]
    ForeignSignature(String),
    /// It ends before its message.
    #[error("it ends before its message begins")]
    Unfinished,
    /// A manufactured SHA-1 collision.
    #[error("its bytes were made by a collision attack on SHA-1")]
    Collision,
}
