//! The path prefixes of Routes that every proxy serves: one rule for the API, the control plane, and the agents.
//!
//! A proxy compares the path of a request octet by octet, as the client sent it, and at whole segments: `/shop` matches `/shop` and
//! `/shop/new`, but not `/shopping`. So a prefix is in the form in which clients send it: the characters of RFC 3986 §3.3, and the
//! codes of all others, such as `%20`, in upper case (RFC 3986 §6.2.2.1). Clients never send some texts: they remove `..`, and do not
//! encode letters. A Route with such a path would get no request.

use std::sync::LazyLock;

use regex::Regex;

use crate::names::{Shape, broken, excludes, matches, patterns};

/// The path prefix that matches every path.
pub const ROOT: &str = "/";

/// The reason why no proxy serves a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path is relative.
    #[error("must start with /")]
    Relative,
    /// White space or a control character.
    #[error("must not contain white space or control characters; percent-encode a space as %20")]
    Space,
    /// A query or a fragment.
    #[error("must not contain a query or a fragment")]
    Query,
    /// A character outside ASCII.
    #[error("must be ASCII; percent-encode the UTF-8 octets of other characters, such as /caf%C3%A9")]
    NotAscii,
    /// A character that is not part of a path (RFC 3986 §3.3).
    #[error(r#"must not contain any of "<>[\]^`{{|}}; percent-encode them, such as %7B"#)]
    Character,
    /// A code that clients do not send, or that is ambiguous.
    #[error(
        "a % must be the code of an octet, such as %20, in upper-case digits; control characters, /, letters, digits, and -._~ \
         must not be encoded"
    )]
    Code,
    /// Two slashes before other characters.
    #[error("must not contain an empty segment (//)")]
    EmptySegment,
    /// A segment that clients remove.
    #[error("must not contain a segment . or ..; clients remove them")]
    DotSegment,
}

/// The conditions on a path. The API rejects a Route by the same table.
pub const PATH: &[Shape<PathError>] = &[
    matches("^/", PathError::Relative),
    excludes(r"[\p{Z}\p{Cc}]", PathError::Space),
    excludes("[?#]", PathError::Query),
    matches("^[[:ascii:]]*$", PathError::NotAscii),
    excludes(r#"["<>\[\\\]^`{|}]"#, PathError::Character),
    matches("^([^%]|%(2[0-9A-C]|3[A-F]|40|5[B-E]|60|7[B-D]|[89A-F][0-9A-F]))*$", PathError::Code),
    excludes("//+[^/]", PathError::EmptySegment),
    excludes("/[.][.]?(/|$)", PathError::DotSegment),
];

/// Checks whether proxies serve a path.
pub fn check(path: &str) -> Result<(), PathError> {
    static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| patterns(PATH));
    broken(PATH, &PATTERNS, path).map_or(Ok(()), Err)
}

/// Returns the path prefix that a Route's `spec.path` means: slashes at its end have no meaning, and an absent path is `/`.
pub fn prefix(path: Option<&str>) -> &str {
    match path.unwrap_or_default().trim_end_matches('/') {
        "" => ROOT,
        path => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servable_paths() {
        for (path, expected) in [
            ("/", None),
            ("/shop", None),
            ("/shop/", None),
            ("/shop//", None),
            ("//", None),
            ("/a.b~c/d-e_f", None),
            ("/a:b@c;d=e,f", None),
            ("/!$&'()*+", None),
            ("/.well-known/x", None),
            ("/..a/b..", None),
            ("/a%20b", None),
            ("/caf%C3%A9", None),
            ("/100%25/%7Bid%7D/%5C", None),
            ("", Some(PathError::Relative)),
            ("shop", Some(PathError::Relative)),
            ("/a b", Some(PathError::Space)),
            ("/a\u{a0}b", Some(PathError::Space)),
            ("/a\n", Some(PathError::Space)),
            ("/a?b", Some(PathError::Query)),
            ("/a#b", Some(PathError::Query)),
            ("/café", Some(PathError::NotAscii)),
            ("/a{b}", Some(PathError::Character)),
            ("/a\\b", Some(PathError::Character)),
            ("/a\"b", Some(PathError::Character)),
            ("/a[b]", Some(PathError::Character)),
            ("/a|b^c`<d>", Some(PathError::Character)),
            ("/a%", Some(PathError::Code)),
            ("/a%2", Some(PathError::Code)),
            ("/a%zz", Some(PathError::Code)),
            ("/caf%c3%a9", Some(PathError::Code)),
            ("/%73hop", Some(PathError::Code)),
            ("/a%2Fb", Some(PathError::Code)),
            ("/a%00", Some(PathError::Code)),
            ("/%7E", Some(PathError::Code)),
            ("/%2E%2E/x", Some(PathError::Code)),
            ("/a//b", Some(PathError::EmptySegment)),
            ("//a", Some(PathError::EmptySegment)),
            ("/a/../b", Some(PathError::DotSegment)),
            ("/.", Some(PathError::DotSegment)),
            ("/a/./", Some(PathError::DotSegment)),
        ] {
            assert_eq!(check(path).err(), expected, "{path:?}");
        }
    }

    #[test]
    fn prefixes() {
        for (path, expected) in [(None, "/"), (Some(""), "/"), (Some("/"), "/"), (Some("//"), "/"), (Some("/a/"), "/a")]
        {
            assert_eq!(prefix(path), expected);
        }
    }
}
