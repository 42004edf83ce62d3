//! What the engine answers, by standard and section: a test's path is its specification.

#[path = "conformance/mod.rs"]
mod conformance;
