//! The platform's objects as they are at a moment, and what one changed object changes in the zones.
//!
//! Each change of an object costs what it changes, whatever the number of objects: a Router touches its shard's zone and
//! one delegation of the parent, a RouteBinding one alias and the zones of the shards that its Route has left. Conflicts are settled here: of two Routers with one `dns`, or two
//! bindings with one label, the older serves (then the one whose name comes first), the other gets a diagnostic, and takes
//! over when the first goes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use super::diagnostic::{Diagnostic, Object};
use super::digest::Digest;
use super::former_names::{Changed, FormerNameIndex, FormerNames};
use super::index::{ByKey, ByLabel, Index};
use super::inputs::{BindingInput, RouterInput};
use super::parent::Delegations;
use super::settings::{Settings, text_of};
use signpost_dns::wire::Name;

/// What one changed object changes in the zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A shard's zone is to be made anew from this Router; without one it is gone.
    Shard {
        /// The shard's zone.
        apex: Name,
        /// The Router that serves it now. The former names in its zone are [`Platform::former_names`].
        router: Option<Arc<RouterInput>>,
    },
    /// The former name of one label in a shard's zone has come, changed or gone.
    FormerName {
        /// The shard's zone.
        apex: Name,
        /// The label of the Route that has left.
        label: Box<str>,
        /// The zone below which the label's name leads on; `None`: the former name is gone.
        zone: Option<Box<str>>,
        /// Digest of all former names in the shard's zone after this change.
        digest: Digest,
    },
    /// The parent's delegation of a shard has come or gone.
    Delegation {
        /// The shard's zone.
        apex: Name,
        /// Digest of the parent zone after this change.
        digest: Digest,
    },
    /// An alias has come, changed or gone.
    Alias {
        /// The alias's label.
        label: Box<str>,
        /// The binding that it follows now.
        binding: Option<Arc<BindingInput>>,
        /// Digest of the alias zone after this change.
        digest: Digest,
    },
}

/// All objects, indexed for change.
#[derive(Debug, Clone)]
pub struct Platform {
    domain: Name,
    alias_apex: Name,
    routers: HashMap<Box<str>, Arc<RouterInput>>,
    /// Who wants to serve an apex, the one who does first.
    claims: BTreeMap<Name, Vec<Arc<RouterInput>>>,
    delegations: Delegations,
    delegations_digest: Digest,
    bindings: Index<ByKey>,
    /// Who has a label.
    labels: Index<ByLabel>,
    /// Who else wants a label; it has bindings only while claims are broken.
    rivals: HashMap<Box<str>, Vec<Arc<BindingInput>>>,
    aliases_digest: Digest,
    former_names: FormerNameIndex,
    /// The Routers that serve.
    served: BTreeMap<Name, Arc<RouterInput>>,
    refused: BTreeMap<Object, Diagnostic>,
}

