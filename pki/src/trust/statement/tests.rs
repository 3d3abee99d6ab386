//! Statements have one form, and every other one has its reason.

use super::*;

fn head(kind: &str) -> String {
    format!("reboot the rack\n\nbc-statement: {kind}\ntrust-domain: acme.example\nfleet: {}\n", "ab".repeat(32))
}

fn digest(letter: &str) -> String {
    format!("sha256:{}", letter.repeat(64))
}

/// One good statement of each kind.
fn every() -> Vec<String> {
    let (id, other) = ("1".repeat(40), "2".repeat(40));
    let under = format!("trust-epoch: 7\ntrust-digest: {}\n", digest("a"));
    let who = format!("principal: ada\nnonce: {}\n", "0f".repeat(16));
    let (from, until) = ("not-before: 2026-11-29T12:00:00Z\n", "expires: 2026-11-29T16:00:00Z\n");
    let batch = |kind: &str| {
        format!(
            "{}batch: kernel\nbatch-digest: {}\nplan-commit: {id}\ntier: wipe\n{under}{who}{from}{until}",
            head(kind),
            digest("b")
        )
    };
    let step = |kind: &str| format!("{}prev: {}\nnext: {}\nepoch: 8\n{who}", head(kind), digest("c"), digest("d"));
    vec![
        batch("approve/v1"),
        batch("reject/v1"),
        batch("withdraw/v1"),
        format!("{}branch: main\nbase: {id}\ntree: {other}\n{under}{who}{until}", head("change/v1")),
        step("trust/v1"),
        step("possess/v1"),
        format!("{}key: SHA256:x\nreason: compromised\nlast-good: {id}\ntrust-epoch: 7\n{who}", head("revoke/v1")),
        format!("{}branch: main\nold: {id}\nnew: {other}\n{under}{who}{until}", head("reseal/v1")),
        format!(
            "{}kinds: gpu.reset,node.reboot\nnodes: a1,a2\nreason: on fire\n{under}{who}{from}{until}",
            head("breakglass/v1")
        ),
    ]
}

#[test]
fn every_kind_is_read_and_its_digest_is_that_of_its_block() {
    let mut digests = std::collections::BTreeSet::new();
    for text in every() {
        let statement = Statement::parse_message(&text).unwrap_or_else(|refusal| panic!("{refusal}: {text}"));
        assert_eq!(statement.principal.as_str(), "ada");
        let renamed = text.replacen("reboot the rack", "another first line", 1);
        let other = Statement::parse_message(&renamed).expect("a statement");
        assert_eq!(other.digest(), statement.digest(), "the line for people is not what is said");
        assert!(digests.insert(statement.digest()), "two statements have one digest");
    }
}

#[test]
fn a_line_that_is_left_out_repeated_moved_or_changed_makes_it_none() {
    for text in every() {
        let lines: Vec<&str> = text.lines().collect();
        for at in 2..lines.len() {
            let of = |lines: Vec<&str>| format!("{}\n", lines.join("\n"));
            let (mut without, mut twice) = (lines.clone(), lines.clone());
            without.remove(at);
            twice.insert(at, lines[at]);
            let mut cases = vec![of(without), of(twice)];
            if at + 1 < lines.len() {
                let mut moved = lines.clone();
                moved.swap(at, at + 1);
                cases.push(of(moved));
            }
            for change in ["  ", ":\u{a0}", ":", ": \t"] {
                cases.push(text.replacen(lines[at], &lines[at].replacen(": ", change, 1), 1));
            }
            let capital = lines[at][..1].to_uppercase() + &lines[at][1..];
            cases.push(text.replacen(&format!("\n{}\n", lines[at]), &format!("\n{capital}\n"), 1));
            cases.push(text.replacen(&format!("\n{}\n", lines[at]), &format!("\n{} \n", lines[at]), 1));
            for case in cases {
                assert!(Statement::parse_message(&case).is_err(), "{case}");
            }
        }
        for framed in [
            format!("{text}\n"),
            format!("{text}more: x\n"),
            text.trim_end().to_owned(),
            text.replacen("\n\n", "\n\n\n", 1),
            text.replacen("\n\n", "\nsecond line\n\n", 1),
            text.replacen("reboot the rack", "", 1),
            text.replace('\n', "\r\n"),
        ] {
            assert!(Statement::parse_message(&framed).is_err(), "{framed:?}");
        }
    }
}

#[test]
fn a_value_has_one_spelling() {
    let every = every();
    let wrong = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        Statement::parse_message(&text.replace(from, to)).expect_err(to)
    };
    assert_eq!(wrong(&every[0], "trust-epoch: 7", "trust-epoch: 07"), StatementRefusal::Value("trust-epoch"));
    assert_eq!(wrong(&every[0], "trust-epoch: 7", "trust-epoch: +7"), StatementRefusal::Value("trust-epoch"));
    assert_eq!(wrong(&every[0], "T16:00:00Z", "T16:00:00.0Z"), StatementRefusal::Value("expires"));
    assert_eq!(wrong(&every[0], "T16:00:00Z", "T17:00:00+01:00"), StatementRefusal::Value("expires"));
    assert_eq!(wrong(&every[0], "0f0f", "0F0f"), StatementRefusal::Value("nonce"));
    assert_eq!(wrong(&every[0], &digest("b"), &digest("B")), StatementRefusal::Value("batch-digest"));
    assert_eq!(wrong(&every[3], "branch: main", "branch: refs/heads/main"), StatementRefusal::Value("branch"));
    assert_eq!(wrong(&every[6], "compromised", "Compromised"), StatementRefusal::Value("reason"));
    assert_eq!(wrong(&every[8], "a1,a2", "a2,a1"), StatementRefusal::Value("nodes"));
    assert_eq!(wrong(&every[8], "a1,a2", "a1,a1"), StatementRefusal::Value("nodes"));
    assert_eq!(wrong(&every[0], "approve/v1", "approve/v2"), StatementRefusal::Kind("approve/v2".to_owned()));
    assert_eq!(Statement::parse_message("pools: two machines\n"), Err(StatementRefusal::None));
}

