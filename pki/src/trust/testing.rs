//! Real repositories, real keys and the real programs: `git`, `ssh-keygen` and `gpg` under a configuration of their own.
//!
//! A machine without one of them skips what needs it, and says so.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

use aws_lc_rs::{
    digest::{Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512, digest},
    signature::{Ed25519KeyPair, KeyPair as _},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    armor::{self, Dress},
    commit::Commit,
    key::TrustKey,
    object::{ObjectFormat, ObjectId},
    wire::{Reader, padded},
};
use crate::signed::push_field;

/// Whether a program is there; a test that needs one says what it skips.
pub(crate) fn has(program: &str) -> bool {
    let flag = if program == "ssh-keygen" { "-?" } else { "--version" };
    let there = Command::new(program).arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        eprintln!("skipped: there is no {program}");
    }
    there
}

/// A key pair. Its secret is on disk only while a program reads it: what a static holds is never dropped.
pub(crate) struct Secret {
    private: String,
    pub(crate) line: String,
}

impl Secret {
    /// The secret as a file that only we may read.
    pub(super) fn file(&self) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(self.private.as_bytes()).expect("room");
        file
    }

    pub(crate) fn key(&self) -> TrustKey {
        TrustKey::from_ssh(&self.line).expect("an admitted key")
    }
}

/// A security key made of software: what it signs is what a real one signs.
pub(crate) struct SecurityKey {
    pair: Ed25519KeyPair,
    blob: Vec<u8>,
    pub(crate) line: String,
}

impl SecurityKey {
    pub(crate) fn generate() -> Self {
        let pair = Ed25519KeyPair::generate().expect("random bytes");
        let blob = [field(b"sk-ssh-ed25519@openssh.com"), field(pair.public_key().as_ref()), field(b"ssh:")].concat();
        let line = format!("sk-ssh-ed25519@openssh.com {}", STANDARD.encode(&blob));
        Self { pair, blob, line }
    }

    pub(crate) fn key(&self) -> TrustKey {
        TrustKey::from_ssh(&self.line).expect("an admitted key")
    }

    /// A signature with these flags: the lowest says that it was touched.
    pub(crate) fn sign(&self, namespace: &str, flags: u8, text: &[u8]) -> String {
        let hashed = digest(&SHA512, text);
        let head = [field(namespace.as_bytes()), field(b""), field(b"sha512")].concat();
        let signed = [&b"SSHSIG"[..], &head, &field(hashed.as_ref())].concat();
        let counter = 7_u32.to_be_bytes();
        let text = [digest(&SHA256, b"ssh:").as_ref(), &[flags], &counter, digest(&SHA256, &signed).as_ref()].concat();
        let body = field(self.pair.sign(&text).as_ref());
        let signature = [&field(b"sk-ssh-ed25519@openssh.com")[..], &body, &[flags], &counter].concat();
        armor::close(
            &[&b"SSHSIG\0\0\0\x01"[..], &field(&self.blob), &head, &field(&signature)].concat(),
            "SSH SIGNATURE",
        )
    }
}

/// Keys are made once for all tests: RSA takes its time.
pub(crate) fn secret(name: &str) -> &'static Secret {
    static ALL: OnceLock<std::sync::Mutex<std::collections::BTreeMap<String, &'static Secret>>> = OnceLock::new();
    let mut all = ALL.get_or_init(Default::default).lock().expect("no test panics here");
    if let Some(secret) = all.get(name) {
        return secret;
    }
    let kind: &[&str] = match name.split('.').next().expect("a kind") {
        "ecdsa" => &["-t", "ecdsa", "-b", "256"],
        "rsa" => &["-t", "rsa", "-b", "3072"],
        "rsa2048" => &["-t", "rsa", "-b", "2048"],
        "p384" => &["-t", "ecdsa", "-b", "384"],
        _ => &["-t", "ed25519"],
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("key");
    let made = Command::new("ssh-keygen").args(kind).args(["-q", "-N", "", "-C", name, "-f"]).arg(&file).status();
    assert!(made.expect("ssh-keygen runs").success());
    let read = |file: PathBuf| std::fs::read_to_string(file).expect("a key");
    let line = read(file.with_extension("pub")).trim().to_owned();
    let secret = Box::leak(Box::new(Secret { private: read(file), line }));
    all.insert(name.to_owned(), secret);
    secret
}

/// A key ring of its own with one key that `gpg` made.
pub(crate) struct Gpg {
    pub(super) home: tempfile::TempDir,
    pub(crate) fingerprint: String,
}

impl Gpg {
    /// A key ring with nothing in it.
    pub(super) fn empty() -> Self {
        let home = tempfile::Builder::new().prefix("g").tempdir().expect("a directory");
        Self { home, fingerprint: String::new() }
    }

