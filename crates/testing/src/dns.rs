//! One question over UDP, and the kind of answer.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData};

pub use hickory_proto::op::ResponseCode;
pub use hickory_proto::rr::RecordType;

/// The code of the extended error option; the extended error of a possibly stale answer is below (RFC 8914 §4.4).
const EXTENDED_ERROR: u16 = 15;
const STALE_ANSWER: [u8; 2] = [0, 3];

/// The answer of a name server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The response code.
    pub rcode: ResponseCode,
    /// All addresses of the answer section.
    pub addresses: BTreeSet<IpAddr>,
    /// The target of the first CNAME, in lower case without the dot at the end.
    pub alias: Option<String>,
    /// The serial of an SOA in the answer section.
    pub serial: Option<u32>,
    /// Whether an extended error marks the answer as possibly stale (RFC 8914, code 3).
    pub stale: bool,
}

/// Returns a query without EDNS.
pub fn query(id: u16, name: &str, rtype: RecordType) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).expect("a label has at most 63 octets"));
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(u16::from(rtype).to_be_bytes());
    message.extend([0, 1]);
    message
}

/// A client of one name server.
pub struct Asker {
    socket: UdpSocket,
    id: u16,
}

impl Asker {
    /// Returns a client that queries `server`.
    pub fn new(server: SocketAddr) -> Asker {
        let own = if server.ip().is_loopback() { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let socket = UdpSocket::bind((own, 0)).expect("the system has a free port");
        // Connected, so that the system reports a closed port.
        socket.connect(server).expect("there is a way to the server");
        Asker { socket, id: 0 }
    }

    /// Returns the answer, if one comes within `patience`.
    pub fn ask(&mut self, name: &str, rtype: RecordType, patience: Duration) -> Option<Answer> {
        self.id = self.id.wrapping_add(1);
        let mut query = Message::new(self.id, MessageType::Query, OpCode::Query);
        // For resolvers; name servers ignore it.
        query.metadata.recursion_desired = true;
        let mut owner: Name = name.parse().expect("a name");
        owner.set_fqdn(true);
        query.add_query(Query::query(owner, rtype));
        query.set_edns(hickory_proto::op::Edns::new());
        // A pending error of an earlier query is returned first, and only once.
        let octets = query.to_vec().expect("a query");
        self.socket.send(&octets).or_else(|_| self.socket.send(&octets)).ok()?;
        let deadline = Instant::now() + patience;
        let mut octets = [0; 1500];
        loop {
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            self.socket.set_read_timeout(Some(left)).expect("not zero");
            // An error is a name server that is not there, or the end of the time.
            let length = self.socket.recv(&mut octets).ok()?;
            let Ok(response) = Message::from_vec(&octets[..length]) else { continue };
            if response.metadata.id == self.id {
                return Some(Answer::of(&response));
            }
        }
    }
}

impl Answer {
    fn of(response: &Message) -> Answer {
        let mut answer = Answer {
            rcode: response.metadata.response_code,
            addresses: BTreeSet::new(),
            alias: None,
            serial: None,
            stale: response.edns.as_ref().is_some_and(|edns| {
                edns.options().as_ref().iter().any(|(code, option)| {
                    u16::from(*code) == EXTENDED_ERROR
                        && Vec::<u8>::try_from(option).is_ok_and(|octets| octets.starts_with(&STALE_ANSWER))
                })
            }),
        };
        for record in &response.answers {
            match &record.data {
                RData::A(address) => drop(answer.addresses.insert(IpAddr::V4(address.0))),
                RData::AAAA(address) => drop(answer.addresses.insert(IpAddr::V6(address.0))),
                RData::CNAME(target) if answer.alias.is_none() => {
                    answer.alias = Some(target.0.to_ascii().trim_end_matches('.').to_ascii_lowercase());
                }
                RData::SOA(soa) => answer.serial = Some(soa.serial),
                _ => {}
            }
        }
        answer
    }

    /// Returns whether it gives an address or an alias: what a live name is answered with.
    pub fn is_live(&self) -> bool {
        self.rcode == ResponseCode::NoError && (!self.addresses.is_empty() || self.alias.is_some())
    }
}
