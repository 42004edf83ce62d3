//! Structural schemas: what an object may hold, walked over JSON values.
//!
//! A schema is an OpenAPI v3 document of the structural kind (no references, one shape at each place). It comes as JSON, and
//! is made ready for the walks once ([`node`]). Each walk is a file: [`parse`](mod@parse) reads text and remembers keys that stand twice, [`prune`](mod@prune) takes out what the
//! schema does not know, [`defaults`] fills in what is absent, [`validate`](mod@validate) finds the faults, in the words of
//! Kubernetes. [`structural`] makes such schemas from those of our types.

pub mod defaults;
pub mod node;
pub mod parse;
mod path;
pub mod prune;
pub mod structural;
pub mod validate;

pub use defaults::apply_defaults;
pub use node::{Node, Schema};
pub use parse::{ParseError, parse_json, parse_yaml};
pub use prune::prune;
pub use validate::validate;
