//! The splitter against git, and against commits that git takes for good and we do not.

use proptest::prelude::*;

use super::*;
use crate::trust::{
    signature::{SignatureRefusal, signer},
    testing::{Git, PLAIN, has, id, secret, sign_raw, split, ssh_sign},
};

fn refusal(text: &str) -> Malformed {
    Commit::split(ObjectFormat::Sha1, text.as_bytes()).expect_err("malformed")
}

#[test]
fn a_commit_is_split_into_what_git_put_together() {
    if !has("git") || !has("ssh-keygen") {
        return;
    }
    for format in [ObjectFormat::Sha1, ObjectFormat::Sha256] {
        let git = Git::new(format);
        git.signed(secret("ed25519"), "first");
        git.run(&["checkout", "-q", "-b", "side"], &[]);
        git.signed(secret("ed25519"), "side");
        git.run(&["checkout", "-q", "main"], &[]);
        git.signed(secret("ed25519"), "main");
        git.run(&["merge", "-q", "--no-edit", "--no-ff", "side"], &[]);
        for name in ["HEAD", "HEAD^", "HEAD^2", "HEAD~2"] {
            let raw = git.raw(name);
            let commit = Commit::split(format, &raw).expect("a commit of git");
            assert_eq!(commit.id().to_string(), git.run(&["rev-parse", name], &[]));
            assert_eq!(commit.tree().to_string(), git.run(&["rev-parse", &format!("{name}^{{tree}}")], &[]));
            let parents: Vec<String> = commit.parents().iter().map(ToString::to_string).collect();
            assert_eq!(parents.join(" "), git.run(&["log", "-1", "--format=%P", name], &[]));
            assert_eq!(commit.subject(), git.run(&["log", "-1", "--format=%s", name], &[]));
            assert_eq!(commit.message().trim_end(), git.run(&["log", "-1", "--format=%B", name], &[]).trim_end());
        }
    }
}

#[test]
fn what_git_verifies_and_shows_otherwise_is_malformed_here() {
    if !has("git") || !has("ssh-keygen") {
        return;
    }
    let git = Git::new(ObjectFormat::Sha1);
    git.run(&["write-tree"], &[]);
    let key = secret("ed25519");
    let sign = |payload: &str| {
        String::from_utf8(sign_raw(payload.as_bytes(), "gpgsig", &ssh_sign(key, "git", &[], payload.as_bytes())))
            .expect("text")
    };
    let good = sign(PLAIN);
    assert!(git.verifies(&git.put(good.as_bytes()), &[&key.line]));
    assert_eq!(signer(&split(good.as_bytes()), [&key.key()]), Ok(&key.key()));

    let tree = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n";
    let author = "author Ada <ada@test.example> 1767225600 +0000\n";
    let committer = "committer Ada <ada@test.example> 1767225600 +0000\n";
    let signature = &good[good.find("gpgsig").expect("a header")..good.find("\n\n").expect("a message") + 1];
    for (what, text, refusal) in [
        ("a second tree", sign(&PLAIN.replace(tree, &tree.repeat(2))), Malformed::Twice("tree")),
        (
            "a second author",
            sign(&PLAIN.replace(author, &author.repeat(2))),
            Malformed::OutOfOrder("author".to_owned()),
        ),
        (
            "a second signature",
            good.replace(signature, &format!("{signature}gpgsig garbage\n")),
            Malformed::Twice("gpgsig"),
        ),
        (
            "an unsigned signature of the other kind",
            good.replace(signature, &format!("{signature}gpgsig-sha256 garbage\n")),
            Malformed::ForeignSignature("gpgsig-sha256".to_owned()),
        ),
        (
            "a signed header behind the signature",
            {
                let signed = sign(&PLAIN.replace(committer, &format!("{committer}note x\n")));
                let own = &signed[signed.find("gpgsig").expect("a header")..signed.find("\n\n").expect("text") + 1];
                signed.replace(own, "").replace("note x\n", &format!("{own}note x\n"))
            },
            Malformed::AfterSignature("note".to_owned()),
        ),
        ("a space without width", sign(&PLAIN.replace("two", "t\u{200b}wo")), Malformed::HiddenCharacter('\u{200b}')),
        ("a soft hyphen", sign(&PLAIN.replace("two", "t\u{ad}wo")), Malformed::HiddenCharacter('\u{ad}')),
        ("an Arabic letter mark", sign(&PLAIN.replace("two", "\u{61c}two")), Malformed::HiddenCharacter('\u{61c}')),
        ("a tag", sign(&PLAIN.replace("two", "two\u{e0041}")), Malformed::HiddenCharacter('\u{e0041}')),
        ("text that hides behind a NUL", sign(&PLAIN.replace("two", "two\0hidden")), Malformed::Nul),
    ] {
        assert!(git.verifies(&git.put(text.as_bytes()), &[&key.line]), "git verifies {what}");
        assert_eq!(Commit::split(ObjectFormat::Sha1, text.as_bytes()).expect_err(what), refusal);
    }
    let behind = good.replace("-----END SSH SIGNATURE-----\n", "-----END SSH SIGNATURE-----\n junk\n");
    assert!(git.verifies(&git.put(behind.as_bytes()), &[&key.line]), "git verifies junk behind the armour");
    assert!(matches!(signer(&split(behind.as_bytes()), [&key.key()]), Err(SignatureRefusal::Armor(_))));
}

