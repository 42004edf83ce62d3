//! One process: configure, build, run, drain.

pub mod data_dir;
pub mod manifests;
