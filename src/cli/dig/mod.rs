//! `signpost dig`: sends a query to a name server, prints the response, and explains it.
//!
//! The response comes from the server over the wire. The explanation comes from the API's objects: the command compiles
//! the zones from them, with the same code as a name server, so that it also works with roles in many processes.

mod args;
mod around;
mod names;
mod why;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use serde::Serialize;

use self::args::DigArgs;
pub(super) use self::args::server;
use self::names::error_name;
use self::why::{Found, Step, Why};
use super::access::{self, API_TIMEOUT, ApiLocation};
use super::output::{self, Format};
use super::style::{Painter, Style, harmless};
use super::table::{Cell, Properties};
use super::zones::{self, RecordLine, Zones};
use super::{Error, Exit, Outcome, note, progress, serve, switch};
use crate::daemon::query_log::line::flags;
use signpost_control::dns_client::{Query, Question, Record, Response, Transport};
use signpost_dns::wire::edns::option;
use signpost_dns::wire::{Name, RecordType};
use signpost_types::v1alpha1::route::NameKind;

/// The time limit of one try.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// The request for the server's identifier (RFC 5001 §2.1): the option, empty.
const NSID: [u8; 4] = [(option::NSID >> 8) as u8, option::NSID as u8, 0, 0];

pub(super) fn command() -> Command {
    let words = Arg::new("words").value_names(["@SERVER", "NAME", "TYPE", "+TRANSPORT"]).num_args(0..=4).help(
        "The name, then the type [default: A]; anywhere among them the server, as @ADDRESS, @ADDRESS:PORT, or @HOST, and \
         +tcp to query over TCP [default: UDP, and TCP after a truncated response]",
    );
    let dnssec = switch("dnssec").help("Request DNSSEC records (the DO bit)");
    let only = switch("answer-only").help("Query only the server, and not the API for the reason");
    Command::new("dig")
        .about("Query a name server and explain the response: the zone, the wildcard, and the objects")
        .override_usage("signpost dig [OPTIONS] [@SERVER] <NAME> [TYPE]")
        .after_help(
            "Without @SERVER, the server is the first address of --dns-listen, an address of --nameserver, or otherwise a \
             name server that the API lists and that responds. The default port is 53. The domain and the name servers \
             come from the API. Set the same --zones as the name servers. For DNS over TLS, HTTPS, or \
             QUIC, use kdig. Exit codes: 0 response received and explained; 1 the server or the API is unreachable; 2 \
             invalid usage.",
        )
        .arg(words)
        .args([dnssec, only])
        .arg(output::argument())
        .args(serve::arguments_of(zones::KEYS))
        .arg(access::context_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let words = DigArgs::read(matches.get_many::<String>("words").unwrap_or_default()).map_err(Error::Usage)?;
    let question = &words.question;
    let dnssec_ok = matches.get_flag("dnssec");
    let explained = !matches.get_flag("answer-only");
    let asked = access::run(API_TIMEOUT, async {
        let server = server(words.server.as_deref(), &place).await?;
        let asking = async {
            let query = Query { dnssec_ok, options: &NSID, ..Query::new(&question.name, question.rtype) };
            if words.is_tcp { query.send_over_tcp(server, TIMEOUT).await } else { query.send(server, TIMEOUT).await }
        };
        let (response, zones) = tokio::join!(asking, async {
            match explained {
                true => {
                    if asks(&place)
                        && let Some(explanation) =
                            around::explain_to_tenant(&place, &question.name).await.ok().flatten()
                    {
                        note(explanation);
                        return None;
                    }
                    let zones = around::around(&place, asks(&place), &question.name, question.rtype);
                    Some(progress::during("reading objects", zones).await)
                }
                false => None,
            }
        });
        let response = response.map_err(|error| format!("{server}: {error}"))?;
        let why = match zones {
            None => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(zones)) => Some(Ok(explain(&zones, question, &response, server).await)),
        };
        Ok((server, response, why))
    });
    let (server, response, why) = asked?;
    let (why, error) = match why {
        None => (None, None),
        Some(Ok(why)) => (Some(why), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let report = Report::new(question, server, &response, why);
    Format::of(matches).show(&report, |painter| report.text(painter))?;
    error.map_or(Ok(Exit::Success), |error| Err(format!("failed to explain the response: {error}").into()))
}

/// Returns whether the command uses the API: with zone files alone, there may be none.
fn asks(place: &ApiLocation) -> bool {
    place.settings.zones.is_none() || place.is_there()
}

async fn explain(zones: &Zones, question: &Question, response: &Response, server: SocketAddr) -> Why {
    let mut why = Why::explain(zones, &question.name, question.rtype);
    let serial = match zones.of(&question.name) {
        Some(zone) => {
            let name = zone.contents.apex().clone();
            let soa = Question { name, rtype: RecordType::SOA };
            soa.ask(server, TIMEOUT).await.ok().and_then(|response| response.serial())
        }
        None => None,
    };
    why.compare(zones, &question.name, response, serial.map(|serial| serial.0));
    why
}

/// Returns the Routes with this name or alias, as `namespace/name`. The user may read the platform's zones.
pub(super) async fn routes_of(place: &ApiLocation, name: &Name) -> Result<BTreeSet<String>, String> {
    let zones = around::around(place, true, name, RecordType::A).await?;
    let steps = Why::explain(&zones, name, RecordType::A).steps;
    Ok(steps.into_iter().flat_map(|step| step.routes).map(|route| route.route).collect())
}

/// The report. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    name: String,
    #[serde(rename = "type")]
    rtype: String,
    server: String,
    transport: &'static str,
    milliseconds: f64,
    octets: usize,
    status: String,
    flags: Vec<&'static str>,
    nsid: Option<String>,
    extended_errors: Vec<ErrorFact>,
    answer: Vec<RecordLine>,
    authority: Vec<RecordLine>,
    additional: Vec<RecordLine>,
    why: Option<Why>,
}

#[derive(Debug, Serialize)]
struct ErrorFact {
    code: u16,
    name: &'static str,
    text: String,
}

impl Report {
    fn new(question: &Question, server: SocketAddr, response: &Response, why: Option<Why>) -> Report {
        let edns = response.edns.clone().unwrap_or_default();
        let line = |record: &Record| RecordLine::new(&record.owner, record.ttl, record.rtype, &record.rdata);
        let facts = |records: &[Record]| records.iter().map(line).collect();
        let error =
            |(code, text): &(u16, String)| ErrorFact { code: *code, name: error_name(*code), text: text.clone() };
        Report {
            name: question.name.to_string(),
            rtype: question.rtype.to_string(),
            server: server.to_string(),
            transport: match response.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            },
            milliseconds: (response.took.as_secs_f64() * 100_000.0).round() / 100.0,
            octets: response.octets,
            status: response.rcode.to_string(),
            flags: flags(response.flags),
            nsid: edns.nsid.map(|nsid| String::from_utf8_lossy(&nsid).into_owned()),
            extended_errors: edns.errors.iter().map(error).collect(),
            answer: facts(&response.answers),
            authority: facts(&response.authorities),
            additional: facts(&response.additionals),
            why,
        }
    }

    fn text(&self, painter: Painter) -> String {
        let mut facts = Properties::default();
        let Report { name, rtype, server, transport, milliseconds, octets, .. } = self;
        facts.add("question", format!("{name} {rtype}"));
        facts.add("server", format!("{server} ({transport}, {milliseconds} ms, {octets} octets)"));
        let style = match self.status.as_str() {
            "NOERROR" => Style::Good,
            "NXDOMAIN" => Style::Warning,
            _ => Style::Bad,
        };
        facts.add("status", Cell::styled(style, self.status.as_str()));
        facts.add("flags", self.flags.join(" "));
        if let Some(nsid) = &self.nsid {
            facts.add("nsid", nsid.as_str());
        }
        for ErrorFact { code, name, text } in &self.extended_errors {
            let more = if text.is_empty() { String::new() } else { format!(": {text}") };
            facts.add("error", Cell::styled(Style::Warning, format!("{code} {name}{more}")));
        }
        let mut text = facts.text(painter);
        for (name, records) in
            [("answer", &self.answer), ("authority", &self.authority), ("additional", &self.additional)]
        {
            if !records.is_empty() {
                text += &format!("\n{}\n", painter.paint(Style::Strong, name));
                text.extend(records.iter().map(|record| harmless(&record.to_string()) + "\n"));
            }
        }
        if let Some(why) = &self.why {
            text += &format!("\n{}\n", painter.paint(Style::Strong, "why"));
            for (at, step) in why.steps.iter().enumerate() {
                if at > 0 {
                    text.push('\n');
                }
                text += &step_facts(step).text(painter);
            }
            for difference in &why.differences {
                text += &painter.paint(Style::Bad, &format!("\nbut: {}", harmless(difference)));
                text.push('\n');
            }
            if !why.differences.is_empty() {
                text += "The server may not have applied the latest change, or has another --nameserver or --zones.\n";
            }
        }
        text
    }
}

