//! The names and addresses under which a process is reached: they stand in its certificate, and the first is shown.

use std::net::{IpAddr, SocketAddr};

/// Every name for a certificate: what was said by hand, where it listens, this machine's name and the loopback.
#[must_use]
pub fn for_certificate(by_hand: &[String], listens: &[SocketAddr]) -> Vec<String> {
    let mut names: Vec<String> = by_hand.to_vec();
    names.extend(listens.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()));
    names.extend(host_name());
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// The URL that others use for a socket.
#[must_use]
pub fn url(by_hand: &[String], listens: SocketAddr) -> String {
    let host = match by_hand.first() {
        Some(name) => bracketed(name),
        None if listens.ip().is_unspecified() => host_name().unwrap_or_else(|| "127.0.0.1".to_owned()),
        None => bracketed(&listens.ip().to_string()),
    };
    format!("https://{host}:{}", listens.port())
}

/// This machine's name, when it could stand in a certificate.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let fits = !name.is_empty()
        && name.len() < 250
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    fits.then_some(name)
}

fn bracketed(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_said_by_hand_is_shown() {
        let listens: SocketAddr = "0.0.0.0:7443".parse().unwrap();
        assert_eq!(url(&["bc.example.com".to_owned()], listens), "https://bc.example.com:7443");
        assert_eq!(url(&[], "127.0.0.1:1".parse().unwrap()), "https://127.0.0.1:1");
        assert_eq!(url(&[], "[::1]:1".parse().unwrap()), "https://[::1]:1");
    }

    #[test]
    fn a_certificate_names_the_loopback_once() {
        let names = for_certificate(&["localhost".to_owned()], &["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(names.iter().filter(|name| *name == "localhost").count(), 1);
        assert_eq!(names.iter().filter(|name| *name == "127.0.0.1").count(), 1);
    }
}
