//! The user store: the users in addition to the platform's own processes, their credentials, and revocations.
//!
//! It is the file `users.toml` in the directory of the certificates, mode 0600, replaced atomically. `signpost user` writes it
//! under the lock `users.lock`, so that concurrent commands lose no changes. A running server reads it when it changes and never
//! writes it. The file contains the SHA-256 of a token and the serial number of a client certificate: neither gives access.
//!
//! ```text
//! [[user]]
//! name = "tina"
//! groups = ["signpost:tenant:shop"]
//! created = "2026-01-01T12:00:00Z"
//!
//! [[user.credential]]
//! kind = "token"                       # or "certificate"
//! id = "9f86d081…0f00a08"              # SHA-256 of the token, or serial number of the certificate
//! created = "2026-01-01T12:00:00Z"
//! expires = "2026-04-01T12:00:00Z"     # a token may go without
//!
//! [[revoked]]
//! user = "carl"                        # every certificate of that user from before `at`; or one by `serial`
//! at = "2026-01-02T08:00:00Z"
//! ```

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use super::{Error, files};

/// The name of the file in the directory of the certificates.
pub const FILE: &str = "users.toml";
/// The maximum number of credentials in the store: a server compares a token with all of them.
pub const CREDENTIALS_MAX: usize = 5_000;
/// The maximum number of revocations in the store.
pub const REVOCATIONS_MAX: usize = 10_000;
/// The maximum length of a user or group name in octets.
const NAME_OCTETS_MAX: usize = 253;

/// The users and the revocations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserStore {
    /// The users, in the order of creation.
    #[serde(default, rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<User>,
    /// The revoked certificates, which the CA had signed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<Revoked>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// Name.
    pub name: String,
    /// The groups, which determine the permissions.
    pub groups: Vec<String>,
    /// The time of creation.
    pub created: Timestamp,
    /// The credentials of the user.
    #[serde(default, rename = "credential", skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Credential>,
}

/// A credential of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The kind of the credential.
    pub kind: CredentialKind,
    /// The SHA-256 of a token, or the serial number of a certificate; both in lower-case hexadecimal.
    pub id: String,
    /// The time of creation.
    pub created: Timestamp,
    /// The expiry, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// A kind of credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialKind {
    /// A bearer token.
    Token,
    /// A client certificate.
    Certificate,
}

/// Revoked certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoked {
    /// Revokes all certificates of this user that began before `at`, including those that were created by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Revokes the certificate with this serial number, in lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The time of the revocation.
    pub at: Timestamp,
}

/// The error of a change to the store.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// A file cannot be read or written, or is invalid.
    #[error(transparent)]
    File(#[from] Error),
    /// An invalid name of a user or a group.
    #[error("{what} {name:?} {why}")]
    Name {
        /// `user` or `group`.
        what: &'static str,
        /// The name.
        name: String,
        /// The problem.
        why: &'static str,
    },
    /// A user with that name exists.
    #[error(
        "user {0:?} already exists; revoke it first, or create another credential with \"signpost kubeconfig --user \
         {0}\""
    )]
    Exists(String),
    /// No user with that name exists.
    #[error("NotFound: user {0:?} not found; run \"signpost user list\" to list users")]
    NotThere(String),
    /// No credential has this prefix, or several have it.
    #[error("user {user:?} has {found} credentials that begin with {id:?}; run \"signpost user list\" to list them")]
    Credential {
        /// The user.
        user: String,
        /// The given prefix of the id.
        id: String,
        /// The number of credentials with this prefix.
        found: usize,
    },
    /// A limit is reached.
    #[error("the user store has too many {0}; revoke users that are no longer needed")]
    Full(&'static str),
}

impl UserStore {
    /// Reads the store in `folder`; an empty one if there is none.
    pub fn load(folder: &Path) -> Result<UserStore, Error> {
        let path = folder.join(FILE);
        let Some(text) = files::read(&path)? else { return Ok(UserStore::default()) };
        let damaged = |reason: String| Error::BadFile { path: path.clone(), reason };
        let book: UserStore =
            toml::from_str(&text).map_err(|error| damaged(error.to_string().trim_end().to_owned()))?;
        for user in &book.users {
            check_name("user", &user.name).map_err(|error| damaged(error.to_string()))?;
            for credential in user.credentials.iter().filter(|one| one.kind == CredentialKind::Token) {
                let is_hash = credential.id.len() == 64 && credential.id.bytes().all(is_lower_hex);
                if !is_hash {
                    let reason =
                        format!("the id of a token of {:?} must be 64 lower-case hexadecimal digits", user.name);
                    return Err(damaged(reason));
                }
            }
        }
        Ok(book)
    }

