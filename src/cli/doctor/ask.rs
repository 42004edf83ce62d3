//! One question to one server: over UDP or TCP, with any kind of EDNS, and what came back as plain data.
//!
//! It blocks; whoever asks many servers does so in threads. Names are texts in lower case with a dot at the end.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::{RData, Record as Resource, RecordType};

/// Times that a datagram is sent.
const TRIES: usize = 2;
/// Largest answer that is read.
const OCTETS_MAX: usize = 65_535;
/// Most questions of one visit: what a hundred servers and shards need, and an end to any loop.
const QUESTIONS_MAX: u32 = 5_000;
/// An option of the range for experiments (RFC 6891 §9), which no server knows.
const OPTION_UNKNOWN: u16 = 65_001;
/// What answers over UDP may have: no fragments anywhere.
const PAYLOAD: u16 = 1_232;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Name servers.
    Ns,
    /// The start of authority.
    Soa,
    /// Texts.
    Txt,
    /// The whole zone.
    Axfr,
}

impl Type {
    fn number(self) -> u16 {
        match self {
            Type::A => 1,
            Type::Ns => 2,
            Type::Soa => 6,
            Type::Txt => 16,
            Type::Aaaa => 28,
            Type::Axfr => 252,
        }
    }
}

/// How it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// A datagram with EDNS.
    Udp,
    /// The same, asking for recursion.
    Recursive,
    /// The same with an option that nobody knows.
    UnknownOption,
    /// The same in version 1 of EDNS, which there is not.
    UnknownVersion,
    /// Over a connection.
    Tcp,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing came in time.
    Silent,
    /// The system said so: nobody listens there, or there is no way.
    Unreachable(String),
    /// Something came that is no answer.
    Unreadable(String),
    /// The question cannot be put, or there were too many.
    Unasked(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Silent => write!(f, "no answer in time"),
            Fault::Unreachable(why) | Fault::Unasked(why) => write!(f, "{why}"),
            Fault::Unreadable(why) => write!(f, "the answer cannot be read: {why}"),
        }
    }
}

/// A record's data, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// An address.
    Address(IpAddr),
    /// A name server.
    Ns(String),
    /// An alias.
    Cname(String),
    /// A start of authority with this serial.
    Soa(u32),
    /// A text, its parts joined.
    Txt(Vec<u8>),
    /// Anything else.
    Other,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its owner.
    pub owner: String,
    /// What it says.
    pub data: Data,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The response code's word, such as `NOERROR`.
    pub rcode: String,
    /// AA.
    pub authoritative: bool,
    /// RA.
    pub recursion: bool,
    /// The largest payload over UDP that its OPT record names, if it has one.
    pub edns: Option<u16>,
    /// The sections.
    pub answers: Vec<Record>,
    /// Authority.
    pub authorities: Vec<Record>,
    /// Additional, without OPT.
    pub additionals: Vec<Record>,
}

impl Reply {
    /// The addresses of `owner` in answer and additional section.
    pub fn addresses(&self, owner: &str) -> Vec<IpAddr> {
        let of_owner = self.answers.iter().chain(&self.additionals).filter(|record| record.owner == owner);
        of_owner
            .filter_map(|record| if let Data::Address(address) = record.data { Some(address) } else { None })
            .collect()
    }

    /// The serial in the answer.
    pub fn serial(&self) -> Option<u32> {
        self.answers.iter().find_map(|record| if let Data::Soa(serial) = record.data { Some(serial) } else { None })
    }
}

/// Who asks.
pub struct Client {
    /// How long one try may take.
    timeout: Duration,
    asked: AtomicU32,
}

impl Client {
    /// One that waits so long for each answer.
    pub fn new(timeout: Duration) -> Client {
        Client { timeout, asked: AtomicU32::new(0) }
    }

