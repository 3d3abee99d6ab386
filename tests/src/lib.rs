//! The harness of the end-to-end tests: real repositories, real processes, real faults.
//!
//! A test lives in a [`World`], a directory of its own that is empty again afterwards. In it are a fleet repository
//! ([`repo`]), a control plane in one process ([`up`]) or in several ([`apart`]), machines ([`node`]) and, between them when
//! a test wants one, a wire that can be cut ([`proxy`]). A process may have a time of its own ([`time`]), and a machine a TPM ([`tpm`]). What a test knows about the control plane it asks through the command line that people use ([`cli`]).
//! Nothing here sleeps for a fixed time: [`wait`] looks until a condition holds or its deadline has passed.

pub mod apart;
pub mod bucket;
pub mod cli;
pub mod forge;
pub mod node;
pub mod process;
pub mod proxy;
pub mod repo;
pub mod sealed;
pub mod time;
pub mod tpm;
pub mod up;
pub mod wait;
pub mod world;

pub use apart::Apart;
pub use bucket::Bucket;
pub use cli::{Cli, Said};
pub use forge::Forge;
pub use node::Node;
pub use proxy::Proxy;
pub use repo::Repo;
pub use time::Time;
pub use tpm::Tpm;
pub use up::Up;
pub use wait::{until, until_some};
pub use world::World;
