//! What a name server's response says, as far as checks want to know. It is asked by [`crate::inquiry`], and its response read
//! by `hickory-proto`, which this file alone knows.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::{self, DNSClass, RData};

use crate::inquiry::{AskError, Inquiry};
use signpost_dns::wire::header::{FLAG_RD, Rcode};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Serial;

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
    let inquiry = Inquiry { flags, ..Inquiry::new(&question.name, question.rtype) };
    let response = inquiry.ask(server, patience).await?;
    Reply::read(&response.octets).filter(|_| !response.is_truncated()).ok_or(AskError::Malformed)
}

impl Reply {
    /// Of a response to the question; `None` if it is malformed.
    fn read(message: &[u8]) -> Option<Reply> {
        let message = Message::from_vec(message).ok()?;
        let metadata = &message.metadata;
        (metadata.op_code == OpCode::Query).then(|| Reply {
            rcode: Rcode(u16::from(metadata.response_code)),
            authoritative: metadata.authoritative,
            answers: message.answers.iter().filter_map(own_record).collect(),
            authorities: message.authorities.iter().filter_map(own_record).collect(),
            additionals: message.additionals.iter().filter_map(own_record).collect(),
        })
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
    use std::net::Ipv4Addr;

    use super::*;
    use crate::controller::live::fake::{FakeServer, Say};
    use crate::inquiry::STRAYS_MAX;

    fn question() -> Question {
        Question { name: "x.s.example.".parse().expect("a name"), rtype: RecordType::A }
    }

    /// For an answer that comes.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// For one that never comes, when all else that comes has come, even on a busy machine.
    const SHORT: Duration = Duration::from_millis(700);

    #[tokio::test]
    async fn what_comes_back_is_a_reply_or_none() {
        let a = |text: &str| Data::Address(text.parse().expect("an address"));
        for (what, say, patience, expected) in [
            ("an answer", vec![Say::Records(vec![a("192.0.2.1")])], PATIENCE, Ok(vec![a("192.0.2.1")])),
            ("nothing", vec![Say::Nothing], SHORT, Err(AskError::Silent(SHORT))),
            ("another's answer", vec![Say::WrongId, Say::WrongQuestion], SHORT, Err(AskError::Malformed)),
            (
                "strays before the answer",
                vec![Say::Garbage, Say::WrongId, Say::WrongQuestion, Say::Records(vec![a("192.0.2.1")])],
                PATIENCE,
                Ok(vec![a("192.0.2.1")]),
            ),
            ("a flood", vec![Say::Garbage; STRAYS_MAX], PATIENCE, Err(AskError::Malformed)),
        ] {
            let server = FakeServer::start(move |_, _| say.clone()).await;
            let found = ask(server.address, &question(), patience).await;
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
        let reply = ask(server.address, &question(), PATIENCE).await.expect("it answers");
        assert_eq!(reply.answers.into_iter().map(|record| record.data).collect::<Vec<_>>(), all);
        assert!(reply.authoritative);
    }

    #[tokio::test]
    async fn what_is_cut_over_tcp_as_well_is_no_reply() {
        let server = FakeServer::start(|_, _| vec![Say::Truncated]).await;
        let found = ask(server.address, &question(), PATIENCE).await;
        assert_eq!(found, Err(AskError::Malformed));
    }
}
