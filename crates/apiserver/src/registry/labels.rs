//! The syntax of names, label keys and values, with Kubernetes' messages.

use serde_json::Value;

use crate::cause::Cause;

/// The maximum length of a qualified name's name part, and of a label value, in octets.
const PART_OCTETS_MAX: usize = 63;
/// The maximum length of a DNS subdomain in octets.
pub const SUBDOMAIN_OCTETS_MAX: usize = 253;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                           must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                           regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Returns the error of a name that must be a lower-case DNS subdomain.
pub fn check_subdomain(name: &str) -> Option<String> {
    if name.len() > SUBDOMAIN_OCTETS_MAX {
        return Some(format!("must be no more than {SUBDOMAIN_OCTETS_MAX} bytes"));
    }
    (!name.split('.').all(is_lower_label)).then(|| SUBDOMAIN.to_owned())
}

/// Returns the error of a name that must be one lower-case DNS label.
pub fn check_label(name: &str) -> Option<String> {
    if name.len() > PART_OCTETS_MAX {
        return Some(format!("must be no more than {PART_OCTETS_MAX} bytes"));
    }
    (!is_lower_label(name)).then(|| LABEL.to_owned())
}

/// Returns the error of a key of a label or an annotation: `name` or `prefix/name`.
pub fn check_key(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".to_owned());
        }
        if let Some(what) = check_subdomain(prefix) {
            return Some(format!("prefix part {what}"));
        }
    }
    match name {
        "" => Some("name part must be non-empty".to_owned()),
        _ if name.len() > PART_OCTETS_MAX => Some(format!("name part must be no more than {PART_OCTETS_MAX} bytes")),
        _ => (!is_word(name)).then(|| QUALIFIED.to_owned()),
    }
}

/// Returns the error of the value of a label.
pub fn check_value(value: &str) -> Option<String> {
    match value {
        "" => None,
        _ if value.len() > PART_OCTETS_MAX => Some(format!("must be no more than {PART_OCTETS_MAX} bytes")),
        _ => (!is_word(value)).then(|| LABEL_VALUE.to_owned()),
    }
}

/// Returns the faults of a map of labels at `path`.
pub fn check_labels(path: &str, labels: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        if let Some(what) = check_key(key) {
            causes.push(Cause::invalid(path, &Value::from(key.as_str()), &what));
        }
        if let Some(what) = value.as_str().and_then(check_value) {
            causes.push(Cause::invalid(path, value, &what));
        }
    }
    causes
}

fn is_lower_label(label: &str) -> bool {
    let edge = |octet: &u8| octet.is_ascii_lowercase() || octet.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|octet| edge(octet) || *octet == b'-')
}

/// Accepts letters, digits, dashes, underscores, and dots, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|octet| octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn keys_values_and_names_follow_kubernetes() {
        let long = "a".repeat(64);
        for (key, good) in [
            ("app", true),
            ("example.com/app_1", true),
            ("A.b-c", true),
            ("", false),
            ("/app", false),
            ("a/b/c", false),
            ("Example.com/app", false),
            ("-a", false),
            ("a-", false),
            ("ä", false),
            (long.as_str(), false),
        ] {
            assert_eq!(check_key(key).is_none(), good, "{key}");
        }
        for (value, good) in [("", true), ("x", true), ("A_1.b", true), ("-", false), ("a b", false), (&long, false)] {
            assert_eq!(check_value(value).is_none(), good, "{value}");
        }
        for (name, good) in [("a", true), ("a.b-c", true), ("", false), ("a..b", false), ("A", false), ("a_b", false)] {
            assert_eq!(check_subdomain(name).is_none(), good, "{name}");
        }
        for (name, good) in [("a", true), ("a-1", true), ("a.b", false), ("", false), (long.as_str(), false)] {
            assert_eq!(check_label(name).is_none(), good, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = (check_key(&text), check_value(&text), check_subdomain(&text), check_label(&text));
            let _ = check_labels("spec", Some(&json!({&text: &text})));
        }
    }
}
