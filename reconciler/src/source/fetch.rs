//! Looking at a repository: where the branch stands now, with its objects at hand.
//!
//! A local repository is opened where it is. A remote one is fetched into a bare repository of our own, only the branch
//! that is followed. Blocking; runs on a thread of its own with a deadline and a flag that stops it.

mod beside;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use gix::{
    progress::Discard,
    protocol::{handshake::Ref, transport::client::blocking_io::http},
    remote::{Direction, fetch::Tags},
};
use schema::{digest::Digest, fleet::Sources};

use super::{
    config::{GitAccess, Place, SourceConfig, is_branch},
    git::{GitError, Repo, chain, locate, options},
    tree::read_tree,
};

pub(super) use beside::{Aside, Beside, Bringing};

/// How long a remote may stay silent.
const SILENCE: Duration = Duration::from_secs(30);

/// A branch, where it stands, and the repository that holds its objects.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) repo: Repo,
    pub(super) branch: String,
    pub(super) tip: String,
    /// The folder of the fleet, with the part that the given directory adds.
    pub(super) path: String,
}

/// The files of the fleet at the tip, once and without a database: for whoever has to know the fleet before anything
/// runs. Blocking; a remote repository is fetched into a folder of `data`.
///
/// # Errors
/// When the repository or the branch is not there, or an object is damaged.
pub fn peek(config: &SourceConfig, access: &GitAccess, data: &Path) -> Result<Sources, GitError> {
    let seen = look(config, access, data, None, &AtomicBool::new(false))?;
    read_tree(&seen.repo, &seen.tip, &seen.path)
}

/// Looks. `pinned` is the branch that was followed before, for a configuration that names none.
pub(super) fn look(
    config: &SourceConfig,
    access: &GitAccess,
    data: &Path,
    pinned: Option<&str>,
    stop: &AtomicBool,
) -> Result<Look, GitError> {
    let wanted = config.branch.as_deref().or(pinned);
    match &config.place {
        Place::Local(dir) => look_local(dir, &config.path, wanted),
        Place::Remote(url) => look_remote(url, &config.path, access, data, wanted, stop),
    }
}

