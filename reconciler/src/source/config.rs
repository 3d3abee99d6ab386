//! Where a fleet repository is, as people write it, and how it may be reached.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Where the repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On this machine: a work tree, a bare repository, or a folder of one.
    Local(PathBuf),
    /// Somewhere else, reached over https or ssh. The text never holds credentials.
    Remote(String),
}

/// A repository, a branch and a folder: `URL-or-DIR[#branch][:path]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConfig {
    /// Where the repository is.
    pub place: Place,
    /// The branch to follow; `None` is the one that HEAD names when the repository is first seen.
    pub branch: Option<String>,
    /// The folder that holds the fleet, without slashes at its ends; empty for the root.
    pub path: String,
}

/// How a remote repository is reached. `Debug` shows no secret.
#[derive(Clone, Default)]
pub struct GitAccess {
    /// The user for https; `x-access-token` when only a token is given.
    pub user: Option<String>,
    /// The password or token for https.
    pub token: Option<String>,
    /// Certificate authorities for https, PEM, instead of the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// The program for ssh and its arguments.
    pub ssh_command: Option<String>,
}

/// Why a text names no repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSourceError {
    /// Nothing was given.
    #[error("a fleet repository is written URL-or-DIR[#branch][:path]")]
    Empty,
    /// A transport that is never used.
    #[error("{0}:// is not supported; use a directory, https:// or ssh")]
    Scheme(String),
    /// The branch is no branch name.
    #[error("{0:?} is not a branch name")]
    Branch(String),
    /// The folder leaves the repository.
    #[error("{0:?} is not a folder inside a repository")]
    Path(String),
    /// ssh asks for keys, not for a password, and the text is stored and shown.
    #[error("an ssh:// address holds no password; use a key")]
    Password,
    /// The directory has no absolute path.
    #[error("the directory {0:?} has no absolute path")]
    Directory(String),
}

impl SourceConfig {
    /// Reads `URL-or-DIR[#branch][:path]`. A relative directory is taken from the current one. Credentials in an https
    /// URL move into the returned access.
    ///
    /// # Errors
    /// When the text is none of the supported forms.
    pub fn parse(text: &str) -> Result<(Self, GitAccess), ParseSourceError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ParseSourceError::Empty);
        }
        let (place, branch, path) = split(text);
        if let Some(branch) = branch.filter(|branch| !is_branch(branch)) {
            return Err(ParseSourceError::Branch(branch.to_owned()));
        }
        let path = path.unwrap_or_default().trim_matches('/');
        if path.split('/').any(|part| matches!(part, ".." | "." | ".git")) || path.contains("//") || path.contains('\0')
        {
            return Err(ParseSourceError::Path(path.to_owned()));
        }
        let (place, access) = parse_place(place)?;
        Ok((Self { place, branch: branch.map(str::to_owned), path: path.to_owned() }, access))
    }

    /// The place for people and for the database; it holds no credentials.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.place {
            Place::Local(dir) => dir.display().to_string(),
            Place::Remote(url) => url.clone(),
        }
    }
}

impl fmt::Display for SourceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url())?;
        if let Some(branch) = &self.branch {
            write!(f, "#{branch}")?;
        }
        if !self.path.is_empty() {
            write!(f, ":{}", self.path)?;
        }
        Ok(())
    }
}

impl GitAccess {
    /// Adds what the environment says: `BETTER_COMPUTE_GIT_USER`, `BETTER_COMPUTE_GIT_TOKEN`, `BETTER_COMPUTE_GIT_CA` (a PEM
    /// file) and `BETTER_COMPUTE_GIT_SSH` (a command). For the mains; it takes precedence over what a URL says.
    ///
    /// # Errors
    /// When the file of certificate authorities cannot be read.
    pub fn with_env(self) -> std::io::Result<Self> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let ca_pem = var("BETTER_COMPUTE_GIT_CA").map(std::fs::read).transpose()?;
        Ok(Self {
            user: var("BETTER_COMPUTE_GIT_USER").or(self.user),
            token: var("BETTER_COMPUTE_GIT_TOKEN").or(self.token),
            ca_pem: ca_pem.or(self.ca_pem),
            ssh_command: var("BETTER_COMPUTE_GIT_SSH").or(self.ssh_command),
        })
    }

    /// A text that may quote what was sent, without the secrets in it.
    pub(super) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(token) = self.token.as_deref().filter(|token| !token.is_empty()) {
            text = text.replace(token, "***");
        }
        redact_userinfo(&text)
    }
}

impl fmt::Debug for GitAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitAccess")
            .field("user", &self.user)
            .field("token", &self.token.as_ref().map(|_| "***"))
            .field("ca_pem", &self.ca_pem.as_ref().map(Vec::len))
            .field("ssh_command", &self.ssh_command)
            .finish()
    }
}

/// Splits at the `#` of the branch; the folder follows the branch, or stands after a `:` that is no part of a URL.
fn split(text: &str) -> (&str, Option<&str>, Option<&str>) {
    if let Some((place, rest)) = text.rsplit_once('#') {
        let (branch, path) = rest.split_once(':').map_or((rest, None), |(branch, path)| (branch, Some(path)));
        return (place, Some(branch).filter(|branch| !branch.is_empty()), path);
    }
    // The colons of `https://`, of a port and of `host:repo` are not ours.
    let after = if let Some(scheme) = text.find("://") {
        let authority = scheme + 3;
        text[authority..].find('/').map_or(text.len(), |slash| authority + slash)
    } else if is_scp_like(text) {
        text.find(':').map_or(0, |colon| colon + 1)
    } else {
        0
    };
    match text[after..].rfind(':') {
        Some(colon) => (&text[..after + colon], None, Some(&text[after + colon + 1..])),
        None => (text, None, None),
    }
}

