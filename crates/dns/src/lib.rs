//! The data plane: zones, zone files, and an authoritative DNS server. It does not depend on Kubernetes or on Signpost's objects.
//!
//! A query takes this path: [`transport`] (`udp` or `stream`) → [`nameserver::respond`] → [`zone::lookup`] →
//! `nameserver::answer` → back out. [`zone::db`] publishes zones to it without a lock.
//!
//! Layers, lowest first: [`wire`] and [`sys`]; [`tsig`] and [`zone`]; [`zonefile`]; [`nameserver`]; [`transfer`], [`notify`], [`secondary`] and [`update`]; [`transport`]. `unsafe` is only in [`sys`].

#![warn(missing_docs)]

pub mod transport;

pub mod notify;
pub mod secondary;
pub mod transfer;
pub mod update;

pub mod nameserver;

pub mod zone;

pub mod zonefile;

pub mod tsig;

pub mod wire;

pub mod sys;
