//! The TSIG record (RFC 8945 §4.2): the final record of a signed message, read and written without a key.

use super::build::{Full, Writer};
use super::header::HEADER_OCTETS;
use super::name::{NAME_OCTETS_MAX, expand, wire_end};
use super::rtype::{Class, RecordType};

/// The positions of the parts of a message's TSIG record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tsig {
    /// The start of the record: the key's name, which may be compressed.
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
    /// No error.
    pub const NONE: TsigError = TsigError(0);
    /// The MAC is wrong.
    pub const BADSIG: TsigError = TsigError(16);
    /// The key is not known, or not for this algorithm.
    pub const BADKEY: TsigError = TsigError(17);
    /// The time is outside the period of validity.
    pub const BADTIME: TsigError = TsigError(18);
    /// The MAC is shorter than the local policy permits.
    pub const BADTRUNC: TsigError = TsigError(22);
}

/// The RDATA of a TSIG record after the name of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'m> {
    /// The time of the signature in seconds since the epoch: 48 bits.
    pub time: u64,
    /// The tolerance for clocks in seconds.
    pub fudge: u16,
    /// The MAC: empty in errors that are not signed.
    pub mac: &'m [u8],
    /// The ID of the message when it was signed.
    pub original_id: u16,
    /// The error.
    pub error: TsigError,
    /// The server's time, of BADTIME.
    pub other: &'m [u8],
}

/// Octets of time signed and fudge.
const TIMES: usize = 8;
/// The size of a record's type, class, TTL and length.
pub(super) const RECORD_HEAD: usize = 10;
/// The size of an empty MAC, the identifier, the error and no other data.
const ERROR_TAIL: usize = 8;

impl Tsig {
    /// Reads the record whose owner is at `key_at` in `message`, and whose RDATA go from `start` to `end`; `None` if it is
    /// malformed: an invalid name, lengths that do not match the RDATA, a class other than ANY, or a TTL other than 0 (§4.2).
    pub fn read(message: &[u8], key_at: usize, class: Class, start: usize, end: usize) -> Option<Tsig> {
        let rdata = message.get(start..end)?;
        // The TTL is before the length of the RDATA.
        let has_ttl = message.get(start.checked_sub(6)?..start - 2)? != [0; 4];
        let algorithm_octets = wire_end(rdata).ok()? as u8;
        expand(message, key_at, &mut [0; NAME_OCTETS_MAX])?;
        let tsig = Tsig { key_at: key_at as u16, algorithm_at: start as u16, algorithm_octets };
        (fields(&rdata[usize::from(algorithm_octets)..])?.1.is_empty() && class == Class::ANY && !has_ttl)
            .then_some(tsig)
    }

    /// Returns the start of the record in its message.
    pub fn start(&self) -> usize {
        usize::from(self.key_at)
    }

    /// Returns the key's name, in the case of the message; `None` if `message` is another one.
    pub fn key<'o>(&self, message: &[u8], octets: &'o mut [u8; NAME_OCTETS_MAX]) -> Option<&'o [u8]> {
        expand(message, usize::from(self.key_at), octets)
    }

    /// Returns the algorithm's name, in the case of the message.
    pub fn algorithm<'m>(&self, message: &'m [u8]) -> Option<&'m [u8]> {
        message.get(usize::from(self.algorithm_at)..)?.get(..usize::from(self.algorithm_octets))
    }

    /// Returns the rest of the RDATA.
    pub fn fields<'m>(&self, message: &'m [u8]) -> Option<Fields<'m>> {
        let at = usize::from(self.algorithm_at) + usize::from(self.algorithm_octets);
        fields(message.get(at..)?).map(|(fields, _)| fields)
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
        let key = self.key(query, &mut octets).ok_or(Full)?;
        let algorithm = self.algorithm(query).ok_or(Full)?;
        let Fields { time, fudge, original_id, .. } = self.fields(query).ok_or(Full)?;
        put(writer, key, algorithm, &Fields { time, fudge, mac: &[], original_id, error, other: &[] })
    }
}

/// Reads fields, and returns the octets after them.
fn fields(octets: &[u8]) -> Option<(Fields<'_>, &[u8])> {
    let (times, rest) = octets.split_first_chunk::<TIMES>()?;
    let [a, b, c, d, e, f, fudge @ ..] = *times;
    let sized = |octets| -> Option<(&[u8], &[u8])> {
        let (length, rest): (&[u8; 2], &[u8]) = <[u8]>::split_first_chunk(octets)?;
        rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
    };
    let (mac, rest) = sized(rest)?;
    let (&[id_high, id_low, error_high, error_low], rest) = rest.split_first_chunk()?;
    let (other, rest) = sized(rest)?;
    let fields = Fields {
        time: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        fudge: u16::from_be_bytes(fudge),
        mac,
        original_id: u16::from_be_bytes([id_high, id_low]),
        error: TsigError(u16::from_be_bytes([error_high, error_low])),
        other,
    };
    Some((fields, rest))
}

/// Returns the length of a record with a MAC and other data of these lengths.
pub fn record_octets(key: &[u8], algorithm: &[u8], mac: usize, other: usize) -> usize {
    key.len() + RECORD_HEAD + algorithm.len() + TIMES + ERROR_TAIL + mac + other
}

/// Writes a record by the key with this name. Writes all or nothing.
pub fn put(writer: &mut Writer<'_>, key: &[u8], algorithm: &[u8], fields: &Fields<'_>) -> Result<(), Full> {
    let octets = record_octets(key, algorithm, fields.mac.len(), fields.other.len());
    if octets > writer.remaining() {
        return Err(Full);
    }
    writer.put(key)?;
    writer.put_u16(RecordType::TSIG.0)?;
    writer.put_u16(Class::ANY.0)?;
    writer.put(&[0; 4])?;
    writer.put_u16((octets - key.len() - RECORD_HEAD) as u16)?;
    writer.put(algorithm)?;
    writer.put(&timers(fields))?;
    writer.put_u16(fields.mac.len() as u16)?;
    writer.put(fields.mac)?;
    writer.put_u16(fields.original_id)?;
    writer.put_u16(fields.error.0)?;
    writer.put_u16(fields.other.len() as u16)?;
    writer.put(fields.other)
}

/// Returns the time and the fudge as octets (§4.3.3.2: the TSIG timers).
pub fn timers(fields: &Fields<'_>) -> [u8; TIMES] {
    let [_, _, a, b, c, d, e, f] = fields.time.to_be_bytes();
    let [high, low] = fields.fudge.to_be_bytes();
    [a, b, c, d, e, f, high, low]
}

/// Returns the header of a signed message without the record: with the original ID, and a record less.
pub fn header_without(message: &[u8], original_id: u16) -> Option<[u8; HEADER_OCTETS]> {
    let mut header: [u8; HEADER_OCTETS] = *message.first_chunk()?;
    header[..2].copy_from_slice(&original_id.to_be_bytes());
    let additionals = u16::from_be_bytes([header[10], header[11]]).checked_sub(1)?;
    header[10..].copy_from_slice(&additionals.to_be_bytes());
    Some(header)
}
