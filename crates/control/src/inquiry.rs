//! Asks one DNS server one question: over UDP, and over TCP when the answer does not fit (RFC 1035 §4.2, RFC 7766 §5).
//!
//! Each datagram leaves from a socket of its own, so that the system chooses the port at random, under a random identifier.
//! Only a response from the server's address, with that identifier and the same question, is taken (RFC 5452 §9.1);
//! whatever else comes is passed over. A datagram may get lost, so the question is sent twice before silence is believed.
//!
//! What a response says is read by who asks, each as much of it as it needs.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use signpost_dns::wire::edns::opt_head;
use signpost_dns::wire::header::{FLAG_TC, HEADER_OCTETS, Header, Rcode};
use signpost_dns::wire::{Class, Name, RecordType};

/// Datagrams that a question is sent in, one after the other, before silence is believed.
const TRIES: u32 = 2;
/// What we take over UDP: what passes every network whole (DNS flag day 2020).
pub const PAYLOAD_OCTETS_MAX: u16 = 1232;
/// Datagrams that are passed over while waiting for the one: more are a flood, and end the try.
pub const STRAYS_MAX: usize = 32;
/// Largest datagram that is read whole. Servers that heed what we take send less.
const DATAGRAM_OCTETS_MAX: usize = 4096;

/// A question in class IN, and how it is put.
#[derive(Debug, Clone, Copy)]
pub struct Inquiry<'a> {
    /// The name.
    pub name: &'a Name,
    /// The type.
    pub rtype: RecordType,
    /// Flags of the header, such as RD.
    pub flags: u16,
    /// Version of EDNS: 0 is the only one there is.
    pub edns_version: u8,
    /// Whether DNSSEC records are wanted, too (DO).
    pub dnssec_ok: bool,
    /// EDNS options as on the wire, each with its code and length; 64 KiB at most.
    pub options: &'a [u8],
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// How it came.
    pub transport: Transport,
    /// From the sending of the question on that it answers.
    pub took: Duration,
    /// The message, a response to the question; it may be malformed behind that.
    pub octets: Vec<u8>,
}

/// What carries a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
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

impl Response {
    /// Whether it was cut to fit. Of such a response nothing is used (RFC 2181 §9).
    pub fn is_truncated(&self) -> bool {
        Header::read(&self.octets).is_some_and(|header| header.flags & FLAG_TC != 0)
    }
}

