//! Arbitrary octets as a body in Kubernetes' protobuf. The property is in `crates/api/tests/api_properties/properties.rs`, which
//! ordinary tests also run.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/api/tests/api_properties/properties.rs"]
#[allow(dead_code)]
mod properties;

fuzz_target!(|body: &[u8]| {
    properties::protobuf(body);
});
