//! A DNS client: sends one query to one server over UDP, and over TCP when the response does not fit (RFC 1035 §4.2, RFC 7766
//! §5).
//!
//! Each datagram uses a separate socket, so that the kernel chooses a random port, under a random identifier. The client accepts
//! only a response from the server's address, with that identifier and the same question (RFC 5452 §9.1), and discards
//! everything else. A datagram may get lost, so the client sends a query twice before it reports a timeout.
//!
//! `hickory-proto` parses responses. [`Response`] is the only model of a response: verification, ownership checks, host checks,
//! `signpost doctor`, `dig`, and `zone status` use it.

mod response;

pub use response::{Data, Edns, Record, Response};

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use signpost_dns::wire::edns::opt_head;
use signpost_dns::wire::header::{FLAG_RD, HEADER_OCTETS, Header, Rcode};
use signpost_dns::wire::{Class, Name, RecordType};
use signpost_dns::zone::Serial;

/// The datagrams that are sent for a query, one after another, before the client reports a timeout.
const TRIES: u32 = 2;
/// The payload size that the client advertises over UDP: it passes every network whole (DNS flag day 2020).
pub const PAYLOAD_OCTETS_MAX: u16 = 1232;
/// The mismatched datagrams that are discarded while the client waits: more are a flood, and end the try.
pub const MISMATCHED_RESPONSES_MAX: usize = 32;
/// The largest datagram that is read whole. Servers that respect the advertised size send less.
const DATAGRAM_OCTETS_MAX: usize = 4096;

type Network = dyn Fn(SocketAddr, Vec<u8>) -> BoxFuture<'static, Vec<u8>>;

thread_local! {
    static SIMULATED: RefCell<Option<Box<Network>>> = const { RefCell::new(None) };
}

/// Makes `network` transport all later queries of this thread instead of the kernel: for simulations. It gets the address of the
/// server and the bytes of the query.
pub fn simulate(network: impl Fn(SocketAddr, Vec<u8>) -> BoxFuture<'static, Vec<u8>> + 'static) {
    SIMULATED.set(Some(Box::new(network)));
}

/// A name and a type, in class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub name: Name,
    pub rtype: RecordType,
}

impl Question {
    /// Queries an authoritative server. Each try over UDP, and the one over TCP, may take `patience`.
    ///
    /// # Errors
    ///
    /// [`QueryError`] without a usable response. An error code is a [`Response`].
    pub async fn ask(&self, server: SocketAddr, patience: Duration) -> Result<Response, QueryError> {
        Query::new(&self.name, self.rtype).send(server, patience).await
    }

    /// Queries a resolver, with recursion desired (RD).
    ///
    /// # Errors
    ///
    /// [`QueryError`] without a usable response. An error code is a [`Response`].
    pub async fn ask_resolver(&self, server: SocketAddr, patience: Duration) -> Result<Response, QueryError> {
        let query = Query { flags: FLAG_RD, ..Query::new(&self.name, self.rtype) };
        query.send(server, patience).await
    }

    /// Returns the response of the first resolver that has one, with or without records. Each resolver is queried as by
    /// [`Self::ask_resolver`].
    ///
    /// # Errors
    ///
    /// The fault of the last resolver.
    pub async fn resolve(&self, resolvers: &[SocketAddr], patience: Duration) -> Result<Response, ResolveError> {
        let mut failed = ResolveError::NoResolver;
        for resolver in resolvers {
            match self.ask_resolver(*resolver, patience).await {
                Ok(response) if matches!(response.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) => return Ok(response),
                Ok(response) => failed = ResolveError::Rcode(*resolver, response.rcode),
                Err(error) => failed = ResolveError::NoResponse(*resolver, error),
            }
        }
        Err(failed)
    }
}

/// The reason why no resolver resolves a question: that of the last one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No resolver is configured.
    #[error("no resolver is known: set verify.resolver")]
    NoResolver,
    /// The response has an error code.
    #[error("the resolver {0} answers {1}")]
    Rcode(SocketAddr, Rcode),
    /// There is no usable response.
    #[error("the resolver {0} does not answer: {1}")]
    NoResponse(SocketAddr, QueryError),
}

