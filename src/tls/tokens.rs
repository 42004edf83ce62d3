//! Bearer tokens: 256 random bits, kept by the server only as their SHA-256.
//!
//! `tokens.json` is an array of `{"sha256": "<64 hex digits>", "user": "…", "groups": ["…"]}`. A plain hash is enough, since
//! nobody can guess 256 random bits. Taking an entry out revokes the token at the next start.

use std::path::Path;

use aws_lc_rs::{digest, rand};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde::{Deserialize, Serialize};

use super::{Error, files};

/// One line of `tokens.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// SHA-256 of the token's text, in lower-case hexadecimal.
    pub sha256: String,
    /// User name of who has the token.
    pub user: String,
    /// Groups of that user.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// A new token: `signpost-` and 256 random bits in base64url. The prefix lets scanners for leaked secrets know it.
pub fn generate() -> Result<String, Error> {
    let mut secret = [0; 32];
    rand::fill(&mut secret).map_err(|_| Error::Make("the system gives no random numbers".to_owned()))?;
    Ok(format!("signpost-{}", BASE64URL_NOPAD.encode(&secret)))
}

/// What is kept of a token.
pub fn sha256(token: &str) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, token.as_bytes()).as_ref())
}

/// The entries of the file; none if it is not there.
pub fn load(path: &Path) -> Result<Vec<TokenEntry>, Error> {
    let Some(text) = files::read(path)? else { return Ok(Vec::new()) };
    let damaged = |reason: String| Error::Damaged { path: path.to_owned(), reason };
    let entries: Vec<TokenEntry> = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let is_hash = |text: &str| HEXLOWER.decode(text.as_bytes()).is_ok_and(|octets| octets.len() == 32);
    match entries.iter().find(|entry| !is_hash(&entry.sha256)) {
        Some(entry) => Err(damaged(format!("\"sha256\" of {} is not 64 lower-case hexadecimal digits", entry.user))),
        None => Ok(entries),
    }
}

/// Replaces the file.
pub fn save(path: &Path, entries: &[TokenEntry]) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(entries).expect("strings alone, which JSON can hold");
    files::write_private(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_only_their_hash_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        let (one, two) = (generate().expect("makes"), generate().expect("makes"));
        assert_ne!(one, two);
        let entries = vec![TokenEntry { sha256: sha256(&one), user: "u".to_owned(), groups: vec!["g".to_owned()] }];
        save(&path, &entries).expect("saves");
        assert_eq!(load(&path).expect("loads"), entries);
        assert!(!std::fs::read_to_string(&path).expect("reads").contains(&one));
    }

    #[test]
    fn damage_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens.json");
        for text in ["", "{}", r#"[{"sha256": "00", "user": "u"}]"#, r#"[{"sha256": "", "user": "u", "more": 1}]"#] {
            std::fs::write(&path, text).expect("writes");
            let error = load(&path).expect_err(text).to_string();
            assert!(error.contains("tokens.json"), "{error}");
        }
    }
}
