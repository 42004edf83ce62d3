//! `dig` as a user runs it.

use std::net::SocketAddr;
use std::process::{Command, Output};

/// A response as `dig` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// `NOERROR`, `NXDOMAIN`, …
    pub status: String,
    /// The letters of `;; flags:`.
    pub flags: Vec<String>,
    /// The answer section.
    pub answer: Vec<Record>,
    /// The authority section.
    pub authority: Vec<Record>,
    /// The additional section, without OPT.
    pub additional: Vec<Record>,
}

/// A record as `dig` prints it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// The owner name.
    pub owner: String,
    /// The TTL.
    pub ttl: u32,
    /// The type.
    pub rtype: String,
    /// The data, with one space between its fields.
    pub data: String,
}

impl Response {
    /// Returns the data of the answer's records of one type, in their order.
    pub fn data(&self, rtype: &str) -> Vec<&str> {
        self.answer.iter().filter(|record| record.rtype == rtype).map(|record| record.data.as_str()).collect()
    }

    /// Returns the data of the answer's records of one type, sorted: for sets that rotate.
    pub fn sorted(&self, rtype: &str) -> Vec<&str> {
        let mut data = self.data(rtype);
        data.sort_unstable();
        data
    }

    /// Returns the serial of the SOA in the answer.
    pub fn serial(&self) -> Option<u32> {
        self.data("SOA").first()?.split(' ').nth(2)?.parse().ok()
    }
}

/// Runs `dig @server name type` with more options; panics if no response comes.
#[track_caller]
pub fn dig(server: SocketAddr, name: &str, rtype: &str, options: &[&str]) -> Response {
    try_dig(server, name, rtype, options).unwrap_or_else(|| panic!("{server} does not answer {name} {rtype}"))
}

/// Runs `dig @server name type` with more options; `None` if no response comes.
pub fn try_dig(server: SocketAddr, name: &str, rtype: &str, options: &[&str]) -> Option<Response> {
    try_dig_all(server, &[(name, rtype)], options)?.pop()
}

/// Runs one `dig` for all of these names and types; `None` if a response is missing. A process for each would take most of the time.
pub fn try_dig_all(server: SocketAddr, questions: &[(&str, &str)], options: &[&str]) -> Option<Vec<Response>> {
    let sections = ["+noall", "+comments", "+answer", "+authority", "+additional"];
    let output = run(server, questions, &[&sections, options].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    // Each response begins with this line.
    let responses: Vec<Response> = printed.split(";; Got answer:\n").skip(1).map(parse).collect();
    (output.status.success() && responses.len() == questions.len()).then_some(responses)
}

/// Returns the whole output of `dig @server name type` with more options.
pub fn printed(server: SocketAddr, name: &str, rtype: &str, options: &[&str]) -> String {
    String::from_utf8_lossy(&run(server, &[(name, rtype)], options).stdout).into_owned()
}

fn run(server: SocketAddr, questions: &[(&str, &str)], options: &[&str]) -> Output {
    Command::new("dig")
        .args([&format!("@{}", server.ip()), "-p", &server.port().to_string(), "+norecurse", "+time=15", "+tries=3"])
        // Options before the first name are for all of them.
        .args(options)
        .args(questions.iter().flat_map(|(name, rtype)| ["-q", name, "-t", rtype]))
        .output()
        .expect("dig is installed: the test command of the README installs it")
}

fn parse(printed: &str) -> Response {
    let mut response = Response {
        status: String::new(),
        flags: Vec::new(),
        answer: Vec::new(),
        authority: Vec::new(),
        additional: Vec::new(),
    };
    let mut section: Option<&str> = None;
    for line in printed.lines() {
        if let Some(rest) = line.strip_prefix(";; ->>HEADER<<-") {
            let status = rest.split("status: ").nth(1).and_then(|rest| rest.split(',').next());
            response.status = status.expect("dig prints the status").to_owned();
        } else if let Some(rest) = line.strip_prefix(";; flags:") {
            let flags = rest.split(';').next().expect("split gives one part at least");
            response.flags = flags.split_whitespace().map(str::to_owned).collect();
        } else if let Some(rest) = line.strip_prefix(";; ").and_then(|rest| rest.strip_suffix(" SECTION:")) {
            section = Some(rest);
        } else if !line.starts_with(';') && !line.trim().is_empty() {
            let mut fields = line.split_whitespace();
            let mut next = || fields.next().unwrap_or_else(|| panic!("dig printed {line:?}")).to_owned();
            let (owner, ttl, _class, rtype) = (next(), next(), next(), next());
            let record = Record {
                owner,
                ttl: ttl.parse().unwrap_or_else(|_| panic!("dig printed {line:?}")),
                rtype,
                data: fields.collect::<Vec<_>>().join(" "),
            };
            match section {
                Some("ANSWER") => response.answer.push(record),
                Some("AUTHORITY") => response.authority.push(record),
                Some("ADDITIONAL") => response.additional.push(record),
                other => panic!("a record in section {other:?}: {line}"),
            }
        }
    }
    assert!(!response.status.is_empty(), "dig printed no header: {printed}");
    response
}
