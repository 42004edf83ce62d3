//! Arbitrary choices as the objects of a source cluster. The property is in
//! `crates/control/tests/source_properties/properties.rs`, which ordinary tests also run.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/control/tests/source_properties/properties.rs"]
mod properties;

fuzz_target!(|choices: &[u8]| {
    properties::derived(choices);
});