fn step_facts(step: &Step) -> Properties {
    let mut facts = Properties::default();
    facts.add("name", step.name.as_str());
    let Some(zone) = &step.zone else {
        facts.add("zone", Cell::styled(Style::Warning, "none: the name is not in a zone of the platform"));
        return facts;
    };
    let serial = match (zone.serial, zone.served_serial) {
        (Some(own), Some(served)) if own == served => format!(", serial {own}, as served"),
        (Some(own), _) => format!(", serial {own}"),
        _ => String::new(),
    };
    facts.add("zone", format!("{} ({}{serial}), built from {}", zone.apex, zone.kind, zone.made_of));
    let owner = step.owner.as_deref().unwrap_or("nothing");
    let found = match (step.found, step.wildcard) {
        (Found::Answer, false) => format!("the records of {owner}"),
        (Found::Answer, true) => format!("the records of the wildcard {owner}"),
        (Found::Alias, false) => format!("an alias at {owner}"),
        (Found::Alias, true) => format!("an alias by the wildcard {owner}"),
        (Found::Referral, _) => format!("a delegation at {owner}"),
        (Found::NoData, false) => format!("no data: {owner} has no records of this type"),
        (Found::NoData, true) => format!("no data: the wildcard {owner} has no records of this type"),
        (Found::NoSuchName, _) => {
            format!("no such name: the closest encloser is {owner}, which has no wildcard")
        }
        (Found::NotOurs, _) => "nothing".to_owned(),
    };
    facts.add("found", found);
    for from in &step.from {
        facts.add("from", from.as_str());
    }
    for route in &step.routes {
        let kind = match route.kind {
            NameKind::System => "its system name",
            NameKind::Alias => "its stable alias",
            NameKind::Custom => "its custom host",
            NameKind::Adopted => "its adopted host",
        };
        let path = route.path.as_deref().map(|path| format!(" for the path {path}")).unwrap_or_default();
        facts.add(
            "route",
            format!("Route {} on Router {} ({kind}{path}; RouteBinding {})", route.route, route.router, route.route),
        );
    }
    if step.routes.is_empty() && step.wildcard && matches!(step.found, Found::Answer) {
        facts.add("route", Cell::styled(Style::Dim, "no Route has this name; the wildcard matches every name"));
    }
    facts
}

#[cfg(test)]
mod tests;
