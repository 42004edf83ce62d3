//! RFC 1035: the message and its sizes.

mod classes;
mod compression;
mod message_shape;
mod size;
