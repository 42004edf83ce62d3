//! The arguments of `signpost dig`: the question, the server, and the transport.

use std::net::SocketAddr;

use crate::cli::access::ApiLocation;
use crate::cli::platform::PlatformSettings;
use crate::config::value::server_address;
use crate::config::{DNS_PORT, NameServer};
use signpost_control::dns_client::Question;
use signpost_dns::wire::{Name, RecordType};

/// The maximum number of name servers that are tried for one that responds.
const TRIED_MAX: usize = 8;

/// The words of the command line.
#[derive(Debug, PartialEq)]
pub(super) struct DigArgs {
    pub(super) server: Option<String>,
    pub(super) question: Question,
    /// Whether the query is sent only over TCP.
    pub(super) is_tcp: bool,
}

impl DigArgs {
    /// Reads the words, in any order, except that the name precedes the type.
    pub(super) fn read<'a>(words: impl Iterator<Item = &'a String>) -> Result<DigArgs, String> {
        let (mut server, mut name, mut rtype, mut is_tcp) = (None, None, None, false);
        for word in words {
            if let Some(given) = word.strip_prefix('@') {
                if server.replace(given.to_owned()).is_some() || given.is_empty() {
                    return Err(format!("{word}: give one server, as @ADDRESS, @ADDRESS:PORT, or @HOST"));
                }
            } else if word == "+tcp" {
                is_tcp = true;
            } else if word.starts_with('+') {
                return Err(format!("{word} is not a transport: give +tcp, or use kdig for encrypted transports"));
            } else if name.is_none() {
                name = Some(word.parse::<Name>().map_err(|error| format!("{word} is not a domain name: {error}"))?);
            } else if rtype.is_none() {
                rtype = Some(word.parse().map_err(|_| format!("{word} is not a record type, such as A or TYPE65"))?);
            } else {
                return Err(format!("{word}: unexpected argument"));
            }
        }
        let name = name.ok_or("NAME is missing: signpost dig [@SERVER] NAME [TYPE]")?;
        Ok(DigArgs { server, question: Question { name, rtype: rtype.unwrap_or(RecordType::A) }, is_tcp })
    }
}

/// Returns the server to query: the given one, one of the settings, or otherwise a name server that the API lists.
pub(in crate::cli) async fn server(given: Option<&str>, place: &ApiLocation) -> Result<SocketAddr, String> {
    if let Some(given) = given {
        return find(given).await;
    }
    let unknown = |error| format!("no address of a name server is known: {error}; give a server as @ADDRESS");
    let (servers, domain) = listed(place).await.map_err(unknown)?;
    // One that does not respond must not hide the others.
    if let (Some(domain), true) = (domain, servers.len() > 1) {
        let soa = Question { name: domain, rtype: RecordType::SOA };
        for server in servers.iter().take(TRIED_MAX) {
            if soa.ask(*server, super::TIMEOUT).await.is_ok() {
                return Ok(*server);
            }
        }
    }
    let first = servers.first().copied();
    first.ok_or_else(|| "no address of a name server is known; give a server as @ADDRESS".to_owned())
}

/// Returns the name servers of the settings or of the API, and the domain that they serve. Without both, as on a machine with zone
/// files only, the default of `dns.listen` applies.
async fn listed(place: &ApiLocation) -> Result<(Vec<SocketAddr>, Option<Name>), String> {
    let settings = &place.settings;
    if place.is_given("dns.listen") || !place.is_there() && !place.is_given("nameserver") {
        return Ok((settings.dns.listen.clone(), None));
    }
    if place.is_given("nameserver") {
        return Ok((addresses_of(&settings.nameserver), settings.domain.parse().ok()));
    }
    let access = place.connect().await?;
    let known = PlatformSettings::find(place, &access).await?;
    let domain = known.domain.parse().ok();
    // The addresses that the platform queries itself have ports, and include those that no record names.
    let verified: Vec<SocketAddr> = known.asked.iter().filter_map(|address| address.parse().ok()).collect();
    let servers =
        if verified.is_empty() { addresses_of(known.name_servers.as_deref().unwrap_or_default()) } else { verified };
    Ok((servers, domain))
}

fn addresses_of(servers: &[NameServer]) -> Vec<SocketAddr> {
    let addresses = servers.iter().flat_map(|server| &server.addresses);
    addresses.map(|address| SocketAddr::new(*address, DNS_PORT)).collect()
}

/// Returns the address of `ADDRESS[:PORT]` or `HOST[:PORT]`.
async fn find(given: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = server_address(given) {
        return Ok(address);
    }
    let with_port = if given.contains(':') { given.to_owned() } else { format!("{given}:{DNS_PORT}") };
    let found = tokio::net::lookup_host(&with_port).await;
    let mut found = found.map_err(|error| format!("@{given}: {error}"))?;
    found.next().ok_or_else(|| format!("@{given}: the host has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<DigArgs, String> {
        DigArgs::read(words.iter().map(ToString::to_string).collect::<Vec<_>>().iter())
    }

    #[test]
    fn words_come_in_any_order() {
        for (words, server, rtype, is_tcp) in [
            (&["a.example"][..], None, RecordType::A, false),
            (&["@::1", "+tcp", "a.example", "AAAA"], Some("::1"), RecordType::AAAA, true),
            (&["a.example", "TYPE65", "@ns.example:5353"], Some("ns.example:5353"), RecordType::HTTPS, false),
        ] {
            let args = read(words).expect("good words");
            assert_eq!(args.question, Question { name: "a.example".parse().expect("a name"), rtype });
            assert_eq!((args.server.as_deref(), args.is_tcp), (server, is_tcp), "{words:?}");
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (words, expected) in [
            (&["a.example", "+tls"][..], "+tls is not a transport: give +tcp, or use kdig for encrypted transports"),
            (
                &["@192.0.2.1", "@192.0.2.2", "a.example"],
                "@192.0.2.2: give one server, as @ADDRESS, @ADDRESS:PORT, or @HOST",
            ),
            (&["a.example", "A", "B"], "B: unexpected argument"),
            (&["@", "a.example"], "@: give one server, as @ADDRESS, @ADDRESS:PORT, or @HOST"),
            (&["a", "nonsense"], "nonsense is not a record type, such as A or TYPE65"),
            (&["+tcp"], "NAME is missing: signpost dig [@SERVER] NAME [TYPE]"),
        ] {
            assert_eq!(read(words).expect_err("a fault"), expected);
        }
    }
}
