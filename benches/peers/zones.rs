//! The zones all servers serve: shard zones like ours, each a wildcard with two to eight addresses, every fourth with IPv6.

use std::fmt::Write as _;
use std::path::Path;

use signpost::wire::{Name, RecordType};
use signpost::zone::contents::Contents;
use signpost::zone::image::Zone;
use signpost::zone::rrset::Ttl;

/// How many there are.
pub const ZONES: usize = 1_001;

/// The wire form of a zone's apex.
pub fn apex(zone: usize) -> [u8; 18] {
    let mut apex = *b"\x05z0000\x05bench\x04test\0";
    let mut rest = zone;
    for place in (2..6).rev() {
        apex[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    apex
}

/// How many IPv4 addresses a zone's wildcard has.
fn addresses(zone: usize) -> u8 {
    2 + (zone % 7) as u8
}

/// Whether `reply` is the answer to a query for an address below a zone: the right number of records, no more and no less.
pub fn is_right(reply: &[u8]) -> bool {
    let zone = |reply: &[u8]| -> Option<usize> { std::str::from_utf8(reply.get(23..27)?).ok()?.parse().ok() };
    let header = reply.len() > 50 && reply[2] & 0xfe == 0x84 && reply[3] & 0x8f == 0 && reply[4..7] == [0, 1, 0];
    header && zone(reply).is_some_and(|zone| zone < ZONES && reply[7] == addresses(zone))
}

/// Writes all zones as master files `<directory>/<apex><suffix>`, and returns their apexes without final dot.
pub fn write(directory: &Path, suffix: &str) -> std::io::Result<Vec<String>> {
    std::fs::create_dir_all(directory)?;
    let mut names = Vec::with_capacity(ZONES);
    for zone in 0..ZONES {
        let name = format!("z{zone:04}.bench.test");
        let mut text = String::from(
            "$TTL 30\n@ SOA ns.bench.test. hostmaster.bench.test. 1 3600 600 86400 30\n@ NS ns.bench.test.\n",
        );
        for number in 0..addresses(zone) {
            writeln!(text, "* A 192.0.2.{number}").expect("a string takes all");
        }
        if zone.is_multiple_of(4) {
            text.push_str("* AAAA 2001:db8::1\n* AAAA 2001:db8::2\n");
        }
        std::fs::write(directory.join(format!("{name}{suffix}")), text)?;
        names.push(name);
    }
    Ok(names)
}

/// The same zones, compiled.
pub fn compiled() -> Vec<Zone> {
    (0..ZONES).map(compile).collect()
}

fn compile(zone: usize) -> Zone {
    let apex = Name::from_wire(&apex(zone)).expect("a name");
    let wildcard = apex.wildcard().expect("short enough");
    let mut soa = b"\x02ns\x05bench\x04test\0\x0ahostmaster\x05bench\x04test\0".to_vec();
    [1u32, 3600, 600, 86_400, 30].iter().for_each(|number| soa.extend_from_slice(&number.to_be_bytes()));
    let mut contents = Contents::new(apex.clone());
    let mut add = |owner: &Name, rtype: u16, rdata: &[u8]| {
        contents.add(owner.clone(), RecordType(rtype), Ttl::from_wire(30), rdata.into()).expect("in the zone");
    };
    add(&apex, 6, &soa);
    add(&apex, 2, b"\x02ns\x05bench\x04test\0");
    (0..addresses(zone)).for_each(|number| add(&wildcard, 1, &[192, 0, 2, number]));
    if zone.is_multiple_of(4) {
        for last in [1, 2] {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
            address[15] = last;
            add(&wildcard, 28, &address);
        }
    }
    Zone::build(&contents).expect("a whole zone")
}
