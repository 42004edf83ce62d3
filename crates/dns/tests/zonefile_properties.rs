//! Properties of zone files: writing and reading give the same zone for any data; no octets make the reader panic; what it
//! accepts writes back; and where the `domain` crate reads the same text, it reads the same records.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::path::Path;
use std::sync::Arc;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use signpost_dns::wire::rdata::{self, Field, NameForm, RdataError, fields};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, Ttl};
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::write::to_text;
use signpost_dns::zonefile::{ZoneRead, rdata_out, read_records, read_zone};

fn read(text: &[u8]) -> ZoneRead {
    let file: Arc<Path> = Path::new("z.example.zone").into();
    read_zone(text, &file, Some(origin()), &mut NoIncludes)
}

fn origin() -> Name {
    "z.example.".parse().unwrap()
}

/// Octets of which many mean something to a tokenizer.
fn octets(sizes: std::ops::Range<usize>) -> BoxedStrategy<Vec<u8>> {
    vec(prop_oneof![3 => any::<u8>(), 2 => prop::sample::select(&b" \t\n\r\"\\;()@$.,=*-0aZ"[..])], sizes).boxed()
}

fn name() -> BoxedStrategy<Vec<u8>> {
    vec(octets(1..8), 0..4)
        .prop_map(|labels| {
            let labels = labels.iter().map(Vec::as_slice);
            Name::from_labels(labels, &Name::root()).expect("short").as_wire().to_vec()
        })
        .boxed()
}

fn counted(sizes: std::ops::Range<usize>) -> BoxedStrategy<Vec<u8>> {
    octets(sizes).prop_map(|text| [&[text.len() as u8][..], &text].concat()).boxed()
}

fn exactly(count: usize) -> BoxedStrategy<Vec<u8>> {
    vec(any::<u8>(), count).boxed()
}

fn bitmap() -> BoxedStrategy<Vec<u8>> {
    btree_map(any::<u8>(), vec(any::<u8>(), 1..33), 0..4)
        .prop_map(|windows| {
            let mut wire = Vec::new();
            for (window, mut bits) in windows {
                *bits.last_mut().expect("not empty") |= 1;
                wire.extend([window, bits.len() as u8]);
                wire.extend(bits);
            }
            wire
        })
        .boxed()
}

fn svc_params() -> BoxedStrategy<Vec<u8>> {
    let param = |key: u16, value: BoxedStrategy<Vec<u8>>| {
        prop::option::of(value).prop_map(move |value| {
            value.map_or(Vec::new(), |value| {
                [&key.to_be_bytes()[..], &(value.len() as u16).to_be_bytes(), &value].concat()
            })
        })
    };
    let alpn = vec(counted(1..6), 1..4).prop_map(|ids| ids.concat()).boxed();
    let ipv4 = vec(exactly(4), 1..3).prop_map(|hints| hints.concat()).boxed();
    let ipv6 = vec(exactly(16), 1..3).prop_map(|hints| hints.concat()).boxed();
    (
        prop::bool::ANY,
        param(1, alpn),
        (param(3, exactly(2)), param(4, ipv4), param(5, octets(1..9)), param(6, ipv6)),
        param(7, octets(1..9)),
        prop::option::of((9u16.., octets(0..12))),
    )
        .prop_map(|(mandatory, alpn, (port, ipv4, ech, ipv6), dohpath, other)| {
            let other = other.map_or(Vec::new(), |(key, value)| {
                [&key.to_be_bytes()[..], &(value.len() as u16).to_be_bytes(), &value].concat()
            });
            let mandatory = if mandatory && !port.is_empty() { &b"\0\0\0\x02\0\x03"[..] } else { b"" };
            let no_default = if alpn.is_empty() { &b""[..] } else { b"\0\x02\0\0" };
            [mandatory, &alpn, no_default, &port, &ipv4, &ech, &ipv6, &dohpath, &other].concat()
        })
        .boxed()
}

fn address_prefixes() -> BoxedStrategy<Vec<u8>> {
    vec((1u8..4, any::<u8>(), any::<bool>(), vec(any::<u8>(), 0..5)), 0..4)
        .prop_map(|prefixes| {
            let mut wire = Vec::new();
            for (family, prefix, negated, mut address) in prefixes {
                if let Some(last) = address.last_mut() {
                    *last |= 1;
                }
                address.truncate(4);
                if address.last() == Some(&0) {
                    address.clear();
                }
                let prefix = if family == 1 { prefix % 33 } else { prefix % 129 };
                wire.extend([0, family, prefix, u8::from(negated) << 7 | address.len() as u8]);
                wire.extend(address);
            }
            wire
        })
        .boxed()
}

