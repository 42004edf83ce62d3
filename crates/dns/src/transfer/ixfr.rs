//! IXFR (RFC 1995): one condensed difference, from the client's version to the current one.
//!
//! ```text
//! SOA of the current version
//! SOA of the client's version · deleted records
//! SOA of the current version · added records
//! SOA of the current version
//! ```

use std::sync::Arc;

use super::history::Difference;
use super::message::{Head, Message};
use crate::nameserver::hand_off::{Cursor, Progress};
use crate::wire::RecordType;
use crate::wire::build::Full;
use crate::wire::header::Header;
use crate::wire::message::{skip_name, skip_questions};
use crate::wire::name::NAME_OCTETS_MAX;
use crate::zone::{Serial, Zone};

/// The position in a transfer.
pub(super) struct Ixfr {
    zone: Arc<Zone>,
    head: Head,
    difference: Arc<Difference>,
    /// The number of written records.
    next: usize,
}

impl Ixfr {
    pub(super) fn new(zone: Arc<Zone>, head: Head, difference: Arc<Difference>) -> Ixfr {
        Ixfr { zone, head, difference, next: 0 }
    }
}

impl Cursor for Ixfr {
    fn fill(&mut self, buffer: &mut [u8]) -> Progress {
        let Ixfr { zone, head, difference, next } = self;
        let Ok(mut message) = Message::new(buffer, head, zone, *next == 0) else { return Progress::Last(0) };
        match put(zone, difference, next, &mut message) {
            Ok(()) => Progress::Last(message.finish()),
            Err(Full) if message.is_empty() => Progress::Last(0),
            Err(Full) => Progress::More(message.finish()),
        }
    }
}

fn put<'z>(
    zone: &'z Zone,
    difference: &'z Difference,
    next: &mut usize,
    message: &mut Message<'_, 'z>,
) -> Result<(), Full> {
    let Difference { soa, deleted, added, .. } = difference;
    // The positions of the four SOA records.
    let current = [0, 2 + deleted.len(), 3 + deleted.len() + added.len()];
    while *next <= current[2] {
        match *next {
            at if current.contains(&at) => message.put_soa(zone)?,
            1 => message.put_other(soa)?,
            at if at < current[1] => message.put_other(&deleted[at - 2])?,
            at => message.put_other(&added[at - current[1] - 1])?,
        }
        *next += 1;
    }
    Ok(())
}

/// Returns the serial of the client's version, in the SOA record of the authority section; `None` if the request has none.
pub(super) fn serial_of_client(message: &[u8]) -> Option<Serial> {
    let header = Header::read(message)?;
    if header.authorities != 1 {
        return None;
    }
    let owner_at = skip_questions(message, header.questions)?;
    let at = skip_name(message, owner_at)?;
    let head: &[u8; 10] = message.get(at..)?.first_chunk()?;
    let end = at + 10 + usize::from(u16::from_be_bytes([head[8], head[9]]));
    let names_end = skip_name(message, skip_name(message, at + 10)?)?;
    let is_soa = [head[0], head[1]] == RecordType::SOA.0.to_be_bytes()
        && end == names_end + 20
        && end - at < 2 * NAME_OCTETS_MAX + 30;
    let serial = message.get(names_end..)?.first_chunk().filter(|_| is_soa)?;
    Some(Serial(u32::from_be_bytes(*serial)))
}
