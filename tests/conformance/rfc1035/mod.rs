//! RFC 1035: the message and its sizes.

mod classes;
mod message_shape;
mod size;
