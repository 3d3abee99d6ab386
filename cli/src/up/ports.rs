//! Ports that are left open keep their numbers: what machines, hints and people know of a control plane holds after a restart.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::exit::Failure;

/// Listens at an address. Where its port is left open (`:0`), it is the one of the last time, as long as nobody else has it;
/// `last` is the URL under which that was reached.
///
/// # Errors
/// When the address cannot be had.
pub async fn bind(address: SocketAddr, last: Option<&str>, what: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let port = last.filter(|_| address.port() == 0).and_then(|url| url.rsplit_once(':')?.1.parse().ok());
    if let Some(port) = port
        && let Ok(bound) = listen(SocketAddr::new(address.ip(), port), what).await
    {
        return Ok(bound);
    }
    listen(address, what).await
}

/// Listens at an address.
///
/// # Errors
/// When it is taken, or not ours to take.
pub async fn listen(address: SocketAddr, what: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error: std::io::Error| {
        let failure = Failure::because(format!("cannot listen on {address} for the {what}"), &error);
        if error.kind() == std::io::ErrorKind::AddrInUse {
            return failure.hint(format!(
                "another process has that port; choose one with --listen-{what}, or 127.0.0.1:0 for any free one"
            ));
        }
        failure
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_was_left_open_is_the_same_again_unless_somebody_has_it() {
        let open: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let (first, at) = bind(open, None, "api").await.unwrap();
        let url = format!("https://compute.example.com:{}", at.port());
        let (_other, elsewhere) = bind(open, Some(&url), "api").await.unwrap();
        assert_ne!(elsewhere, at, "the port is taken");
        drop(first);
        let (_again, same) = bind(open, Some(&url), "api").await.unwrap();
        assert_eq!(same, at);
        let (_none, _) = bind(open, Some("nonsense"), "api").await.unwrap();
    }
}