#[test]
fn the_fleet_is_the_domain_and_the_anchor() {
    let anchor = "1".repeat(40).parse().expect("an id");
    assert_ne!(FleetId::of("acme.example", &anchor), FleetId::of("acme.exampl", &anchor));
    assert_ne!(
        FleetId::of("acme.example", &anchor),
        FleetId::of("acme.example", &"2".repeat(40).parse().expect("an id"))
    );
}

#[test]
fn what_is_written_is_what_is_read() {
    for text in every() {
        let read = Statement::parse_message(&text).expect("a statement");
        assert_eq!(read.write("reboot the rack"), text);
        let Statement { trust_domain, fleet, principal, nonce, body, .. } = read.clone();
        assert_eq!(Statement::new(&trust_domain, fleet, principal, nonce, body), Ok(read));
    }
}

#[test]
fn what_has_no_form_is_not_said() {
    let read = |text: &str| Statement::parse_message(text).expect("a statement");
    let again = |statement: &Statement, body: Body| {
        let Statement { trust_domain, fleet, principal, nonce, .. } = statement.clone();
        Statement::new(&trust_domain, fleet, principal, nonce, body)
    };
    let emergency = read(&every()[8]);
    let Body::Breakglass { kinds, nodes, under, not_before, expires, .. } = emergency.body.clone() else { panic!() };
    for reason in ["", " x", "x\ntrust-epoch: 9", "f\u{fc}r", "x\ny"] {
        let (kinds, nodes, reason) = (kinds.clone(), nodes.clone(), reason.to_owned());
        let body = Body::Breakglass { kinds, nodes, reason, under, not_before, expires };
        assert!(again(&emergency, body.clone()).is_err(), "{body:?}");
    }
    let later = "2026-11-29T16:00:00.5Z".parse().expect("a time");
    let body = Body::Breakglass { kinds, nodes, reason: "x".to_owned(), under, not_before, expires: later };
    assert_eq!(again(&emergency, body), Err(StatementRefusal::Value("expires")));
}

#[test]
fn statements_about_one_thing_have_one_subject_and_branches_that_git_takes() {
    let statements: Vec<Statement> =
        every().iter().map(|text| Statement::parse_message(text).expect("a statement")).collect();
    let subjects: Vec<String> = statements.iter().map(|statement| statement.body.subject()).collect();
    assert_eq!(subjects[..6], ["kernel", "kernel", "kernel", &"1".repeat(40), "8", "8"]);
    assert_eq!(subjects[6..8], ["SHA256:x", &"1".repeat(40)]);
    let reference = "refs/heads/bc/statements/revoke/SHA256-x/ada/0f0f0f0f";
    assert_eq!(statements[6].reference(), reference);
    assert_eq!(statements[0].reference(), "refs/heads/bc/statements/approve/kernel/ada/0f0f0f0f");
}

proptest::proptest! {
    #[test]
    fn whatever_is_said_is_read_again(
        nonce: [u8; 16], fleet: [u8; 32], digest: [u8; 32], id: [u8; 20], epoch: u64,
        seconds in -1_000_000_000_i64..10_000_000_000, kind in 0_usize..9, line in ".*", reason in "[!-~]([ -~]{0,40}[!-~])?",
    ) {
        let (id, digest) = (ObjectId::Sha1(id), Digest::from_bytes(digest));
        let under = Under { epoch, digest };
        let (name, time) = (Name::new("ada-1").expect("a name"), Timestamp::from_second(seconds).expect("a time"));
        let batch = |word| Body::Batch {
            word, batch: name.clone(), digest, plan_commit: id, tier: name.clone(), under, not_before: time, expires: time,
        };
        let step = Step { prev: digest, next: digest, epoch };
        let reason_of = if epoch % 2 == 0 { RevokeReason::Superseded } else { RevokeReason::Compromised };
        let branch = || "main".to_owned();
        let body = match kind {
            0 => batch(Word::Approve),
            1 => batch(Word::Reject),
            2 => batch(Word::Withdraw),
            3 => Body::Change { branch: branch(), base: id, tree: id, under, expires: time },
            4 => Body::Trust(step),
            5 => Body::Possess(step),
            6 => Body::Revoke { key: "SHA256:a/b+c".to_owned(), reason: reason_of, last_good: id, trust_epoch: epoch },
            7 => Body::Reseal { branch: branch(), old: id, new: id, under, expires: time },
            _ => Body::Breakglass {
                kinds: vec!["gpu.reset".to_owned()], nodes: vec![name.clone()], reason, under, not_before: time, expires: time,
            },
        };
        let said = Statement::new("acme.example", FleetId(fleet), name, nonce, body);
        // A year before 0 or behind 9999 has another length, and no form.
        let said = said.expect("a statement");
        proptest::prop_assert_eq!(Statement::parse_message(&said.write(&line)), Ok(said));
    }
}
