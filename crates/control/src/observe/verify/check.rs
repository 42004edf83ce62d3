//! One check: what one name server says of one zone, compared with what it must say.
//!
//! First the zone's SOA is asked for, then the names: so the names' answers are at least as new as the serial. A serial
//! that is too old ends the check at first: a moment later it will not be. Of a server whose serial stays too old, as where the
//! deletion hold holds back what was deleted, the names are asked for nevertheless ([`WhenOld`]): what it answers for a name is proof
//! of that name.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::dns_client::{Data, QueryError, Question, Response};
use crate::world::expectation::Expected;
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Serial;

/// What is asked of a server about a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The zone.
    pub apex: Name,
    /// The least serial that the server should have.
    pub serial: Serial,
    /// Names of the zone, at most [`PROBES_MAX`].
    pub probes: Vec<Probe>,
    /// What is done when its serial is older.
    pub when_old: WhenOld,
}

/// Most names that one check asks for.
pub const PROBES_MAX: usize = 64;

/// What a check does when the server has an older version of the zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenOld {
    /// It ends.
    Stop,
    /// It asks for the names. All their addresses have to be in the answers: some of them may be those of before.
    AskForAll,
    /// It asks for the names as ever: a DeletionHold is known to be why the serial is old.
    Ask,
}

/// Which names of a check are answered as they should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    right: u64,
    asked: u32,
}

impl Shown {
    /// Of what was asked for, in the order of the check's probes.
    pub fn new(right: impl IntoIterator<Item = bool>) -> Self {
        let note = |shown: Shown, is_right| Shown {
            right: shown.right | u64::from(is_right) << shown.asked,
            asked: shown.asked + 1,
        };
        right.into_iter().take(PROBES_MAX).fold(Shown::default(), note)
    }

    /// Whether the probe at that place is.
    pub fn has(self, at: usize) -> bool {
        at < PROBES_MAX && self.right & (1 << at) != 0
    }

    /// Whether something was asked for, and all of it is.
    pub fn is_all(self) -> bool {
        self.asked > 0 && self.right.count_ones() == self.asked
    }
}

/// A name with what must be answered for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The name.
    pub name: Name,
    /// What it leads to.
    pub expected: Expected,
    /// Whether its answer tells of this name alone, and not of its zone.
    pub is_own: bool,
}

/// What a check has found of a zone that is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The serial that the server has.
    pub serial: Serial,
    /// What is wrong with names whose answers tell of them alone, each by its place among the check's probes.
    pub faults: Vec<(usize, Fault)>,
}

impl From<Serial> for Seen {
    fn from(serial: Serial) -> Self {
        Seen { serial, faults: Vec::new() }
    }
}

/// What is wrong with a server's answers about a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// There is no answer.
    NotAnswering(QueryError),
    /// Its address is one for documentation, where nobody can be.
    Documentation,
    /// It answers with an error.
    Error {
        /// Of this name.
        name: Name,
        /// The response code.
        rcode: Rcode,
    },
    /// It is not an authority for the name.
    NotAuthoritative(Name),
    /// It answers something else.
    WrongAnswer {
        /// For this.
        question: Question,
        /// What it answers, in a few words.
        found: String,
    },
    /// It has an older version of the zone.
    OldSerial {
        /// The version that it has.
        found: Serial,
        /// The version that is needed at least.
        needed: Serial,
        /// Which names it answers right all the same.
        shown: Shown,
    },
}

/// The reason of [`Fault::OldSerial`].
pub const OLD_SERIAL: &str = "OldSerial";
/// The reason instead of it, where a DeletionHold keeps the zone as it was.
pub const DELETION_HELD: &str = "DeletionHeld";