impl<'a> Inquiry<'a> {
    /// An ordinary question to an authority.
    pub fn new(name: &'a Name, rtype: RecordType) -> Inquiry<'a> {
        Inquiry { name, rtype, flags: 0, edns_version: 0, dnssec_ok: false, options: &[] }
    }

    /// Asks `server`, and comes again over TCP if the answer was cut to fit. Each try over UDP, and the one over TCP, may take
    /// `patience`.
    ///
    /// # Errors
    ///
    /// [`AskError`] if no response can be had. One that refuses is a response.
    pub async fn ask(&self, server: SocketAddr, patience: Duration) -> Result<Response, AskError> {
        let response = self.ask_over_udp(server, patience).await?;
        if response.is_truncated() { self.ask_over_tcp(server, patience).await } else { Ok(response) }
    }

    /// Asks over UDP alone; what comes may have been cut to fit. Each of two tries may take `patience`.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub async fn ask_over_udp(&self, server: SocketAddr, patience: Duration) -> Result<Response, AskError> {
        let mut failed = AskError::Silent(patience);
        for _ in 0..TRIES {
            let mut answers_another = false;
            match timeout(patience, over_udp(server, &Query::new(self), &mut answers_another)).await {
                Ok(Ok(Some(response))) => return Ok(response),
                Ok(Ok(None)) => failed = AskError::Malformed,
                Ok(Err(error)) => return Err(AskError::Unreachable(error.kind())),
                Err(_) if answers_another => failed = AskError::Malformed,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    /// Asks over TCP, which may take `patience` from the connection on.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub async fn ask_over_tcp(&self, server: SocketAddr, patience: Duration) -> Result<Response, AskError> {
        let query = Query::new(self);
        let response = timeout(patience, over_tcp(server, &query)).await.map_err(|_| AskError::Silent(patience))?;
        let response = response.map_err(|error| AskError::Unreachable(error.kind()))?;
        if query.match_of(&response.octets) == Match::Answers { Ok(response) } else { Err(AskError::Malformed) }
    }
}

/// A message under an identifier that nobody foresees.
struct Query {
    octets: Vec<u8>,
    /// Where its question ends.
    question_end: usize,
}

/// What a message is to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    /// Its response.
    Answers,
    /// A response under its identifier, to another question.
    AnswersAnother,
    /// Nothing.
    Foreign,
}

impl Query {
    fn new(inquiry: &Inquiry<'_>) -> Query {
        let mut id = [0; 2];
        aws_lc_rs::rand::fill(&mut id).expect("the system's generator of random numbers never fails once it is up");
        let id = u16::from_be_bytes(id);
        let header = Header { id, flags: inquiry.flags, questions: 1, additionals: 1, ..Header::default() };
        let mut octets = header.to_octets().to_vec();
        octets.extend_from_slice(inquiry.name.as_wire());
        octets.extend_from_slice(&inquiry.rtype.0.to_be_bytes());
        octets.extend_from_slice(&Class::IN.0.to_be_bytes());
        let question_end = octets.len();
        let options_octets = u16::try_from(inquiry.options.len()).expect("options are shorter than 64 KiB");
        let mut opt = opt_head(PAYLOAD_OCTETS_MAX, Rcode::NOERROR, inquiry.dnssec_ok, options_octets);
        // RFC 6891 §6.1.3: behind the root, the type, the payload size and the upper bits of the RCODE.
        opt[6] = inquiry.edns_version;
        octets.extend_from_slice(&opt);
        octets.extend_from_slice(inquiry.options);
        Query { octets, question_end }
    }

    fn match_of(&self, message: &[u8]) -> Match {
        let Some(header) = Header::read(message) else { return Match::Foreign };
        if message[..2] != self.octets[..2] || !header.is_response() {
            return Match::Foreign;
        }
        // Type and class; letters of a name may come back in another case.
        let (type_at, end) = (self.question_end - 4, self.question_end);
        let repeats = || {
            message.len() >= end
                && message[HEADER_OCTETS..type_at].eq_ignore_ascii_case(&self.octets[HEADER_OCTETS..type_at])
                && message[type_at..end] == self.octets[type_at..end]
        };
        // Who cannot read the question does not repeat it.
        let is_error = header.flags & 0x0f != Rcode::NOERROR.0;
        match header.questions {
            1 if repeats() => Match::Answers,
            0 if is_error => Match::Answers,
            _ => Match::AnswersAnother,
        }
    }
}

/// `None` if so much else came that it was not waited for any longer.
async fn over_udp(server: SocketAddr, query: &Query, answers_another: &mut bool) -> io::Result<Option<Response>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // From then on the system lets nothing in that another address sends.
    socket.connect(server).await?;
    let sent = Instant::now();
    socket.send(&query.octets).await?;
    let mut message = [0; DATAGRAM_OCTETS_MAX];
    for _ in 0..STRAYS_MAX {
        let length = socket.recv(&mut message).await?;
        let octets = &message[..length];
        match query.match_of(octets) {
            Match::Answers => {
                let (transport, took, octets) = (Transport::Udp, sent.elapsed(), octets.to_vec());
                return Ok(Some(Response { transport, took, octets }));
            }
            Match::AnswersAnother => *answers_another = true,
            Match::Foreign => {}
        }
    }
    Ok(None)
}

