//! `release`: keys that vouch for versions of the daemon, and the manifests that they sign. Offline: it asks no control plane.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use pki::{
    Realm,
    release::{ReleaseKey, ReleaseKeys, ReleasePublicKey, SignedManifest},
};
use schema::{
    digest::Running,
    release::{Arch, Binary, Manifest},
    time::{Duration, Timestamp},
};
use semver::Version;
use serde_json::json;

use crate::{
    args::FormatArg,
    exit::{During as _, Exit, Failure},
    output::{Output, new_file, note},
};

const EXAMPLES: &str = "\
Examples:
  better-compute release key ./release.key
  better-compute release sign --key ./release.key --trust-domain acme.example --fleet fleet_… \\
      --version 0.2.0 --binary amd64=./bcd --good-for 90d --out bcd-0.2.0.json
  better-compute release sign --key ./second.key --trust-domain acme.example --fleet fleet_… bcd-0.2.0.json
  better-compute release verify --by bcrp_… --by bcrp_… --threshold 2 --trust-domain acme.example \\
      --fleet fleet_… bcd-0.2.0.json

A manifest binds one version to the bytes of it, to the time in which it may be taken and to the versions that it may
follow, for one fleet. `better-compute api fleet.status` shows trust domain and fleet.";

/// Sign and check releases of the node daemon.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Release {
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
    /// How results are written
    #[command(flatten)]
    pub format: FormatArg,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a release key; its public half is printed
    Key {
        /// Where to, readable for its owner only
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a manifest and sign it, or add a signature to one
    Sign(Box<Sign>),
    /// Say whether a manifest is signed by enough of some keys
    Verify(Verify),
}

/// Whose releases these are.
#[derive(Debug, Args)]
pub struct Whose {
    /// The fleet's trust domain
    #[arg(long, value_name = "DOMAIN")]
    pub trust_domain: String,
    /// The fleet's id
    #[arg(long, value_name = "ID")]
    pub fleet: String,
}

/// What to sign.
#[derive(Debug, Args)]
pub struct Sign {
    /// The manifest that others have signed
    #[arg(value_name = "FILE", required_unless_present = "version")]
    pub manifest: Option<PathBuf>,
    /// The key to sign with
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Whose it is
    #[command(flatten)]
    pub whose: Whose,
    /// Version of a manifest that is made here
    #[arg(long, value_name = "VERSION", conflicts_with = "manifest", requires = "binary")]
    pub version: Option<Version>,
    /// The daemon for an architecture: amd64=./bcd
    #[arg(long, value_name = "ARCH=FILE", conflicts_with = "manifest")]
    pub binary: Vec<String>,
    /// How long it may be taken
    #[arg(long, value_name = "TIME", default_value = "90d")]
    pub good_for: Duration,
    /// Not to be taken before this time; this moment when nothing is said
    #[arg(long, value_name = "TIME")]
    pub not_before: Option<Timestamp>,
    /// The oldest version that it may follow
    #[arg(long, value_name = "VERSION")]
    pub from: Option<Version>,
    /// It may take the place of a later version
    #[arg(long)]
    pub downgrade: bool,
    /// Where to write it; over the given one, or to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to check.
#[derive(Debug, Args)]
pub struct Verify {
    /// The manifest
    #[arg(value_name = "FILE")]
    pub manifest: PathBuf,
    /// A key whose signature counts
    #[arg(long, value_name = "KEY", required = true)]
    pub by: Vec<ReleasePublicKey>,
    /// How many of them it takes; all when nothing is said
    #[arg(long, value_name = "N")]
    pub threshold: Option<usize>,
    /// Whose it is
    #[command(flatten)]
    pub whose: Whose,
}

impl Whose {
    fn realm(&self) -> Realm {
        Realm::new(self.trust_domain.as_str(), self.fleet.as_str())
    }
}

impl Release {
    /// Makes, signs or checks.
    ///
    /// # Errors
    /// When a file cannot be used, or a manifest is not believed.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Key { file } => key(file, output)?,
            Verb::Sign(sign) => sign.run(output)?,
            Verb::Verify(verify) => verify.run(output)?,
        }
        Ok(Exit::Ok)
    }
}