impl Fault {
    /// Why, in one word, as a condition's reason.
    pub fn reason(&self) -> &'static str {
        match self {
            Fault::NotAnswering(_) | Fault::Documentation => "NotAnswering",
            Fault::Error { .. } => "ErrorAnswer",
            Fault::NotAuthoritative(_) => "NotAuthoritative",
            Fault::WrongAnswer { .. } => "WrongAnswer",
            Fault::OldSerial { .. } => OLD_SERIAL,
        }
    }

    /// Whether both say the same, whatever name of the zone each was asked for.
    pub fn says_as(&self, other: &Fault) -> bool {
        match (self, other) {
            (Fault::Error { rcode, .. }, Fault::Error { rcode: other, .. }) => rcode == other,
            (Fault::WrongAnswer { question, found }, Fault::WrongAnswer { question: asked, found: other }) => {
                question.rtype == asked.rtype && found == other
            }
            (Fault::NotAuthoritative(_), Fault::NotAuthoritative(_)) => true,
            (Fault::OldSerial { .. }, Fault::OldSerial { .. }) => true,
            (this, other) => this == other,
        }
    }

    /// The same as a metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Fault::NotAnswering(_) | Fault::Documentation => "not_answering",
            Fault::Error { .. } => "error_answer",
            Fault::NotAuthoritative(_) => "not_authoritative",
            Fault::WrongAnswer { .. } => "wrong_answer",
            Fault::OldSerial { .. } => "old_serial",
        }
    }
}

impl fmt::Display for Fault {
    /// What follows the server's name in a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotAnswering(QueryError::Silent(_)) => f.write_str("does not answer"),
            Fault::NotAnswering(error) => write!(f, "does not answer: {error}"),
            Fault::Documentation => {
                f.write_str("does not answer: the address is one for documentation, where no name server can be")
            }
            Fault::Error { name, rcode } => write!(f, "answers {rcode} for {}", text(name)),
            Fault::NotAuthoritative(name) => write!(f, "is no authority for {}", text(name)),
            Fault::WrongAnswer { question, found } => {
                write!(f, "answers {found} for {} {}", text(&question.name), question.rtype)
            }
            // What it has instead changes with every check; a condition's message should not.
            Fault::OldSerial { needed, .. } => write!(f, "has the zone under a serial older than {needed}"),
        }
    }
}

/// Carries out a check. Each question may take `patience` twice over UDP, and once more over TCP.
///
/// # Errors
///
/// [`Fault`] of the zone, the first that is found; otherwise the answer is the serial that the server has, and what is wrong
/// with single names.
pub async fn carry_out(server: SocketAddr, check: &Check, patience: Duration) -> Result<Seen, Fault> {
    if is_for_documentation(server.ip()) {
        return Err(Fault::Documentation);
    }
    let question = Question { name: check.apex.clone(), rtype: RecordType::SOA };
    let reply = question.ask(server, patience).await.map_err(Fault::NotAnswering)?;
    let found = serial(&question, &reply)?;
    if found != check.serial && !found.is_after(check.serial) {
        let probes = if check.when_old == WhenOld::Stop { &[][..] } else { &check.probes[..] };
        let asked = probes.iter().map(|probe| ask_for(server, probe, check.when_old, patience));
        let shown = futures::future::join_all(asked).await.iter().map(Result::is_ok).collect::<Vec<_>>();
        return Err(Fault::OldSerial { found, needed: check.serial, shown: Shown::new(shown) });
    }
    let asked = check.probes.iter().map(|probe| ask_for(server, probe, WhenOld::Ask, patience));
    let mut seen = Seen::from(found);
    for (at, result) in futures::future::join_all(asked).await.into_iter().enumerate() {
        match result {
            Err(fault) if check.probes[at].is_own => seen.faults.push((at, fault)),
            other => other?,
        }
    }
    Ok(seen)
}

/// Asks for one name.
async fn ask_for(server: SocketAddr, probe: &Probe, when_old: WhenOld, patience: Duration) -> Result<(), Fault> {
    let questions = types(&probe.expected).iter().copied().map(|rtype| async move {
        let question = Question { name: probe.name.clone(), rtype };
        let reply = question.ask(server, patience).await.map_err(Fault::NotAnswering)?;
        judge(&question, &probe.expected, &reply)?;
        match when_old == WhenOld::AskForAll && !has_all(&probe.expected, rtype, &reply) {
            true => Err(wrong(&question, &reply)),
            false => Ok(()),
        }
    });
    futures::future::try_join_all(questions).await.map(drop)
}

