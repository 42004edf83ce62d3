//! One check: the answers of one name server about one zone, compared with the expected ones.
//!
//! The check queries the zone's SOA first and names after it, so that their answers are at least as new as the serial. One name,
//! the *witness*, represents all names of the zone that have no answer of their own. Other names are queried separately, and a
//! wrong answer for one of them is not a fault of the zone.
//!
//! A serial that is too old first ends the check, because it is usually current a moment later. If a serial stays too old, for
//! example while a name server holds back deletions, the check queries names anyway ([`StaleSerialPolicy`]): a correct answer
//! verifies that name.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::compiler::expectation::Expected;
use crate::dns_client::{Data, QueryError, Question, Response};
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Serial;
use signpost_types::text::listed;

/// The queries about a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The zone.
    pub apex: Name,
    /// The least serial that the server should have.
    pub serial: Serial,
    /// The name that represents the zone, if there is one.
    pub witness: Option<Probe>,
    /// The names that are queried for themselves.
    pub names: Vec<Probe>,
    /// The policy for an older serial.
    pub stale: StaleSerialPolicy,
}

/// The action of a check when the server has an older version of the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleSerialPolicy {
    /// The check ends.
    Stop,
    /// The check queries the names. Answers must have all their addresses, some of which can be in the older version, too.
    QueryAll,
    /// The check queries the names as in the newest version: a DeletionHold is the known reason for the old serial.
    Query,
}

/// A name with its expected answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub name: Name,
    /// The expected answer.
    pub expected: Expected,
}

/// The answers to a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The serial that the server has.
    pub serial: Serial,
    /// The answer for the witness, if it was queried.
    pub witness: Option<Result<(), Fault>>,
    /// The answers for the names, in the order of the check; empty if they were not queried.
    pub names: Vec<Result<(), Fault>>,
}

/// A fault in a server's answers about a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no answer.
    NotAnswering(QueryError),
    /// The server's address is reserved for documentation.
    Documentation,
    /// The server answers with an error.
    Error {
        /// The name that was queried.
        name: Name,
        /// The response code.
        rcode: Rcode,
    },
    /// The server is not authoritative for the name.
    NotAuthoritative(Name),
    /// The server gives a different answer.
    WrongAnswer {
        question: Question,
        /// The answer, in a few words.
        found: String,
    },
    /// The server has an older version of the zone.
    OldSerial,
}

/// The reason of [`Fault::OldSerial`].
pub const OLD_SERIAL: &str = "OldSerial";
/// The reason that replaces it while a DeletionHold prevents the update of the zone.
pub const DELETION_HELD: &str = "DeletionHeld";

impl Fault {
    /// Returns the reason of the condition.
    pub fn reason(&self) -> &'static str {
        self.reason_and_label().0
    }

    /// Returns the label of the metric.
    pub fn label(&self) -> &'static str {
        self.reason_and_label().1
    }

    fn reason_and_label(&self) -> (&'static str, &'static str) {
        match self {
            Fault::NotAnswering(_) | Fault::Documentation => ("NotAnswering", "not_answering"),
            Fault::Error { .. } => ("ErrorAnswer", "error_answer"),
            Fault::NotAuthoritative(_) => ("NotAuthoritative", "not_authoritative"),
            Fault::WrongAnswer { .. } => ("WrongAnswer", "wrong_answer"),
            Fault::OldSerial => (OLD_SERIAL, "old_serial"),
        }
    }

    /// Returns whether a resolver gets no answer, and queries another server: this one does not respond, or responds that it cannot
    /// answer now, as while it starts. All other faults are wrong answers.
    pub fn is_silence(&self) -> bool {
        matches!(self, Fault::NotAnswering(_) | Fault::Error { rcode: Rcode::SERVFAIL, .. })
    }

    /// Returns whether both are the same fault, regardless of the names at which they were found.
    pub fn is_like(&self, other: &Fault) -> bool {
        match (self, other) {
            (Fault::Error { rcode, .. }, Fault::Error { rcode: other, .. }) => rcode == other,
            (Fault::WrongAnswer { question, found }, Fault::WrongAnswer { question: queried, found: other }) => {
                question.rtype == queried.rtype && found == other
            }
            (Fault::NotAuthoritative(_), Fault::NotAuthoritative(_)) => true,
            (this, other) => this == other,
        }
    }
}

