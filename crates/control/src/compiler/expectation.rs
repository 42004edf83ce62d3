//! The expected targets of one shard's names, by its zone.
//!
//! The wildcard verifies every name below it, except for names in the Router's `records`, which have an answer of their own, and
//! are queried separately. Some of these do not resolve to the Router at all ([`NameConflict`]): their answers do not concern any
//! route, and are not queried.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use super::Settings;
use super::former_names::top_label;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, Rrset};

/// The target of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Some of these addresses of each family that has any, and no others.
    Addresses(Box<[IpAddr]>),
    /// The CNAME to this name.
    Alias(Name),
}

/// The expected answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    apex: Name,
    wildcard: Expected,
    explicit: HashMap<Name, Expected>,
    taken: BTreeMap<Box<str>, NameConflict>,
}

/// The reason why a name of the shard does not resolve to its Router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameConflict {
    /// The Router's records delegate the name: it is a separate zone, elsewhere.
    Delegated,
    /// The Router's records make it an alias of this name.
    Alias(Name),
    /// The Router's records give it other addresses.
    Addresses,
    /// The name belongs to a name server.
    NameServer,
}

impl fmt::Display for NameConflict {
    /// Writes the text that follows the name in a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameConflict::Delegated => f.write_str("is delegated to other name servers"),
            NameConflict::Alias(target) => write!(f, "is an alias of {}", target.to_string().trim_end_matches('.')),
            NameConflict::Addresses => f.write_str("has addresses of its own"),
            NameConflict::NameServer => f.write_str("is the name of a name server of the platform"),
        }
    }
}

impl Expectation {
    /// Returns the expectation for a shard's zone, without former names: these belong to routes that have left, and none of them is
    /// a route's current name.
    pub(super) fn new(zone: &Contents, settings: &Settings) -> Self {
        let apex = zone.apex();
        let wildcard = apex.wildcard().expect("the apex leaves room for the wildcard: RouterInput::read");
        let below = zone.owners().filter(|(owner, _)| *owner != apex && **owner != wildcard);
        let leads = expected(zone.owner(&wildcard));
        let (mut explicit, mut taken) = (HashMap::new(), BTreeMap::new());
        for (owner, rrsets) in below {
            let found = expected(rrsets);
            match by(&leads, &found, rrsets) {
                // No route has a deeper name.
                Some(why) => taken.extend(label_below(owner, apex).map(|label| (label, why))),
                None => drop(explicit.insert(owner.clone(), found)),
            }
        }
        // Even with the Router's addresses: a route must not get the name of a name server.
        for server in settings.name_servers() {
            explicit.remove(&server.name);
            taken.extend(label_below(&server.name, apex).map(|label| (label, NameConflict::NameServer)));
        }
        Expectation { apex: apex.clone(), wildcard: leads, explicit, taken }
    }

    /// Returns the reason why the name of `label`, which is in lower case, does not resolve to the Router, if it does not.
    pub fn taken(&self, label: &str) -> Option<&NameConflict> {
        self.taken.get(label)
    }

    /// Returns the reason why `name`, at any depth below the apex, does not resolve to the Router, if it does not.
    pub fn conflict(&self, name: &Name) -> Option<&NameConflict> {
        // Nearly no Router has any.
        if self.taken.is_empty() {
            return None;
        }
        let conflict = self.taken(std::str::from_utf8(&top_label(name, &self.apex)?).ok()?)?;
        let is_direct = name.label_count() == self.apex.label_count() + 1;
        (is_direct || *conflict == NameConflict::Delegated).then_some(conflict)
    }

    /// Returns the labels directly below the apex whose names do not resolve to the Router, in lower case, and the reasons.
    pub fn all_taken(&self) -> impl Iterator<Item = (&str, &NameConflict)> {
        self.taken.iter().map(|(label, why)| (&**label, why))
    }

    /// Returns the expected answer for `name`.
    pub fn of(&self, name: &Name) -> &Expected {
        self.explicit.get(name).unwrap_or(&self.wildcard)
    }

    /// Returns whether `name` resolves to the Router, but is not covered by the wildcard.
    pub fn is_explicit(&self, name: &Name) -> bool {
        self.explicit.contains_key(name)
    }

    /// Returns the names that resolve to the Router, but are not covered by the wildcard.
    pub fn explicit(&self) -> impl Iterator<Item = &Name> {
        self.explicit.keys()
    }
}

impl Expected {
    /// Returns whether there are no targets.
    pub fn is_empty(&self) -> bool {
        matches!(self, Expected::Addresses(addresses) if addresses.is_empty())
    }
}

