//! The platform's objects at a moment, and the effects of one changed object on the zones.
//!
//! The cost of a change depends only on its effects, not on the number of objects: a Router affects its shard's zone and one
//! delegation of the parent, a RouteBinding one alias and the zones of the shards that its Route has left. Conflicts are resolved
//! here: of two Routers with one `dns`, or two bindings with one label, the older one is served (with equal ages, the first by
//! name). The other one gets a diagnostic, and takes over when the first is deleted.
//!
//! Each domain of the platform has its own delegations: those of the shards below it, and of other domains below it.
//!
//! A shard can be inside another one: the zone of the outer shard is cut there ([`ShardView::cuts`]). While a name of a Route in the
//! outer zone is at or below the apex of the inner shard, and the RouteBinding is not newer than the Router of that shard, the inner
//! shard is *withheld*: it has no zone, so that the name still resolves to its own shard. The API rejects such a Router, but an API without
//! Signpost's hooks does not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, LazyLock};

use super::adopted::AdoptedHosts;
use super::challenges::{self, ChallengeInput, TextValues, first_label};
use super::diagnostic::{Diagnostic, Object};
use super::digest::Digest;
use super::expectation::label_below;
use super::former_names::{Changed, FormerNameIndex, FormerNames};
use super::inputs::BindingInput;
use super::parent::Delegations;
use super::settings::{Settings, text_of};
use super::shard::ShardView;
use crate::put::Put as _;
use signpost_dns::wire::Name;
use signpost_types::names::{ACME_CHALLENGE_LABEL, ACME_LABEL};
use signpost_types::v1alpha1::challenge_record::VALUES_MAX;

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
    /// A parent zone's delegation of a shard, or of another domain of the platform, was added or removed, or the host of a Route or the TXT
    /// values of a name there were replaced.
    Delegation {
        /// The delegated zone, the host, or the name with the values.
        apex: Name,
        /// The parent zone: the platform's domain or a former one.
        domain: Name,
        /// Digest of the parent zone after this change.
        digest: Digest,
    },
    /// The TXT values below an alias were replaced.
    AliasText {
        /// The alias's label.
        label: Box<str>,
        /// The values now.
        values: BTreeSet<Box<str>>,
        /// Digest of the alias zone after this change.
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
        let old = platform.routers.put(name.into(), now.clone());
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
        let old = platform.bindings.put(name.into(), now.clone());
        if old == now {
            return;
        }
        platform.refused.remove(&Object::Binding(name.into()));
        let related = platform.in_the_way_of([old.as_deref(), now.as_deref()].into_iter().flatten());
        let before = platform.shards_at(&related);
        let customs: BTreeSet<Name> =
            [&old, &now].into_iter().flatten().filter_map(|binding| binding.custom.clone()).collect();
        if let Some(host) = old.as_ref().and_then(|binding| binding.custom.clone()) {
            platform.customs.remove(&(host, name.into()));
        }
        if let Some((host, binding)) = now.as_ref().and_then(|binding| binding.custom.clone()).zip(now.clone()) {
            platform.customs.insert((host, name.into()), binding);
        }
        customs.iter().for_each(|host| platform.place_host(host, changes));
        let host = |binding: &Option<Arc<BindingInput>>| binding.as_ref().and_then(|binding| binding.adopted.clone());
        if let Some(host) = host(&old) {
            platform.adopted.remove(host, name);
        }
        if let Some((host, binding)) = host(&now).zip(now.clone()) {
            platform.adopted.insert(host, binding);
        }
        let (old_binding, new_binding) = (old.clone(), now.clone());
        if let Some(old) = old
            && now.as_ref().is_none_or(|now| now.label != old.label)
        {
            platform.relabel(&old.label, name, None, changes);
        }
        if let Some(now) = now {
            platform.relabel(&now.label.clone(), name, Some(now), changes);
        }
        platform.settle(&related, before, changes);
        if !platform.challenges.is_empty() {
            let owners: BTreeSet<Name> = [&old_binding, &new_binding]
                .into_iter()
                .flatten()
                .flat_map(|one| platform.challenged_by(one))
                .collect();
            owners.iter().for_each(|owner| platform.place(owner, changes));
        }
    }
}

