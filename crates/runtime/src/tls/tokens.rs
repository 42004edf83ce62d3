//! Bearer tokens: 256 random bits, kept by the server only as their SHA-256.
//!
//! The file `tokens` has one line per token: the hash in hexadecimal, the user's name, and groups, separated by spaces. After `#`
//! is the machine that has the token, if several API servers share the file. A line that begins with `#` is a comment. A plain
//! hash is enough, because 256 random bits cannot be guessed. Removing a line revokes the token, and a running server detects the
//! change. These are the tokens of the platform's own processes and of its first administrator; those of other users are in the
//! store of [users](super::users).

use std::path::Path;

use super::{Error, files};
use aws_lc_rs::{digest, rand};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEntry {
    /// SHA-256 of the token's text, in lower-case hexadecimal.
    pub sha256: String,
    /// The user of the token, without spaces.
    pub user: String,
    /// Groups of that user, without spaces.
    pub groups: Vec<String>,
    /// The machine whose kubeconfig has the token, if API servers share the file.
    pub machine: Option<String>,
}

/// Returns a new token: `signpost-` and 256 random bits in base64url. The prefix lets scanners for leaked secrets know it.
pub fn generate() -> Result<String, Error> {
    let mut secret = [0; 32];
    rand::fill(&mut secret).map_err(|_| Error::Make("the system returned no random numbers".to_owned()))?;
    Ok(format!("signpost-{}", BASE64URL_NOPAD.encode(&secret)))
}

/// Returns the stored form of a token.
pub fn sha256(token: &str) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, token.as_bytes()).as_ref())
}

/// Returns the entries of the file; none if it is not there.
pub fn load(path: &Path) -> Result<Vec<TokenEntry>, Error> {
    let Some(text) = files::read(path)? else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let (line, machine) = line.split_once('#').map_or((line, None), |(line, machine)| (line, Some(machine.trim())));
        let mut words = line.split_whitespace().map(str::to_owned);
        let Some(sha256) = words.next() else { continue };
        let damaged = |what: &str| Error::Damaged { path: path.to_owned(), reason: format!("line {number}: {what}") };
        if !HEXLOWER.decode(sha256.as_bytes()).is_ok_and(|octets| octets.len() == 32) {
            return Err(damaged("the first word must be 64 lower-case hexadecimal digits"));
        }
        let user = words.next().ok_or_else(|| damaged("a user name must follow the hash"))?;
        entries.push(TokenEntry { sha256, user, groups: words.collect(), machine: machine.map(str::to_owned) });
    }
    Ok(entries)
}

/// Replaces the file.
pub fn save(path: &Path, entries: &[TokenEntry]) -> Result<(), Error> {
    let mut text = "# SHA-256 of a token, user, groups. To revoke a token, delete its line.\n".to_owned();
    for entry in entries {
        let words = [&entry.sha256, &entry.user].into_iter().chain(&entry.groups);
        text.push_str(&words.map(String::as_str).collect::<Vec<_>>().join(" "));
        if let Some(machine) = &entry.machine {
            text.push_str(&format!(" # {machine}"));
        }
        text.push('\n');
    }
    files::write_private(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_only_their_hash_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let (one, two) = (generate().expect("makes"), generate().expect("makes"));
        assert_ne!(one, two);
        let entries = vec![TokenEntry {
            sha256: sha256(&one),
            user: "u".to_owned(),
            groups: vec!["g".to_owned()],
            machine: Some("m".to_owned()),
        }];
        save(&path, &entries).expect("saves");
        assert_eq!(load(&path).expect("loads"), entries);
        assert!(!std::fs::read_to_string(&path).expect("reads").contains(&one));
    }

    #[test]
    fn damage_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("tokens");
        let hash = "0".repeat(64);
        for text in ["\n00 u".to_owned(), format!("# x\n{hash}"), format!("\n{hash}0 u")] {
            std::fs::write(&path, &text).expect("writes");
            let error = load(&path).expect_err(&text).to_string();
            assert!(error.contains("tokens: line 2: "), "{error}");
        }
    }
}
