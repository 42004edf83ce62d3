//! One question, one answer: over UDP, and over TCP if the answer was truncated or TCP is wanted.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::response::Response;
use crate::wire::edns::{opt_head, option};
use crate::wire::header::{HEADER_OCTETS, Header, Opcode, Rcode};
use crate::wire::{Class, Name, RecordType};

/// How often a question is sent over UDP.
const TRIES: u32 = 2;
/// How long one try may take.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Largest UDP payload that we take (DNS flag day 2020).
const PAYLOAD_OCTETS_MAX: u16 = 1232;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Question {
    pub(in crate::cli) name: Name,
    pub(in crate::cli) rtype: RecordType,
    /// Whether DNSSEC records are wanted, too.
    pub(in crate::cli) dnssec: bool,
    /// Whether it goes over TCP at once.
    pub(in crate::cli) tcp: bool,
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Exchange {
    pub(in crate::cli) server: SocketAddr,
    /// `udp` or `tcp`.
    pub(in crate::cli) transport: &'static str,
    pub(in crate::cli) took: Duration,
    pub(in crate::cli) response: Response,
}

impl Question {
    /// Asks `server`.
    pub(in crate::cli) async fn ask(&self, server: SocketAddr) -> Result<Exchange, String> {
        let silent = |transport: &str, error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => format!("{server} does not answer over {transport}"),
            _ => format!("{server} cannot be asked over {transport}: {error}"),
        };
        if !self.tcp {
            let exchange = self.over_udp(server).await.map_err(|error| silent("UDP", error))?;
            if !exchange.response.is_truncated() {
                return Ok(exchange);
            }
        }
        self.over_tcp(server).await.map_err(|error| silent("TCP", error))
    }

    async fn over_udp(&self, server: SocketAddr) -> io::Result<Exchange> {
        let own: SocketAddr = match server {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        for _ in 0..TRIES {
            // A socket of its own for each try: a late answer to the one before is not taken for this one's.
            let socket = UdpSocket::bind(own).await?;
            socket.connect(server).await?;
            let query = self.message();
            let started = Instant::now();
            socket.send(&query).await?;
            let mut buffer = vec![0; usize::from(u16::MAX)];
            let receive = async {
                loop {
                    let length = socket.recv(&mut buffer).await?;
                    if let Some(response) = answer_to(&query, &buffer[..length]) {
                        return Ok::<Response, io::Error>(response);
                    }
                }
            };
            if let Ok(response) = timeout(TIMEOUT, receive).await {
                return Ok(Exchange { server, transport: "udp", took: started.elapsed(), response: response? });
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    async fn over_tcp(&self, server: SocketAddr) -> io::Result<Exchange> {
        let query = self.message();
        let started = Instant::now();
        let exchange = async {
            let mut stream = TcpStream::connect(server).await?;
            let length = u16::try_from(query.len()).expect("a question is short");
            stream.write_all(&[&length.to_be_bytes()[..], &query].concat()).await?;
            let length = stream.read_u16().await?;
            let mut message = vec![0; usize::from(length)];
            stream.read_exact(&mut message).await?;
            Ok::<Vec<u8>, io::Error>(message)
        };
        let message = timeout(TIMEOUT, exchange).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let malformed =
            || io::Error::new(io::ErrorKind::InvalidData, "the answer is malformed, or not to our question");
        let response = answer_to(&query, &message).ok_or_else(malformed)?;
        Ok(Exchange { server, transport: "tcp", took: started.elapsed(), response })
    }

    /// The query, under an identifier that nobody foresees.
    fn message(&self) -> Vec<u8> {
        let mut id = [0; 2];
        aws_lc_rs::rand::fill(&mut id).expect("the system's generator of random numbers never fails once it is up");
        let header = Header {
            id: u16::from_be_bytes(id),
            flags: u16::from(Opcode::QUERY.0) << 11,
            questions: 1,
            additionals: 1,
            ..Header::default()
        };
        let mut message = header.to_octets().to_vec();
        message.extend_from_slice(self.name.as_wire());
        message.extend_from_slice(&self.rtype.0.to_be_bytes());
        message.extend_from_slice(&Class::IN.0.to_be_bytes());
        message.extend_from_slice(&opt_head(PAYLOAD_OCTETS_MAX, Rcode::NOERROR, self.dnssec, 4));
        message.extend_from_slice(&option::NSID.to_be_bytes());
        message.extend_from_slice(&0_u16.to_be_bytes());
        message
    }
}

/// The response that `message` is, if it is one to `query`: same identifier, same question if it has one.
fn answer_to(query: &[u8], message: &[u8]) -> Option<Response> {
    let response = Response::read(message)?;
    let question_end = query.len() - usize::from(u8::try_from(crate::wire::edns::OPT_OCTETS + 4).expect("is small"));
    let same_question = match response.header.questions {
        0 => true,
        _ => message.get(HEADER_OCTETS..question_end).is_some_and(|own| own == &query[HEADER_OCTETS..question_end]),
    };
    (message[..2] == query[..2] && response.header.is_response() && same_question).then_some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question { name: "a.example.".parse().expect("a name"), rtype: RecordType::A, dnssec: true, tcp: false }
    }

    /// Turns a query into its empty response.
    fn answered(query: &[u8]) -> Vec<u8> {
        let mut message = query.to_vec();
        message[2] |= 0x84;
        message
    }

    #[test]
    fn only_answers_to_the_question_count() {
        let query = question().message();
        let good = answered(&query);
        assert!(answer_to(&query, &good).is_some());
        assert!(answer_to(&query, &query).is_none(), "a query is no answer");
        let mut other = good.clone();
        other[1] ^= 1;
        assert!(answer_to(&query, &other).is_none(), "another identifier");
        let mut other = good;
        other[14] ^= 0x20;
        assert!(answer_to(&query, &other).is_none(), "another question");
    }

    #[tokio::test]
    async fn a_truncated_answer_is_asked_for_over_tcp() {
        let (udp, tcp) = loop {
            let tcp = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("an address")).await {
                break (udp, tcp);
            }
        };
        let server = tcp.local_addr().expect("an address");
        let answering = tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (length, peer) = udp.recv_from(&mut buffer).await.expect("a query");
            let mut truncated = answered(&buffer[..length]);
            truncated[2] |= 0x02;
            udp.send_to(b"nonsense", peer).await.expect("sent");
            udp.send_to(&truncated, peer).await.expect("sent");
            let (mut stream, _) = tcp.accept().await.expect("a connection");
            let length = stream.read_u16().await.expect("a length");
            let mut query = vec![0; usize::from(length)];
            stream.read_exact(&mut query).await.expect("a query");
            stream.write_all(&[&length.to_be_bytes()[..], &answered(&query)].concat()).await.expect("written");
        });
        let exchange = question().ask(server).await.expect("an answer");
        answering.await.expect("no panic");
        assert_eq!((exchange.transport, exchange.response.is_truncated()), ("tcp", false));
        assert!(exchange.response.edns.is_some_and(|edns| edns.dnssec_ok));
    }
}
