//! The description of one setting, and the macro that makes everything from the table of settings.

use super::rule::{Arity, Form, Rule, Shape};

/// Makes the settings structs, the list of keys, and the reader from one table.
///
/// The first block has the keys at the top level of the file; every other block is a table of the file. One setting is
/// `/// help`, `field: type = rule, default, option, …;`. The name of the key is the name of the field with dashes. An
/// option is a method of [`Key`]: `common`, `reload`, or `secret`. The caller imports `Reader`.
macro_rules! settings {
    (
        $(#[doc = $top_doc:literal])+
        $Top:ident $top_heading:literal {
            $( $(#[doc = $top_help:literal])+
            $top:ident: $top_type:ty = $top_rule:expr, $top_default:expr $(, $top_option:ident)*; )+
        }
        $(
            $section:ident: $Section:ident $table:literal $heading:literal {
                $( $(#[doc = $help:literal])+
                $field:ident: $type:ty = $rule:expr, $default:expr $(, $option:ident)*; )+
            }
        )+
    ) => {
        $(#[doc = $top_doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Top {
            $( $(#[doc = $top_help])+ pub $top: $top_type, )+
            $( #[doc = concat!("The table `[", $table, "]`: ", $heading, ".")] pub $section: $Section, )+
        }
        $(
            #[doc = concat!("The table `[", $table, "]`: ", $heading, ".")]
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $Section {
                $( $(#[doc = $help])+ pub $field: $type, )+
            }
        )+

        impl $Top {
            pub(super) fn read(reader: &mut Reader<'_>) -> Self {
                let mut keys = KEYS.iter();
                let mut next = || keys.next().expect("KEYS has all fields in this order");
                $Top {
                    $( $top: reader.read(next(), &$top_rule), )+
                    $( $section: $Section { $( $field: reader.read(next(), &$rule), )+ }, )+
                }
            }

            pub(super) fn differing(&self, other: &Self) -> Vec<&'static $crate::config::key::Key> {
                let same = [
                    $( self.$top == other.$top, )+
                    $( $( self.$section.$field == other.$section.$field, )+ )+
                ];
                KEYS.iter().zip(same).filter(|(_, same)| !same).map(|(key, _)| key).collect()
            }

            /// Copies the values that a reload applies.
            pub fn reload(&mut self, new: &Self) {
                let mut reloads = KEYS.iter().map(|key| key.reloads);
                let mut next = || reloads.next().expect("KEYS has all fields in this order");
                $( if next() { self.$top.clone_from(&new.$top); } )+
                $( $( if next() { self.$section.$field.clone_from(&new.$section.$field); } )+ )+
            }
        }

        /// All keys, in the order in which the reference lists them.
        pub static KEYS: std::sync::LazyLock<Vec<$crate::config::key::Key>> = std::sync::LazyLock::new(|| {
            use $crate::config::key::Key;
            vec![
                $( Key::new("", stringify!($top), &$top_rule, $top_default, $top_heading, concat!($($top_help),+))
                    $(.$top_option())*, )+
                $( $( Key::new($table, stringify!($field), &$rule, $default, $heading, concat!($($help),+))
                    $(.$option())*, )+ )+
            ]
        });
    };
}
pub(super) use settings;

/// The default of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Default {
    /// The value as a text; `None`: there is no value.
    pub value: Option<&'static str>,
    /// The default, as help shows it.
    pub shown: &'static str,
}

impl From<&'static str> for Default {
    fn from(value: &'static str) -> Self {
        Default { value: Some(value), shown: value }
    }
}

/// No value by default; `shown` describes the behavior without a value.
pub(super) fn unset(shown: &'static str) -> Default {
    Default { value: None, shown }
}

/// The description of one setting.
#[derive(Debug)]
pub struct Key {
    /// The table of the file that has the key, such as `dns.rate-limit`; empty: the top level.
    pub table: &'static str,
    /// The name within the table, such as `slip`.
    pub name: String,
    /// Both: `dns.rate-limit.slip`.
    pub path: String,
    /// The name of the flag without its dashes: `dns-rate-limit-slip`.
    pub flag: String,
    /// The form of values.
    pub shape: Shape,
    pub default: Default,
    /// The title of the group of settings.
    pub heading: &'static str,
    /// The purpose.
    pub help: String,
    /// Whether help lists the setting first.
    pub is_common: bool,
    /// Whether SIGHUP applies a change; other changes need a restart.
    pub reloads: bool,
    /// Whether messages hide the value.
    pub is_secret: bool,
}

/// The prefix of all environment variables.
pub const VARIABLE_PREFIX: &str = "SIGNPOST_";

impl Key {
    pub(super) fn new<T>(
        table: &'static str,
        field: &str,
        rule: &Rule<T>,
        default: impl Into<Default>,
        heading: &'static str,
        help: &str,
    ) -> Key {
        let name = field.replace('_', "-");
        let path = if table.is_empty() { name.clone() } else { format!("{table}.{name}") };
        Key {
            table,
            name,
            flag: path.replace('.', "-"),
            path,
            shape: rule.shape.clone(),
            default: default.into(),
            heading,
            help: help.trim().to_owned(),
            is_common: false,
            reloads: false,
            is_secret: false,
        }
    }

    pub(super) fn common(self) -> Key {
        Key { is_common: true, ..self }
    }

    pub(super) fn reload(self) -> Key {
        Key { reloads: true, ..self }
    }

    pub(super) fn secret(self) -> Key {
        Key { is_secret: true, ..self }
    }

    /// Returns whether the setting takes several values.
    pub fn is_list(&self) -> bool {
        self.shape.arity != Arity::One
    }

    /// Returns the environment variable, such as `SIGNPOST_DNS_LISTEN`.
    pub fn variable(&self) -> String {
        variable(&self.flag)
    }

    /// Returns the line of the file that sets the value: `listen = ["127.0.0.1:5300"]`.
    pub fn assignment(&self, value: &str) -> String {
        let value = match self.shape.form {
            Form::Boolean | Form::Integer => value.to_owned(),
            Form::Tables { example, .. } => example.to_owned(),
            _ => format!("\"{value}\""),
        };
        if self.is_list() { format!("{} = [{value}]", self.name) } else { format!("{} = {value}", self.name) }
    }

    /// Returns a valid value.
    pub fn example(&self) -> &'static str {
        match (self.default.value, self.shape.form, self.shape.value_name) {
            (Some(value), ..) if !value.is_empty() && !value.contains(',') => value,
            (_, Form::Path, "DIR") => "/var/lib/signpost",
            (_, Form::Path, _) => "/etc/signpost/file",
            (_, _, "ADDR:PORT") => "192.0.2.53:853",
            (_, _, "ADDR[:PORT]" | "[NAME=]ADDR[:PORT]") => "192.0.2.53",
            (_, _, "NAME=ADDR[,ADDR]") => "ns1.apps.example.com=192.0.2.53",
            (_, _, "ALPN[:PORT]") => "dot",
            (_, _, "CLASS=ZONE") => "nginx=web.apps.example.com",
            (_, _, "KEY=VALUE") => "team=shop",
            (_, _, "DOMAIN") => "apps.example.org",
            (_, _, "URL") => "https://host.example/path",
            (_, _, "ADDRESS") => "dns@example.com",
            (_, _, "PREFIX") => "192.0.2.0/24",
            (_, _, "NAMESPACE/NAME") => "signpost/name",
            (_, Form::Text, "NAME") => "apps.example.com",
            (_, Form::Boolean, _) => "true",
            (_, Form::Integer, _) => "100",
            (_, _, "HEX") => "32 hexadecimal digits",
            _ => self.shape.words.first().copied().unwrap_or("text"),
        }
    }
}

pub(super) fn variable(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// Returns the name that is most similar to `unknown`, if at most a third of its letters differ.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // People confuse these characters.
    let plain = |name: &str| name.replace(['_', '.'], "-").to_ascii_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::levenshtein(&plain(unknown), &plain(name)), name))
        .filter(|(distance, name)| *distance <= name.len().max(unknown.len()).div_ceil(3))
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEYS;

    #[test]
    fn names_are_unique_and_plain() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.flag != key.flag), "{} twice", key.flag);
            assert!(key.flag.bytes().all(|octet| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{}", key.flag);
            assert!(key.help.ends_with('.') && !key.help.contains("  "), "{}: {}", key.path, key.help);
        }
        let common = KEYS.iter().filter(|key| key.is_common).count();
        assert!((12..=16).contains(&common), "{common}");
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        let names = || KEYS.iter().map(|key| key.path.as_str());
        for (unknown, suggestion) in [
            ("dns_listen", Some("dns.listen")),
            ("dns.listn", Some("dns.listen")),
            ("nameservers", Some("nameserver")),
            ("datadir", Some("data-dir")),
            ("colour", None),
        ] {
            assert_eq!(nearest(unknown, names()), suggestion, "{unknown}");
        }
    }
}
