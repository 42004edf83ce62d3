//! The `key=value` pairs of a table, which commas separate.

/// The pairs of a table. Keys are known, and unique unless they can repeat.
pub(super) struct Pairs<'t>(Vec<(&'t str, &'t str)>);

impl<'t> Pairs<'t> {
    pub(super) fn read(text: &'t str, keys: &[&str], repeated: &[&str]) -> Result<Self, String> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for pair in text.split(',') {
            let known = || keys.join(", ");
            let (key, value) =
                pair.split_once('=').ok_or_else(|| format!("\"{pair}\" must be KEY=VALUE; keys are {}", known()))?;
            let (key, value) = (key.trim(), value.trim());
            if !keys.contains(&key) {
                return Err(format!("unknown key \"{key}\"; keys are {}", known()));
            }
            if !repeated.contains(&key) && pairs.iter().any(|(other, _)| *other == key) {
                return Err(format!("{key} is set twice"));
            }
            pairs.push((key, value));
        }
        Ok(Pairs(pairs))
    }

    /// Returns the value of a key, which can be empty.
    pub(super) fn one(&self, key: &str) -> Option<&'t str> {
        self.values(key).next()
    }

    /// Returns the value of a key unless it is empty.
    pub(super) fn filled(&self, key: &str) -> Option<&'t str> {
        self.one(key).filter(|value| !value.is_empty())
    }

    /// Returns the values of a key.
    pub(super) fn values(&self, key: &str) -> impl Iterator<Item = &'t str> {
        self.0.iter().filter(move |(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// Reads the values of a key.
    pub(super) fn all<T, E: ToString>(&self, key: &str, read: impl Fn(&str) -> Result<T, E>) -> Result<Vec<T>, String> {
        let named = |value, error: E| format!("{key} \"{value}\": {}", error.to_string());
        self.values(key).map(|value| read(value).map_err(|error| named(value, error))).collect()
    }
}
