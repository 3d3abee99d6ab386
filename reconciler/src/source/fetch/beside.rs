//! What lies beside the branch: whoever may push can put anything there, of any size.
//!
//! What people said is brought into a repository of its own, which borrows what ours has and is gone once it was read, so a flood
//! leaves nothing behind. It comes in small groups of bounded size and time: what is too large, or does not arrive, keeps nothing else
//! out, and is left alone for a while.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{BuildHasher as _, RandomState},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use gix::{
    Count, NestedProgress, ObjectId, Progress,
    odb::pack::bundle::write::ProgressId,
    progress::{Discard, Id, MessageLevel, StepShared, UNKNOWN, Unit},
    remote::{Direction, fetch::Tags},
};
use schema::name::Name;

use super::{
    super::{
        config::{GitAccess, Place, SourceConfig},
        git::{GitError, Repo, chain, options, options_with},
        trust::{
            Deaf,
            words::{BESIDE, PROPOSALS, Place as Word, STATEMENTS},
        },
    },
    connect, failed, list,
};

/// References that are fetched at once, when all goes well.
const GROUP: usize = 256;
/// References that are fetched at once in the beginning, and again once something went wrong.
const FEW: usize = 16;
/// Bytes of one fetch; what somebody says has a few thousand, and the plan of which they speak is at hand.
const MOST_BYTES: usize = 8 << 20;
/// The largest object that is taken apart, whatever it was packed into.
const LARGEST: usize = 32 << 20;
/// How long one fetch may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Proposals that are fetched in one pass.
const MOST_PROPOSALS: usize = 64;
/// How long what did not arrive is left alone at first; twice as long each time.
const PAUSE: Duration = Duration::from_secs(300);
/// It is left alone at most so many times twice as long.
const LONGEST_PAUSE: u32 = 6;

/// The places beside the branch.
#[derive(Debug, Default)]
pub(in crate::source) struct Beside {
    /// What people said.
    pub(in crate::source) words: Vec<Word>,
    /// What services propose.
    pub(in crate::source) proposals: Vec<Word>,
}

impl Beside {
    /// Looks where things lie; nothing is fetched.
    ///
    /// # Errors
    /// When the references cannot be listed.
    pub(in crate::source) fn list(repo: &Repo, config: &SourceConfig, access: &GitAccess) -> Result<Self, GitError> {
        let places = match &config.place {
            Place::Local(_) => repo.places(BESIDE)?,
            Place::Remote(url) => {
                let listed = list(repo, url, &format!("{BESIDE}*:{BESIDE}*"), access)?;
                let place = |reference: &gix::protocol::handshake::Ref| {
                    let (name, id, _) = reference.unpack();
                    Some(Word { name: name.to_string(), id: id?.to_owned() })
                };
                listed.iter().filter_map(place).collect()
            }
        };
        let (words, others): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|place| place.name.starts_with(STATEMENTS));
        let proposals = others.into_iter().filter(|place| place.name.starts_with(PROPOSALS)).collect();
        Ok(Self { words, proposals })
    }

    /// The commits that lie there.
    pub(in crate::source) fn ids(&self) -> BTreeSet<ObjectId> {
        self.words.iter().chain(&self.proposals).map(|place| place.id).collect()
    }
}

/// What did not arrive, how often, and when it is tried again.
#[derive(Debug, Clone, Default)]
pub(in crate::source) struct Aside(BTreeMap<ObjectId, (u32, Instant)>);

impl Aside {
    /// Whether something is left alone.
    pub(in crate::source) fn holds(&self, id: &ObjectId, now: Instant) -> bool {
        self.0.get(id).is_some_and(|(_, until)| now < *until)
    }

    /// Forgets what is not there any more.
    pub(in crate::source) fn retain(&mut self, there: &BTreeSet<ObjectId>) {
        self.0.retain(|id, _| there.contains(id));
    }

    fn put(&mut self, id: ObjectId, now: Instant) {
        let (times, until) = self.0.entry(id).or_insert((0, now));
        let pause = PAUSE.saturating_mul(1 << (*times).min(LONGEST_PAUSE));
        (*times, *until) = (times.saturating_add(1), now.checked_add(pause).unwrap_or(now));
    }
}

