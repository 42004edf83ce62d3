//! Zone files (RFC 1035 §5): text to [`crate::zone::Contents`] and back, and the folder of zones that is served.
//!
//! [`read::read_zone`] is the reader: `scan` makes words of octets, `read` makes records of words with the help of
//! `values` and `rdata_in`, `stage` gathers them, and [`crate::zone::check`] looks at the whole. [`write`](fn@write::write)
//! is the way back, so that writing and reading give the same zone. [`folder::Folder`] keeps up with a folder of
//! `*.zone` files. Nothing else here reads files, save [`mod@include`].

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
