//! From a pinned anchor to the tip of a history in which everybody signed: once from the anchor, once more when all of it was
//! verified before, and once with one commit more.
//!
//! The limit reads the same commits and verifies as many signatures, and does nothing else. The targets are those of the design:
//! 10,000 commits in three seconds, and nothing again.

use std::{
    io::{BufReader, Read as _, Write},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use aws_lc_rs::{
    digest,
    signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use pki::trust::{
    object::ObjectId,
    walk::{self, Verified, Walk},
};
use reconciler::source::{Repo, resolve};

use crate::{
    Options,
    measure::{Line, Target, Turns, median, sizes, table, timed},
    repository,
};

/// Seconds that 10,000 commits may take.
const MOST_SECONDS: f64 = 3.0;

/// A person's key.
struct Key(Ed25519KeyPair);

/// Bytes with their length before them, as SSH writes them.
fn field(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    into.extend_from_slice(bytes);
}

impl Key {
    fn of(seed: u8) -> Result<Self> {
        Ok(Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).map_err(|_| anyhow!("a key"))?))
    }

    fn blob(&self) -> Vec<u8> {
        let mut blob = Vec::new();
        field(&mut blob, b"ssh-ed25519");
        field(&mut blob, self.0.public_key().as_ref());
        blob
    }

    fn line(&self) -> String {
        format!("ssh-ed25519 {}", STANDARD.encode(self.blob()))
    }

    /// A signature for git, in its armour.
    fn sign(&self, payload: &[u8]) -> String {
        let mut signed = b"SSHSIG".to_vec();
        for part in [b"git".as_slice(), b"", b"sha512", digest::digest(&digest::SHA512, payload).as_ref()] {
            field(&mut signed, part);
        }
        let mut signature = Vec::new();
        field(&mut signature, b"ssh-ed25519");
        field(&mut signature, self.0.sign(&signed).as_ref());
        let mut envelope = b"SSHSIG\0\0\0\x01".to_vec();
        for part in [self.blob().as_slice(), b"git", b"", b"sha512", &signature] {
            field(&mut envelope, part);
        }
        let body = STANDARD.encode(envelope);
        let lines: Vec<&str> = body.as_bytes().chunks(70).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----", lines.join("\n"))
    }
}

/// A policy that lets one person change everything but what others have to see.
fn policy(key: &Key) -> String {
    format!(
        "policy {{\n  format 1\n  epoch 1\n}}\nprincipal \"ada\" {{\n  kind \"human\"\n  roles \"admin\"\n  key \"{}\"\n}}\n\
         path \"**\" {{ roles \"admin\"; }}\ntrust {{ roles \"admin\"; threshold 1; }}\n\
         change {{ roles \"admin\"; threshold 1; }}\n",
        key.line()
    )
}

