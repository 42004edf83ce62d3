//! Arbitrary octets as a name's text and as its wire form. The property: a parsed name, once written, parses to the same octets,
//! within the bounds of RFC 1035 §2.3.4.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signpost_dns::wire::Name;
use signpost_dns::zone::qname::Qname;

fuzz_target!(|octets: &[u8]| {
    let origin: Name = "origin.example.".parse().expect("a name");
    if let Ok(name) = Name::parse(octets, &origin) {
        holds(&name);
    }
    if let Ok((name, rest)) = Name::split_from(octets) {
        assert_eq!(name.as_wire().len() + rest.len(), octets.len());
        holds(&name);
    }
});

fn holds(name: &Name) {
    assert!(name.as_wire().len() <= 255 && name.labels().all(|label| (1..=63).contains(&label.len())));
    let text = name.to_string();
    let again: Name = text.parse().expect("our own text is a name");
    assert_eq!(again.as_wire(), name.as_wire(), "{text}");
    let qname = Qname::of(name.as_wire());
    assert_eq!(qname.octets(), name.to_lowercase().as_wire());
    assert_eq!(qname.labels(), name.label_count());
    assert_eq!(qname.hash(0), Qname::of(name.as_wire().to_ascii_uppercase().as_slice()).hash(0));
}
