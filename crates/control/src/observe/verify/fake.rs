//! A name server for tests: real sockets on a free port of the loopback, and configurable answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::dns_client::{Data, Question};
use signpost_dns::wire::header::{FLAG_AA, FLAG_QR, Header, Rcode};
use signpost_dns::wire::question::Question as WireQuestion;
use signpost_dns::wire::{Name, RecordType};

/// One message that it sends.
#[derive(Clone)]
pub enum Say {
    /// An authoritative answer with these records, all of the queried name.
    Records(Vec<Data>),
    /// The same without AA.
    NotAuthoritative(Vec<Data>),
    /// A response code.
    Rcode(Rcode),
    /// No message.
    Nothing,
    /// Bytes that are not a DNS message.
    Garbage,
}

/// A running server; it ends when dropped.
pub struct FakeServer {
    /// The address on which the server listens.
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

type Answers = Arc<dyn Fn(&Question, bool) -> Vec<Say> + Send + Sync>;

impl FakeServer {
    /// Answers each query with the result of `answers`, which gets the question and whether it came over TCP.
    pub async fn start(answers: impl Fn(&Question, bool) -> Vec<Say> + Send + Sync + 'static) -> FakeServer {
        let (udp, tcp) = sockets().await;
        let address = udp.local_addr().expect("it is bound");
        let answers: Answers = Arc::new(answers);
        let mut tasks = JoinSet::new();
        let answers_udp = Arc::clone(&answers);
        tasks.spawn(async move {
            let mut message = [0; 1500];
            while let Ok((length, from)) = udp.recv_from(&mut message).await {
                for reply in replies(&message[..length], &answers_udp, false) {
                    let _ = udp.send_to(&reply, from).await;
                }
            }
        });
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let Ok(length) = stream.read_u16().await else { continue };
                let mut message = vec![0; usize::from(length)];
                let _ = stream.read_exact(&mut message).await;
                for reply in replies(&message, &answers, true) {
                    let length = u16::try_from(reply.len()).expect("a test's answer is small");
                    let _ = stream.write_all(&[&length.to_be_bytes()[..], &reply].concat()).await;
                }
            }
        });
        FakeServer { address, _tasks: tasks }
    }
}

/// Returns a port that is free for both protocols.
async fn sockets() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = tcp.local_addr().expect("it is bound");
        if let Ok(udp) = UdpSocket::bind(address).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

fn replies(message: &[u8], answers: &Answers, is_tcp: bool) -> Vec<Vec<u8>> {
    let header = Header::read(message).expect("a query has a header");
    let asked = WireQuestion::read(message).expect("a query has a question");
    let name = Name::from_wire(asked.name(message)).expect("a name");
    let question = Question { name: name.clone(), rtype: asked.qtype };
    let reply = |say: Say| -> Option<Vec<u8>> {
        let (mut flags, mut records) = (FLAG_QR | FLAG_AA, Vec::new());
        match say {
            Say::Records(found) => records = found,
            Say::NotAuthoritative(found) => (flags, records) = (FLAG_QR, found),
            Say::Rcode(rcode) => flags |= rcode.0,
            Say::Nothing => return None,
            Say::Garbage => return Some(vec![0xff; 30]),
        }
        let count = u16::try_from(records.len()).expect("few");
        let head = Header { id: header.id, flags, questions: 1, answers: count, ..Header::default() };
        let mut octets = head.to_octets().to_vec();
        octets.extend_from_slice(name.as_wire());
        octets.extend_from_slice(&[asked.qtype.0.to_be_bytes(), [0, 1]].concat());
        for record in records {
            let (rtype, rdata) = rdata_of(record);
            octets.extend_from_slice(&[0xc0, 12]);
            octets.extend_from_slice(&[rtype.0.to_be_bytes(), [0, 1]].concat());
            octets.extend_from_slice(&30_u32.to_be_bytes());
            octets.extend_from_slice(&u16::try_from(rdata.len()).expect("small").to_be_bytes());
            octets.extend_from_slice(&rdata);
        }
        Some(octets)
    };
    answers(&question, is_tcp).into_iter().filter_map(reply).collect()
}

fn rdata_of(data: Data) -> (RecordType, Vec<u8>) {
    match data {
        Data::Address(std::net::IpAddr::V4(address)) => (RecordType::A, address.octets().to_vec()),
        Data::Address(std::net::IpAddr::V6(address)) => (RecordType::AAAA, address.octets().to_vec()),
        Data::Cname(target) => (RecordType::CNAME, target.as_wire().to_vec()),
        Data::NameServer(server) => (RecordType::NS, server.as_wire().to_vec()),
        Data::Text(text) => {
            let length = u8::try_from(text.len()).expect("one short string");
            (RecordType::TXT, [&[length], &text[..]].concat())
        }
        Data::Soa(serial) => {
            let numbers = [serial.0, 1, 1, 1, 1].into_iter().flat_map(u32::to_be_bytes);
            (RecordType::SOA, [0, 0].into_iter().chain(numbers).collect())
        }
        Data::Other(rtype) => (rtype, Vec::new()),
    }
}
