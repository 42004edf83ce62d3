//! The writer of zone files that other name servers load (RFC 1035 §5).
//!
//! `$ORIGIN` and `$TTL` come first, then the SOA, the other records of the apex, and the rest in canonical order. Owners are
//! relative to the origin, names inside data absolute, TTLs are written if they differ from `$TTL`. The same zone always results
//! in the same text.

use std::io::{self, Write};

use super::rdata_out::write_portable;
use crate::wire::name::{push_label_text, push_name_text};
use crate::wire::{Name, RecordType};
use crate::zone::rrset::ttl_of;
use crate::zone::{Contents, Ttl};

/// The number of octets that are buffered before they are written.
const CHUNK_OCTETS: usize = 64 * 1024;

/// Writes `zone` to `to`.
pub fn write(zone: &Contents, to: &mut impl Write) -> io::Result<()> {
    let mut out = Vec::with_capacity(CHUNK_OCTETS + 1024);
    let apex = zone.apex();
    let default_ttl = zone.get(apex, RecordType::SOA).map_or(Ttl::default(), |soa| soa.ttl);
    out.extend_from_slice(b"$ORIGIN ");
    push_name_text(apex.as_wire(), &mut out);
    writeln!(out, "\n$TTL {}", default_ttl.seconds())?;
    let mut owner_text = Vec::new();
    for (owner, rrsets) in zone.owners() {
        owner_text.clear();
        push_owner(owner, apex, &mut owner_text);
        let (soa, others): (Vec<_>, Vec<_>) = rrsets.iter().partition(|rrset| rrset.rtype == RecordType::SOA);
        for rrset in soa.into_iter().chain(others) {
            for rdata in &rrset.rdata {
                out.extend_from_slice(&owner_text);
                let ttl = ttl_of(rrset, rdata, rrsets);
                if ttl != default_ttl {
                    write!(out, "\t{}", ttl.seconds())?;
                }
                out.extend_from_slice(b"\tIN\t");
                write_portable(rrset.rtype, rdata, &mut out);
                out.push(b'\n');
            }
            if out.len() >= CHUNK_OCTETS {
                to.write_all(&out)?;
                out.clear();
            }
        }
    }
    to.write_all(&out)
}

/// Returns the text that [`write()`] writes.
pub fn to_text(zone: &Contents) -> Vec<u8> {
    let mut text = Vec::new();
    write(zone, &mut text).expect("a vector takes all that is written to it");
    text
}

/// An owner relative to the apex, `@` for the apex itself.
fn push_owner(owner: &Name, apex: &Name, out: &mut Vec<u8>) {
    let own = owner.label_count() - apex.label_count();
    if own == 0 {
        out.push(b'@');
    }
    for (index, label) in owner.labels().take(own).enumerate() {
        if index > 0 {
            out.push(b'.');
        }
        push_label_text(label, out);
    }
}
