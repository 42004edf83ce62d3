//! x
pub mod timeline;
pub mod zones;