/// The reason why [`serial_on`] has no serial.
#[derive(Debug, thiserror::Error)]
pub enum SerialError {
    /// There is no usable response.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The server responds without authority (AA).
    #[error("the response is not authoritative")]
    NotAuthoritative,
    /// The response has no SOA record.
    #[error("zone not found")]
    NoZone,
    /// The response has an error code.
    #[error("{0}")]
    Rcode(Rcode),
}

/// Returns the serial of a zone on a name server. Each try over UDP, and the one over TCP, may take `patience`.
///
/// # Errors
///
/// See [`SerialError`].
pub async fn serial_on(apex: Name, server: SocketAddr, patience: Duration) -> Result<Serial, SerialError> {
    let response = Question { name: apex, rtype: RecordType::SOA }.ask(server, patience).await?;
    match response.serial() {
        Some(serial) if response.is_authoritative() => Ok(serial),
        Some(_) => Err(SerialError::NotAuthoritative),
        None if response.rcode == Rcode::NOERROR => Err(SerialError::NoZone),
        None => Err(SerialError::Rcode(response.rcode)),
    }
}

/// A question in class IN, with header flags and EDNS.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub name: &'a Name,
    pub rtype: RecordType,
    /// Flags of the header, such as RD.
    pub flags: u16,
    /// The version of EDNS; only 0 is defined.
    pub edns_version: u8,
    /// Whether the query requests DNSSEC records (DO).
    pub dnssec_ok: bool,
    /// EDNS options as on the wire, each with its code and length; at most 32 KiB.
    pub options: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
}

/// The reason why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No response arrived in time.
    #[error("no response within {} ms, in {TRIES} attempts", .0.as_millis())]
    Silent(Duration),
    /// The kernel reports that the server is unreachable.
    #[error("unreachable: {0}")]
    Unreachable(io::ErrorKind),
    /// The server sent no well-formed and complete response to the query.
    #[error("the response is invalid or does not match the query")]
    Malformed,
}

impl<'a> Query<'a> {
    /// Returns an ordinary query to an authoritative server.
    pub fn new(name: &'a Name, rtype: RecordType) -> Query<'a> {
        Query { name, rtype, flags: 0, edns_version: 0, dnssec_ok: false, options: &[] }
    }

    /// Sends the query over UDP, and again over TCP if the response is truncated. Each try over UDP, and the one over TCP, may take
    /// `patience`.
    ///
    /// # Errors
    ///
    /// [`QueryError`] without a whole response. An error code is a [`Response`].
    pub async fn send(&self, server: SocketAddr, patience: Duration) -> Result<Response, QueryError> {
        let response = self.send_over_udp(server, patience).await?;
        if response.is_truncated() { self.send_over_tcp(server, patience).await } else { Ok(response) }
    }

    /// Sends the query over UDP; the response may be truncated.
    async fn send_over_udp(&self, server: SocketAddr, patience: Duration) -> Result<Response, QueryError> {
        let mut failed = QueryError::Silent(patience);
        for _ in 0..TRIES {
            let mut is_mismatched = false;
            match timeout(patience, over_udp(server, &QueryMessage::new(self), &mut is_mismatched)).await {
                Ok(Ok(response)) => return response.ok_or(QueryError::Malformed),
                Ok(Err(error)) => return Err(QueryError::Unreachable(error.kind())),
                Err(_) if is_mismatched => failed = QueryError::Malformed,
                Err(_) => {}
            }
        }
        Err(failed)
    }

    /// Sends the query over TCP, which may take `patience` from the start of the connection.
    ///
    /// # Errors
    ///
    /// The same as for [`Self::send`].
    pub async fn send_over_tcp(&self, server: SocketAddr, patience: Duration) -> Result<Response, QueryError> {
        let message = QueryMessage::new(self);
        let sent = timeout(patience, over_tcp(server, &message)).await.map_err(|_| QueryError::Silent(patience))?;
        let response = sent.map_err(|error| QueryError::Unreachable(error.kind()))?;
        response.filter(|response| !response.is_truncated()).ok_or(QueryError::Malformed)
    }
}

/// An encoded query with a random identifier.
struct QueryMessage {
    octets: Vec<u8>,
    /// The end of the question section.
    question_end: usize,
}

/// The relation of a received message to a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Match {
    /// The server sends its response.
    Answers,
    /// A response under its identifier, to another question.
    AnswersAnother,
    /// Anything else.
    Foreign,
}

