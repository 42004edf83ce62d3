//! Arbitrary octets as the body of a server-side apply. The property is in `crates/api/tests/api_properties/properties.rs`, which
//! ordinary tests also run.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/api/tests/api_properties/properties.rs"]
#[allow(dead_code)]
mod properties;

fuzz_target!(|body: &[u8]| {
    properties::apply_patch(body);
});
