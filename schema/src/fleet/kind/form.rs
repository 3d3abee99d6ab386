//! The forms of texts: addresses, paths, names of files and units. Each says what was expected.

use std::net::IpAddr;

use crate::{
    diagnostic::{Code, codes, shown},
    fleet::{Located, decode::Findings},
    letter::turns,
};

/// Keeps a text that has a form, and reports one that has not.
pub(in crate::fleet) fn keep(
    text: Option<Located<String>>,
    expected: &str,
    form: impl Fn(&str) -> bool,
    findings: &mut Findings<'_>,
) -> Option<Located<String>> {
    let text = text?;
    if form(&text) {
        return Some(text);
    }
    refuse(codes::BAD_VALUE, &text, expected, findings);
    None
}

/// Reports a text that does not have a form.
pub(in crate::fleet) fn refuse(code: Code, text: &Located<String>, expected: &str, findings: &mut Findings<'_>) {
    let shown = shown(text);
    let diagnostic =
        findings.at(code, text.at.span, format!("{shown:?} is not {expected}")).label(format!("expected {expected}"));
    findings.push(diagnostic);
}

/// A DNS name of lower-case labels.
pub(in crate::fleet) fn domain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(|label| crate::name::Name::new(label).is_ok())
}

/// `host:port`, the host a DNS name or an address.
pub(in crate::fleet) fn endpoint(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (domain(host) || address.parse::<IpAddr>().is_ok())
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && !port.starts_with('+')
}

/// An address.
pub(in crate::fleet) fn address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}

/// An address range, `10.20.0.0/16`.
pub(in crate::fleet) fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    length.parse::<u8>().is_ok_and(|length| length <= most) && !length.starts_with('+')
}

/// Whether an address lies in a range, both of which were checked.
pub(in crate::fleet) fn within(address: &str, cidr: &str) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, true),
        IpAddr::V6(address) => (address.to_bits(), false),
    };
    let Some((range, length)) = cidr.split_once('/') else { return false };
    let (Ok(address), Ok(range), Ok(length)) = (address.parse(), range.parse(), length.parse::<u32>()) else {
        return false;
    };
    let ((address, short), (range, four)) = (bits(address), bits(range));
    short == four && (address ^ range).leading_zeros() >= length
}

/// The key of a label.
pub(in crate::fleet) fn label_key(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    !text.is_empty() && text.len() <= 128 && text.bytes().all(inner)
}

/// A text on one line.
pub(in crate::fleet) fn line(text: &str) -> bool {
    !text.is_empty() && text.len() <= 4096 && !text.chars().any(|letter| letter.is_control() || turns(letter))
}

/// A dotted kernel parameter, `net.core.somaxconn`; slashes stand for dots inside a component as sysctl has it.
pub(in crate::fleet) fn sysctl_key(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part != ".."
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'/' | b':' | b'@'))
    };
    text.len() <= 256
        && text.contains('.')
        && text.split('.').all(part)
        && !text.starts_with('/')
        && !text.contains("..")
}

/// A kernel module's name.
pub(in crate::fleet) fn module(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// A kernel argument: one word with nothing that a shell would expand.
pub(in crate::fleet) fn kernel_arg(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"'`$\\!".contains(&byte);
    !text.is_empty() && text.len() <= 500 && text.bytes().all(plain)
}

/// A user or group: a name or a number.
pub(in crate::fleet) fn account(text: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u32>().is_ok();
    let named = text.len() <= 32
        && text.bytes().next().is_some_and(first)
        && text.bytes().all(|byte| first(byte) || byte.is_ascii_digit() || byte == b'-');
    numeric || named
}

/// An absolute path without `.`, `..`, doubled or trailing slashes.
pub(in crate::fleet) fn path(text: &str) -> bool {
    text.len() <= 4096
        && text.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && part.len() <= 255)
        })
        && !text.chars().any(char::is_control)
}

