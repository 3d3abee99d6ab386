//! The key that git signs with here, and a text signed with it as git signs: by the same program, under the same configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use pki::trust::key::TrustKey;

use crate::{
    exit::{During as _, Failure},
    statement::config,
};

/// The key that git signs with.
#[derive(Debug)]
pub enum SigningKey {
    /// Through `ssh-keygen`.
    Ssh {
        /// The key.
        key: TrustKey,
        /// Its line as a policy lists it.
        line: String,
        /// The file that names it; without one an agent has it.
        file: Option<PathBuf>,
    },
    /// Through `gpg`.
    OpenPgp {
        /// How `gpg` is told which one.
        who: String,
        /// The fingerprints that it may be.
        prints: Vec<String>,
    },
}

/// The key that git is configured to sign with.
///
/// # Errors
/// When there is none, or it is not admitted.
pub fn signing_key(repo: &Path) -> Result<SigningKey, Failure> {
    let none = || {
        Failure::failed("git signs with no key here")
            .hint("git config --global gpg.format ssh && git config --global user.signingKey ~/.ssh/id_ed25519.pub")
    };
    let named = config(repo, "user.signingKey");
    if config(repo, "gpg.format").as_deref() == Some("ssh") {
        let text = named.or_else(|| default_key(repo)).ok_or_else(none)?;
        let (line, file) = public_line(&text)?;
        let key = TrustKey::from_ssh(&line).during(format!("git signs with a key that is not taken ({text})"))?;
        return Ok(SigningKey::Ssh { key, line, file });
    }
    let who = named.or_else(|| config(repo, "user.email")).ok_or_else(none)?;
    let mut gpg = gpg(repo);
    gpg.args(["--batch", "--with-colons", "--with-subkey-fingerprint", "--list-secret-keys", "--", &who]);
    let listed =
        gpg.stdin(Stdio::null()).stderr(Stdio::null()).output().during("cannot ask gpg for the signing key")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let prints = listed.lines().filter(|line| line.starts_with("fpr:")).filter_map(|line| line.split(':').nth(9));
    let prints: Vec<String> = prints.map(str::to_ascii_uppercase).collect();
    if prints.is_empty() { Err(none()) } else { Ok(SigningKey::OpenPgp { who, prints }) }
}

fn default_key(repo: &Path) -> Option<String> {
    let command = config(repo, "gpg.ssh.defaultKeyCommand")?;
    let out = Command::new("sh").args(["-c", &command]).current_dir(repo).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(out.stdout).ok()?.lines().next().map(str::to_owned)
}

/// The line of a public key that `user.signingKey` names (the key itself, its file, or the file of the secret beside it), and that file.
fn public_line(text: &str) -> Result<(String, Option<PathBuf>), Failure> {
    let literal = text.strip_prefix("key::").unwrap_or(text);
    if ["ssh-", "ecdsa-", "sk-"].iter().any(|start| literal.starts_with(start)) {
        return Ok((literal.to_owned(), None));
    }
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    let path = match text.strip_prefix("~/").zip(home()) {
        Some((rest, home)) => home.join(rest),
        None => PathBuf::from(text),
    };
    let read = |path: &Path| fs::read_to_string(path).during(format!("cannot read {}", path.display()));
    let line = |text: &str| text.lines().next().unwrap_or_default().trim().to_owned();
    let beside = PathBuf::from(format!("{}.pub", path.display()));
    let whole =
        if path.extension().is_none_or(|end| end != "pub") && beside.is_file() { read(&beside)? } else { read(&path)? };
    Ok((line(&whole), Some(path)))
}

fn gpg(repo: &Path) -> Command {
    let program = config(repo, "gpg.openpgp.program").or_else(|| config(repo, "gpg.program"));
    Command::new(program.unwrap_or_else(|| "gpg".to_owned()))
}

/// A signature over a text, made as git makes one, and for a namespace where its kind has one.
///
/// # Errors
/// When there is no key, or its program does not sign.
pub fn sign(repo: &Path, namespace: &str, text: &[u8]) -> Result<String, Failure> {
    // A file, and not a pipe: who is asked for a word or a touch answers on the terminal.
    let dir = tempfile::tempdir().during("cannot make a directory")?;
    let [text_file, key_file] = ["text", "key.pub"].map(|name| dir.path().join(name));
    let signature = dir.path().join("text.sig");
    let put = |file: &Path, bytes: &[u8]| fs::write(file, bytes).during(format!("cannot write {}", file.display()));
    put(&text_file, text)?;
    let mut program = match signing_key(repo)? {
        SigningKey::Ssh { line, file, .. } => {
            let program = config(repo, "gpg.ssh.program").unwrap_or_else(|| "ssh-keygen".to_owned());
            let mut keygen = Command::new(program);
            keygen.args(["-q", "-Y", "sign", "-n", namespace, "-f"]);
            match &file {
                Some(file) => keygen.arg(file),
                None => {
                    put(&key_file, line.as_bytes())?;
                    keygen.arg(&key_file).arg("-U")
                }
            };
            keygen.arg(&text_file);
            keygen
        }
        SigningKey::OpenPgp { who, .. } => {
            let mut gpg = gpg(repo);
            gpg.args(["--quiet", "--armor", "--detach-sign", "--local-user", &who, "--output"]);
            gpg.arg(&signature).arg(&text_file);
            gpg
        }
    };
    let name = program.get_program().to_string_lossy().into_owned();
    let done = program.stdout(Stdio::null()).status().during(format!("cannot start {name}"))?;
    if !done.success() {
        return Err(Failure::failed(format!("{name} does not sign"))
            .hint("what it said stands above; `git config user.signingKey` names the key"));
    }
    fs::read_to_string(&signature).during(format!("cannot read what {name} signed"))
}
