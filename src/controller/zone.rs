//! x
pub mod last_good;
pub mod record;
pub mod timeline;
pub mod zones;
