//! The parent Zones: the domain of the platform, and the former domains that it still serves.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::client::reflector::{Change, ObjectKey};
use crate::compiler::former_domains::FormerDomain;
use crate::compiler::settings::text_of;
use crate::work::controller::set;
use signpost_dns::wire::Name;
use signpost_types::names::is_at_or_below;
use signpost_types::v1alpha1::zone::{FORMER_DOMAINS_MAX, Zone, ZoneKind, ZonePlatform};

/// The parent Zones of the API. Pure.
#[derive(Debug, Default)]
pub struct Parents(HashMap<Name, ParentZone>);

#[derive(Debug, Default)]
struct ParentZone {
    /// Whether the Zone exists. Its settings are kept after that.
    exists: bool,
    former_domains: Vec<Name>,
    platform: Option<ZonePlatform>,
}

impl Parents {
    /// Takes a Zone object; `None`: it does not exist.
    pub fn set(&mut self, apex: &Name, zone: Option<&Zone>) {
        match zone.filter(|zone| zone.spec.kind == ZoneKind::Parent) {
            None => drop(self.0.get_mut(apex).map(|known| known.exists = false)),
            Some(zone) => {
                let former = zone.spec.former_domains.iter().filter_map(|former| former.parse().ok());
                let former_domains = former.filter(|former| former != apex).collect();
                let platform = zone.spec.platform.clone();
                self.0.insert(apex.clone(), ParentZone { exists: true, former_domains, platform });
            }
        }
    }

    /// Takes a change of Zone objects.
    pub fn take(&mut self, change: &Change<Zone>) {
        let mut set = |key: &ObjectKey, zone: Option<&Zone>| {
            if let Ok(apex) = key.name.parse() {
                self.set(&apex, zone);
            }
        };
        match change {
            Change::Applied(applied) => set(&applied.key, Some(&applied.now)),
            Change::Deleted { key, .. } => set(key, None),
            Change::Relisted(list) => {
                list.vanished.iter().for_each(|(key, _)| set(key, None));
                list.applied.iter().for_each(|applied| set(&applied.key, Some(&applied.now)));
            }
        }
    }

    /// Returns whether `domain` is that of the platform.
    pub fn are_of(&self, domain: &Name) -> bool {
        self.existing(domain).is_some() && self.successor(domain).is_none()
    }

    /// Returns the former domains to serve together with `domain`, as its Zone lists them. Before the change from the domain `former`, they
    /// are those after it.
    pub fn former_domains_of(&self, domain: &Name, former: Option<&Name>) -> Vec<FormerDomain> {
        let after = former.and_then(|former| self.after_change(domain, former));
        let listed = after.or_else(|| self.former_domains(domain).map(<[Name]>::to_vec)).unwrap_or_default();
        listed.iter().map(|former| self.former_domain(former)).collect()
    }

    /// Returns the former domains that the Zone of `domain` lists; `None` if the Zone does not exist.
    pub fn former_domains(&self, domain: &Name) -> Option<&[Name]> {
        self.existing(domain).map(|zone| &zone.former_domains[..])
    }

    /// Returns the last known configuration of the zones of a domain.
    pub fn platform(&self, domain: &Name) -> Option<&ZonePlatform> {
        self.0.get(domain)?.platform.as_ref()
    }

    /// Returns a former domain with the configuration in its Zone.
    pub fn former_domain(&self, domain: &Name) -> FormerDomain {
        FormerDomain::new(&text_of(domain), self.platform(domain))
    }

    /// Returns the former domains after the change from `former` to `domain`, if it is not done yet: the Zone of `former` exists,
    /// and that of `domain` does not, or is that of a former domain.
    pub fn after_change(&self, domain: &Name, former: &Name) -> Option<Vec<Name>> {
        let before = self.former_domains(former)?;
        if domain == former || self.existing(domain).is_some() && !before.contains(domain) {
            return None;
        }
        let own = self.former_domains(domain).unwrap_or_default();
        let mut after = vec![former.clone()];
        for one in before.iter().chain(own).filter(|one| *one != domain) {
            if !after.contains(one) {
                after.push(one.clone());
            }
        }
        after.truncate(FORMER_DOMAINS_MAX);
        Some(after)
    }

    /// Returns the domain that has replaced `domain`.
    pub fn successor(&self, domain: &Name) -> Option<&Name> {
        let own = self.former_domains(domain).unwrap_or_default();
        let replaces = |zone: &ParentZone| zone.exists && zone.former_domains.contains(domain);
        // Each of two domains lists the other one during the change back to the former one.
        self.0.iter().find(|(apex, zone)| replaces(zone) && !own.contains(apex)).map(|(apex, _)| apex)
    }

