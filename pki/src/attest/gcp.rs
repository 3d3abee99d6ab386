//! Google Cloud: the identity token that an instance's metadata server signs, for an audience that names the request.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use schema::{
    attested::{AttestKind, Attested},
    time::Timestamp,
};
use serde::Deserialize;

use super::{Binding, MAX_BYTES, Proof, Refusal};

const KIND: AttestKind = AttestKind::Gcp;
const ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];
/// How much the clocks of two data centres may differ, in seconds.
const LEEWAY: i64 = 60;

/// The keys that sign tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    key: Public,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
}

/// A text that holds no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are no RSA or P-256 keys in the JSON Web Key Set")]
pub struct NoKeys;

#[derive(Deserialize)]
struct Set {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// The keys of a JSON Web Key Set that can sign tokens.
    ///
    /// # Errors
    /// When there are none.
    pub fn from_json(text: &str) -> Result<Self, NoKeys> {
        let set: Set = serde_json::from_str(text).map_err(|_| NoKeys)?;
        let keys: Vec<Key> = set.keys.iter().filter_map(Key::of).collect();
        if keys.is_empty() { Err(NoKeys) } else { Ok(Self(keys)) }
    }
}

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        if jwk.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let key = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Public::Rsa { n: bytes(&jwk.n)?, e: bytes(&jwk.e)? },
            ("EC", Some("P-256")) => Public::P256([vec![4], bytes(&jwk.x)?, bytes(&jwk.y)?].concat()),
            _ => return None,
        };
        Some(Self { id: jwk.kid.clone(), key })
    }

    /// The key says how it signs, whatever the token says.
    fn signed(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Public::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                algorithm == "RS256" && key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
            }
            Public::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                algorithm == "ES256" && key.verify(message, signature).is_ok()
            }
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    #[serde(default)]
    crit: Vec<String>,
}

#[derive(Deserialize)]
struct Token {
    iss: String,
    aud: String,
    iat: i64,
    exp: i64,
    google: Google,
}

#[derive(Deserialize)]
struct Google {
    compute_engine: Engine,
}

#[derive(Deserialize)]
struct Engine {
    project_id: String,
    instance_id: String,
    zone: String,
}

/// The audience that a machine asks its metadata server for.
#[must_use]
pub fn audience(binding: &Binding<'_>) -> String {
    format!("bc:{}:{}", binding.realm.fleet_id, binding.digest(KIND))
}

/// The instance in a token of `/instance/service-accounts/default/identity` in the format `full`.
///
/// # Errors
/// When it cannot be read, none of these keys signed it, it was made for another request, or its time is over.
pub fn prove(token: &str, keys: &KeySet, binding: &Binding<'_>, now: Timestamp) -> Result<Proof, Refusal> {
    let malformed = || Refusal::Malformed(KIND);
    let token = token.trim();
    if token.len() > MAX_BYTES {
        return Err(malformed());
    }
    let (message, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
    let (header, claims) = message.split_once('.').ok_or_else(malformed)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed());
    let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| malformed())?;
    if !header.crit.is_empty() || !matches!(header.alg.as_str(), "RS256" | "ES256") {
        return Err(Refusal::Unsupported(KIND));
    }
    let signature = decode(signature)?;
    let mut named = keys.0.iter().filter(|key| header.kid.is_none() || key.id.is_none() || key.id == header.kid);
    if !named.any(|key| key.signed(&header.alg, message.as_bytes(), &signature)) {
        return Err(Refusal::Untrusted(KIND));
    }
    let token: Token = serde_json::from_slice(&decode(claims)?).map_err(|_| malformed())?;
    if !ISSUERS.contains(&token.iss.as_str()) {
        return Err(Refusal::Untrusted(KIND));
    }
    if token.aud != audience(binding) {
        return Err(Refusal::OtherRequest(KIND));
    }
    let now = now.as_second();
    if token.exp.saturating_add(LEEWAY) < now || token.iat.saturating_sub(LEEWAY) > now {
        return Err(Refusal::Expired(KIND));
    }
    let Engine { project_id, instance_id, zone } = token.google.compute_engine;
    let attested = Attested::new(KIND, format!("{project_id}/{instance_id}")).ok_or_else(malformed)?;
    let names = vec![format!("{project_id}/{zone}/{instance_id}")];
    Ok(Proof { attested, names, about: None, chain: Vec::new(), usage: &[] })
}