fn location() -> BoxedStrategy<Vec<u8>> {
    let size = (0u8..10, 0u8..10).prop_map(|(digit, power)| digit << 4 | power);
    let angle = |degrees: u32| {
        let most = degrees * 3_600_000;
        ((1u32 << 31) - most..=(1 << 31) + most).prop_map(|angle| angle.to_be_bytes().to_vec())
    };
    (vec(size, 3), angle(90), angle(180), exactly(4))
        .prop_map(|(sizes, latitude, longitude, altitude)| {
            [&[0][..], &sizes, &latitude, &longitude, &altitude].concat()
        })
        .boxed()
}

fn field(field: Field) -> BoxedStrategy<Vec<u8>> {
    match field {
        Field::Name(_) => name(),
        Field::Names => vec(name(), 0..3).prop_map(|names| names.concat()).boxed(),
        Field::U8 | Field::Algorithm | Field::Scheme => exactly(1),
        Field::U16 | Field::Type | Field::CertificateType => exactly(2),
        Field::U32 | Field::Seconds | Field::Timestamp | Field::Ipv4 => exactly(4),
        Field::Eui48 => exactly(6),
        Field::Node64 | Field::Eui64 => exactly(8),
        Field::Ipv6 => exactly(16),
        Field::CharacterString => counted(0..256),
        Field::CharacterStrings => vec(counted(0..40), 1..4).prop_map(|texts| texts.concat()).boxed(),
        Field::Text | Field::Opaque => octets(0..60),
        Field::Target => octets(1..60),
        Field::Tag => "[a-zA-Z0-9]{1,15}".prop_map(|tag| [&[tag.len() as u8], tag.as_bytes()].concat()).boxed(),
        Field::Hex | Field::Nsap | Field::Base64 => vec(any::<u8>(), 1..80).boxed(),
        Field::Base64OrNone => vec(any::<u8>(), 0..80).boxed(),
        Field::Salt => counted(0..20),
        Field::TypeBitmap => bitmap(),
        // Follow an octet before, which `of_type` sets.
        Field::Gateway | Field::ZoneDigest | Field::HashedOwner => Just(Vec::new()).boxed(),
        Field::Relay => (any::<bool>(), host())
            .prop_map(|(discovery, (kind, relay))| [&[u8::from(discovery) << 7 | kind][..], &relay].concat())
            .boxed(),
        Field::HostIdentity => (vec(any::<u8>(), 1..20), any::<u8>(), vec(any::<u8>(), 1..60))
            .prop_map(|(tag, algorithm, key)| {
                [&[tag.len() as u8, algorithm][..], &(key.len() as u16).to_be_bytes(), &tag, &key].concat()
            })
            .boxed(),
        Field::AddressPrefixes => address_prefixes(),
        Field::SvcParams => svc_params(),
        Field::Location => location(),
    }
}

/// The kind (none, an address or a name), and its octets.
fn host() -> impl Strategy<Value = (u8, Vec<u8>)> {
    prop_oneof![
        Just((0, Vec::new())),
        exactly(4).prop_map(|address| (1, address)),
        exactly(16).prop_map(|address| (2, address)),
        name().prop_map(|name| (3, name)),
    ]
}

/// Valid data of a type, made from the table that the reader and writer use.
fn of_type(rtype: RecordType) -> BoxedStrategy<Vec<u8>> {
    if rtype == RecordType::IPSECKEY {
        return (any::<u8>(), host(), any::<u8>(), vec(any::<u8>(), 0..40))
            .prop_map(|(precedence, (kind, gateway), algorithm, key)| {
                [&[precedence, kind, algorithm][..], &gateway, &key].concat()
            })
            .boxed();
    }
    if rtype == RecordType::ZONEMD {
        let digest = prop_oneof![
            exactly(48).prop_map(|digest| [&[1, 1][..], &digest].concat()),
            exactly(64).prop_map(|digest| [&[1, 2][..], &digest].concat()),
            vec(any::<u8>(), 12..40).prop_map(|digest| [&[240, 240][..], &digest].concat()),
        ];
        return (exactly(4), digest).prop_map(|(serial, digest)| [serial, digest].concat()).boxed();
    }
    if rtype == RecordType::NSEC3 {
        // The hash SHA-1, whose length is known, and others, whose length is not.
        let hashes = prop_oneof![Just((1, 20..21)), (2u8.., Just(1..40))];
        let parts = hashes.prop_flat_map(|(algorithm, sizes)| {
            let owner = counted(sizes);
            (Just(algorithm), exactly(3), counted(0..20), owner, bitmap())
        });
        return parts
            .prop_map(|(algorithm, flags, salt, owner, types)| {
                [&[algorithm][..], &flags, &salt, &owner, &types].concat()
            })
            .boxed();
    }
    let parts: Vec<_> = fields(rtype).iter().map(|kind| field(*kind)).collect();
    parts.prop_map(|parts| parts.concat()).boxed()
}

