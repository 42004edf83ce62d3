//! The control loops that translate the API's objects into the zones of the name server.

pub mod export;
pub mod reserved;
pub mod static_zones;
pub mod zone;
mod zone_watch;

pub mod domain;
pub mod ledger;
