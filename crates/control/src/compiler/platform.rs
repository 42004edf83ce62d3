//! The platform's objects at a moment, and the effects of one changed object on the zones.
//!
//! The cost of a change depends only on its effects, not on the number of objects: a Router affects its shard's zone and one
//! delegation of the parent, a RouteBinding one alias and the zones of the shards that its Route has left. Conflicts are resolved
//! here: of two Routers with one `dns`, or two bindings with one label, the older one is served (with equal ages, the first by
//! name). The other one gets a diagnostic, and takes over when the first is deleted.
//!
//! Each domain of the platform has its own delegations: those of the shards below it, and of other domains below it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use super::diagnostic::{Diagnostic, Object};
use super::digest::Digest;
use super::former_names::{Changed, FormerNameIndex, FormerNames};
use super::inputs::BindingInput;
use super::parent::Delegations;
use super::settings::{Settings, text_of};
use super::shard::ShardView;
use signpost_dns::wire::Name;

/// The effect of one changed object on the zones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The shard's zone must be rebuilt from this Router; without one, it is removed.
    Shard {
        /// The shard's zone.
        apex: Name,
        /// The Router that serves it now; [`Platform::former_names`] returns the former names in its zone.
        router: Option<Arc<ShardView>>,
    },
    /// The former name of one label in a shard's zone was added, changed, or removed.
    FormerName {
        /// The shard's zone.
        apex: Name,
        /// The label of the Route that has left.
        label: Box<str>,
        /// The zone to which the label's name points; `None`: the former name was removed.
        zone: Option<Box<str>>,
        /// The digest of all former names in the shard's zone after this change.
        digest: Digest,
    },
    /// A parent zone's delegation of a shard, or of another domain of the platform, was added or removed.
    Delegation {
        /// The delegated zone.
        apex: Name,
        /// The parent zone: the platform's domain or a former one.
        domain: Name,
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

/// A kind of object that zones are made from.
pub trait Input: Sized {
    /// Replaces or removes the object of a name, and returns the effects.
    fn put(platform: &mut Platform, name: &str, now: Option<Arc<Self>>, changes: &mut Vec<Change>);
}

impl Input for ShardView {
    fn put(platform: &mut Platform, name: &str, now: Option<Arc<Self>>, changes: &mut Vec<Change>) {
        let old = match &now {
            Some(router) => platform.routers.insert(name.into(), Arc::clone(router)),
            None => platform.routers.remove(name),
        };
        if old == now {
            return;
        }
        platform.refused.remove(&Object::Router(name.into()));
        if let Some(old) = old
            && now.as_ref().is_none_or(|now| now.apex != old.apex)
        {
            platform.claim(&old.apex, name, None, changes);
        }
        if let Some(now) = now {
            platform.claim(&now.apex.clone(), name, Some(now), changes);
        }
    }
}

impl Input for BindingInput {
    fn put(platform: &mut Platform, name: &str, now: Option<Arc<Self>>, changes: &mut Vec<Change>) {
        let old = match &now {
            Some(binding) => platform.bindings.insert(name.into(), Arc::clone(binding)),
            None => platform.bindings.remove(name),
        };
        if old == now {
            return;
        }
        platform.refused.remove(&Object::Binding(name.into()));
        if let Some(old) = old
            && now.as_ref().is_none_or(|now| now.label != old.label)
        {
            platform.relabel(&old.label, name, None, changes);
        }
        if let Some(now) = now {
            platform.relabel(&now.label.clone(), name, Some(now), changes);
        }
    }
}

/// All objects, indexed for change.
#[derive(Debug, Clone)]
pub struct Platform {
    /// The platform's domain, then the former ones.
    domains: Vec<Domain>,
    routers: HashMap<Box<str>, Arc<ShardView>>,
    /// The claimants of an apex, in order of precedence.
    claims: BTreeMap<Name, Vec<Arc<ShardView>>>,
    bindings: HashMap<Box<str>, Arc<BindingInput>>,
    /// The claimants of a label, in order of precedence; there are several only while claims are broken.
    labels: HashMap<Box<str>, Vec<Arc<BindingInput>>>,
    aliases_digest: Digest,
    former_names: FormerNameIndex,
    refused: BTreeMap<Object, Diagnostic>,
}

/// A domain of the platform.
#[derive(Debug, Clone)]
struct Domain {
    apex: Name,
    alias_apex: Name,
    delegations: Delegations,
}

impl Domain {
    fn new(settings: &Settings) -> Self {
        Domain {
            apex: settings.domain().clone(),
            alias_apex: settings.alias_apex().clone(),
            delegations: Delegations::default(),
        }
    }

    /// Returns whether the zone is the domain's own: no Router can have it.
    fn takes(&self, apex: &Name) -> bool {
        *apex == self.apex || apex.is_at_or_below(&self.alias_apex)
    }

    /// Delegates a zone, or ends that. Returns the resulting change.
    fn delegate(&mut self, apex: &Name, is_there: bool) -> Change {
        if is_there {
            self.delegations.insert(apex.clone())
        } else {
            self.delegations.remove(apex)
        }
        Change::Delegation { apex: apex.clone(), domain: self.apex.clone(), digest: self.delegations.digest() }
    }
}

impl Platform {
    /// Returns a platform without objects.
    pub fn new(settings: &Settings) -> Self {
        let mut platform = Platform {
            domains: vec![Domain::new(settings)],
            routers: HashMap::new(),
            claims: BTreeMap::new(),
            bindings: HashMap::new(),
            labels: HashMap::new(),
            aliases_digest: Digest::default(),
            former_names: FormerNameIndex::default(),
            refused: BTreeMap::new(),
        };
        platform.set_former_domains(settings, &mut Vec::new());
        platform
    }

    /// Replaces the former domains by those of `settings`, and returns the effects on the other zones.
    pub fn set_former_domains(&mut self, settings: &Settings, changes: &mut Vec<Change>) {
        let usable = |platform: &Platform| platform.shards().map(|(apex, _)| apex.clone()).collect::<BTreeSet<Name>>();
        let before = usable(self);
        let mut former = self.domains.split_off(1);
        for settings in settings.former_domains() {
            let known = former.iter().position(|domain| domain.apex == *settings.domain());
            self.domains.push(known.map_or_else(|| Domain::new(settings), |at| former.swap_remove(at)));
        }
        let after = usable(self);
        for apex in before.symmetric_difference(&after) {
            self.diagnose(apex);
            changes.push(Change::Shard { apex: apex.clone(), router: self.shard(apex).cloned() });
        }
        let apexes: Vec<Name> = self.domains.iter().map(|domain| domain.apex.clone()).collect();
        for domain in &mut self.domains {
            let zones = after.iter().chain(&apexes).filter(|zone| zone.is_below(&domain.apex));
            let wanted: BTreeSet<Name> = zones.cloned().collect();
            let differs: Vec<Name> = domain.delegations.apexes().symmetric_difference(&wanted).cloned().collect();
            changes.extend(differs.iter().map(|apex| domain.delegate(apex, wanted.contains(apex))));
        }
    }

    /// Replaces or removes the object of a name, and returns the effects.
    pub fn put<I: Input>(&mut self, name: &str, now: Option<Arc<I>>, changes: &mut Vec<Change>) {
        I::put(self, name, now, changes);
    }

    /// Removes the Router `name` from an apex, adds one, and reports whether that changes the Router of the apex or its contents.
    fn claim(&mut self, apex: &Name, name: &str, on: Option<Arc<ShardView>>, changes: &mut Vec<Change>) {
        let claims = self.claims.entry(apex.clone()).or_default();
        let before = claims.first().cloned();
        claims.retain(|claim| *claim.name != *name);
        claims.extend(on);
        claims.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        let claims = claims.clone();
        if claims.is_empty() {
            self.claims.remove(apex);
        }
        self.diagnose(apex);
        let now = claims.into_iter().next();
        if !self.is_usable(apex) || before == now {
            return;
        }
        if before.is_some() != now.is_some() {
            let parents = self.domains.iter_mut().filter(|domain| apex.is_below(&domain.apex));
            changes.extend(parents.map(|domain| domain.delegate(apex, now.is_some())));
        }
        changes.push(Change::Shard { apex: apex.clone(), router: now });
    }

    /// Updates the diagnostics of the Routers that claim an apex.
    fn diagnose(&mut self, apex: &Name) {
        let unusable = self.unusable(apex);
        let claims = self.claims.get(apex).map_or(&[][..], |claims| claims);
        for (at, claim) in claims.iter().enumerate() {
            let message = match &unusable {
                Some(message) => message.clone(),
                None if at == 0 => {
                    self.refused.remove(&Object::Router(claim.name.clone()));
                    continue;
                }
                None => format!("the zone {apex} already belongs to Router {}, which is older", claims[0].name),
            };
            let diagnostic = Diagnostic::router(&claim.name, "spec.dns", message);
            self.refused.insert(diagnostic.object.clone(), diagnostic);
        }
    }

    /// Returns the reason why no Router can have this zone.
    fn unusable(&self, apex: &Name) -> Option<String> {
        let (at, domain) = self.domains.iter().enumerate().find(|(_, domain)| domain.takes(apex))?;
        Some(match (at, *apex == domain.apex) {
            (0, true) => format!("{apex} is the platform's own domain; choose a name below it"),
            (_, true) => {
                format!("{apex} is a former domain of the platform, which is still served; choose another name")
            }
            (_, false) => format!("{apex} is inside the alias zone, {}; choose another name", domain.alias_apex),
        })
    }

    fn is_usable(&self, apex: &Name) -> bool {
        !self.domains.iter().any(|domain| domain.takes(apex))
    }

    /// Removes the binding `key` from a label, adds one, and reports whether that changes the alias.
    fn relabel(&mut self, label: &str, key: &str, on: Option<Arc<BindingInput>>, changes: &mut Vec<Change>) {
        let wanting = self.labels.entry(label.into()).or_default();
        let before = wanting.first().cloned();
        wanting.retain(|binding| *binding.key != *key);
        wanting.extend(on);
        wanting.sort_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key)));
        let now = wanting.first().cloned();
        if let [first, later @ ..] = &wanting[..] {
            if !self.refused.is_empty() {
                self.refused.remove(&Object::Binding(first.key.clone()));
            }
            for binding in later {
                let message = format!("label {label} already belongs to RouteBinding {}, which is older", first.key);
                let diagnostic = Diagnostic::binding(&binding.key, "spec.label", message);
                self.refused.insert(diagnostic.object.clone(), diagnostic);
            }
        } else {
            self.labels.remove(label);
        }
        for Changed { apex, zone, digest } in self.former_names.replace(before.as_deref(), now.as_deref()) {
            if self.shard(&apex).is_some() {
                changes.push(Change::FormerName { apex, label: label.into(), zone, digest });
            }
        }
        // Returns the identity of a binding: one that was re-created, or has inherited the label, differs, even with the same
        // targets, so that name verification does not confuse it with the earlier one.
        fn identity(binding: &BindingInput) -> (i64, &str, &str, &str) {
            (binding.created, &binding.key, &binding.shard, binding.target())
        }
        if before.as_deref().map(identity) == now.as_deref().map(identity) {
            return;
        }
        if let Some(before) = &before {
            self.aliases_digest = self.aliases_digest.minus(Digest::of_alias(label, before.target()));
        }
        if let Some(now) = &now {
            self.aliases_digest = self.aliases_digest.plus(Digest::of_alias(label, now.target()));
        }
        changes.push(Change::Alias { label: label.into(), binding: now, digest: self.aliases_digest });
    }

    /// Returns the platform's domain.
    pub fn domain(&self) -> &Name {
        &self.domains[0].apex
    }

    /// Returns all Routers, in no order.
    pub fn routers(&self) -> impl Iterator<Item = &Arc<ShardView>> {
        self.routers.values()
    }

    /// Returns all bindings, in no order.
    pub fn bindings(&self) -> impl Iterator<Item = &Arc<BindingInput>> {
        self.bindings.values()
    }

    pub fn router(&self, name: &str) -> Option<&Arc<ShardView>> {
        self.routers.get(name)
    }

    pub fn binding(&self, key: &str) -> Option<&Arc<BindingInput>> {
        self.bindings.get(key)
    }

    /// Returns the numbers of Routers and bindings.
    pub fn counts(&self) -> (usize, usize) {
        (self.routers.len(), self.bindings.len())
    }

    /// Returns the served shards, by apex in canonical order, with their Routers.
    pub fn shards(&self) -> impl Iterator<Item = (&Name, &Arc<ShardView>)> {
        let usable = self.claims.iter().filter(move |(apex, _)| self.is_usable(apex));
        usable.filter_map(|(apex, claims)| Some((apex, claims.first()?)))
    }

    /// Returns the Router that serves `apex`.
    pub fn shard(&self, apex: &Name) -> Option<&Arc<ShardView>> {
        self.claims.get(apex).filter(|_| self.is_usable(apex))?.first()
    }

    /// Returns whether no name resolves to the shard of `router`: it has no routes and no former names.
    pub fn is_vacant(&self, router: &ShardView) -> bool {
        let shard = text_of(&router.apex);
        self.former_names(&router.apex).is_empty()
            && !self.bindings.values().any(|binding| binding.shard.eq_ignore_ascii_case(&shard))
    }

    /// Returns the former names in the zone `apex`.
    pub fn former_names(&self, apex: &Name) -> &FormerNames {
        static NONE: LazyLock<FormerNames> = LazyLock::new(FormerNames::default);
        self.former_names.of(apex).unwrap_or(&NONE)
    }

    /// Returns the bindings that have their label, in no order.
    pub fn aliases(&self) -> impl Iterator<Item = &Arc<BindingInput>> {
        self.labels.values().filter_map(|wanting| wanting.first())
    }

    /// Returns the binding whose alias has this label, in any case.
    pub fn alias(&self, label: &str) -> Option<&Arc<BindingInput>> {
        self.labels.get(label.to_ascii_lowercase().as_str())?.first()
    }

    /// Returns the delegations of the platform's parent zone.
    pub fn delegations(&self) -> &Delegations {
        &self.domains[0].delegations
    }

    /// Returns the delegations of the parent zone of a domain: the platform's or a former one. Another name has none.
    pub fn delegations_of(&self, domain: &Name) -> &Delegations {
        static NONE: LazyLock<Delegations> = LazyLock::new(Delegations::default);
        self.domains.iter().find(|one| one.apex == *domain).map_or(&NONE, |domain| &domain.delegations)
    }

    /// Returns the digest of every alias zone: the aliases of all domains lead to the same names.
    pub fn alias_digest(&self) -> Digest {
        self.aliases_digest
    }

    /// Diagnostics on objects that lost a conflict.
    pub fn refused(&self) -> impl Iterator<Item = &Diagnostic> {
        self.refused.values()
    }
}
