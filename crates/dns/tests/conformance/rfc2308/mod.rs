//! RFC 2308: negative answers.

mod name_error;
mod soa;
