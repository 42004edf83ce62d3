//! The control loops that make it so: what the API's objects say comes to be what the name server answers.

pub mod apexes;
pub mod asked;
pub mod export;
pub mod static_zones;
pub mod zone;
mod zone_watch;

pub mod deletion_hold;
pub mod health;
pub mod hosts;
mod turns;

pub mod claim;
pub mod domain;
pub mod drain;
pub mod former_names;
pub mod ledger;
pub mod live;
pub mod moves;
pub mod ownership;
pub mod placement;
pub mod route;
pub mod route_state_counts;
pub mod router;
pub mod router_metrics;
