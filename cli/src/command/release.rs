//! `release`: manifests of the daemon's versions, and the signatures of those whom the trust policy's `releases` names. Offline: it
//! asks no control plane.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use pki::{
    batch::Trusted,
    release::{ManifestRefusal, NAMESPACE, SignedManifest, may_sign, voice},
};
use reconciler::why::{Area, catalogue};
use schema::{
    digest::Running,
    name::Name,
    release::{Arch, Binary, Manifest},
    time::{Duration, Timestamp},
};
use semver::Version;
use serde_json::json;

use crate::{
    args::{FormatArg, Sure},
    exit::{During as _, Exit, Failure},
    output::{Output, new_file, note},
    signer,
    statement::keyholder,
    verified::{Place, Verified},
};

const EXAMPLES: &str = "\
Examples:
  better-compute release make --version 0.2.0 --binary amd64=./bcd --out bcd-0.2.0.json
  better-compute release sign bcd-0.2.0.json --repo ~/fleet      whoever may, one after the other
  better-compute release verify bcd-0.2.0.json --repo ~/fleet
  better-compute release verify bcd-0.2.0.json --at 3f2a1b9c0d   by the trust policy there

A manifest binds one version to the bytes of it, to the time in which it may be taken and to the
versions that it may follow. Who signs it, and how many, is what `releases` says in
trust/policy.kdl. A signature is for one fleet, and made with the key that git signs with here (git
config gpg.format, user.signingKey). `sign` and `verify` exit with 4 when a signature would not
count or is missing.";

/// Make, sign and check releases of the node daemon.
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
    /// Make a manifest that nobody has signed
    Make(Make),
    /// Add your signature to a manifest
    Sign(Sign),
    /// Say who signed a manifest, and whether that is enough
    Verify(Verify),
}

/// What a manifest says.
#[derive(Debug, Args)]
pub struct Make {
    /// The version that the daemon says of itself
    #[arg(long, value_name = "VERSION")]
    pub version: Version,
    /// The daemon for an architecture: amd64=./bcd
    #[arg(long, value_name = "ARCH=FILE", required = true)]
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
    /// Where to write it; to standard output when nothing is said
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What to sign.
#[derive(Debug, Args)]
pub struct Sign {
    /// The manifest; the signature is added to it
    #[arg(value_name = "FILE")]
    pub manifest: PathBuf,
    /// Whether somebody is asked
    #[command(flatten)]
    pub sure: Sure,
    /// Which fleet it is for
    #[command(flatten)]
    pub place: Place,
}

/// What to check.
#[derive(Debug, Args)]
pub struct Verify {
    /// The manifest
    #[arg(value_name = "FILE")]
    pub manifest: PathBuf,
    /// Commit whose trust policy says who may sign [default: the tip of the branch]
    #[arg(long, value_name = "COMMIT")]
    pub at: Option<String>,
    /// Commit that the history has to begin with, as people who know it told you
    #[arg(long, value_name = "COMMIT")]
    pub anchor: Option<String>,
    /// Which fleet it is for
    #[command(flatten)]
    pub place: Place,
}

impl Release {
    /// Makes, signs or checks.
    ///
    /// # Errors
    /// When a file or the history cannot be used, or a signature does not count.
    pub fn run(&self, output: &Output) -> Result<Exit, Failure> {
        match &self.verb {
            Verb::Make(make) => make.run(output),
            Verb::Sign(sign) => sign.run(output),
            Verb::Verify(verify) => verify.run(output),
        }
    }
}

impl Make {
    fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let text = SignedManifest::unsigned(&self.manifest(output.now)?).to_text();
        match &self.out {
            None => output.line(text)?,
            Some(path) => {
                writeln!(new_file(path, 0o644)?, "{text}").during(format!("cannot write {}", path.display()))?
            }
        }
        Ok(Exit::Ok)
    }

