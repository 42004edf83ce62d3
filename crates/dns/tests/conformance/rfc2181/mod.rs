//! RFC 2181: clarifications; RRsets and their order.

mod rotation;