impl Input for ChallengeInput {
    fn put(platform: &mut Platform, name: &str, now: Option<Arc<Self>>, changes: &mut Vec<Change>) {
        let old = platform.challenge_keys.put(name.into(), now.clone());
        if old == now {
            return;
        }
        if let Some(old) = &old
            && let Some(others) = platform.challenges.get_mut(&old.owner)
        {
            others.remove(&(old.created, name.into()));
            if others.is_empty() {
                platform.challenges.remove(&old.owner);
            }
        }
        if let Some(now) = &now {
            let others = platform.challenges.entry(now.owner.clone()).or_default();
            others.insert((now.created, name.into()), Arc::clone(now));
        }
        let owners: BTreeSet<&Name> = old.iter().chain(&now).map(|challenge| &challenge.owner).collect();
        owners.into_iter().for_each(|owner| platform.place(owner, changes));
    }
}

/// ChallengeRecords by their creation times and names.
type ByAge = BTreeMap<(i64, Box<str>), Arc<ChallengeInput>>;

/// All objects, indexed for change.
#[derive(Debug, Clone)]
pub struct Platform {
    /// The platform's domain, then the former ones.
    domains: Vec<Domain>,
    routers: HashMap<Box<str>, Arc<ShardView>>,
    settings: Settings,
    /// The claimants of an apex, in order of precedence.
    claims: BTreeMap<Name, Vec<Arc<ShardView>>>,
    /// The claimed apexes below another claimed one. Normally there are none.
    inner: BTreeSet<Name>,
    /// The shards that are withheld, with the outer zone whose names are in the way.
    withheld: BTreeMap<Name, Name>,
    /// The shards that have others inside them, or values of ChallengeRecords.
    outer: BTreeMap<Name, Arc<ShardView>>,
    bindings: HashMap<Box<str>, Arc<BindingInput>>,
    /// The claimants of a label, in order of precedence; there are several only while claims are broken.
    labels: HashMap<Box<str>, Vec<Arc<BindingInput>>>,
    adopted: Arc<AdoptedHosts>,
    /// The bindings with a custom host that the router of a source admitted, by that and their key.
    customs: BTreeMap<(Name, Box<str>), Arc<BindingInput>>,
    /// The ChallengeRecords by their names, and those of each name by their ages.
    challenge_keys: HashMap<Box<str>, Arc<ChallengeInput>>,
    challenges: BTreeMap<Name, ByAge>,
    /// The TXT values below aliases.
    alias_texts: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
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
            settings: settings.clone(),
            claims: BTreeMap::new(),
            inner: BTreeSet::new(),
            withheld: BTreeMap::new(),
            outer: BTreeMap::new(),
            bindings: HashMap::new(),
            labels: HashMap::new(),
            adopted: Arc::default(),
            customs: BTreeMap::new(),
            challenge_keys: HashMap::new(),
            challenges: BTreeMap::new(),
            alias_texts: BTreeMap::new(),
            aliases_digest: Digest::default(),
            former_names: FormerNameIndex::default(),
            refused: BTreeMap::new(),
        };
        platform.set_former_domains(settings, &mut Vec::new());
        platform
    }

    /// Replaces the former domains by those of `settings`, and returns the effects on the other zones.
    pub fn set_former_domains(&mut self, settings: &Settings, changes: &mut Vec<Change>) {
        self.settings = settings.clone();
        let served = |platform: &Platform| -> BTreeMap<Name, Arc<ShardView>> {
            platform.shards().map(|(apex, router)| (apex.clone(), Arc::clone(router))).collect()
        };
        let before = served(self);
        let mut former = self.domains.split_off(1);
        for settings in settings.former_domains() {
            let known = former.iter().position(|domain| domain.apex == *settings.domain());
            self.domains.push(known.map_or_else(|| Domain::new(settings), |at| former.swap_remove(at)));
        }
        let is_same = |apex: &Name, after: &BTreeMap<Name, Arc<ShardView>>| match (before.get(apex), after.get(apex)) {
            (Some(before), Some(after)) => Arc::ptr_eq(before, after),
            (before, after) => before.is_none() && after.is_none(),
        };
        let claimed: Vec<Name> = self.claims.keys().cloned().collect();
        let after = served(self);
        for apex in claimed.iter().filter(|apex| !is_same(apex, &after)) {
            self.nest(&self.related(apex));
        }
        let after = served(self);
        for apex in claimed.iter().filter(|apex| !is_same(apex, &after)) {
            self.diagnose(apex);
            changes.push(Change::Shard { apex: apex.clone(), router: after.get(apex).cloned() });
        }
        let apexes: Vec<Name> = self.domains.iter().map(|domain| domain.apex.clone()).collect();
        for domain in &mut self.domains {
            let zones = after.keys().chain(&apexes).filter(|zone| zone.is_below(&domain.apex));
            let wanted: BTreeSet<Name> = zones.cloned().collect();
            let differs: Vec<Name> = domain.delegations.apexes().symmetric_difference(&wanted).cloned().collect();
            changes.extend(differs.iter().map(|apex| domain.delegate(apex, wanted.contains(apex))));
        }
        let owners: Vec<Name> = self.challenges.keys().cloned().collect();
        owners.iter().for_each(|owner| self.place(owner, changes));
        let hosts: BTreeSet<Name> = self.customs.keys().map(|(host, _)| host.clone()).collect();
        hosts.iter().for_each(|host| self.place_host(host, changes));
    }

    /// Replaces or removes the object of a name, and returns the effects.
    pub fn put<I: Input>(&mut self, name: &str, now: Option<Arc<I>>, changes: &mut Vec<Change>) {
        I::put(self, name, now, changes);
    }

    /// Removes the Router `name` from an apex, adds one, and reports the resulting changes of the shard there, of the one around it, and of
    /// those inside it.
    fn claim(&mut self, apex: &Name, name: &str, on: Option<Arc<ShardView>>, changes: &mut Vec<Change>) {
        let related = self.related(apex);
        let before = self.shards_at(&related);
        let claims = self.claims.entry(apex.clone()).or_default();
        claims.retain(|claim| *claim.name != *name);
        claims.extend(on);
        claims.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        if claims.is_empty() {
            self.claims.remove(apex);
        }
        self.settle(&related, before, changes);
    }

    /// Returns the claimed apexes above `apex`, itself, and those below it, in this order.
    fn related(&self, apex: &Name) -> Vec<Name> {
        let above = std::iter::successors(apex.parent(), Name::parent).filter(|above| self.claims.contains_key(above));
        let mut related: Vec<Name> = above.collect();
        related.reverse();
        related.push(apex.clone());
        related.extend(self.claims_below(apex).cloned());
        related
    }

    /// Returns the claimed apexes below a name, in canonical order.
    fn claims_below<'a>(&'a self, name: &'a Name) -> impl Iterator<Item = &'a Name> {
        let after = self.claims.range::<Name, _>((Excluded(name), Unbounded));
        after.map(|(apex, _)| apex).take_while(move |apex| apex.is_below(name))
    }

    /// Returns the inner shards, with those related to them, that names of these bindings can be at or below.
    fn in_the_way_of<'a>(&self, bindings: impl Iterator<Item = &'a BindingInput>) -> Vec<Name> {
        if self.inner.is_empty() {
            return Vec::new();
        }
        let mut related = BTreeSet::new();
        for binding in bindings {
            let zones = [&*binding.shard, binding.target()].into_iter().filter_map(|zone| zone.parse::<Name>().ok());
            let names = zones.chain(binding.former_names.iter().cloned());
            let names = names.filter_map(|zone| zone.prepend(binding.label.as_bytes()).ok());
            for name in names.chain(binding.adopted.clone()) {
                let above = std::iter::successors(Some(name), Name::parent).filter(|above| self.inner.contains(above));
                related.extend(above.flat_map(|apex| self.related(&apex)));
            }
        }
        // In canonical order, outer shards come before those inside them.
        related.into_iter().collect()
    }

    fn shards_at(&self, apexes: &[Name]) -> Vec<Option<Arc<ShardView>>> {
        apexes.iter().map(|apex| self.shard(apex).cloned()).collect()
    }

    /// Reports the differences of the shards at these apexes, from outer to inner ones, after a change of their claims or of names.
    fn settle(&mut self, apexes: &[Name], before: Vec<Option<Arc<ShardView>>>, changes: &mut Vec<Change>) {
        self.nest(apexes);
        for (apex, before) in apexes.iter().zip(before) {
            self.diagnose(apex);
            let now = self.shard(apex).cloned();
            if before == now {
                continue;
            }
            if before.is_some() != now.is_some() {
                let parents = self.domains.iter_mut().filter(|domain| apex.is_below(&domain.apex));
                changes.extend(parents.map(|domain| domain.delegate(apex, now.is_some())));
            }
            changes.push(Change::Shard { apex: apex.clone(), router: now });
        }
    }

    /// Updates which of these shards, from outer to inner ones, are withheld, and where their zones are cut.
    fn nest(&mut self, apexes: &[Name]) {
        for apex in apexes {
            let is_claimed = self.claims.contains_key(apex);
            let is_inner = |platform: &Platform| {
                std::iter::successors(apex.parent(), Name::parent).any(|above| platform.claims.contains_key(&above))
            };
            match is_claimed && is_inner(self) {
                true => self.inner.insert(apex.clone()),
                false => self.inner.remove(apex),
            };
            self.withheld.put(apex.clone(), self.outer_in_the_way(apex));
        }
        for apex in apexes {
            let claim = self.claims.get(apex).filter(|_| self.is_served(apex)).and_then(|claims| claims.first());
            let view = claim.cloned().and_then(|claim| {
                let cuts = self.cuts(apex);
                let texts = self.texts_in(apex);
                let is_same = |known: &&Arc<ShardView>| {
                    *known.cuts() == cuts && *known.texts() == texts && known.input() == claim.input()
                };
                let known = self.outer.get(apex).filter(is_same).cloned();
                let is_plain = cuts.is_empty() && texts.is_empty();
                let made = || Arc::new(ShardView::with(claim.input().clone(), cuts, texts, &self.settings));
                (!is_plain).then(|| known.unwrap_or_else(made))
            });
            self.outer.put(apex.clone(), view);
        }
    }

    /// Returns the values of ChallengeRecords in the zone of the shard at `apex`.
    fn texts_in(&self, apex: &Name) -> TextValues {
        let mut texts = TextValues::default();
        let at_or_below = self.challenges.range::<Name, _>(apex..).take_while(|(owner, _)| owner.is_at_or_below(apex));
        let is_here = |owner: &Name| {
            let is_of_host = |domain: &Domain| challenges::is_of_host(owner, &domain.apex);
            self.shard_around(owner).as_ref() == Some(apex) && !self.domains.iter().any(is_of_host)
        };
        for (owner, _) in at_or_below.filter(|(owner, _)| is_here(owner)) {
            texts.set(owner, self.permitted(owner));
        }
        texts
    }

    /// Returns the apex of the closest served shard at or above a name.
    fn shard_around(&self, name: &Name) -> Option<Name> {
        let mut above = std::iter::successors(Some(name.clone()), Name::parent);
        above.find(|above| self.claims.contains_key(above) && self.is_served(above))
    }

    /// Returns the values of the ChallengeRecords of a name whose namespaces have it, at most [`VALUES_MAX`], the oldest first.
    fn permitted(&self, owner: &Name) -> BTreeSet<Box<str>> {
        let challenges = self.challenges.get(owner).into_iter().flat_map(BTreeMap::values);
        let values = challenges.filter(|challenge| self.permits(challenge)).map(|challenge| challenge.value.clone());
        values.take(VALUES_MAX).collect()
    }

    /// Returns the adopted hosts, which follow the objects.
    pub fn adopted_hosts(&self) -> Arc<AdoptedHosts> {
        Arc::clone(&self.adopted)
    }

    /// Returns whether the namespace of a ChallengeRecord has the name that it is about.
    pub fn permits(&self, challenge: &ChallengeInput) -> bool {
        let is_theirs = |binding: &BindingInput| {
            binding.key.split_once('/').is_some_and(|(namespace, _)| namespace == &*challenge.namespace)
        };
        if self.domains.iter().any(|domain| challenges::is_of_host(&challenge.owner, &domain.apex)) {
            let label = first_label(&challenge.owner).unwrap_or_default();
            return self.alias(&label).is_some_and(|binding| challenge.is_of_platform() || is_theirs(binding));
        }
        let Some(subject) = challenge.subject() else { return false };
        if challenge.is_of_platform() {
            return self.claims.contains_key(&subject);
        }
        // A certificate of a shard would be one of all its names.
        if self.claims.contains_key(&subject) {
            return false;
        }
        let wildcard = subject.wildcard().ok();
        let hosts = [Some(subject.clone()), wildcard];
        let is_adopted = || hosts.iter().flatten().any(|host| self.adopted.any_of(host, is_theirs));
        let label = first_label(&subject).and_then(|label| self.alias(&label));
        let is_at = |binding: &BindingInput| {
            let zone = subject.parent().unwrap_or_else(Name::root);
            let is_alias = self.domains.iter().any(|domain| domain.alias_apex == zone);
            is_alias || binding.former_names.contains(&zone) || text_of(&zone).eq_ignore_ascii_case(&binding.shard)
        };
        label.is_some_and(|binding| is_theirs(binding) && is_at(binding)) || is_adopted()
    }

    /// Returns the names of ChallengeRecords that a binding can permit.
    fn challenged_by(&self, binding: &BindingInput) -> Vec<Name> {
        let zones = self.domains.iter().map(|domain| domain.alias_apex.clone());
        let zones = zones.chain(binding.shard.parse().ok()).chain(binding.former_names.iter().cloned());
        let names = zones.filter_map(|zone| zone.prepend(binding.label.as_bytes()).ok());
        let adopted =
            binding.adopted.clone().and_then(|host| if host.is_wildcard() { host.parent() } else { Some(host) });
        let challenges = names.chain(adopted).filter_map(|name| name.prepend(ACME_CHALLENGE_LABEL.as_bytes()).ok());
        let hosts = self.domains.iter().filter_map(|domain| {
            domain.apex.prepend(ACME_LABEL.as_bytes()).and_then(|zone| zone.prepend(binding.label.as_bytes())).ok()
        });
        challenges.chain(hosts).filter(|owner| self.challenges.contains_key(owner)).collect()
    }

    /// Puts the values of a name into its zone, and reports the change.
    fn place(&mut self, owner: &Name, changes: &mut Vec<Change>) {
        if let Some(apex) = self.shard_around(owner) {
            let before = self.shards_at(std::slice::from_ref(&apex));
            self.settle(&[apex], before, changes);
        }
        if let Some(label) = self.alias_above(owner) {
            self.place_below_alias(&label, changes);
        }
        let values = self.permitted(owner);
        if let Some(domain) = self.domains.iter_mut().find(|domain| challenges::is_of_host(owner, &domain.apex))
            && domain.delegations.set_texts(owner, values)
        {
            let digest = domain.delegations.digest();
            changes.push(Change::Delegation { apex: owner.clone(), domain: domain.apex.clone(), digest });
        }
    }

    /// Puts a host of Routes into the parent zone of the closest domain around it, if there is one, and reports the change. The oldest binding
    /// has it.
    fn place_host(&mut self, host: &Name, changes: &mut Vec<Change>) {
        let from = (host.clone(), Box::default());
        let bindings = self.customs.range(from..).take_while(|((name, _), _)| name == host).map(|(_, binding)| binding);
        let oldest = bindings.min_by(|a, b| (a.created, &a.key).cmp(&(b.created, &b.key))).cloned();
        let around = self.domains.iter().map(|domain| &domain.apex).filter(|apex| host.is_below(apex));
        let closest = around.max_by_key(|apex| apex.label_count()).cloned();
        for domain in &mut self.domains {
            let label =
                oldest.as_ref().map(|binding| &*binding.label).filter(|_| closest.as_ref() == Some(&domain.apex));
            if domain.delegations.set_host(host, label) {
                let digest = domain.delegations.digest();
                changes.push(Change::Delegation { apex: host.clone(), domain: domain.apex.clone(), digest });
            }
        }
    }

    /// Returns the label of the alias directly above a name.
    fn alias_above(&self, owner: &Name) -> Option<String> {
        let alias = owner.parent()?;
        let zone = alias.parent()?;
        self.domains.iter().any(|domain| domain.alias_apex == zone).then(|| first_label(&alias)).flatten()
    }

    /// Puts the values below an alias into the alias zones, which are the same in all domains of the platform.
    fn place_below_alias(&mut self, label: &str, changes: &mut Vec<Change>) {
        let zones = self.domains.iter().map(|domain| &domain.alias_apex);
        let owners = zones.filter_map(|zone| {
            zone.prepend(label.as_bytes()).and_then(|alias| alias.prepend(ACME_CHALLENGE_LABEL.as_bytes())).ok()
        });
        let values: BTreeSet<Box<str>> = owners.flat_map(|owner| self.permitted(&owner)).take(VALUES_MAX).collect();
        let before = match values.is_empty() {
            true => self.alias_texts.remove(label),
            false => self.alias_texts.insert(label.into(), values.clone()),
        };
        let before = before.unwrap_or_default();
        if before != values {
            let digest = |values| challenges::digest(label.as_bytes(), values);
            self.aliases_digest = self.aliases_digest.minus(digest(&before)).plus(digest(&values));
            changes.push(Change::AliasText { label: label.into(), values, digest: self.aliases_digest });
        }
    }

    /// Returns the apexes of the served shards directly inside the one at `apex`.
    fn cuts(&self, apex: &Name) -> BTreeSet<Name> {
        let mut cuts = BTreeSet::new();
        let mut last: Option<&Name> = None;
        for inner in self.claims_below(apex).filter(|inner| self.is_served(inner)) {
            if last.is_none_or(|last| !inner.is_below(last)) {
                cuts.insert(inner.clone());
                last = Some(inner);
            }
        }
        cuts
    }

    /// Returns the zone around the inner shard at `apex` if a name there, of a binding that is not newer than the shard's Router, is at or
    /// below the apex.
    fn outer_in_the_way(&self, apex: &Name) -> Option<Name> {
        if !self.inner.contains(apex) {
            return None;
        }
        let created = self.claims.get(apex)?.first()?.created;
        let mut above = std::iter::successors(apex.parent(), Name::parent);
        let outer = above.find(|above| self.shard(above).is_some())?;
        let zone = text_of(&outer);
        let is_older = |binding: &BindingInput| binding.created <= created;
        let of_label = || {
            let is_direct = apex.label_count() == outer.label_count() + 1;
            let label = label_below(apex, &outer).filter(|_| is_direct);
            let binding = label.and_then(|label| self.alias(&label));
            binding.is_some_and(|binding| {
                let is_there = zone.eq_ignore_ascii_case(&binding.shard) || zone.eq_ignore_ascii_case(binding.target());
                is_older(binding) && (is_there || binding.former_names.contains(&outer))
            })
        };
        let is_there = |binding: &BindingInput| zone.eq_ignore_ascii_case(&binding.shard) && is_older(binding);
        (self.adopted.any_below(apex, is_there) || of_label()).then_some(outer)
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
        if let Some(outer) = self.withheld.get(apex) {
            return Some(format!(
                "names of Routes in the zone {} are at or below {}, so it is not served; move or delete these Routes, or \
                 re-create the Router with another zone",
                text_of(outer),
                text_of(apex)
            ));
        }
        let (at, domain) = self.domains.iter().enumerate().find(|(_, domain)| domain.takes(apex))?;
        Some(match (at, *apex == domain.apex) {
            (0, true) => format!("{apex} is the platform's own domain; choose a name below it"),
            (_, true) => {
                format!("{apex} is a former domain of the platform, which is still served; choose another name")
            }
            (_, false) => format!("{apex} is inside the alias zone, {}; choose another name", domain.alias_apex),
        })
    }

    fn is_served(&self, apex: &Name) -> bool {
        !self.withheld.contains_key(apex) && !self.domains.iter().any(|domain| domain.takes(apex))
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
        fn identity(binding: &BindingInput) -> (i64, &str, &str, &str, Option<&Name>) {
            (binding.created, &binding.key, &binding.shard, binding.target(), binding.adopted.as_ref())
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

    /// Returns all ChallengeRecords with `<namespace>/<name>`, in no order.
    pub fn challenges(&self) -> impl Iterator<Item = (&str, &Arc<ChallengeInput>)> {
        self.challenge_keys.iter().map(|(key, challenge)| (&**key, challenge))
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
        let served = self.claims.iter().filter(move |(apex, _)| self.is_served(apex));
        served.filter_map(|(apex, claims)| Some((apex, self.outer.get(apex).or_else(|| claims.first())?)))
    }

    /// Returns the Router that serves `apex`.
    pub fn shard(&self, apex: &Name) -> Option<&Arc<ShardView>> {
        let claims = self.claims.get(apex).filter(|_| self.is_served(apex))?;
        self.outer.get(apex).or_else(|| claims.first())
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

    /// Returns the TXT values below aliases, by their labels.
    pub fn alias_texts(&self) -> &BTreeMap<Box<str>, BTreeSet<Box<str>>> {
        &self.alias_texts
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

    /// Returns the shards that are withheld, by apex, each with its Router and the zone around it.
    pub fn withheld(&self) -> impl Iterator<Item = (&Name, &Arc<ShardView>, &Name)> {
        let withheld = self.withheld.iter();
        withheld.filter_map(|(apex, outer)| Some((apex, self.claims.get(apex)?.first()?, outer)))
    }

    /// Diagnostics on objects that lost a conflict.
    pub fn refused(&self) -> impl Iterator<Item = &Diagnostic> {
        self.refused.values()
    }
}
