//! The control loops that make it so: what the API's objects say comes to be what the name server answers.

pub mod apexes;
pub mod asked;
pub mod export;
pub mod static_zones;
pub mod zone;
mod zone_watch;

pub mod deletion_hold;

pub mod domain;
pub mod ledger;
