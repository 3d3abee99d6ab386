//! Which keys are admitted.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;
use crate::trust::testing::{has, secret};

fn line(kind: &str, fields: &[&[u8]]) -> String {
    let mut blob = Vec::new();
    push_field(&mut blob, kind.as_bytes());
    fields.iter().for_each(|field| push_field(&mut blob, field));
    format!("{kind} {}", STANDARD.encode(blob))
}

fn refusal(kind: &str, fields: &[&[u8]]) -> KeyRefusal {
    TrustKey::from_ssh(&line(kind, fields)).expect_err("refused")
}

#[test]
fn the_name_of_a_key_is_the_one_that_ssh_keygen_prints() {
    if !has("ssh-keygen") {
        return;
    }
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = secret(kind);
        let (mut list, file) = (std::process::Command::new("ssh-keygen"), key.file());
        list.args(["-l", "-f"]).arg(file.path());
        let printed = String::from_utf8(list.output().expect("ssh-keygen runs").stdout).expect("text");
        assert!(printed.contains(&format!(" {} ", key.key().name())), "{printed}");
    }
}

#[test]
fn points_of_small_order_and_their_second_spellings_are_refused() {
    for y in SMALL_ORDER {
        let mut point: [u8; 32] = hex::decode(y).expect("digits").try_into().expect("32 bytes");
        assert_eq!(Material::ed25519(point), Err(KeyRefusal::SmallOrder), "{y}");
        point[31] |= 0x80;
        assert_eq!(Material::ed25519(point), Err(KeyRefusal::SmallOrder), "{y} with a sign");
    }
    // p + 1 is 1 again, and p is 0.
    for low in [0xed, 0xee, 0xff] {
        let mut point = [0xff; 32];
        point[0] = low;
        assert_eq!(Material::ed25519(point), Err(KeyRefusal::NonCanonical));
    }
    assert!(Material::ed25519([9; 32]).is_ok());
}

#[test]
fn keys_that_can_be_forged_under_are_refused() {
    let odd = |bytes: usize| [&[0, 0xff][..], &vec![0xff; bytes - 1]].concat();
    let exponent: &[u8] = &[1, 0, 1];
    assert!(TrustKey::from_ssh(&line("ssh-rsa", &[exponent, &odd(384)])).is_ok());
    assert_eq!(refusal("ssh-rsa", &[exponent, &odd(128)]), KeyRefusal::ModulusSize(1024));
    assert_eq!(refusal("ssh-rsa", &[exponent, &odd(256)]), KeyRefusal::ModulusSize(2048));
    assert_eq!(refusal("ssh-rsa", &[exponent, &odd(2048)]), KeyRefusal::ModulusSize(16384));
    assert_eq!(refusal("ssh-rsa", &[&[3], &odd(384)]), KeyRefusal::Exponent);
    assert_eq!(refusal("ssh-rsa", &[&[1], &odd(384)]), KeyRefusal::Exponent);
    let mut even = odd(384);
    even[384] = 0xfe;
    assert_eq!(refusal("ssh-rsa", &[exponent, &even]), KeyRefusal::ModulusEven);
    assert_eq!(refusal("ssh-rsa", &[exponent, &[&[0], &odd(384)[..]].concat()]), KeyRefusal::Malformed);

    let off = [&[4][..], &[7; 64]].concat();
    assert_eq!(refusal("ecdsa-sha2-nistp256", &[b"nistp256", &off]), KeyRefusal::NotOnCurve);
    assert_eq!(refusal("ecdsa-sha2-nistp256", &[b"nistp256", &off[..33]]), KeyRefusal::NonCanonical);
    assert_eq!(refusal("ecdsa-sha2-nistp256", &[b"nistp384", &off]), KeyRefusal::Malformed);

    let point: &[u8] = &[9; 32];
    assert_eq!(
        refusal("sk-ssh-ed25519@openssh.com", &[point, b"https://x"]),
        KeyRefusal::Application("https://x".to_owned())
    );
    assert_eq!(refusal("ssh-ed25519", &[point, b"more"]), KeyRefusal::Malformed);
    assert_eq!(refusal("ssh-ed25519", &[&point[1..]]), KeyRefusal::Malformed);
    assert_eq!(refusal("ssh-dss", &[]), KeyRefusal::Kind("ssh-dss".to_owned()));
    assert_eq!(refusal("ssh-ed25519-cert-v01@openssh.com", &[]), KeyRefusal::Certificate);
}

#[test]
fn a_line_is_one_key_and_its_type_is_said_twice_alike() {
    let good = line("ssh-ed25519", &[&[9; 32]]);
    let key = TrustKey::from_ssh(&format!("{good} ada@laptop with words")).expect("a comment is not looked at");
    assert_eq!(key, TrustKey::from_ssh(&good).expect("a key"));
    for bad in [
        good.replace("ssh-ed25519 ", "ssh-rsa "),
        good.replace(' ', "  "),
        format!("cert-authority {good}"),
        format!("{good}AAAA"),
        "ssh-ed25519".to_owned(),
        String::new(),
    ] {
        assert_eq!(TrustKey::from_ssh(&bad), Err(KeyRefusal::Malformed), "{bad}");
    }
}

#[test]
fn one_point_is_one_raw_key_however_it_is_wrapped() {
    let plain = TrustKey::from_ssh(&line("ssh-ed25519", &[&[9; 32]])).expect("a key");
    let hardware = TrustKey::from_ssh(&line("sk-ssh-ed25519@openssh.com", &[&[9; 32], b"ssh:"])).expect("a key");
    assert_ne!(plain, hardware);
    assert_eq!(plain.raw(), hardware.raw());
}
