//! The OPT record of a response (RFC 6891 §6): present if the query had one, and then always, regardless of the other sections.
//!
//! Its size is reserved before the first section is written. Records that an answer must have displace the server's identifier, the
//! idle time of a stream, and the version of the zone. An extended error and padding are added if there is room.

use super::Peer;
use super::cookie::FULL_OCTETS;
use super::settings::{NSID_OCTETS_MAX, Settings};
use crate::wire::build::{Full, Writer};
use crate::wire::edns::{Edns, ExtendedError, OPT_OCTETS, opt_head, option};
use crate::wire::header::Rcode;
use crate::zone::Zone;

/// Responses are padded to a multiple of this (RFC 8467 §4.1).
const PADDING_BLOCK: usize = 468;
/// The size of an option's head: its code and length.
const OPTION_HEAD: usize = 4;
/// The size of a zone's version: number of labels, type, serial.
const ZONE_VERSION_OCTETS: usize = 6;

/// The contents of the OPT record of one response.
#[derive(Clone, Copy)]
pub(super) struct Opt<'s> {
    edns: &'s Edns,
    peer: &'s Peer,
    settings: &'s Settings,
    cookie: Option<&'s [u8; FULL_OCTETS]>,
    /// Whether purely informational options are omitted.
    bare: bool,
    /// The zone that answers.
    zone: Option<&'s Zone>,
}

impl<'s> Opt<'s> {
    /// Returns the OPT record for the response to `edns`.
    #[inline]
    pub(super) fn new(
        edns: &'s Edns,
        peer: &'s Peer,
        settings: &'s Settings,
        cookie: Option<&'s [u8; FULL_OCTETS]>,
        zone: Option<&'s Zone>,
    ) -> Self {
        Opt { edns, peer, settings, cookie, bare: false, zone }
    }

    /// Returns the record without purely informational options, for a destination that may be a victim of forged queries.
    pub(super) fn bare(self) -> Self {
        Opt { bare: true, ..self }
    }

    /// Returns the server's identifier, if it must be sent.
    fn nsid(&self) -> Option<&'s [u8]> {
        let nsid = self.settings.nsid.as_deref().filter(|_| self.edns.nsid && !self.bare)?;
        Some(&nsid[..nsid.len().min(NSID_OCTETS_MAX)])
    }

    /// Returns the idle timeout of the stream, if it must be sent.
    fn keepalive(&self) -> Option<u16> {
        let is_sent = self.edns.keepalive && self.peer.transport.has_keepalive() && !self.bare;
        self.peer.keepalive.filter(|_| is_sent)
    }

    /// Returns the version of the zone (RFC 9660 §2.1), if it must be sent: the number of labels of its apex, the type SOA-SERIAL, and
    /// the serial. A zone that cannot answer has none.
    fn zone_version(&self) -> Option<[u8; ZONE_VERSION_OCTETS]> {
        let zone = self.zone.filter(|_| self.edns.zone_version && !self.bare)?;
        let [a, b, c, d] = zone.serial()?.0.to_be_bytes();
        Some([zone.apex_labels() as u8, 0, a, b, c, d])
    }

    /// Returns whether the client requests more than the record and the cookie.
    #[inline]
    fn asks_for_more(&self) -> bool {
        self.edns.nsid | self.edns.keepalive | self.edns.padding | self.edns.zone_version
    }

    /// Returns the length of the mandatory part: the record and the cookie.
    #[inline]
    pub(super) fn octets(&self) -> usize {
        OPT_OCTETS + self.cookie.map_or(0, |cookie| OPTION_HEAD + cookie.len())
    }

    /// Returns the length of the options that mandatory records of an answer displace.
    #[inline]
    pub(super) fn spare_octets(&self) -> usize {
        if !self.asks_for_more() {
            return 0;
        }
        self.nsid().map_or(0, |nsid| OPTION_HEAD + nsid.len())
            + self.keepalive().map_or(0, |_| OPTION_HEAD + 2)
            + self.zone_version().map_or(0, |version| OPTION_HEAD + version.len())
    }

    /// Writes the record; `follow` is the number of octets of other records after it.
    #[inline]
    pub(super) fn put(
        &self,
        writer: &mut Writer<'_>,
        rcode: Rcode,
        ede: Option<ExtendedError>,
        follow: usize,
    ) -> Result<(), Full> {
        if ede.is_some() || self.asks_for_more() {
            return self.put_more(writer, rcode, ede, follow);
        }
        self.put_head(writer, rcode, self.octets())
    }

    /// Writes the fixed part of a record of this many octets.
    #[inline]
    fn put_head(&self, writer: &mut Writer<'_>, rcode: Rcode, octets: usize) -> Result<(), Full> {
        let payload_octets_max = self.settings.udp_payload_max.max(512);
        let options_octets = (octets - OPT_OCTETS) as u16;
        writer.put(&opt_head(payload_octets_max, rcode, self.edns.dnssec_ok, options_octets))?;
        let Some(cookie) = self.cookie else { return Ok(()) };
        let [code, length] = [option::COOKIE, FULL_OCTETS as u16].map(u16::to_be_bytes);
        writer.put(&[code[0], code[1], length[0], length[1]])?;
        writer.put(cookie)
    }

    /// Writes the record with the further options that the client requested or that must be sent.
    #[inline(never)]
    fn put_more(
        &self,
        writer: &mut Writer<'_>,
        rcode: Rcode,
        ede: Option<ExtendedError>,
        follow: usize,
    ) -> Result<(), Full> {
        let mut octets = self.octets();
        let room = writer.remaining();
        let mut fits = |data: usize| {
            let with = octets + OPTION_HEAD + data;
            let fits = with <= room;
            octets = if fits { with } else { octets };
            fits
        };
        let nsid = self.nsid().filter(|nsid| fits(nsid.len()));
        let keepalive = self.keepalive().filter(|_| fits(2));
        let ede = ede.filter(|_| fits(2));
        let version = self.zone_version().filter(|version| fits(version.len()));
        let padding = self.padding(writer.position() + octets + follow, room.saturating_sub(octets + follow));
        octets += padding.map_or(0, |padding| OPTION_HEAD + padding);
        self.put_head(writer, rcode, octets)?;
        if let Some(nsid) = nsid {
            put_option(writer, option::NSID, nsid)?;
        }
        if let Some(timeout) = keepalive {
            put_option(writer, option::KEEPALIVE, &timeout.to_be_bytes())?;
        }
        if let Some(ede) = ede {
            put_option(writer, option::EXTENDED_ERROR, &ede.0.to_be_bytes())?;
        }
        if let Some(version) = version {
            put_option(writer, option::ZONEVERSION, &version)?;
        }
        if let Some(padding) = padding {
            put_option(writer, option::PADDING, &[0; PADDING_BLOCK][..padding])?;
        }
        Ok(())
    }

    /// Returns the number of padding octets for a message of `octets` octets with room for `room` more: up to the next multiple
    /// of the block.
    fn padding(&self, octets: usize, room: usize) -> Option<usize> {
        if !(self.edns.padding && self.peer.transport.is_encrypted()) || room < OPTION_HEAD {
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