fn look_local(dir: &Path, path: &str, wanted: Option<&str>) -> Result<Look, GitError> {
    let (root, folder) = locate(dir)?;
    let repo = Repo::open(&root)?;
    let path = [folder.as_str(), path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let broken = |error: gix::Error| GitError::Broken {
        id: "HEAD".to_owned(),
        what: format!("cannot be read: {}", chain(&error)),
    };
    let branch = match wanted {
        Some(branch) => branch.to_owned(),
        None => match repo.inner.head_name().map_err(broken)? {
            Some(name) => name.shorten().to_string(),
            None => return Err(GitError::BranchMissing("HEAD names no branch; say which one with #branch".to_owned())),
        },
    };
    let name = format!("refs/heads/{branch}");
    let tip = match repo.reference(&name)? {
        Some(id) => repo.commit_at(id)?.to_string(),
        None if is_empty(&repo) => return Err(GitError::Empty),
        None => return Err(GitError::BranchMissing(format!("the repository has no branch {branch:?}"))),
    };
    Ok(Look { repo, branch, tip, path })
}

fn is_empty(repo: &Repo) -> bool {
    let Ok(platform) = repo.inner.references() else { return false };
    platform.local_branches().is_ok_and(|mut branches| branches.next().is_none())
}

fn look_remote(
    url: &str,
    path: &str,
    access: &GitAccess,
    data: &Path,
    wanted: Option<&str>,
    stop: &AtomicBool,
) -> Result<Look, GitError> {
    let dir = own(url, data);
    let repo = open_own(&dir, access)?;
    let branch = match wanted {
        Some(branch) => branch.to_owned(),
        None => default_branch(&repo, url, access)?,
    };
    let tracking = format!("refs/remotes/origin/{branch}");
    let remote = remote(&repo, url, &format!("+refs/heads/{branch}:{tracking}"), access)?;
    let connection = connect(&remote, access)?;
    let prepared = connection
        .prepare_fetch(Discard, gix::remote::ref_map::Options::default())
        .map_err(|error| failed(&error, access))?;
    let head = format!("refs/heads/{branch}");
    let found = prepared.ref_map().remote_refs.iter().find_map(|reference| {
        let (name, id, peeled) = reference.unpack();
        (name == head.as_str()).then(|| peeled.or(id).map(ToOwned::to_owned)).flatten()
    });
    let Some(tip) = found else {
        drop(prepared);
        return Err(missing(&repo, url, &branch, access));
    };
    // Even without a fetch the answer is complete when the commit is here already.
    if !repo.inner.has_object(tip) || repo.reference(&tracking).is_ok_and(|known| known != Some(tip)) {
        prepared
            .receive(Discard, stop)
            .map_err(|error| if error.is_cancelled() { GitError::Interrupted } else { failed(&error, access) })?;
    }
    let repo = Repo::open_with(&dir, access)?;
    Ok(Look { repo, branch, tip: tip.to_string(), path: path.to_owned() })
}

/// Where our own repository of a remote one is.
fn own(url: &str, data: &Path) -> PathBuf {
    data.join(hex::encode(&Digest::of(url).as_bytes()[..16]))
}

/// Removes our own repository of a remote one: the next look fetches everything anew.
pub(super) fn forget(config: &SourceConfig, data: &Path) -> Result<(), GitError> {
    let Place::Remote(url) = &config.place else { return Ok(()) };
    let dir = own(url, data);
    if !dir.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(&dir)
        .map_err(|error| GitError::Open { place: dir.display().to_string(), reason: chain(&error) })
}

/// Each fetch adds a pack, and nothing joins them: from here on everything is fetched anew.
const MOST_PACKS: usize = 50;

fn packs(dir: &Path) -> usize {
    let files = std::fs::read_dir(dir.join("objects/pack")).into_iter().flatten().flatten();
    files.filter(|file| file.path().extension().is_some_and(|extension| extension == "pack")).count()
}

/// Our own bare repository; one that a crash left half made, or that grew out of many fetches, is made again.
fn open_own(dir: &Path, access: &GitAccess) -> Result<Repo, GitError> {
    let failed = |reason: String| GitError::Open { place: dir.display().to_string(), reason };
    if dir.join("HEAD").is_file()
        && packs(dir) <= MOST_PACKS
        && let Ok(repo) = Repo::open_with(dir, access)
    {
        return Ok(repo);
    }
    if dir.exists() {
        std::fs::remove_dir_all(dir).map_err(|error| failed(chain(&error)))?;
    }
    std::fs::create_dir_all(dir).map_err(|error| failed(chain(&error)))?;
    gix::ThreadSafeRepository::init_opts(
        dir,
        gix::create::Kind::Bare,
        gix::create::Options::default(),
        options(access),
    )
    .map_err(|error| failed(chain(&error)))?;
    Repo::open_with(dir, access)
}

fn remote<'r>(repo: &'r Repo, url: &str, refspec: &str, access: &GitAccess) -> Result<gix::Remote<'r>, GitError> {
    let mut remote = repo.inner.remote_at(url).map_err(|error| failed(&error, access))?.with_fetch_tags(Tags::None);
    remote.replace_refspecs([refspec], Direction::Fetch).map_err(|error| failed(&error, access))?;
    Ok(remote)
}

type Connected<'a, 'r> =
    gix::remote::Connection<'a, 'static, 'r, Box<dyn gix::protocol::transport::client::blocking_io::Transport + Send>>;

fn connect<'a, 'r>(remote: &'a gix::Remote<'r>, access: &GitAccess) -> Result<Connected<'a, 'r>, GitError> {
    let mut connection = remote.connect(Direction::Fetch).map_err(|error| failed(&error, access))?;
    if remote.url(Direction::Fetch).is_some_and(|url| url.scheme == gix::url::Scheme::Https) {
        connection.set_transport_options(Box::new(http_options(access)?));
    }
    let (user, token) = (access.user.clone(), access.token.clone());
    // Always set: without it a terminal would be asked.
    Ok(connection.with_credentials(move |action| match (action, &token) {
        (gix::credentials::helper::Action::Get(context), Some(token)) => {
            Ok(Some(gix::credentials::protocol::Outcome {
                identity: gix::sec::identity::Account {
                    username: user.clone().unwrap_or_else(|| "x-access-token".to_owned()),
                    password: token.clone(),
                    oauth_refresh_token: None,
                },
                next: context.into(),
            }))
        }
        _ => Ok(None),
    }))
}

