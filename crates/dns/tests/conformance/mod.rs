//! The stage that answers queries for zones, and the standards.
//!
//! A test whose name begins with `trap_` and a number holds one line of the project's list of other servers' mistakes. Line 57
//! is about bounds of the transports, and lines 60 to 63 about further ones and transfers, and tested there; line 39 is about denial
//! that is signed while answering, which this server does not do.

pub mod over;
pub mod stage;

mod rfc1034;
mod rfc1035;
mod rfc2136;
mod rfc2181;
mod rfc2308;
mod rfc2931;
mod rfc3597;
mod rfc4035;
mod rfc4343;
mod rfc4592;
mod rfc4892;
mod rfc5001;
mod rfc5155;
mod rfc6672;
mod rfc6891;
mod rfc7766;
mod rfc7828;
mod rfc7873;
mod rfc8020;
mod rfc8482;
mod rfc8906;
mod rfc8914;
mod rfc8945;
mod rfc9018;
mod rfc9276;
mod rfc9460;
mod rfc9471;
mod rfc9619;
mod rfc9660;
mod signpost;