impl QueryMessage {
    fn new(query: &Query<'_>) -> QueryMessage {
        let id = getrandom::u32().expect("the system's generator of random numbers never fails once it is up");
        let id = id as u16;
        let header = Header { id, flags: query.flags, questions: 1, additionals: 1, ..Header::default() };
        let mut octets = header.to_octets().to_vec();
        octets.extend_from_slice(query.name.as_wire());
        octets.extend_from_slice(&query.rtype.0.to_be_bytes());
        octets.extend_from_slice(&Class::IN.0.to_be_bytes());
        let question_end = octets.len();
        let options_octets = u16::try_from(query.options.len()).expect("options are shorter than 32 KiB");
        let mut opt = opt_head(PAYLOAD_OCTETS_MAX, Rcode::NOERROR, query.dnssec_ok, options_octets);
        // RFC 6891 §6.1.3: after the root name come the type, the payload size, and the upper bits of the RCODE.
        opt[6] = query.edns_version;
        octets.extend_from_slice(&opt);
        octets.extend_from_slice(query.options);
        QueryMessage { octets, question_end }
    }

    /// Returns the message after its length, as on a stream (RFC 1035 §4.2.2).
    fn framed(&self) -> Vec<u8> {
        let length = u16::try_from(self.octets.len()).expect("a name, and options shorter than 32 KiB");
        [&length.to_be_bytes()[..], &self.octets].concat()
    }

    fn match_of(&self, message: &[u8]) -> Match {
        let Some(header) = Header::read(message) else { return Match::Foreign };
        if message[..2] != self.octets[..2] || !header.is_response() {
            return Match::Foreign;
        }
        // Type and class; the letters of a name can return in another case.
        let (type_at, end) = (self.question_end - 4, self.question_end);
        let repeats = || {
            message.len() >= end
                && message[HEADER_OCTETS..type_at].eq_ignore_ascii_case(&self.octets[HEADER_OCTETS..type_at])
                && message[type_at..end] == self.octets[type_at..end]
        };
        // A server that cannot parse the question does not repeat it.
        let is_error = header.flags & 0x0f != Rcode::NOERROR.0;
        match header.questions {
            1 if repeats() => Match::Answers,
            0 if is_error => Match::Answers,
            _ => Match::AnswersAnother,
        }
    }
}

/// Sends a query and waits for its response; `None` if that is malformed, or after too many mismatched messages.
async fn over_udp(server: SocketAddr, query: &QueryMessage, is_mismatched: &mut bool) -> io::Result<Option<Response>> {
    let simulated =
        SIMULATED.with_borrow(|network| network.as_ref().map(|network| network(server, query.octets.clone())));
    if let Some(response) = simulated {
        return Ok(Response::parse(&response.await, Transport::Udp, Duration::ZERO));
    }
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // From then on, the kernel drops messages from other addresses.
    socket.connect(server).await?;
    let sent = Instant::now();
    socket.send(&query.octets).await?;
    let mut message = [0; DATAGRAM_OCTETS_MAX];
    for _ in 0..MISMATCHED_RESPONSES_MAX {
        let length = socket.recv(&mut message).await?;
        let octets = &message[..length];
        match query.match_of(octets) {
            Match::Answers => return Ok(Response::parse(octets, Transport::Udp, sent.elapsed())),
            Match::AnswersAnother => *is_mismatched = true,
            Match::Foreign => {}
        }
    }
    Ok(None)
}

