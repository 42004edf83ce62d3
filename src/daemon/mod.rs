//! One process: configure, build, run, drain.

pub mod access;
pub mod data_dir;
pub mod manifests;
pub mod platform;
pub mod signals;
pub mod sockets;
pub mod static_zones;
pub mod tasks;

use crate::config::{Places, Settings};

/// Why a process did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] data_dir::DataDirError),
}

/// Runs.
pub fn run(_places: Places, _settings: Settings) -> Result<(), Error> {
    Ok(())
}
