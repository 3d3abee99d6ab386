//! Machines that prove what they are: certificates, a TPM and a cloud's documents, with real programs on both sides.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Command,
    thread,
};

use serde_json::Value;
use tests::{Node, Repo, Tpm, Up, World, until_some};

/// Runs `openssl` in a directory.
fn openssl(dir: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(arguments).current_dir(dir).output().expect("openssl runs");
    assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// An authority that certifies machines, `ca.pem` in a directory of its own.
fn authority(world: &World) -> std::path::PathBuf {
    let dir = world.path("authority");
    std::fs::create_dir_all(&dir).expect("a directory");
    let ca =
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ours"];
    openssl(&dir, &[&ca[..], &["-days", "30", "-addext", "basicConstraints=critical,CA:true"]].concat());
    dir
}

/// A certificate `NAME.pem` of a key that is made, or of one that is there.
fn certify(dir: &Path, name: &str, extensions: &str, public: Option<&Path>) {
    let file = |ending: &str| format!("{name}.{ending}");
    let curve = ["-pkeyopt", "ec_paramgen_curve:P-256"];
    let request =
        ["req", "-newkey", "ec", "-nodes", "-keyout", &file("key"), "-out", &file("csr"), "-subj", "/CN=machine"];
    openssl(dir, &[&request[..], &curve].concat());
    std::fs::write(dir.join(file("ext")), extensions).expect("a file");
    let sign =
        ["x509", "-req", "-in", &file("csr"), "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30"];
    let key = public.map(|key| key.display().to_string());
    let key: Vec<&str> = key.iter().flat_map(|key| ["-force_pubkey", key.as_str()]).collect();
    openssl(dir, &[&sign[..], &["-out", &file("pem"), "-extfile", &file("ext")], &key].concat());
}

/// The pool `h100` with a rule.
fn rule(repo: &Repo, kind: &str, words: &str, certificates: &str) -> String {
    let roots = certificates.lines().map(|line| format!("      {line}\n")).collect::<String>();
    let rule =
        format!("  attest \"{kind}\" {{\n    {words}\n    roots \"\"\"\n{roots}      \"\"\"\n  }}\n\n  policy {{\n");
    repo.replace("pools/h100.kdl", "  policy {\n", &rule);
    repo.commit("machines come in by what they prove")
}

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).expect("a file")
}

/// The one join that stands in this state.
fn join_in(up: &Up, state: &str) -> Value {
    until_some("a join waits for somebody", || {
        let joins = up.cli().json(&["joins", "--format", "json"]);
        joins["joins"].as_array()?.iter().find(|join| join["state"] == state).cloned()
    })
}

fn attested(up: &Up, node: &str) -> String {
    up.node(node)["identity"]["attested"][0].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_machine_with_a_certificate_of_the_pools_authority_needs_no_token() {
    let world = World::new();
    let dir = authority(&world);
    certify(&dir, "r12", "subjectAltName=DNS:r12.racks.acme.example\n", None);
    certify(&dir, "r13", "subjectAltName=DNS:r13.elsewhere.example\n", None);
    let repo = Repo::of_examples(&world, "fleet");
    let head = rule(&repo, "x509", "only \"*.racks.acme.example\"", &read(&dir, "ca.pem"));
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&head);

    let file = |name: &str| dir.join(name).display().to_string();
    let with = |node: &Node, certificate: &str, key: &str| {
        let arguments = ["--attest", "x509", "--x509-certificate", &file(certificate), "--x509-key", &file(key)];
        node.prove(&up.gateway_url(), &up.pin(), &arguments)
    };
    let mut node = Node::new(&world, "r12");
    let (code, words) = with(&node, "r12.pem", "r13.key");
    assert_ne!(code, 0);
    assert!(words.contains("attestation-not-proven"), "{words}");
    let (code, words) = with(&node, "r12.pem", "r12.key");
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("pool h100"), "{words}");
    node.run(&[]);
    up.wait_converged(&head, 1);
    let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    assert!(attested(&up, &name).starts_with("x509:sha256:"), "{}", up.node(&name));
    assert!(up.cli().ok(&["get", "nodes", &name]).contains("x509:sha256:"));

    // The same certificate on another machine, and one that the pool does not name, wait for a person.
    let (second, third) = (Node::new(&world, "copy"), Node::new(&world, "r13"));
    let arguments = |name: &str| {
        let words = ["--attest", "x509", "--x509-certificate", &file(&format!("{name}.pem")), "--x509-key"];
        words.into_iter().map(str::to_owned).chain([file(&format!("{name}.key"))]).collect::<Vec<_>>()
    };
    let _second = second.proving(&up.gateway_url(), &up.pin(), &arguments("r12"));
    let held = join_in(&up, "held");
    assert_eq!(held["reason"], "attested-elsewhere");
    let _third = third.proving(&up.gateway_url(), &up.pin(), &arguments("r13"));
    assert_eq!(join_in(&up, "waiting")["reason"], "attestation-unknown");
}

