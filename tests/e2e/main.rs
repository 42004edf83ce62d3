//! End to end: the real program, with the clients that users have (`kubectl`, `dig`), together with the peers that operators run
//! (`unbound`, `knotd`, `nsd`).
//!
//! Each file is one journey. The tests do not inspect internals: they assert only what a user would see.

mod acme;
mod acme_clients;
mod admin_tls;
mod agent;
mod api_servers;
mod backends;
mod bad_input;
mod called;
mod certificates;
mod commands;
mod curl;
mod damage;
mod deletion_hold;
mod dig;
mod doctor;
mod documentation;
mod domain;
mod encrypted_dns;
#[cfg(feature = "etcd")]
mod etcd;
mod exit_codes;
mod export;
mod guard;
mod health;
mod live;
mod local_router;
mod login;
mod manual;
mod metrics;
mod moves;
mod nested;
mod operator;
mod ownership;
mod platform;
mod query_log;
mod readiness;
mod resolver;
mod restart;
mod routers;
mod scheduling;
mod secondaries;
mod service;
mod services;
mod settings;
mod shared_hosts;
mod source_reports;
mod source_shapes;
mod sources;
mod split;
mod stale;
mod statuses;
mod unready;
mod unrouted;
mod users;
mod watches;
mod zone_files;
