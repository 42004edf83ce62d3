//! Keys, and their text: `key` statements of BIND, and the section `key` of Knot.
//!
//! ```text
//! key "transfer.example" { algorithm hmac-sha256; secret "c2VjcmV0"; };
//!
//! key:
//!   - id: transfer.example
//!     algorithm: hmac-sha256
//!     secret: c2VjcmV0
//! ```
//!
//! As in BIND, `hmac-sha256-128` is a key whose MACs have at least 128 bits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::{hmac, rand};
use data_encoding::BASE64;

use super::{Algorithm, name_text};
use crate::wire::Name;

/// The maximum number of keys. Each query with an unknown key compares its name with all of them.
const KEYS_MAX: usize = 1_024;

/// The maximum length of a secret in octets; `tsig-keygen` and `keymgr` make at most 64.
const SECRET_OCTETS_MAX: usize = 512;

/// A key with its name and algorithm.
#[derive(Clone)]
pub struct Key {
    name: Name,
    /// The name in lower case, in wire form.
    pub(super) wire: Box<[u8]>,
    pub(super) algorithm: Algorithm,
    /// The length of the MACs that are sent, and the least one that is accepted.
    pub(super) mac_octets: usize,
    secret: Box<[u8]>,
    pub(super) hmac: hmac::Key,
}

/// The keys of a server.
#[derive(Default)]
pub struct Keys {
    keys: Vec<Arc<Key>>,
    /// Whether a client that uses HMAC-MD5 has been logged.
    md5: AtomicBool,
}

/// The reason why a text is not a list of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct KeyError {
    /// The line, from 1 on.
    pub line: usize,
    /// The problem, and what to do.
    pub problem: String,
}

/// The reason why a key, or a set of keys, cannot be used, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidKey(String);

impl Key {
    /// Returns a key with this secret; `algorithm` is a name such as `hmac-sha256` or `hmac-sha256-128`.
    ///
    /// # Errors
    ///
    /// The problem, and what to do.
    pub fn new(name: Name, algorithm: &str, secret: &[u8]) -> Result<Key, InvalidKey> {
        let known = || Algorithm::ALL.map(Algorithm::name).join(", ");
        let lower = algorithm.trim_end_matches('.').to_ascii_lowercase();
        let (algorithm, bits) = Algorithm::ALL
            .into_iter()
            .find_map(|known| {
                let rest = lower.strip_prefix(known.name())?;
                let bits =
                    if rest.is_empty() { Some(8 * known.mac_octets()) } else { rest.strip_prefix('-')?.parse().ok() };
                Some((known, bits?))
            })
            .ok_or_else(|| InvalidKey(format!("algorithm \"{lower}\" is not supported; use one of {}", known())))?;
        if bits % 8 != 0 || !(algorithm.mac_octets_min()..=algorithm.mac_octets()).contains(&(bits / 8)) {
            let (least, most) = (8 * algorithm.mac_octets_min(), 8 * algorithm.mac_octets());
            return Err(InvalidKey(format!("{algorithm} can be truncated to {least} to {most} bits, not to {bits}")));
        }
        if !(1..=SECRET_OCTETS_MAX).contains(&secret.len()) {
            return Err(InvalidKey(format!("the secret has {} octets; use 1 to {SECRET_OCTETS_MAX}", secret.len())));
        }
        let wire = name.to_lowercase().as_wire().into();
        let hmac = hmac::Key::new(algorithm.hmac(), secret);
        Ok(Key { name, wire, algorithm, mac_octets: bits / 8, secret: secret.into(), hmac })
    }

    /// Returns a new key with a random secret, as long as its MAC (RFC 2104 §3).
    pub fn generate(name: Name, algorithm: Algorithm) -> Key {
        let mut secret = vec![0; algorithm.mac_octets()];
        rand::fill(&mut secret).expect("the system's generator of random numbers never fails once it is up");
        Key::new(name, algorithm.name(), &secret).expect("a secret of this length is valid")
    }

    /// Returns the name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the algorithm, as in the text of a key.
    pub fn algorithm_text(&self) -> String {
        match self.mac_octets == self.algorithm.mac_octets() {
            true => self.algorithm.to_string(),
            false => format!("{}-{}", self.algorithm, 8 * self.mac_octets),
        }
    }

