//! The macro that makes everything from the table of settings, and the description of one setting.

use super::layers::{Given, Layer};
use super::rule::{Arity, Field, Form, Rule, Shape};
use super::settings::{KEYS, Settings};
use super::{Error, Errors};

/// Makes the settings structs, the list of keys, and the reader from one table.
///
/// The first block has the keys at the top level of the file; every other block is a table of the file. One setting is
/// `/// help`, `field: type = rule, default, option, …;`. The name of the key is the name of the field with dashes. An
/// option is a method of [`Key`]: `common`, `reload`, `secret`, or `was("former-flag")`.
macro_rules! settings {
    (
        $(#[doc = $top_doc:literal])+
        $Top:ident $top_heading:literal {
            $( $(#[doc = $top_help:literal])+
            $top:ident: $top_type:ty = $top_rule:expr, $top_default:expr $(, $top_option:ident $(($top_value:expr))?)*; )+
        }
        $(
            $section:ident: $Section:ident $table:literal $heading:literal {
                $( $(#[doc = $help:literal])+
                $field:ident: $type:ty = $rule:expr, $default:expr $(, $option:ident $(($value:expr))?)*; )+
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
            pub(super) fn read(reader: &mut $crate::config::table::Reader<'_>) -> Self {
                $Top {
                    $( $top: reader.read("", stringify!($top), &$top_rule), )+
                    $( $section: $Section { $( $field: reader.read($table, stringify!($field), &$rule), )+ }, )+
                }
            }
        }

        /// All keys, in the order in which the reference lists them.
        pub static KEYS: std::sync::LazyLock<Vec<$crate::config::table::Key>> = std::sync::LazyLock::new(|| {
            use $crate::config::table::Key;
            vec![
                $( Key::new("", stringify!($top), &$top_rule, $top_default, $top_heading, concat!($($top_help),+))
                    .accessed(|old, new| old.$top != new.$top, |to, from| to.$top.clone_from(&from.$top))
                    $(.$top_option($($top_value)?))*, )+
                $( $( Key::new($table, stringify!($field), &$rule, $default, $heading, concat!($($help),+))
                    .accessed(
                        |old, new| old.$section.$field != new.$section.$field,
                        |to, from| to.$section.$field.clone_from(&from.$section.$field),
                    )
                    $(.$option($($value)?))*, )+ )+
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
    /// The default for people.
    pub shown: &'static str,
}

impl From<&'static str> for Default {
    fn from(value: &'static str) -> Self {
        Default { value: Some(value), shown: value }
    }
}

/// No value by default; `shown` says what applies then.
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
    /// How values are written.
    pub shape: Shape,
    /// The default.
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
    /// The name of the flag in earlier versions, where it was different.
    pub former: Option<&'static str>,
    differs: fn(&Settings, &Settings) -> bool,
    take: fn(&mut Settings, &Settings),
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
        let path = path_of(table, field);
        Key {
            table,
            name: field.replace('_', "-"),
            flag: path.replace('.', "-"),
            path,
            shape: rule.shape.clone(),
            default: default.into(),
            heading,
            help: help.trim().to_owned(),
            is_common: false,
            reloads: false,
            is_secret: false,
            former: None,
            differs: |_, _| false,
            take: |_, _| {},
        }
    }

    pub(super) fn accessed(self, differs: fn(&Settings, &Settings) -> bool, take: fn(&mut Settings, &Settings)) -> Key {
        Key { differs, take, ..self }
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

    pub(super) fn was(self, former: &'static str) -> Key {
        Key { former: Some(former), ..self }
    }

    /// Whether the setting takes several values.
    pub fn is_list(&self) -> bool {
        self.shape.arity != Arity::One
    }

    /// The environment variable, such as `SIGNPOST_DNS_LISTEN`.
    pub fn variable(&self) -> String {
        variable(&self.flag)
    }

    /// The line of the file that sets the value: `listen = ["127.0.0.1:5300"]`.
    pub fn assignment(&self, value: &str) -> String {
        let value = match self.shape.form {
            Form::Boolean | Form::Integer => value.to_owned(),
            Form::Tables { .. } => "{ issuer = \"…\", audience = \"…\", jwks = \"…\" }".to_owned(),
            _ => format!("\"{value}\""),
        };
        if self.is_list() { format!("{} = [{value}]", self.name) } else { format!("{} = {value}", self.name) }
    }

    /// A valid value.
    pub fn example(&self) -> &'static str {
        match (self.default.value, self.shape.form, self.shape.value_name) {
            (Some(value), ..) if !value.is_empty() && !value.contains(',') => value,
            (_, Form::Path, "DIR") => "/var/lib/signpost",
            (_, Form::Path, _) => "/etc/signpost/file",
            (_, _, "ADDR[:PORT]" | "[NAME=]ADDR[:PORT]") => "192.0.2.53",
            (_, _, "NAME=ADDR[,ADDR]") => "ns1.apps.example.com=192.0.2.53",
            (_, _, "URL") => "https://host.example/path",
            (_, _, "PREFIX") => "192.0.2.0/24",
            (_, _, "NAMESPACE/NAME") => "signpost/name",
            (_, Form::Text, "NAME") => "apps.example.com",
            (_, Form::Boolean, _) => "true",
            (_, _, "HEX") => "32 hexadecimal digits",
            _ => self.shape.words.first().copied().unwrap_or("text"),
        }
    }
}

/// The variable of a flag.
pub(super) fn variable(flag: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

fn path_of(table: &str, field: &str) -> String {
    let name = field.replace('_', "-");
    if table.is_empty() { name } else { format!("{table}.{name}") }
}

/// The key with this path.
pub fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The key whose flag had this name in an earlier version.
pub fn renamed(flag: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.former == Some(flag))
}

/// The keys whose values differ: first those that a reload applies, then those that need a restart.
pub fn changed(old: &Settings, new: &Settings) -> (Vec<&'static str>, Vec<&'static str>) {
    let differing = KEYS.iter().filter(|key| (key.differs)(old, new));
    let (now, restart): (Vec<_>, Vec<_>) = differing.partition(|key| key.reloads);
    let paths = |keys: Vec<&'static Key>| keys.into_iter().map(|key| key.path.as_str()).collect();
    (paths(now), paths(restart))
}

/// Copies the values that a reload applies.
pub fn reload(settings: &mut Settings, new: &Settings) {
    KEYS.iter().filter(|key| key.reloads).for_each(|key| (key.take)(settings, new));
}

/// Reads settings one by one and collects the errors.
pub struct Reader<'a> {
    layer: &'a Layer,
    errors: Vec<Error>,
}

impl Reader<'_> {
    pub(super) fn read<T, F: Field<T>>(&mut self, table: &str, field: &str, rule: &Rule<T>) -> F {
        let key = find(&path_of(table, field)).expect("KEYS and the reader come from the same table");
        let values = match self.layer.get(key.path.as_str()) {
            Some(given) => self.values(key, given, rule),
            None => defaults(key, rule),
        };
        // A value with an error is missing; the default takes its place until the errors are reported.
        let field = F::collect(values).or_else(|| F::collect(defaults(key, rule)));
        field.expect("a setting that needs a value has a default")
    }

    fn values<T>(&mut self, key: &Key, given: &Given, rule: &Rule<T>) -> Vec<T> {
        let before = self.errors.len();
        let mut error = |found: &str, expected: String| {
            let found = if key.is_secret { "(not shown)" } else { found };
            let message = format!("\"{}\" is \"{found}\": {expected}", key.path);
            self.errors.push(Error { at: Some(given.source.clone()), message });
        };
        let mut values: Vec<T> = Vec::new();
        for text in &given.values {
            match (rule.parse)(text) {
                Ok(value) if values.iter().any(|earlier| (rule.clashes)(earlier, &value)) => {
                    error(text, "given twice".to_owned());
                }
                Ok(value) => values.push(value),
                Err(expected) => error(text, expected),
            }
        }
        if given.values.len() < rule.values_min {
            error("", format!("give at least one {}", rule.shape.value_name));
        } else if given.values.len() > rule.values_max {
            error(&format!("{} values", given.values.len()), format!("must have at most {} values", rule.values_max));
        }
        if self.errors.len() > before { Vec::new() } else { values }
    }
}

fn defaults<T>(key: &Key, rule: &Rule<T>) -> Vec<T> {
    let Some(text) = key.default.value else { return Vec::new() };
    let texts = match key.shape.arity {
        Arity::One => vec![text],
        Arity::List { .. } => text.split(',').collect(),
    };
    texts.into_iter().map(|text| (rule.parse)(text).expect("a default is valid")).collect()
}

/// The settings that the layer means, each for itself.
pub(super) fn settings_of(layer: &Layer) -> Result<Settings, Errors> {
    let mut reader = Reader { layer, errors: Vec::new() };
    let settings = Settings::read(&mut reader);
    Errors::unless_empty(reader.errors).map(|()| settings)
}

/// The name that is most similar to `unknown`, if at most a third of its letters differ.
pub fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|name| (edit_distance(unknown, name), name))
        .filter(|(distance, name)| *distance <= name.len().max(unknown.len()).div_ceil(3))
        .min()
        .map(|(_, name)| name)
}

/// The Levenshtein distance. Dashes, underscores, and dots count as the same letter, because people confuse them.
fn edit_distance(a: &str, b: &str) -> usize {
    let same = |octet: u8| if matches!(octet, b'_' | b'.') { b'-' } else { octet.to_ascii_lowercase() };
    let b: Vec<u8> = b.bytes().map(same).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().map(same).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..at].iter().all(|other| other.flag != key.flag), "{} twice", key.flag);
            assert!(KEYS.iter().all(|other| other.former != Some(&key.flag)), "{} is new and old", key.flag);
            assert!(key.flag.bytes().all(|octet| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-')), "{}", key.flag);
            assert!(key.help.ends_with('.') && !key.help.contains("  "), "{}: {}", key.path, key.help);
        }
        let common = KEYS.iter().filter(|key| key.is_common).count();
        assert!((10..=18).contains(&common), "{common}");
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
