//! The conflicts of objects that claim one zone or one host: one table, whose first rule that decides counts.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::{Mode, Name, Shard, Source};

/// A claim to a zone or to a host.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// `None`: a Router that no source wrote.
    pub source: Option<&'a Source>,
    pub mode: Mode,
    pub since: Option<Timestamp>,
    /// The shard, if one object claims a host on several.
    pub shard: &'a str,
}

/// A rule: less comes first.
type Rule = fn(&Claim<'_>, &Claim<'_>) -> Ordering;

/// The rules, each with its reason for the loser.
pub static RULES: [(&str, Rule); 5] = [
    ("a Router that no source wrote", |a, b| a.source.is_some().cmp(&b.source.is_some())),
    // A source that is only shown takes nothing from one that is published.
    ("published", |a, b| b.mode.cmp(&a.mode)),
    // As in Gateway API: the oldest, then the first by namespace and name.
    ("older", |a, b| a.since.cmp(&b.since)),
    ("first by name", |a, b| place(a).cmp(&place(b))),
    ("first by shard", |a, b| a.shard.cmp(b.shard)),
];

/// Returns which claim comes first.
pub fn order(a: &Claim<'_>, b: &Claim<'_>) -> Ordering {
    RULES.iter().map(|(_, rule)| rule(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Returns the rule that decides between the first claim and another one.
pub fn decided_by(first: &Claim<'_>, other: &Claim<'_>) -> &'static str {
    RULES.iter().find(|(_, rule)| rule(first, other).is_ne()).map_or("the same", |(reason, _)| reason)
}

/// Returns the parts of a name in the order of Gateway API.
fn place<'a>(claim: &Claim<'a>) -> Option<(&'a str, &'a str, &'a str)> {
    claim.source.map(|source| (&*source.namespace, &*source.name, source.kind))
}

impl Shard {
    pub fn claim(&self) -> Claim<'_> {
        Claim { source: Some(&self.source), mode: self.mode, since: self.origin.since, shard: &self.name }
    }
}

impl Name {
    pub fn claim(&self) -> Claim<'_> {
        Claim { source: Some(&self.source), mode: self.mode, since: self.origin.since, shard: &self.shard }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table, with two claims between which it alone decides; the first wins.
    #[test]
    fn each_rule_decides() {
        let source = |namespace: &str, name: &str| Source {
            kind: "HTTPRoute",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let (bank, shop, second) = (source("bank", "z"), source("shop", "a"), source("shop", "b"));
        let year = |year: i64| Timestamp::from_second(year * 31_557_600).ok();
        let claim = |source, mode, since, shard| Claim { source, mode, since, shard };
        let rows = [
            (
                "a Router that no source wrote",
                claim(None, Mode::Show, year(9), "z"),
                claim(Some(&bank), Mode::Publish, year(1), "a"),
            ),
            (
                "published",
                claim(Some(&shop), Mode::Publish, year(9), "z"),
                claim(Some(&bank), Mode::Show, year(1), "a"),
            ),
            ("older", claim(Some(&shop), Mode::Publish, year(1), "z"), claim(Some(&bank), Mode::Publish, year(9), "a")),
            (
                "first by name",
                claim(Some(&bank), Mode::Publish, year(1), "z"),
                claim(Some(&shop), Mode::Publish, year(1), "a"),
            ),
            (
                "first by name",
                claim(Some(&shop), Mode::Publish, year(1), "z"),
                claim(Some(&second), Mode::Publish, year(1), "a"),
            ),
            (
                "first by shard",
                claim(Some(&shop), Mode::Publish, year(1), "a"),
                claim(Some(&shop), Mode::Publish, year(1), "z"),
            ),
        ];
        for (reason, first, other) in rows {
            assert_eq!((order(&first, &other), order(&other, &first)), (Ordering::Less, Ordering::Greater), "{reason}");
            assert_eq!(decided_by(&first, &other), reason);
        }
        let rows: Vec<&str> = rows.map(|(reason, ..)| reason).into();
        assert!(RULES.iter().all(|(reason, _)| rows.contains(reason)), "a row has no case");
    }
}
