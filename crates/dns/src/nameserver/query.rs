//! The classification of a query before a zone is searched: dropped queries, and answers that need only the message.
//!
//! Decisions where the standards leave a choice, or are silent:
//! - Unknown opcodes are NOTIMP, and so is UPDATE where it is off ([`Settings::updates`]). NOTIFY and UPDATE without a question are
//!   FORMERR. With one, both are handed off, and so are AXFR and IXFR; [`HandOffKind::refusal`] has the answers without a handler.
//! - An unknown EDNS version is BADVERS for any opcode (RFC 6891 §6.1.3).
//! - A TSIG record is checked in QUERY, NOTIFY and UPDATE, before any zone. Without keys, it is BADKEY.
//! - Classes other than IN and CH, ANY included, are REFUSED.
//! - MAILA and MAILB are types like any other: no name has them.
//! - A malformed option is FORMERR only where the option is known: cookies if they are on, keepalive over TCP and TLS.
//! - A query without a question is FORMERR, unless it has a cookie (RFC 7873 §5.4) and cookies are on.

use std::net::IpAddr;

use super::cookie::{CookieStatus, Cookies};
use super::stats::DropReason;
use super::{Peer, Settings, Transport};
use crate::wire::edns::{Edns, ExtendedError};
use crate::wire::header::{Opcode, Rcode};
use crate::wire::message::Query;
use crate::wire::tsig::TsigError;
use crate::wire::{Class, RecordType};

/// The kind of a request that is handed off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOffKind {
    /// A query of type AXFR or IXFR, or for the SOA record of the catalog zone.
    Transfer,
    /// A request with opcode NOTIFY.
    Notify,
    /// A request with opcode UPDATE.
    Update,
}

impl HandOffKind {
    /// Returns the response code and the extended error of the refusal: transfers are denied by default, this server is not a
    /// secondary server, and RFC 2136 §2.2 lets a server not implement UPDATE.
    pub(super) fn refusal(self) -> (Rcode, Option<ExtendedError>) {
        match self {
            HandOffKind::Transfer | HandOffKind::Notify => (Rcode::REFUSED, Some(ExtendedError::PROHIBITED)),
            HandOffKind::Update => (Rcode::NOTIMP, None),
        }
    }
}

/// The disposition of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    /// Send nothing.
    Drop(DropReason),
    /// Answer with this code, and nothing from any zone.
    Reply(Rcode, Option<ExtendedError>),
    /// Answer NOTAUTH, with a TSIG record with this error.
    Unverified(TsigError),
    /// Verify the signature first.
    Signed,
    /// Pass it to the handler of such requests.
    HandOff(HandOffKind),
    /// Answer about the server itself (RFC 4892).
    Chaos,
    /// Look for the name in the zones.
    Lookup,
}

/// Classifies a query that has a header and this cookie status.
#[inline]
pub(super) fn classify(query: &Query, peer: &Peer, settings: &Settings, status: CookieStatus) -> Disposition {
    let cookies = settings.cookies.as_ref();
    if query.header.is_response() {
        return Disposition::Drop(DropReason::Response);
    }
    if peer.transport == Transport::Udp && !can_be_client(peer) {
        return Disposition::Drop(DropReason::Source);
    }
    if query.header.opcode() != Opcode::QUERY {
        return classify_other(query, settings);
    }
    if query.fault.is_some() {
        return Disposition::Reply(Rcode::FORMERR, None);
    }
    if let Some(edns) = &query.edns {
        if edns.version > 0 {
            return Disposition::Reply(Rcode::BADVERS, None);
        }
        if has_malformed_option(edns, peer, cookies) {
            return Disposition::Reply(Rcode::FORMERR, None);
        }
    }
    if query.tsig.is_some() {
        return unverified(settings);
    }
    let Some(question) = query.question else {
        // RFC 7873 §5.4: BADCOOKIE "if the Server Cookie sent with the query was invalid".
        let rcode = match status {
            CookieStatus::None => Rcode::FORMERR,
            CookieStatus::ClientOnly | CookieStatus::Valid => Rcode::NOERROR,
            CookieStatus::Invalid => Rcode::BADCOOKIE,
        };
        return Disposition::Reply(rcode, None);
    };
    let lacks_cookie = matches!(status, CookieStatus::ClientOnly | CookieStatus::Invalid);
    if lacks_cookie && cookies.is_some_and(|cookies| cookies.required) && peer.transport == Transport::Udp {
        return Disposition::Reply(Rcode::BADCOOKIE, None);
    }
    match question.qtype {
        RecordType::NXNAME => return Disposition::Reply(Rcode::FORMERR, Some(ExtendedError::INVALID_QUERY_TYPE)),
        RecordType(0) | RecordType::OPT | RecordType::TKEY | RecordType::TSIG => {
            return Disposition::Reply(Rcode::FORMERR, None);
        }
        RecordType::AXFR | RecordType::IXFR => return Disposition::HandOff(HandOffKind::Transfer),
        _ => {}
    }
    match question.qclass {
        Class::IN => Disposition::Lookup,
        Class::CH => Disposition::Chaos,
        _ => Disposition::Reply(Rcode::REFUSED, None),
    }
}

/// Classifies a request that is not a query.
#[cold]
fn classify_other(query: &Query, settings: &Settings) -> Disposition {
    let opcode = query.header.opcode();
    let is_malformed = query.fault.is_some() || query.question.is_none();
    match query.tsig {
        _ if is_malformed && (opcode == Opcode::NOTIFY || opcode == Opcode::UPDATE && settings.updates) => {
            Disposition::Reply(Rcode::FORMERR, None)
        }
        _ if query.edns.is_some_and(|edns| edns.version > 0) => Disposition::Reply(Rcode::BADVERS, None),
        Some(_) if matches!(opcode, Opcode::NOTIFY | Opcode::UPDATE) => unverified(settings),
        _ if opcode == Opcode::NOTIFY => Disposition::HandOff(HandOffKind::Notify),
        _ if opcode == Opcode::UPDATE && query.question.is_some() => Disposition::HandOff(HandOffKind::Update),
        _ => Disposition::Reply(Rcode::NOTIMP, None),
    }
}

/// Classifies a query with a signature. Without keys, each signature is by an unknown key.
#[cold]
fn unverified(settings: &Settings) -> Disposition {
    if settings.keys.is_some() { Disposition::Signed } else { Disposition::Unverified(TsigError::BADKEY) }
}

/// Returns whether an option has a length that its RFC forbids, where that RFC applies. RFC 7828 §3.3.1, for a query over UDP:
/// the server "MUST ignore the option". RFC 7873 §5.2.2 applies to servers that implement cookies; with cookies off, they are an
/// unknown option (RFC 6891 §6.1.2).
#[inline]
fn has_malformed_option(edns: &Edns, peer: &Peer, cookies: Option<&Cookies>) -> bool {
    edns.malformed_keepalive && peer.transport.has_keepalive() || edns.malformed_cookie && cookies.is_some()
}

/// Returns whether the source of a datagram can be a client. Port 53 sends reflected responses of servers, port 0 cannot receive
/// an answer, and multicast and broadcast addresses would multiply it.
#[inline]
fn can_be_client(peer: &Peer) -> bool {
    if matches!(peer.address.port(), 0 | 53) {
        return false;
    }
    match peer.address.ip() {
        IpAddr::V4(ip) => !(ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified()),
        IpAddr::V6(ip) => !(ip.is_multicast() || ip.is_unspecified()),
    }
}
