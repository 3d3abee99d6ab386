//! The TPM, asked through tpm2-tools: programs with a deadline, and no library in this process.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use proto::agent::v1 as pb;
use schema::digest::Digest;

use super::AttestError;
use crate::process;

/// A TPM of metal derives an RSA key from its seed in half a minute.
const DEADLINE: Duration = Duration::from_secs(120);
/// Where makers put the certificate of the RSA endorsement key, and that of the P-256 one.
const CERTIFICATES: [(&str, &str); 2] = [("rsa", "0x01c00002"), ("ecc", "0x01c0000a")];
/// What `tpm2_activatecredential` reads: its magic, and the version of its format.
const CREDENTIAL: [u8; 8] = [0xba, 0xdc, 0xc0, 0xde, 0, 0, 0, 1];

/// A TPM with an attestation key that was made for this join.
#[derive(Debug)]
pub(super) struct Tpm {
    tools: Tools,
    keys: pb::TpmKeys,
    chain: Vec<Vec<u8>>,
}

impl Tpm {
    /// Finds the endorsement key and its certificate, and makes an attestation key.
    pub(super) fn begin(scratch: &Path, tcti: Option<String>) -> Result<Self, AttestError> {
        let tools = Tools::new(scratch, tcti)?;
        let [rsa, ecc] = CERTIFICATES;
        let endorsed = |(algorithm, index): (&str, &str)| {
            tools.run("tpm2_createek", &["-c", "ek.ctx", "-G", algorithm, "-u", "ek.pub"]).map(|()| index.to_owned())
        };
        // Some have no RSA.
        let index = endorsed(rsa).or_else(|error| endorsed(ecc).map_err(|_| error))?;
        let signing = ["-C", "ek.ctx", "-c", "ak.ctx", "-u", "ak.pub", "-G", "ecc", "-g", "sha256", "-s", "ecdsa"];
        tools.run("tpm2_createak", &signing)?;
        let keys = pb::TpmKeys { endorsement: tools.read("ek.pub")?, attestation: tools.read("ak.pub")? };
        // Not every TPM has one, and not every pool asks.
        let chain = match tools.run("tpm2_nvread", &["-C", "o", "-o", "ek.der", &index]) {
            Ok(()) => certificate(&tools.read("ek.der")?).into_iter().collect(),
            Err(error) => {
                tracing::debug!("the TPM holds no certificate of its endorsement key: {error}");
                Vec::new()
            }
        };
        Ok(Self { tools, keys, chain })
    }

    pub(super) const fn keys(&self) -> &pb::TpmKeys {
        &self.keys
    }

    /// Reads the secret in a credential, and quotes a digest.
    pub(super) fn answer(
        self,
        credential: &pb::TpmCredential,
        digest: &Digest,
    ) -> Result<pb::TpmEvidence, AttestError> {
        let Self { tools, keys, chain } = self;
        tools.write("credential", &[&CREDENTIAL[..], &credential.blob, &credential.secret].concat())?;
        tools.run("tpm2_startauthsession", &["--policy-session", "-S", "session.ctx"])?;
        tools.run("tpm2_policysecret", &["-S", "session.ctx", "-c", "endorsement"])?;
        let activate =
            ["-c", "ak.ctx", "-C", "ek.ctx", "-i", "credential", "-o", "secret", "-P", "session:session.ctx"];
        tools.run("tpm2_activatecredential", &activate)?;
        tools.run("tpm2_flushcontext", &["session.ctx"]).ok();
        let digest = hex::encode(digest.as_bytes());
        let quote = ["-c", "ak.ctx", "-l", "sha256:0", "-q", &digest, "-m", "quote", "-s", "signature", "-g", "sha256"];
        tools.run("tpm2_quote", &quote)?;
        Ok(pb::TpmEvidence {
            keys: Some(keys),
            chain,
            secret: tools.read("secret")?,
            quote: tools.read("quote")?,
            signature: tools.read("signature")?,
        })
    }
}

/// The certificate in front of whatever fills the index up.
fn certificate(bytes: &[u8]) -> Option<Vec<u8>> {
    let [0x30, 0x82, high, low, ..] = bytes else { return None };
    bytes.get(..4 + usize::from(u16::from_be_bytes([*high, *low]))).map(<[u8]>::to_vec)
}

/// tpm2-tools, in a directory of their own that goes away with them.
#[derive(Debug)]
struct Tools {
    scratch: PathBuf,
    tcti: Option<String>,
}

impl Tools {
    fn new(scratch: &Path, tcti: Option<String>) -> Result<Self, AttestError> {
        let scratch = scratch.join("tpm");
        let made = fs::remove_dir_all(&scratch).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        made.and_then(|()| fs::create_dir_all(&scratch))
            .map_err(|source| AttestError::File { path: scratch.clone(), source })?;
        Ok(Self { scratch, tcti })
    }

    /// Runs one of them. What is a file among its arguments lies in the directory.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), AttestError> {
        self.call(program, args)?;
        // A TPM without a resource manager keeps what a program loaded, and has room for three.
        self.call("tpm2_flushcontext", &["-t"]).ok();
        Ok(())
    }

    fn call(&self, program: &str, args: &[&str]) -> Result<(), AttestError> {
        let files = ["ek.", "ak.", "session", "credential", "secret", "quote", "signature"];
        let mut words: Vec<String> = self.tcti.iter().flat_map(|tcti| ["-T".to_owned(), tcti.clone()]).collect();
        words.extend(args.iter().map(|word| match word.strip_prefix("session:") {
            Some(file) => format!("session:{}", self.scratch.join(file).display()),
            None if files.iter().any(|file| word.starts_with(file)) => self.scratch.join(word).display().to_string(),
            None => (*word).to_owned(),
        }));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = process::run(Path::new(program), &words, DEADLINE)?;
        if output.success {
            return Ok(());
        }
        let said = output.stderr.lines().find(|line| line.contains("ERROR")).unwrap_or(&output.stderr).to_owned();
        Err(AttestError::Tpm { program: program.to_owned(), said })
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, AttestError> {
        let path = self.scratch.join(name);
        fs::read(&path).map_err(|source| AttestError::File { path, source })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), AttestError> {
        let path = self.scratch.join(name);
        fs::write(&path, bytes).map_err(|source| AttestError::File { path, source })
    }
}

impl Drop for Tools {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.scratch).ok();
    }
}
