//! The arguments of `signpost dig`: the question, the server, and the transport.

use std::net::SocketAddr;

use crate::cli::access::ApiLocation;
use crate::config::DNS_PORT;
use crate::config::value::server_address;
use signpost_control::dns_client::Question;
use signpost_dns::wire::{Name, RecordType};

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

/// Returns the server to query: the given one, or the first of `dns.listen`.
pub(in crate::cli) async fn server(given: Option<&str>, place: &ApiLocation) -> Result<SocketAddr, String> {
    match given {
        None => {
            let first = place.settings.dns.listen.first().copied();
            first.ok_or_else(|| "--dns-listen has no address; give a server as @ADDRESS".to_owned())
        }
        Some(given) => find(given).await,
    }
}

/// Returns the address of `ADDRESS[:PORT]` or `HOST[:PORT]`.
async fn find(given: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = server_address(given) {
        let has_port = given.parse::<SocketAddr>().is_ok();
        return Ok(if has_port { address } else { SocketAddr::new(address.ip(), DNS_PORT) });
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
