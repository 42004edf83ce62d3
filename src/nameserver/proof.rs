//! Proofs of absence from a zone that another signer signed: which NSEC (RFC 4035 §3.1.3) or NSEC3 records (RFC 5155 §7.2)
//! stand beside an answer. Nothing is signed here.

use super::answer::{Ask, Current};
use super::section::{Message, Owner};
use crate::wire::RecordType;
use crate::wire::build::Full;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::zone::denial::{Denial, Nsec3};
use crate::zone::lookup::{Ancestor, Found};
use crate::zone::node::Node;
use crate::zone::qname::NameHash;

/// Proves that the name has not the type (RFC 4035 §3.1.3.1 and §3.1.3.4, RFC 5155 §7.2.3 to §7.2.5).
#[inline]
pub(super) fn no_data(
    ask: &Ask<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask, current) else { return Ok(()) };
    if found.synthesised == 0 {
        return proof.about_existing(0, message);
    }
    proof.wildcard(found.synthesised, message)?;
    proof.closest_encloser(found.synthesised, message)
}

/// Proves that the name does not exist and that no wildcard covers it (RFC 4035 §3.1.3.2, RFC 5155 §7.2.2).
#[inline]
pub(super) fn no_name(
    ask: &Ask<'_>,
    current: Current<'_>,
    encloser: &Ancestor<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask, current) else { return Ok(()) };
    proof.closest_encloser(encloser.above, message)?;
    proof.wildcard(encloser.above, message)
}

/// Proves that a delegation has no DS (RFC 4035 §3.1.4, RFC 5155 §7.2.7).
#[inline]
pub(super) fn no_ds(
    ask: &Ask<'_>,
    current: Current<'_>,
    cut: &Ancestor<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask, current) else { return Ok(()) };
    proof.about_existing(cut.above, message)
}

/// Proves that no closer name than the wildcard exists (RFC 4035 §3.1.3.3, RFC 5155 §7.2.6).
#[cold]
pub(super) fn wildcard_expansion(
    ask: &Ask<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(mut proof) = Proof::wanted(ask, current) else { return Ok(()) };
    proof.no_closer_name(found.synthesised, message)
}

/// The records of one proof; each is written once, whatever it proves.
struct Proof<'a> {
    ask: &'a Ask<'a>,
    denial: &'a Denial,
    current: Current<'a>,
    written: [NameHash; 4],
    count: usize,
}

impl<'a> Proof<'a> {
    #[inline]
    fn wanted(ask: &'a Ask<'a>, current: Current<'a>) -> Option<Self> {
        if !ask.dnssec {
            return None;
        }
        Some(Proof { ask, denial: ask.zone.denial()?, current, written: [0; 4], count: 0 })
    }

    /// The record that tells the types of a name that exists, `above` labels above the current one.
    fn about_existing(&mut self, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        let qname = self.current.qname;
        if !self.denial.is_hashed_chain() {
            // An empty non-terminal has no NSEC of its own; the one before it in the order covers it.
            return self.nsec(self.relative(above), message);
        }
        let depth_max = qname.labels() - self.ask.zone.apex_labels();
        for encloser in above..=depth_max {
            let Some(hash) = self.denial.nsec3_hash(qname.suffix(encloser)) else { return Ok(()) };
            if let Some(Nsec3::Matching(node)) = self.denial.nsec3(&hash) {
                self.put(node, RecordType::NSEC3, message)?;
                // Opt-out leaves unsigned delegations out of the chain (RFC 5155 §7.2.4): then the closest name that is in
                // it is proved, and that the next closer one is not.
                return if encloser > above { self.nsec3(qname.suffix(encloser - 1), message) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// Proves that the name `above` labels up is the closest encloser.
    fn closest_encloser(&mut self, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        if self.denial.is_hashed_chain() {
            self.nsec3(self.current.qname.suffix(above), message)?;
        }
        self.no_closer_name(above, message)
    }

    /// Proves that nothing exists between the current name and the one `above` labels up.
    fn no_closer_name(&mut self, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        if self.denial.is_hashed_chain() {
            return self.nsec3(self.current.qname.suffix(above.saturating_sub(1)), message);
        }
        self.nsec(self.relative(0), message)
    }

    /// The record that matches the wildcard under the name `above` labels up, or covers it.
    fn wildcard(&mut self, above: usize, message: &mut Message<'_, '_>) -> Result<(), Full> {
        let hashed = self.denial.is_hashed_chain();
        let encloser = if hashed { self.current.qname.suffix(above) } else { self.relative(above) };
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

    /// The labels above the apex of the name `above` labels up.
    fn relative(&self, above: usize) -> &'a [u8] {
        let qname = self.current.qname;
        let apex_at = qname.length() - self.ask.zone.apex_octets().len();
        &qname.octets()[qname.start(above).min(apex_at)..apex_at]
    }

    fn nsec(&mut self, relative: &[u8], message: &mut Message<'_, '_>) -> Result<(), Full> {
        match self.denial.nsec(self.ask.zone, relative) {
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
