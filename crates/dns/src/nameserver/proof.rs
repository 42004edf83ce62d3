//! Proofs of absence from a zone that another signer signed: the NSEC (RFC 4035 §3.1.3) or NSEC3 records (RFC 5155 §7.2) of an
//! answer. This server does not sign.

use super::section::{Message, Owner};
use super::zone_query::{CNAME_CHAIN_MAX, Current, ZoneQuery};
use crate::wire::RecordType;
use crate::wire::build::Full;
use crate::wire::name::{NAME_OCTETS_MAX, expand};
use crate::zone::denial::{Denial, Nsec3};
use crate::zone::lookup::{Ancestor, Found};
use crate::zone::node::Node;
use crate::zone::qname::{NameHash, Qname};

/// The maximum number of records of one proof: one for each name of a chain that comes from a wildcard, and three for its end.
const RECORDS_MAX: usize = CNAME_CHAIN_MAX + 3;

/// Proves that the name does not have the type (RFC 4035 §3.1.3.1 and §3.1.3.4, RFC 5155 §7.2.3 to §7.2.5).
#[inline]
pub(super) fn no_data(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask) else { return Ok(()) };
    proof.expansions(message)?;
    if found.synthesised == 0 {
        return proof.about_existing(current.qname, 0, message);
    }
    proof.wildcard(current.qname, found.synthesised, message)?;
    proof.closest_encloser(current.qname, found.synthesised, message).map(|_| ())
}

/// Proves that the name does not exist and that no wildcard covers it (RFC 4035 §3.1.3.2, RFC 5155 §7.2.2).
#[inline]
pub(super) fn no_name(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    encloser: &Ancestor<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask) else { return Ok(()) };
    proof.expansions(message)?;
    let encloser = proof.closest_encloser(current.qname, encloser.above, message)?;
    proof.wildcard(current.qname, encloser, message)
}

/// Proves that a delegation has no DS (RFC 4035 §3.1.4, RFC 5155 §7.2.7), and that no closer name exists than the wildcards that
/// led to it.
#[inline]
pub(super) fn no_ds(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    cut: &Ancestor<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask) else { return Ok(()) };
    proof.expansions(message)?;
    proof.about_existing(current.qname, cut.above, message)
}

/// Proves, for each name of the chain that came from a wildcard, that no closer name exists (RFC 4035 §3.1.3.3, RFC 5155
/// §7.2.6), if the end of the chain needs no other proof.
#[cold]
pub(super) fn expansions(ask: &ZoneQuery<'_>, message: &mut Message<'_, '_>) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask) else { return Ok(()) };
    proof.expansions(message)
}

/// The records of one proof; each is written once, even if it proves several facts (RFC 2181 §5).
struct Proof<'a> {
    ask: &'a ZoneQuery<'a>,
    denial: &'a Denial,
    written: [NameHash; RECORDS_MAX],
    count: usize,
}

impl<'a> Proof<'a> {
    #[inline]
    fn wanted(ask: &'a ZoneQuery<'a>) -> Option<Self> {
        if !ask.dnssec {
            return None;
        }
        Some(Proof { ask, denial: ask.zone.denial()?, written: [0; RECORDS_MAX], count: 0 })
    }

    /// Proves that no closer names exist than the wildcards of the answer section.
    fn expansions(&mut self, message: &mut Message<'_, '_>) -> Result<(), Full> {
        if !message.has_expansions() {
            return Ok(());
        }
        self.each_expansion(message)
    }

    #[cold]
    fn each_expansion(&mut self, message: &mut Message<'_, '_>) -> Result<(), Full> {
        let mut qname = Qname::new();
        for number in 0..message.expansions().len() {
            let expansion = message.expansions()[number];
            let mut octets = [0; NAME_OCTETS_MAX];
            // Any name of the chain could be expanded before, when it was looked up.
            let Some(name) = expand(message.writer.written(), expansion.at.into(), &mut octets) else { continue };
            qname.read(name);
            self.no_closer_name(&qname, expansion.above.into(), message)?;
        }
        Ok(())
    }

    /// Adds the record with the types of an existing name, `above` labels above `qname`.
    fn about_existing(&mut self, qname: &Qname, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        if !self.denial.is_hashed_chain() {
            // An empty non-terminal has no NSEC of its own; the previous one in the order covers it.
            return self.nsec(self.relative(qname, above), message);
        }
        let encloser = self.provable_encloser(qname, above, message)?;
        // With opt-out, unsigned delegations are not in the chain (RFC 5155 §7.2.4): the proof has the closest name that is in
        // the chain, and shows that the next closer name is not.
        if encloser > above { self.nsec3(qname.suffix(encloser - 1), message) } else { Ok(()) }
    }

