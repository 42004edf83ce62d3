//! The stage on which zones are asked, and the standards.

pub mod stage;

mod rfc1034;
mod rfc1035;
mod rfc2181;
mod rfc2308;
mod rfc3597;
mod rfc4035;
mod rfc4343;
mod rfc4592;
mod rfc4892;
mod rfc6672;
mod rfc6891;
mod rfc8482;
mod rfc8906;
mod rfc8914;
mod rfc9460;
mod rfc9471;
mod signpost;
