//! The control plane: it reads the API's objects, decides, writes decisions back, and makes zones of them.
//!
//! An object takes this path: [`client`] (list and watch) → [`world`] (one compact value of each) → [`scheduler`] (decide and bind) →
//! [`controller`] (serials, zones) → [`compiler`] (objects to zones, pure) → the data plane's `zone::db`. [`reconcile`]
//! keeps in order what follows a binding, and writes what [`status`] decides. [`observe`] finds out what only questions to the
//! outside can tell.

#![forbid(unsafe_code)]

pub mod client;

pub mod world;

pub mod scheduler;

pub mod status;

pub mod reconcile;

pub mod instances;

pub mod observe;

pub mod controller;

pub mod compiler;

pub mod dns_client;
