//! The agent of a router instance: it turns the Routes of its Router into a running configuration of HAProxy or nginx.
//!
//! `site` is the model of what an instance serves, `resolve` makes it from objects of the API, `render` turns it into configuration,
//! and `proxy` makes the real program serve it. `traffic` counts what it serves. `run` is the life of an agent: it follows the API, applies changes, and reports by the
//! Lease of its instance.

#![forbid(unsafe_code)]

pub mod site;

pub mod pem;

pub mod resolve;

pub mod render;

pub mod proxy;

pub mod traffic;

pub mod run;

pub mod lease;

mod pending;

pub mod listeners;

mod follow;

mod last_site;

mod certificates;

mod secrets;
