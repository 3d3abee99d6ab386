//! `image`: bytes for a disk, named by digest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{form, hold};
use crate::{
    diagnostic::SourceRef,
    digest::Digest,
    fleet::{
        ByteSize, Located,
        decode::{Findings, Subject},
    },
    name::Name,
    node::words,
};

words! {
    /// A processor architecture.
    Arch {
        /// x86-64.
        Amd64 = "amd64",
        /// 64-bit Arm.
        Arm64 = "arm64",
    }
}

words! {
    /// What an image is for.
    ImageUse {
        /// The operating system of a host.
        Os = "os",
        /// The system that installs or wipes a host.
        Ramdisk = "ramdisk",
        /// The disk of a virtual machine.
        Instance = "instance",
    }
}

/// An image's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Image {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// Where the bytes are.
    pub url: Located<String>,
    /// What the bytes are.
    pub digest: Located<Digest>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Located<ByteSize>>,
    /// The architecture they run on.
    pub arch: Located<Arch>,
    /// Whose signatures they carry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_by: Vec<Located<String>>,
    /// What they are for.
    #[serde(rename = "use", default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<Located<ImageUse>>,
    /// Why it cannot be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Image> {
    let fields = &mut subject.fields;
    let url = form::keep(fields.text("url", findings), "an https:// address", form::url, findings);
    let url = fields.require("url", url);
    let digest = fields.parse("digest", "sha256: and 64 hexadecimal digits", findings);
    let digest = fields.require("digest", digest);
    let arch = fields.word("arch", &["amd64", "arm64"], findings);
    let arch = fields.require("arch", arch);
    let size = fields.parse("size", "a size such as 2GiB", findings);
    let (signed_by, uses) =
        (fields.texts("signed-by", findings), fields.words("use", &["os", "ramdisk", "instance"], findings));
    fields.filled("signed-by", signed_by.is_empty(), findings);
    fields.filled("use", uses.is_empty(), findings);
    let image = Image {
        name: subject.name.clone(),
        at: subject.at.clone(),
        size,
        signed_by,
        uses,
        protect: hold::protect(fields, findings),
        url: url?,
        digest: digest?,
        arch: arch?,
    };
    Some(image)
}
