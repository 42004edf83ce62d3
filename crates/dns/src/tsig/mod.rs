//! TSIG (RFC 8945): messages that are authenticated by a key that both sides know.
//!
//! A query that has the record is verified before it is answered, and its response is signed ([`crate::nameserver::signed`]). The
//! messages of a transfer are a chain: each MAC covers the previous one (§5.3.1). [`Signer`] signs the messages of one side;
//! [`verify`] checks a request, [`Signer::verify`] the response to a request of our own, and [`StreamVerifier`] one of many messages.
//!
//! A server "SHOULD" also reject a time that is before the latest one of a key (§5.2.3). Datagrams arrive in any order, and several
//! name servers share a key, so only the fudge limits replays here, as in BIND and Knot.

pub mod keys;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use crate::wire::Name;
use crate::wire::build::Writer;
use crate::wire::message::find_tsig;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::rtype::Class;
use crate::wire::tsig::{Fields, Tsig, TsigError, header_without, put, record_octets, timers};

pub use keys::{Key, KeyError, Keys};

/// The tolerance for clocks in messages that begin here, in seconds (§10 recommends it).
const FUDGE: u16 = 300;

/// An algorithm of keys (RFC 8945 §6). HMAC-MD5 and GSS-TSIG are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC-SHA-1, for old clients.
    Sha1,
    /// HMAC-SHA-224.
    Sha224,
    /// HMAC-SHA-256, the default.
    Sha256,
    /// HMAC-SHA-384.
    Sha384,
    /// HMAC-SHA-512.
    Sha512,
}