fn http_options(access: &GitAccess) -> Result<http::Options, GitError> {
    let authorities = match &access.ca_pem {
        Some(pem) => Some(reqwest::Certificate::from_pem_bundle(pem).map_err(|error| {
            GitError::Unreachable(format!("the certificate authorities for git cannot be read: {}", chain(&error)))
        })?),
        None => None,
    };
    let backend = http::reqwest::Options {
        configure_client: Some(Box::new(move |builder| {
            let builder = builder.connect_timeout(SILENCE);
            Ok(match &authorities {
                Some(authorities) => builder.tls_certs_only(authorities.clone()),
                None => builder,
            })
        })),
        ..http::reqwest::Options::default()
    };
    Ok(http::Options {
        connect_timeout: Some(SILENCE),
        backend: Some(Arc::new(Mutex::new(backend))),
        ..http::Options::default()
    })
}

/// The branch that the remote's HEAD names.
fn default_branch(repo: &Repo, url: &str, access: &GitAccess) -> Result<String, GitError> {
    let refs = list(repo, url, "HEAD", access)?;
    let target = refs.iter().find_map(|reference| match reference {
        Ref::Symbolic { full_ref_name, target, .. } | Ref::Unborn { full_ref_name, target }
            if full_ref_name == "HEAD" =>
        {
            Some(target.to_string())
        }
        _ => None,
    });
    let unborn = refs.iter().any(|reference| matches!(reference, Ref::Unborn { .. }));
    match target.as_deref().and_then(|target| target.strip_prefix("refs/heads/")).filter(|branch| is_branch(branch)) {
        Some(branch) if unborn => Err(missing(repo, url, branch, access)),
        Some(branch) => Ok(branch.to_owned()),
        None if refs.is_empty() => Err(missing(repo, url, "HEAD", access)),
        None => {
            Err(GitError::BranchMissing("the remote's HEAD names no branch; say which one with #branch".to_owned()))
        }
    }
}

/// Says whether only this branch is missing or everything is.
fn missing(repo: &Repo, url: &str, branch: &str, access: &GitAccess) -> GitError {
    match list(repo, url, "refs/heads/*:refs/remotes/origin/*", access) {
        Ok(refs) if refs.iter().all(|reference| matches!(reference, Ref::Unborn { .. })) => GitError::Empty,
        Ok(_) => GitError::BranchMissing(format!("the remote has no branch {branch:?}")),
        Err(error) => error,
    }
}

fn list(repo: &Repo, url: &str, refspec: &str, access: &GitAccess) -> Result<Vec<Ref>, GitError> {
    let remote = remote(repo, url, refspec, access)?;
    let connection = connect(&remote, access)?;
    let (map, _) = connection
        .ref_map(Discard, gix::remote::ref_map::Options::default())
        .map_err(|error| failed(&error, access))?;
    Ok(map.remote_refs)
}

/// An error of the transport, without secrets.
fn failed(error: &gix::Error, access: &GitAccess) -> GitError {
    let text = access.redact(&chain(error));
    let refused = error.is_unauthenticated() || error.is_permission_denied();
    let lower = text.to_ascii_lowercase();
    let asked = text.contains("No credentials were returned");
    if asked && access.token.is_none() {
        let way = "the repository refuses us without credentials; give a token in BETTER_COMPUTE_GIT_TOKEN, or an ssh key that may read it";
        return GitError::AuthFailed(way.to_owned());
    }
    if refused
        || ["permission denied", "host key verification failed", "authentication failed", "401", "403"]
            .iter()
            .any(|sign| lower.contains(sign))
    {
        GitError::AuthFailed(text)
    } else {
        GitError::Unreachable(text)
    }
}