/// `user@host:path`: what ssh users write. A directory that is meant begins with `/`, `.` or has no `@`.
fn is_scp_like(text: &str) -> bool {
    text.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/'))
}

fn parse_place(text: &str) -> Result<(Place, GitAccess), ParseSourceError> {
    if let Some((scheme, rest)) = text.split_once("://") {
        return match scheme {
            "file" => Ok((Place::Local(absolute(rest)?), GitAccess::default())),
            "ssh" if rest.split('/').next().is_some_and(has_password) => Err(ParseSourceError::Password),
            "ssh" => Ok((Place::Remote(text.to_owned()), GitAccess::default())),
            "https" => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let (userinfo, host) =
                    authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
                // What stands alone is a token as often as a user, and only one of the two may be shown.
                let filled = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
                let (user, token) = match userinfo.map(|info| info.split_once(':').unwrap_or(("", info))) {
                    Some((user, token)) => (filled(user), filled(token)),
                    None => (None, None),
                };
                Ok((Place::Remote(format!("https://{host}/{path}")), GitAccess { user, token, ..GitAccess::default() }))
            }
            other => Err(ParseSourceError::Scheme(other.chars().take(20).collect())),
        };
    }
    if is_scp_like(text) {
        return Ok((Place::Remote(text.to_owned()), GitAccess::default()));
    }
    Ok((Place::Local(absolute(text)?), GitAccess::default()))
}

/// Whether an authority has a `user:password@` before its host.
fn has_password(authority: &str) -> bool {
    authority.rsplit_once('@').is_some_and(|(userinfo, _)| userinfo.contains(':'))
}

fn absolute(text: &str) -> Result<PathBuf, ParseSourceError> {
    std::path::absolute(Path::new(text)).map_err(|_| ParseSourceError::Directory(text.to_owned()))
}

pub(super) fn is_branch(name: &str) -> bool {
    !name.starts_with('-') && gix::validate::reference::name(format!("refs/heads/{name}").as_str().into()).is_ok()
}

/// Hides `user:password@` in whatever looks like a URL.
fn redact_userinfo(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        out.push_str(head);
        let end = tail.find(|c: char| c == '/' || c.is_whitespace() || c == '"').unwrap_or(tail.len());
        match tail[..end].rfind('@') {
            Some(sign) => {
                out.push_str("***");
                rest = &tail[sign..];
            }
            None => rest = tail,
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SourceConfig {
        SourceConfig::parse(text).expect(text).0
    }

    #[test]
    fn every_form_is_read() {
        let remote = |url: &str| Place::Remote(url.to_owned());
        let local = |dir: &str| Place::Local(PathBuf::from(dir));
        for (text, place, branch, path) in [
            ("/srv/fleet", local("/srv/fleet"), None, ""),
            ("/srv/fleet#main", local("/srv/fleet"), Some("main"), ""),
            ("/srv/fleet#main:eu/prod", local("/srv/fleet"), Some("main"), "eu/prod"),
            ("/srv/fleet:eu/", local("/srv/fleet"), None, "eu"),
            ("file:///srv/fleet.git", local("/srv/fleet.git"), None, ""),
            ("https://git.example/a/b.git", remote("https://git.example/a/b.git"), None, ""),
            ("https://git.example:8443/a/b.git#x/y:p", remote("https://git.example:8443/a/b.git"), Some("x/y"), "p"),
            ("https://git.example:8443/a/b.git:p", remote("https://git.example:8443/a/b.git"), None, "p"),
            ("git@git.example:a/b.git", remote("git@git.example:a/b.git"), None, ""),
            ("git@git.example:a/b.git:p", remote("git@git.example:a/b.git"), None, "p"),
            ("ssh://git@git.example:22/a#main", remote("ssh://git@git.example:22/a"), Some("main"), ""),
        ] {
            let parsed = parse(text);
            assert_eq!(
                (&parsed.place, parsed.branch.as_deref(), parsed.path.as_str()),
                (&place, branch, path),
                "{text}"
            );
            assert_eq!(parse(&parsed.to_string()), parsed, "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            " ",
            "git://host/a",
            "http://host/a",
            "ext::sh -c x#..",
            "/srv#a..b",
            "/srv#-x",
            "/srv#main:../x",
            "/srv#main:.git",
            "ssh://git:s3cret@git.example/a",
        ] {
            assert!(SourceConfig::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_of_a_url_are_kept_apart_and_never_shown() {
        let (config, access) = SourceConfig::parse("https://bot:s3cret@git.example/a.git#main").expect("parses");
        assert_eq!(config.to_string(), "https://git.example/a.git#main");
        assert_eq!((access.user.as_deref(), access.token.as_deref()), (Some("bot"), Some("s3cret")));
        assert!(!format!("{access:?} {config:?}").contains("s3cret"));
        let said = access.redact("fetch https://bot:s3cret@git.example/a failed: token s3cret is bad");
        assert_eq!(said, "fetch https://***@git.example/a failed: token *** is bad");

        let (_, access) = SourceConfig::parse("https://s3cret@git.example/a.git").expect("parses");
        assert_eq!((access.user.as_deref(), access.token.as_deref()), (None, Some("s3cret")));
        assert!(!format!("{access:?}").contains("s3cret") && !access.redact("token s3cret").contains("s3cret"));
        let (_, access) = SourceConfig::parse("https://bot:@git.example/a.git").expect("parses");
        assert_eq!((access.user.as_deref(), access.token.as_deref()), (Some("bot"), None));
    }
}