/// Sends a query over a new connection; `None` if the received message is not its response.
async fn over_tcp(server: SocketAddr, query: &QueryMessage) -> io::Result<Option<Response>> {
    let sent = Instant::now();
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&query.framed()).await?;
    let length = stream.read_u16().await?;
    let mut octets = vec![0; usize::from(length)];
    stream.read_exact(&mut octets).await?;
    let is_answer = query.match_of(&octets) == Match::Answers;
    Ok(if is_answer { Response::parse(&octets, Transport::Tcp, sent.elapsed()) } else { None })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use hickory_proto::op::Message;
    use hickory_proto::rr;
    use tokio::net::TcpListener;

    use super::*;

    /// The time limit for a response that arrives.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// The time limit for a response that never arrives, after all others have arrived, even on a busy machine.
    const SHORT: Duration = Duration::from_millis(700);

    fn name() -> Name {
        "www.Example.org.".parse().expect("a name")
    }

    /// Returns the empty response to a query.
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

    /// Starts a server over UDP that sends these for each query; it stops with the test's runtime.
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
        let plain = Query::new(&name, RecordType::AAAA);
        for (query, recursion, version, dnssec_ok, options) in [
            (plain, false, 0, false, 0),
            (Query { flags: FLAG_RD, dnssec_ok: true, ..plain }, true, 0, true, 0),
            (Query { edns_version: 1, options: &[0xfd, 0xe9, 0, 1, 0], ..plain }, false, 1, false, 1),
        ] {
            let message = Message::from_vec(&QueryMessage::new(&query).octets).expect("well-formed");
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
        let query = QueryMessage::new(&Query::new(&name, RecordType(65)));
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
    async fn strays_are_passed_over_and_distinguished_from_silence() {
        let name = name();
        let query = Query::new(&name, RecordType::A);
        type Says = fn(&[u8]) -> Vec<Vec<u8>>;
        let another: Says = |query| vec![flipped(HEADER_OCTETS + 1, 1)(query)];
        let strays: Says = |query| vec![b"x".to_vec(), flipped(1, 1)(query), answered(query)];
        for (what, says, patience, expected) in [
            ("nothing", (|_| Vec::new()) as Says, SHORT, Err(QueryError::Silent(SHORT))),
            ("garbage", |_| vec![vec![0xff; 30]], SHORT, Err(QueryError::Silent(SHORT))),
            ("another's answer", another, SHORT, Err(QueryError::Malformed)),
            ("strays before it", strays, PATIENCE, Ok(())),
            ("a flood", |_| vec![b"flood".to_vec(); MISMATCHED_RESPONSES_MAX], PATIENCE, Err(QueryError::Malformed)),
        ] {
            let found = query.send(server(says).await, patience).await;
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
            // A late response to the first query arrives earlier.
            _ => vec![first.lock().expect("no panic").clone(), answered(query)],
        })
        .await;
        let response = Query::new(&name, RecordType::A)
            .send(server, Duration::from_secs(2))
            .await
            .expect("the second is answered");
        assert!(!response.is_truncated());
    }

    /// Queries a server whose response over UDP is truncated, and over TCP too if `is_always`.
    async fn truncated(is_always: bool) -> Result<Response, QueryError> {
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
            // The last record of a truncated response may be incomplete.
            let cut = &flipped(2, 0x02)(&buffer[..length])[..length - 3];
            udp.send_to(cut, peer).await.expect("sent");
            let (mut stream, _) = tcp.accept().await.expect("a connection");
            let length = stream.read_u16().await.expect("a length");
            let mut query = vec![0; usize::from(length)];
            stream.read_exact(&mut query).await.expect("a query");
            let answer = if is_always { flipped(2, 0x02)(&query) } else { answered(&query) };
            stream.write_all(&[&length.to_be_bytes()[..], &answer].concat()).await.expect("written");
        });
        let response = Query::new(&name(), RecordType::A).send(server, PATIENCE).await;
        answering.await.expect("no panic");
        response
    }

    #[tokio::test]
    async fn a_truncated_response_is_fetched_over_tcp_and_never_used() {
        let response = truncated(false).await.expect("an answer");
        assert_eq!((response.transport, response.is_truncated()), (Transport::Tcp, false));
        assert_eq!(truncated(true).await, Err(QueryError::Malformed));
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_reported() {
        // No other process gets the port: one socket has it that accepts another peer only, and one that does not listen.
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
        let query = Query::new(&name, RecordType::A);
        let refused = QueryError::Unreachable(io::ErrorKind::ConnectionRefused);
        assert_eq!(query.send(address, PATIENCE).await, Err(refused.clone()));
        assert_eq!(query.send_over_tcp(address, PATIENCE).await, Err(refused));
    }
}
