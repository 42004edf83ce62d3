//! What the names of one shard must lead to, by its Router.
//!
//! The wildcard proves every name below it but those that the Router's `records` name: these have an answer of their own,
//! and are asked for by their names.

use std::collections::HashMap;
use std::net::IpAddr;

use super::check::Expected;
use crate::compiler::inputs::RouterInput;
use crate::compiler::trails::Trails;
use crate::compiler::{Settings, shard};
use crate::wire::{Name, RecordType};
use crate::zone::Rrset;

/// What names lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    wildcard: Expected,
    explicit: HashMap<Name, Expected>,
}

impl Expectation {
    /// Of the shard of `router`.
    pub fn new(router: &RouterInput, settings: &Settings) -> Self {
        // Trails are of names that routes have left: none of them is what a route is reached by now.
        let made = shard::compile(router, &Trails::default(), &mut Vec::new());
        let zone = shard::zone(made.records, settings, 0);
        let apex = zone.apex().clone();
        let wildcard = apex.wildcard().expect("the apex leaves room for the wildcard: RouterInput::read");
        let below = zone.owners().filter(|(owner, _)| **owner != apex && **owner != wildcard);
        Expectation {
            wildcard: expected(zone.owner(&wildcard)),
            explicit: below.map(|(owner, rrsets)| (owner.clone(), expected(rrsets))).collect(),
        }
    }

    /// What `name` leads to.
    pub fn of(&self, name: &Name) -> &Expected {
        self.explicit.get(name).unwrap_or(&self.wildcard)
    }

    /// Whether the wildcard says nothing of `name`.
    pub fn is_explicit(&self, name: &Name) -> bool {
        self.explicit.contains_key(name)
    }

    /// The names of which the wildcard says nothing.
    pub fn explicit(&self) -> impl Iterator<Item = &Name> {
        self.explicit.keys()
    }
}

impl Expected {
    /// Whether it leads nowhere.
    pub fn is_empty(&self) -> bool {
        matches!(self, Expected::Addresses(addresses) if addresses.is_empty())
    }
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
    use serde_json::json;

    #[test]
    fn names_lead_where_the_router_says() {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let settings = settings.expect("good settings");
        let expectation = |spec: serde_json::Value| {
            let router = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s"}, "spec": spec});
            let router = serde_json::from_value(router).expect("a Router");
            let input = RouterInput::read(&router, "v3.example", &mut Vec::new()).expect("it has a zone");
            Expectation::new(&input, &settings)
        };
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let found = expectation(json!({
            "addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}, {"ip": "192.0.2.2", "state": "drained"}],
            "records": ["own A 192.0.2.9", "moved CNAME there.example.", "_acme-challenge.app TXT x"],
        }));
        let both = Expected::Addresses([address("192.0.2.1"), address("2001:db8::1")].into());
        for (asked, explicit, expected) in [
            ("any.s.v3.example.", false, both.clone()),
            ("app.s.v3.example.", true, both),
            ("own.s.v3.example.", true, Expected::Addresses([address("192.0.2.9")].into())),
            ("MOVED.s.v3.example.", true, Expected::Alias(name("there.example."))),
        ] {
            assert_eq!((found.is_explicit(&name(asked)), found.of(&name(asked))), (explicit, &expected), "{asked}");
        }
        let drained = expectation(json!({"addresses": [{"ip": "192.0.2.2", "state": "drained"}]}));
        assert!(drained.of(&name("any.s.v3.example.")).is_empty() && drained.explicit().next().is_none());
    }
}
