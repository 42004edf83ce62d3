//! Structural schemas: the permitted contents of an object, and walks over JSON values.
//!
//! A schema is a structural OpenAPI v3 document (no references, one type at each place). It is parsed from JSON once, into a form
//! for walks ([`node`]). Each walk is in its own file. [`parse`](mod@parse) parses text and reports duplicate keys,
//! [`prune`](mod@prune) removes unknown fields, [`defaults`] fills in absent fields, and [`validate`](mod@validate) finds the
//! faults, with Kubernetes' messages, and before them the values that are too large for any other step. [`structural`] derives such schemas from Rust types.

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
pub use validate::{sizes, validate};