    /// Proves which ancestor of `qname`, at least `above` labels up, is the closest encloser (RFC 5155 §7.2.1); returns how many
    /// labels up it is.
    fn closest_encloser(&mut self, qname: &Qname, above: usize, message: &mut Message<'_, '_>) -> Result<usize, Full> {
        let encloser = match self.denial.is_hashed_chain() {
            true => self.provable_encloser(qname, above, message)?,
            false => above,
        };
        self.no_closer_name(qname, encloser, message)?;
        Ok(encloser)
    }

    /// Writes the NSEC3 record of the closest name that has one, from `above` labels above `qname` on; returns how many labels
    /// up it is. Empty non-terminals above nothing but unsigned delegations have none where the signer opted out.
    fn provable_encloser(&mut self, qname: &Qname, above: usize, message: &mut Message<'_, '_>) -> Result<usize, Full> {
        let apex = qname.labels() - self.ask.zone.apex_labels();
        for encloser in above..=apex {
            let Some(hash) = self.denial.nsec3_hash(qname.suffix(encloser)) else { break };
            if let Some(Nsec3::Matching(node)) = self.denial.nsec3(&hash) {
                self.put(node, RecordType::NSEC3, message)?;
                return Ok(encloser);
            }
        }
        // A chain without the apex was refused when it was loaded.
        Ok(apex.max(above))
    }

    /// Proves that nothing exists between `qname` and the name `above` labels up.
    fn no_closer_name(&mut self, qname: &Qname, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        if self.denial.is_hashed_chain() {
            return self.nsec3(qname.suffix(above.saturating_sub(1)), message);
        }
        self.nsec(self.relative(qname, 0), message)
    }

    /// Returns the record that matches the wildcard under the name `above` labels up, or covers it.
    fn wildcard(&mut self, qname: &Qname, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        let hashed = self.denial.is_hashed_chain();
        let encloser = if hashed { qname.suffix(above) } else { self.relative(qname, above) };
        let mut octets = [0; NAME_OCTETS_MAX + 2];
        octets[..2].copy_from_slice(b"\x01*");
        octets[2..2 + encloser.len()].copy_from_slice(encloser);
        let wildcard = &octets[..2 + encloser.len()];
        if wildcard.len() > NAME_OCTETS_MAX {
            // Too long to be a name: there is nothing to deny.
            return Ok(());
        }
        if hashed { self.nsec3(wildcard, message) } else { self.nsec(wildcard, message) }
    }

    /// Returns the labels above the apex of the name `above` labels up.
    fn relative<'q>(&self, qname: &'q Qname, above: usize) -> &'q [u8] {
        let apex_at = qname.length() - self.ask.zone.apex_octets().len();
        &qname.octets()[qname.start(above).min(apex_at)..apex_at]
    }

    fn nsec(&mut self, relative: &[u8], message: &mut Message<'_, '_>) -> Result<(), Full> {
        let found = self.denial.nsec(relative).and_then(|(hash, relative)| self.ask.zone.find(hash, relative));
        match found {
            Some(node) => self.put(node, RecordType::NSEC, message),
            None => Ok(()),
        }
    }

    fn nsec3(&mut self, name: &[u8], message: &mut Message<'_, '_>) -> Result<(), Full> {
        let found = self.denial.nsec3_hash(name).and_then(|hash| self.denial.nsec3(&hash));
        match found {
            Some(Nsec3::Matching(node) | Nsec3::Covering(node)) => self.put(node, RecordType::NSEC3, message),
            None => Ok(()),
        }
    }

    fn put(&mut self, node: Node<'_>, rtype: RecordType, message: &mut Message<'_, '_>) -> Result<(), Full> {
        let Some(records) = node.get(rtype) else { return Ok(()) };
        if self.written[..self.count].contains(&node.hash()) {
            return Ok(());
        }
        let owner = match node.relative_as_written() {
            [] => message.apex(),
            labels => Owner::Relative(labels),
        };
        message.put_negative(owner, &records, self.ask.zone.negative_ttl(), true)?;
        if let Some(slot) = self.written.get_mut(self.count) {
            *slot = node.hash();
            self.count += 1;
        }
        Ok(())
    }
}