impl Platform {
    /// No objects.
    pub fn new(settings: &Settings) -> Self {
        Platform {
            domain: settings.domain().clone(),
            alias_apex: settings.alias_apex().clone(),
            routers: HashMap::new(),
            claims: BTreeMap::new(),
            delegations: Delegations::default(),
            delegations_digest: Digest::default(),
            bindings: Index::new(),
            labels: Index::new(),
            rivals: HashMap::new(),
            aliases_digest: Digest::default(),
            former_names: FormerNameIndex::default(),
            served: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Puts a Router in the place of what its name had, and tells what that changes.
    pub fn set_router(&mut self, router: Arc<RouterInput>, changes: &mut Vec<Change>) {
        let old = self.routers.insert(router.name.clone(), Arc::clone(&router));
        if old.as_ref().is_some_and(|old| **old == *router) {
            return;
        }
        match old {
            Some(old) if old.apex == router.apex => {
                self.claim(
                    &router.apex.clone(),
                    |claims| {
                        claims.retain(|claim| claim.name != router.name);
                        claims.push(router);
                    },
                    changes,
                );
            }
            old => {
                if let Some(old) = old {
                    self.withdraw(&old, changes);
                }
                self.claim(&router.apex.clone(), |claims| claims.push(router), changes);
            }
        }
    }

    /// Forgets the Router of that name; whether it was known.
    pub fn remove_router(&mut self, name: &str, changes: &mut Vec<Change>) -> bool {
        let Some(old) = self.routers.remove(name) else { return false };
        self.withdraw(&old, changes);
        true
    }

    fn withdraw(&mut self, old: &RouterInput, changes: &mut Vec<Change>) {
        self.refused.remove(&Object::Router(old.name.clone()));
        self.claim(&old.apex, |claims| claims.retain(|claim| claim.name != old.name), changes);
    }

    /// Edits who wants `apex`, and tells if that changes who serves it or with what.
    fn claim(&mut self, apex: &Name, edit: impl FnOnce(&mut Vec<Arc<RouterInput>>), changes: &mut Vec<Change>) {
        let claims = self.claims.entry(apex.clone()).or_default();
        let before = claims.first().cloned();
        edit(claims);
        claims.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let claims = claims.clone();
        if claims.is_empty() {
            self.claims.remove(apex);
        }
        if let Some(message) = self.unusable(apex) {
            for claim in &claims {
                let diagnostic = Diagnostic::router(&claim.name, "spec.dns", message.clone());
                self.refused.insert(diagnostic.object.clone(), diagnostic);
            }
            return;
        }
        if let [first, later @ ..] = &claims[..] {
            self.refused.remove(&Object::Router(first.name.clone()));
            for claim in later {
                let message = format!("the zone {apex} is already that of Router {}, which is older", first.name);
                let diagnostic = Diagnostic::router(&claim.name, "spec.dns", message);
                self.refused.insert(diagnostic.object.clone(), diagnostic);
            }
        }
        let now = claims.into_iter().next();
        if before == now {
            return;
        }
        if before.is_some() != now.is_some() && apex.is_below(&self.domain) {
            let part = Digest::of_delegation(apex);
            self.delegations_digest = if now.is_some() {
                self.delegations.insert(apex.clone());
                self.delegations_digest.plus(part)
            } else {
                self.delegations.remove(apex);
                self.delegations_digest.minus(part)
            };
            changes.push(Change::Delegation { apex: apex.clone(), digest: self.delegations_digest });
        }
        match &now {
            Some(router) => drop(self.served.insert(apex.clone(), Arc::clone(router))),
            None => drop(self.served.remove(apex)),
        }
        changes.push(Change::Shard { apex: apex.clone(), router: now });
    }

    /// Why no Router can have this zone.
    fn unusable(&self, apex: &Name) -> Option<String> {
        if *apex == self.domain {
            Some(format!("{apex} is the platform's own domain; choose a name below it"))
        } else if apex.is_at_or_below(&self.alias_apex) {
            Some(format!("{apex} is inside the zone of the aliases, {}; choose another name", self.alias_apex))
        } else {
            None
        }
    }

    /// Puts a binding in the place of what its key had, and tells what that changes.
    pub fn set_binding(&mut self, binding: Arc<BindingInput>, changes: &mut Vec<Change>) {
        let old = self.bindings.insert(Arc::clone(&binding));
        match old {
            Some(old) if *old == *binding => {}
            Some(old) if old.label == binding.label => {
                let label = &binding.label.clone();
                self.relabel(label, Some(&old.key), Some(binding), changes);
            }
            old => {
                if let Some(old) = old {
                    self.relabel(&old.label, Some(&old.key), None, changes);
                }
                self.relabel(&binding.label.clone(), None, Some(binding), changes);
            }
        }
    }

    /// Forgets the binding of that key; whether it was known.
    pub fn remove_binding(&mut self, key: &str, changes: &mut Vec<Change>) -> bool {
        let Some(old) = self.bindings.remove(key) else { return false };
        self.relabel(&old.label, Some(key), None, changes);
        true
    }

    /// Takes a binding off a label, puts one on, and tells if that changes the alias.
    fn relabel(&mut self, label: &str, off: Option<&str>, on: Option<Arc<BindingInput>>, changes: &mut Vec<Change>) {
        let before = self.labels.get(label).cloned();
        let mut wanting = self.rivals.remove(label).unwrap_or_default();
        wanting.extend(before.clone());
        if let Some(key) = off {
            wanting.retain(|binding| *binding.key != *key);
            self.refused.remove(&Object::Binding(key.into()));
        }
        wanting.extend(on);
        wanting.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        let now = wanting.first().cloned();
        match &now {
            Some(now) => self.labels.insert(Arc::clone(now)),
            None => self.labels.remove(label),
        };
        if let [first, later @ ..] = &wanting[..]
            && !later.is_empty()
        {
            self.refused.remove(&Object::Binding(first.key.clone()));
            for binding in later {
                let message = format!("label {label} is already that of RouteBinding {}, which is older", first.key);
                let diagnostic = Diagnostic::binding(&binding.key, "spec.label", message);
                self.refused.insert(diagnostic.object.clone(), diagnostic);
            }
            self.rivals.insert(label.into(), wanting.split_off(1));
        } else if let Some(now) = &now
            && !self.refused.is_empty()
        {
            self.refused.remove(&Object::Binding(now.key.clone()));
        }
        for Changed { apex, zone, digest } in self.former_names.replace(before.as_deref(), now.as_deref()) {
            if self.served.contains_key(&apex) {
                changes.push(Change::FormerName { apex, label: label.into(), zone, digest });
            }
        }
        let shard = |binding: &Option<Arc<BindingInput>>| binding.as_ref().map(|binding| binding.shard.clone());
        let (was, is) = (shard(&before), shard(&now));
        if was == is {
            return;
        }
        if let Some(shard) = was {
            self.aliases_digest = self.aliases_digest.minus(Digest::of_alias(label, &shard));
        }
        if let Some(shard) = is {
            self.aliases_digest = self.aliases_digest.plus(Digest::of_alias(label, &shard));
        }
        changes.push(Change::Alias { label: label.into(), binding: now, digest: self.aliases_digest });
    }

    /// All Routers, in no order.
    pub fn routers(&self) -> impl Iterator<Item = &Arc<RouterInput>> {
        self.routers.values()
    }

    /// All bindings, in no order.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<BindingInput>> {
        self.bindings.values()
    }

    /// The Router of that name.
    pub fn router(&self, name: &str) -> Option<&Arc<RouterInput>> {
        self.routers.get(name)
    }

    /// The binding of that key.
    pub fn binding(&self, key: &str) -> Option<&Arc<BindingInput>> {
        self.bindings.get(key)
    }

    /// How many Routers and bindings there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.routers.len(), self.bindings.len())
    }

