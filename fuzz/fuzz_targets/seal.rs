//! Arbitrary octets as a stored value: a value that unseals is stored as exactly these octets, and under no other key or
//! revision.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signpost_apiserver::store::embedded::seal::{self, Version};

const KEY: &str = "/signpost.dev/routes/web/shop";

fuzz_target!(|stored: &[u8]| {
    match seal::version(KEY, 7, stored) {
        Version::Value { created, value } => assert_eq!(seal::value(KEY, 7, created, value), stored),
        Version::Deletion => assert_eq!(seal::deletion(KEY, 7), stored),
        Version::Damaged => return,
    }
    assert_eq!(seal::version(KEY, 8, stored), Version::Damaged);
    assert_eq!(seal::version("/signpost.dev/routes/web/shot", 7, stored), Version::Damaged);
});
