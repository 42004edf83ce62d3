//! The API server as its clients see it: requests and answers, without a socket.
//!
//! Each file is one part of the contract. `support` starts a server over a store in memory.

mod audit;
mod bounds;
mod errors;
mod jwt;
mod kube_client;
mod lifecycle;
mod limits;
mod lists;
mod rights;
mod routers;
mod secrets;
mod services;
mod shares;
mod support;
mod watches;
