//! The arguments of `signpost dig`: the question, the server, and the transport.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ArgMatches;

use crate::cli::access::ApiLocation;
use crate::config::DNS_PORT;
use crate::config::value::server_address;
use signpost_control::dns_client::{Encrypted, Question, Transport};
use signpost_dns::transport::https::request::TemplatePath;
use signpost_dns::wire::{Name, RecordType};
use signpost_runtime::trust;

/// The port of DNS over TLS (RFC 7858 §3.1) and over QUIC (RFC 9250 §4.1.1).
const ENCRYPTED_PORT: u16 = 853;
/// The port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// The settings that give the servers of encrypted transports.
pub(super) const KEYS: &[&str] = &["dns.tls.listen", "dns.https.listen", "dns.quic.listen"];

/// The words of the command line.
#[derive(Debug, PartialEq)]
pub(super) struct DigArgs {
    pub(super) server: Option<String>,
    pub(super) question: Question,
    pub(super) transport: Transport,
    /// The path of HTTPS.
    pub(super) path: String,
}

impl DigArgs {
    /// Reads the words, in any order, except that the name precedes the type.
    pub(super) fn read<'a>(words: impl Iterator<Item = &'a String>) -> Result<DigArgs, String> {
        let (mut server, mut name, mut rtype, mut over) = (None, None, None, None);
        for word in words {
            if let Some(given) = word.strip_prefix('@') {
                if server.replace(given.to_owned()).is_some() || given.is_empty() {
                    return Err(format!("{word}: give one server, as @ADDRESS, @ADDRESS:PORT, or @HOST"));
                }
            } else if let Some(given) = word.strip_prefix('+') {
                if over.replace(transport(given)?).is_some() {
                    return Err(format!("{word}: give one transport"));
                }
            } else if name.is_none() {
                name = Some(word.parse::<Name>().map_err(|error| format!("{word} is not a domain name: {error}"))?);
            } else if rtype.is_none() {
                rtype = Some(word.parse().map_err(|_| format!("{word} is not a record type, such as A or TYPE65"))?);
            } else {
                return Err(format!("{word}: unexpected argument"));
            }
        }
        let name = name.ok_or("NAME is missing: signpost dig [@SERVER] NAME [TYPE]")?;
        let (transport, path) = over.unwrap_or((Transport::Udp, TemplatePath::default()));
        let question = Question { name, rtype: rtype.unwrap_or(RecordType::A) };
        Ok(DigArgs { server, question, transport, path: path.as_ref().to_owned() })
    }

    /// Returns the server to query, the encrypted transport if there is one, and the server's address.
    pub(super) async fn target(
        &self,
        matches: &ArgMatches,
        place: &ApiLocation,
    ) -> Result<(SocketAddr, Option<Encrypted>), String> {
        let (listened, setting, port) = match self.transport {
            Transport::Udp | Transport::Tcp => (&place.settings.dns.listen, "--dns-listen", DNS_PORT),
            Transport::Tls => (&place.settings.dns_tls.listen, "--dns-tls-listen", ENCRYPTED_PORT),
            Transport::Https => (&place.settings.dns_https.listen, "--dns-https-listen", HTTPS_PORT),
            Transport::Quic => (&place.settings.dns_quic.listen, "--dns-quic-listen", ENCRYPTED_PORT),
        };
        let server = match &self.server {
            None => first(listened, setting)?,
            Some(given) => find(given, port).await?,
        };
        if matches!(self.transport, Transport::Udp | Transport::Tcp) {
            return Ok((server, None));
        }
        let trust = match matches.get_one::<PathBuf>("tls-ca") {
            None => trust::of_system(),
            Some(file) => trust::only_file(file).map_err(|error| format!("{error} (--tls-ca)"))?,
        };
        let host = match matches.get_one::<String>("tls-host") {
            Some(host) => host.trim_end_matches('.').to_owned(),
            None => self.server.as_deref().map_or_else(|| server.ip().to_string(), |given| host_of(given, server.ip())),
        };
        Ok((server, Some(Encrypted { transport: self.transport, trust, host, path: self.path.clone() })))
    }
}

/// Returns the server to query over UDP: the given one, or the first of `dns.listen`.
pub(in crate::cli) async fn server(given: Option<&str>, place: &ApiLocation) -> Result<SocketAddr, String> {
    match given {
        None => first(&place.settings.dns.listen, "--dns-listen"),
        Some(given) => find(given, DNS_PORT).await,
    }
}

