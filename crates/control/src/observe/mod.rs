//! Queries and probes of names, hosts, addresses, instances, and Services. Their results are in the World's
//! [observations](crate::world::observations).

pub mod verify;

pub mod route_checks;

pub mod hosts;
pub mod ownership;

pub mod health;

pub mod instances;
pub mod programmed;
pub mod resolved_refs;

pub mod certificates;

pub mod services;

pub mod resolve;

pub mod network;