/// A pattern of paths below the fleet's root.
pub(in crate::fleet) fn pattern(text: &str) -> bool {
    line(text) && text.trim_matches('/').split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether a spec may put a file there: no tree of the kernel, and nothing that the node daemon writes itself.
pub(in crate::fleet) fn manageable(text: &str) -> bool {
    const RESERVED: [&str; 5] = ["/proc", "/sys", "/dev", "/var/lib/bcd", "/etc/ssh/better-compute"];
    let under = |tree: &&str| text.strip_prefix(*tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let own = text.rsplit_once('/').is_some_and(|(_, name)| name.starts_with("60-better-compute"));
    !RESERVED.iter().any(under) && !own && !crate::unit::is_daemon_file(text)
}

/// A systemd unit's name with its suffix.
pub(in crate::fleet) fn unit(text: &str) -> bool {
    const ENDS: [&str; 8] = ["service", "socket", "timer", "mount", "path", "target", "slice", "automount"];
    text.len() <= 200
        && !text.starts_with(['.', '-', '@'])
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b':' | b'\\'))
        && text.rsplit_once('.').is_some_and(|(stem, end)| !stem.is_empty() && ENDS.contains(&end))
}

/// A Debian or RPM package's name.
pub(in crate::fleet) fn package(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+');
    !text.is_empty() && text.len() <= 128 && text.bytes().all(inner) && text.as_bytes()[0].is_ascii_alphanumeric()
}

/// A package's version, with `*` for the rest of it.
pub(in crate::fleet) fn version(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'+' | b':' | b'~');
    !text.is_empty() && text.len() <= 128 && text.strip_suffix('*').unwrap_or(text).bytes().all(inner)
}

/// File permissions as four octal digits; three are completed.
pub(in crate::fleet) fn mode(text: &str) -> Option<String> {
    let octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    octal.then(|| format!("{text:0>4}"))
}

/// A MAC address in lower case.
pub(in crate::fleet) fn mac(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase().replace('-', ":");
    let parts: Vec<&str> = lower.split(':').collect();
    let good = parts.len() == 6
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    good.then_some(lower)
}

/// An SSH public key without its comment: type and base64.
pub(in crate::fleet) fn ssh_key(text: &str) -> Option<String> {
    const KINDS: [&str; 7] = [
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
        "ssh-rsa",
    ];
    let mut parts = text.split_ascii_whitespace();
    let (kind, body) = (parts.next()?, parts.next()?);
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let good = KINDS.contains(&kind)
        && body.len() >= 40
        && body.len() % 4 == 0
        && body.starts_with("AAAA")
        && body.bytes().all(base64);
    (good && line(text)).then(|| format!("{kind} {body}"))
}

/// A place to download from.
pub(in crate::fleet) fn url(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && line(text)
        && !text.contains([' ', '$', '{', '}'])
}

/// An address whose server proves who it is.
pub(in crate::fleet) fn https(text: &str) -> bool {
    url(text) && text.starts_with("https://")
}

/// A version of the daemon: `0.2.0`, `1.4.0-rc.1`.
pub(in crate::fleet) fn release_version(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'+');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(inner) && text.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_take_what_operators_write() {
        assert!(endpoint("gw1.fra1.acme.example:7443") && endpoint("10.0.0.1:7443") && endpoint("[fd00::1]:7443"));
        assert!(
            sysctl_key("net.ipv4.conf.all.rp_filter")
                && sysctl_key("kernel.core_pattern")
                && sysctl_key("net.ipv4.conf.eth0/100.forwarding")
        );
        assert!(kernel_arg("pci=realloc=off") && kernel_arg("console=ttyS0,115200n8"));
        assert!(unit("nvidia-persistenced.service") && unit("getty@tty1.service"));
        assert_eq!(mode("644"), Some("0644".to_owned()));
        assert_eq!(mac("3C-EC-EF-00-00-01"), Some("3c:ec:ef:00:00:01".to_owned()));
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
        assert_eq!(ssh_key(&format!("{key} alice@acme")), Some(key.to_owned()));
    }

    #[test]
    fn forms_refuse_what_would_do_harm() {
        assert!(!path("/etc/../shadow") && !path("etc/motd") && !path("/etc//motd") && !path("/etc/") && !path("/"));
        assert!(!unit("../evil.service") && !unit("a/b.service") && !unit(".service"));
        assert!(!sysctl_key("kernel/../x.y") && !sysctl_key("vm"));
        assert!(!kernel_arg("a b") && !kernel_arg("a=$(b)") && !line("a\nb") && !line("a\u{202e}b"));
        assert!(ssh_key("ssh-ed25519 AAAA\nssh-rsa BBBB").is_none() && mode("999").is_none() && mac("$MAC").is_none());
    }
}
