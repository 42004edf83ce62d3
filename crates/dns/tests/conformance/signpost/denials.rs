//! Zones that may lack new names: names that their server does not know get SERVFAIL, and all other answers stay.

use signpost_dns::zone::Zone;
use signpost_dns::zone::image::DENIES_ALWAYS;

use crate::conformance::stage::{Stage, lines, opt, zone};

const RECORDS: &str = "a A 192.0.2.1\n x.b A 192.0.2.2\n *.w A 192.0.2.3\n to CNAME a\n off CNAME gone\n out CNAME a.example.\n \
                       sub NS ns.sub\n ns.sub A 192.0.2.4";

fn platform_zone(denies_until: u64) -> Zone {
    let zone = zone("z.test.", RECORDS);
    zone.set_follows();
    zone.set_denies_until(denies_until);
    zone
}

fn extended_error(response: &[u8]) -> Option<u16> {
    let (_, _, options) = opt(response)?;
    let (_, data) = options.iter().find(|(code, _)| *code == 15)?;
    Some(u16::from_be_bytes([data[0], data[1]]))
}

#[test]
fn a_name_that_is_not_found_gets_servfail_instead_of_nxdomain_and_never_of_nodata() {
    let now = Stage::new([]).peer.now;
    let sure = Stage::new([platform_zone(DENIES_ALWAYS), zone("file.test.", "a A 192.0.2.1")]);
    for (denies_until, is_denied) in [(0, false), (now, false), (now + 1, true), (DENIES_ALWAYS, true)] {
        let stage = Stage::new([platform_zone(denies_until), zone("file.test.", "a A 192.0.2.1")]);
        // The names that exist, and those between them: NODATA for a type that is missing.
        for question in [
            "a.z.test. A",
            "a.z.test. AAAA",
            "b.z.test. A",
            "x.b.z.test. TXT",
            "any.w.z.test. A",
            "any.w.z.test. AAAA",
            "w.z.test. AAAA",
            "to.z.test. A",
            "to.z.test. AAAA",
            "out.z.test. A",
            "a.sub.z.test. A",
            "z.test. SOA",
            "z.test. AAAA",
            // The contents of a zone file are complete.
            "a.file.test. AAAA",
            "gone.file.test. A",
        ] {
            assert_eq!(stage.ask(question), sure.ask(question), "{question}");
        }
        for question in ["gone.z.test. A", "gone.z.test. AAAA", "y.b.z.test. A", "below.a.z.test. NS", "off.z.test. A"]
        {
            let response = stage.ask(question);
            if is_denied {
                assert_eq!(response, sure.ask(question), "{question}");
                assert!(lines(&response)[0].starts_with("NXDOMAIN aa"), "{question}");
            } else {
                assert!(lines(&response)[0].starts_with("SERVFAIL"), "{question}: {:?}", lines(&response));
                assert!(!lines(&response).iter().any(|line| line.contains("SOA")), "{question}: nothing to cache");
                assert_eq!(extended_error(&response), Some(14), "{question}");
            }
        }
    }
}