    /// Gives it a block, of which it keeps what it likes.
    pub(super) fn import(&self, block: &str) {
        let mut command = Command::new("gpg");
        command.args(["--batch", "--quiet", "--no-tty", "--import"]).env("GNUPGHOME", self.home.path());
        feed(&mut command, block.as_bytes());
    }

    pub(crate) fn with(algorithm: &str) -> Self {
        let mut this = Self::empty();
        this.run(&["--quick-generate-key", "Ada <ada@test.example>", algorithm, "sign", "never"], &[]);
        let listed = this.run(&["--list-keys", "--with-colons"], &[]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let line = listed.lines().find(|line| line.starts_with("fpr:")).expect("a fingerprint");
        this.fingerprint = line.split(':').nth(9).expect("a fingerprint").to_owned();
        this
    }

    pub(super) fn run(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new("gpg");
        command.args(["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", "--no-tty"]).args(args);
        let done = feed(command.env("GNUPGHOME", self.home.path()), input);
        assert!(done.status.success(), "gpg {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        done
    }

    pub(crate) fn export(&self) -> String {
        String::from_utf8(self.run(&["--armor", "--export"], &[]).stdout).expect("text")
    }

    pub(crate) fn key(&self) -> TrustKey {
        TrustKey::from_openpgp(&self.export(), &self.fingerprint).expect("an admitted key")
    }

    pub(crate) fn sign(&self, document: &[u8], more: &[&str]) -> String {
        let args = [more, &["--armor", "--detach-sign"]].concat();
        String::from_utf8(self.run(&args, document).stdout).expect("text")
    }
}

impl Drop for Gpg {
    fn drop(&mut self) {
        let mut stop = Command::new("gpgconf");
        stop.args(["--kill", "gpg-agent"]).env("GNUPGHOME", self.home.path());
        stop.stdout(Stdio::null()).stderr(Stdio::null()).status().ok();
    }
}

/// A repository.
pub(super) struct Git {
    pub(super) dir: tempfile::TempDir,
}

impl Git {
    pub(super) fn new(format: ObjectFormat) -> Self {
        let this = Self { dir: tempfile::tempdir().expect("a directory") };
        let word = if format == ObjectFormat::Sha1 { "sha1" } else { "sha256" };
        this.run(&["init", "-q", "-b", "main", &format!("--object-format={word}")], &[]);
        this
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.current_dir(self.dir.path()).args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]).args(args);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.dir.path());
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Ada").env(format!("GIT_{who}_EMAIL"), "ada@test.example");
            command.env(format!("GIT_{who}_DATE"), "2026-01-01T00:00:00Z");
        }
        command
    }

    pub(super) fn run(&self, args: &[&str], input: &[u8]) -> String {
        let done = feed(&mut self.command(args), input);
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text").trim_end_matches('\n').to_owned()
    }

    /// The bytes of a commit.
    pub(super) fn raw(&self, id: &str) -> Vec<u8> {
        let done = feed(&mut self.command(&["cat-file", "commit", id]), &[]);
        assert!(done.status.success());
        done.stdout
    }

    /// A commit of these bytes, whatever they are; its id as git names it.
    pub(super) fn put(&self, raw: &[u8]) -> String {
        self.run(&["hash-object", "-t", "commit", "-w", "--stdin", "--literally"], raw)
    }

    /// An empty commit that `git` itself signed with SSH.
    pub(super) fn signed(&self, secret: &Secret, message: &str) -> Vec<u8> {
        let file = secret.file();
        let key = format!("user.signingKey={}", file.path().display());
        self.run(&["-c", "gpg.format=ssh", "-c", &key, "commit", "-q", "-S", "--allow-empty", "-m", message], &[]);
        self.raw("HEAD")
    }

    /// What `git verify-commit` says of a commit when these lines are the allowed signers.
    pub(super) fn verifies(&self, id: &str, lines: &[&str]) -> bool {
        let file = self.dir.path().join("allowed_signers");
        let text: String = lines.iter().map(|line| format!("ada@test.example namespaces=\"git\" {line}\n")).collect();
        std::fs::write(&file, text).expect("a file");
        let allowed = format!("gpg.ssh.allowedSignersFile={}", file.display());
        feed(&mut self.command(&["-c", &allowed, "verify-commit", id]), &[]).status.success()
    }

    pub(super) fn verifies_with(&self, id: &str, gpg: &Gpg) -> bool {
        feed(self.command(&["verify-commit", id]).env("GNUPGHOME", gpg.home.path()), &[]).status.success()
    }
}

/// A commit with a signature made over its payload.
pub(crate) fn sign_raw(payload: &[u8], header: &str, armour: &str) -> Vec<u8> {
    let text = std::str::from_utf8(payload).expect("text");
    let (head, message) = text.split_once("\n\n").expect("a message");
    format!("{head}\n{header} {}\n\n{message}", armour.trim_end().replace('\n', "\n ")).into_bytes()
}