    /// Asks, and comes again over TCP if the answer was cut off.
    pub fn ask(&self, server: SocketAddr, name: &str, rtype: Type, manner: Manner) -> Result<Reply, Fault> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= QUESTIONS_MAX {
            return Err(Fault::Unasked(format!("more than {QUESTIONS_MAX} questions")));
        }
        let number = self.asked.load(Ordering::Relaxed);
        // Nobody forges answers for a doctor on a line of its own; the socket takes them from the server alone.
        let id = (number.wrapping_mul(40_503) ^ std::process::id()) as u16;
        let query = encode(id, name, rtype, manner)?;
        if manner == Manner::Tcp {
            return self.over_tcp(server, &query, id);
        }
        let (reply, truncated) = self.over_udp(server, &query, id)?;
        if truncated { self.over_tcp(server, &query, id) } else { Ok(reply) }
    }

    fn over_udp(&self, server: SocketAddr, query: &[u8], id: u16) -> Result<(Reply, bool), Fault> {
        let any = if server.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect(server).map(|()| socket));
        let socket = socket.map_err(unreachable)?;
        let mut buffer = vec![0; OCTETS_MAX];
        let mut fault = Fault::Silent;
        for _ in 0..TRIES {
            if let Err(error) = socket.send(query) {
                fault = unreachable(error);
                continue;
            }
            let deadline = Instant::now() + self.timeout;
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                socket.set_read_timeout(Some(left)).map_err(unreachable)?;
                match socket.recv(&mut buffer) {
                    Ok(length) if is_answer(&buffer[..length], id) => return decode(&buffer[..length]),
                    Ok(_) => {}
                    Err(error) if is_timeout(&error) => break,
                    Err(error) => {
                        fault = unreachable(error);
                        break;
                    }
                }
            }
        }
        Err(fault)
    }

    fn over_tcp(&self, server: SocketAddr, query: &[u8], id: u16) -> Result<Reply, Fault> {
        let exchange = || -> io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect_timeout(&server, self.timeout)?;
            stream.set_read_timeout(Some(self.timeout))?;
            stream.set_write_timeout(Some(self.timeout))?;
            let length = u16::try_from(query.len()).expect("a question is short");
            stream.write_all(&[&length.to_be_bytes(), query].concat())?;
            let mut length = [0; 2];
            stream.read_exact(&mut length)?;
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut answer)?;
            Ok(answer)
        };
        let answer = exchange().map_err(|error| if is_timeout(&error) { Fault::Silent } else { unreachable(error) })?;
        if !is_answer(&answer, id) {
            return Err(Fault::Unreadable("it answers another question".to_owned()));
        }
        Ok(decode(&answer)?.0)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn unreachable(error: io::Error) -> Fault {
    Fault::Unreachable(match error.kind() {
        io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => "it closes the connection".to_owned(),
        _ => error.to_string(),
    })
}

