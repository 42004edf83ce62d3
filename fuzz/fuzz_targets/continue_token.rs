//! Arbitrary text as the token between the pages of a list. The property is in `crates/api/tests/api_properties/properties.rs`,
//! which ordinary tests also run.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/api/tests/api_properties/properties.rs"]
#[allow(dead_code)]
mod properties;

fuzz_target!(|text: &str| {
    properties::continue_token(text);
});
