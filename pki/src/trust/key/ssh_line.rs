//! Keys as SSH writes them: a line of a `.pub` file, and the bytes in it.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{KeyRefusal, Material, TrustKey, Wrapping};
use crate::trust::wire::{Reader, Short};

impl From<Short> for KeyRefusal {
    fn from(_: Short) -> Self {
        Self::Malformed
    }
}

pub(super) fn parse(line: &str) -> Result<TrustKey, KeyRefusal> {
    let mut words = line.splitn(3, ' ');
    let (kind, body) = words.next().zip(words.next()).ok_or(KeyRefusal::Malformed)?;
    if kind.contains("-cert-v0") {
        return Err(KeyRefusal::Certificate);
    }
    let bytes = STANDARD.decode(body).map_err(|_| KeyRefusal::Malformed)?;
    if Reader(&bytes).string().ok() != Some(kind.as_bytes()) {
        return Err(KeyRefusal::Malformed);
    }
    blob(&bytes)
}

pub(super) fn blob(bytes: &[u8]) -> Result<TrustKey, KeyRefusal> {
    let mut rest = Reader(bytes);
    let kind = rest.string()?;
    let material = match kind {
        b"ssh-ed25519" => Material::Ed25519(Material::ed25519(point(&mut rest)?)?),
        b"sk-ssh-ed25519@openssh.com" => {
            let point = Material::ed25519(point(&mut rest)?)?;
            let application = String::from_utf8(rest.string()?.to_vec()).map_err(|_| KeyRefusal::Malformed)?;
            if !application.starts_with("ssh:") || application.chars().any(char::is_control) {
                return Err(KeyRefusal::Application(application.escape_debug().take(80).collect()));
            }
            Material::SkEd25519 { point, application }
        }
        b"ecdsa-sha2-nistp256" => {
            if rest.string()? != b"nistp256" {
                return Err(KeyRefusal::Malformed);
            }
            Material::p256(rest.string()?)?
        }
        b"ssh-rsa" => {
            let exponent = rest.mpint()?;
            Material::rsa(rest.mpint()?, exponent)?
        }
        other => {
            let word: String = String::from_utf8_lossy(other).escape_debug().take(60).collect();
            let certificate = word.contains("-cert-v0");
            return Err(if certificate { KeyRefusal::Certificate } else { KeyRefusal::Kind(word) });
        }
    };
    rest.end()?;
    Ok(TrustKey { material, wrapping: Wrapping::Ssh, life: None })
}

fn point(rest: &mut Reader<'_>) -> Result<[u8; 32], KeyRefusal> {
    rest.string()?.try_into().map_err(|_| KeyRefusal::Malformed)
}