/// Returns the label of a name directly below `apex`, in lower case; `None` for other names, and for a label that is not text and
/// so never a route's.
pub(super) fn label_below(name: &Name, apex: &Name) -> Option<Box<str>> {
    let label = top_label(name, apex).filter(|_| name.label_count() == apex.label_count() + 1)?;
    String::from_utf8(label.into()).ok().map(Into::into)
}

/// Returns the conflict of a name with these records, unless it resolves as the wildcard in `leads`: to some of its addresses of
/// each family, and to no others.
fn by(leads: &Expected, found: &Expected, rrsets: &[Rrset]) -> Option<NameConflict> {
    if rrsets.iter().any(|rrset| rrset.rtype == RecordType::NS) {
        return Some(NameConflict::Delegated);
    }
    let (leads, found) = match (leads, found) {
        (Expected::Addresses(leads), Expected::Addresses(found)) => (leads, found),
        (_, Expected::Alias(target)) => return Some(NameConflict::Alias(target.clone())),
        (Expected::Alias(_), Expected::Addresses(_)) => return Some(NameConflict::Addresses),
    };
    let has = |addresses: &[IpAddr], is_ipv6: bool| addresses.iter().any(|address| address.is_ipv6() == is_ipv6);
    let lacks = [false, true].into_iter().any(|is_ipv6| has(leads, is_ipv6) && !has(found, is_ipv6));
    let is_other = lacks || found.iter().any(|address| !leads.contains(address));
    is_other.then_some(NameConflict::Addresses)
}

fn expected(rrsets: &[Rrset]) -> Expected {
    let alias = rrsets.iter().find(|rrset| rrset.rtype == RecordType::CNAME);
    if let Some(target) = alias.and_then(|rrset| Name::from_wire(rrset.rdata.first()?).ok()) {
        return Expected::Alias(target);
    }
    let addresses = rrsets.iter().flat_map(|rrset| rrset.rdata.iter().filter_map(|rdata| address(rrset.rtype, rdata)));
    Expected::Addresses(addresses.collect())
}

fn address(rtype: RecordType, rdata: &[u8]) -> Option<IpAddr> {
    match rtype {
        RecordType::A => <[u8; 4]>::try_from(rdata).ok().map(IpAddr::from),
        RecordType::AAAA => <[u8; 16]>::try_from(rdata).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::settings::NameServer;
    use crate::compiler::shard::ShardView;
    use serde_json::json;

    #[test]
    fn names_lead_where_the_router_says() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let server = NameServer { name: name("ns.s.v3.example."), addresses: vec![address("192.0.2.53")] };
        let settings = Settings::new("v3.example", vec![server], &[]);
        let settings = settings.expect("good settings");
        let expectation = |spec: serde_json::Value| {
            let router = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s"}, "spec": spec});
            let router = serde_json::from_value(router).expect("a Router");
            ShardView::read(&router, &settings, &mut Vec::new()).expect("it has a zone").expectation
        };
        let found = expectation(json!({
            "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}, {"ip": "192.0.2.2", "state": "drained"}],
            "records": [
                "own A 192.0.2.9", "moved CNAME there.example.", "_acme-challenge.app TXT x", "cut NS ns.there.example.",
                "half A 192.0.2.1", "same A 192.0.2.1", "same AAAA 2001:db8::1",
            ],
        }));
        let both = Expected::Addresses([address("192.0.2.1"), address("2001:db8::1")].into());
        for (asked, explicit, expected) in [
            ("any.s.v3.example.", false, both.clone()),
            ("app.s.v3.example.", true, both.clone()),
            ("same.s.v3.example.", true, both),
        ] {
            assert_eq!((found.is_explicit(&name(asked)), found.of(&name(asked))), (explicit, &expected), "{asked}");
            assert_eq!(found.taken(asked.split('.').next().expect("a label")), None, "{asked}");
        }
        for (asked, taken) in [
            ("own", NameConflict::Addresses),
            ("half", NameConflict::Addresses),
            ("moved", NameConflict::Alias(name("there.example."))),
            ("cut", NameConflict::Delegated),
            ("ns", NameConflict::NameServer),
        ] {
            let full = name(&format!("{}.s.v3.example.", asked.to_uppercase()));
            assert_eq!((found.is_explicit(&full), found.taken(asked)), (false, Some(&taken)), "{asked}");
        }
        let drained = expectation(json!({"addresses": [{"ip": "192.0.2.2", "state": "drained"}]}));
        assert!(drained.of(&name("any.s.v3.example.")).is_empty() && drained.explicit().all(Name::is_wildcard));
    }
}
