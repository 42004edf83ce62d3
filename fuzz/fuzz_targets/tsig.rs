//! Arbitrary octets as a signed message, and as a message to sign. The properties: no panic; an accepted signature is one to hickory-proto,
//! too; what is signed here, request and response, verifies here and there; and a signed message with a changed octet does not,
//! except where the octet is not signed (the identifier, the case of the names of key and algorithm).

#![no_main]

use std::sync::{Arc, LazyLock};

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::tsig::TsigAlgorithm;
use hickory_proto::rr::{Name, TSigner};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};
use libfuzzer_sys::fuzz_target;
use signpost_dns::tsig::{Key, Keys, Signer, Verified, verify};
use signpost_dns::wire::message::find_tsig;

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = b"a secret of some length";
const KEYS: [(&str, &str, TsigAlgorithm); 3] = [
    ("a.", "hmac-sha256", TsigAlgorithm::HmacSha256),
    ("B.example.", "hmac-sha384", TsigAlgorithm::HmacSha384),
    ("c.", "hmac-sha512", TsigAlgorithm::HmacSha512),
];

/// Our keys, and the signers of the other implementation.
static BOTH: LazyLock<(Keys, Vec<TSigner>)> = LazyLock::new(|| {
    let key = |(name, algorithm, _): &(&str, &str, _)| {
        Key::new(name.parse().expect("a name"), algorithm, SECRET).expect("a key")
    };
    let signer = |(name, _, algorithm): &(&str, _, TsigAlgorithm)| {
        let name = Name::from_ascii(name).expect("a name");
        TSigner::new(SECRET.to_vec(), algorithm.clone(), name, 300).expect("a supported algorithm")
    };
    (Keys::new(KEYS.iter().map(key)).expect("three keys"), KEYS.iter().map(signer).collect())
});

fuzz_target!(|input: &[u8]| {
    let (keys, signers) = &*BOTH;
    if let Some(signer) = verified(input) {
        let key = keys.iter().position(|key| Arc::ptr_eq(key, signer.key())).expect("one of the keys");
        assert!(signers[key].verify_message_byte(input, None, true).is_ok());
    }
    let Some((&[key, at_high, at_low, flip], message)) = input.split_first_chunk::<4>() else { return };
    let key = usize::from(key) % KEYS.len();
    // Another signature of the message is a fault of form, and so are octets after it, which hide the signature.
    let mut decoder = BinDecoder::new(message);
    let is_message = Message::read(&mut decoder).is_ok_and(|message| message.signature.is_none()) && decoder.is_empty();
    // hickory-proto verifies a header that it has encoded again, without the reserved bit.
    if !is_message || find_tsig(message).is_some() || message[3] & 0x40 != 0 {
        return;
    }
    let key_of_ours = Arc::clone(keys.iter().nth(key).expect("one of the keys"));
    let Some(request) = signed(&mut Signer::of_request(key_of_ours), message) else { return };
    let Some(mut signer) = verified(&request) else { panic!("our own signature") };
    let mac = signer.mac().to_vec();
    assert_eq!(signers[key].verify_message_byte(&request, None, true).expect("it verifies").0, mac);
    if let Some(response) = signed(&mut signer, message) {
        assert!(signers[key].verify_message_byte(&response, Some(&mac), true).is_ok());
    }
    let mut changed = request.clone();
    let at = usize::from(u16::from_be_bytes([at_high, at_low])) % changed.len();
    changed[at] ^= flip;
    if verified(&changed).is_some() {
        assert!(changed[2..].eq_ignore_ascii_case(&request[2..]), "octet {at}");
    }
});

/// Returns the signer of the response to a message whose signature is good.
fn verified(message: &[u8]) -> Option<Signer> {
    match verify(&BOTH.0, message, &find_tsig(message)?, NOW) {
        Verified::Good(signer) => Some(signer),
        Verified::Bad(..) | Verified::Malformed => None,
    }
}

/// Returns the message with a signature; `None` if it would be too long.
fn signed(signer: &mut Signer, message: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = message.to_vec();
    buffer.resize(message.len() + signer.octets(), 0);
    let length = signer.sign(&mut buffer, message.len(), NOW)?;
    buffer.truncate(length);
    (length <= usize::from(u16::MAX)).then_some(buffer)
}
