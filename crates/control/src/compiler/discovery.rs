//! SVCB records with which clients find the encrypted transports of a name server (RFC 9461, RFC 9462 §5).
//!
//! `_dns.<name server> SVCB 1 <name server> alpn=… [port=…] [dohpath=…]`: one record for the transports at their default ports, and one for
//! each other port. All have the same priority, because a client chooses by the transport.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use signpost_dns::wire::Name;
use signpost_dns::wire::rdata::svc_params;
use signpost_dns::zone::rrset::Rdata;

/// The label before the name of a name server (RFC 9461 §3).
const LABEL: &[u8] = b"_dns";
/// The keys of SvcParams (RFC 9460 §14.3.2).
const KEY_ALPN: u16 = 1;
const KEY_PORT: u16 = 3;
const KEY_DOHPATH: u16 = 7;

/// An encrypted transport of all name servers, as `ALPN` or `ALPN:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferedTransport {
    /// The protocol.
    pub alpn: Alpn,
    /// The port, if it is not the protocol's own: 853 of `dot` and `doq`, 443 of `h2`.
    pub port: Option<u16>,
}

/// The protocol identifiers of DNS over encrypted transports (RFC 7858, 8484, and 9250).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alpn {
    /// DNS over TLS.
    Dot,
    /// DNS over QUIC.
    Doq,
    /// DNS over HTTPS by HTTP/2.
    H2,
}

impl Alpn {
    const ALL: [Alpn; 3] = [Alpn::Dot, Alpn::Doq, Alpn::H2];

    /// Returns the identifier.
    pub fn as_str(self) -> &'static str {
        match self {
            Alpn::Dot => "dot",
            Alpn::Doq => "doq",
            Alpn::H2 => "h2",
        }
    }

    /// Returns the port where clients find it without further information.
    pub fn default_port(self) -> u16 {
        match self {
            Alpn::Dot | Alpn::Doq => 853,
            Alpn::H2 => 443,
        }
    }
}

/// A text is not an offered transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be dot, doq, or h2, with :PORT if it is not 853 (dot, doq) or 443 (h2)")]
pub struct InvalidTransport;

impl FromStr for OfferedTransport {
    type Err = InvalidTransport;

    fn from_str(text: &str) -> Result<Self, InvalidTransport> {
        let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
        let alpn = Alpn::ALL.into_iter().find(|alpn| alpn.as_str() == name).ok_or(InvalidTransport)?;
        let port = port.map(|port| port.parse().ok().filter(|port| *port > 0).ok_or(InvalidTransport)).transpose()?;
        Ok(OfferedTransport { alpn, port: port.filter(|port| *port != alpn.default_port()) })
    }
}

impl fmt::Display for OfferedTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.alpn.as_str())?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Returns the owner of the SVCB records of a name server; `None` if the name would be too long.
pub fn owner(server: &Name) -> Option<Name> {
    server.prepend(LABEL).ok()
}

/// Returns the data of the SVCB records of a name server, with their owner; `None` if there is no transport.
pub(super) fn records(server: &Name, transports: &[OfferedTransport], path: &str) -> Option<(Name, Vec<Rdata>)> {
    let mut ports: BTreeMap<Option<u16>, Vec<Alpn>> = BTreeMap::new();
    for transport in transports {
        let alpns = ports.entry(transport.port).or_default();
        if !alpns.contains(&transport.alpn) {
            alpns.push(transport.alpn);
        }
    }
    let rdata: Vec<Rdata> = ports.iter().map(|(port, alpns)| rdata(server, *port, alpns, path)).collect();
    if rdata.is_empty() { None } else { Some((owner(server)?, rdata)) }
}

fn rdata(target: &Name, port: Option<u16>, alpns: &[Alpn], path: &str) -> Rdata {
    let mut rdata = [&[0, 1], target.as_wire()].concat();
    let mut put = |key: u16, value: &[u8]| {
        let length = u16::try_from(value.len()).expect("a short value");
        rdata.extend_from_slice(&key.to_be_bytes());
        rdata.extend_from_slice(&length.to_be_bytes());
        rdata.extend_from_slice(value);
    };
    let mut ids = Vec::new();
    for alpn in alpns {
        ids.push(alpn.as_str().len() as u8);
        ids.extend_from_slice(alpn.as_str().as_bytes());
    }
    put(KEY_ALPN, &ids);
    if let Some(port) = port {
        put(KEY_PORT, &port.to_be_bytes());
    }
    if alpns.contains(&Alpn::H2) {
        put(KEY_DOHPATH, format!("{path}{{?dns}}").as_bytes());
    }
    rdata.into()
}