    /// Returns the secret in Base64.
    pub fn secret_text(&self) -> String {
        BASE64.encode(&self.secret)
    }

    /// Returns the `key` statement of BIND. The text contains the secret.
    pub fn to_bind(&self) -> String {
        let (name, algorithm) = (name_text(&self.name), self.algorithm_text());
        format!("key \"{name}\" {{\n\talgorithm {algorithm};\n\tsecret \"{}\";\n}};\n", self.secret_text())
    }

    /// Returns the section `key` of Knot. The text contains the secret.
    pub fn to_knot(&self) -> String {
        let (name, algorithm) = (name_text(&self.name), self.algorithm.to_string());
        format!("key:\n  - id: {name}\n    algorithm: {algorithm}\n    secret: {}\n", self.secret_text())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (&self.wire, self.algorithm, self.mac_octets) == (&other.wire, other.algorithm, other.mac_octets)
            && self.secret == other.secret
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    /// Writes the key without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.algorithm_text())
    }
}

impl Keys {
    /// Returns these keys.
    ///
    /// # Errors
    ///
    /// A name that two different keys have, or too many keys.
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Result<Keys, InvalidKey> {
        let mut all: Vec<Arc<Key>> = Vec::new();
        for key in keys {
            match all.iter().find(|other| other.wire == key.wire) {
                Some(other) if **other == key => {}
                Some(_) => {
                    return Err(InvalidKey(format!("key {} is there twice, and they differ; remove one", key.name)));
                }
                None => all.push(Arc::new(key)),
            }
        }
        if all.len() > KEYS_MAX {
            return Err(InvalidKey(format!("{} keys; at most {KEYS_MAX} are supported", all.len())));
        }
        Ok(Keys { keys: all, md5: AtomicBool::new(false) })
    }

    /// Returns the key with this name in wire form, in any case.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Key>> {
        self.keys.iter().find(|key| name.eq_ignore_ascii_case(&key.wire))
    }

    /// Returns the key with this name.
    pub fn get(&self, name: &Name) -> Option<&Arc<Key>> {
        self.find(name.as_wire())
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.iter()
    }

    /// Logs, once, that a client uses HMAC-MD5, which certbot and cert-manager do by default.
    #[cold]
    pub(super) fn note_md5(&self, key: &[u8]) {
        let is_known = self.find(key).is_some();
        if is_known && !self.md5.swap(true, Ordering::Relaxed) {
            let key = Name::from_wire(key).map_or_else(|_| String::new(), |name| name_text(&name));
            tracing::warn!(
                key,
                "a client signed with hmac-md5, which is not supported: set dns_rfc2136_algorithm = HMAC-SHA256 (certbot), \
                 tsigAlgorithm: HMACSHA256 (cert-manager), or the algorithm of the key in other clients"
            );
        }
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys
    }
}

impl Eq for Keys {}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.keys).finish()
    }
}

/// Reads keys in either form. Other statements of BIND are an error, because they would be ignored silently.
///
/// # Errors
///
/// The first error, with its line.
pub fn read(text: &str) -> Result<Vec<Key>, KeyError> {
    let tokens = tokens(text)?;
    let is_knot = tokens.iter().any(|token| token.text == ":");
    let keys = if is_knot { read_knot(&tokens) } else { read_bind(&tokens) }?;
    match keys.is_empty() {
        true => Err(KeyError { line: 1, problem: "no key; write one with \"signpost key tsig generate\"".to_owned() }),
        false => Ok(keys),
    }
}

struct Token<'t> {
    line: usize,
    text: &'t str,
}

