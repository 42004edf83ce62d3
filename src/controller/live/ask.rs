//! Asks one name server one question: over UDP, and over TCP when the answer does not fit (RFC 1035 §4.2, RFC 7766 §5).
//!
//! Each question leaves from a socket of its own, so that the system chooses the port at random, under a random identifier.
//! Only a response from the server's address, with that identifier and the same question, is taken (RFC 5452 §9.1);
//! whatever else comes is passed over. A datagram may get lost, so the question is sent twice before silence is believed.
//! What comes back is read by `hickory-proto`, which this file alone knows.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode};
use hickory_proto::rr::{self, DNSClass, RData};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::wire::edns::opt_head;
use crate::wire::header::{FLAG_RD, FLAG_TC, HEADER_OCTETS, Header, Rcode};
use crate::wire::{Class, Name, RecordType};
use crate::zone::Serial;

/// Datagrams that a question is sent in, one after the other, before silence is believed.
const TRIES: u32 = 2;
/// What we take over UDP: what passes every network whole (DNS flag day 2020).
const PAYLOAD_OCTETS_MAX: u16 = 1232;
/// Datagrams that are passed over while waiting for the one: more are a flood, and end the try.
const STRAYS_MAX: usize = 32;

/// What is asked, in class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name.
    pub name: Name,
    /// The type.
    pub rtype: RecordType,
}

/// A response, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The response code.
    pub rcode: Rcode,
    /// Whether the server says that it is an authority for the name (AA).
    pub authoritative: bool,
    /// The answer section.
    pub answers: Vec<Record>,
    /// The authority section.
    pub authorities: Vec<Record>,
    /// The additional section, without OPT.
    pub additionals: Vec<Record>,
}

/// A record of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its owner.
    pub owner: Name,
    /// Its data.
    pub data: Data,
}

/// The data of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// Of an A or AAAA.
    Address(IpAddr),
    /// The target of a CNAME.
    Alias(Name),
    /// The serial of an SOA.
    Soa(Serial),
    /// The name server of an NS.
    NameServer(Name),
    /// The strings of a TXT, one after the other.
    Text(Vec<u8>),
    /// Of another type.
    Other(RecordType),
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Nothing came in time.
    #[error("no answer came within {} ms, asked {TRIES} times", .0.as_millis())]
    Silent(Duration),
    /// The system says that the server cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(io::ErrorKind),
    /// What came is no response to the question.
    #[error("what it sends is no answer to the question")]
    Malformed,
}

/// Asks `server`. Each try over UDP, and the one over TCP, may take `patience`.
///
/// # Errors
///
/// [`AskError`] if no response can be had. A response that refuses is a [`Reply`].
pub async fn ask(server: SocketAddr, question: &Question, patience: Duration) -> Result<Reply, AskError> {
    exchange(server, question, 0, patience).await
}

/// The same of a resolver, which is to find the answer wherever it is (RD).
///
/// # Errors
///
/// As [`ask`].
pub async fn ask_resolver(server: SocketAddr, question: &Question, patience: Duration) -> Result<Reply, AskError> {
    exchange(server, question, FLAG_RD, patience).await
}

async fn exchange(server: SocketAddr, question: &Question, flags: u16, patience: Duration) -> Result<Reply, AskError> {
    let mut failed = AskError::Silent(patience);
    for _ in 0..TRIES {
        let query = Query::new(question, flags);
        match timeout(patience, over_udp(server, &query)).await {
            Ok(Ok(Answer::Whole(reply))) => return Ok(reply),
            Ok(Ok(Answer::Truncated)) => {
                let silent = |_| AskError::Silent(patience);
                return timeout(patience, over_tcp(server, &query)).await.map_err(silent)?;
            }
            Ok(Err(AskError::Unreachable(kind))) => return Err(AskError::Unreachable(kind)),
            Ok(Err(error)) => failed = error,
            Err(_) => {}
        }
    }
    Err(failed)
}

/// A query with what its response must repeat.
struct Query<'q> {
    id: u16,
    question: &'q Question,
    octets: Vec<u8>,
}

enum Answer {
    Whole(Reply),
    Truncated,
}

impl<'q> Query<'q> {
    fn new(question: &'q Question, flags: u16) -> Self {
        let mut id = [0; 2];
        aws_lc_rs::rand::fill(&mut id).expect("the system's generator of random numbers never fails once it is up");
        let id = u16::from_be_bytes(id);
        let header = Header { id, flags, questions: 1, additionals: 1, ..Header::default() };
        let mut octets = Vec::with_capacity(HEADER_OCTETS + question.name.as_wire().len() + 4 + 11);
        octets.extend_from_slice(&header.to_octets());
        octets.extend_from_slice(question.name.as_wire());
        octets.extend_from_slice(&question.rtype.0.to_be_bytes());
        octets.extend_from_slice(&Class::IN.0.to_be_bytes());
        octets.extend_from_slice(&opt_head(PAYLOAD_OCTETS_MAX, Rcode::NOERROR, false, 0));
        Query { id, question, octets }
    }

    /// What `message` answers; `None` if it is no response to this query.
    fn answered_by(&self, message: &[u8]) -> Option<Answer> {
        let header = Header::read(message)?;
        if header.id != self.id || !header.is_response() {
            return None;
        }
        // RFC 2181 §9: of a truncated response nothing is used.
        if header.flags & FLAG_TC != 0 {
            return Some(Answer::Truncated);
        }
        let message = Message::from_vec(message).ok()?;
        let metadata = &message.metadata;
        let [asked] = &message.queries[..] else { return None };
        let same = metadata.message_type == MessageType::Response
            && metadata.op_code == OpCode::Query
            && asked.query_class == DNSClass::IN
            && u16::from(asked.query_type) == self.question.rtype.0
            && own_name(&asked.name).is_some_and(|name| name == self.question.name);
        same.then(|| {
            Answer::Whole(Reply {
                rcode: Rcode(u16::from(metadata.response_code)),
                authoritative: metadata.authoritative,
                answers: message.answers.iter().filter_map(own_record).collect(),
                authorities: message.authorities.iter().filter_map(own_record).collect(),
                additionals: message.additionals.iter().filter_map(own_record).collect(),
            })
        })
    }
}

