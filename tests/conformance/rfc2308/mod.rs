//! RFC 2308: negative answers.

mod soa;
