//! Zone files (RFC 1035 §5): text to [`crate::zone::Contents`] and back, and the directory of served zones.
//!
//! [`read::read_zone`] is the reader: `scan` splits octets into words, `read` parses words into records with the help of
//! `values` and `rdata_in`, `assembler` collects them, and [`crate::zone::check`] checks the whole zone.
//! [`write`](fn@write::write) is the inverse, so that writing and reading return the same zone. [`folder::Folder`] follows a
//! directory of `*.zone` files. Only [`mod@include`] also reads files.

pub mod file_stamp;
pub mod finding;
pub mod folder;
pub mod include;
pub mod rdata_out;
pub mod read;
pub mod write;

mod assembler;
mod file_path;
mod generate;
mod location;
mod rdata_in;
mod scan;
mod svc;
mod values;

pub use assembler::Record;
pub use finding::{Severity, ZoneFinding};
pub use read::{CheckLevel, ZoneRead, read_records, read_zone, read_zone_with};