/// All types of the table, and some that are not in it.
fn any_type() -> BoxedStrategy<RecordType> {
    let known = (1..300u16).map(RecordType).filter(|rtype| fields(*rtype) != [Field::Opaque] && !rtype.is_meta());
    let known: Vec<_> = known.filter(|rtype| *rtype != RecordType::SOA).collect();
    prop_oneof![9 => prop::sample::select(known), 1 => (300u16..).prop_map(RecordType), 1 => Just(RecordType::NULL)]
        .boxed()
}

fn zone() -> impl Strategy<Value = Contents> {
    let rrset = any_type().prop_flat_map(|rtype| {
        let single = matches!(rtype, RecordType::CNAME | RecordType::DNAME);
        (Just(rtype), 0..=i32::MAX as u32, btree_set(of_type(rtype), 1..if single { 2 } else { 4 }))
    });
    (of_type(RecordType::SOA), 0..=i32::MAX as u32, vec((octets(1..6), rrset), 0..12)).prop_map(
        |(soa, soa_ttl, rrsets)| {
            let mut zone = Contents::new(origin());
            zone.add(origin(), RecordType::SOA, Ttl::new(soa_ttl).unwrap(), soa.into()).unwrap();
            zone.add(origin(), RecordType::NS, Ttl::new(5).unwrap(), Box::from(&b"\x02ns\x05other\0"[..])).unwrap();
            // Each owner has one type, and none is a wildcard: what zones may not hold is another test.
            for (index, (label, (rtype, ttl, data))) in rrsets.into_iter().enumerate() {
                let owner = origin().prepend(&label).unwrap().prepend(format!("o{index}").as_bytes()).unwrap();
                for rdata in data {
                    assert_eq!(rdata::validate(rtype, &rdata), Ok(()), "{rtype} {rdata:?}");
                    zone.add(owner.clone(), rtype, Ttl::new(ttl).unwrap(), rdata.into()).unwrap();
                }
            }
            zone
        },
    )
}

