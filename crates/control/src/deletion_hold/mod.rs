//! Deletion holds: a sudden loss of objects is held until the objects return, or an administrator approves the loss.
//!
//! ```text
//!  a name server: Routers, RouteBindings ──► Hold ─► what it still serves ──────────► Losses ─► Reporter ─► DeletionHold
//!  a scheduler:   Routers, Routes ─────────► Hold ─► what it does not delete (keep) ─► Losses ─► Reporter ─►  (the same)
//! ```
//!
//! [`hold`] decides, and is pure. It judges the same losses alike in all processes, so that holders of the same objects share one
//! DeletionHold, and one approval releases the names and all objects that depend on them.

pub mod hold;
pub mod keep;
pub mod losses;
pub mod reminder;
pub mod reporter;