    /// The shards that are served, by apex in canonical order, with their Routers.
    pub fn shards(&self) -> impl Iterator<Item = (&Name, &Arc<RouterInput>)> {
        self.served.iter()
    }

    /// The Router that serves `apex`.
    pub fn shard(&self, apex: &Name) -> Option<&Arc<RouterInput>> {
        self.served.get(apex)
    }

    /// Whether no name leads to the shard of `router`: no Route is on it, and of none that has left is there a former name.
    pub fn is_vacant(&self, router: &RouterInput) -> bool {
        let shard = text_of(&router.apex);
        self.former_names(&router.apex).is_empty()
            && !self.bindings.values().any(|binding| binding.shard.eq_ignore_ascii_case(&shard))
    }

    /// The former names in the zone `apex`.
    pub fn former_names(&self, apex: &Name) -> &FormerNames {
        static NONE: LazyLock<FormerNames> = LazyLock::new(FormerNames::default);
        self.former_names.of(apex).unwrap_or(&NONE)
    }

    /// The bindings that have their label, in no order.
    pub fn aliases(&self) -> impl Iterator<Item = &Arc<BindingInput>> {
        self.labels.values()
    }

    /// The binding whose alias has this label, in any case.
    pub fn alias(&self, label: &str) -> Option<&Arc<BindingInput>> {
        self.labels.get(label.to_ascii_lowercase().as_str())
    }

    /// The parent's delegations.
    pub fn delegations(&self) -> &Delegations {
        &self.delegations
    }

    /// Digest of the parent zone.
    pub fn parent_digest(&self) -> Digest {
        self.delegations_digest
    }

    /// Digest of the alias zone.
    pub fn alias_digest(&self) -> Digest {
        self.aliases_digest
    }

    /// Diagnostics on objects that lost a conflict.
    pub fn refused(&self) -> impl Iterator<Item = &Diagnostic> {
        self.refused.values()
    }
}
