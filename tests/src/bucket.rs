//! A store that speaks enough of S3 to be given something: one PUT at a time, over TLS, and only with a good signature.
//!
//! The signature (AWS Signature Version 4, in the query) is computed here a second time, from the specification and from
//! nothing that the program uses.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use pki::{
    keys::Keys,
    tls::{ServingCertificate, api_server},
};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use schema::{
    clock::{Clock as _, SystemClock},
    digest::Digest,
};

use crate::World;

const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A running store.
#[derive(Debug)]
pub struct Bucket {
    address: SocketAddr,
    authority: PathBuf,
    credentials: PathBuf,
    objects: Objects,
    refused: Arc<Mutex<Vec<String>>>,
}

impl Bucket {
    /// Starts one. It ends with the test.
    ///
    /// # Panics
    /// When there is no port or no certificate for it.
    #[must_use]
    pub fn start(world: &World) -> Self {
        pki::install_provider();
        let clock = Arc::new(SystemClock);
        let keys = Keys::generate("bucket.local", clock.now()).expect("keys");
        let (authority, credentials) = (world.path("bucket.pem"), world.path("bucket.keys"));
        fs::write(&authority, pki::issue::to_pem(&[keys.root_certificate()])).expect("written");
        fs::write(&credentials, format!("[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"))
            .expect("written");
        fs::set_permissions(&credentials, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
        let identity = keys.issue_serving(&["127.0.0.1".to_owned()], clock.now()).expect("a certificate");
        let mut tls = api_server(ServingCertificate::new(&identity).expect("a certificate"), clock);
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let bucket = Self { address, authority, credentials, objects: Objects::default(), refused: Arc::default() };
        let (objects, refused, tls) = (Arc::clone(&bucket.objects), Arc::clone(&bucket.refused), Arc::new(tls));
        thread::spawn(move || {
            for peer in listener.incoming().flatten() {
                if let Ok(Some(why)) = serve(peer, &tls, &objects) {
                    refused.lock().unwrap_or_else(PoisonError::into_inner).push(why);
                }
            }
        });
        bucket
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The words that make a control plane use it.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        self.words_through(self.address)
    }

    /// The same by way of something that stands before it.
    #[must_use]
    pub fn words_through(&self, address: SocketAddr) -> Vec<String> {
        let credentials = self.credentials.display().to_string();
        let endpoint = format!("https://{address}");
        let words = ["--logs-bucket", "bundles", "--logs-endpoint", &endpoint, "--logs-credentials", &credentials];
        words.map(str::to_owned).to_vec()
    }

    /// The authority of its certificate, as the environment of a daemon names it.
    #[must_use]
    pub fn trust(&self) -> (String, String) {
        ("SSL_CERT_FILE".to_owned(), self.authority.display().to_string())
    }

    /// What it was given, by its whole name.
    #[must_use]
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why it took something not.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The secret that nobody but the control plane may see.
    #[must_use]
    pub const fn secret() -> &'static str {
        SECRET
    }
}

/// Takes one request; why it was refused, when it was.
fn serve(peer: TcpStream, tls: &Arc<ServerConfig>, objects: &Objects) -> io::Result<Option<String>> {
    let connection = ServerConnection::new(Arc::clone(tls)).map_err(io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, peer));
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let lines = head.iter().skip(1).filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let judged = judge(&head[0], &header("host").unwrap_or_default());
    let answer = match &judged {
        Ok(_) => "200 OK",
        Err(_) => "403 Forbidden",
    };
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    stream.flush()?;
    stream.conn.send_close_notify();
    stream.flush()?;
    match judged {
        Ok(object) => {
            objects.lock().unwrap_or_else(PoisonError::into_inner).insert(object, body);
            Ok(None)
        }
        Err(why) => Ok(Some(why)),
    }
}

/// The object that a request puts, when its signature is good and its time is not over.
fn judge(request: &str, host: &str) -> Result<String, String> {
    let mut words = request.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').ok_or("no query")?;
    let fields: BTreeMap<&str, &str> = query.split('&').filter_map(|field| field.split_once('=')).collect();
    let field = |name: &str| fields.get(name).copied().ok_or_else(|| format!("no {name}"));
    if (method, field("X-Amz-Algorithm")?, field("X-Amz-SignedHeaders")?) != ("PUT", "AWS4-HMAC-SHA256", "host") {
        return Err(format!("{method} with another kind of signature"));
    }
    let credential = field("X-Amz-Credential")?.replace("%2F", "/");
    let (key, scope) = credential.split_once('/').ok_or("no scope")?;
    let (date, good_for) = (field("X-Amz-Date")?, field("X-Amz-Expires")?);
    let since = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", date).map_err(|error| error.to_string())?;
    let since = since.to_zoned(jiff::tz::TimeZone::UTC).map_err(|error| error.to_string())?.timestamp();
    let age = SystemClock.now().duration_since(since).as_secs();
    if key != KEY || !(-60..good_for.parse::<i64>().unwrap_or(0)).contains(&age) {
        return Err(format!("the key {key}, {age} s old"));
    }
    let rest: Vec<String> = fields
        .iter()
        .filter(|(name, _)| **name != "X-Amz-Signature")
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let canonical = format!("{method}\n{path}\n{}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD", rest.join("&"));
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", in_hex(Digest::of(canonical).as_bytes()));
    let derived = scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let expected = in_hex(&mac(&derived, text.as_bytes()));
    if field("X-Amz-Signature")? == expected {
        Ok(path.to_owned())
    } else {
        Err("the signature is another one".to_owned())
    }
}

/// HMAC with SHA-256 (RFC 2104).
fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let with = |pad: u8, text: &[u8]| {
        let padded: Vec<u8> = block.iter().map(|byte| byte ^ pad).chain(text.iter().copied()).collect();
        Digest::of(padded).as_bytes().to_vec()
    };
    with(0x5c, &with(0x36, text))
}

fn in_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_that_of_the_specification() {
        // RFC 4231, test case 2.
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(in_hex(&mac(b"Jefe", b"what do ya want for nothing?")), expected);
    }

    #[test]
    fn a_request_without_a_good_signature_puts_nothing() {
        for request in ["PUT /x HTTP/1.1", "GET /x?a=b HTTP/1.1", "PUT /x?X-Amz-Algorithm=AWS4-HMAC-SHA256 HTTP/1.1"] {
            assert!(judge(request, "h").is_err(), "{request}");
        }
    }
}
