//! RFC 2181: clarifications; RRsets, their duplicates, and their order.

mod duplicates;
mod rotation;
