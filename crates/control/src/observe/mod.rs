//! Queries and probes: which names are answered, whose a host is and where it points, which addresses are healthy, which instances
//! serve, and which addresses Services have. What they find goes into the World's [observations](crate::world::observations).

pub mod verify;

pub mod route_checks;

pub mod hosts;
pub mod ownership;

pub mod health;

pub mod instances;
pub mod programmed;

pub mod services;

pub mod network;