/// Returns the transports that the data of an SVCB record offers; `None` if it is an alias, for another target than `server`, or
/// unusable. Protocols that Signpost does not serve are left out.
pub fn offered(rdata: &[u8], server: &Name) -> Option<Vec<OfferedTransport>> {
    let (priority, rest) = rdata.split_first_chunk()?;
    let (target, parameters) = Name::split_from(rest).ok()?;
    if u16::from_be_bytes(*priority) == 0 || (target != *server && !target.is_root()) {
        return None;
    }
    let (mut alpns, mut port) = (Vec::new(), None);
    for parameter in svc_params(parameters) {
        let (key, value) = parameter.ok()?;
        match key {
            KEY_ALPN => {
                let mut ids = value;
                while let [length, rest @ ..] = ids {
                    let (id, rest) = rest.split_at_checked((*length).into())?;
                    alpns.extend(Alpn::ALL.into_iter().find(|alpn| alpn.as_str().as_bytes() == id));
                    ids = rest;
                }
            }
            KEY_PORT => port = Some(u16::from_be_bytes(value.try_into().ok()?)),
            _ => {}
        }
    }
    let transport = |alpn: Alpn| OfferedTransport { alpn, port: port.filter(|port| *port != alpn.default_port()) };
    Some(alpns.into_iter().map(transport).collect())
}

#[cfg(test)]
mod tests {
    use signpost_dns::wire::RecordType;
    use signpost_dns::zonefile::rdata_out;

    use super::*;

    fn server() -> Name {
        "ns1.v3.example.".parse().expect("a name")
    }

    fn rdata_of(transports: &[&str]) -> Vec<Rdata> {
        let transports: Vec<_> = transports.iter().map(|text| text.parse().expect("a transport")).collect();
        let Some((owner, rdata)) = records(&server(), &transports, "/dns-query") else { return Vec::new() };
        assert_eq!(owner.to_string(), "_dns.ns1.v3.example.");
        rdata
    }

    fn text(transports: &[&str]) -> Vec<String> {
        let show = |rdata: &Rdata| {
            let mut text = Vec::new();
            rdata_out::write(RecordType::SVCB, rdata, &mut text);
            String::from_utf8(text).expect("ASCII")
        };
        rdata_of(transports).iter().map(show).collect()
    }

    #[test]
    fn records_of_transports() {
        assert!(text(&[]).is_empty());
        assert_eq!(text(&["dot"]), [r#"1 ns1.v3.example. alpn="dot""#]);
        assert_eq!(
            text(&["dot", "doq:853", "h2:443", "dot"]),
            [r#"1 ns1.v3.example. alpn="dot,doq,h2" key7="/dns-query{?dns}""#]
        );
        assert_eq!(
            text(&["h2:8443", "dot:8853", "doq"]),
            [
                r#"1 ns1.v3.example. alpn="doq""#,
                r#"1 ns1.v3.example. alpn="h2" port=8443 key7="/dns-query{?dns}""#,
                r#"1 ns1.v3.example. alpn="dot" port=8853"#,
            ]
        );
    }

    #[test]
    fn what_is_published_is_read_back() {
        let (server, rdata) = (server(), rdata_of(&["dot", "h2:8443", "doq:8443"]));
        let offers = rdata.iter().filter_map(|rdata| offered(rdata, &server)).flatten();
        assert_eq!(offers.map(|offer| offer.to_string()).collect::<Vec<_>>(), ["dot", "h2:8443", "doq:8443"]);
        assert_eq!(offered(&rdata[0], &"other.example.".parse().expect("a name")), None);
        for length in 0..rdata[1].len() {
            // Only parameters after a whole one can be missing.
            let part = offered(&rdata[1][..length], &server).unwrap_or_default();
            assert!(part.iter().all(|offer| offer.alpn != Alpn::Dot), "{length}");
        }
    }

    #[test]
    fn texts_that_are_not_transports() {
        for text in ["", "tls", "h3", "dot:", "dot:0", "dot:65536", "DOT", "h2:443:1"] {
            assert_eq!(text.parse::<OfferedTransport>(), Err(InvalidTransport), "{text}");
        }
    }
}