/// What `ssh-keygen -Y sign` makes of a text.
pub(crate) fn ssh_sign(secret: &Secret, namespace: &str, more: &[&str], text: &[u8]) -> String {
    let mut command = Command::new("ssh-keygen");
    let file = secret.file();
    command.args(["-Y", "sign", "-n", namespace]).args(more).arg("-f").arg(file.path());
    let done = feed(&mut command, text);
    assert!(done.status.success(), "ssh-keygen: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("text")
}

/// What `ssh-keygen -Y verify` says of a signature for git.
pub(super) fn ssh_verifies(line: &str, text: &[u8], armour: &str) -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let (allowed, signature) = (dir.path().join("allowed"), dir.path().join("signature"));
    std::fs::write(&allowed, format!("ada {line}\n")).expect("a file");
    std::fs::write(&signature, armour).expect("a file");
    let mut command = Command::new("ssh-keygen");
    command.args(["-Y", "verify", "-n", "git", "-I", "ada", "-f"]).arg(allowed).arg("-s").arg(signature);
    feed(&mut command, text).status.success()
}

/// An SSH signature by ECDSA with other numbers, each as it is written.
pub(crate) fn with_numbers(armour: &str, change: impl FnOnce(&[u8], &[u8]) -> [Vec<u8>; 2]) -> String {
    let bytes = armor::open(armour, "SSH SIGNATURE", Dress::Ssh).expect("armour");
    // Behind the magic word and the version: the key, the namespace, what is reserved, the hash, the signature.
    let mut rest = Reader(&bytes[10..]);
    let signature = (0..5).map(|_| rest.string().expect("a field")).last().expect("the signature");
    let mut parts = Reader(signature);
    let algorithm = parts.string().expect("the algorithm");
    let mut numbers = Reader(parts.string().expect("two numbers"));
    let both = change(numbers.mpint().expect("r"), numbers.mpint().expect("s")).concat();
    let own = [field(algorithm), field(&both)].concat();
    let text = STANDARD.encode([&bytes[..bytes.len() - signature.len() - 4], &field(&own)].concat());
    let lines: Vec<&str> = (0..text.len()).step_by(70).map(|at| &text[at..text.len().min(at + 70)]).collect();
    format!("-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n", lines.join("\n"))
}

/// The other signature that anybody makes of one by ECDSA, without its key: `n - s` signs what `s` signs.
pub(crate) fn twin(armour: &str) -> String {
    with_numbers(armour, |r, s| [mpint(r), mpint(&other_half(padded(s).expect("32 bytes")))])
}

/// `n - s` for P-256.
fn other_half(s: [u8; 32]) -> Vec<u8> {
    let order = hex::decode("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551").expect("digits");
    let (mut twin, mut borrow) = (vec![0; 32], 0);
    for at in (0..32).rev() {
        let difference = i16::from(order[at]) - i16::from(s[at]) - borrow;
        borrow = i16::from(difference < 0);
        twin[at] = u8::try_from(difference.rem_euclid(256)).expect("a byte");
    }
    twin
}

/// A positive whole number as SSH writes it.
pub(crate) fn mpint(digits: &[u8]) -> Vec<u8> {
    let short: Vec<u8> = digits.iter().copied().skip_while(|byte| *byte == 0).collect();
    field(&if short[0] >= 0x80 { [&[0], &short[..]].concat() } else { short })
}

pub(crate) fn field(bytes: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    push_field(&mut field, bytes);
    field
}

