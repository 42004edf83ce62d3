//! Observations: the parent's view of the delegation, each name server's own, and a custom host's.
//!
//! They are plain data, so that tests of [`super::judge`] need no server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use signpost_control::compiler::discovery::OfferedTransport;
use signpost_control::dns_client::QueryError;
use signpost_dns::wire::Name;
use signpost_dns::wire::header::Rcode;

/// Names of name servers and their addresses.
pub type NameServers = BTreeMap<Name, BTreeSet<IpAddr>>;

/// All that was seen.
#[derive(Debug, Clone)]
pub struct Observations {
    pub domain: Name,
    pub alias_zone: Name,
    /// The name servers that the configuration names; empty if it names none.
    pub expected: NameServers,
    /// Whether loopback and private addresses are meant.
    pub private: bool,
    /// The parent's zone, if the walk found it.
    pub parent_zone: Option<Name>,
    /// The reason why the walk did not reach a parent.
    pub lost: Option<String>,
    pub parents: Vec<Parent>,
    pub servers: Vec<Server>,
    /// Name servers whose addresses could not be found out.
    pub without_address: Vec<Name>,
    /// Whether shards were known, so that their wildcards were checked.
    pub knows_shards: bool,
    /// The custom host, if one is given.
    pub host: Option<Host>,
}

/// One server of the parent.
#[derive(Debug, Clone)]
pub struct Parent {
    pub address: SocketAddr,
    pub says: Result<Delegation, QueryError>,
}

/// A parent's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    pub rcode: Rcode,
    /// The name servers, and their glue.
    pub servers: NameServers,
}

/// One name server at one address.
#[derive(Debug, Clone)]
pub struct Server {
    /// The name; several, separated by commas, if they have one address.
    pub name: String,
    pub address: SocketAddr,
    /// Over UDP, the domain's start of authority.
    pub udp: Result<Start, QueryError>,
    pub tcp: Result<Start, QueryError>,
    /// The domain's name servers as it knows them, and their addresses if they are inside the domain.
    pub child: NameServers,
    /// Response code to an unknown EDNS option.
    pub unknown_option: Result<Rcode, QueryError>,
    /// Response code to a version of EDNS that there is not.
    pub unknown_version: Result<Rcode, QueryError>,
    /// The result of a request for a zone transfer.
    pub transfer: Transfer,
    /// The other zones of the platform: the alias zone and the shards.
    pub zones: Vec<Zone>,
    /// The transports over TLS that its SVCB records offer.
    pub encrypted: Vec<EncryptedTransport>,
}

/// A transport over TLS that a name server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptedTransport {
    /// The name server's name, which its certificate must have.
    pub host: Name,
    pub transport: OfferedTransport,
    /// The result of a TLS handshake.
    pub checked: Result<(), String>,
}

/// The answer for a start of authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub rcode: Rcode,
    /// Whether it answers with authority.
    pub authoritative: bool,
    /// Whether it offers recursion to the client.
    pub recursion: bool,
    /// The largest payload over UDP that it names, if it has EDNS.
    pub edns: Option<u16>,
    /// The serial, if it gave one.
    pub serial: Option<u32>,
}

/// The result of a requested zone transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transfer {
    Refused,
    Given,
    /// The request failed.
    Unknown,
}

/// One more zone, as one name server has it.
#[derive(Debug, Clone)]
pub struct Zone {
    pub apex: Name,
    pub start: Result<Start, QueryError>,
    /// The addresses of a name that only a wildcard matches; `None` if no wildcard is expected.
    pub wildcard: Option<Result<BTreeSet<IpAddr>, String>>,
}

/// A custom host.
#[derive(Debug, Clone)]
pub struct Host {
    pub name: Name,
    /// The expected target of its CNAME, if it is known.
    pub target: Option<Name>,
    /// The response of a resolver, or the error with the resolver.
    pub seen: Result<Trail, String>,
    /// The record that the platform wants to see before it admits the host, if it wants one.
    pub proof: Option<Proof>,
}

/// A record that proves who has a host.
#[derive(Debug, Clone)]
pub struct Proof {
    pub owner: Name,
    pub text: String,
    /// Whether the resolver has it.
    pub seen: Result<bool, String>,
}

/// The response of a resolver for a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trail {
    pub rcode: Rcode,
    /// The targets of CNAMEs, in order.
    pub aliases: Vec<Name>,
    pub addresses: BTreeSet<IpAddr>,
}
