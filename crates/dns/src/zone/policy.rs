//! The operator's settings for some zones, by apex or pattern.
//!
//! A zone has the policy of its apex, otherwise that of the longest pattern above it, otherwise the default. The publisher reads policies
//! when a zone is published; no query does.

use std::collections::HashMap;
use std::str::FromStr;

use crate::wire::Name;
use crate::wire::name::NameError;

/// The settings of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ZonePolicy {
    /// Whether the zone has a counter of its requests.
    pub counters: Counters,
}

/// Whether a zone has a counter of its own, of which there is a limited number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counters {
    /// A counter if the zone is among the first ones.
    #[default]
    First,
    /// A counter, before zones without a policy.
    Always,
    /// No counter: the requests are counted with those of other zones.
    Never,
}

/// Some zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ZonePattern {
    /// The zone with this apex.
    Apex(Name),
    /// All zones below this name: `*.NAME`, or `*` for the root.
    Below(Name),
}

impl ZonePattern {
    /// Returns whether one of the patterns contains a zone; without patterns, all zones are meant.
    pub fn any(patterns: &[ZonePattern], apex: &Name) -> bool {
        patterns.is_empty() || patterns.iter().any(|pattern| pattern.contains(apex))
    }

    fn contains(&self, apex: &Name) -> bool {
        match self {
            ZonePattern::Apex(name) => name == apex,
            ZonePattern::Below(name) => apex.is_below(name),
        }
    }
}

impl FromStr for ZonePattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<ZonePattern, NameError> {
        Ok(match text.strip_prefix("*.") {
            _ if text == "*" => ZonePattern::Below(Name::root()),
            Some(above) => ZonePattern::Below(above.parse()?),
            None => ZonePattern::Apex(text.parse()?),
        })
    }
}

/// The policies of a name server.
#[derive(Debug, Default)]
pub struct Policies {
    apexes: HashMap<Name, ZonePolicy>,
    below: HashMap<Name, ZonePolicy>,
}

impl Policies {
    /// Returns the policies for these zones. Of two for equal patterns, the last one applies.
    pub fn new(policies: impl IntoIterator<Item = (ZonePattern, ZonePolicy)>) -> Policies {
        let mut all = Policies::default();
        for (zones, policy) in policies {
            match zones {
                ZonePattern::Apex(apex) => all.apexes.insert(apex, policy),
                ZonePattern::Below(above) => all.below.insert(above, policy),
            };
        }
        all
    }

    /// Returns the policy of a zone.
    pub fn of(&self, apex: &Name) -> ZonePolicy {
        // Without patterns, the names above are not needed: a name server can load 100,000 zones at once.
        let first = apex.parent().filter(|_| !self.below.is_empty());
        let above = || std::iter::successors(first, Name::parent).find_map(|above| self.below.get(&above));
        self.apexes.get(apex).or_else(above).copied().unwrap_or_default()
    }

    /// Returns the apexes of the zones that always have a counter. The zones of a pattern are not known.
    pub(super) fn always_counted(&self) -> impl Iterator<Item = &Name> {
        self.apexes.iter().filter(|(_, policy)| policy.counters == Counters::Always).map(|(apex, _)| apex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pattern_applies() {
        let policy = |text: &str, counters| (text.parse().expect("a pattern"), ZonePolicy { counters });
        let (first, always, never) = (Counters::First, Counters::Always, Counters::Never);
        let all = [policy("*.b.example", always), policy("*", never), policy("a.B.example.", first)];
        for (zone, expected) in [
            ("example.", never),
            (".", first),
            ("b.example.", never),
            ("x.b.example.", always),
            ("y.x.B.Example.", always),
            ("a.b.example.", first),
            ("x.a.b.example.", always),
        ] {
            for at in 0..all.len() {
                let mut policies = all.clone();
                policies.rotate_left(at);
                let found = Policies::new(policies).of(&zone.parse().expect("a name"));
                assert_eq!(found.counters, expected, "{zone}");
            }
        }
        assert_eq!(Policies::default().of(&Name::root()), ZonePolicy::default());
        for text in ["", "*.", "a..b", "*.*..x"] {
            assert!(text.parse::<ZonePattern>().is_err(), "{text}");
        }
    }
}