    fn save(&self, folder: &Path) -> Result<(), Error> {
        let text = toml::to_string(self).map_err(|error| Error::Make(format!("the user store: {error}")))?;
        let head = "# Written by \"signpost user\". A running server applies changes within a second.\n\n";
        files::write_private(&folder.join(FILE), format!("{head}{text}").as_bytes())
    }

    /// Adds a user without credentials.
    pub fn add(&mut self, name: &str, groups: Vec<String>, now: Timestamp) -> Result<(), BookError> {
        check_new_name(name)?;
        groups.iter().try_for_each(|group| check_name("group", group))?;
        if self.users.iter().any(|user| user.name == name) {
            return Err(BookError::Exists(name.to_owned()));
        }
        self.users.push(User { name: name.to_owned(), groups, created: whole(now), credentials: Vec::new() });
        Ok(())
    }

    /// Returns the user of that name.
    pub fn user(&self, name: &str) -> Result<&User, BookError> {
        self.users.iter().find(|user| user.name == name).ok_or_else(|| BookError::NotThere(name.to_owned()))
    }

    /// Adds a credential, and removes those of the user that have expired.
    pub fn enter(
        &mut self,
        name: &str,
        kind: CredentialKind,
        id: String,
        now: Timestamp,
        expires: Option<Timestamp>,
    ) -> Result<(), BookError> {
        if self.users.iter().map(|user| user.credentials.len()).sum::<usize>() >= CREDENTIALS_MAX {
            return Err(BookError::Full("credentials"));
        }
        let user = self.users.iter_mut().find(|user| user.name == name);
        let user = user.ok_or_else(|| BookError::NotThere(name.to_owned()))?;
        user.credentials.retain(|one| one.expires.is_none_or(|expires| expires > now));
        user.credentials.push(Credential { kind, id, created: whole(now), expires: expires.map(whole) });
        Ok(())
    }

    /// Returns the earliest start of validity for a new certificate of the user: after the last revocation of all certificates.
    pub fn earliest(&self, name: &str) -> Option<Timestamp> {
        let of_user = self.revoked.iter().filter(|revoked| revoked.user.as_deref() == Some(name));
        of_user.map(|revoked| revoked.at).max().and_then(|at| at.checked_add(1.second()).ok())
    }

    /// Removes a user, and revokes every certificate of that name created before `now`, including those signed by hand with the
    /// CA's key.
    pub fn revoke(&mut self, name: &str, now: Timestamp) -> Result<(), BookError> {
        let before = self.users.len();
        self.users.retain(|user| user.name != name);
        if self.users.len() == before {
            return Err(BookError::NotThere(name.to_owned()));
        }
        self.revoked.retain(|revoked| revoked.user.as_deref() != Some(name));
        self.refuse(Revoked { user: Some(name.to_owned()), serial: None, at: whole(now) })
    }

    /// Removes the only credential of the user whose id begins with `id`.
    pub fn revoke_credential(&mut self, name: &str, id: &str, now: Timestamp) -> Result<Credential, BookError> {
        let user = self.users.iter_mut().find(|user| user.name == name);
        let user = user.ok_or_else(|| BookError::NotThere(name.to_owned()))?;
        let found: Vec<usize> =
            (0..user.credentials.len()).filter(|at| user.credentials[*at].id.starts_with(id)).collect();
        let [at] = found[..] else {
            return Err(BookError::Credential { user: name.to_owned(), id: id.to_owned(), found: found.len() });
        };
        let credential = user.credentials.remove(at);
        if credential.kind == CredentialKind::Certificate {
            self.refuse(Revoked { user: None, serial: Some(credential.id.clone()), at: whole(now) })?;
        }
        Ok(credential)
    }

    fn refuse(&mut self, revoked: Revoked) -> Result<(), BookError> {
        if self.revoked.len() >= REVOCATIONS_MAX {
            return Err(BookError::Full("revocations"));
        }
        self.revoked.push(revoked);
        Ok(())
    }
}

/// Changes the store in `folder` under its lock; nothing is written if `change` fails.
pub fn change<T>(folder: &Path, change: impl FnOnce(&mut UserStore) -> Result<T, BookError>) -> Result<T, BookError> {
    let _lock = lock(folder)?;
    let mut book = UserStore::load(folder)?;
    let outcome = change(&mut book)?;
    book.save(folder)?;
    Ok(outcome)
}

/// Returns the lock of the users' and tokens' files, held until it is dropped.
pub fn lock(folder: &Path) -> Result<File, Error> {
    let path: PathBuf = folder.join("users.lock");
    let at = |source| Error::File { path: path.clone(), source };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path).map_err(at)?;
    file.lock().map_err(at)?;
    Ok(file)
}

