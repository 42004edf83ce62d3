//! Attacks on memory and disk.
