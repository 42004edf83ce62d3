//! Arbitrary octets as a JSON patch and as a merge patch of a stored object. The property is in
//! `crates/api/tests/api_properties/properties.rs`, which ordinary tests also run.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/api/tests/api_properties/properties.rs"]
#[allow(dead_code)]
mod properties;

fuzz_target!(|body: &[u8]| {
    properties::json_patch(body);
    properties::merge_patch(body);
});
