//! The DNS message format (RFC 1035 §4): names, types, headers, questions, EDNS and the building of responses.
//!
//! Everything here is pure: no I/O, no clock, no global state. Read [`name`] first: the rest of the data plane uses this type.

pub mod name;
pub mod rdata;
pub mod rtype;

pub mod header;
pub mod question;

pub mod edns;
pub mod message;
pub mod tsig;

pub mod build;

pub use name::{Name, NameMap, NameSet};
pub use rtype::{Class, RecordType};
