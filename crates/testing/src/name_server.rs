//! A name server in the process of a test: real sockets, by `hickory-server`, with answers that the test computes.
//!
//! It can be wrong, silent, or answer more than once. Octets that are not a DNS message are beyond it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use hickory_proto::op::{Header, HeaderCounts, Metadata, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, BinEncodable as _};
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo, Server};
use hickory_server::zone_handler::{MessageResponseBuilder, Queries};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;

use crate::net::free_address;

/// The time for which a connection may be idle: longer than a test.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// The number of responses that wait for a TCP client.
const RESPONSES_MAX: usize = 32;
const TTL: u32 = 30;

/// A response.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An authoritative response with these records of the queried name.
    Records(Vec<RData>),
    /// The same without AA.
    NotAuthoritative(Vec<RData>),
    /// A response without records.
    Rcode(ResponseCode),
    /// The response to another question.
    Mismatched,
}

/// Returns the data of records that are written as in a zone file, such as `A 192.0.2.1`.
pub fn records(texts: &[&str]) -> Vec<RData> {
    let record = |text: &&str| {
        let (rtype, data) = text.split_once(' ').expect("a type and data");
        let rtype: RecordType = rtype.parse().expect("a type of records");
        RData::try_from_str(rtype, data).unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    texts.iter().map(record).collect()
}

/// A running name server; it ends when dropped.
pub struct NameServer {
    /// The loopback address on which the server listens, over UDP and TCP.
    pub address: SocketAddr,
    _server: JoinSet<()>,
}

impl NameServer {
    /// Sends the result of `answers` for each query. It gets the name in lower case, with the dot at the end, and the type.
    pub async fn answering(answers: impl Fn(&str, RecordType) -> Vec<Reply> + Send + Sync + 'static) -> NameServer {
        NameServer::start(Answers(Box::new(answers))).await
    }

    /// Answers queries with `handler`.
    pub async fn start(handler: impl RequestHandler) -> NameServer {
        let bind = async |address| io::Result::Ok((UdpSocket::bind(address).await?, TcpListener::bind(address).await?));
        let address = free_address();
        let (udp, tcp) = bind(address).await.expect("the port was free a moment ago");
        let mut server = Server::new(handler);
        server.register_socket(udp);
        server.register_listener(tcp, IDLE_MAX, RESPONSES_MAX);
        let mut task = JoinSet::new();
        task.spawn(async move { server.block_until_done().await.expect("loopback stays") });
        NameServer { address, _server: task }
    }
}

type AnswerFn = dyn Fn(&str, RecordType) -> Vec<Reply> + Send + Sync;

struct Answers(Box<AnswerFn>);

#[async_trait]
impl RequestHandler for Answers {
    async fn handle_request<R: ResponseHandler, T: Time>(&self, request: &Request, mut sender: R) -> ResponseInfo {
        let [query] = request.queries.queries() else { panic!("one question") };
        let another = another_question();
        let mut metadata = Metadata::response_from_request(&request.metadata);
        for reply in (self.0)(&query.name().to_string(), query.query_type()) {
            metadata.authoritative = !matches!(reply, Reply::NotAuthoritative(_));
            metadata.response_code = if let Reply::Rcode(rcode) = reply { rcode } else { ResponseCode::NoError };
            let questions = if matches!(reply, Reply::Mismatched) { &another } else { &request.queries };
            let found = match reply {
                Reply::Records(found) | Reply::NotAuthoritative(found) => found,
                Reply::Rcode(_) | Reply::Mismatched => Vec::new(),
            };
            let record = |data| Record::from_rdata(query.original().name().clone(), TTL, data);
            let answers: Vec<Record> = found.into_iter().map(record).collect();
            let message = MessageResponseBuilder::new(questions, None).build(metadata, &answers, [], [], []);
            sender.send_response(message).await.expect("the client takes few responses");
            // The task of the socket takes one response after another from a short queue.
            tokio::task::yield_now().await;
        }
        Header { metadata, counts: HeaderCounts::default() }.into()
    }
}

fn another_question() -> Queries {
    let name = Name::from_ascii("another.test.").expect("a name");
    let octets = Query::query(name, RecordType::A).to_bytes().expect("a question");
    Queries::read(&mut BinDecoder::new(&octets), 1).expect("it was just written")
}
