//! The answers of a name's own authoritative servers, found without trusting a cache for the answer itself.
//!
//! A configured resolver returns the apex of the name's zone (the closest name at or above it with NS records), its servers, and
//! their addresses. Then each server is queried directly. So a record counts exactly while its zone has it, regardless of caches.
//!
//! The host's owner controls the names and addresses, and can point them anywhere. So only port 53 is queried, with one small
//! query each, at most [`ADDRESSES_MAX`] of them, and, unless the operator allows it, no private addresses and none of this
//! machine (`reach`).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::reach;
use crate::dns_client::{Data, Question, ResolveError, Response};
use crate::observe::verify::check::text;
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};

/// The names tried to find a zone's apex: a longer chain of labels without a zone is abuse.
const CUTS_MAX: usize = 16;
/// The most name servers of a zone that are queried.
const SERVERS_MAX: usize = 8;
/// The most addresses that are queried, of all servers together.
pub const ADDRESSES_MAX: usize = 16;

/// The settings for finding and querying authoritative servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthoritativeServers {
    /// The resolvers, queried in this order until one responds.
    pub resolvers: Vec<SocketAddr>,
    /// The port of authoritative servers: 53, except in tests.
    pub port: u16,
    /// The time limit for one response.
    pub patience: Duration,
    /// Whether private addresses and those of this machine are also queried.
    pub private: bool,
}

/// The reason why no authoritative server of a name is found, in terms for the host's owner. Names have no trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name servers have private addresses, such as this one.
    #[error(
        "no name server of {name} has a public address: {server} is not queried; only the operator can allow it \
         (verify.hosts-private-addresses)"
    )]
    #[allow(missing_docs, reason = "the error text describes them")]
    Private { name: String, server: String },
    /// The name servers have no addresses.
    #[error("no name server of {0} has an address that can be queried")]
    NoAddress(String),
    /// No zone at or above it has servers.
    #[error("no zone at or above {0} has name servers")]
    NoZone(String),
    /// No resolver resolves a question about the servers.
    #[error("cannot resolve {name} {rtype}: {error}")]
    #[allow(missing_docs, reason = "the error text describes them")]
    Unresolved { name: String, rtype: RecordType, error: ResolveError },
}

/// The answer of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxtAnswer {
    /// The server's name.
    pub server: Name,
    /// The server's address.
    pub address: IpAddr,
    /// The TXT records of the name; the error is the reason for the missing answer.
    pub texts: Result<Vec<Vec<u8>>, String>,
}

impl AuthoritativeServers {
    /// Returns each authoritative server's answer for the TXT records at `name`.
    ///
    /// # Errors
    ///
    /// The reason why no server can be found.
    pub async fn texts(&self, name: &Name) -> Result<Vec<TxtAnswer>, LookupError> {
        let servers = self.servers(name).await?;
        let question = Question { name: name.clone(), rtype: RecordType::TXT };
        let asked = servers.into_iter().map(|(server, address)| {
            let question = &question;
            async move {
                let reply = question.ask((address, self.port).into(), self.patience).await;
                let texts = reply.map_err(|error| error.to_string()).and_then(|reply| texts(&reply, question));
                TxtAnswer { server, address, texts }
            }
        });
        Ok(futures::future::join_all(asked).await)
    }

    /// Returns the servers of the zone that contains `name`, with an address each.
    async fn servers(&self, name: &Name) -> Result<Vec<(Name, IpAddr)>, LookupError> {
        let names = self.zone_of(name).await?;
        let (mut found, mut barred) = (Vec::new(), None);
        for server in names.into_iter().take(SERVERS_MAX) {
            for rtype in [RecordType::A, RecordType::AAAA] {
                let Ok(reply) = self.resolve(&server, rtype).await else { continue };
                for record in reply.answers {
                    let Data::Address(address) = record.data else { continue };
                    if self.private || reach::is_allowed(address) {
                        found.push((server.clone(), address));
                    } else {
                        barred.get_or_insert_with(|| format!("{} ({address})", text(&server)));
                    }
                }
            }
        }
        found.truncate(ADDRESSES_MAX);
        match (found.is_empty(), barred) {
            (false, _) => Ok(found),
            (true, Some(server)) => Err(LookupError::Private { name: text(name), server }),
            (true, None) => Err(LookupError::NoAddress(text(name))),
        }
    }

    /// Returns the name servers of the zone that contains `name`.
    async fn zone_of(&self, name: &Name) -> Result<Vec<Name>, LookupError> {
        let mut at = name.clone();
        for _ in 0..CUTS_MAX {
            let reply = self.resolve(&at, RecordType::NS).await?;
            let servers: Vec<Name> = reply
                .answers
                .into_iter()
                .filter(|record| record.owner == at)
                .filter_map(|record| if let Data::NameServer(server) = record.data { Some(server) } else { None })
                .collect();
            if !servers.is_empty() {
                return Ok(servers);
            }
            let above = at.parent().filter(|above| !above.is_root());
            // The SOA in a NODATA or NXDOMAIN response is at the zone's apex (RFC 2308 §3).
            let apex = reply.authorities.into_iter().find(|record| matches!(record.data, Data::Soa(_)));
            let apex = apex.map(|record| record.owner).filter(|apex| at.is_below(apex) && !apex.is_root());
            at = apex.or(above).ok_or_else(|| LookupError::NoZone(text(name)))?;
        }
        Err(LookupError::NoZone(text(name)))
    }

