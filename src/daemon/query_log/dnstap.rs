//! Records as dnstap messages (dnstap.info, `dnstap.proto`), each in a data frame of a Frame Streams stream.
//!
//! A request is an `AUTH_QUERY`, and its response an `AUTH_RESPONSE`. The format is protocol buffers with few fields, so they are
//! encoded here.

use std::net::IpAddr;

use super::line;
use crate::config::value::LogClients;
use signpost_dns::nameserver::Transport;
use signpost_dns::nameserver::query_log::Record;

/// Types of `Dnstap` and of `Message`.
const MESSAGE: u64 = 1;
const AUTH_QUERY: u64 = 1;
const AUTH_RESPONSE: u64 = 2;
/// The families of addresses.
const INET: u64 = 1;
const INET6: u64 = 2;
/// The wire types of fields (protocol buffers): a variable number of octets, octets with a length, and 32 bits.
const VARINT: u64 = 0;
const OCTETS: u64 = 2;
const FIXED32: u64 = 5;

/// Adds the frames of a record to `frames`. `identity` is the name of the server, if it has one.
pub fn write(frames: &mut Vec<u8>, record: &Record, clients: LogClients, identity: Option<&str>) {
    let (query, response) = record.messages();
    let zone = record.zone();
    // The zone of a query is optional, and tools print it.
    let zone = zone.as_ref().map(signpost_dns::wire::Name::as_wire);
    frame(frames, identity, |message| {
        common(message, AUTH_QUERY, record, clients);
        put(message, 10, query);
        put(message, 11, zone);
    });
    if record.reply.is_some() {
        frame(frames, identity, |message| {
            common(message, AUTH_RESPONSE, record, clients);
            // The time of the response is that of the batch, as for the query: answers take microseconds.
            number(message, 12, record.since_epoch.as_secs());
            fixed32(message, 13, record.since_epoch.subsec_nanos());
            put(message, 11, zone);
            put(message, 14, response);
        });
    }
}

/// Adds a data frame with a `Dnstap` of one `Message`.
fn frame(frames: &mut Vec<u8>, identity: Option<&str>, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    fill(&mut message);
    let start = frames.len();
    frames.extend_from_slice(&[0; 4]);
    put(frames, 1, identity.map(str::as_bytes));
    put(frames, 2, Some(concat!("signpost ", env!("CARGO_PKG_VERSION")).as_bytes()));
    put(frames, 14, Some(&message));
    number(frames, 15, MESSAGE);
    let length = u32::try_from(frames.len() - start - 4).expect("a frame is a few kilobytes");
    frames[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// The fields of both types.
fn common(message: &mut Vec<u8>, kind: u64, record: &Record, clients: LogClients) {
    number(message, 1, kind);
    let address = line::kept(record.client.ip(), clients);
    number(message, 2, if record.client.is_ipv4() { INET } else { INET6 });
    number(message, 3, protocol(record.transport));
    match address {
        Some(IpAddr::V4(ip)) => put(message, 4, Some(&ip.octets())),
        Some(IpAddr::V6(ip)) => put(message, 4, Some(&ip.octets())),
        None => {}
    }
    if clients == LogClients::Full {
        number(message, 6, u64::from(record.client.port()));
    }
    number(message, 8, record.since_epoch.as_secs());
    fixed32(message, 9, record.since_epoch.subsec_nanos());
}

/// Returns the `SocketProtocol` of a transport.
fn protocol(transport: Transport) -> u64 {
    match transport {
        Transport::Udp => 1,
        Transport::Tcp => 2,
        Transport::Tls => 3,
        Transport::Https => 4,
        Transport::Quic => 7,
    }
}

fn number(octets: &mut Vec<u8>, field: u64, value: u64) {
    varint(octets, field << 3 | VARINT);
    varint(octets, value);
}

fn fixed32(octets: &mut Vec<u8>, field: u64, value: u32) {
    varint(octets, field << 3 | FIXED32);
    octets.extend_from_slice(&value.to_le_bytes());
}

fn put(octets: &mut Vec<u8>, field: u64, value: Option<&[u8]>) {
    let Some(value) = value else { return };
    varint(octets, field << 3 | OCTETS);
    varint(octets, value.len() as u64);
    octets.extend_from_slice(value);
}

fn varint(octets: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        octets.push(value as u8 | 0x80);
        value >>= 7;
    }
    octets.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_seven_bits_in_an_octet() {
        for (value, expected) in [(0, &[0][..]), (127, &[127]), (128, &[0x80, 1]), (300, &[0xac, 2])] {
            let mut octets = Vec::new();
            varint(&mut octets, value);
            assert_eq!(octets, expected, "{value}");
        }
    }
}