    /// Returns the existing domains except for `domain` and those that it lists.
    pub fn others(&self, domain: &Name) -> impl Iterator<Item = &Name> {
        let own = self.former_domains(domain).unwrap_or_default();
        let existing = self.0.iter().filter(|(_, zone)| zone.exists).map(|(apex, _)| apex);
        existing.filter(move |apex| *apex != domain && !own.contains(apex))
    }

    fn existing(&self, domain: &Name) -> Option<&ParentZone> {
        self.0.get(domain).filter(|zone| zone.exists)
    }
}

/// The former domains of the platform that are served; clones share them. The informer of Zones updates them before its readers get
/// a change.
#[derive(Debug, Clone, Default)]
pub struct FormerDomains {
    parents: Arc<Mutex<Parents>>,
    /// `None`: the Zone of the platform's domain was not listed yet.
    served: watch::Sender<Option<Vec<String>>>,
}

impl FormerDomains {
    /// Returns the domains, without a trailing dot.
    pub fn list(&self) -> Vec<String> {
        self.served.borrow().clone().unwrap_or_default()
    }

    /// Waits until they are known.
    pub async fn wait(&self) {
        // The sender is in `self`.
        let _ = self.served.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns the domain that the name is at or below.
    pub fn above(&self, name: &str) -> Option<String> {
        self.served.borrow().iter().flatten().find(|former| is_at_or_below(name, former)).cloned()
    }

    /// Returns the domains, with a signal when they change.
    pub fn subscribe(&self) -> watch::Receiver<Option<Vec<String>>> {
        self.served.subscribe()
    }

    /// Takes a change of Zones. `domain`: the platform's.
    pub fn take(&self, change: &Change<Zone>, domain: &str) {
        let mut parents = self.parents.lock();
        parents.take(change);
        let own = domain.parse().ok();
        let Some(listed) = own.and_then(|own: Name| parents.former_domains(&own).map(<[Name]>::to_vec)) else { return };
        let listed: Vec<String> = listed.iter().map(text_of).collect();
        set(&self.served, Some(listed));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// Returns the parent Zones of these domains, each with its former domains.
    fn parents(zones: &[(&str, &[&str])]) -> Parents {
        let mut parents = Parents::default();
        for (apex, former) in zones {
            let zone = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Zone", "metadata": {"name": apex},
                "spec": {"type": "parent", "versions": [], "formerDomains": former}});
            parents.set(&name(apex), Some(&serde_json::from_value(zone).expect("a Zone")));
        }
        parents
    }

    #[test]
    fn changes_of_the_domain() {
        type Zones<'a> = &'a [(&'a str, &'a [&'a str])];
        let first: Zones<'_> = &[("v3", &[])];
        let second: Zones<'_> = &[("v3", &[]), ("v4", &["v3"])];
        let third: Zones<'_> = &[("v3", &[]), ("v4", &[]), ("v5", &["v4", "v3"])];
        // Between the two writes of the change back.
        let between: Zones<'_> = &[("v3", &["v4"]), ("v4", &["v3"])];
        let ended: Zones<'_> = &[("v3", &[]), ("v4", &[])];
        // The domain, and the domain before the change; the list after it, if it is due, and the successor of the domain.
        for (zones, domain, former, after, successor) in [
            (first, "v4", "v3", Some(&["v3"][..]), None),
            (first, "v4", "v2", None, None),
            (first, "v3", "v3", None, None),
            (second, "v4", "v3", None, None),
            (second, "v5", "v4", Some(&["v4", "v3"]), None),
            (second, "v3", "v4", Some(&["v4"]), Some("v4")),
            (second, "v3", "v2", None, Some("v4")),
            (third, "v3", "v5", Some(&["v5", "v4"]), Some("v5")),
            (between, "v3", "v4", Some(&["v4"]), None),
            (between, "v4", "v3", Some(&["v3"]), None),
            // The setting of a change that is over does not begin the service of an ended domain again.
            (ended, "v4", "v3", None, None),
        ] {
            let parents = parents(zones);
            let text = |names: Vec<Name>| names.iter().map(text_of).collect::<Vec<_>>();
            let found = parents.after_change(&name(domain), &name(former)).map(text);
            assert_eq!(found, after.map(|after| after.iter().map(ToString::to_string).collect()), "{zones:?} {domain}");
            let found = parents.successor(&name(domain)).map(text_of);
            assert_eq!(found.as_deref(), successor, "{zones:?} {domain}");
        }
    }

    #[test]
    fn the_settings_of_a_zone_that_is_gone_are_known() {
        let mut parents = parents(&[("v3", &[]), ("v4", &["v3"])]);
        let own = |parents: &Parents| parents.former_domains(&name("v4")).map(<[Name]>::len);
        parents.set(&name("v3"), None);
        assert_eq!(own(&parents), Some(1), "the domain is still listed");
        parents.set(&name("v4"), None);
        assert_eq!(own(&parents), None, "a missing list ends nothing");
    }
}
