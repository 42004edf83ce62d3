//! The zones of files: what the operator of this name server put there.

pub mod static_zones;
mod zone_watch;
