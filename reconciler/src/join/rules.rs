//! What a token says about the machines that may use it, as it is stored and as people write it.

use pki::hardware::{HardwareKey, JoinClaims, plain_serial};
use schema::{attested::Attested, digest::Digest, name::Name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a machine must show. Every kind that is named has to fit, by any of its values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Expect {
    /// Its hardware key, as `joins show` and `get node` print it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hardware_key: Vec<Digest>,
    /// Its system, chassis or board serial number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub serial: Vec<String>,
    /// The MAC address of one of its interfaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mac: Vec<String>,
    /// The name that it gets, from its document or its hardware.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub name: Vec<Name>,
    /// What it proves to be, such as `tpm:sha256:…`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attested: Vec<Attested>,
}

/// The most values of one kind.
pub const MOST_VALUES: usize = 1_000;

impl Expect {
    /// Whether anything goes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What cannot be matched by any machine, or is too much: the field and why.
    #[must_use]
    pub fn mistake(&self) -> Option<(&'static str, String)> {
        let lengths = [
            ("hardwareKey", self.hardware_key.len()),
            ("serial", self.serial.len()),
            ("mac", self.mac.len()),
            ("name", self.name.len()),
            ("attested", self.attested.len()),
        ];
        if let Some((field, _)) = lengths.iter().find(|(_, length)| *length > MOST_VALUES) {
            return Some((field, format!("at most {MOST_VALUES} values")));
        }
        if let Some(serial) = self.serial.iter().find(|serial| plain_serial(serial).is_none()) {
            return Some(("serial", format!("{serial:?} is what vendors leave in place of a serial number")));
        }
        let bad = self.mac.iter().find(|mac| !is_mac(mac))?;
        Some(("mac", format!("{bad:?} is no MAC address such as 3c:ec:ef:00:00:01")))
    }

    /// The kinds that do not fit this machine, each with what was expected.
    #[must_use]
    pub fn unmet(&self, claims: &JoinClaims, key: &HardwareKey, name: &Name, attested: &[Attested]) -> Vec<String> {
        let mut unmet = Vec::new();
        let mut check = |word: &str, wanted: Vec<String>, fits: bool| {
            if !wanted.is_empty() && !fits {
                unmet.push(format!("{word} {}", shortened(&wanted)));
            }
        };
        let keys = self.hardware_key.iter().map(ToString::to_string).collect();
        check("hardware key", keys, key.trusted && key.digest.is_some_and(|key| self.hardware_key.contains(&key)));
        let serials = [&claims.dmi.serial, &claims.dmi.chassis_serial, &claims.dmi.board_serial];
        let shown: Vec<String> = serials.into_iter().flatten().filter_map(|text| plain_serial(text)).collect();
        let fits = self.serial.iter().filter_map(|text| plain_serial(text)).any(|wanted| shown.contains(&wanted));
        check("serial", self.serial.clone(), fits);
        let macs: Vec<&str> = claims.nics.iter().filter_map(|nic| nic.mac.as_deref()).collect();
        let fits = self.mac.iter().any(|wanted| macs.iter().any(|mac| mac.eq_ignore_ascii_case(wanted)));
        check("MAC address", self.mac.clone(), fits);
        check("name", self.name.iter().map(ToString::to_string).collect(), self.name.contains(name));
        let wanted = self.attested.iter().map(ToString::to_string).collect();
        check("to be", wanted, self.attested.iter().any(|wanted| attested.contains(wanted)));
        unmet
    }
}

fn shortened(wanted: &[String]) -> String {
    match wanted {
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} or one of {} more", rest.len()),
        [] => String::new(),
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use schema::inventory::{Dmi, Nic};

    use super::*;

    fn machine() -> JoinClaims {
        let dmi =
            Dmi { serial: Some("A5M2DG769504".into()), board_serial: Some("279397357009883".into()), ..Dmi::default() };
        let nics = vec![Nic { name: "eth0".into(), mac: Some("0C:42:A1:00:00:01".into()), speed_mbps: None }];
        JoinClaims { dmi, nics, ..JoinClaims::default() }
    }

    fn unmet(expect: &Expect) -> Vec<String> {
        let claims = machine();
        expect.unmet(&claims, &claims.hardware_key(), &Name::new("h100-1").expect("a name"), &[])
    }

    #[test]
    fn every_kind_has_to_fit_by_any_of_its_values() {
        assert!(unmet(&Expect::default()).is_empty());
        let good = Expect {
            hardware_key: machine().hardware_key().digest.into_iter().collect(),
            serial: vec!["other17".into(), " a5m2dg769504".into()],
            mac: vec!["0c:42:a1:00:00:01".into()],
            name: vec![Name::new("h100-1").expect("a name")],
            attested: Vec::new(),
        };
        assert!(unmet(&good).is_empty());
        let bad = Expect { serial: vec!["OTHER17".into()], mac: vec!["0c:42:a1:00:00:02".into()], ..good };
        assert_eq!(unmet(&bad), ["serial OTHER17", "MAC address 0c:42:a1:00:00:02"]);
    }

    #[test]
    fn a_key_without_two_witnesses_fits_nothing() {
        let mut claims = machine();
        claims.dmi.board_serial = None;
        let key = claims.hardware_key();
        let expect = Expect { hardware_key: key.digest.into_iter().collect(), ..Expect::default() };
        assert_eq!(expect.unmet(&claims, &key, &Name::new("a").expect("a name"), &[]).len(), 1);
    }

    #[test]
    fn what_fits_no_machine_is_a_mistake() {
        let of = |expect: Expect| expect.mistake().map(|(field, _)| field);
        assert_eq!(of(Expect::default()), None);
        assert_eq!(of(Expect { serial: vec!["Default string".into()], ..Expect::default() }), Some("serial"));
        assert_eq!(of(Expect { mac: vec!["0c42a1000001".into()], ..Expect::default() }), Some("mac"));
    }
}
