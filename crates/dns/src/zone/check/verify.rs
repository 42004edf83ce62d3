//! Verification of a zone's signatures by the keys at its apex (RFC 4034 §3.1.8.1, RFC 4035 §5.3), without a chain of trust.
//!
//! Signatures of one owner are verified together, owners on several threads: this is the slowest part of a check, some 0.1 ms
//! per signature. Those with a wrong key, signer, or number of labels are skipped: [`super::signed`] reports them.

use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
    RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY, VerificationAlgorithm,
};

use super::report::{Reporter, found};
use super::signed::{RRSIG_FIXED_OCTETS, Signature, key_tag, zone_keys};
use super::{CheckContext, Code};
use crate::wire::{Class, Name, RecordType, rdata};
use crate::zone::parallel::in_order;
use crate::zone::rrset::Rrset;

/// Verifies the signatures of `owners`, for which the zone is authoritative.
pub(super) fn check(view: &CheckContext<'_>, owners: &[(&Name, &[Rrset])], threads: usize, report: &mut Reporter<'_>) {
    let zone = view.zone;
    let keys: Vec<Key> = zone_keys(zone.get(zone.apex(), RecordType::DNSKEY)).map(Key::read).collect();
    for key in keys.iter().filter(|key| matches!(key.verifier, Verifier::Unknown)) {
        found!(report: Code::RrsigUnchecked, zone.apex(), RecordType::DNSKEY;
            "signatures by the key {} of algorithm {} were not verified: unsupported algorithm or key length", key.tag, key.algorithm);
    }
    let check = |(owner, rrsets): &(&Name, &[Rrset])| verify(zone.apex(), &keys, owner, rrsets);
    in_order(threads.max(1), owners, check, |(owner, _), wrong| {
        for (covered, key_tag) in wrong {
            found!(report: Code::RrsigWrong, owner, RecordType::RRSIG;
                "the RRSIG over {owner} {covered} by the key {key_tag} is not valid: the records, the key, or the \
                 signature have changed; sign the zone again");
        }
    });
}

/// Returns the type and the key tag of each of an owner's signatures that no key of the zone made over the present records.
fn verify(apex: &Name, keys: &[Key], owner: &Name, rrsets: &[Rrset]) -> Vec<(RecordType, u16)> {
    let (mut wrong, mut scratch) = (Vec::new(), Vec::new());
    let signatures = rrsets.iter().filter(|rrset| rrset.rtype == RecordType::RRSIG).flat_map(|rrset| &rrset.rdata);
    for data in signatures {
        let Some(signature) = Signature::read(data) else { continue };
        let Some(rrset) = rrsets.iter().find(|rrset| rrset.rtype == signature.covered) else { continue };
        let Ok((signer, octets)) = Name::split_from(&data[RRSIG_FIXED_OCTETS..]) else { continue };
        if signer != *apex || usize::from(signature.labels) > owner.label_count() {
            continue;
        }
        let (covered, tag) = (signature.covered, signature.key_tag);
        // Several keys may have one tag (RFC 4034 appendix B). A revoked key signs only the keys (RFC 5011 §2.1).
        let mut candidates = keys.iter().filter(|key| {
            (key.tag, key.algorithm) == (tag, signature.algorithm) && (!key.revoked || covered == RecordType::DNSKEY)
        });
        if candidates.clone().next().is_none() {
            continue;
        }
        signed_octets(owner, rrset, &signature, data, &signer, &mut scratch);
        let valid = candidates.any(|key| match &key.verifier {
            Verifier::Unknown => true,
            Verifier::Broken => false,
            Verifier::Key(public) => public.verify_sig(&scratch, octets).is_ok(),
        });
        if !valid {
            wrong.push((covered, tag));
        }
    }
    wrong
}

