//! `release`: a version of the node daemon.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::form;
use crate::{
    diagnostic::SourceRef,
    digest::Digest,
    fleet::{
        ByteSize, Located,
        decode::{Fields, Findings, Subject, one_of},
    },
    name::Name,
};

/// The daemon for one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Artifact {
    /// Where the bytes are.
    pub url: Located<String>,
    /// What the bytes are.
    pub digest: Located<Digest>,
    /// How many there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Located<ByteSize>>,
}

/// A release's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Release {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The version as the daemon says it.
    pub version: Located<String>,
    /// The bytes by architecture: `amd64`, `arm64`.
    pub artifact: BTreeMap<String, Located<Artifact>>,
    /// Where the signed manifest is that names these digests.
    pub signature: Located<String>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Release> {
    let fields = &mut subject.fields;
    let version = fields.text("version", findings);
    let version = form::keep(version, "a version such as 0.2.0", form::release_version, findings);
    let version = fields.require("version", version);
    let artifact = fields.named("artifact", ("arch", None), findings, artifact);
    if artifact.is_empty() {
        fields.require("artifact", None::<()>);
    }
    let signature = form::keep(fields.text("signature", findings), "an https:// address", form::https, findings);
    let signature = fields.require("signature", signature);
    Some(Release {
        name: subject.name.clone(),
        at: subject.at.clone(),
        version: version?,
        artifact,
        signature: signature?,
    })
}

fn artifact(arch: &str, fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Artifact> {
    one_of(&Located::new(arch.to_owned(), fields.place(findings)), &["amd64", "arm64"], findings);
    let url = form::keep(fields.text("url", findings), "an https:// address", form::url, findings);
    let url = fields.require("url", url);
    let digest = fields.parse("digest", "sha256: and 64 hexadecimal digits", findings);
    let digest = fields.require("digest", digest);
    let size = fields.parse("size", "a size such as 20MiB", findings);
    Some(Artifact { url: url?, digest: digest?, size })
}
