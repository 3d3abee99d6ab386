//! Facts about who a machine becomes.

use std::sync::LazyLock;

use pki::hardware::IdentifierKind;
use schema::inventory::{Dmi, Nic};

use super::{
    super::refusal::{Backed, Stranger},
    *,
};

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn machine() -> JoinClaims {
    JoinClaims {
        dmi: Dmi {
            serial: Some("A5M2DG769504".into()),
            uuid: Some("d1a13eaa-0150-0e80-0d2a-d77ad57421c1".into()),
            board_serial: Some("279397357009883".into()),
            ..Dmi::default()
        },
        nics: vec![Nic { name: "eth0".into(), mac: Some("0c:42:a1:00:00:01".into()), speed_mbps: None }],
        ..JoinClaims::default()
    }
}

fn document(text: &str) -> NodeDocument {
    serde_json::from_str(text).expect("a document")
}

fn ask(claims: &JoinClaims, described: bool, house: &House<'_>) -> Result<(String, String, bool), JoinRefusal> {
    let key = claims.hardware_key();
    let knock = Knock { described, ..knock(claims, &key) };
    decide(&knock, house).map(|place| (place.name.to_string(), place.pool.to_string(), place.document.is_some()))
}

/// A machine with a token for the pool `h100`.
fn knock<'a>(claims: &'a JoinClaims, key: &'a HardwareKey) -> Knock<'a> {
    Knock {
        claims,
        key,
        described: false,
        pool: Ok(name("h100")),
        vouched: Vouched::Token { pool: &H100, expects: false },
        attested: &[],
        request: Digest::of("request"),
        approved: false,
    }
}

static H100: LazyLock<Name> = LazyLock::new(|| name("h100"));

const NOBODY: Vouched<'_> = Vouched::Pools(&BTreeSet::new());

fn house(documents: &[NodeDocument]) -> House<'_> {
    House { dev: false, admission: Admission::Token, documents }
}

#[test]
fn an_undeclared_machine_is_named_after_pool_and_hardware() {
    let key = machine().hardware_key().short().expect("a key");
    assert_eq!(ask(&machine(), false, &house(&[])), Ok((format!("h100-{key}"), "h100".into(), false)));
}