/// Text similar to a zone, with mistakes.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(&[
            "$TTL 300\n", "$ORIGIN a\n", "$GENERATE 1-3 g$ A 192.0.2.$\n", "$INCLUDE x\n", "@ ", "a ", " ", "\n", "IN ", "60 ",
            "SOA . . 1 2 3 4 5\n", "NS ns\n", "A 192.0.2.1\n", "AAAA ::1\n", "TXT \"a b\" c\n", "MX 1 b\n", "(", ")", "\"", ";", "\\",
            "NSEC a A TYPE9\n", "SVCB 1 . alpn=\"h2\"\n", "LOC 1 N 2 E 3\n", "TYPE9 \\# 1 aa\n", "APL !1:10.0.0.0/8\n",
            "IPSECKEY 1 1 1 192.0.2.1 AA==\n", "CAA 0 issue x\n", "HIP 2 AA AA==\n", "DS 1 8 2 aa\n", "\r\n", "*", "CNAME ",
        ][..]).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => octets(0..6),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_zone_writes_and_reads_back(zone in zone()) {
        let text = to_text(&zone);
        let again = read(&text);
        let shown = String::from_utf8_lossy(&text);
        prop_assert_eq!(again.contents, Some(zone), "{}\n{:?}", shown, again.findings);
    }

    #[test]
    fn any_text_is_read_or_refused(text in text()) {
        let first = read(&text);
        prop_assert_eq!(first.contents.is_none(), first.findings.iter().any(|f| f.severity == signpost_dns::zonefile::Severity::Error));
        if let Some(zone) = first.contents {
            let written = to_text(&zone);
            let again = read(&written);
            prop_assert_eq!(again.contents, Some(zone), "{}\n{:?}", String::from_utf8_lossy(&written), again.findings);
        }
        read_records(&text, &Arc::from(Path::new("x")), &origin());
    }

    #[test]
    fn any_octets_are_read_or_refused(text in octets(0..300)) {
        read(&text);
        read_records(&text, &Arc::from(Path::new("x")), &origin());
    }

    /// Data of any type and any octets: checked, walked, made canonical and written without a panic, and what is valid
    /// reads back.
    #[test]
    fn any_octets_as_data(rtype in any_type(), data in octets(0..80)) {
        match rdata::validate(rtype, &data) {
            Ok(()) => {
                let names: Vec<_> = rdata::names(rtype, &data).collect();
                for name in &names {
                    prop_assert!(Name::from_wire(name.wire).is_ok());
                }
                let folded = rdata::canonical(rtype, &data);
                prop_assert!(folded.eq_ignore_ascii_case(&data));
                if names.iter().all(|name| name.form == NameForm::Exact) {
                    prop_assert_eq!(&*folded, &data[..]);
                }
                let mut line = format!("x 60 {rtype} ").into_bytes();
                rdata_out::write(rtype, &data, &mut line);
                let (records, findings) = read_records(&line, &Arc::from(Path::new("x")), &origin());
                prop_assert_eq!(records.first().map(|record| &record.rdata[..]), Some(&data[..]), "{:?} {:?}", String::from_utf8_lossy(&line), findings);
            }
            Err(RdataError::TooLong) => prop_assert!(false, "it is short"),
            Err(_) => {}
        }
    }

    /// RFC 4034 §6.1, word for word: labels from the root as octet strings in lower case, absence before anything.
    #[test]
    fn names_have_the_canonical_order(a in name(), b in name()) {
        let key = |name: &Name| {
            let mut labels: Vec<Vec<u8>> = name.labels().map(<[u8]>::to_ascii_lowercase).collect();
            labels.reverse();
            labels
        };
        let (a, b) = (Name::from_wire(&a).unwrap(), Name::from_wire(&b).unwrap());
        prop_assert_eq!(a.cmp(&b), key(&a).cmp(&key(&b)));
    }

    /// The `domain` crate shares no code with ours. It reads what we write to the same octets, in the types it knows.
    #[test]
    fn another_parser_reads_the_same(zone in zone()) {
        // The types for which `domain` 0.12 reads text.
        const KNOWN: [RecordType; 29] = [
            RecordType::A, RecordType::AAAA, RecordType::NS, RecordType::CNAME, RecordType::SOA, RecordType::PTR,
            RecordType::HINFO, RecordType::MX, RecordType::TXT, RecordType::MINFO, RecordType::MB, RecordType::MG,
            RecordType::MR, RecordType::DNAME, RecordType::SRV, RecordType::NAPTR, RecordType::DS, RecordType::CDS,
            RecordType::DNSKEY, RecordType::CDNSKEY, RecordType::RRSIG, RecordType::NSEC, RecordType::NSEC3,
            RecordType::NSEC3PARAM, RecordType::TLSA, RecordType::ZONEMD, RecordType::CAA,
            RecordType::SSHFP, RecordType::OPENPGPKEY,
        ];
        let mut reduced = Contents::new(origin());
        for (owner, rrsets) in zone.owners() {
            for rrset in rrsets.iter().filter(|rrset| KNOWN.contains(&rrset.rtype)) {
                reduced.set(owner.clone(), rrset.clone()).unwrap();
            }
        }
        let text = to_text(&reduced);
        let mut theirs: Vec<Flat> = domain_records(&text)
            .map_err(|error| TestCaseError::fail(format!("{error}\n{}", String::from_utf8_lossy(&text))))?;
        let mut ours: Vec<Flat> = Vec::new();
        for (owner, rrsets) in reduced.owners() {
            for rrset in rrsets {
                for rdata in &rrset.rdata {
                    ours.push((owner.as_wire().to_vec(), rrset.rtype.0, rdata.to_vec()));
                }
            }
        }
        theirs.sort();
        ours.sort();
        prop_assert_eq!(theirs, ours, "{}", String::from_utf8_lossy(&text));
    }
}

/// A record as owner in wire form, type and data.
type Flat = (Vec<u8>, u16, Vec<u8>);

fn domain_records(text: &[u8]) -> Result<Vec<Flat>, String> {
    use domain::base::ToName as _;
    use domain::base::rdata::ComposeRecordData as _;
    use domain::zonefile::inplace::{Entry, Zonefile};
    let mut file = Zonefile::load(&mut &text[..]).map_err(|error| error.to_string())?;
    let mut records = Vec::new();
    while let Some(entry) = file.next_entry().map_err(|error| error.to_string())? {
        if let Entry::Record(record) = entry {
            let mut data = Vec::new();
            record.data().compose_rdata(&mut data).map_err(|error| error.to_string())?;
            records.push((record.owner().to_vec().as_slice().to_vec(), record.rtype().to_int(), data));
        }
    }
    Ok(records)
}