/// Splits a text into words, quoted strings (without their quotes), and the characters `{ } ; :`, without comments.
fn tokens(text: &str) -> Result<Vec<Token<'_>>, KeyError> {
    let mut tokens = Vec::new();
    for (number, whole) in text.lines().enumerate() {
        let line = number + 1;
        let mut rest = whole.trim();
        // A value of Knot may begin with two slashes, which are Base64.
        let is_value = |tokens: &[Token<'_>]| tokens.last().is_some_and(|token| token.text == ":");
        while !rest.is_empty() && !rest.starts_with('#') && (!rest.starts_with("//") || is_value(&tokens)) {
            let octets = match rest.as_bytes()[0] {
                b'{' | b'}' | b';' | b':' => 1,
                quote @ (b'"' | b'\'') => {
                    let end = rest[1..].find(char::from(quote));
                    let problem = "a quote is not closed; close it on the same line".to_owned();
                    let end = end.ok_or(KeyError { line, problem })?;
                    tokens.push(Token { line, text: &rest[1..=end] });
                    rest = rest[end + 2..].trim_start();
                    continue;
                }
                // Names do not have these characters, Base64 does not either.
                _ => rest.find(|c: char| c.is_whitespace() || "{};:\"'#".contains(c)).unwrap_or(rest.len()),
            };
            tokens.push(Token { line, text: &rest[..octets] });
            rest = rest[octets..].trim_start();
        }
    }
    Ok(tokens)
}

/// The fields of one key.
#[derive(Default)]
struct Draft<'t> {
    name: Option<&'t Token<'t>>,
    algorithm: Option<&'t str>,
    secret: Option<&'t Token<'t>>,
}

impl Draft<'_> {
    fn finish(self, line: usize) -> Result<Key, KeyError> {
        let missing = |what: &str| KeyError { line, problem: format!("the key has no {what}; add it") };
        let name = self.name.ok_or_else(|| missing("name"))?;
        let secret = self.secret.ok_or_else(|| missing("secret"))?;
        let failed = |line: usize, problem: String| KeyError { line, problem };
        let parsed = Name::parse(name.text.as_bytes(), &Name::root())
            .map_err(|error| failed(name.line, format!("key name \"{}\": {error}", name.text)))?;
        let octets = BASE64.decode(secret.text.as_bytes());
        let octets = octets.map_err(|_| failed(secret.line, "the secret is not Base64".to_owned()))?;
        Key::new(parsed, self.algorithm.unwrap_or("hmac-sha256"), &octets)
            .map_err(|error| failed(name.line, error.to_string()))
    }
}