/// Writes the signed octets to `out` (RFC 4034 §3.1.8.1): the signature's fields except the signature itself, then the records
/// in canonical form and order.
fn signed_octets(owner: &Name, rrset: &Rrset, signature: &Signature, data: &[u8], signer: &Name, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&data[..RRSIG_FIXED_OCTETS]);
    out.extend_from_slice(signer.to_lowercase().as_wire());
    // RFC 4035 §5.3.2: a record from a wildcard was signed under the wildcard's name. The labels are at most the owner's.
    let mut head = Vec::new();
    let labels = usize::from(signature.labels);
    let expanded = owner.label_count() - labels;
    if expanded > 0 {
        head.extend_from_slice(b"\x01*");
    }
    for label in owner.labels().skip(expanded) {
        head.push(label.len() as u8);
        head.extend_from_slice(label);
    }
    head.push(0);
    head.make_ascii_lowercase();
    head.extend_from_slice(&rrset.rtype.0.to_be_bytes());
    head.extend_from_slice(&Class::IN.0.to_be_bytes());
    head.extend_from_slice(&signature.original_ttl.to_be_bytes());
    for data in canonical_order(rrset) {
        out.extend_from_slice(&head);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(&data);
    }
}

/// Returns the data of an RRset in canonical form, in canonical order, each once (RFC 4034 §6.2, §6.3).
pub(super) fn canonical_order(rrset: &Rrset) -> Vec<std::borrow::Cow<'_, [u8]>> {
    let mut data: Vec<_> = rrset.rdata.iter().map(|data| rdata::canonical(rrset.rtype, data)).collect();
    data.sort_unstable();
    data.dedup();
    data
}

/// A key of the zone.
struct Key {
    tag: u16,
    algorithm: u8,
    revoked: bool,
    verifier: Verifier,
}

enum Verifier {
    Key(ParsedPublicKey),
    /// The algorithm is known, but the key is not valid for it: no signature is valid.
    Broken,
    /// The signatures of the key cannot be verified here.
    Unknown,
}

impl Key {
    /// `data` has the four octets in front of the key at least.
    fn read(data: &[u8]) -> Key {
        let (algorithm, public) = (data[3], &data[4..]);
        // The IANA registry of DNSSEC algorithm numbers.
        let verifier = match algorithm {
            5 | 7 => rsa(public, &RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
            8 => rsa(public, &RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
            10 => rsa(public, &RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
            // RFC 6605 §4: a point without the octet that marks it as not compressed.
            13 => parsed(&ECDSA_P256_SHA256_FIXED, &[&[4], public].concat()),
            14 => parsed(&ECDSA_P384_SHA384_FIXED, &[&[4], public].concat()),
            15 => parsed(&ED25519, public),
            _ => Verifier::Unknown,
        };
        Key { tag: key_tag(data), algorithm, revoked: data[1] & 0x80 != 0, verifier }
    }
}

fn parsed(algorithm: &'static dyn VerificationAlgorithm, public: &[u8]) -> Verifier {
    ParsedPublicKey::new(algorithm, public).map_or(Verifier::Broken, Verifier::Key)
}

/// Returns a key in the form of RFC 3110 §2: the exponent, its length before it in one octet or three, and the modulus.
fn rsa(public: &[u8], parameters: &'static aws_lc_rs::signature::RsaParameters) -> Verifier {
    let (length, rest) = match public {
        [0, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [length, rest @ ..] => (usize::from(*length), rest),
        [] => return Verifier::Broken,
    };
    let Some((exponent, modulus)) = rest.split_at_checked(length) else { return Verifier::Broken };
    let [exponent, modulus] = [exponent, modulus].map(|number| {
        let zeros = number.iter().take_while(|octet| **octet == 0).count();
        &number[zeros..]
    });
    if !(128..=1024).contains(&modulus.len()) {
        return Verifier::Unknown;
    }
    let components = PublicKeyComponents { n: modulus, e: exponent };
    components.to_parsed_public_key(parameters).map_or(Verifier::Broken, Verifier::Key)
}
