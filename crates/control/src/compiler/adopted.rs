//! The adopted hosts of bindings, which the wildcard of their shard answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use signpost_dns::wire::Name;

use super::inputs::BindingInput;

/// The bindings with an adopted host, by that and their key. The platform changes it, and others can read it meanwhile.
#[derive(Debug, Default)]
pub struct AdoptedHosts(RwLock<ByHost>);

type ByHost = BTreeMap<(Name, Box<str>), Arc<BindingInput>>;

impl AdoptedHosts {
    pub(super) fn insert(&self, host: Name, binding: Arc<BindingInput>) {
        self.0.write().insert((host, binding.key.clone()), binding);
    }

    pub(super) fn remove(&self, host: Name, key: &str) {
        self.0.write().remove(&(host, key.into()));
    }

    /// Returns whether this holds for a binding with this host.
    pub(super) fn any_of(&self, host: &Name, holds: impl Fn(&BindingInput) -> bool) -> bool {
        self.any(host, |name| name == host, holds)
    }

    /// Returns whether this holds for a binding whose host is at or below a name.
    pub(super) fn any_below(&self, top: &Name, holds: impl Fn(&BindingInput) -> bool) -> bool {
        self.any(top, |name| name.is_at_or_below(top), holds)
    }

    /// Returns whether a name, or with `is_below` any name below it, is an adopted host. A host with a wildcard is all names there.
    pub fn has(&self, name: &Name, is_below: bool) -> bool {
        let here = match is_below {
            true => self.any(name, |host| host.is_at_or_below(name), |binding| binding.adopted.as_ref() != Some(name)),
            false => self.any_of(name, |_| true),
        };
        let wildcard = || name.parent()?.wildcard().ok();
        here || wildcard().is_some_and(|wildcard| self.any_of(&wildcard, |_| true))
    }

    fn any(&self, from: &Name, is_meant: impl Fn(&Name) -> bool, holds: impl Fn(&BindingInput) -> bool) -> bool {
        let hosts = self.0.read();
        let mut hosts = hosts.range((from.clone(), Box::default())..).take_while(|((host, _), _)| is_meant(host));
        hosts.any(|(_, binding)| holds(binding))
    }
}
