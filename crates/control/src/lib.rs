//! The control plane: it reads the API's objects, decides, writes decisions back, and builds zones from them.
//!
//! An object takes this path: [`client`] (list and watch) → [`world`] (one compact value of each) → [`scheduler`] (decide and
//! bind) → [`ledger`] (serials, in the leader) → [`name_server`] (zones, in each name server) → [`compiler`] (objects to zones,
//! pure) → the data plane's `zone::publish`. [`reconcile`] cleans up after bindings, and writes the results of [`status`].
//! [`certificates`] gets certificates from a certification authority, and [`challenges`] deletes proofs for one that have expired. [`observe`]
//! contains the checks that need external queries. Most loops are controllers of [`work`]. Every deletion that follows from a missing object
//! obeys [`deletion_hold`].

#![forbid(unsafe_code)]

pub mod client;

pub mod work;

pub mod deletion_hold;

pub mod world;

pub mod scheduler;

pub mod status;

pub mod reconcile;

pub mod instances;

pub mod sources;

pub mod observe;

pub mod challenges;

pub mod certificates;

pub mod ledger;

pub mod name_server;

pub mod updates;

pub mod compiler;

pub mod dns_client;

mod hash;
mod put;