impl Check {
    /// How many questions it takes.
    pub fn questions(&self) -> usize {
        1 + self.probes.iter().map(|probe| types(&probe.expected).len()).sum::<usize>()
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

/// Whether `reply` answers `question` with what is expected.
pub fn judge(question: &Question, expected: &Expected, reply: &Response) -> Result<(), Fault> {
    is_good(question, reply)?;
    let of_name = reply.answers.iter().all(|record| record.owner == question.name);
    let right = match expected {
        Expected::Addresses(addresses) => {
            let of_type = |address: &&IpAddr| address.is_ipv6() == (question.rtype == RecordType::AAAA);
            let wanted: Vec<&IpAddr> = addresses.iter().filter(of_type).collect();
            let known = |data: &Data| matches!(data, Data::Address(address) if wanted.contains(&address));
            // Weights act by inclusion, so that some of the addresses are as right as all.
            reply.answers.is_empty() == wanted.is_empty() && reply.answers.iter().all(|record| known(&record.data))
        }
        Expected::Alias(target) => {
            matches!(&reply.answers[..], [record] if matches!(&record.data, Data::Cname(to) if to == target))
        }
    };
    if right && of_name { Ok(()) } else { Err(wrong(question, reply)) }
}

/// Whether a right answer has all addresses of its type, not just some.
fn has_all(expected: &Expected, rtype: RecordType, reply: &Response) -> bool {
    let Expected::Addresses(addresses) = expected else { return true };
    let mut of_type = addresses.iter().filter(|address| address.is_ipv6() == (rtype == RecordType::AAAA));
    of_type.all(|address| reply.answers.iter().any(|record| record.data == Data::Address(*address)))
}

/// Whether the answer is one of an authority, and no error.
fn is_good(question: &Question, reply: &Response) -> Result<(), Fault> {
    match reply.rcode {
        Rcode::NOERROR if reply.is_authoritative() => Ok(()),
        Rcode::NOERROR => Err(Fault::NotAuthoritative(question.name.clone())),
        Rcode::NXDOMAIN => {
            Err(Fault::WrongAnswer { question: question.clone(), found: "that there is no such name".to_owned() })
        }
        rcode => Err(Fault::Error { name: question.name.clone(), rcode }),
    }
}

fn wrong(question: &Question, reply: &Response) -> Fault {
    const TOLD_MAX: usize = 4;
    let mut found: Vec<String> = reply.answers.iter().map(|record| told(&record.data)).collect();
    // Answers are rotated; the message should not be.
    found.sort();
    let more = found.len().saturating_sub(TOLD_MAX);
    found.truncate(TOLD_MAX);
    let found = match (found.is_empty(), more) {
        (true, _) => "with no record".to_owned(),
        (false, 0) => found.join(", "),
        (false, more) => format!("{} and {more} more", found.join(", ")),
    };
    Fault::WrongAnswer { question: question.clone(), found }
}

fn told(data: &Data) -> String {
    match data {
        Data::Address(address) => address.to_string(),
        Data::Cname(target) => format!("CNAME {}", text(target)),
        Data::Soa(serial) => format!("SOA {serial}"),
        Data::NameServer(server) => format!("NS {}", text(server)),
        Data::Text(_) => "TXT".to_owned(),
        Data::Other(rtype) => rtype.to_string(),
    }
}

/// What the label begins with that is asked for to see what the wildcard answers; some random digits follow.
pub const PROBE_LABEL: &str = "signpost-probe-";

/// A name as people write it: without the dot at the end. One that was made up to see the wildcard is told as that.
pub fn text(name: &Name) -> String {
    let is_probe = name.labels().next().is_some_and(|label| label.starts_with(PROBE_LABEL.as_bytes()));
    let wildcard = name.parent().filter(|_| is_probe).and_then(|apex| apex.wildcard().ok());
    let mut text = wildcard.as_ref().unwrap_or(name).to_string();
    if text.len() > 1 {
        text.pop();
    }
    text
}

/// Addresses of examples (RFC 5737 §3, RFC 3849 §2, RFC 9637 §2), which are never routed. Asking there would only send
/// packets out of the house.
fn is_for_documentation(address: IpAddr) -> bool {
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
    use super::*;
    use crate::observe::live::fake::{FakeServer, Say};

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn addresses(text: &str) -> Vec<IpAddr> {
        text.split_whitespace().map(|address| address.parse().expect("an address")).collect()
    }

    fn says(text: &str) -> Vec<Say> {
        vec![Say::Records(addresses(text).into_iter().map(Data::Address).collect())]
    }

    /// For an answer that comes, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Checks a server that says this for SOA, A, AAAA and CNAME.
    async fn check(soa: Vec<Say>, a: Vec<Say>, aaaa: Vec<Say>, cname: Vec<Say>) -> Result<Serial, String> {
        let patience = if matches!(soa[..], [Say::Nothing]) { Duration::from_millis(200) } else { PATIENCE };
        let server = FakeServer::start(move |question, _| match question.rtype {
            RecordType::SOA => soa.clone(),
            RecordType::A => a.clone(),
            RecordType::AAAA => aaaa.clone(),
            _ => cname.clone(),
        })
        .await;
        let check = Check {
            apex: name("s.example."),
            serial: Serial(7),
            when_old: WhenOld::Stop,
            probes: vec![
                Probe {
                    name: name("x.s.example."),
                    expected: Expected::Addresses(addresses("192.0.2.1 192.0.2.2 2001:db8::1").into()),
                    is_own: false,
                },
                Probe { name: name("y.s.example."), expected: Expected::Alias(name("z.example.")), is_own: false },
            ],
        };
        assert_eq!(check.questions(), 4);
        let found = carry_out(server.address, &check, patience).await;
        found.map(|seen| seen.serial).map_err(|fault| format!("{} {fault}", fault.reason()))
    }

    #[tokio::test]
    async fn servers_are_judged() {
        let soa = |serial| vec![Say::Records(vec![Data::Soa(Serial(serial))])];
        let cname = |target| vec![Say::Records(vec![Data::Cname(name(target))])];
        let (good_a, good_aaaa, good_cname) = (says("192.0.2.2"), says("2001:db8::1"), cname("Z.example."));
        #[rustfmt::skip]
        let cases = [
            ("right", soa(7), good_a.clone(), good_aaaa.clone(), good_cname.clone(), Ok(Serial(7))),
            ("newer, over the wrap", soa(6 + (1 << 31)), good_a.clone(), good_aaaa.clone(), good_cname.clone(), Ok(Serial(6 + (1 << 31)))),
            ("old", soa(6), vec![], vec![], vec![], Err("OldSerial has the zone under a serial older than 7")),
            ("neither old nor new", soa(7 + (1 << 31)), vec![], vec![], vec![], Err("OldSerial has the zone under a serial older than 7")),
            ("a stranger among the addresses", soa(7), says("192.0.2.1 192.0.2.9"), good_aaaa.clone(), good_cname.clone(), Err("WrongAnswer answers 192.0.2.1, 192.0.2.9 for x.s.example A")),
            ("one family missing", soa(7), good_a.clone(), says(""), good_cname.clone(), Err("WrongAnswer answers with no record for x.s.example AAAA")),
            ("an alias elsewhere", soa(7), good_a.clone(), good_aaaa.clone(), cname("w.example."), Err("WrongAnswer answers CNAME w.example for y.s.example CNAME")),
            ("no such name", soa(7), vec![Say::Rcode(Rcode::NXDOMAIN)], good_aaaa.clone(), good_cname.clone(), Err("WrongAnswer answers that there is no such name for x.s.example A")),
            ("refused", vec![Say::Rcode(Rcode::REFUSED)], vec![], vec![], vec![], Err("ErrorAnswer answers REFUSED for s.example")),
            ("not ready", vec![Say::Rcode(Rcode::SERVFAIL)], vec![], vec![], vec![], Err("ErrorAnswer answers SERVFAIL for s.example")),
            ("no authority", vec![Say::NotAuthoritative(vec![Data::Soa(Serial(7))])], vec![], vec![], vec![], Err("NotAuthoritative is no authority for s.example")),
            ("no SOA", says(""), vec![], vec![], vec![], Err("WrongAnswer answers with no record for s.example SOA")),
            ("silent", vec![Say::Nothing], vec![], vec![], vec![], Err("NotAnswering does not answer")),
            ("garbage", vec![Say::Garbage; 40], vec![], vec![], vec![], Err("NotAnswering does not answer: the response is invalid or does not match the query")),
        ];
        for (what, soa, a, aaaa, cname, expected) in cases {
            let found = check(soa, a, aaaa, cname).await;
            assert_eq!(found.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text), "{what}");
        }
    }

    #[tokio::test]
    async fn of_a_server_that_stays_old_the_names_are_asked_for() {
        let soa = || vec![Say::Records(vec![Data::Soa(Serial(6))])];
        let of = async |a: &str, when_old| {
            let a = says(a);
            let server = FakeServer::start(move |question, _| match question.rtype {
                RecordType::SOA => soa(),
                RecordType::A => a.clone(),
                RecordType::CNAME => vec![Say::Records(vec![Data::Cname(name("z.example."))])],
                _ => says(""),
            })
            .await;
            let to = Expected::Addresses(addresses("192.0.2.1 192.0.2.2").into());
            let probes = vec![
                Probe { name: name("x.s.example."), expected: to, is_own: false },
                Probe { name: name("y.s.example."), expected: Expected::Alias(name("z.example.")), is_own: false },
                Probe {
                    name: name("w.s.example."),
                    expected: Expected::Alias(name("elsewhere.example.")),
                    is_own: false,
                },
            ];
            let check = Check { apex: name("s.example."), serial: Serial(7), probes, when_old };
            match carry_out(server.address, &check, PATIENCE).await {
                Err(Fault::OldSerial { found: Serial(6), needed: Serial(7), shown }) => {
                    [0, 1, 2].map(|at| shown.has(at))
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of("192.0.2.1 192.0.2.2", WhenOld::Stop).await, [false; 3]);
        assert_eq!(of("192.0.2.1 192.0.2.2", WhenOld::AskForAll).await, [true, true, false]);
        // One address of two may be all there was before, unless it is known why the serial is old.
        assert_eq!(of("192.0.2.1", WhenOld::AskForAll).await, [false, true, false]);
        assert_eq!(of("192.0.2.1", WhenOld::Ask).await, [true, true, false]);
        assert_eq!(of("192.0.2.9", WhenOld::Ask).await, [false, true, false]);
        let all = Shown::new([true; 64]);
        assert!(all.is_all() && all.has(63) && !all.has(64) && !Shown::default().is_all());
    }

    #[tokio::test]
    async fn what_is_wrong_with_one_name_is_not_said_of_the_zone() {
        let server = FakeServer::start(|question, _| match question.rtype {
            RecordType::SOA => vec![Say::Records(vec![Data::Soa(Serial(7))])],
            RecordType::A if question.name == name("x.s.example.") => vec![Say::NotAuthoritative(Vec::new())],
            RecordType::A => says("192.0.2.1"),
            _ => says(""),
        })
        .await;
        for (is_own, expected) in [(true, Ok(vec![(0, "NotAuthoritative")])), (false, Err("NotAuthoritative"))] {
            let to = Expected::Addresses(addresses("192.0.2.1").into());
            let probes = vec![
                Probe { name: name("x.s.example."), expected: to.clone(), is_own },
                Probe { name: name("y.s.example."), expected: to, is_own: false },
            ];
            let check = Check { apex: name("s.example."), serial: Serial(7), probes, when_old: WhenOld::Stop };
            let found = carry_out(server.address, &check, PATIENCE).await;
            let found = found.as_ref().map_err(Fault::reason);
            let found = found.map(|seen| seen.faults.iter().map(|(at, fault)| (*at, fault.reason())).collect());
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn nobody_is_asked_at_an_address_of_examples() {
        let check = Check { apex: name("s.example."), serial: Serial(7), probes: Vec::new(), when_old: WhenOld::Stop };
        for address in ["192.0.2.53:53", "198.51.100.1:53", "203.0.113.9:53", "[2001:db8::53]:53", "[3fff::1]:53"] {
            let address = address.parse().expect("an address");
            let found = carry_out(address, &check, Duration::from_secs(60)).await;
            assert_eq!(found, Err(Fault::Documentation), "{address}");
        }
    }
}
