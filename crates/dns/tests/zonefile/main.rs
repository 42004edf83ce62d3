//! Zone files: the content of ordinary, odd and broken ones, and how mistakes are reported.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

mod findings;

use std::path::Path;
use std::sync::Arc;

use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Contents;
use signpost_dns::zonefile::include::{FolderIncludes, Includes, NoIncludes};
use signpost_dns::zonefile::write::to_text;
use signpost_dns::zonefile::{CheckLevel, Severity, ZoneRead, rdata_out, read_records, read_zone, read_zone_with};

const HEAD: &str = "$TTL 300\n@ SOA ns.example.org. admin.example.org. 1 2 3 4 300\n@ NS ns\nns A 192.0.2.1\n";

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn read(text: &[u8]) -> ZoneRead {
    let file: Arc<Path> = Path::new("example.org.zone").into();
    read_zone(text, &file, Some(name("example.org.")), &mut NoIncludes)
}

/// The findings as `line:column code`.
fn short(read: &ZoneRead) -> Vec<String> {
    read.findings.iter().map(|f| format!("{}:{} {}", f.line, f.column, f.code)).collect()
}

/// The records of a zone that reads, as `owner ttl type data`, without those of `HEAD`.
fn records_after_head(text: &str) -> Result<Vec<String>, Vec<String>> {
    let read = read(format!("{HEAD}{text}").as_bytes());
    let Some(zone) = &read.contents else { return Err(short(&read)) };
    Ok(records(zone).into_iter().filter(|line| !HEAD_RECORDS.contains(&line.as_str())).collect())
}

const HEAD_RECORDS: [&str; 3] = [
    "example.org. 300 SOA ns.example.org. admin.example.org. 1 2 3 4 300",
    "example.org. 300 NS ns.example.org.",
    "ns.example.org. 300 A 192.0.2.1",
];

fn records(zone: &Contents) -> Vec<String> {
    let mut lines = Vec::new();
    for (owner, rrsets) in zone.owners() {
        for rrset in rrsets {
            for rdata in &rrset.rdata {
                let mut text = Vec::new();
                rdata_out::write(rrset.rtype, rdata, &mut text);
                let text = String::from_utf8(text).expect("text is ASCII");
                lines.push(format!("{owner} {} {} {text}", rrset.ttl.seconds(), rrset.rtype));
            }
        }
    }
    lines
}

