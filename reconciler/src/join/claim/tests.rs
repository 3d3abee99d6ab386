//! Facts about machines that come back.

use pki::hardware::{Claims, IdentifierKind};
use schema::fleet::Node as NodeDocument;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn trusted() -> HardwareKey {
    let identifiers = vec![
        (IdentifierKind::SystemSerial, "A5M2DG769504".to_owned()),
        (IdentifierKind::BoardSerial, "279397357009883".to_owned()),
    ];
    HardwareKey::derive(&Claims { identifiers, product: None })
}

fn weak() -> HardwareKey {
    let identifiers = vec![(IdentifierKind::SystemSerial, "A5M2DG769504".to_owned())];
    HardwareKey::derive(&Claims { identifiers, product: None })
}

fn resident(text: &str) -> Resident {
    Resident {
        id: NodeId::generate(),
        name: name(text),
        pool: Some(name("h100")),
        trusted: true,
        lost: true,
        presence: Presence { heard: Some(at(1_000)), silent: true, vacant: false },
        provision: ProvisionState::Adopted,
        failed_from: None,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn place(document: Option<&NodeDocument>) -> Place<'_> {
    let text = document.map_or("h100-0badcafe", |document| document.name.as_str());
    Place { name: name(text), pool: name("h100"), document }
}

fn document(text: &str) -> NodeDocument {
    serde_json::from_value(serde_json::json!({ "name": text })).expect("a document")
}

fn by_hardware(resident: &Resident) -> Residents {
    Residents { by_hardware: Some(resident.clone()), ..Residents::default() }
}

fn by_name(resident: &Resident) -> Residents {
    Residents { by_name: Some(resident.clone()), ..Residents::default() }
}

#[test]
fn a_machine_that_nobody_knows_is_new() {
    assert_eq!(claim(&place(None), &trusted(), false, &Residents::default()), Ok(Claim::New));
}

#[test]
fn known_hardware_takes_its_node_back_only_when_the_token_says_so() {
    let old = resident("h100-1");
    let held = Err(JoinRefusal::DuplicateHardware(name("h100-1")));
    assert_eq!(claim(&place(None), &trusted(), false, &by_hardware(&old)), held);
    let taken = claim(&place(None), &trusted(), true, &by_hardware(&old));
    assert_eq!(taken, Ok(Claim::TakeOver(old.clone(), Ground::Hardware)));
    assert_eq!(claim(&place(None), &weak(), true, &by_hardware(&old)), held);
    let unsure = Resident { trusted: false, ..old };
    assert_eq!(claim(&place(None), &trusted(), true, &by_hardware(&unsure)), held);
}

#[test]
fn what_is_away_for_a_moment_is_not_taken_over() {
    let lost = resident("h100-1");
    let held = Err(JoinRefusal::ReclaimNotLost(name("h100-1")));
    let silent = Resident { lost: false, ..lost.clone() };
    assert_eq!(claim(&place(None), &trusted(), true, &by_hardware(&silent)), held);
    // Heard again, and judged lost before that.
    let heard = Resident { presence: Presence { silent: false, ..lost.presence }, ..lost };
    assert_eq!(claim(&place(None), &trusted(), true, &by_hardware(&heard)), held);
    // A person's word is enough for a silent one, not for one that was heard a moment ago.
    let approved = |resident: Resident| Residents { approved: Some((resident, at(2_000))), ..Residents::default() };
    let taken = Ok(Claim::TakeOver(silent.clone(), Ground::Approval));
    assert_eq!(claim(&place(None), &trusted(), false, &approved(silent)), taken);
    assert_eq!(claim(&place(None), &trusted(), false, &approved(heard)), held);
}

#[test]
fn a_node_that_was_heard_while_the_machine_asked_is_another_machine() {
    let old = resident("h100-1");
    let asked = |second| Residents { asked: Some(at(second)), ..by_hardware(&old) };
    let held = Err(JoinRefusal::ReclaimConnected(name("h100-1")));
    assert_eq!(claim(&place(None), &trusted(), true, &asked(999)), held);
    assert!(claim(&place(None), &trusted(), true, &asked(1_000)).is_ok());
    // Nor does a revoked identity make one machine of two.
    let vacant = Resident { presence: Presence { vacant: true, ..old.presence }, ..old.clone() };
    let residents = Residents { asked: Some(at(999)), ..by_hardware(&vacant) };
    assert_eq!(claim(&place(None), &trusted(), true, &residents), held);
    // It was not gone when the person said so.
    let residents = Residents { approved: Some((old, at(999))), ..Residents::default() };
    assert_eq!(claim(&place(None), &trusted(), false, &residents), held);
}

#[test]
fn nobody_comes_back_under_a_revoked_identity() {
    let presence = Presence { heard: Some(at(1_000)), silent: false, vacant: true };
    let old = Resident { lost: false, presence, ..resident("h100-1") };
    assert!(claim(&place(None), &trusted(), true, &by_hardware(&old)).is_ok());
}

#[test]
fn a_token_of_another_pool_takes_nothing_back() {
    let old = Resident { pool: Some(name("a100")), ..resident("a100-1") };
    let held = JoinRefusal::ReclaimOtherPool { node: name("a100-1"), pool: name("h100") };
    assert_eq!(claim(&place(None), &trusted(), true, &by_hardware(&old)), Err(held));
}

#[test]
fn a_machine_in_the_middle_of_work_is_left_alone() {
    for provision in [ProvisionState::Deploying, ProvisionState::Releasing, ProvisionState::Retiring] {
        let old = Resident { provision, ..resident("h100-1") };
        let held = JoinRefusal::ReclaimBusy { node: name("h100-1"), state: provision };
        assert_eq!(claim(&place(None), &trusted(), true, &by_hardware(&old)), Err(held));
    }
    let failed = ProvisionState::Failed;
    let old = Resident { provision: failed, failed_from: Some(ProvisionState::Adopting), ..resident("h100-1") };
    assert!(claim(&place(None), &trusted(), true, &by_hardware(&old)).is_ok());
}

#[test]
fn a_new_board_is_the_same_node_when_its_document_says_so() {
    let (old, fra1) = (resident("fra1"), document("fra1"));
    let held = Err(JoinRefusal::NameTaken(name("fra1")));
    assert_eq!(claim(&place(Some(&fra1)), &trusted(), false, &by_name(&old)), held);
    let taken = claim(&place(Some(&fra1)), &trusted(), true, &by_name(&old));
    assert_eq!(taken, Ok(Claim::TakeOver(old, Ground::Document)));
    // A name that follows from the hardware says nothing about it.
    let other = resident("h100-0badcafe");
    let held = Err(JoinRefusal::NameTaken(name("h100-0badcafe")));
    assert_eq!(claim(&place(None), &trusted(), true, &by_name(&other)), held);
}

#[test]
fn hardware_that_another_document_names_is_held() {
    let (old, other) = (resident("fra1"), document("fra2"));
    let held = Err(JoinRefusal::DuplicateHardware(name("fra1")));
    assert_eq!(claim(&place(Some(&other)), &trusted(), true, &by_hardware(&old)), held);
}

#[test]
fn a_person_may_say_which_node_a_machine_is() {
    let (old, other) = (resident("fra1"), resident("fra2"));
    let residents = Residents { approved: Some((old.clone(), at(2_000))), ..by_hardware(&other) };
    assert_eq!(claim(&place(None), &weak(), false, &residents), Ok(Claim::TakeOver(old, Ground::Approval)));
}

#[test]
fn proof_takes_back_what_is_lost_and_never_what_was_revoked() {
    let lost = resident("h100-1");
    let proven = |old: &Resident, kind| Residents { attested_as: vec![(old.clone(), kind)], ..by_hardware(old) };
    let taken = claim(&place(None), &trusted(), false, &proven(&lost, AttestKind::Tpm));
    assert_eq!(taken, Ok(Claim::TakeOver(lost.clone(), Ground::Hardware)));
    let held = Err(JoinRefusal::DuplicateHardware(name("h100-1")));
    assert_eq!(claim(&place(None), &trusted(), false, &proven(&lost, AttestKind::Aws)), held);
    let revoked = Resident { presence: Presence { vacant: true, ..lost.presence }, ..lost };
    assert_eq!(claim(&place(None), &trusted(), false, &proven(&revoked, AttestKind::Tpm)), held);
    assert!(claim(&place(None), &trusted(), true, &proven(&revoked, AttestKind::Tpm)).is_ok());
}