async fn over_udp(server: SocketAddr, query: &Query<'_>) -> Result<Answer, AskError> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let unreachable = |error: io::Error| AskError::Unreachable(error.kind());
    let socket = UdpSocket::bind((any, 0)).await.map_err(unreachable)?;
    // From then on the system lets nothing in that another address sends.
    socket.connect(server).await.map_err(unreachable)?;
    socket.send(&query.octets).await.map_err(unreachable)?;
    let mut message = [0; 4096];
    for _ in 0..STRAYS_MAX {
        let length = socket.recv(&mut message).await.map_err(unreachable)?;
        if let Some(answer) = query.answered_by(&message[..length]) {
            return Ok(answer);
        }
    }
    Err(AskError::Malformed)
}

async fn over_tcp(server: SocketAddr, query: &Query<'_>) -> Result<Reply, AskError> {
    let unreachable = |error: io::Error| AskError::Unreachable(error.kind());
    let mut stream = TcpStream::connect(server).await.map_err(unreachable)?;
    let length = u16::try_from(query.octets.len()).expect("a query is shorter than 64 KiB");
    let framed = [&length.to_be_bytes()[..], &query.octets].concat();
    stream.write_all(&framed).await.map_err(unreachable)?;
    let length = stream.read_u16().await.map_err(unreachable)?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await.map_err(unreachable)?;
    match query.answered_by(&message) {
        Some(Answer::Whole(reply)) => Ok(reply),
        Some(Answer::Truncated) | None => Err(AskError::Malformed),
    }
}

fn own_name(name: &rr::Name) -> Option<Name> {
    Name::from_labels(name.iter(), &Name::root()).ok()
}

/// The record; `None` for one of another class.
fn own_record(record: &rr::Record) -> Option<Record> {
    if record.dns_class != DNSClass::IN {
        return None;
    }
    let data = match &record.data {
        RData::A(address) => Data::Address(address.0.into()),
        RData::AAAA(address) => Data::Address(address.0.into()),
        RData::CNAME(target) => Data::Alias(own_name(&target.0)?),
        RData::SOA(soa) => Data::Soa(Serial(soa.serial)),
        RData::NS(server) => Data::NameServer(own_name(&server.0)?),
        RData::TXT(text) => Data::Text(text.txt_data.concat()),
        other => Data::Other(RecordType(u16::from(other.record_type()))),
    };
    Some(Record { owner: own_name(&record.name)?, data })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::live::fake::{FakeServer, Say};

    fn question() -> Question {
        Question { name: "x.s.example.".parse().expect("a name"), rtype: RecordType::A }
    }

    const PATIENCE: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn what_comes_back_is_a_reply_or_none() {
        let a = |text: &str| Data::Address(text.parse().expect("an address"));
        for (what, say, expected) in [
            ("an answer", vec![Say::Records(vec![a("192.0.2.1")])], Ok(vec![a("192.0.2.1")])),
            ("nothing", vec![Say::Nothing], Err(AskError::Silent(PATIENCE))),
            ("garbage", vec![Say::Garbage], Err(AskError::Silent(PATIENCE))),
            ("another's answer", vec![Say::WrongId, Say::WrongQuestion], Err(AskError::Silent(PATIENCE))),
            (
                "strays before the answer",
                vec![Say::Garbage, Say::WrongId, Say::WrongQuestion, Say::Records(vec![a("192.0.2.1")])],
                Ok(vec![a("192.0.2.1")]),
            ),
            ("a flood", vec![Say::Garbage; STRAYS_MAX], Err(AskError::Malformed)),
        ] {
            let server = FakeServer::start(move |_, _| say.clone()).await;
            let found = ask(server.address, &question(), PATIENCE).await;
            let found = found.map(|reply| reply.answers.into_iter().map(|record| record.data).collect::<Vec<_>>());
            assert_eq!(found, expected, "{what}");
        }
    }

    #[tokio::test]
    async fn a_truncated_answer_is_fetched_over_tcp() {
        let many: Vec<Data> = (0..100).map(|last| Data::Address(Ipv4Addr::new(192, 0, 2, last).into())).collect();
        let all = many.clone();
        let server =
            FakeServer::start(move |_, is_tcp| vec![if is_tcp { Say::Records(many.clone()) } else { Say::Truncated }])
                .await;
        let reply = ask(server.address, &question(), Duration::from_secs(5)).await.expect("it answers");
        assert_eq!(reply.answers.into_iter().map(|record| record.data).collect::<Vec<_>>(), all);
        assert!(reply.authoritative);
    }

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again() {
        let asked = std::sync::atomic::AtomicU32::new(0);
        let server = FakeServer::start(move |_, _| match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => vec![Say::Nothing],
            _ => vec![Say::Records(Vec::new())],
        })
        .await;
        assert!(ask(server.address, &question(), PATIENCE).await.is_ok());
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_told_as_such() {
        let free = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let error = ask(address, &question(), Duration::from_secs(5)).await.expect_err("nobody is there");
        assert_eq!(error, AskError::Unreachable(io::ErrorKind::ConnectionRefused));
    }
}