/// Ordinary input that public parsers corrupt or refuse, and other corners: text after `HEAD`, and the records.
#[test]
fn what_is_read() {
    let long = "x".repeat(255);
    let long_text = format!("a TXT {long}");
    let long_read = format!("a.example.org. 300 TXT \"{long}\"");
    let cases: &[(&str, &[&str])] = &[
        ("www CNAME @", &["www.example.org. 300 CNAME example.org."]),
        ("$ORIGIN sub\na A 192.0.2.9", &["a.sub.example.org. 300 A 192.0.2.9"]),
        ("$ORIGIN other.example.org.\n@ A 192.0.2.9", &["other.example.org. 300 A 192.0.2.9"]),
        ("$ttl 60\na A 192.0.2.9", &["a.example.org. 60 A 192.0.2.9"]),
        ("$GENERATE 1-2 h$ A 192.0.2.$", &["h1.example.org. 300 A 192.0.2.1", "h2.example.org. 300 A 192.0.2.2"]),
        (
            "$generate 8-9/1 h${2,3} 60 IN CNAME $.x ; why",
            &["h010.example.org. 60 CNAME 8.x.example.org.", "h011.example.org. 60 CNAME 9.x.example.org."],
        ),
        (
            "$GENERATE 1-2 h$ MX \"1$ mail${-1,2}\"",
            &["h1.example.org. 300 MX 11 mail00.example.org.", "h2.example.org. 300 MX 12 mail01.example.org."],
        ),
        (
            "$GENERATE 0-255/128 ${0,3,n} PTR x${0,2,X}",
            &["0.0.example.org. 300 PTR x00.example.org.", "0.8.example.org. 300 PTR x80.example.org."],
        ),
        ("$GENERATE 5-5 t TXT \"a $ b\"", &["t.example.org. 300 TXT \"a 5 b\""]),
        ("a 1h30m A 192.0.2.9", &["a.example.org. 5400 A 192.0.2.9"]),
        ("a 60 IN A 192.0.2.9", &["a.example.org. 60 A 192.0.2.9"]),
        ("a IN 60 A 192.0.2.9", &["a.example.org. 60 A 192.0.2.9"]),
        ("a in a 192.0.2.9", &["a.example.org. 300 A 192.0.2.9"]),
        (r"\200 A 192.0.2.9", &[r"\200.example.org. 300 A 192.0.2.9"]),
        (r"a\ b A 192.0.2.9", &[r"a\032b.example.org. 300 A 192.0.2.9"]),
        (r"a\065b A 192.0.2.9", &["aAb.example.org. 300 A 192.0.2.9"]),
        (r#"a TXT "x\065y""#, &[r#"a.example.org. 300 TXT "xAy""#]),
        (r"a TXT foo\;bar", &[r#"a.example.org. 300 TXT "foo;bar""#]),
        (r#"a TXT ( "a b" "c;d" )"#, &[r#"a.example.org. 300 TXT "a b" "c;d""#]),
        ("a TXT ( x ; one\n  \"y ( z\"\n) ; end", &[r#"a.example.org. 300 TXT "x" "y ( z""#]),
        (r#"a TXT """#, &[r#"a.example.org. 300 TXT """#]),
        ("a TXT \"über\"", &[r#"a.example.org. 300 TXT "\195\188ber""#]),
        (&long_text, &[&long_read]),
        (r"a TYPE65400 \# 4 0a0b 0C0D", &[r"a.example.org. 300 TYPE65400 \# 4 0A0B0C0D"]),
        (r"a A \# 4 c0000209", &["a.example.org. 300 A 192.0.2.9"]),
        (r"a TYPE1 \# 4 c0000209", &["a.example.org. 300 A 192.0.2.9"]),
        ("a CLASS1 TYPE1 192.0.2.9", &["a.example.org. 300 A 192.0.2.9"]),
        (r"a TYPE65400 \# 0", &[r"a.example.org. 300 TYPE65400 \# 0"]),
        (r"\* A 192.0.2.9", &["*.example.org. 300 A 192.0.2.9"]),
        (r"\@ A 192.0.2.9", &[r"\@.example.org. 300 A 192.0.2.9"]),
        ("in A 192.0.2.9", &["in.example.org. 300 A 192.0.2.9"]),
        ("300 A 192.0.2.9", &["300.example.org. 300 A 192.0.2.9"]),
        ("A A 192.0.2.9", &["A.example.org. 300 A 192.0.2.9"]),
        (
            "a A 192.0.2.9\n  A 192.0.2.10\n\tAAAA 2001:DB8::1",
            &[
                "a.example.org. 300 A 192.0.2.9",
                "a.example.org. 300 A 192.0.2.10",
                "a.example.org. 300 AAAA 2001:db8::1",
            ],
        ),
        ("a DNAME b\n", &["a.example.org. 300 DNAME b.example.org."]),
        ("a A 192.0.2.9\r\nb A 192.0.2.10\r\n", &["a.example.org. 300 A 192.0.2.9", "b.example.org. 300 A 192.0.2.10"]),
        ("; only a comment, no newline", &[]),
        ("   \t  \n(\n)\n", &[]),
    ];
    for (text, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(records_after_head(text), Ok(expected), "{text}");
    }
}

/// Each type's text: as input, and as output (the same where there is only one).
#[test]
fn every_type() {
    let file = include_str!("types.txt");
    let mut seen = 0;
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (given, written) = line.split_once(" => ").unwrap_or((line, line));
        let expected = vec![format!("t.example.org. 300 {written}")];
        assert_eq!(records_after_head(&format!("t {given}\n")), Ok(expected.clone()), "{given}");
        assert_eq!(records_after_head(&format!("t {written}\n")), Ok(expected), "{written}");
        seen += 1;
    }
    assert!(seen > 60, "{seen} lines only");
}

/// The types that a zone file has to know by name; RFC 3597 is for the rest.
const TYPES: &str = "A AAAA NS CNAME PTR HINFO MX TXT RP AFSDB LOC SRV NAPTR KX CERT DNAME DS SSHFP IPSECKEY NSEC DNSKEY DHCID \
                     NSEC3 NSEC3PARAM TLSA SMIMEA HIP CDS CDNSKEY OPENPGPKEY CSYNC ZONEMD SVCB HTTPS SPF EUI48 EUI64 URI CAA \
                     AMTRELAY DSYNC TALINK DLV TA AVC NINFO RKEY";

/// Text to wire and back, against what others make of the same text; the wire form in hex reads as the same record.
#[test]
fn every_type_on_the_wire() {
    let mut seen = Vec::new();
    for line in include_str!("wire.txt").lines().filter(|line| !line.starts_with('#')) {
        let (text, hex) = line.split_once(" => ").unwrap();
        let rdata = |text: &str| {
            let read = read(format!("{HEAD}t {text}\n").as_bytes());
            let zone = read.contents.unwrap_or_else(|| panic!("{text}: {:?}", read.findings));
            let (rtype, _) = text.split_once(' ').unwrap();
            let rtype: RecordType = rtype.parse().unwrap();
            (rtype, zone.get(&name("t.example.org."), rtype).unwrap().rdata[0].clone())
        };
        let (rtype, wire) = rdata(text);
        assert_eq!(data_encoding::HEXUPPER.encode(&wire), hex, "{text}");
        assert_eq!(rdata(&format!("{rtype} \\# {} {hex}", wire.len())).1, wire, "{text}");
        assert_eq!(rdata(&format!("TYPE{} \\# {} {hex}", rtype.0, wire.len())).1, wire, "{text}");
        seen.push(rtype.to_string());
    }
    let missing: Vec<&str> = TYPES.split_whitespace().filter(|rtype| !seen.iter().any(|seen| seen == rtype)).collect();
    assert_eq!(missing, [""; 0], "types without a line in wire.txt");
}

/// A record with one thing wrong is refused, at its line, and nothing else is.
#[test]
fn what_no_type_takes() {
    let mut seen = Vec::new();
    for line in include_str!("refused.txt").lines().filter(|line| !line.starts_with('#')) {
        let read = read(format!("{HEAD}t {line}\nu A 192.0.2.9\n").as_bytes());
        let errors: Vec<_> = read.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
        assert_eq!(errors.iter().map(|error| error.line).collect::<Vec<_>>(), [5], "{line}: {:?}", read.findings);
        seen.extend(line.split(' ').next());
    }
    let missing: Vec<&str> =
        TYPES.split_whitespace().filter(|rtype| !seen.contains(rtype) && *rtype != "SPF").collect();
    assert_eq!(missing, [""; 0], "types without a line in refused.txt");
}

/// Refused text, and the exact position: text after the four lines of `HEAD`.
#[test]
fn what_is_refused_and_where() {
    let long = format!("a TXT {}", "x".repeat(256));
    let wide = format!("a{} A 192.0.2.1", ".a".repeat(127));
    let cases: &[(&str, &[&str])] = &[
        ("a A 192.0.2", &["5:5 rdata"]),
        ("a A 192.0.2.1 192.0.2.2", &["5:15 rdata"]),
        ("a A", &["5:4 rdata"]),
        ("a", &["5:2 type"]),
        ("a IN", &["5:5 type"]),
        ("a FOO 1", &["5:3 type"]),
        ("a CH A 192.0.2.1", &["5:3 class"]),
        ("a ANY x", &["5:1 type"]),
        ("a 3x A 192.0.2.1", &["5:3 ttl"]),
        ("a 4294967296 A 192.0.2.1", &["5:3 ttl"]),
        ("a MX 65536 b", &["5:6 number"]),
        ("a MX ten b", &["5:6 number"]),
        ("a..b A 192.0.2.1", &["5:1 name"]),
        (&wide, &["5:1 name"]),
        ("bücher A 192.0.2.1", &["5:1 name"]),
        ("a CNAME \"b\"", &["5:9 name"]),
        (&long, &["5:7 rdata"]),
        ("a TXT ( x", &["5:7 syntax"]),
        ("a TXT ( x\nb A 192.0.2.1\n", &["5:7 syntax"]),
        ("a TXT x )\nb A 192.0.2\n", &["5:9 syntax", "6:5 rdata"]),
        ("a TXT \"x\nb A 192.0.2\n", &["5:7 syntax", "6:5 rdata"]),
        ("a TXT x\"y\"", &["5:8 syntax"]),
        (r"a TXT \300", &["5:7 text"]),
        (r"a TYPE65400 \# 4 0a0b", &["5:16 rdata"]),
        (r"a TYPE65400 192.0.2.1", &["5:13 rdata"]),
        (r"a A \# 3 0a0b0c", &["5:5 rdata"]),
        (r"a NS \# 2 c00c", &["5:6 rdata"]),
        ("a NSEC b A FOO", &["5:12 rdata"]),
        ("a DS 1 8 2 zz", &["5:12 rdata"]),
        ("a SVCB 1 . mandatory=port", &["5:8 rdata"]),
        ("a SVCB 1 . port=1 port=2", &["5:19 rdata"]),
        ("a SVCB 1 . port=x", &["5:12 rdata"]),
        ("a CAA 0 is-sue x", &["5:7 rdata"]),
        ("a ZONEMD 1 1 1 00", &["5:10 rdata"]),
        ("a AMTRELAY 10 2 1 203.0.113.15", &["5:15 number"]),
        ("a AMTRELAY 10 0 4 203.0.113.15", &["5:17 number"]),
        ("a AMTRELAY 10 0 0 203.0.113.15", &["5:19 rdata"]),
        ("a DSYNC CDS POST 53 b", &["5:13 rdata"]),
        ("$ORIGIN", &["5:8 directive"]),
        ("$ORIGIN a b", &["5:11 directive"]),
        ("$TTL x", &["5:6 ttl"]),
        ("$FOO x", &["5:1 directive"]),
        ("$INCLUDE x", &["5:10 include"]),
        ("$GENERATE 2-1 a$ A 192.0.2.1", &["5:11 generate"]),
        ("$GENERATE 1-999 a$ A 192.0.2.$\nb A 1", &["5:1 rdata", "6:5 rdata"]),
        ("$GENERATE 1-2 a${0 A 192.0.2.$", &["5:1 generate"]),
        ("a A 192.0.2.1\nb A x\nc A 192.0.2.3\nd FOO", &["6:5 rdata", "8:3 type"]),
        // Faults of the records that could be read are in the same run; missing ones may be among those that could not.
        ("b A x\nc CNAME d\nc A 192.0.2.3\nsub NS ns.sub", &["5:5 rdata", "7:1 cname-not-alone"]),
        // So are those that the record that could not be read has nothing to do with.
        ("b TXT \\300\nsub NS ns.sub", &["5:7 text", "6:1 ns-no-address"]),
        ("*.sub TXT \\300\nsub2 NS ns.sub2", &["5:11 text", "6:1 ns-no-address"]),
        ("* A x\nsub2 NS ns.other", &["5:5 rdata"]),
        ("b TXT ( x\nsub NS ns.sub", &["5:7 syntax"]),
        ("b FOO x\nsub NS ns.sub", &["5:3 type"]),
        ("b NS a..b\nd DS 1 8 99 aa", &["5:6 name"]),
        ("b TXT \\300\nd DS 1 8 99 aa\nm MX 1 c\nc CNAME ns", &["5:7 text", "6:1 ds-without-ns", "7:1 mx-to-cname"]),
        ("$TTL x\nd DS 1 8 99 aa\nm MX 1 c\nc CNAME ns", &["5:6 ttl", "7:1 mx-to-cname"]),
    ];
    for (text, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|place| (*place).to_owned()).collect();
        assert_eq!(records_after_head(text), Err(expected), "{text}");
    }
    assert_eq!(short(&read(b"  A 192.0.2.1\n")), ["1:3 owner"]);
    assert_eq!(short(&read(b"")), ["1:1 soa-missing"]);
    assert_eq!(short(&read(b"a A x\n")), ["1:1 soa-missing", "1:5 rdata"]);
    assert_eq!(short(&read(b"@ SOA x\n")), ["1:8 rdata"]);
    let unnamed = read_zone(b"a A 192.0.2.1", &Arc::from(Path::new("x")), None, &mut NoIncludes);
    assert_eq!(short(&unnamed), ["1:1 name"]);
}

#[test]
fn records_before_the_soa_and_without_ttl() {
    let soa = "@ SOA ns admin 1 2 3 4 900\n@ NS ns\n";
    let with_ttl = "@ 300 SOA ns admin 1 2 3 4 900\n@ NS ns\n";
    let (said, inherited) = ("ttl-missing", "ttl-inherited");
    for (text, ttls, findings) in [
        // No line has one: the SOA's minimum.
        (format!("{soa}a A 192.0.2.1\nb A 192.0.2.1"), [900, 900, 900], vec![format!("1:1 {said}")]),
        (format!("a A 192.0.2.1\nb A 192.0.2.1\n{soa}"), [900, 900, 900], vec![format!("3:1 {said}")]),
        // BIND's ttl1.db: it is like a $TTL after the SOA, until there is one.
        (format!("{soa}a 60 A 192.0.2.1\nb A 192.0.2.1"), [900, 60, 900], vec![format!("1:1 {said}")]),
        (format!("{soa}a 60 A 192.0.2.1\n$TTL 30\nb A 192.0.2.1"), [900, 60, 30], vec![format!("1:1 {said}")]),
        // RFC 1035 §5.1: otherwise the last that was stated.
        (format!("{with_ttl}a 60 A 192.0.2.1\nb A 192.0.2.1"), [300, 60, 60], vec![format!("2:1 {inherited}")]),
        (format!("{with_ttl}a A 192.0.2.1\nb 0 A 192.0.2.1"), [300, 300, 0], vec![format!("2:1 {inherited}")]),
        (
            format!("a A 192.0.2.1\nb 60 A 192.0.2.1\n{soa}"),
            [60, 900, 60],
            vec![format!("1:1 {said}"), format!("3:1 {inherited}")],
        ),
        (
            format!("{with_ttl}$GENERATE 1-1 a 60 A 192.0.2.$\nb A 192.0.2.1"),
            [300, 60, 60],
            vec![format!("2:1 {inherited}")],
        ),
        // RFC 2308 §4: but not where there is a $TTL, from there on.
        (format!("$TTL 30\n{with_ttl}a 60 A 192.0.2.1\nb A 192.0.2.1"), [300, 60, 30], vec![]),
        (
            format!("{with_ttl}a 60 A 192.0.2.1\n$TTL 30\nb A 192.0.2.1"),
            [300, 60, 30],
            vec![format!("2:1 {inherited}")],
        ),
    ] {
        let read = read(format!("{text}\nns 10 A 192.0.2.3\n").as_bytes());
        assert_eq!(short(&read), findings, "{text}");
        let zone = read.contents.expect("no errors");
        let ttl = |owner: &str, rtype| zone.get(&name(owner), rtype).unwrap().ttl.seconds();
        let found =
            [("example.org.", RecordType::SOA), ("a.example.org.", RecordType::A), ("b.example.org.", RecordType::A)];
        assert_eq!(found.map(|(owner, rtype)| ttl(owner, rtype)), ttls, "{text}");
    }
}

/// The TTL of a Router replaces a `$TTL` there.
#[test]
fn records_alone_inherit_no_ttl() {
    let (records, findings) =
        read_records(b"a 60 A 192.0.2.1\nb A 192.0.2.1\n", &Path::new("text").into(), &name("example.org."));
    assert_eq!(findings, []);
    let ttls: Vec<_> = records.iter().map(|record| record.ttl.map(|ttl| ttl.seconds())).collect();
    assert_eq!(ttls, [Some(60), None]);
    // Where warnings are not shown, an invalid TTL is an error.
    let (_, findings) = read_records(b"a 2147483648 A 192.0.2.1", &Path::new("text").into(), &name("example.org."));
    assert_eq!(findings[0].code, "ttl");
}

#[test]
fn the_proposals_zones_load_with_their_warnings() {
    let proposal = ["soa-mname-root", "ttl-missing", "ns-lookalike", "ns-address-unused", "ns-loopback"];
    let (proposed, shipped) = ("tests/zonefile/proposal", "../../zones");
    for (directory, file, codes) in [
        (proposed, "shard1.zone", &proposal[..]),
        (proposed, "shard2.zone", &proposal[..]),
        // The repository's own files are an example to copy.
        (shipped, "shard1.zone", &[][..]),
        (shipped, "shard2.zone", &[][..]),
        (shipped, "v3.rhcloud.com.zone", &[][..]),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(directory).join(file);
        let text = std::fs::read(&path).unwrap();
        let origin = name(file.trim_end_matches(".zone"));
        let read = read_zone(&text, &Arc::from(path.as_path()), Some(origin), &mut NoIncludes);
        let mut found: Vec<_> = read.findings.iter().map(|finding| finding.code).collect();
        let mut codes = codes.to_vec();
        found.sort_unstable();
        codes.sort_unstable();
        assert_eq!(found, codes, "{directory}/{file}: {:#?}", read.findings);
        assert!(read.findings.iter().all(|finding| finding.severity == Severity::Warning));
        let zone = read.contents.expect("only warnings");
        if (directory, file) == (proposed, "shard1.zone") {
            assert_eq!(
                records(&zone),
                [
                    "shard1.v3.rhcloud.com. 300 SOA . shard1.v3.rhcloud.com. 2009092001 604800 86400 1206900 300",
                    "shard1.v3.rhcloud.com. 300 NS ns1.v3.rhcloud.com.",
                    "*.shard1.v3.rhcloud.com. 300 A 10.245.2.2",
                    "*.shard1.v3.rhcloud.com. 300 A 10.245.2.3",
                    "ns1.shard1.v3.rhcloud.com. 300 A 127.0.0.1",
                ]
            );
        }
    }
}

#[test]
fn signed_zones_load_and_write_back() {
    for (file, origin) in [("signed-nsec.zone", "example.org."), ("signed-nsec3.zone", "example.org.")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/zonefile").join(file);
        let text = std::fs::read(&path).unwrap();
        let read = read_zone(&text, &Arc::from(path.as_path()), Some(name(origin)), &mut NoIncludes);
        let zone = read.contents.unwrap_or_else(|| panic!("{:#?}", read.findings));
        assert_eq!(read.findings, [], "{file}");
        assert!(zone.get(zone.apex(), RecordType::DNSKEY).is_some());
        let again = read_zone(&to_text(&zone), &Arc::from(path.as_path()), None, &mut NoIncludes);
        assert_eq!(again.contents.as_ref(), Some(&zone), "{:#?}", again.findings);
    }
}

/// Files in memory; those that include themselves never end.
struct Memory(&'static [(&'static str, &'static str)]);

impl Includes for Memory {
    fn open(&mut self, _: &Path, file: &Path) -> Result<(Arc<Path>, Vec<u8>), String> {
        let (path, text) = self.0.iter().find(|(path, _)| Path::new(path) == file).ok_or("there is no such file")?;
        Ok((Path::new(path).into(), text.as_bytes().to_vec()))
    }
}

#[test]
fn includes() {
    let mut files = Memory(&[
        ("hosts", "$TTL 60\n$ORIGIN deep\nh A 192.0.2.2\n"),
        ("bad", "x A 192.0.2.3\ny A 1.2.3\n"),
        ("self", "$INCLUDE self\n$INCLUDE self\n"),
    ]);
    let file: Arc<Path> = Path::new("example.org.zone").into();
    let mut read =
        |text: &str| read_zone(format!("{HEAD}{text}").as_bytes(), &file, Some(name("example.org.")), &mut files);
    // The origin of an include stays inside, and its owner does not become ours; its TTL holds from there on.
    let good = read("o A 192.0.2.6\n$include hosts sub\na A 192.0.2.4\n$INCLUDE hosts ; here\n A 192.0.2.5\n")
        .contents
        .unwrap();
    let lines: Vec<_> = records(&good).into_iter().filter(|line| !HEAD_RECORDS.contains(&line.as_str())).collect();
    assert_eq!(
        lines,
        [
            "a.example.org. 60 A 192.0.2.4",
            "a.example.org. 60 A 192.0.2.5",
            "h.deep.example.org. 60 A 192.0.2.2",
            "o.example.org. 300 A 192.0.2.6",
            "h.deep.sub.example.org. 60 A 192.0.2.2",
        ]
    );
    let bad = read("$INCLUDE bad\n");
    assert_eq!(bad.findings[0].to_string(), "bad:2:5: error: expected an IPv4 address, found '1.2.3' [rdata]");
    let endless = read("$INCLUDE self\n");
    assert!(endless.contents.is_none());
    assert_eq!(endless.findings[0].code, "include");
    assert!(endless.findings[0].message.contains("includes itself"), "{}", endless.findings[0]);
    assert_eq!(short(&read("$INCLUDE missing\n")), ["5:10 include"]);
}

#[test]
fn includes_stay_in_their_folder() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "root:x:0\n").unwrap();
    let zones = outside.path().join("zones");
    std::fs::create_dir_all(zones.join("sub")).unwrap();
    std::fs::write(zones.join("sub/in"), "a A 192.0.2.1\n").unwrap();
    std::os::unix::fs::symlink("../secret", zones.join("link")).unwrap();
    let file: Arc<Path> = zones.join("example.org.zone").into();
    let read = |include: &str| {
        let text = format!("{HEAD}$INCLUDE {include}\n");
        read_zone(text.as_bytes(), &file, Some(name("example.org.")), &mut FolderIncludes::new(&zones))
    };
    assert!(read("sub/in").contents.is_some());
    let absolute = outside.path().join("secret").display().to_string();
    for path in ["../secret", "link", absolute.as_str(), "/dev/zero", "sub"] {
        let refused = read(path);
        assert_eq!(short(&refused), ["5:10 include"], "{path}");
        assert!(!refused.findings[0].message.contains("root:x"), "{path}");
    }
}

#[test]
fn records_of_a_router() {
    let called: Arc<Path> = Path::new("spec.records[0]").into();
    let origin = name("shard1.example.");
    let (records, findings) = read_records(b"@ 60 CAA 0 issue \"ca.example\"", &called, &origin);
    assert_eq!((records.len(), findings.len()), (1, 0));
    assert_eq!((&records[0].owner, records[0].rtype), (&origin, RecordType::CAA));
    let (_, findings) = read_records(b"@ CAA 0 issue", &called, &origin);
    assert_eq!(
        findings[0].to_string(),
        "spec.records[0]:1:14: error: expected a text, found the end of the record [rdata]"
    );
}

#[test]
fn the_writer_writes_an_ordinary_file() {
    let zone = read(format!("{HEAD}* 60 A 192.0.2.7\nA.b TXT \"a;b\" \\\"\nr RRSIG A 13 3 60 20300101000000 20200101000000 1 @ AAAA\n r A 192.0.2.1").as_bytes());
    assert!(zone.contents.is_none(), "a line that begins with a blank has no owner");
    let zone = read(format!("{HEAD}* 60 A 192.0.2.7\nA.b TXT \"a;b\" \\\"\n").as_bytes()).contents.unwrap();
    assert_eq!(
        String::from_utf8(to_text(&zone)).unwrap(),
        "$ORIGIN example.org.\n$TTL 300\n\
         @\tIN\tSOA\tns.example.org. admin.example.org. 1 2 3 4 300\n\
         @\tIN\tNS\tns.example.org.\n\
         *\t60\tIN\tA\t192.0.2.7\n\
         A.b\tIN\tTXT\t\"a;b\" \"\\\"\"\n\
         ns\tIN\tA\t192.0.2.1\n"
    );
}
