//! Arbitrary octets as a zone file: parsed or rejected, never a panic; a parsed zone that is written parses to the same zone.

#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use signpost_dns::wire::Name;
use signpost_dns::wire::rdata;
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::write::to_text;
use signpost_dns::zonefile::{Severity, read_zone};

fuzz_target!(|text: &[u8]| {
    let file: Arc<Path> = Path::new("fuzz.zone").into();
    let origin: Name = "example.".parse().expect("a name");
    let read = read_zone(text, &file, Some(origin), &mut NoIncludes);
    assert_eq!(read.contents.is_none(), read.findings.iter().any(|finding| finding.severity == Severity::Error));
    let Some(zone) = read.contents else { return };
    for (_, rrsets) in zone.owners() {
        for rrset in rrsets {
            for data in &rrset.rdata {
                assert_eq!(rdata::validate(rrset.rtype, data), Ok(()));
            }
        }
    }
    let written = to_text(&zone);
    let again = read_zone(&written, &file, None, &mut NoIncludes);
    assert_eq!(again.contents.as_ref(), Some(&zone), "{:?}", again.findings);
});