#[test]
fn a_machine_with_a_tpm_waits_for_its_document_and_comes_in_by_itself() {
    let world = World::new();
    let Some(tpm) = Tpm::start(&world, "tpm") else { return };
    let repo = Repo::of_examples(&world, "fleet");
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&repo.head());
    let node = Node::new(&world, "one");
    let arguments = ["--attest", "tpm", "--tpm", &tpm.tcti()].map(str::to_owned);
    let mut joining = node.proving(&up.gateway_url(), &up.pin(), &arguments);
    let waiting = join_in(&up, "waiting");
    assert_eq!(waiting["reason"], "attestation-unknown", "{}", joining.log());
    let id = waiting["id"].as_str().expect("an id");
    let shown = up.cli().ok(&["joins", "show", id]);
    let document = &shown[shown.find("node \"").expect("a document")..];
    let named = document.lines().find(|line| line.contains("attested \"tpm:sha256:")).expect("what it proved");
    repo.write("nodes/one.kdl", format!("node \"fra1-r01\" {{\n  pool \"h100\"\n{named}\n}}\n"));
    let head = repo.commit("the machine is ours");
    up.wait_applied(&head);
    until_some("the machine is in", || joining.ended());
    let log = joining.log();
    assert!(log.contains("joined as fra1-r01"), "{log}");
    let known = attested(&up, "fra1-r01");
    assert!(named.contains(&known) && known.starts_with("tpm:"), "{known} is not in {named}");

    // It is what anybody can compute from the endorsement key.
    tpm.tool("tpm2_createek", &["-c", "ek.ctx", "-G", "rsa", "-f", "pem", "-u", "ek.pem"]);
    openssl(tpm.dir(), &["pkey", "-pubin", "-in", "ek.pem", "-outform", "DER", "-out", "ek.der"]);
    let digest = String::from_utf8(openssl(tpm.dir(), &["dgst", "-sha256", "-r", "ek.der"])).expect("a text");
    assert_eq!(known, format!("tpm:sha256:{}", &digest[..64]));
}

#[test]
fn a_pool_that_wants_real_tpms_believes_their_maker_and_nobody_else() {
    let world = World::new();
    let (Some(tpm), Some(fake)) = (Tpm::start(&world, "tpm"), Tpm::start(&world, "fake")) else { return };
    let dir = authority(&world);
    tpm.tool("tpm2_createek", &["-c", "ek.ctx", "-G", "rsa", "-f", "pem", "-u", "ek.pem"]);
    certify(&dir, "ek", "extendedKeyUsage=2.23.133.8.1\n", Some(&tpm.dir().join("ek.pem")));
    openssl(&dir, &["x509", "-in", "ek.pem", "-outform", "DER", "-out", "ek.der"]);
    let der = std::fs::read(dir.join("ek.der")).expect("a certificate");
    let padded = tpm.dir().join("nv");
    std::fs::write(&padded, [der.as_slice(), &[0xff; 100]].concat()).expect("a file");
    let size = (der.len() + 100).to_string();
    let rights = "ppwrite|ppread|ownerread|authread|no_da|platformcreate";
    tpm.tool("tpm2_nvdefine", &["-C", "p", "-s", &size, "-a", rights, "0x01c00002"]);
    tpm.tool("tpm2_nvwrite", &["-C", "p", "-i", "nv", "0x01c00002"]);

    let repo = Repo::of_examples(&world, "fleet");
    let head = rule(&repo, "tpm", "required", &read(&dir, "ca.pem"));
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&head);
    let token = up.token("h100", 1);
    let join = |node: &Node, arguments: &[&str]| node.prove_with(&up.gateway_url(), &up.pin(), Some(&token), arguments);
    let node = Node::new(&world, "one");
    let (code, words) = join(&node, &[]);
    assert_ne!(code, 0);
    assert!(words.contains("attestation-required") && words.contains("--attest tpm"), "{words}");
    let (code, words) = join(&node, &["--attest", "tpm", "--tpm", &fake.tcti()]);
    assert_ne!(code, 0);
    assert!(words.contains("attestation-required"), "{words}");
    let (code, words) = join(&node, &["--attest", "tpm", "--tpm", &tpm.tcti()]);
    assert_eq!(code, 0, "{words}");
}

