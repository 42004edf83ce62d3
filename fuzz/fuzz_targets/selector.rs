//! Arbitrary text as a label selector and, after a line break, a field selector. The property is in
//! `crates/api/tests/api_properties/properties.rs`, which ordinary tests also run.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/api/tests/api_properties/properties.rs"]
#[allow(dead_code)]
mod properties;

fuzz_target!(|text: &str| {
    let (labels, fields) = text.split_once('\n').unwrap_or((text, ""));
    properties::selector(labels, fields);
});