#[test]
fn every_other_form_has_its_reason() {
    let with = |from: &str, to: &str| {
        assert!(PLAIN.contains(from), "{from}");
        refusal(&PLAIN.replacen(from, to, 1))
    };
    assert_eq!(with("tree 4b", "tree 4B"), Malformed::BadId("tree"));
    assert_eq!(with("tree 4b825dc6", "tree 4b825d"), Malformed::BadId("tree"));
    assert_eq!(with("tree 4b", "parent 4b"), Malformed::Missing("tree"));
    assert_eq!(with("author", "autor"), Malformed::Missing("author"));
    assert_eq!(with("Ada <ada@", "Ada <<ada@"), Malformed::BadPerson("author"));
    assert_eq!(with("1767225600 +0000", "soon +0000"), Malformed::BadPerson("author"));
    assert_eq!(with("1767225600 +0000", "01767225600 +0000"), Malformed::BadPerson("author"));
    assert_eq!(with("\n\npools", "\nencoding ISO-8859-1\n\npools"), Malformed::Encoding);
    assert_eq!(with("\n\npools", "\nmergetag object x\n type y\n\npools"), Malformed::MergeTag);
    assert_eq!(with("\n\npools", "\nHG:rename x\n\npools"), Malformed::UnknownHeader("HG:rename".to_owned()));
    assert_eq!(
        with("\n\npools", "\ngpgsig-sha256 x\n\npools"),
        Malformed::ForeignSignature("gpgsig-sha256".to_owned())
    );
    assert_eq!(with("\n\npools: two more machines\n", "\n"), Malformed::Unfinished);
    assert_eq!(with("pools", "\rpools"), Malformed::CarriageReturn);
    assert_eq!(with("pools", "\u{202e}pools"), Malformed::HiddenCharacter('\u{202e}'));
    assert_eq!(with("pools", "\u{1b}[2Jpools"), Malformed::HiddenCharacter('\u{1b}'));
    let latin = [PLAIN.as_bytes(), b"\xfc"].concat();
    assert_eq!(Commit::split(ObjectFormat::Sha1, &latin).expect_err("latin"), Malformed::NotUtf8);
    let large = format!("{PLAIN}{}", "x".repeat(MAX_COMMIT_BYTES));
    assert_eq!(refusal(&large), Malformed::TooLarge);
    let parent = format!("parent {}\n", "a".repeat(40));
    assert_eq!(with("author", &format!("{}author", parent.repeat(65))), Malformed::TooManyParents);
    assert_eq!(
        Commit::split(ObjectFormat::Sha256, PLAIN.as_bytes()).expect_err("of another repository"),
        Malformed::BadId("tree")
    );
}

#[test]
fn the_time_that_a_signer_writes_changes_nothing() {
    let dated = PLAIN.replace("1767225600 +0000", "0 +9999");
    assert_eq!(split(dated.as_bytes()).tree(), split(PLAIN.as_bytes()).tree());
}

proptest! {
    /// What is split is made of the same bytes again: the payload is the raw bytes without the signature header.
    #[test]
    fn nothing_is_lost_or_added(subject in "[a-z \u{e9}]{0,40}", body in "[ -~\n]{0,80}", lines in 0..4_usize) {
        let armour = (0..lines).map(|line| format!("line{line}")).collect::<Vec<_>>().join("\n");
        let payload = PLAIN.replace("pools: two more machines\n", &format!("{subject}\n\n{body}"));
        let raw = if lines == 0 { payload.clone().into_bytes() } else { sign_raw(payload.as_bytes(), "gpgsig", &armour) };
        let commit = split(&raw);
        prop_assert_eq!(commit.payload(), payload.into_bytes());
        prop_assert_eq!(commit.signature().map(|text| text.trim_end().to_owned()), (lines > 0).then_some(armour));
        prop_assert_eq!(commit.id(), id(&raw));
    }

    /// No bytes make the splitter do anything but answer.
    #[test]
    fn any_bytes_have_an_answer(mut raw in Just(PLAIN.as_bytes().to_vec()), at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>()) {
        let place = at.index(raw.len());
        raw[place] = byte;
        raw.truncate(cut.index(raw.len() + 1));
        if let Ok(commit) = Commit::split(ObjectFormat::Sha1, &raw) {
            prop_assert_eq!(commit.payload(), raw.clone());
        }
    }
}
