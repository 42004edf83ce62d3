//! A line of the query log, as JSON or as columns.
//!
//! With any octets in a name, the line stays one line with its columns: octets that are not printable ASCII, and spaces, are
//! written as `\DDD`, as in zone files (RFC 1035 §5.1).

use std::fmt::{self, Display};
use std::io::Write;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;

use crate::config::value::LogClients;
use signpost_dns::nameserver::query_log::{Record, Reply};
use signpost_dns::nameserver::stats::TRANSPORTS;
use signpost_dns::wire::header::{FLAG_AA, FLAG_CD, FLAG_QR, FLAG_RD, FLAG_TC, Opcode, Rcode};

/// The number of octets of an IPv4 and of an IPv6 address to keep if only the network is logged: a /24 and a /48.
const KEPT_OCTETS: (usize, usize) = (3, 6);

/// The bits of the header's flags by name. Signpost never sets RA, the bit after it, and AD, but a client can.
const FLAGS: [(u16, &str); 7] =
    [(FLAG_QR, "qr"), (FLAG_AA, "aa"), (FLAG_TC, "tc"), (FLAG_RD, "rd"), (0x80, "ra"), (0x20, "ad"), (FLAG_CD, "cd")];

/// Adds the line of a record to `text`, as a JSON object.
pub fn json(text: &mut Vec<u8>, record: &Record, clients: LogClients) {
    // Writing to memory cannot fail, and neither can the encoding of strings and numbers.
    let _ = serde_json::to_writer(&mut *text, &LogLine::of(record, clients));
    text.push(b'\n');
}

/// Adds the line of a record to `text`, as columns.
pub fn columns(text: &mut Vec<u8>, record: &Record, clients: LogClients) {
    // Writing to memory cannot fail.
    let _ = writeln!(text, "{}", LogLine::of(record, clients));
}

/// The fields of a line. Their order is that of the columns.
#[derive(Serialize)]
struct LogLine {
    time: String,
    transport: &'static str,
    /// Address, or network.
    client: Option<String>,
    port: Option<u16>,
    name: Option<String>,
    class: Option<String>,
    #[serde(rename = "type")]
    qtype: Option<String>,
    opcode: String,
    flags: Vec<&'static str>,
    edns: Option<Edns>,
    request_bytes: u16,
    rcode: Option<String>,
    response_flags: Vec<&'static str>,
    answers: u16,
    authorities: u16,
    additionals: u16,
    response_bytes: u16,
    zone: Option<String>,
}

#[derive(Serialize)]
struct Edns {
    version: u8,
    udp_payload: u16,
    #[serde(rename = "do")]
    dnssec_ok: bool,
}

impl LogLine {
    fn of(record: &Record, clients: LogClients) -> LogLine {
        let question = record.question();
        let (client, port) = client(record, clients);
        let reply = record.reply.unwrap_or(Reply { rcode: Rcode::NOERROR, flags: 0, counts: [0; 3], octets: 0 });
        let [answers, authorities, additionals] = reply.counts;
        LogLine {
            time: time(record),
            transport: TRANSPORTS[record.transport as usize],
            client,
            port,
            name: question.as_ref().map(|(name, ..)| name.to_string()),
            class: question.as_ref().map(|(.., class)| class.to_string()),
            qtype: question.as_ref().map(|(_, qtype, _)| qtype.to_string()),
            opcode: opcode((record.flags >> 11) as u8 & 0x0f),
            flags: flags(record.flags),
            edns: record.edns.map(|edns| Edns {
                version: edns.version,
                udp_payload: edns.payload_octets_max,
                dnssec_ok: edns.dnssec_ok,
            }),
            request_bytes: record.octets,
            rcode: record.reply.map(|reply| reply.rcode.to_string()),
            response_flags: flags(reply.flags),
            answers,
            authorities,
            additionals,
            response_bytes: reply.octets,
            zone: record.zone().map(|zone| zone.to_string().to_ascii_lowercase()),
        }
    }
}

impl Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let list = |flags: &[&str]| if flags.is_empty() { "-".to_owned() } else { flags.join(",") };
        let client = match (&self.client, self.port) {
            (Some(address), Some(port)) => format!("{address}#{port}"),
            (client, _) => or_dash(client),
        };
        let edns = self
            .edns
            .as_ref()
            .map(|edns| format!("{}/{}{}", edns.version, edns.udp_payload, if edns.dnssec_ok { "/do" } else { "" }));
        write!(f, "{} {} {client}", self.time, self.transport)?;
        write!(f, " {} {}", or_dash(&self.name), or_dash(&self.class))?;
        write!(f, " {} {}", or_dash(&self.qtype), self.opcode)?;
        write!(f, " {} {} {}", list(&self.flags), or_dash(&edns), self.request_bytes)?;
        write!(f, " {} {}", or_dash(&self.rcode), list(&self.response_flags))?;
        write!(f, " {}/{}/{}", self.answers, self.authorities, self.additionals)?;
        write!(f, " {} {}", self.response_bytes, or_dash(&self.zone))
    }
}

/// RFC 3339 in UTC, to the microsecond.
fn time(record: &Record) -> String {
    let microseconds = i64::try_from(record.since_epoch.as_micros()).unwrap_or(i64::MAX);
    let time = Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::MAX);
    format!("{time:.6}")
}