fn key(file: &Path, output: &Output) -> Result<(), Failure> {
    let key = ReleaseKey::generate();
    let mut made = new_file(file, 0o600)?;
    let what = format!("cannot write {}", file.display());
    key.to_text(|text| writeln!(made, "{text}").and_then(|()| made.sync_all())).during(what)?;
    let public = key.public().to_string();
    if output.is_json() { output.json(&json!({ "key": public })) } else { output.line(public) }
}

fn read(path: &Path) -> Result<SignedManifest, Failure> {
    let text = fs::read_to_string(path).during(format!("cannot read {}", path.display()))?;
    SignedManifest::read(text.trim()).during(path.display())
}

impl Sign {
    fn run(&self, output: &Output) -> Result<(), Failure> {
        let text = fs::read_to_string(&self.key).during(format!("cannot read {}", self.key.display()))?;
        let key = ReleaseKey::parse(&text).during(self.key.display())?;
        let mut signed = match &self.manifest {
            Some(path) => read(path)?,
            None => SignedManifest::unsigned(&self.made(output.now)?),
        };
        signed.sign(&self.whose.realm(), &key);
        let text = signed.to_text();
        let Some(to) = self.out.as_ref().or(self.manifest.as_ref()) else { return output.line(text) };
        // Beside it first: a manifest is whole or not there.
        let beside = to.with_extension("signing");
        let written = fs::write(&beside, format!("{text}\n")).and_then(|()| fs::rename(&beside, to));
        written.during(format!("cannot write {}", to.display()))?;
        note(format!("signed by {}", key.public()));
        Ok(())
    }

    fn made(&self, now: Timestamp) -> Result<Manifest, Failure> {
        let version = self.version.clone().ok_or_else(|| Failure::usage("a manifest has a --version"))?;
        let mut binaries = BTreeMap::new();
        for text in &self.binary {
            let (arch, path) =
                text.split_once('=').ok_or_else(|| Failure::usage(format!("{text} is not ARCH=FILE")))?;
            let arch: Arch = arch.parse().map_err(|error| Failure::usage(format!("{error}; amd64 or arm64")))?;
            binaries.insert(arch, binary(Path::new(path)).during(format!("cannot read {path}"))?);
        }
        let not_before = self.not_before.unwrap_or(now);
        let (from, downgrade) = (self.from.clone(), self.downgrade);
        Ok(Manifest { version, binaries, not_before, expires: self.good_for.after(not_before), from, downgrade })
    }
}

fn binary(path: &Path) -> io::Result<Binary> {
    let (mut file, mut digest) = (File::open(path)?, Running::default());
    let mut piece = vec![0; 256 * 1024];
    let mut size = 0;
    loop {
        match io::Read::read(&mut file, &mut piece)? {
            0 => return Ok(Binary { digest: digest.finish(), size }),
            length => {
                digest.add(&piece[..length]);
                size += length as u64;
            }
        }
    }
}

impl Verify {
    fn run(&self, output: &Output) -> Result<(), Failure> {
        let threshold = self.threshold.unwrap_or(self.by.len());
        let keys = ReleaseKeys::new(self.by.iter().copied(), threshold)
            .ok_or_else(|| Failure::usage(format!("{threshold} of these keys can never sign")))?;
        let manifest = read(&self.manifest)?.verify(&self.whose.realm(), &keys).during(self.manifest.display())?;
        let document = serde_json::to_value(&manifest).during("cannot show the manifest")?;
        if output.is_json() {
            return output.json(&document);
        }
        let mut lines = vec![format!(
            "{} is signed, to be taken from {} until {}",
            manifest.version, manifest.not_before, manifest.expires
        )];
        lines.extend(manifest.from.iter().map(|from| format!("  follows {from} or later")));
        lines.extend(manifest.downgrade.then(|| "  may take the place of a later version".to_owned()));
        let bytes = |(arch, binary): (&Arch, &Binary)| format!("  {arch}  {}  {} bytes", binary.digest, binary.size);
        lines.extend(manifest.binaries.iter().map(bytes));
        output.line(lines.join("\n"))
    }
}