impl fmt::Display for Fault {
    /// Writes the predicate of a sentence whose subject is the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotAnswering(QueryError::Silent(_)) => f.write_str("does not answer"),
            Fault::NotAnswering(error) => write!(f, "does not answer: {error}"),
            Fault::Documentation => f.write_str("does not answer: the address is reserved for documentation"),
            Fault::Error { name, rcode } => write!(f, "answers {rcode} for {}", text(name)),
            Fault::NotAuthoritative(name) => write!(f, "is not authoritative for {}", text(name)),
            Fault::WrongAnswer { question, found } => {
                write!(f, "answers {found} for {} {}", text(&question.name), question.rtype)
            }
            Fault::OldSerial => f.write_str("has an older version of the zone"),
        }
    }
}

impl Check {
    /// Runs the check. Each query can take `patience` twice over UDP, and again over TCP.
    ///
    /// # Errors
    ///
    /// [`Fault`] in the answer for the SOA.
    pub async fn run(&self, server: SocketAddr, patience: Duration) -> Result<CheckResult, Fault> {
        if is_for_documentation(server.ip()) {
            return Err(Fault::Documentation);
        }
        let question = Question { name: self.apex.clone(), rtype: RecordType::SOA };
        let reply = question.ask(server, patience).await.map_err(Fault::NotAnswering)?;
        let serial = serial(&question, &reply)?;
        let stale = if self.is_reached_by(serial) { StaleSerialPolicy::Query } else { self.stale };
        if stale == StaleSerialPolicy::Stop {
            return Ok(CheckResult { serial, witness: None, names: Vec::new() });
        }
        let names = self.names.iter().map(|probe| probe.run(server, stale, patience));
        let witness = self.witness.as_ref().map(|witness| witness.run(server, stale, patience));
        let (witness, names) =
            futures::future::join(futures::future::OptionFuture::from(witness), futures::future::join_all(names)).await;
        Ok(CheckResult { serial, witness, names })
    }

    /// Returns whether a server with this serial has the required version.
    pub fn is_reached_by(&self, serial: Serial) -> bool {
        serial == self.serial || serial.is_after(self.serial)
    }

    pub fn queries(&self) -> usize {
        1 + self.names.iter().chain(&self.witness).map(|probe| types(&probe.expected).len()).sum::<usize>()
    }
}

impl Probe {
    async fn run(&self, server: SocketAddr, stale: StaleSerialPolicy, patience: Duration) -> Result<(), Fault> {
        let queries = types(&self.expected).iter().copied().map(|rtype| async move {
            let question = Question { name: self.name.clone(), rtype };
            let reply = question.ask(server, patience).await.map_err(Fault::NotAnswering)?;
            check_answer(&question, &self.expected, &reply)?;
            match stale == StaleSerialPolicy::QueryAll && !has_all(&self.expected, rtype, &reply) {
                true => Err(wrong(&question, &reply)),
                false => Ok(()),
            }
        });
        futures::future::try_join_all(queries).await.map(drop)
    }
}

fn types(expected: &Expected) -> &'static [RecordType] {
    match expected {
        Expected::Addresses(_) => &[RecordType::A, RecordType::AAAA],
        Expected::Alias(_) => &[RecordType::CNAME],
    }
}

fn serial(question: &Question, reply: &Response) -> Result<Serial, Fault> {
    is_good(question, reply)?;
    match &reply.answers[..] {
        [record] if record.owner == question.name => match record.data {
            Data::Soa(serial) => Ok(serial),
            _ => Err(wrong(question, reply)),
        },
        _ => Err(wrong(question, reply)),
    }
}

/// Compares the answer to `question` with the expected one.
fn check_answer(question: &Question, expected: &Expected, reply: &Response) -> Result<(), Fault> {
    is_good(question, reply)?;
    let of_name = reply.answers.iter().all(|record| record.owner == question.name);
    let right = match expected {
        Expected::Addresses(addresses) => {
            let of_type = |address: &&IpAddr| address.is_ipv6() == (question.rtype == RecordType::AAAA);
            let wanted: Vec<&IpAddr> = addresses.iter().filter(of_type).collect();
            let known = |data: &Data| matches!(data, Data::Address(address) if wanted.contains(&address));
            // Weights select a subset, so some of the addresses are as correct as all.
            reply.answers.is_empty() == wanted.is_empty() && reply.answers.iter().all(|record| known(&record.data))
        }
        Expected::Alias(target) => {
            matches!(&reply.answers[..], [record] if matches!(&record.data, Data::Cname(to) if to == target))
        }
    };
    if right && of_name { Ok(()) } else { Err(wrong(question, reply)) }
}