/// Times in the file are whole seconds, as in certificates.
fn whole(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn is_lower_hex(octet: u8) -> bool {
    octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet)
}

/// Checks the name of a new user: not a name of the platform itself.
fn check_new_name(name: &str) -> Result<(), BookError> {
    check_name("user", name)?;
    let reserved = ["system:", "signpost:"].iter().any(|prefix| name.starts_with(prefix));
    let why = "is reserved for the platform; names must not begin with \"system:\" or \"signpost:\"";
    if reserved { Err(BookError::Name { what: "user", name: name.to_owned(), why }) } else { Ok(()) }
}

fn check_name(what: &'static str, name: &str) -> Result<(), BookError> {
    let good = |octet: u8| octet.is_ascii_alphanumeric() || b"-._@:/+=".contains(&octet);
    let why = if name.is_empty() || name.len() > NAME_OCTETS_MAX {
        "must have 1 to 253 octets"
    } else if !name.bytes().all(good) {
        "must contain only letters, digits, and - . _ @ : / + ="
    } else {
        return Ok(());
    };
    Err(BookError::Name { what, name: name.to_owned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn what_is_entered_comes_back_from_a_private_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = at("2026-01-01T12:00:00.5Z");
        change(folder.path(), |book| {
            book.add("tina@shop", vec!["signpost:tenant:shop".to_owned()], now)?;
            book.enter("tina@shop", CredentialKind::Token, "0".repeat(64), now, None)
        })
        .expect("enters");
        let book = UserStore::load(folder.path()).expect("reads");
        let user = book.user("tina@shop").expect("is there");
        assert_eq!(user.created, at("2026-01-01T12:00:00Z"));
        assert_eq!(user.credentials[0].id, "0".repeat(64));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(folder.path().join(FILE)).expect("is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let twice = change(folder.path(), |book| book.add("tina@shop", Vec::new(), now));
        assert!(matches!(twice, Err(BookError::Exists(_))), "{twice:?}");
        assert_eq!(UserStore::load(folder.path()).expect("reads"), book, "a failed change writes nothing");
    }

    #[test]
    fn names_are_plain_and_not_the_platforms() {
        let mut book = UserStore::default();
        let now = at("2026-01-01T12:00:00Z");
        for (name, good) in [
            ("tina", true),
            ("oidc:tina@shop.example", true),
            ("", false),
            ("a b", false),
            ("a#b", false),
            ("a\n", false),
            ("system:masters", false),
            ("signpost:admin", false),
        ] {
            assert_eq!(book.add(name, Vec::new(), now).is_ok(), good, "{name:?}");
        }
        assert!(book.add("x", vec!["a,b".to_owned()], now).is_err());
    }

    #[test]
    fn revoking_leaves_a_mark_that_outlasts_the_user() {
        let mut book = UserStore::default();
        let (then, now) = (at("2026-01-01T12:00:00Z"), at("2026-01-02T12:00:00Z"));
        book.add("tina", Vec::new(), then).expect("adds");
        book.enter("tina", CredentialKind::Certificate, "0a".to_owned(), then, Some(now)).expect("enters");
        book.enter("tina", CredentialKind::Token, "0b".to_owned(), then, None).expect("enters");
        assert!(matches!(book.revoke_credential("tina", "0", now), Err(BookError::Credential { found: 2, .. })));
        book.revoke_credential("tina", "0a", now).expect("revokes");
        assert_eq!(book.revoked[0].serial.as_deref(), Some("0a"));
        book.revoke("tina", now).expect("revokes");
        assert!(book.users.is_empty());
        assert_eq!(book.earliest("tina"), Some(at("2026-01-02T12:00:01Z")));
        assert!(matches!(book.revoke("tina", now), Err(BookError::NotThere(_))));
    }

    #[test]
    fn expired_credentials_are_forgotten_when_one_comes() {
        let mut book = UserStore::default();
        let (then, now) = (at("2026-01-01T12:00:00Z"), at("2026-01-02T12:00:00Z"));
        book.add("tina", Vec::new(), then).expect("adds");
        book.enter("tina", CredentialKind::Token, "1".to_owned(), then, Some(now)).expect("enters");
        book.enter("tina", CredentialKind::Token, "2".to_owned(), now, None).expect("enters");
        assert_eq!(book.users[0].credentials.len(), 1);
    }

    #[test]
    fn damage_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, part) in [
            ("[[user]]\nname = 7", "users.toml"),
            ("[[users]]", "unknown field"),
            ("[[user]]\nname=\"a b\"\ngroups=[]\ncreated=\"2026-01-01T12:00:00Z\"", "a b"),
        ] {
            std::fs::write(folder.path().join(FILE), text).expect("writes");
            let error = UserStore::load(folder.path()).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
