//! Bearer tokens: a file with a line for each, which holds a hash of the token and never the token.
//!
//! ```text
//! # SHA-256 of the token   user            groups
//! 9f86d081…0f00a08         signpost:admin  system:masters
//! ```
//!
//! Tokens are long and random, so one SHA-256 is enough: they cannot be guessed. Each request compares all lines in constant
//! time, so that its duration reveals nothing.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{self, SHA256, SHA256_OUTPUT_LEN};
use aws_lc_rs::rand;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::auth::identity::{GROUP_AUTHENTICATED, Identity};

/// The maximum number of tokens in a file: each request compares all of them, at about 20 ns each.
pub const TOKENS_MAX: usize = 10_000;
/// The longest token in octets.
const TOKEN_OCTETS_MAX: usize = 4_096;

/// The accepted tokens, hashed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<TokenEntry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct TokenEntry {
    hash: Hash,
    identity: Identity,
    /// The expiry of the token, in seconds since the epoch.
    expires: Option<i64>,
}

/// SHA-256 of a token.
pub type Hash = [u8; SHA256_OUTPUT_LEN];

/// The error of an invalid line in a token file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct TokenFileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The problem, and the expected form.
    pub what: String,
}

impl Tokens {
    /// Reads a token file.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let error = |what: String| TokenFileError { line, what };
            let content = content.split('#').next().unwrap_or_default();
            let mut words = content.split_whitespace();
            let Some(hash) = words.next() else { continue };
            let hash = HEXLOWER_PERMISSIVE
                .decode(hash.as_bytes())
                .ok()
                .and_then(|hash| Hash::try_from(hash).ok())
                .ok_or_else(|| error("the first word must be the SHA-256 of a token: 64 hexadecimal digits".into()))?;
            let user = words.next().ok_or_else(|| error("a user name must follow the hash".into()))?;
            let mut groups: Vec<String> = words.map(str::to_owned).collect();
            groups.push(GROUP_AUTHENTICATED.to_owned());
            if tokens.len() == TOKENS_MAX {
                return Err(error(format!("a token file may hold at most {TOKENS_MAX} tokens")));
            }
            tokens.push(TokenEntry { hash, identity: Identity { user: user.to_owned(), groups }, expires: None });
        }
        Ok(Tokens(tokens))
    }

    /// Adds a token, known by its hash in hexadecimal, until `expires` (seconds since the epoch). Returns whether it was added:
    /// not if `sha256` is not a hash, or if there are [`TOKENS_MAX`] tokens.
    pub fn add(&mut self, sha256: &str, user: &str, groups: &[String], expires: Option<i64>) -> bool {
        let hash = HEXLOWER_PERMISSIVE.decode(sha256.as_bytes()).ok().and_then(|hash| Hash::try_from(hash).ok());
        let Some(hash) = hash.filter(|_| self.0.len() < TOKENS_MAX) else { return false };
        let mut groups = groups.to_vec();
        groups.push(GROUP_AUTHENTICATED.to_owned());
        self.0.push(TokenEntry { hash, identity: Identity { user: user.to_owned(), groups }, expires });
        true
    }

    /// Returns the identity of a token at `now` (seconds since the epoch), and its hash.
    pub fn identify(&self, token: &str, now: i64) -> Option<(Identity, Hash)> {
        if token.is_empty() || token.len() > TOKEN_OCTETS_MAX {
            return None;
        }
        let hash = Hash::try_from(digest::digest(&SHA256, token.as_bytes()).as_ref()).ok()?;
        self.identity_of(&hash, now).map(|identity| (identity.clone(), hash))
    }

    /// Returns the identity of the token with this hash at `now`; `None` if it is unknown or has expired.
    pub fn identity_of(&self, hash: &Hash, now: i64) -> Option<&Identity> {
        let mut found = None;
        for known in &self.0 {
            if verify_slices_are_equal(&known.hash, hash).is_ok() {
                found = Some(known);
            }
        }
        found.filter(|known| known.expires.is_none_or(|expires| now < expires)).map(|known| &known.identity)
    }

    /// Returns the expiry of the token with this hash, in seconds since the epoch.
    pub fn expiry_of(&self, hash: &Hash) -> Option<i64> {
        self.0.iter().find(|known| known.hash == *hash)?.expires
    }
}

/// Returns the line of a token file for `token`, with a newline at the end. `user` and `groups` hold no white space and no `#`.
pub fn line(token: &str, user: &str, groups: &[String]) -> String {
    let hash = HEXLOWER.encode(digest::digest(&SHA256, token.as_bytes()).as_ref());
    format!("{hash} {user} {}", groups.join(" ")).trim_end().to_owned() + "\n"
}

/// Returns a new token: 256 random bits as 43 characters; `None` if the system has no randomness.
pub fn generate() -> Option<String> {
    let mut octets = [0_u8; 32];
    rand::fill(&mut octets).ok()?;
    Some(BASE64URL_NOPAD.encode(&octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let token = generate().expect("randomness");
        let text = format!("# users\n\n{}{}", line(&token, "a", &["g".into(), "h".into()]), line("x", "b", &[]));
        let tokens = Tokens::parse(&text).expect("right");
        assert_eq!(tokens.identify(&token, 0).expect("known").0.groups, ["g", "h", GROUP_AUTHENTICATED]);
        assert_eq!(tokens.identify("x", 0).expect("known").0.user, "b");
        assert_eq!(tokens.identify("y", 0), None);
        assert_eq!(tokens.identify("", 0), None);
    }

    #[test]
    fn tokens_expire() {
        let mut tokens = Tokens::default();
        let hash = HEXLOWER.encode(digest::digest(&SHA256, b"t").as_ref());
        assert!(tokens.add(&hash, "u", &["g".into()], Some(100)));
        assert!(!tokens.add("00", "u", &[], None));
        let (identity, hash) = tokens.identify("t", 99).expect("is known");
        assert_eq!(identity.groups, ["g", GROUP_AUTHENTICATED]);
        assert_eq!(tokens.identify("t", 100), None);
        assert_eq!((tokens.identity_of(&hash, 100), tokens.expiry_of(&hash)), (None, Some(100)));
    }

    #[test]
    fn faults_name_the_line() {
        for text in ["\nxyz alice", "\nabcd alice", &format!("\n{}", "0".repeat(64))] {
            assert_eq!(Tokens::parse(text).map_err(|error| error.line).err(), Some(2), "{text}");
        }
    }
}