    fn manifest(&self, now: Timestamp) -> Result<Manifest, Failure> {
        let mut binaries = BTreeMap::new();
        for text in &self.binary {
            let (arch, path) =
                text.split_once('=').ok_or_else(|| Failure::usage(format!("{text} is not ARCH=FILE")))?;
            let arch: Arch = arch.parse().map_err(|error| Failure::usage(format!("{error}; amd64 or arm64")))?;
            binaries.insert(arch, binary(Path::new(path)).during(format!("cannot read {path}"))?);
        }
        let not_before = self.not_before.unwrap_or(now);
        let (version, from, downgrade) = (self.version.clone(), self.from.clone(), self.downgrade);
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

fn read(path: &Path) -> Result<SignedManifest, Failure> {
    let text = fs::read_to_string(path).during(format!("cannot read {}", path.display()))?;
    SignedManifest::read(text.trim()).during(path.display())
}

/// What a manifest says, for people.
fn told(manifest: &Manifest) -> String {
    let mut lines =
        vec![format!("{}, to be taken from {} until {}", manifest.version, manifest.not_before, manifest.expires)];
    lines.extend(manifest.from.iter().map(|from| format!("  follows {from} or later")));
    lines.extend(manifest.downgrade.then(|| "  may take the place of a later version".to_owned()));
    let bytes = |(arch, binary): (&Arch, &Binary)| format!("  {arch}  {}  {} bytes", binary.digest, binary.size);
    lines.extend(manifest.binaries.iter().map(bytes));
    lines.join("\n")
}

fn list<'n>(names: impl IntoIterator<Item = &'n Name>) -> String {
    names.into_iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

/// The word that a machine has for it, with what the catalogue of codes says to do.
fn untrusted(why: impl std::fmt::Display) -> Failure {
    let code = "release-untrusted";
    let entry = catalogue::find(Area::Command, code);
    Failure::refused(code, why).or_hint(|| entry.map(|entry| entry.remedy.to_owned()))
}

/// Whose word counts in a clone, as a machine would believe it.
struct Voices {
    looked: Verified,
    revoked: BTreeSet<String>,
}

impl Voices {
    fn of(looked: Verified) -> Result<Self, Failure> {
        if let Some((judged, why)) = looked.walked.refused() {
            note(format!(
                "{} does not count, and what is in force before it is what is gone by: {why}",
                judged.id.short()
            ));
        }
        let revoked = looked.revoked();
        Ok(Self { looked, revoked })
    }

    fn trusted(&self) -> Result<Trusted<'_>, Failure> {
        let (walked, policy) = (&self.looked.walked, self.looked.policy()?);
        Ok(Trusted { trust_domain: &walked.trust_domain, fleet: walked.fleet, policy, revoked: &self.revoked })
    }

    /// Who signed, and who is asked for besides.
    fn count(&self, signed: &SignedManifest) -> Result<(BTreeSet<Name>, u32), Failure> {
        match signed.signers(&self.trusted()?) {
            Ok(by) => Ok((by, 0)),
            Err(ManifestRefusal::Untrusted(short)) => {
                let missing = short.needed.saturating_sub(u32::try_from(short.by.len()).unwrap_or(u32::MAX));
                Ok((short.by, missing))
            }
            Err(refusal) => Err(untrusted(refusal)),
        }
    }

    /// Those whose signature would count and is not there.
    fn others(&self, by: &BTreeSet<Name>) -> Result<String, Failure> {
        let may = may_sign(self.looked.policy()?, &self.revoked);
        Ok(list(may.into_iter().filter(|name| !by.contains(*name))))
    }
}

impl Sign {
    fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let signed = read(&self.manifest)?;
        let manifest = signed.says().during(self.manifest.display())?;
        let voices = Voices::of(Verified::open(&self.place, None)?)?;
        let trusted = voices.trusted()?;
        let you = keyholder(&self.place.repo, trusted.policy)?;
        let rule =
            trusted.policy.releases().ok_or_else(|| untrusted(ManifestRefusal::NoRule(trusted.policy.epoch())))?;
        if let Err(why) = voice(&you.key, rule, trusted.policy, trusted.revoked) {
            let who = voices.others(&BTreeSet::new())?;
            return Err(untrusted(why).hint(format!("nothing was signed; who may sign releases: {who}")));
        }
        if !output.is_json() {
            output.line(told(&manifest))?;
        }
        let question = format!("As {}: sign this release?", you.principal);
        if !self.sure.ask(output, &question, "nothing was signed")? {
            return Ok(Exit::Failed);
        }
        let bytes = signed.to_sign(trusted.trust_domain, trusted.fleet);
        let armour = signer::sign(&self.place.repo, NAMESPACE, bytes.as_bytes())?;
        let signed = signed.with(armour, &you.key, &trusted).during("what was signed would not count")?;
        write(&self.manifest, &signed)?;
        let (by, missing) = voices.count(&signed)?;
        if output.is_json() {
            let value = json!({ "principal": you.principal, "key": you.key.name(), "version": manifest.version, "by": by, "missing": missing });
            output.json(&value)?;
            return Ok(Exit::Ok);
        }
        output.line(format!("{} signed by {}", manifest.version, list(&by)))?;
        if missing > 0 {
            note(format!("a machine takes it when {missing} more signed it, of {}", voices.others(&by)?));
        }
        Ok(Exit::Ok)
    }
}

/// Beside it first: a manifest is whole or not there.
fn write(path: &Path, signed: &SignedManifest) -> Result<(), Failure> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let put = || {
        let mut beside = tempfile::NamedTempFile::new_in(dir)?;
        writeln!(beside, "{}", signed.to_text())?;
        beside.as_file().set_permissions(fs::metadata(path)?.permissions())?;
        beside.persist(path).map_err(|error| error.error)
    };
    put().map(drop).during(format!("cannot write {}", path.display()))
}

impl Verify {
    fn run(&self, output: &Output) -> Result<Exit, Failure> {
        let signed = read(&self.manifest)?;
        let voices = Voices::of(Verified::up_to(self.at.as_deref(), &self.place, self.anchor.as_deref())?)?;
        let trusted = voices.trusted()?;
        let by = match signed.signers(&trusted) {
            Ok(by) => by,
            Err(ManifestRefusal::Untrusted(short)) => {
                let others = voices.others(&short.by)?;
                let failure = untrusted(&short);
                return Err(if others.is_empty() {
                    failure
                } else {
                    failure.hint(format!("who can still sign it, with `better-compute release sign`: {others}"))
                });
            }
            Err(refusal) => return Err(untrusted(refusal)),
        };
        let manifest = signed.says().during(self.manifest.display())?;
        if output.is_json() {
            let value = json!({ "manifest": manifest, "by": by, "epoch": trusted.policy.epoch() });
            output.json(&value)?;
            return Ok(Exit::Ok);
        }
        let epoch = trusted.policy.epoch();
        output.line(format!(
            "{}\nsigned by {}, as the trust policy of epoch {epoch} asks",
            told(&manifest),
            list(&by)
        ))?;
        Ok(Exit::Ok)
    }
}

#[cfg(test)]
mod tests;