fn read_bind(tokens: &[Token<'_>]) -> Result<Vec<Key>, KeyError> {
    let mut keys = Vec::new();
    let mut rest = tokens;
    while let [word, tail @ ..] = rest {
        let failed = |problem: &str| KeyError { line: word.line, problem: problem.to_owned() };
        if word.text != "key" {
            return Err(failed("expected a key statement: key NAME { algorithm NAME; secret \"BASE64\"; };"));
        }
        let [name, Token { text: "{", .. }, tail @ ..] = tail else {
            return Err(failed("expected key NAME {"));
        };
        let mut draft = Draft { name: Some(name), ..Draft::default() };
        let mut fields = tail;
        loop {
            match fields {
                [Token { text: "algorithm", .. }, value, Token { text: ";", .. }, tail @ ..] => {
                    draft.algorithm = Some(value.text);
                    fields = tail;
                }
                [Token { text: "secret", .. }, value, Token { text: ";", .. }, tail @ ..] => {
                    draft.secret = Some(value);
                    fields = tail;
                }
                [Token { text: "}", .. }, Token { text: ";", .. }, tail @ ..] => {
                    rest = tail;
                    break;
                }
                [Token { text: "}", .. }] => {
                    rest = &[];
                    break;
                }
                [other, ..] => {
                    let problem = format!(
                        "\"{}\" is not expected; expected algorithm NAME;, secret \"BASE64\"; or }};",
                        other.text
                    );
                    return Err(KeyError { line: other.line, problem });
                }
                [] => return Err(failed("the key is not closed; add };")),
            }
        }
        keys.push(draft.finish(word.line)?);
    }
    Ok(keys)
}

fn read_knot(tokens: &[Token<'_>]) -> Result<Vec<Key>, KeyError> {
    let mut rest = match tokens {
        [Token { text: "key", .. }, Token { text: ":", .. }, rest @ ..] => rest,
        [first, ..] => {
            return Err(KeyError { line: first.line, problem: "expected the section \"key:\"".to_owned() });
        }
        [] => return Ok(Vec::new()),
    };
    let mut keys = Vec::new();
    let mut draft: Option<(usize, Draft<'_>)> = None;
    while let [first, tail @ ..] = rest {
        let failed = |problem: &str| KeyError { line: first.line, problem: problem.to_owned() };
        if first.text == "-" {
            if let Some((line, draft)) = draft.take() {
                keys.push(draft.finish(line)?);
            }
            draft = Some((first.line, Draft::default()));
            rest = tail;
            continue;
        }
        let [Token { text: ":", .. }, value, tail @ ..] = tail else {
            return Err(failed("expected FIELD: VALUE"));
        };
        let (_, draft) = draft.as_mut().ok_or_else(|| failed("a key begins with \"- id: NAME\""))?;
        match first.text {
            "id" => draft.name = Some(value),
            "algorithm" => draft.algorithm = Some(value.text),
            "secret" => draft.secret = Some(value),
            _ => return Err(failed("expected id, algorithm or secret")),
        }
        rest = tail;
    }
    if let Some((line, draft)) = draft {
        keys.push(draft.finish(line)?);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let bind = "# a comment\nkey \"One.example\" {\n\talgorithm hmac-sha512;\n\tsecret \"c2VjcmV0\"; // here\n};\n\
                    key two.example. { algorithm HMAC-SHA256-128; secret c2Vj; };";
        let knot = "key:\n  - id: One.example.  # a comment\n    algorithm: hmac-sha512\n    secret: c2VjcmV0\n\n  \
                    - id: two.example\n    secret: 'c2Vj'\n    algorithm: hmac-sha256-128\n";
        let keys = read(bind).expect("valid");
        assert_eq!(format!("{keys:?}"), "[One.example. (hmac-sha512), two.example. (hmac-sha256-128)]");
        assert_eq!(read(knot), Ok(keys.clone()));
        assert_eq!((keys[0].secret_text(), keys[1].mac_octets), ("c2VjcmV0".to_owned(), 16));
        for key in &keys {
            assert_eq!(read(&key.to_bind()), Ok(vec![key.clone()]));
        }
        assert_eq!(read(&keys[0].to_knot()), Ok(vec![keys[0].clone()]));
    }

    #[test]
    fn errors_have_lines() {
        for (text, expected) in [
            ("", "line 1: no key"),
            ("\nzone x {};", "line 2: expected a key statement"),
            ("key a {\n secret x;", "line 1: the key is not closed"),
            ("key a {\n algorithm hmac-sha256;\n};", "line 1: the key has no secret"),
            ("key a {\n secret \"c2Vj\n};", "line 2: a quote is not closed"),
            ("key a {\n secret \"c2V\";\n};", "line 2: the secret is not Base64"),
            ("key a {\n secret c2Vj; algorithm hmac-md5; };", "line 1: algorithm \"hmac-md5\" is not supported"),
            ("key a { secret c2Vj; algorithm hmac-sha1-72; };", "line 1: hmac-sha1 can be truncated to 80 to 160 bits"),
            ("key a { secret c2Vj; algorithm hmac-sha256-130; };", "line 1: hmac-sha256 can be truncated to 128"),
            ("key:\n  id: a", "line 2: a key begins with"),
            ("key:\n - id: a\n   secrt: c2Vj", "line 3: expected id, algorithm or secret"),
            ("key a { secret c2Vj; frobnicate yes; };", "line 1: \"frobnicate\" is not expected"),
            ("key a..b { secret c2Vj; };", "line 1: key name \"a..b\""),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_is_one_key() {
        let key =
            |secret: &[u8]| Key::new("A.example.".parse().expect("a name"), "hmac-sha256", secret).expect("valid");
        let keys = Keys::new([key(b"one"), key(b"one")]).expect("the same key");
        assert_eq!(keys.iter().count(), 1);
        assert!(keys.get(&"a.Example.".parse().expect("a name")).is_some());
        assert!(Keys::new([key(b"one"), key(b"two")]).is_err());
        let generated = Key::generate("a.".parse().expect("a name"), Algorithm::Sha384);
        assert_eq!(generated.secret.len(), 48);
        assert!(!format!("{generated:?}").contains(&generated.secret_text()));
    }
}