/// A way to bring what lies beside the branch here.
#[derive(Debug)]
pub(in crate::source) struct Bringing<'a> {
    pub(in crate::source) config: &'a SourceConfig,
    pub(in crate::source) access: &'a GitAccess,
    pub(in crate::source) stop: &'a AtomicBool,
    /// Nothing is begun behind this.
    pub(in crate::source) until: Instant,
}

impl Bringing<'_> {
    /// Hands over each of these words that can be had, group by group, until `each` answers false.
    ///
    /// # Errors
    /// When there is no room to put them into.
    pub(in crate::source) fn words(
        &self,
        repo: &Repo,
        words: Vec<Word>,
        aside: &mut Aside,
        mut each: impl FnMut(Word, Result<Result<Vec<u8>, Deaf>, GitError>) -> bool,
    ) -> Result<(), GitError> {
        let mut hand_over = |repo: &Repo, words: Vec<Word>| {
            words.into_iter().all(|word| {
                let read = repo.word(word.id);
                self.is_going() && each(word, read)
            })
        };
        let Place::Remote(url) = &self.config.place else {
            hand_over(repo, words);
            return Ok(());
        };
        let (here, away): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| repo.inner.has_object(word.id));
        if !hand_over(repo, here) || away.is_empty() {
            return Ok(());
        }
        let room = Room::beside(repo, self.access)?;
        self.in_groups(
            away,
            aside,
            |group| {
                let specs = group.iter().map(|word| format!("+{}:refs/words/{}", word.name, word.id));
                self.fetch(&room.repo, url, specs)
            },
            |group| hand_over(&room.repo, group),
        );
        Ok(())
    }

    /// Brings proposals that are not here to where the history is, under their own names.
    pub(in crate::source) fn proposals(&self, repo: &Repo, proposals: Vec<Word>, aside: &mut Aside) {
        let Place::Remote(url) = &self.config.place else { return };
        let here: BTreeSet<Word> = repo.places(PROPOSALS).unwrap_or_default().into_iter().collect();
        let is_named = |word: &Word| word.name.strip_prefix(PROPOSALS).is_some_and(|name| Name::new(name).is_ok());
        let open = |word: &Word| !here.contains(word) && is_named(word) && !aside.holds(&word.id, Instant::now());
        let mut wanted: Vec<Word> = proposals.into_iter().filter(open).collect();
        let lot = RandomState::new();
        wanted.sort_by_cached_key(|word| lot.hash_one(word));
        wanted.truncate(MOST_PROPOSALS);
        self.in_groups(
            wanted,
            aside,
            |group| self.fetch(repo, url, group.iter().map(|word| format!("+{0}:{0}", word.name))),
            |_| true,
        );
    }

    /// Fetches in groups that grow while all goes well. What fails with others is tried with fewer of them behind everything else; what
    /// fails alone is put aside.
    fn in_groups(
        &self,
        wanted: Vec<Word>,
        aside: &mut Aside,
        fetch: impl Fn(&[Word]) -> Result<(), GitError>,
        mut came: impl FnMut(Vec<Word>) -> bool,
    ) {
        let (mut open, mut size) = (VecDeque::from(wanted), FEW);
        while !open.is_empty() && self.is_going() {
            let group: Vec<Word> = open.drain(..size.min(open.len())).collect();
            match fetch(&group) {
                Ok(()) => {
                    size = (size * 2).min(GROUP);
                    if !came(group) {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, places = group.len(), "places beside the branch could not be fetched");
                    size = (group.len() / 2).max(1);
                    match group.as_slice() {
                        _ if self.stop.load(Ordering::Relaxed) => return,
                        [alone] => {
                            tracing::warn!(place = alone.name, %error, "what lies there could not be fetched, and is left alone for a while");
                            aside.put(alone.id, Instant::now());
                        }
                        _ => open.extend(group),
                    }
                }
            }
        }
    }

    fn is_going(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && Instant::now() < self.until
    }

    /// One fetch of bounded size and time.
    fn fetch(&self, repo: &Repo, url: &str, specs: impl Iterator<Item = String>) -> Result<(), GitError> {
        let specs: Vec<String> = specs.collect();
        let away = |error: gix::Error| failed(&error, self.access);
        let mut remote = repo.inner.remote_at(url).map_err(away)?.with_fetch_tags(Tags::None);
        remote.replace_refspecs(specs.iter().map(String::as_str), Direction::Fetch).map_err(away)?;
        let (over, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let meter = Meter { read, over: Arc::clone(&over), is_pack: false };
        std::thread::scope(|scope| {
            let (done, ended) = mpsc::channel::<()>();
            let (stop, flag, until) = (self.stop, Arc::clone(&over), Instant::now() + PATIENCE);
            scope.spawn(move || {
                while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(Duration::from_millis(50)) {
                    if stop.load(Ordering::Relaxed) || Instant::now() >= until {
                        flag.store(true, Ordering::Relaxed);
                    }
                }
            });
            let fetched = connect(&remote, self.access).and_then(|connection| {
                let prepared =
                    connection.prepare_fetch(Discard, gix::remote::ref_map::Options::default()).map_err(away)?;
                prepared.receive(meter, &over).map_err(|error| {
                    if error.is_cancelled() || over.load(Ordering::Relaxed) {
                        GitError::Interrupted
                    } else {
                        away(error)
                    }
                })
            });
            drop(done);
            fetched.map(drop)
        })
    }
}