/// What a TPM reads from a credential, or that it does not.
fn activated(tpm: &Tpm, credential: &pki::attest::tpm::Credential) -> Option<Vec<u8>> {
    let file = [&[0xba, 0xdc, 0xc0, 0xde, 0, 0, 0, 1][..], &credential.blob, &credential.secret].concat();
    std::fs::write(tpm.dir().join("credential"), file).expect("a file");
    tpm.tool("tpm2_startauthsession", &["--policy-session", "-S", "session"]);
    tpm.tool("tpm2_policysecret", &["-S", "session", "-c", "e"]);
    let keys = ["-c", "ak.ctx", "-C", "ek.ctx", "-i", "credential", "-o", "secret", "-P", "session:session"];
    let read = tpm.tries("tpm2_activatecredential", &keys);
    tpm.tool("tpm2_flushcontext", &["session"]);
    read.then(|| std::fs::read(tpm.dir().join("secret")).expect("a secret"))
}

#[test]
fn a_tpm_reads_what_is_made_for_both_of_its_keys_and_nothing_else() {
    let world = World::new();
    let Some(tpm) = Tpm::start(&world, "tpm") else { return };
    let public = |name: &str| std::fs::read(tpm.dir().join(name)).expect("a public area");
    for algorithm in ["rsa", "ecc"] {
        tpm.tool("tpm2_createek", &["-c", "ek.ctx", "-G", algorithm, "-u", "ek.pub"]);
        let attestation = ["-C", "ek.ctx", "-G", "ecc", "-g", "sha256", "-s", "ecdsa"];
        tpm.tool("tpm2_createak", &[&attestation[..], &["-c", "other.ctx", "-u", "other.pub"]].concat());
        tpm.tool("tpm2_createak", &[&attestation[..], &["-c", "ak.ctx", "-u", "ak.pub"]].concat());
        let secret = [0x5a; 32];
        let made = |attestation: &str| {
            let keys = pki::attest::tpm::Keys { endorsement: public("ek.pub"), attestation: public(attestation) };
            pki::attest::tpm::credential(&keys, &secret).expect("made")
        };
        assert_eq!(activated(&tpm, &made("ak.pub")).as_deref(), Some(secret.as_slice()), "{algorithm}");
        assert_eq!(activated(&tpm, &made("other.pub")), None, "{algorithm}");
    }
}

/// A metadata service that answers each path with a document.
fn metadata(document: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).take(16_384).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())).for_each(drop);
            let body = if first.starts_with("PUT ") { "a-token" } else { document.as_str() };
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).ok();
        }
    });
    address
}

#[test]
fn an_instance_of_the_right_account_comes_in_once() {
    let world = World::new();
    let dir = authority(&world);
    let instance = r#"{"accountId":"123456789012","instanceId":"i-0abc","region":"eu-central-1","imageId":"ami-1"}"#;
    std::fs::write(dir.join("document"), instance).expect("a file");
    let sign = [
        "cms",
        "-sign",
        "-binary",
        "-nodetach",
        "-nocerts",
        "-stream",
        "-indef",
        "-signer",
        "ca.pem",
        "-inkey",
        "ca.key",
    ];
    openssl(&dir, &[&sign[..], &["-in", "document", "-outform", "DER", "-out", "document.p7"]].concat());
    openssl(&dir, &["base64", "-in", "document.p7", "-out", "document.b64"]);
    let metadata = metadata(read(&dir, "document.b64"));

    let repo = Repo::of_examples(&world, "fleet");
    let head = rule(&repo, "aws", "only \"123456789012/*\"", &read(&dir, "ca.pem"));
    let up = Up::start(&world, "up", repo.dir());
    up.wait_applied(&head);
    let arguments = ["--attest", "aws", "--metadata", &metadata];
    let (code, words) = Node::new(&world, "one").prove(&up.gateway_url(), &up.pin(), &arguments);
    assert_eq!(code, 0, "{words}");
    let name = up.nodes()[0]["name"].as_str().expect("a name").to_owned();
    assert_eq!(attested(&up, &name), "aws:123456789012/i-0abc");
    let thief = Node::new(&world, "thief");
    let _thief = thief.proving(&up.gateway_url(), &up.pin(), &arguments.map(str::to_owned));
    assert_eq!(join_in(&up, "held")["reason"], "attested-elsewhere");
}