/// Returns whether a correct answer contains all addresses of its type, not just some.
fn has_all(expected: &Expected, rtype: RecordType, reply: &Response) -> bool {
    let Expected::Addresses(addresses) = expected else { return true };
    let mut of_type = addresses.iter().filter(|address| address.is_ipv6() == (rtype == RecordType::AAAA));
    of_type.all(|address| reply.answers.iter().any(|record| record.data == Data::Address(*address)))
}

/// Checks that the answer is authoritative, and not an error.
fn is_good(question: &Question, reply: &Response) -> Result<(), Fault> {
    match reply.rcode {
        Rcode::NOERROR if reply.is_authoritative() => Ok(()),
        Rcode::NOERROR => Err(Fault::NotAuthoritative(question.name.clone())),
        Rcode::NXDOMAIN => Err(Fault::WrongAnswer { question: question.clone(), found: "NXDOMAIN".to_owned() }),
        rcode => Err(Fault::Error { name: question.name.clone(), rcode }),
    }
}

fn wrong(question: &Question, reply: &Response) -> Fault {
    const SHOWN_MAX: usize = 4;
    let mut found: Vec<String> = reply.answers.iter().map(|record| record_text(&record.data)).collect();
    // Answers are rotated; the message should not be.
    found.sort();
    let found = if found.is_empty() { "NODATA".to_owned() } else { listed(&found, SHOWN_MAX) };
    Fault::WrongAnswer { question: question.clone(), found }
}

fn record_text(data: &Data) -> String {
    match data {
        Data::Address(address) => address.to_string(),
        Data::Cname(target) => format!("CNAME {}", text(target)),
        Data::Soa(serial) => format!("SOA {serial}"),
        Data::NameServer(server) => format!("NS {}", text(server)),
        Data::Text(_) => "TXT".to_owned(),
        Data::Other(rtype) => rtype.to_string(),
    }
}

/// The start of the label for a query of the wildcard; random digits follow.
pub const PROBE_LABEL: &str = "signpost-probe-";

/// Returns a name without the trailing dot. A label of [`PROBE_LABEL`] becomes the wildcard.
pub fn text(name: &Name) -> String {
    let is_probe = name.labels().next().is_some_and(|label| label.starts_with(PROBE_LABEL.as_bytes()));
    let wildcard = name.parent().filter(|_| is_probe).and_then(|apex| apex.wildcard().ok());
    let mut text = wildcard.as_ref().unwrap_or(name).to_string();
    if text.len() > 1 {
        text.pop();
    }
    text
}