    async fn resolve(&self, name: &Name, rtype: RecordType) -> Result<Response, LookupError> {
        let question = Question { name: name.clone(), rtype };
        let unresolved = |error| LookupError::Unresolved { name: text(name), rtype, error };
        question.resolve(&self.resolvers, self.patience).await.map_err(unresolved)
    }
}

fn texts(reply: &Response, question: &Question) -> Result<Vec<Vec<u8>>, String> {
    match reply.rcode {
        Rcode::NOERROR | Rcode::NXDOMAIN if reply.is_authoritative() => {
            let of_name = reply.answers.iter().filter(|record| record.owner == question.name);
            let texts =
                of_name.filter_map(|record| if let Data::Text(text) = &record.data { Some(text) } else { None });
            Ok(texts.cloned().collect())
        }
        Rcode::NOERROR | Rcode::NXDOMAIN => Err("it is not authoritative for the name".to_owned()),
        rcode => Err(format!("it answered {rcode}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use signpost_testing::dns::{RecordType, ResponseCode};
    use signpost_testing::name_server::{NameServer, Reply, records};

    use super::*;

    /// The time limit for a response that arrives, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// The time limit for a response that never arrives; everything before it has twice this time.
    const SHORT: Duration = Duration::from_millis(700);

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    /// Returns a resolver with `shop.example`, whose name server is at `address`.
    async fn resolver(address: Ipv4Addr) -> NameServer {
        NameServer::answering(move |name, rtype| {
            vec![match (name, rtype) {
                ("shop.example.", RecordType::NS) => {
                    Reply::Records(records(&["NS ns.host.example.", "NS gone.example."]))
                }
                ("ns.host.example.", RecordType::A) => Reply::Records(records(&[&format!("A {address}")])),
                _ if name.ends_with("broken.example.") => Reply::Rcode(ResponseCode::ServFail),
                _ => Reply::Records(Vec::new()),
            }]
        })
        .await
    }

    async fn ask_all(
        asked: &str,
        authority: &NameServer,
        private: bool,
        patience: Duration,
    ) -> Result<Vec<Result<Vec<String>, String>>, String> {
        let resolver = resolver(Ipv4Addr::LOCALHOST).await;
        let authorities = AuthoritativeServers {
            resolvers: vec![resolver.address],
            port: authority.address.port(),
            patience,
            private,
        };
        let answers = authorities.texts(&name(asked)).await.map_err(|error| error.to_string())?;
        let text = |octets: Vec<u8>| String::from_utf8(octets).expect("a test's text");
        Ok(answers.into_iter().map(|one| one.texts.map(|all| all.into_iter().map(text).collect())).collect())
    }

    #[tokio::test]
    async fn the_zones_own_servers_are_asked() {
        let authority = NameServer::answering(|name, rtype| {
            vec![match (name, rtype) {
                ("_x.www.shop.example.", RecordType::TXT) => Reply::Records(records(&["TXT one", "TXT two"])),
                _ => Reply::Rcode(ResponseCode::Refused),
            }]
        })
        .await;
        let found = ask_all("_x.www.shop.example.", &authority, true, PATIENCE).await;
        assert_eq!(found, Ok(vec![Ok(vec!["one".to_owned(), "two".to_owned()])]));
        for (asked, private, complaint) in [
            (
                "_x.www.shop.example.",
                false,
                "no name server of _x.www.shop.example has a public address: ns.host.example (127.0.0.1) is not queried",
            ),
            ("_x.www.other.example.", true, "no zone at or above _x.www.other.example has name servers"),
            ("_x.www.broken.example.", true, "cannot resolve _x.www.broken.example NS"),
        ] {
            let found = ask_all(asked, &authority, private, PATIENCE).await;
            assert!(found.as_ref().is_err_and(|error| error.contains(complaint)), "{asked}: {found:?}");
        }
    }

    #[tokio::test]
    async fn other_answers_are_reported_as_such() {
        let stranger = Reply::NotAuthoritative(records(&["TXT one"]));
        for (replies, patience, why) in [
            (vec![stranger], PATIENCE, "it is not authoritative for the name"),
            (vec![Reply::Rcode(ResponseCode::Refused)], PATIENCE, "it answered REFUSED"),
            (Vec::new(), SHORT, "no response within 700 ms, in 2 attempts"),
        ] {
            let authority = NameServer::answering(move |_, _| replies.clone()).await;
            let found = ask_all("_x.www.shop.example.", &authority, true, patience).await;
            assert_eq!(found, Ok(vec![Err(why.to_owned())]));
        }
    }
}
