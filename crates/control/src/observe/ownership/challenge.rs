//! The challenge of a host: the record that its owner must create, and the evaluation of the answers. Pure.

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;

use super::authorities::{LookupError, TxtAnswer};
use crate::observe::verify::check::text;
use signpost_types::names::challenge_name;
use signpost_types::v1alpha1::route::Challenge;

/// The bytes of a token's MAC that are used: 160 bits, which cannot be guessed.
const TOKEN_OCTETS: usize = 20;

/// The key that tokens are made with.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(not shown)")
    }
}

impl Key {
    /// Returns a key of these bytes, at least 32 of them random.
    pub fn new(octets: &[u8]) -> Self {
        Key(hmac::Key::new(hmac::HMAC_SHA256, octets))
    }

    /// Returns the challenge of `host` for the Route of this namespace and uid: always the same, and different for every other
    /// Route or host.
    pub fn challenge(&self, namespace: &str, uid: &str, host: &str) -> Challenge {
        let host = host.to_ascii_lowercase();
        let mut context = hmac::Context::with_key(&self.0);
        for part in [namespace, uid, &host] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let token = BASE32_NOPAD.encode(&context.sign().as_ref()[..TOKEN_OCTETS]).to_ascii_lowercase();
        let (name, value) = (challenge_name(&host), format!("signpost={token}"));
        let record = format!("{name}. IN TXT \"{value}\"");
        Challenge { name, value, record, verified_until: None }
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Every authoritative server that answers has the record.
    Found,
    /// The record is missing, for this reason.
    Missing(String),
}

impl Proof {
    /// Evaluates the answers for `challenge`. All servers that respond must have the record, and at least one must respond: a
    /// zone in transition is verified when the change has reached all of its servers.
    pub fn of(challenge: &Challenge, found: Result<Vec<TxtAnswer>, LookupError>) -> Proof {
        let answers = match found {
            Ok(answers) => answers,
            Err(why) => return Proof::Missing(why.to_string()),
        };
        let mut silent = None;
        let mut any = false;
        for TxtAnswer { server, address, texts } in answers {
            let server = text(&server);
            match texts {
                Ok(texts) if texts.iter().any(|found| *found == challenge.value.as_bytes()) => any = true,
                Ok(texts) if texts.is_empty() => {
                    return Proof::Missing(format!("{server} ({address}) has no TXT record at {}", challenge.name));
                }
                Ok(_) => {
                    return Proof::Missing(format!(
                        "{server} ({address}) has a TXT record at {} with another value",
                        challenge.name
                    ));
                }
                Err(why) => silent = Some(format!("{server} ({address}) returned no usable answer: {why}")),
            }
        }
        match (any, silent) {
            (true, _) => Proof::Found,
            (false, Some(why)) => Proof::Missing(why),
            (false, None) => Proof::Missing("no name server found".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_stable_and_each_ones_own() {
        let key = Key::new(&[7; 32]);
        let challenge = key.challenge("shop", "u1", "WWW.shop.example");
        assert_eq!(challenge, key.challenge("shop", "u1", "www.shop.example"));
        assert_eq!(challenge.name, "_signpost-challenge.www.shop.example");
        assert_eq!(challenge.record, format!("{}. IN TXT \"{}\"", challenge.name, challenge.value));
        assert_eq!(challenge.value.len(), "signpost=".len() + 32);
        assert_eq!(key.challenge("shop", "u1", "*.shop.example").name, "_signpost-challenge.shop.example");
        for other in [
            key.challenge("shop", "u2", "www.shop.example"),
            key.challenge("shopu", "1", "www.shop.example"),
            key.challenge("shop", "u1", "ww.shop.example"),
            Key::new(&[8; 32]).challenge("shop", "u1", "www.shop.example"),
        ] {
            assert_ne!(other.value, challenge.value);
        }
        assert!(!format!("{key:?}").contains('7'));
    }

    #[test]
    fn every_server_that_answers_must_have_the_record() {
        let challenge = Key::new(&[7; 32]).challenge("shop", "u1", "www.shop.example");
        let testimony = |texts: Result<&[&str], &str>| TxtAnswer {
            server: "ns.example.".parse().expect("a name"),
            address: std::net::Ipv4Addr::LOCALHOST.into(),
            texts: texts.map(|all| all.iter().map(|text| text.as_bytes().to_vec()).collect()).map_err(str::to_owned),
        };
        let value = challenge.value.as_str();
        let good = || testimony(Ok(&[value, "v=spf1 -all"]));
        let silent = || testimony(Err("no answer"));
        for (what, found, verified) in [
            ("all", Ok(vec![good(), good()]), true),
            ("one of two does not answer", Ok(vec![good(), silent()]), true),
            ("one of two has nothing", Ok(vec![good(), testimony(Ok(&[]))]), false),
            ("another record", Ok(vec![testimony(Ok(&["signpost=x"]))]), false),
            ("silence", Ok(vec![silent()]), false),
            ("no server", Ok(vec![]), false),
            ("no zone", Err(LookupError::NoZone("shop.example".to_owned())), false),
        ] {
            assert_eq!(Proof::of(&challenge, found) == Proof::Found, verified, "{what}");
        }
    }
}
