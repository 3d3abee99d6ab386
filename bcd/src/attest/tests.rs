//! Facts about what a machine shows, with metadata services on this machine.

use std::sync::{Arc, Mutex};

use pki::{csr::Csr, keys::Keys, node_key::NodeKey};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

/// Answers every request with the next of these bodies, and keeps the requests.
async fn service(bodies: Vec<(u16, &'static str)>) -> (Metadata, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        for (status, body) in bodies {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.expect("a request"));
            }
            heard.lock().expect("whole").push(String::from_utf8(request).expect("a text").to_ascii_lowercase());
            let answer =
                format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await.expect("answered");
        }
    });
    (base.parse().expect("this machine"), asked)
}

fn plane() -> Keys {
    pki::install_provider();
    Keys::generate("bc.local", crate::testing::now()).expect("keys")
}

/// What the control plane gets.
async fn shown(keys: &Keys, attest: &Attest) -> Result<(Csr, pb::JoinEvidence, Vec<u8>), AttestError> {
    let scratch = tempfile::tempdir().expect("a directory");
    let request = NodeKey::generate().request();
    let csr = Csr::parse(&request).expect("a request");
    let gathering = attest.begin(scratch.path()).await?;
    let challenge = pb::JoinChallengeResponse { challenge: b"challenge".to_vec(), tpm: None };
    assert_eq!(gathering.challenge(&request).csr_hash, csr.hash().as_bytes());
    let Shown { evidence, challenge } = gathering.show(&keys.anchor("fleet-one"), &request, challenge).await?;
    let pb::SealedToken { key_id, encapsulated_key, ciphertext } = evidence;
    let sealed = sealed::SealedToken { key_id, encapsulated_key, ciphertext };
    let opened = keys.join_keys()[0].open_evidence(&sealed, csr.hash(), "fleet-one").expect("sealed for it");
    Ok((csr, pb::JoinEvidence::decode(opened.as_slice()).expect("evidence"), challenge))
}

fn of(kind: AttestKind, metadata: Metadata) -> Attest {
    Attest { kinds: [kind].into(), metadata, ..Attest::default() }
}

#[tokio::test]
async fn aws_is_asked_with_a_token_of_its_own() {
    let (metadata, asked) = service(vec![(200, "session-token"), (200, "MIAG")]).await;
    let (_, evidence, _) = shown(&plane(), &of(AttestKind::Aws, metadata)).await.expect("shown");
    assert_eq!(evidence, pb::JoinEvidence { aws: "MIAG".to_owned(), ..Default::default() });
    let asked = asked.lock().expect("whole");
    assert!(asked[0].starts_with("put /latest/api/token "), "{}", asked[0]);
    assert!(asked[1].starts_with("get /latest/dynamic/instance-identity/rsa2048 "), "{}", asked[1]);
    assert!(asked[1].contains("x-aws-ec2-metadata-token: session-token"), "{}", asked[1]);
}

#[tokio::test]
async fn google_is_asked_for_an_audience_that_names_the_request() {
    let (metadata, asked) = service(vec![(200, "a.b.c")]).await;
    let keys = plane();
    let (csr, evidence, challenge) = shown(&keys, &of(AttestKind::Gcp, metadata)).await.expect("shown");
    assert_eq!(evidence.gcp, "a.b.c");
    let realm = keys.anchor("fleet-one").realm();
    let audience = gcp::audience(&Binding { realm: &realm, csr: csr.hash(), challenge: &challenge });
    let asked = asked.lock().expect("whole");
    assert!(asked[0].contains(&format!("?audience={audience}&format=full ")), "{}", asked[0]);
    assert!(asked[0].contains("metadata-flavor: google"), "{}", asked[0]);
}

#[tokio::test]
async fn azure_is_asked_with_a_nonce_that_names_the_request() {
    let (metadata, asked) = service(vec![(200, r#"{"encoding":"pkcs7","signature":"MIIE"}"#)]).await;
    let keys = plane();
    let (csr, evidence, challenge) = shown(&keys, &of(AttestKind::Azure, metadata)).await.expect("shown");
    assert_eq!(evidence.azure, "MIIE");
    let realm = keys.anchor("fleet-one").realm();
    let nonce = azure::nonce(&Binding { realm: &realm, csr: csr.hash(), challenge: &challenge });
    let asked = asked.lock().expect("whole");
    assert!(asked[0].contains(&format!("&nonce={nonce} ")), "{}", asked[0]);
    assert!(asked[0].contains("metadata: true"), "{}", asked[0]);
}

#[tokio::test]
async fn a_service_that_refuses_or_says_something_else_is_named() {
    let (metadata, _) = service(vec![(404, "no")]).await;
    let error = shown(&plane(), &of(AttestKind::Gcp, metadata)).await.expect_err("refused");
    assert!(
        matches!(&error, AttestError::Metadata { kind: AttestKind::Gcp, why, .. } if why.contains("404")),
        "{error}"
    );
    let (metadata, _) = service(vec![(200, "<html>")]).await;
    let error = shown(&plane(), &of(AttestKind::Azure, metadata)).await.expect_err("refused");
    assert!(matches!(error, AttestError::Metadata { kind: AttestKind::Azure, .. }), "{error}");
}

#[test]
fn nothing_but_this_machine_stands_for_a_metadata_service() {
    for text in [
        "http://10.0.0.1:80",
        "https://127.0.0.1:80",
        "http://127.0.0.1",
        "http://127.0.0.1:80@example.com:80",
        "http://localhost:80",
    ] {
        assert!(text.parse::<Metadata>().is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_certificate_needs_its_files() {
    let attest = Attest { kinds: [AttestKind::X509].into(), ..Attest::default() };
    assert!(matches!(shown(&plane(), &attest).await, Err(AttestError::NoFiles)));
    let gone = Some(("/nowhere/certificate".into(), "/nowhere/key".into()));
    assert!(matches!(shown(&plane(), &Attest { x509: gone, ..attest }).await, Err(AttestError::File { .. })));
}