/// Returns the address and the port, to the extent that the settings permit.
fn client(record: &Record, clients: LogClients) -> (Option<String>, Option<u16>) {
    let address = record.client;
    let Some(ip) = kept(address.ip(), clients) else { return (None, None) };
    match (clients, ip) {
        (LogClients::Full, _) => (Some(ip.to_string()), Some(address.port())),
        (_, IpAddr::V4(_)) => (Some(format!("{ip}/{}", 8 * KEPT_OCTETS.0)), None),
        (_, IpAddr::V6(_)) => (Some(format!("{ip}/{}", 8 * KEPT_OCTETS.1)), None),
    }
}

/// Returns the address of a client, or the first one of its network, to the extent that the settings permit.
pub fn kept(address: IpAddr, clients: LogClients) -> Option<IpAddr> {
    match (clients, address) {
        (LogClients::None, _) => None,
        (LogClients::Full, address) => Some(address),
        (LogClients::Network, IpAddr::V4(ip)) => {
            let mut octets = ip.octets();
            octets[KEPT_OCTETS.0..].fill(0);
            Some(octets.into())
        }
        (LogClients::Network, IpAddr::V6(ip)) => {
            let mut octets = ip.octets();
            octets[KEPT_OCTETS.1..].fill(0);
            Some(octets.into())
        }
    }
}

/// Returns the mnemonics of the flags that are set in a header.
pub fn flags(bits: u16) -> Vec<&'static str> {
    FLAGS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

fn opcode(code: u8) -> String {
    match Opcode(code) {
        Opcode::QUERY => "QUERY".to_owned(),
        Opcode::NOTIFY => "NOTIFY".to_owned(),
        Opcode::UPDATE => "UPDATE".to_owned(),
        Opcode(other) => format!("OPCODE{other}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use signpost_dns::nameserver::{self, Context, Peer, Settings, Stats, Transport, respond};
    use signpost_dns::wire::Name;
    use signpost_dns::zone::image::Unavailable;
    use signpost_dns::zone::{Zone, ZoneDb};

    type Write = fn(&mut Vec<u8>, &Record, LogClients);

    /// Returns the line of a request that `client` sends.
    fn line(query: &[u8], client: &str, write: Write, clients: LogClients) -> String {
        let db = ZoneDb::new();
        db.publish(Zone::unavailable("Example.".parse().expect("a name"), Unavailable::Expired));
        db.set_ready();
        let (snapshot, settings, stats) = (db.snapshot(), Settings::default(), Stats::new());
        let address = client.parse().expect("an address");
        let peer = Peer { address, transport: Transport::Udp, now: 0, random: 0, keepalive: None };
        let mut buffer = [0; 1232];
        let mut response = nameserver::Response::new(&mut buffer);
        let context = Context { snapshot: &snapshot, settings: &settings, stats: &stats, limiter: None };
        let outcome = respond(&context, query, &peer, &mut response);
        let time = Duration::from_micros(1_800_000_000_000_070);
        let record = Record::of(query, &peer, time, (outcome, &response), &snapshot, false);
        let mut text = Vec::new();
        write(&mut text, &record, clients);
        String::from_utf8(text).expect("is text")
    }

    fn query(name: &[u8], end: &[u8]) -> Vec<u8> {
        let additionals = u8::from(!end.is_empty());
        let header = [0, 7, 1, 0x10, 0, 1, 0, 0, 0, 0, 0, additionals];
        [&header, name, b"\0\x1c\0\x01", end].concat()
    }

    const WWW: &[u8] = b"\x03wWw\x07example\0";
    const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";

    #[test]
    fn text_has_columns() {
        for (query, client, clients, expected) in [
            (
                query(WWW, OPT),
                "192.0.2.77:4000",
                LogClients::Full,
                "udp 192.0.2.77#4000 wWw.example. IN AAAA QUERY rd,cd 0/1232/do 40 SERVFAIL qr,rd,cd 0/0/1 46 example.",
            ),
            (
                query(WWW, b""),
                "[2001:db8:1:2::3]:4000",
                LogClients::Network,
                "udp 2001:db8:1::/48 wWw.example. IN AAAA QUERY rd,cd - 29 SERVFAIL qr,rd,cd 0/0/0 29 example.",
            ),
            (
                query(b"\x04test\0", b""),
                "192.0.2.77:4000",
                LogClients::Network,
                "udp 192.0.2.0/24 test. IN AAAA QUERY rd,cd - 22 REFUSED qr,rd,cd 0/0/0 22 -",
            ),
            (b"short".to_vec(), "192.0.2.77:4000", LogClients::None, "udp - - - - QUERY - - 5 - - 0/0/0 0 -"),
        ] {
            let line = line(&query, client, columns, clients);
            assert_eq!(line, format!("2027-01-15T08:00:00.000070Z {expected}\n"));
            assert_eq!(line.split(' ').count(), 15, "{line}");
        }
    }

    #[test]
    fn no_name_can_forge_a_line() {
        // A label with every octet, in labels of at most 63.
        for octet in 0..=u8::MAX {
            let name = [&[3, octet, b'\n', b'"'][..], b"\0"].concat();
            let spelt = Name::from_wire(&name).expect("a name").to_string();
            let message = query(&name, b"");
            let text = line(&message, "192.0.2.77:4000", columns, LogClients::Full);
            assert_eq!((text.lines().count(), text.split(' ').count()), (1, 15), "{text:?}");
            assert!(text.trim_end().bytes().all(|octet| (0x20..0x7f).contains(&octet)), "{text:?}");
            let object = line(&message, "192.0.2.77:4000", json, LogClients::Full);
            assert_eq!(object.lines().count(), 1);
            let object: serde_json::Value = serde_json::from_str(&object).expect("is JSON");
            assert_eq!(object["name"], spelt);
        }
    }
}
