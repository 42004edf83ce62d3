//! TSIG (RFC 8945): the final record of a signed message, for a reader without a key, and the record of an unsigned error
//! response (§5.3.2).

use super::build::{Full, Writer};
use super::name::{NAME_OCTETS_MAX, expand, wire_end};
use super::rtype::{Class, RecordType};

/// The positions of the parts of a query's TSIG record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tsig {
    /// The start of the key's name, which may be compressed.
    key_at: u16,
    /// The start of the algorithm's name.
    algorithm_at: u16,
    /// The length of the algorithm's name in octets.
    algorithm_octets: u8,
}

/// A fault of a signature (RFC 8945 §3: the ERROR field).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TsigError(pub u16);

impl TsigError {
    /// The key is not known, or not for this algorithm.
    pub const BADKEY: TsigError = TsigError(17);
}

/// Octets of time signed and fudge.
const TIMES: usize = 8;
/// The size of a record's type, class, TTL and length.
const RECORD_HEAD: usize = 10;
/// The size of an empty MAC, the identifier, the error and no other data.
const ERROR_TAIL: usize = 8;

impl Tsig {
    /// Reads the record whose owner is at `key_at` in `message`, and whose RDATA go from `start` to `end`; `None` if it is
    /// malformed: an invalid name, lengths that do not match the RDATA, or a class other than ANY (§4.2).
    pub fn read(message: &[u8], key_at: usize, class: Class, start: usize, end: usize) -> Option<Tsig> {
        let rdata = message.get(start..end)?;
        let algorithm = wire_end(rdata).ok()?;
        let sized = |rest: &[u8], fixed: usize| {
            let (_, rest) = rest.split_at_checked(fixed)?;
            let (length, rest) = rest.split_first_chunk::<2>()?;
            rest.get(usize::from(u16::from_be_bytes(*length))..).map(<[u8]>::len)
        };
        // Times and MAC; identifier, error and other data.
        let after_mac = sized(&rdata[algorithm..], TIMES)?;
        let after_other = sized(&rdata[rdata.len() - after_mac..], 4)?;
        expand(message, key_at, &mut [0; NAME_OCTETS_MAX])?;
        (after_other == 0 && class == Class::ANY).then_some(Tsig {
            key_at: key_at as u16,
            algorithm_at: start as u16,
            algorithm_octets: algorithm as u8,
        })
    }

    /// Returns the number of octets that [`Self::put_error`] writes; 0 if it writes nothing.
    pub fn error_octets(&self, query: &[u8]) -> usize {
        let key = expand(query, usize::from(self.key_at), &mut [0; NAME_OCTETS_MAX]).map(<[u8]>::len);
        key.map_or(0, |key| key + RECORD_HEAD + usize::from(self.algorithm_octets) + TIMES + ERROR_TAIL)
    }

    /// Writes the record of an error response to `query`, which has this record: the same key, algorithm and times, and an empty
    /// MAC. Writes all or nothing.
    pub fn put_error(&self, query: &[u8], error: TsigError, writer: &mut Writer<'_>) -> Result<(), Full> {
        let mut octets = [0; NAME_OCTETS_MAX];
        let key = expand(query, usize::from(self.key_at), &mut octets).ok_or(Full)?;
        // The names and the times that follow the algorithm.
        let kept = usize::from(self.algorithm_octets) + TIMES;
        let kept = &query[usize::from(self.algorithm_at)..][..kept];
        let [type_high, type_low] = RecordType::TSIG.0.to_be_bytes();
        let [class_high, class_low] = Class::ANY.0.to_be_bytes();
        let [length_high, length_low] = ((kept.len() + ERROR_TAIL) as u16).to_be_bytes();
        let head: [u8; RECORD_HEAD] = [type_high, type_low, class_high, class_low, 0, 0, 0, 0, length_high, length_low];
        let [error_high, error_low] = error.0.to_be_bytes();
        // No MAC, the query's identifier, the error, and no other data.
        let tail: [u8; ERROR_TAIL] = [0, 0, query[0], query[1], error_high, error_low, 0, 0];
        if key.len() + head.len() + kept.len() + tail.len() > writer.remaining() {
            return Err(Full);
        }
        [key, &head, kept, &tail].into_iter().try_for_each(|part| writer.put(part))
    }
}