/// Returns whether an address is for documentation (RFC 5737 §3, RFC 3849 §2, RFC 9637 §2). These are never routed.
pub fn is_for_documentation(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_documentation(),
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            (first == 0x2001 && second == 0xdb8) || (first == 0x3fff && second < 0x1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use signpost_testing::dns::{RecordType, ResponseCode};
    use signpost_testing::name_server::{NameServer, Reply, records};

    use super::*;

    /// The time limit for a response that arrives, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn addresses(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|address| address.parse().expect("an address")).collect()
    }

    fn answer(texts: &[&str]) -> Vec<Reply> {
        vec![Reply::Records(records(texts))]
    }

    fn soa(serial: u32) -> Vec<Reply> {
        answer(&[&format!("SOA . . {serial} 1 1 1 1")])
    }

    /// Runs a check of a server with these answers for SOA, A, AAAA, and CNAME. Returns the serial and the faults of the witness
    /// and of the name.
    async fn check(answers: [Vec<Reply>; 4], stale: StaleSerialPolicy) -> Result<(u32, [Option<String>; 2]), String> {
        let patience = if answers.iter().any(Vec::is_empty) { Duration::from_millis(50) } else { PATIENCE };
        let server = NameServer::answering(move |_, queried| {
            let types = [RecordType::SOA, RecordType::A, RecordType::AAAA, RecordType::CNAME];
            answers[types.iter().position(|rtype| *rtype == queried).expect("one of these")].clone()
        })
        .await;
        let to = addresses("192.0.2.1 192.0.2.2 2001:db8::1");
        let witness = Some(Probe { name: name("x.s.example."), expected: Expected::Addresses(to.into()) });
        let names = vec![Probe { name: name("y.s.example."), expected: Expected::Alias(name("z.example.")) }];
        let check = Check { apex: name("s.example."), serial: Serial(7), witness, names, stale };
        assert_eq!(check.queries(), 4);
        let shown = |fault: Fault| format!("{} {fault}", fault.reason());
        let CheckResult { serial, witness, names } = check.run(server.address, patience).await.map_err(shown)?;
        let queried = [witness, names.into_iter().next()];
        Ok((serial.0, queried.map(|answer| answer.map(|found| found.map_or_else(shown, |()| "right".to_owned())))))
    }

    #[tokio::test]
    async fn answers_are_compared_with_the_expected_ones() {
        use StaleSerialPolicy::{Query, QueryAll, Stop};
        let [a, aaaa, alias] = [answer(&["A 192.0.2.2"]), answer(&["AAAA 2001:db8::1"]), answer(&["CNAME Z.example."])];
        let good = |soa: Vec<Reply>| [soa, a.clone(), aaaa.clone(), alias.clone()];
        let with = |at: usize, answer: Vec<Reply>| {
            let mut answers = good(soa(7));
            answers[at] = answer;
            answers
        };
        let (right, neither) = (Some("right"), None);
        for (answers, stale, expected) in [
            (good(soa(7)), Stop, Ok((7, [right, right]))),
            (good(soa(6 + (1 << 31))), Stop, Ok((6 + (1 << 31), [right, right]))),
            (good(soa(6)), Stop, Ok((6, [neither, neither]))),
            (good(soa(7 + (1 << 31))), Stop, Ok((7 + (1 << 31), [neither, neither]))),
            (good(soa(6)), Query, Ok((6, [right, right]))),
            // The older version may have had only one of the two addresses.
            (good(soa(6)), QueryAll, Ok((6, [Some("WrongAnswer answers 192.0.2.2 for x.s.example A"), right]))),
            (
                with(1, answer(&["A 192.0.2.1", "A 192.0.2.9"])),
                Stop,
                Ok((7, [Some("WrongAnswer answers 192.0.2.1, 192.0.2.9 for x.s.example A"), right])),
            ),
            (with(2, answer(&[])), Stop, Ok((7, [Some("WrongAnswer answers NODATA for x.s.example AAAA"), right]))),
            (
                with(3, answer(&["CNAME w.example."])),
                Stop,
                Ok((7, [right, Some("WrongAnswer answers CNAME w.example for y.s.example CNAME")])),
            ),
            (
                with(1, vec![Reply::Rcode(ResponseCode::NXDomain)]),
                Stop,
                Ok((7, [Some("WrongAnswer answers NXDOMAIN for x.s.example A"), right])),
            ),
            (good(vec![Reply::Rcode(ResponseCode::Refused)]), Stop, Err("ErrorAnswer answers REFUSED for s.example")),
            (
                good(vec![Reply::NotAuthoritative(records(&["SOA . . 7 1 1 1 1"]))]),
                Stop,
                Err("NotAuthoritative is not authoritative for s.example"),
            ),
            (good(answer(&[])), Stop, Err("WrongAnswer answers NODATA for s.example SOA")),
            (good(Vec::new()), Stop, Err("NotAnswering does not answer")),
            (
                good(vec![Reply::Mismatched; 40]),
                Stop,
                Err("NotAnswering does not answer: the response is invalid or does not match the query"),
            ),
        ] {
            let found = check(answers, stale).await;
            let found = found.as_ref().map(|(serial, names)| (*serial, names.each_ref().map(Option::as_deref)));
            assert_eq!(found.map_err(String::as_str), expected);
        }
    }

    #[tokio::test]
    async fn addresses_for_documentation_are_not_queried() {
        let (witness, stale) = (None, StaleSerialPolicy::Stop);
        let check = Check { apex: name("s.example."), serial: Serial(7), witness, names: Vec::new(), stale };
        for address in ["192.0.2.53:53", "198.51.100.1:53", "203.0.113.9:53", "[2001:db8::53]:53", "[3fff::1]:53"] {
            let address = address.parse().expect("an address");
            assert_eq!(check.run(address, PATIENCE).await, Err(Fault::Documentation), "{address}");
        }
    }
}