/// A question (RFC 1035 §4.1), with an OPT record (RFC 6891 §6.1.2).
fn encode(id: u16, name: &str, rtype: Type, manner: Manner) -> Result<Vec<u8>, Fault> {
    let mut query = id.to_be_bytes().to_vec();
    let recursion = if manner == Manner::Recursive { 1 } else { 0 };
    query.extend([recursion, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let length = u8::try_from(label.len()).ok().filter(|length| *length < 64);
        query.push(length.ok_or_else(|| Fault::Unasked(format!("{name} is no name: a label is too long")))?);
        query.extend(label.as_bytes());
    }
    query.push(0);
    if query.len() > 12 + 255 {
        return Err(Fault::Unasked(format!("{name} is too long for a name")));
    }
    query.extend(rtype.number().to_be_bytes());
    query.extend([0, 1]);
    let version = u8::from(manner == Manner::UnknownVersion);
    query.extend([0, 0, 41]);
    query.extend(PAYLOAD.to_be_bytes());
    query.extend([0, version, 0, 0]);
    match manner {
        Manner::UnknownOption => {
            query.extend([0, 5]);
            query.extend(OPTION_UNKNOWN.to_be_bytes());
            query.extend([0, 1, 0]);
        }
        _ => query.extend([0, 0]),
    }
    Ok(query)
}

fn is_answer(octets: &[u8], id: u16) -> bool {
    octets.len() >= 12 && octets[..2] == id.to_be_bytes() && octets[2] & 0x80 != 0
}

/// What it says, and whether it was cut off.
fn decode(octets: &[u8]) -> Result<(Reply, bool), Fault> {
    let message = Message::from_vec(octets).map_err(|error| Fault::Unreadable(error.to_string()))?;
    if message.metadata.message_type != MessageType::Response {
        return Err(Fault::Unreadable("it is a question".to_owned()));
    }
    // The upper eight bits stand in the OPT record.
    let high = message.edns.as_ref().map_or(0, |edns| u16::from(edns.rcode_high()) << 4);
    let reply = Reply {
        rcode: rcode(high | u16::from(octets[3] & 15)),
        authoritative: message.metadata.authoritative,
        recursion: message.metadata.recursion_available,
        edns: message.edns.as_ref().map(|edns| edns.max_payload()),
        answers: records(&message.answers),
        authorities: records(&message.authorities),
        additionals: records(&message.additionals),
    };
    Ok((reply, message.metadata.truncation))
}

fn rcode(number: u16) -> String {
    let word = match number {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        9 => "NOTAUTH",
        16 => "BADVERS",
        23 => "BADCOOKIE",
        other => return format!("RCODE{other}"),
    };
    word.to_owned()
}

fn records(resources: &[Resource]) -> Vec<Record> {
    let text = |name: &hickory_proto::rr::Name| {
        let text = name.to_ascii().to_ascii_lowercase();
        if text.ends_with('.') { text } else { text + "." }
    };
    let one = |resource: &Resource| {
        let data = match &resource.data {
            RData::A(address) => Data::Address(address.0.into()),
            RData::AAAA(address) => Data::Address(address.0.into()),
            RData::NS(name) => Data::Ns(text(&name.0)),
            RData::CNAME(name) => Data::Cname(text(&name.0)),
            RData::SOA(soa) => Data::Soa(soa.serial),
            RData::TXT(text) => Data::Txt(text.txt_data.concat()),
            _ => Data::Other,
        };
        Record { owner: text(&resource.name), data }
    };
    resources.iter().filter(|resource| resource.record_type() != RecordType::OPT).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_by_an_independent_parser() {
        for (manner, version, options) in
            [(Manner::Udp, 0, 0), (Manner::UnknownOption, 0, 1), (Manner::UnknownVersion, 1, 0), (Manner::Tcp, 0, 0)]
        {
            let octets = encode(7, "www.example.org.", Type::Aaaa, manner).expect("a name");
            let message = Message::from_vec(&octets).expect("well-formed");
            assert_eq!(message.metadata.id, 7);
            assert_eq!(message.queries[0].name().to_ascii(), "www.example.org.");
            assert_eq!(message.queries[0].query_type(), RecordType::AAAA);
            let edns = message.edns.expect("an OPT record");
            assert_eq!((edns.version(), edns.max_payload()), (version, PAYLOAD));
            assert_eq!(edns.options().as_ref().len(), options);
        }
        assert!(encode(7, &"a".repeat(64), Type::A, Manner::Udp).is_err());
        assert!(encode(7, &"a.".repeat(128), Type::A, Manner::Udp).is_err());
    }

    #[test]
    fn what_is_no_answer_is_none() {
        let query = encode(7, "example.org.", Type::A, Manner::Udp).expect("a name");
        assert!(!is_answer(&query, 7), "our own question");
        assert!(!is_answer(&[0, 7, 0x80], 7));
        let mut answer = query.clone();
        answer[2] |= 0x80;
        assert!(is_answer(&answer, 7) && !is_answer(&answer, 8));
        assert_eq!(decode(&answer).expect("well-formed").0.rcode, "NOERROR");
        answer.truncate(20);
        assert!(matches!(decode(&answer), Err(Fault::Unreadable(_))));
    }
}
