//! The token between the pages of a list: the snapshot's revision and the key where the next page begins.
//!
//! It is URL-safe base64 of the JSON that kube-apiserver writes, although clients must not interpret it. `start` is relative to
//! the listed collection, so a token cannot leave the namespace of a list.

use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};

use super::error::ApiError;

/// A place in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the first page; `None`: continue at the newest revision.
    pub revision: Option<u64>,
    /// The key, relative to the list, after which the next page begins.
    pub after: String,
    /// The number of objects of the snapshot that follow, if it is known.
    pub remaining: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    v: String,
    rv: i64,
    start: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
}

const FORMAT: &str = "meta.k8s.io/v1";
/// The maximum length of a token in octets; a key has at most 63 + 1 + 253.
const TOKEN_OCTETS_MAX: usize = 2_048;

impl ContinueToken {
    /// Returns the token's text.
    pub fn encode(&self) -> String {
        let rv = self.revision.map_or(-1, |revision| i64::try_from(revision).unwrap_or(i64::MAX));
        let written =
            Written { v: FORMAT.to_owned(), rv, start: format!("{}\0", self.after), remaining: self.remaining };
        BASE64URL_NOPAD.encode(serde_json::to_string(&written).unwrap_or_default().as_bytes())
    }

    /// Decodes a token; 400 if it is invalid.
    pub fn decode(text: &str) -> Result<Self, ApiError> {
        let broken = || ApiError::bad_request("continue key is not valid: it must be one that a list returned");
        if text.len() > TOKEN_OCTETS_MAX {
            return Err(broken());
        }
        let octets = BASE64URL_NOPAD.decode(text.trim_end_matches('=').as_bytes()).map_err(|_| broken())?;
        let written: Written = serde_json::from_slice(&octets).map_err(|_| broken())?;
        let after = written.start.strip_suffix('\0').unwrap_or(&written.start);
        let revision = match written.rv {
            -1 => None,
            rv => Some(u64::try_from(rv).ok().filter(|rv| *rv > 0).ok_or_else(broken)?),
        };
        let sane = |octet: u8| octet.is_ascii_graphic();
        if written.v != FORMAT || after.is_empty() || !after.bytes().all(sane) || after.contains("..") {
            return Err(broken());
        }
        Ok(ContinueToken { revision, after: after.to_owned(), remaining: written.remaining })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for (revision, remaining) in [(None, None), (Some(1), None), (Some(518), Some(3))] {
            let token = ContinueToken { revision, after: "ns/a.b-c".to_owned(), remaining };
            assert_eq!(ContinueToken::decode(&token.encode()), Ok(token));
        }
    }

    #[test]
    fn others_are_refused() {
        let bad = |json: &str| BASE64URL_NOPAD.encode(json.as_bytes());
        for text in [
            "x".to_owned(),
            "!!".to_owned(),
            bad("{}"),
            bad(r#"{"v":"v2","rv":1,"start":"a"}"#),
            bad(r#"{"v":"meta.k8s.io/v1","rv":0,"start":"a"}"#),
            bad(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#),
            bad(r#"{"v":"meta.k8s.io/v1","rv":1,"start":""}"#),
            bad(r#"{"v":"meta.k8s.io/v1","rv":1,"start":"../x"}"#),
            "a".repeat(3_000),
        ] {
            assert_eq!(ContinueToken::decode(&text).map_err(|error| error.code), Err(400), "{text}");
        }
    }
}