/// A hash by its number in OpenPGP.
pub(crate) type Numbered = (u8, &'static Algorithm);

/// An OpenPGP key of version 4 that is made in process, and signs in every type there is.
pub(crate) struct Pgp {
    pair: Ed25519KeyPair,
    fingerprint: Vec<u8>,
    /// Its key packet, without a frame.
    pub(crate) body: Vec<u8>,
    pub(crate) block: String,
}

impl Pgp {
    /// When keys are made that nothing else is said of.
    pub(crate) const MADE: u32 = 0x6600_0000;

    pub(crate) fn generate() -> Self {
        Self::made(Self::MADE)
    }

    /// One that says to have been made at a time.
    pub(crate) fn made(at: u32) -> Self {
        let pair = Ed25519KeyPair::generate().expect("random bytes");
        // Of EdDSA, over Ed25519, and the point as a number of 263 bits that begins with 0x40.
        let curve = [9, 0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x0f, 0x01];
        let body = [&[4][..], &at.to_be_bytes(), &[22], &curve, &[1, 7, 0x40], pair.public_key().as_ref()].concat();
        let mut this = Self { pair, fingerprint: Vec::new(), body, block: String::new() };
        this.fingerprint = digest(&SHA1_FOR_LEGACY_USE_ONLY, &this.framed()).as_ref().to_vec();
        let owner = this.owned(0x13, (8, &SHA256), &[this.by(at), pgp_part(27, &[3])].concat());
        this.block = pgp_armour("PUBLIC KEY BLOCK", &[pgp_packet(6, &this.body), owner].concat());
        this
    }

    pub(crate) fn fingerprint(&self) -> String {
        hex::encode_upper(&self.fingerprint)
    }

    pub(crate) fn key(&self) -> TrustKey {
        TrustKey::from_openpgp(&self.block, &self.fingerprint()).expect("an admitted key")
    }

    /// What is hashed wherever it is signed.
    pub(crate) fn framed(&self) -> Vec<u8> {
        [&[0x99][..], &u16::try_from(self.body.len()).expect("short").to_be_bytes(), &self.body].concat()
    }

    /// That it signs something, at a time.
    pub(crate) fn by(&self, at: u32) -> Vec<u8> {
        let names = [pgp_part(33, &[&[4], &self.fingerprint[..]].concat()), pgp_part(16, &self.fingerprint[12..])];
        [pgp_part(2, &at.to_be_bytes()), names.concat()].concat()
    }

    /// A name of its owner, and their signature over it, which says this.
    pub(crate) fn owned(&self, kind: u8, hash: Numbered, says: &[u8]) -> Vec<u8> {
        let name = b"Ada <ada@test.example>";
        let length = u32::try_from(name.len()).expect("short").to_be_bytes();
        let text = [&self.framed()[..], &[0xb4], &length, name].concat();
        [pgp_packet(13, name), pgp_packet(2, &self.says(kind, hash, [says, &[]], &text))].concat()
    }

    /// The body of a signature packet with these two areas, over some bytes.
    pub(crate) fn says(&self, kind: u8, (number, hash): Numbered, areas: [&[u8]; 2], text: &[u8]) -> Vec<u8> {
        let [hashed, unhashed] =
            areas.map(|area| [&u16::try_from(area.len()).expect("short").to_be_bytes()[..], area].concat());
        let covered = [&[4, kind, 22, number][..], &hashed].concat();
        let length = u32::try_from(covered.len()).expect("short").to_be_bytes();
        let hash = digest(hash, &[text, &covered, &[4, 0xff], &length].concat());
        let sealed = self.pair.sign(hash.as_ref());
        let (r, s) = sealed.as_ref().split_at(32);
        [&covered, &unhashed, &hash.as_ref()[..2], &mpi(r), &mpi(s)].concat()
    }

    /// A signature packet of a type.
    pub(crate) fn signature(&self, kind: u8, hash: Numbered, document: &[u8]) -> Vec<u8> {
        pgp_packet(2, &self.says(kind, hash, [&self.by(Self::MADE), &[]], document))
    }

    /// What `gpg --armor --detach-sign` makes of a document.
    pub(crate) fn sign(&self, document: &[u8]) -> String {
        pgp_armour("SIGNATURE", &self.signature(0, (8, &SHA256), document))
    }
}

/// A number as OpenPGP writes it.
fn mpi(digits: &[u8]) -> Vec<u8> {
    let short: Vec<u8> = digits.iter().copied().skip_while(|byte| *byte == 0).collect();
    let bits = short.len() * 8 - short[0].leading_zeros() as usize;
    [&u16::try_from(bits).expect("short").to_be_bytes()[..], &short].concat()
}

/// A part of a signature packet.
pub(crate) fn pgp_part(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 1).expect("short").to_be_bytes();
    [&[0xff][..], &length, &[kind], body].concat()
}

pub(crate) fn pgp_packet(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[0xc0 | tag, 0xff][..], &length, body].concat()
}

pub(crate) fn pgp_armour(title: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    let sum = STANDARD.encode(armor::crc24(bytes));
    format!("-----BEGIN PGP {title}-----\n\n{}\n={sum}\n-----END PGP {title}-----\n", lines.join("\n"))
}

/// Runs a program with an input.
fn feed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that does not read its input has said no already.
    child.stdin.take().expect("a pipe").write_all(input).ok();
    child.wait_with_output().expect("the program ends")
}

/// The plain commit that most tests begin with.
pub(crate) const PLAIN: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
    author Ada <ada@test.example> 1767225600 +0000\n\
    committer Ada <ada@test.example> 1767225600 +0000\n\
    \n\
    pools: two more machines\n";

/// A commit, split.
pub(crate) fn split(raw: &[u8]) -> Commit<'_> {
    Commit::split(ObjectFormat::Sha1, raw).expect("a commit")
}

/// The id of a commit's bytes.
pub(crate) fn id(raw: &[u8]) -> ObjectId {
    ObjectId::of_commit(ObjectFormat::Sha1, raw).expect("no collision")
}