/// The name of HMAC-MD5 in wire form, in lower case: the default of some clients.
const MD5: &[u8] = b"\x08hmac-md5\x07sig-alg\x03reg\x03int\0";

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Sha1, Algorithm::Sha224, Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512];

    /// Returns the name, without a dot at the end.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the name in wire form, in lower case.
    fn wire(self) -> &'static [u8] {
        self.row().1
    }

    fn hmac(self) -> hmac::Algorithm {
        self.row().2
    }

    #[inline]
    fn row(self) -> (&'static str, &'static [u8], hmac::Algorithm) {
        match self {
            Algorithm::Sha1 => ("hmac-sha1", b"\x09hmac-sha1\0", hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Algorithm::Sha224 => ("hmac-sha224", b"\x0bhmac-sha224\0", hmac::HMAC_SHA224),
            Algorithm::Sha256 => ("hmac-sha256", b"\x0bhmac-sha256\0", hmac::HMAC_SHA256),
            Algorithm::Sha384 => ("hmac-sha384", b"\x0bhmac-sha384\0", hmac::HMAC_SHA384),
            Algorithm::Sha512 => ("hmac-sha512", b"\x0bhmac-sha512\0", hmac::HMAC_SHA512),
        }
    }

    /// Returns the length of the whole MAC in octets.
    pub fn mac_octets(self) -> usize {
        self.hmac().digest_algorithm().output_len()
    }

    /// Returns the least permitted length of a MAC (§5.2.2.1): half of the whole one, and at least 10 octets.
    fn mac_octets_min(self) -> usize {
        (self.mac_octets() / 2).max(10)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The result of the check of a request.
#[derive(Debug)]
pub enum Verified {
    /// The request is from a holder of the key. The signer is for the response.
    Good(Signer),
    /// The response is NOTAUTH with this error, signed by the signer if there is one (§5.3.2).
    Bad(TsigError, Option<Signer>),
    /// The MAC has a length that no signer makes: FORMERR (§5.2.2.1).
    Malformed,
}

/// Checks a request of the time `now`, in seconds since the epoch, in the order of §5.2: the key, the MAC, the time, the
/// truncation.
pub fn verify(keys: &Keys, message: &[u8], tsig: &Tsig, now: u64) -> Verified {
    let mut name = [0; NAME_OCTETS_MAX];
    let (Some(name), Some(algorithm), Some(fields)) =
        (tsig.key(message, &mut name), tsig.algorithm(message), tsig.fields(message))
    else {
        return Verified::Malformed;
    };
    let Some(key) = keys.find(name).filter(|key| algorithm.eq_ignore_ascii_case(key.algorithm.wire())) else {
        if algorithm.eq_ignore_ascii_case(MD5) {
            keys.note_md5(name);
        }
        return Verified::Bad(TsigError::BADKEY, None);
    };
    let key = Arc::clone(key);
    if !(key.algorithm.mac_octets_min()..=key.algorithm.mac_octets()).contains(&fields.mac.len()) {
        return Verified::Malformed;
    }
    let Some(mac) = mac_of(&key, message, tsig, &fields) else { return Verified::Malformed };
    if verify_slices_are_equal(&mac.as_ref()[..fields.mac.len()], fields.mac).is_err() {
        return Verified::Bad(TsigError::BADSIG, None);
    }
    let is_short = fields.mac.len() < key.mac_octets;
    // RFC 4635 §3.1: a response is not truncated more than the request.
    let mut signer = Signer::new(key, fields.mac);
    signer.fudge = fields.fudge;
    if now.abs_diff(fields.time) > u64::from(fields.fudge) {
        // §5.2.3: the time of the client, so that the client's check passes, and the server's in the other data.
        signer.error = TsigError::BADTIME;
        signer.time_of_client = Some(fields.time);
        return Verified::Bad(TsigError::BADTIME, Some(signer));
    }
    if is_short {
        signer.error = TsigError::BADTRUNC;
        return Verified::Bad(TsigError::BADTRUNC, Some(signer));
    }
    Verified::Good(signer)
}

/// The data before a message in its digest.
enum Preceding<'m> {
    /// The message begins an exchange.
    Nothing,
    /// The MAC of the request.
    Request(&'m [u8]),
    /// The MAC of the previous message of a response: only the timers follow then (§5.3.1).
    Previous(&'m [u8]),
}

/// Returns the whole MAC of a request that ends with this record.
fn mac_of(key: &Key, message: &[u8], tsig: &Tsig, fields: &Fields<'_>) -> Option<hmac::Tag> {
    let header = header_without(message, fields.original_id)?;
    let body = message.get(header.len()..tsig.start())?;
    Some(digest(key, Preceding::Nothing, [&header, body], fields))
}

/// Returns the MAC of a message in two parts (§4.3).
fn digest(key: &Key, before: Preceding<'_>, message: [&[u8]; 2], fields: &Fields<'_>) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&key.hmac);
    if let Preceding::Request(mac) | Preceding::Previous(mac) = before {
        context.update(&(mac.len() as u16).to_be_bytes());
        context.update(mac);
    }
    message.iter().for_each(|part| context.update(part));
    if let Preceding::Previous(_) = before {
        context.update(&timers(fields));
        return context.sign();
    }
    put_variables(&mut context, key, fields);
    context.sign()
}

/// Adds the TSIG variables to a digest (§4.3.3): names in canonical form, without compression.
fn put_variables(context: &mut hmac::Context, key: &Key, fields: &Fields<'_>) {
    context.update(&key.wire);
    context.update(&Class::ANY.0.to_be_bytes());
    context.update(&[0; 4]);
    context.update(key.algorithm.wire());
    context.update(&timers(fields));
    context.update(&fields.error.0.to_be_bytes());
    context.update(&(fields.other.len() as u16).to_be_bytes());
    context.update(fields.other);
}

/// Signs the messages of one side of an exchange: the response to a request, each message of a transfer, or a request.
#[derive(Debug, Clone)]
pub struct Signer {
    key: Arc<Key>,
    /// The last MAC: of the request, then of each message.
    mac: Vec<u8>,
    /// Whether a message has been signed.
    has_begun: bool,
    /// The length of the MACs in octets.
    mac_octets: usize,
    fudge: u16,
    error: TsigError,
    /// The time of a request that is too old or too new.
    time_of_client: Option<u64>,
}

impl Signer {
    /// Returns the signer of the response to a request with this MAC; empty: of a request.
    fn new(key: Arc<Key>, mac: &[u8]) -> Signer {
        let mac_octets = key.mac_octets.max(mac.len());
        let (mac, error) = (mac.to_vec(), TsigError::NONE);
        Signer { key, mac, has_begun: false, mac_octets, fudge: FUDGE, error, time_of_client: None }
    }

    /// Returns the signer of a request by this key.
    pub fn of_request(key: Arc<Key>) -> Signer {
        Signer::new(key, &[])
    }

    /// Signs a request with the key, if there is one, at the time `now`, in seconds since the epoch. The signer is for its answer.
    pub fn sign_request(key: Option<&Arc<Key>>, message: &mut Vec<u8>, now: u64) -> Option<Signer> {
        let mut signer = Signer::of_request(Arc::clone(key?));
        let length = message.len();
        message.resize(length + signer.octets(), 0);
        let signed = signer.sign(message, length, now);
        debug_assert_eq!(signed, Some(message.len()));
        Some(signer)
    }

    /// Returns the key.
    pub fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Returns the last MAC: of the request, or of the last message that was signed.
    pub fn mac(&self) -> &[u8] {
        &self.mac
    }

    /// Returns the number of octets that a signature adds to a message.
    pub fn octets(&self) -> usize {
        let other = if self.time_of_client.is_some() { 6 } else { 0 };
        record_octets(&self.key.wire, self.key.algorithm.wire(), self.mac_octets, other)
    }

    /// Signs the message in the first `length` octets of `buffer` at the time `now`, in seconds since the epoch. Returns the new
    /// length; `None`, and no change, if the buffer has no room.
    pub fn sign(&mut self, buffer: &mut [u8], length: usize, now: u64) -> Option<usize> {
        let server_time = now.to_be_bytes();
        let mut fields = Fields {
            time: self.time_of_client.unwrap_or(now),
            fudge: self.fudge,
            mac: &[],
            original_id: u16::from_be_bytes(*buffer.first_chunk()?),
            error: self.error,
            other: if self.time_of_client.is_some() { &server_time[2..] } else { &[] },
        };
        if length + self.octets() > buffer.len() {
            return None;
        }
        let before = match (self.has_begun, &self.mac[..]) {
            (false, []) => Preceding::Nothing,
            (false, mac) => Preceding::Request(mac),
            (true, mac) => Preceding::Previous(mac),
        };
        let mac = digest(&self.key, before, [&buffer[..length], &[]], &fields);
        self.mac.clear();
        self.mac.extend_from_slice(&mac.as_ref()[..self.mac_octets]);
        self.has_begun = true;
        fields.mac = &self.mac;
        let mut writer = Writer::new(&mut buffer[length..], usize::MAX);
        put(&mut writer, &self.key.wire, self.key.algorithm.wire(), &fields).ok()?;
        let octets = writer.position();
        let additionals = u16::from_be_bytes([buffer[10], buffer[11]]).checked_add(1)?;
        buffer[10..12].copy_from_slice(&additionals.to_be_bytes());
        Some(length + octets)
    }

    /// Returns whether `message` is a response to the request that this signer signed, by a holder of the key, of the time `now`.
    pub fn verify(&self, message: &[u8], now: u64) -> bool {
        // Of a copy: after a forged response, the true one must still be accepted.
        StreamVerifier::new(self.clone()).verify(message, now)
    }
}

/// The maximum number of messages without a signature in a row: §5.3.1, "The client MUST accept up to 99 intermediary messages between
/// signed messages".
const UNSIGNED_MAX: usize = 99;

/// Checks the messages of the answer to a request that was signed, in order (§5.3.1).
pub struct StreamVerifier {
    key: Arc<Key>,
    /// The digest of the last MAC and the messages since then.
    context: hmac::Context,
    /// Whether the first message was checked.
    has_begun: bool,
    unsigned: usize,
}

impl StreamVerifier {
    /// Returns the verifier of the answer to the request that `signer` signed.
    pub fn new(signer: Signer) -> StreamVerifier {
        let context = after(&signer.key, &signer.mac);
        StreamVerifier { key: signer.key, context, has_begun: false, unsigned: 0 }
    }

    /// Returns the key.
    pub fn key(&self) -> &Arc<Key> {
        &self.key
    }

    /// Returns whether the next message, of the time `now`, is from a holder of the key, or can be followed by one that proves it.
    pub fn verify(&mut self, message: &[u8], now: u64) -> bool {
        let Some(tsig) = find_tsig(message) else {
            self.unsigned += 1;
            self.context.update(message);
            return self.has_begun && self.unsigned <= UNSIGNED_MAX;
        };
        self.check(message, &tsig, now).unwrap_or(false)
    }

    fn check(&mut self, message: &[u8], tsig: &Tsig, now: u64) -> Option<bool> {
        let mut name = [0; NAME_OCTETS_MAX];
        let key = Arc::clone(&self.key);
        let is_key = tsig.key(message, &mut name)?.eq_ignore_ascii_case(&key.wire)
            && tsig.algorithm(message)?.eq_ignore_ascii_case(key.algorithm.wire());
        let fields = tsig.fields(message)?;
        let is_long = (key.mac_octets..=key.algorithm.mac_octets()).contains(&fields.mac.len());
        let header = header_without(message, fields.original_id)?;
        self.context.update(&header);
        self.context.update(message.get(header.len()..tsig.start())?);
        match self.has_begun {
            true => self.context.update(&timers(&fields)),
            false => put_variables(&mut self.context, &key, &fields),
        }
        let context = std::mem::replace(&mut self.context, after(&key, fields.mac));
        let is_good = verify_slices_are_equal(context.sign().as_ref().get(..fields.mac.len())?, fields.mac).is_ok();
        (self.has_begun, self.unsigned) = (true, 0);
        let is_timely = now.abs_diff(fields.time) <= u64::from(fields.fudge);
        Some(is_key && is_long && is_good && is_timely && fields.error == TsigError::NONE)
    }

    /// Returns whether all messages up to now were signed, or followed by a signed one.
    pub fn is_complete(&self) -> bool {
        self.has_begun && self.unsigned == 0
    }
}

/// Returns the digest that begins with a MAC.
fn after(key: &Key, mac: &[u8]) -> hmac::Context {
    let mut context = hmac::Context::with_key(&key.hmac);
    context.update(&(mac.len() as u16).to_be_bytes());
    context.update(mac);
    context
}

/// Returns the text of a key's name, without a dot at the end.
fn name_text(name: &Name) -> String {
    let text = name.to_string();
    text.strip_suffix('.').unwrap_or(&text).to_owned()
}
