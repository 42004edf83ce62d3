//! The zones all servers serve: shard zones like ours, each a wildcard with two to eight addresses, every fourth with IPv6.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::contents::Contents;
use signpost_dns::zone::image::Zone;
use signpost_dns::zone::rrset::Ttl;

/// The number of zones, if it is not the measured parameter.
pub const ZONES: usize = 1_001;

const APEX_OCTETS: usize = 20;

/// Returns the wire form of a zone's apex.
pub fn apex(zone: usize) -> [u8; APEX_OCTETS] {
    let mut apex = *b"\x07z000000\x05bench\x04test\0";
    let mut rest = zone;
    for place in (2..8).rev() {
        apex[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    apex
}

/// Returns the number of IPv4 addresses of a zone's wildcard.
fn addresses(zone: usize) -> u8 {
    2 + (zone % 7) as u8
}

/// Returns whether `reply` is the answer to a query for an address below one of `zones` zones, with exactly the right number of
/// records.
pub fn is_right(reply: &[u8], zones: usize) -> bool {
    let zone = |reply: &[u8]| -> Option<usize> { std::str::from_utf8(reply.get(23..29)?).ok()?.parse().ok() };
    let header = reply.len() > 50 && reply[2] & 0xfe == 0x84 && reply[3] & 0x8f == 0 && reply[4..7] == [0, 1, 0];
    header && zone(reply).is_some_and(|zone| zone < zones && reply[7] == addresses(zone))
}

/// Some zones, and the directories of their master files, which are written when they are first wanted.
pub struct Zones {
    pub count: usize,
    /// The number of hosts that each zone has in addition.
    pub hosts: usize,
    folder: tempfile::TempDir,
    with_suffix: OnceCell<PathBuf>,
    without: OnceCell<PathBuf>,
}

impl Zones {
    pub fn new(count: usize) -> std::io::Result<Self> {
        Zones::with_hosts(count, 0)
    }

    pub fn with_hosts(count: usize, hosts: usize) -> std::io::Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Zones { count, hosts, folder, with_suffix: OnceCell::new(), without: OnceCell::new() })
    }

    /// Returns the directory of files `<apex>.zone`.
    pub fn files(&self) -> std::io::Result<&Path> {
        self.written(&self.with_suffix, ".zone")
    }

    /// Returns the directory of files `<apex>`.
    pub fn bare_files(&self) -> std::io::Result<&Path> {
        self.written(&self.without, "")
    }

    fn written<'a>(&self, cell: &'a OnceCell<PathBuf>, suffix: &str) -> std::io::Result<&'a Path> {
        if cell.get().is_none() {
            let folder = self.folder.path().join(format!("zones{suffix}"));
            std::fs::create_dir(&folder)?;
            for zone in 0..self.count {
                std::fs::write(folder.join(format!("{}{suffix}", name(zone))), text(zone, self.hosts))?;
            }
            cell.get_or_init(|| folder);
        }
        Ok(cell.get().expect("was set above"))
    }

    /// Adds a record to the file of a zone, and changes its serial.
    pub fn change(&self, zone: usize) -> std::io::Result<()> {
        let file = self.files()?.join(format!("{}.zone", name(zone)));
        let text = std::fs::read_to_string(&file)?;
        let serial = text.split(' ').nth(5).and_then(|serial| serial.parse::<u32>().ok()).unwrap_or_default();
        let soa = |serial: u32| format!("hostmaster.bench.test. {serial} ");
        let text = text.replacen(&soa(serial), &soa(serial + 1), 1);
        std::fs::write(file, format!("{text}more{serial} A 192.0.2.1\n"))
    }

    /// Returns the apexes of the zones, without a trailing dot.
    pub fn names(&self) -> impl Iterator<Item = String> {
        (0..self.count).map(name)
    }
}

fn name(zone: usize) -> String {
    format!("z{zone:06}.bench.test")
}

fn text(zone: usize, hosts: usize) -> String {
    let mut text =
        String::from("$TTL 30\n@ SOA ns.bench.test. hostmaster.bench.test. 1 3600 600 86400 30\n@ NS ns.bench.test.\n");
    for number in 0..addresses(zone) {
        writeln!(text, "* A 192.0.2.{number}").expect("a string takes all");
    }
    if zone.is_multiple_of(4) {
        text.push_str("* AAAA 2001:db8::1\n* AAAA 2001:db8::2\n");
    }
    for host in 0..hosts {
        let [_, a, b, c] = (host as u32).to_be_bytes();
        writeln!(text, "host{host:07} A 10.{a}.{b}.{c}").expect("a string takes all");
    }
    text
}

/// One of the same zones, compiled, with this serial.
pub fn compile(zone: usize, serial: u32) -> Zone {
    let apex = Name::from_wire(&apex(zone)).expect("a name");
    let wildcard = apex.wildcard().expect("short enough");
    let mut soa = b"\x02ns\x05bench\x04test\0\x0ahostmaster\x05bench\x04test\0".to_vec();
    [serial, 3600, 600, 86_400, 30].iter().for_each(|number| soa.extend_from_slice(&number.to_be_bytes()));
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
    Zone::build(contents).expect("a whole zone")
}
