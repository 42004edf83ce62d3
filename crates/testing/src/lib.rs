//! Shared code of tests and benches: the real program as a child process, waiting, ports, clients, and peers.
//!
//! Helpers panic when a step that must succeed fails, like a test. A test asserts only its own subject.

pub mod wait;

mod running;

pub mod net;

pub mod process;

pub mod program;

pub mod client;
pub mod dig;
pub mod dns;
pub mod etcd;
pub mod kubectl;
pub mod scrape;

pub mod hosts;
pub mod identity_provider;
pub mod name_server;
pub mod namespace;
pub mod peers;

mod files;

// The names that nearly every test needs.
pub use dig::{dig, try_dig, try_dig_all};
pub use files::{DataDir, root};
pub use kubectl::Kubectl;
pub use net::{free_address, http_get};
pub use process::Process;
pub use program::{Ports, Server, program};
pub use scrape::Scrape;
pub use wait::{PATIENCE, eventually, until, wait_for};
