//! The OPT record of a response (RFC 6891 §6): there if the query had one, and then always, whatever the sections hold.
//!
//! What it will take is reserved before the first section is written. Of that, the server's identifier and the idle time of a stream
//! give way to records that an answer must have; an extended error and padding are added where room is left for them.

use super::cookie::FULL_OCTETS;
use super::settings::{NSID_OCTETS_MAX, Settings};
use super::{Peer, Transport};
use crate::wire::build::{Full, Writer};
use crate::wire::edns::{Edns, ExtendedError, OPT_OCTETS, opt_head, option};
use crate::wire::header::Rcode;

/// Responses are padded to a multiple of this (RFC 8467 §4.1).
const PADDING_BLOCK: usize = 468;
/// Octets of an option's code and length.
const OPTION_HEAD: usize = 4;

/// What the OPT record of one response will hold.
pub(super) struct Opt<'s> {
    edns: Edns,
    cookie: Option<&'s [u8; FULL_OCTETS]>,
    payload_octets_max: u16,
    nsid: Option<&'s [u8]>,
    keepalive: Option<u16>,
    pads: bool,
}

impl<'s> Opt<'s> {
    /// What to answer to `edns`.
    #[inline]
    pub(super) fn new(edns: Edns, peer: &Peer, settings: &'s Settings, cookie: Option<&'s [u8; FULL_OCTETS]>) -> Self {
        let nsid = if edns.nsid { settings.nsid.as_deref() } else { None };
        // Of TCP's own idle timeout only (RFC 7828 §3.1); HTTPS and QUIC have their own ways.
        let is_stream = matches!(peer.transport, Transport::Tcp | Transport::Tls);
        let is_encrypted = matches!(peer.transport, Transport::Tls | Transport::Https | Transport::Quic);
        Opt {
            edns,
            cookie,
            payload_octets_max: settings.udp_payload_max.max(512),
            nsid: nsid.map(|nsid| &nsid[..nsid.len().min(NSID_OCTETS_MAX)]),
            keepalive: if edns.keepalive && is_stream { peer.keepalive } else { None },
            pads: edns.padding && is_encrypted,
        }
    }

    /// The same with nothing that only tells more: what goes to who may not have asked.
    pub(super) fn bare(self) -> Self {
        Opt { nsid: None, keepalive: None, ..self }
    }

    /// Octets of what is always there: the record and the cookie.
    #[inline]
    pub(super) fn octets(&self) -> usize {
        OPT_OCTETS + self.cookie.map_or(0, |cookie| OPTION_HEAD + cookie.len())
    }

    /// Octets of what gives way to records that an answer must have.
    #[inline]
    pub(super) fn spare_octets(&self) -> usize {
        self.nsid.map_or(0, |nsid| OPTION_HEAD + nsid.len()) + self.keepalive.map_or(0, |_| OPTION_HEAD + 2)
    }

    /// Writes the record.
    pub(super) fn put(&self, writer: &mut Writer<'_>, rcode: Rcode, ede: Option<ExtendedError>) -> Result<(), Full> {
        let mut octets = self.octets();
        let room = writer.remaining();
        let mut fits = |data: usize| {
            let with = octets + OPTION_HEAD + data;
            let fits = with <= room;
            octets = if fits { with } else { octets };
            fits
        };
        let nsid = self.nsid.filter(|nsid| fits(nsid.len()));
        let keepalive = self.keepalive.filter(|_| fits(2));
        let ede = ede.filter(|_| fits(2));
        let padding = self.padding(writer.position() + octets, room.saturating_sub(octets));
        octets += padding.map_or(0, |padding| OPTION_HEAD + padding);
        let options_octets = (octets - OPT_OCTETS) as u16;
        writer.put(&opt_head(self.payload_octets_max, rcode, self.edns.dnssec_ok, options_octets))?;
        if let Some(cookie) = self.cookie {
            put_option(writer, option::COOKIE, cookie)?;
        }
        if let Some(nsid) = nsid {
            put_option(writer, option::NSID, nsid)?;
        }
        if let Some(timeout) = keepalive {
            put_option(writer, option::KEEPALIVE, &timeout.to_be_bytes())?;
        }
        if let Some(ede) = ede {
            put_option(writer, option::EXTENDED_ERROR, &ede.0.to_be_bytes())?;
        }
        if let Some(padding) = padding {
            put_option(writer, option::PADDING, &[0; PADDING_BLOCK][..padding])?;
        }
        Ok(())
    }

    /// Octets of padding for a message of `octets` so far, with room for `room` more: up to the next multiple of the block.
    fn padding(&self, octets: usize, room: usize) -> Option<usize> {
        if !self.pads || room < OPTION_HEAD {
            return None;
        }
        let with_head = octets + OPTION_HEAD;
        Some((with_head.next_multiple_of(PADDING_BLOCK) - with_head).min(room - OPTION_HEAD))
    }
}

fn put_option(writer: &mut Writer<'_>, code: u16, data: &[u8]) -> Result<(), Full> {
    writer.put_u16(code)?;
    writer.put_u16(data.len() as u16)?;
    writer.put(data)
}
