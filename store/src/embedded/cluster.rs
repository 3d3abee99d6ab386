//! The directory of a private server: layout, lock, password, first initialisation.
//!
//! ```text
//! dir/lock       held by the parent for as long as it lives
//! dir/password   of the one database user
//! dir/pg/        the data; made as pg.new and renamed, so that a killed initdb leaves no half cluster
//! dir/log        what the server says
//! dir/.s.PGSQL.5432   the socket, unless the path is too long for one
//! ```

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use schema::digest::Digest;
use sqlx::postgres::PgConnectOptions;

use super::{
    Config, EmbeddedError, NAME,
    binaries::{self, Binaries},
    identity::Identity,
    leftovers, socket_options,
};

/// The longest directory whose socket still has a legal path: 107 bytes less `/.s.PGSQL.5432`.
const LONGEST_SOCKET_DIR: usize = 107 - 14;

/// A prepared directory, and everything needed to start a server on it.
#[derive(Debug)]
pub(super) struct Cluster {
    dir: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    password: String,
    fast: bool,
    binaries: Binaries,
    identity: Identity,
    _lock: File,
}

impl Cluster {
    /// Takes the directory's lock, ends the server of a parent that was killed, and initialises the data when there is
    /// none.
    pub(super) fn prepare(config: &Config) -> Result<Self, EmbeddedError> {
        make_private(&config.dir)?;
        let dir = config.dir.canonicalize().map_err(EmbeddedError::io(&config.dir))?;
        let data = dir.join("pg");
        let lock = lock(&dir)?;
        let binaries = binaries::find(&data)?;
        let identity = Identity::choose(&dir, &data, &binaries.dir)?;
        identity.own(&dir)?;
        leftovers::end_orphan(&data);
        let socket = socket_dir(&dir, &identity)?;
        let password = password(&dir, &identity)?;
        let cluster = Self { dir, data, socket, password, fast: config.fast, binaries, identity, _lock: lock };
        if !cluster.data.join("PG_VERSION").exists() {
            cluster.init()?;
        }
        Ok(cluster)
    }

    /// How to connect.
    pub(super) fn options(&self) -> PgConnectOptions {
        socket_options(&self.socket, &self.password)
    }

    fn init(&self) -> Result<(), EmbeddedError> {
        let fresh = self.dir.join("pg.new");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(EmbeddedError::io(&fresh))?;
        }
        tracing::info!(version = self.binaries.major, dir = %self.data.display(), "initialising postgresql");
        let mut output = String::new();
        // C.UTF-8 is missing on old systems; plain C sorts the same way.
        for locale in ["C.UTF-8", "C"] {
            let mut initdb = self.identity.command(&self.binaries.dir.join("initdb"), &self.dir);
            initdb.args(["-U", NAME, "--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"]);
            initdb
                .arg(format!("--locale={locale}"))
                .arg(format!("--pwfile={}", self.dir.join("password").display()))
                .arg("-D")
                .arg(&fresh);
            if self.fast {
                initdb.arg("--no-sync");
            }
            let done = initdb.output().map_err(EmbeddedError::io(&self.binaries.dir))?;
            if done.status.success() {
                return fs::rename(&fresh, &self.data).map_err(EmbeddedError::io(&self.data));
            }
            output = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        }
        Err(EmbeddedError::Tool { tool: "initdb", output })
    }

    /// The server, ready to be spawned.
    pub(super) fn server(&self) -> Result<Command, EmbeddedError> {
        let path = self.dir.join("log");
        let log =
            OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(EmbeddedError::io(&path))?;
        if log.metadata().is_ok_and(|meta| meta.len() > 10 * 1024 * 1024) {
            log.set_len(0).map_err(EmbeddedError::io(&path))?;
        }
        let mut server = self.identity.command(&self.binaries.dir.join("postgres"), &self.dir);
        server.arg("-D").arg(&self.data).arg("-k").arg(&self.socket);
        let settings = [
            "listen_addresses=",
            "port=5432",
            "unix_socket_permissions=0700",
            "max_connections=200",
            "log_min_messages=warning",
            "logging_collector=off",
            "timezone=UTC",
            "jit=off",
        ];
        let fast = [
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "wal_level=minimal",
            "max_wal_senders=0",
            "shared_buffers=64MB",
            "autovacuum=off",
        ];
        for setting in settings.iter().chain(fast.iter().filter(|_| self.fast)) {
            server.arg("-c").arg(setting);
        }
        server.stdout(Stdio::null()).stderr(log);
        Ok(server)
    }

    /// Ends what is left of a server that ended.
    pub(super) fn end_rest(&self) {
        leftovers::end_rest(&self.data);
    }

    /// Removes what lies outside the directory, once the server has ended.
    pub(super) fn clean(&self) {
        if self.socket != self.dir {
            // Whatever is left is made again at the next start.
            let _left = fs::remove_dir_all(&self.socket);
        }
    }

    /// The end of the server's log, for an error.
    pub(super) fn last_words(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.dir.join("log"))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(2_000)))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).trim().to_owned())
        };
        read().unwrap_or_default()
    }
}

fn make_private(dir: &Path) -> Result<(), EmbeddedError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(EmbeddedError::io(dir))?;
    fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(EmbeddedError::io(dir))
}

fn lock(dir: &Path) -> Result<File, EmbeddedError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(EmbeddedError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(EmbeddedError::InUse(dir.display().to_string())),
        Err(fs::TryLockError::Error(source)) => Err(EmbeddedError::io(&path)(source)),
    }
}

fn socket_dir(dir: &Path, identity: &Identity) -> Result<PathBuf, EmbeddedError> {
    if dir.as_os_str().len() <= LONGEST_SOCKET_DIR {
        return Ok(dir.to_owned());
    }
    let short = Digest::of(dir.as_os_str().as_encoded_bytes()).short();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|runtime| runtime.as_os_str().len() < 60 && !nix::unistd::geteuid().is_root());
    let socket = runtime.unwrap_or_else(std::env::temp_dir).join(format!("better-compute-{short}"));
    make_private(&socket)?;
    let owner = socket.metadata().map_err(EmbeddedError::io(&socket))?.uid();
    let me = nix::unistd::geteuid().as_raw();
    let expected = match identity {
        Identity::Other { uid, .. } => *uid,
        Identity::Same | Identity::Namespace => me,
    };
    if owner != me && owner != expected {
        return Err(EmbeddedError::io(&socket)(std::io::Error::other("it belongs to somebody else")));
    }
    identity.own(&socket)?;
    Ok(socket)
}

fn password(dir: &Path, identity: &Identity) -> Result<String, EmbeddedError> {
    let path = dir.join("password");
    if let Ok(text) = fs::read_to_string(&path)
        && !text.trim().is_empty()
    {
        return Ok(text.trim().to_owned());
    }
    let text = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let fresh = dir.join("password.new");
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(EmbeddedError::io(&fresh))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(EmbeddedError::io(&fresh))?;
    identity.own(&fresh)?;
    fs::rename(&fresh, &path).map_err(EmbeddedError::io(&path))?;
    Ok(text)
}
