//! `image`: bytes for a disk, named by digest.

use serde::{Deserialize, Serialize};

use crate::{
    diagnostic::SourceRef,
    digest::Digest,
    fleet::{ByteSize, Located},
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
}