/// A history of a fleet in which each commit changes one machine, all of it signed; the branch `main`, packed.
fn make(dir: &Path, nodes: usize, commits: usize) -> Result<()> {
    let key = Key::of(7)?;
    repository::changes(dir, nodes, commits, ("trust/policy.kdl".to_owned(), policy(&key)))?;
    let listed = Command::new("git").args(["rev-list", "--reverse", "main"]).current_dir(dir).output()?;
    let mut read = Command::new("git")
        .args(["cat-file", "--batch"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("git is needed")?;
    let mut names = read.stdin.take().context("a pipe")?;
    let mut objects = BufReader::new(read.stdout.take().context("a pipe")?);
    let repo = gix::open_opts(dir, gix::open::Options::isolated())?;
    let mut parent: Option<gix::ObjectId> = None;
    for name in String::from_utf8(listed.stdout)?.lines() {
        writeln!(names, "{name}")?;
        names.flush()?;
        let mut head = String::new();
        std::io::BufRead::read_line(&mut objects, &mut head)?;
        let size: usize = head.trim().rsplit(' ').next().context("a size")?.parse()?;
        let mut raw = vec![0; size + 1];
        objects.read_exact(&mut raw)?;
        let text = std::str::from_utf8(&raw[..size])?;
        let (head, message) = text.split_once("\n\n").context("a message")?;
        let head: Vec<String> = head
            .lines()
            .map(|line| match (line.starts_with("parent "), parent) {
                (true, Some(parent)) => format!("parent {parent}"),
                _ => line.to_owned(),
            })
            .collect();
        let head = head.join("\n");
        let armour = key.sign(format!("{head}\n\n{message}").as_bytes()).replace('\n', "\n ");
        let signed = format!("{head}\ngpgsig {armour}\n\n{message}");
        let written = gix::objs::Write::write_buf(&repo, gix::objs::Kind::Commit, signed.as_bytes());
        parent = Some(written.map_err(|error| anyhow!("a commit is not written: {error}"))?);
    }
    drop(names);
    ensure!(read.wait()?.success(), "git cat-file failed");
    let tip = parent.context("a commit")?.to_string();
    repository::git(dir, &["update-ref", "refs/heads/main", &tip])?;
    repository::git(dir, &["repack", "-a", "-d", "-q"])
}

/// Reads every commit and verifies as many signatures; how many there were.
fn limit(dir: &Path) -> Result<usize> {
    let key = Key::of(7)?;
    let public = UnparsedPublicKey::new(&ED25519, key.0.public_key().as_ref().to_vec());
    let (text, signature) = (vec![7; 120], key.0.sign(&[7; 120]));
    let repo = gix::open_opts(dir, gix::open::Options::isolated())?;
    let mut at = Some(repo.rev_parse_single("main")?.detach());
    let mut count = 0;
    while let Some(id) = at {
        let raw = repo.find_object(id)?.detach().data;
        public.verify(&text, signature.as_ref()).map_err(|_| anyhow!("a signature"))?;
        at = gix::objs::CommitRef::from_bytes(&raw, id.kind())?.parents().next();
        count += 1;
    }
    Ok(count)
}

/// From the anchor, or from what was verified before, to a commit.
fn product(dir: &Path, anchor: ObjectId, tip: &str, after: Option<&Verified>) -> Result<(Verified, usize)> {
    let repo = Repo::open(dir)?;
    let tip = resolve(&repo, tip)?.parse().map_err(|_| anyhow!("a tip"))?;
    let asked =
        Walk { branch: "main", tip, anchor: Some(anchor), after, known: None, statements: &[], now: None, beyond: 0 };
    let walked = walk::walk(&repo.trust_history(""), &asked)?.map_err(|stuck| anyhow!("stuck: {stuck}"))?;
    if let Some((judged, refusal)) = walked.refused() {
        anyhow::bail!("{} does not count: {refusal}", judged.id);
    }
    let judged = walked.commits.len();
    Ok((walked.reached.context("a commit that counts")?, judged))
}

/// Runs the bench; answers whether the machine was quiet enough.
pub(crate) fn run(options: &Options, out: &mut impl Write) -> Result<bool> {
    sizes("verify: a signed history", options, out, |nodes, out| size(options, nodes, out))
}

fn size(options: &Options, nodes: usize, out: &mut impl Write) -> Result<bool> {
    let place = tempfile::tempdir().context("a temporary folder")?;
    let dir = place.path();
    make(dir, nodes, options.commits)?;
    let root = Command::new("git").args(["rev-list", "--max-parents=0", "main"]).current_dir(dir).output()?;
    let anchor = String::from_utf8(root.stdout)?.trim().parse().map_err(|_| anyhow!("an anchor"))?;
    let (mut turns, mut again, mut more) = (Turns::default(), Vec::new(), Vec::new());
    for _ in 0..options.pairs.max(1) {
        let (count, probe) = timed(|| limit(dir));
        let (all, cold) = timed(|| product(dir, anchor, "main", None));
        let (all, judged) = all?;
        ensure!(judged == count?, "every commit is judged");
        let (before, _) = product(dir, anchor, "main~1", None)?;
        let (warm, nothing) = timed(|| product(dir, anchor, "main", Some(&all)));
        ensure!(warm?.1 == 0, "nothing is judged again");
        let (one, step) = timed(|| product(dir, anchor, "main", Some(&before)));
        ensure!(one?.1 == 1, "one commit is judged");
        turns.probe.push(probe.as_secs_f64());
        turns.product.push(cold.as_secs_f64());
        again.push(nothing.as_secs_f64());
        more.push(step.as_secs_f64());
    }
    let cold = median(turns.product.iter().copied());
    let most = MOST_SECONDS * options.commits as f64 / 10_000.0;
    let ms = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
    let lines = [
        Line::alone("from the anchor, seconds", format!("{cold:.2} s"), cold, most),
        Line {
            what: "beside reading and verifying",
            product: ms(cold),
            probe: ms(median(turns.probe.iter().copied())),
            value: turns.ratio(),
            target: Target::AtMost(5.0),
        },
        Line::alone("nothing more, ms", ms(median(again.iter().copied())), 1e3 * median(again), 50.0),
        Line::alone("one commit more, ms", ms(median(more.iter().copied())), 1e3 * median(more), 50.0),
    ];
    table(out, &format!("{} commits, {nodes} machines", options.commits), &lines)?;
    turns.verdict(out)
}