#[test]
fn a_document_gives_name_and_pool() {
    let by_serial = [document(r#"{"name":"fra1-r12","pool":"h100","serial":" a5m2dg769504"}"#)];
    assert_eq!(ask(&machine(), false, &house(&by_serial)), Ok(("fra1-r12".into(), "h100".into(), true)));
    let by_board = [document(r#"{"name":"fra1-r12","board-serial":"279397357009883"}"#)];
    assert_eq!(ask(&machine(), false, &house(&by_board)), Ok(("fra1-r12".into(), "h100".into(), true)));
    let by_mac = [document(r#"{"name":"fra1-r12","mac":["0c:42:a1:00:00:09","0c:42:a1:00:00:01"]}"#)];
    assert_eq!(ask(&machine(), false, &house(&by_mac)), Ok(("fra1-r12".into(), "h100".into(), true)));
}

/// A serial number is on a sticker: a token for one pool takes no machine that is meant for another.
#[test]
fn a_token_is_good_for_its_pool_unless_it_says_which_machines_it_is_for_or_the_machine_proves_who_it_is() {
    let (claims, key) = (machine(), machine().hardware_key());
    let documents = [document(r#"{"name":"fra1-r12","pool":"a100","serial":"A5M2DG769504"}"#)];
    let refusal = decide(&knock(&claims, &key), &house(&documents)).expect_err("another pool");
    let other = JoinRefusal::TokenOtherPool { token: name("h100"), node: name("fra1-r12"), pool: name("a100") };
    assert_eq!(refusal, other);
    let named = Knock { vouched: Vouched::Token { pool: &H100, expects: true }, ..knock(&claims, &key) };
    assert_eq!(decide(&named, &house(&documents)).map(|place| place.pool), Ok(name("a100")));

    let tpm: Attested =
        "tpm:sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".parse().expect("one");
    let documents = [document(&format!(r#"{{"name":"fra1-r12","pool":"a100","attested":["{tpm}"]}}"#))];
    let attested = [tpm];
    let proven = Knock { attested: &attested, ..knock(&claims, &key) };
    assert_eq!(decide(&proven, &house(&documents)).map(|place| place.pool), Ok(name("a100")));
}

#[test]
fn a_weaker_match_does_not_beat_a_stronger_mismatch() {
    let documents = [document(r#"{"name":"fra1-r12","serial":"OTHER12345","mac":["0c:42:a1:00:00:01"]}"#)];
    assert!(matches!(ask(&machine(), false, &house(&documents)), Ok((_, _, false))));
}

#[test]
fn a_document_with_a_placeholder_describes_nobody() {
    let mut claims = machine();
    claims.dmi.serial = Some("Default string".into());
    let documents = [document(r#"{"name":"fra1-r12","serial":"Default string"}"#)];
    assert!(matches!(ask(&claims, false, &house(&documents)), Ok((_, _, false))));
}

#[test]
fn two_documents_for_one_machine_hold_it() {
    let documents = [
        document(r#"{"name":"one","serial":"A5M2DG769504"}"#),
        document(r#"{"name":"two","board-serial":"279397357009883"}"#),
    ];
    let refusal = ask(&machine(), false, &house(&documents)).expect_err("held");
    assert_eq!(refusal, JoinRefusal::AmbiguousDocument(vec![name("one"), name("two")]));
}

#[test]
fn strict_admission_waits_for_a_document() {
    let strict = House { admission: Admission::Strict, ..house(&[]) };
    assert_eq!(ask(&machine(), false, &strict), Err(JoinRefusal::NeedsDocument));
    let documents = [document(r#"{"name":"fra1-r12","serial":"A5M2DG769504"}"#)];
    let strict = House { admission: Admission::Strict, ..house(&documents) };
    assert!(ask(&machine(), false, &strict).is_ok());
}

#[test]
fn weak_hardware_is_held_unless_a_document_vouches() {
    let mut claims = machine();
    claims.dmi = Dmi { serial: claims.dmi.serial, ..Dmi::default() };
    assert_eq!(ask(&claims, false, &house(&[])), Err(JoinRefusal::WeakHardware));
    let documents = [document(r#"{"name":"fra1-r12","serial":"A5M2DG769504"}"#)];
    assert!(ask(&claims, false, &house(&documents)).is_ok());
}

#[test]
fn unreadable_identifiers_are_no_weak_hardware() {
    let claims = JoinClaims { unreadable: vec![IdentifierKind::SystemSerial], ..JoinClaims::default() };
    let refusal = ask(&claims, false, &house(&[])).expect_err("refused");
    assert_eq!(refusal.to_string(), "the machine's identifiers may not be read (system-serial); run bcd as root");
    let claims = JoinClaims { unreadable: vec![IdentifierKind::ChassisSerial], ..machine() };
    assert!(ask(&claims, false, &house(&[])).is_ok());
}

#[test]
fn described_hardware_joins_a_dev_control_plane_only() {
    assert_eq!(ask(&machine(), true, &house(&[])), Err(JoinRefusal::Described));
    assert!(ask(&machine(), true, &House { dev: true, ..house(&[]) }).is_ok());
}

#[test]
fn a_long_pool_name_still_makes_a_name() {
    let long = name(&"a".repeat(63));
    assert_eq!(undeclared_name(&long, "0123abcd").as_str().len(), 63);
}

#[test]
fn a_person_lets_weak_hardware_and_undocumented_machines_through() {
    let claims = JoinClaims::default();
    let key = claims.hardware_key();
    let knock = Knock { approved: true, ..knock(&claims, &key) };
    let strict = House { admission: Admission::Strict, ..house(&[]) };
    let place = decide(&knock, &strict).expect("let through");
    assert_eq!(place.name.as_str(), format!("h100-{}", short_of(&knock.request)));
}

#[test]
fn a_blade_is_not_described_by_its_enclosure() {
    let mut claims = machine();
    claims.dmi.product = Some("ProLiant BL460c Gen10".into());
    claims.dmi.chassis_serial = Some("PFB0259WQC".into());
    let documents = [document(r#"{"name":"fra1-r12","serial":"PFB0259WQC"}"#)];
    assert!(matches!(ask(&claims, false, &house(&documents)), Ok((_, _, false))));
    claims.dmi.product = None;
    assert!(matches!(ask(&claims, false, &house(&documents)), Ok((_, _, true))));
}

fn stranger(who: &Attested) -> Stranger {
    Stranger { attested: who.clone(), about: None, backed: Backed::Unasked }
}

#[test]
fn what_a_machine_proves_goes_before_what_it_says() {
    let ek: Attested = "gcp:acme-gpu/4815162342".parse().expect("an identity");
    let documents = [
        document(r#"{"name":"proven","pool":"a100","attested":["gcp:acme-gpu/4815162342"],"serial":"OTHER17"}"#),
        document(r#"{"name":"other","pool":"a100","attested":["gcp:acme-gpu/42"],"serial":"A5M2DG769504"}"#),
    ];
    let claims = machine();
    let key = claims.hardware_key();
    let alone = || Err(JoinRefusal::AttestationUnknown(vec![stranger(&ek)]));
    let proven = Knock { pool: alone(), vouched: NOBODY, attested: std::slice::from_ref(&ek), ..knock(&claims, &key) };
    let place = decide(&proven, &house(&documents)).expect("a place");
    assert_eq!((place.name.as_str(), place.pool.as_str()), ("proven", "a100"));
    // With a token, and without having proven anything, it is not the one whose serial it has.
    let place = decide(&knock(&claims, &key), &house(&documents)).expect("a place");
    assert_eq!(place.document, None);
}

#[test]
fn a_serial_alone_lets_nobody_in() {
    let who: Attested = "gcp:acme-gpu/4815162342".parse().expect("an identity");
    let documents = [document(r#"{"name":"fra1-r12","pool":"a100","serial":"A5M2DG769504"}"#)];
    let claims = machine();
    let key = claims.hardware_key();
    let refused = JoinRefusal::AttestationUnknown(vec![stranger(&who)]);
    let attested = std::slice::from_ref(&who);
    let unknown = Knock { pool: Err(refused.clone()), vouched: NOBODY, attested, ..knock(&claims, &key) };
    assert_eq!(decide(&unknown, &house(&documents)), Err(refused.clone()));
    assert_eq!(decide(&unknown, &house(&[])), Err(refused));
}

#[test]
fn a_pool_lets_nobody_into_another_pool_for_a_serial() {
    let who: Attested = "gcp:acme-gpu/4815162342".parse().expect("an identity");
    let of = |pool: &str| [document(&format!(r#"{{"name":"fra1-r12","pool":"{pool}","serial":"A5M2DG769504"}}"#))];
    let (claims, lab) = (machine(), BTreeSet::from([name("lab")]));
    let key = claims.hardware_key();
    let attested = std::slice::from_ref(&who);
    let certified = Knock { pool: Ok(name("lab")), vouched: Vouched::Pools(&lab), attested, ..knock(&claims, &key) };
    let refusal = decide(&certified, &house(&of("prod"))).expect_err("refused");
    assert_eq!(refusal.code(), "attestation-disagrees");
    assert!(refusal.to_string().contains("is for pool prod"), "{refusal}");
    assert_eq!(decide(&certified, &house(&of("lab"))).expect("a place").name.as_str(), "fra1-r12");
}

#[test]
fn a_stranger_learns_of_no_document_by_what_it_says() {
    let documents = [
        document(r#"{"name":"one","serial":"A5M2DG769504"}"#),
        document(r#"{"name":"two","board-serial":"279397357009883"}"#),
    ];
    let who: Attested = "gcp:acme-gpu/4815162342".parse().expect("an identity");
    let claims = machine();
    let key = claims.hardware_key();
    let refused = JoinRefusal::AttestationUnknown(vec![stranger(&who)]);
    let unknown = Knock { pool: Err(refused.clone()), vouched: NOBODY, ..knock(&claims, &key) };
    assert_eq!(decide(&unknown, &house(&documents)), Err(refused));
}