async fn over_tcp(server: SocketAddr, query: &Query) -> io::Result<Response> {
    let sent = Instant::now();
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(query.octets.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], &query.octets].concat()).await?;
    let length = stream.read_u16().await?;
    let mut octets = vec![0; usize::from(length)];
    stream.read_exact(&mut octets).await?;
    Ok(Response { transport: Transport::Tcp, took: sent.elapsed(), octets })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use hickory_proto::op::Message;
    use hickory_proto::rr;
    use tokio::net::TcpListener;

    use super::*;
    use signpost_dns::wire::header::FLAG_RD;

    /// For an answer that comes.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// For one that never comes, when all else that comes has come, even on a busy machine.
    const SHORT: Duration = Duration::from_millis(700);

    fn name() -> Name {
        "www.Example.org.".parse().expect("a name")
    }

    /// The empty response to a query.
    fn answered(query: &[u8]) -> Vec<u8> {
        let mut message = query.to_vec();
        message[2] |= 0x84;
        message
    }

    fn flipped(at: usize, bit: u8) -> impl Fn(&[u8]) -> Vec<u8> {
        move |query| {
            let mut message = answered(query);
            message[at] ^= bit;
            message
        }
    }

    /// A server over UDP that sends these for each query; it stops with the test's runtime.
    async fn server(says: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = socket.local_addr().expect("it is bound");
        tokio::spawn(async move {
            let mut query = [0; 512];
            while let Ok((length, peer)) = socket.recv_from(&mut query).await {
                for message in says(&query[..length]) {
                    let _ = socket.send_to(&message, peer).await;
                }
            }
        });
        address
    }

    #[test]
    fn questions_are_read_by_an_independent_parser() {
        let name = name();
        let plain = Inquiry::new(&name, RecordType::AAAA);
        for (inquiry, recursion, version, dnssec_ok, options) in [
            (plain, false, 0, false, 0),
            (Inquiry { flags: FLAG_RD, dnssec_ok: true, ..plain }, true, 0, true, 0),
            (Inquiry { edns_version: 1, options: &[0xfd, 0xe9, 0, 1, 0], ..plain }, false, 1, false, 1),
        ] {
            let message = Message::from_vec(&Query::new(&inquiry).octets).expect("well-formed");
            let [asked] = &message.queries[..] else { panic!("one question") };
            assert_eq!(
                (asked.name.to_ascii(), asked.query_type),
                ("www.Example.org.".to_owned(), rr::RecordType::AAAA)
            );
            assert_eq!(message.metadata.recursion_desired, recursion);
            let edns = message.edns.expect("an OPT record");
            assert_eq!((edns.version(), edns.max_payload()), (version, PAYLOAD_OCTETS_MAX));
            assert_eq!((edns.flags().dnssec_ok, edns.options().as_ref().len()), (dnssec_ok, options));
        }
    }

    #[test]
    fn only_answers_to_the_question_count() {
        let name = name();
        let query = Query::new(&Inquiry::new(&name, RecordType(65)));
        let of = |change: &dyn Fn(&[u8]) -> Vec<u8>| query.match_of(&change(&query.octets));
        for (what, found, expected) in [
            ("its answer", of(&answered), Match::Answers),
            ("a query", query.match_of(&query.octets), Match::Foreign),
            ("another identifier", of(&flipped(1, 1)), Match::Foreign),
            ("another case", of(&flipped(HEADER_OCTETS + 1, 0x20)), Match::Answers),
            ("another name", of(&flipped(HEADER_OCTETS + 1, 1)), Match::AnswersAnother),
            ("another type", of(&flipped(query.question_end - 3, 0x20)), Match::AnswersAnother),
            ("another class", of(&flipped(query.question_end - 1, 2)), Match::AnswersAnother),
            ("cut in the question", of(&|query| answered(&query[..20])), Match::AnswersAnother),
            ("cut in the header", of(&|query| answered(&query[..11])), Match::Foreign),
            ("no question", of(&|query| [&answered(query)[..4], &[0; 8]].concat()), Match::AnswersAnother),
            ("no question, FORMERR", of(&|query| [&query[..2], &[0x80, 1], &[0; 8][..]].concat()), Match::Answers),
        ] {
            assert_eq!(found, expected, "{what}");
        }
    }

    #[tokio::test]
    async fn strays_are_passed_over_and_told_from_silence() {
        let name = name();
        let inquiry = Inquiry::new(&name, RecordType::A);
        type Says = fn(&[u8]) -> Vec<Vec<u8>>;
        let another: Says = |query| vec![flipped(HEADER_OCTETS + 1, 1)(query)];
        let strays: Says = |query| vec![b"x".to_vec(), flipped(1, 1)(query), answered(query)];
        for (what, says, patience, expected) in [
            ("nothing", (|_| Vec::new()) as Says, SHORT, Err(AskError::Silent(SHORT))),
            ("garbage", |_| vec![vec![0xff; 30]], SHORT, Err(AskError::Silent(SHORT))),
            ("another's answer", another, SHORT, Err(AskError::Malformed)),
            ("strays before it", strays, PATIENCE, Ok(())),
            ("a flood", |_| vec![b"flood".to_vec(); STRAYS_MAX], PATIENCE, Err(AskError::Malformed)),
        ] {
            let found = inquiry.ask(server(says).await, patience).await;
            assert_eq!(found.map(|response| assert_eq!(response.transport, Transport::Udp)), expected, "{what}");
        }
    }

    #[tokio::test]
    async fn a_lost_datagram_is_sent_again_under_another_identifier() {
        let (name, asked) = (name(), AtomicU32::new(0));
        let first = std::sync::Mutex::new(Vec::new());
        let server = server(move |query| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => {
                *first.lock().expect("no panic") = answered(query);
                Vec::new()
            }
            // A late answer to the first comes before.
            _ => vec![first.lock().expect("no panic").clone(), answered(query)],
        })
        .await;
        let response = Inquiry::new(&name, RecordType::A)
            .ask(server, Duration::from_secs(2))
            .await
            .expect("the second is answered");
        assert!(!response.is_truncated());
    }

    #[tokio::test]
    async fn what_was_cut_is_asked_for_over_tcp() {
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().expect("it is bound")).await {
                break (udp, tcp);
            }
        };
        let server = tcp.local_addr().expect("it is bound");
        let answering = tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (length, peer) = udp.recv_from(&mut buffer).await.expect("a query");
            let mut truncated = answered(&buffer[..length]);
            truncated[2] |= 0x02;
            udp.send_to(&truncated, peer).await.expect("sent");
            let (mut stream, _) = tcp.accept().await.expect("a connection");
            let length = stream.read_u16().await.expect("a length");
            let mut query = vec![0; usize::from(length)];
            stream.read_exact(&mut query).await.expect("a query");
            stream.write_all(&[&length.to_be_bytes()[..], &answered(&query)].concat()).await.expect("written");
        });
        let name = name();
        let response = Inquiry::new(&name, RecordType::A).ask(server, PATIENCE).await.expect("an answer");
        answering.await.expect("no panic");
        assert_eq!((response.transport, response.is_truncated()), (Transport::Tcp, false));
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_told_as_such() {
        // Nobody else gets the port: a socket has it that hears another peer alone, and one that does not listen.
        let (_udp, _tcp, address) = loop {
            let udp = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let address = udp.local_addr().expect("it is bound");
            udp.connect(address).expect("to itself");
            let tcp = tokio::net::TcpSocket::new_v4().expect("a socket");
            if tcp.bind(address).is_ok() {
                break (udp, tcp, address);
            }
        };
        let name = name();
        let inquiry = Inquiry::new(&name, RecordType::A);
        let refused = AskError::Unreachable(io::ErrorKind::ConnectionRefused);
        assert_eq!(inquiry.ask(address, PATIENCE).await, Err(refused.clone()));
        assert_eq!(inquiry.ask_over_tcp(address, PATIENCE).await, Err(refused));
    }
}
