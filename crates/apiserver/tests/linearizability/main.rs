//! Whether clients of several API servers see one register for each object, whatever becomes of servers and stores meanwhile.
#![allow(clippy::unwrap_used)]

mod checker;
mod history;