/// A repository for one look. It borrows the objects of another one.
#[derive(Debug)]
struct Room {
    repo: Repo,
    dir: PathBuf,
}

impl Room {
    fn beside(repo: &Repo, access: &GitAccess) -> Result<Self, GitError> {
        let mut dir = repo.inner.git_dir().to_owned().into_os_string();
        dir.push(".words");
        let dir = PathBuf::from(dir);
        let failed = |reason: String| GitError::Open { place: dir.display().to_string(), reason };
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(|error| failed(chain(&error)))?;
        }
        std::fs::create_dir_all(&dir).map_err(|error| failed(chain(&error)))?;
        let kind = gix::create::Kind::Bare;
        gix::ThreadSafeRepository::init_opts(&dir, kind, gix::create::Options::default(), options(access))
            .map_err(|error| failed(chain(&error)))?;
        std::fs::create_dir_all(dir.join("objects/info")).map_err(|error| failed(chain(&error)))?;
        let lent = format!("{}\n", repo.inner.objects.store_ref().path().display());
        std::fs::write(dir.join("objects/info/alternates"), lent).map_err(|error| failed(chain(&error)))?;
        let bounded = options_with(access, &[&format!("gitoxide.objects.allocLimit={LARGEST}")]);
        let inner = gix::open_opts(&dir, bounded).map_err(|error| failed(chain(&error)))?;
        Ok(Self { repo: Repo { inner }, dir: dir.clone() })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::debug!(%error, place = %self.dir.display(), "a folder of fetched words is still there");
        }
    }
}

/// Counts the bytes of a pack while they arrive.
#[derive(Debug, Clone)]
struct Meter {
    read: StepShared,
    over: Arc<AtomicBool>,
    is_pack: bool,
}

impl Count for Meter {
    fn set(&self, _: usize) {}

    fn step(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    fn inc_by(&self, step: usize) {
        if self.is_pack && self.read.fetch_add(step, Ordering::Relaxed).saturating_add(step) > MOST_BYTES {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    fn counter(&self) -> StepShared {
        Arc::default()
    }
}

impl Progress for Meter {
    fn init(&mut self, _: Option<usize>, _: Option<Unit>) {}

    fn set_name(&mut self, _: String) {}

    fn name(&self) -> Option<String> {
        None
    }

    fn id(&self) -> Id {
        UNKNOWN
    }

    fn message(&self, _: MessageLevel, _: String) {}
}

impl NestedProgress for Meter {
    type SubProgress = Self;

    fn add_child(&mut self, _: impl Into<String>) -> Self {
        Self { is_pack: false, ..self.clone() }
    }

    fn add_child_with_id(&mut self, _: impl Into<String>, id: Id) -> Self {
        Self { is_pack: id == Id::from(ProgressId::ReadPackBytes), ..self.clone() }
    }
}
