//! One question to one server: over UDP or TCP, with any kind of EDNS, and what came back as plain data.
//!
//! It blocks; whoever asks many servers does so in threads. Names are texts in lower case with a dot at the end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{RData, Record as Resource, RecordType};
use tokio::runtime::{Builder, Runtime};

use signpost_control::inquiry::{AskError, Inquiry};
use signpost_dns::wire::header::FLAG_RD;
use signpost_dns::wire::{self, Name};

/// Most questions of one visit: what a hundred servers and shards need, and an end to any loop.
const QUESTIONS_MAX: u32 = 5_000;
/// An option of the range for experiments (RFC 6891 §9), 65,001, which no server knows, with one octet.
const OPTION_UNKNOWN: [u8; 5] = [0xfd, 0xe9, 0, 1, 0];

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
    /// What the sockets of all threads wait in.
    runtime: Runtime,
    asked: AtomicU32,
}

impl Client {
    /// One that waits so long for each answer.
    ///
    /// # Errors
    ///
    /// If the system gives no thread for that.
    pub fn new(timeout: Duration) -> io::Result<Client> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        Ok(Client { timeout, runtime, asked: AtomicU32::new(0) })
    }

    /// Asks, and comes again over TCP if the answer was cut off.
    pub fn ask(&self, server: SocketAddr, name: &str, rtype: Type, manner: Manner) -> Result<Reply, Fault> {
        if self.asked.fetch_add(1, Ordering::Relaxed) >= QUESTIONS_MAX {
            return Err(Fault::Unasked(format!("more than {QUESTIONS_MAX} questions")));
        }
        let name: Name = name.parse().map_err(|error| Fault::Unasked(format!("{name} is no name: {error}")))?;
        let inquiry = inquiry(&name, rtype, manner);
        let asking = async {
            match manner {
                Manner::Tcp => inquiry.ask_over_tcp(server, self.timeout).await,
                _ => inquiry.ask(server, self.timeout).await,
            }
        };
        let response = self.runtime.block_on(asking).map_err(|error| match error {
            AskError::Silent(_) => Fault::Silent,
            AskError::Unreachable(kind) => unreachable(kind),
            AskError::Malformed => Fault::Unreadable("it answers another question".to_owned()),
        })?;
        decode(&response.octets)
    }
}

fn unreachable(kind: io::ErrorKind) -> Fault {
    Fault::Unreachable(match kind {
        io::ErrorKind::ConnectionRefused => "nobody listens there".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => "it closes the connection".to_owned(),
        _ => kind.to_string(),
    })
}

fn inquiry(name: &Name, rtype: Type, manner: Manner) -> Inquiry<'_> {
    let plain = Inquiry::new(name, wire::RecordType(rtype.number()));
    match manner {
        Manner::Udp | Manner::Tcp => plain,
        Manner::Recursive => Inquiry { flags: FLAG_RD, ..plain },
        Manner::UnknownOption => Inquiry { options: &OPTION_UNKNOWN, ..plain },
        Manner::UnknownVersion => Inquiry { edns_version: 1, ..plain },
    }
}

/// What a response says.
fn decode(octets: &[u8]) -> Result<Reply, Fault> {
    let message = Message::from_vec(octets).map_err(|error| Fault::Unreadable(error.to_string()))?;
    // The upper eight bits stand in the OPT record.
    let high = message.edns.as_ref().map_or(0, |edns| u16::from(edns.rcode_high()) << 4);
    Ok(Reply {
        rcode: rcode(high | u16::from(octets[3] & 15)),
        authoritative: message.metadata.authoritative,
        recursion: message.metadata.recursion_available,
        edns: message.edns.as_ref().map(|edns| edns.max_payload()),
        answers: records(&message.answers),
        authorities: records(&message.authorities),
        additionals: records(&message.additionals),
    })
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

    /// A server's header and question: an answer without records, of this response code.
    fn answer(rcode: u8) -> Vec<u8> {
        let head = [0, 7, 0x84, rcode, 0, 1, 0, 0, 0, 0, 0, 0];
        [&head[..], b"\x07example\x03org\0", &[0, 1, 0, 1]].concat()
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let reply = decode(&answer(5)).expect("well-formed");
        assert_eq!((reply.rcode.as_str(), reply.authoritative, reply.edns), ("REFUSED", true, None));
        assert!(matches!(decode(&answer(0)[..20]), Err(Fault::Unreadable(_))));
    }

    #[test]
    fn what_is_no_name_is_not_asked_for() {
        let client = Client::new(Duration::from_millis(1)).expect("a runtime");
        for name in ["a".repeat(64), "a.".repeat(128)] {
            let found = client.ask(([127, 0, 0, 1], 9).into(), &name, Type::A, Manner::Udp);
            assert!(matches!(found, Err(Fault::Unasked(_))), "{found:?}");
        }
    }

    #[test]
    fn questions_are_put_in_each_manner() {
        let name: Name = "example.org.".parse().expect("a name");
        for (manner, flags, version, options) in [
            (Manner::Udp, 0, 0, 0),
            (Manner::Recursive, FLAG_RD, 0, 0),
            (Manner::UnknownOption, 0, 0, 5),
            (Manner::UnknownVersion, 0, 1, 0),
            (Manner::Tcp, 0, 0, 0),
        ] {
            let put = inquiry(&name, Type::Aaaa, manner);
            assert_eq!((put.rtype, put.flags), (wire::RecordType::AAAA, flags));
            assert_eq!((put.edns_version, put.options.len()), (version, options));
        }
    }
}