fn first(listened: &[SocketAddr], setting: &str) -> Result<SocketAddr, String> {
    listened.first().copied().ok_or_else(|| format!("{setting} has no address; give a server as @ADDRESS"))
}

/// Returns a transport as `dig` and `kdig` name it, with the path of HTTPS.
fn transport(word: &str) -> Result<(Transport, TemplatePath), String> {
    let (name, path) = word.split_once('=').map_or((word, None), |(name, path)| (name, Some(path)));
    let transport = match name {
        "tcp" => Transport::Tcp,
        "tls" => Transport::Tls,
        "https" => Transport::Https,
        "quic" => Transport::Quic,
        _ => return Err(format!("+{word} is not a transport: give +tcp, +tls, +https[=/PATH], or +quic")),
    };
    match path {
        None => Ok((transport, TemplatePath::default())),
        Some(path) if transport == Transport::Https => {
            Ok((transport, path.parse().map_err(|error| format!("+{word}: {error}"))?))
        }
        Some(_) => Err(format!("+{word}: only +https takes a path")),
    }
}

/// Returns the address of `ADDRESS[:PORT]` or `HOST[:PORT]`.
async fn find(given: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = server_address(given) {
        let has_port = given.parse::<SocketAddr>().is_ok();
        return Ok(if has_port { address } else { SocketAddr::new(address.ip(), port) });
    }
    let with_port = if given.contains(':') { given.to_owned() } else { format!("{given}:{port}") };
    let found = tokio::net::lookup_host(&with_port).await;
    let mut found = found.map_err(|error| format!("@{given}: {error}"))?;
    found.next().ok_or_else(|| format!("@{given}: the host has no address"))
}

/// Returns the host of `HOST[:PORT]`, or the address if the server is given by its address.
fn host_of(given: &str, address: IpAddr) -> String {
    match server_address(given) {
        Ok(_) => address.to_string(),
        Err(_) => given.rsplit_once(':').map_or(given, |(host, _)| host).trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<DigArgs, String> {
        DigArgs::read(words.iter().map(ToString::to_string).collect::<Vec<_>>().iter())
    }

    #[test]
    fn words_come_in_any_order() {
        for (words, server, rtype, transport, path) in [
            (&["a.example"][..], None, RecordType::A, Transport::Udp, "/dns-query"),
            (&["@::1", "+tls", "a.example", "AAAA"], Some("::1"), RecordType::AAAA, Transport::Tls, "/dns-query"),
            (
                &["a.example", "+https=/q", "@ns.example:8443"],
                Some("ns.example:8443"),
                RecordType::A,
                Transport::Https,
                "/q",
            ),
            (&["+quic", "a.example", "TYPE65"], None, RecordType::HTTPS, Transport::Quic, "/dns-query"),
        ] {
            let args = read(words).expect("good words");
            assert_eq!(args.question, Question { name: "a.example".parse().expect("a name"), rtype });
            assert_eq!(
                (args.server.as_deref(), args.transport, args.path.as_str()),
                (server, transport, path),
                "{words:?}"
            );
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (words, expected) in [
            (&["a.example", "+tls", "+tcp"][..], "+tcp: give one transport"),
            (&["a.example", "+dot"], "+dot is not a transport: give +tcp, +tls, +https[=/PATH], or +quic"),
            (&["a.example", "+tls=/x"], "+tls=/x: only +https takes a path"),
            (
                &["@192.0.2.1", "@192.0.2.2", "a.example"],
                "@192.0.2.2: give one server, as @ADDRESS, @ADDRESS:PORT, or @HOST",
            ),
            (&["a.example", "A", "B"], "B: unexpected argument"),
            (&["@", "a.example"], "@: give one server, as @ADDRESS, @ADDRESS:PORT, or @HOST"),
            (&["a", "nonsense"], "nonsense is not a record type, such as A or TYPE65"),
            (&["+tls"], "NAME is missing: signpost dig [@SERVER] NAME [TYPE]"),
        ] {
            assert_eq!(read(words).expect_err("a fault"), expected);
        }
    }

    #[test]
    fn the_name_that_a_certificate_must_have() {
        let address = "192.0.2.1".parse().expect("an address");
        for (given, host) in
            [("ns.example", "ns.example"), ("ns.example.:853", "ns.example"), ("192.0.2.1:853", "192.0.2.1")]
        {
            assert_eq!(host_of(given, address), host);
        }
    }
}
