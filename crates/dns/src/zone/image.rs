//! A zone compiled for answers: immutable, in contiguous blocks, with lookups by hash.
//!
//! A small zone is one leaf. A large one keeps its apex in a leaf of its own, and the rest in a persistent directory of two
//! levels over leaves of some twenty nodes: a changed name copies its leaf and two small tables of pointers, and shares the rest
//! with the previous version.
//!
//! ```text
//! Zone ── head: Leaf (apex, and in a small zone every node)
//!     └── Directory ── 256 × Part ── 2^n × Leaf
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use super::contents::Contents;
use super::denial::Denial;
use super::leaf::{Leaf, TooLarge};
use super::node::Node;
use super::qname::{NameHash, Qname, wildcard_hash};
use super::rrset::Rrset;
use super::serial::Serial;
use crate::wire::{Name, RecordType};

/// A zone, compiled: made by [`Zone::build`] and [`Zone::with_changes`].
pub struct Zone {
    pub(super) head: Leaf,
    pub(super) directory: Option<Directory>,
    pub(super) apex_hash: NameHash,
    pub(super) apex_labels: u8,
    /// No node has more labels than this.
    pub(super) labels_max: u8,
    pub(super) negative_ttl: u32,
    pub(super) serial: Serial,
    pub(super) unavailable: Option<Unavailable>,
    pub(super) denial: Option<Arc<Denial>>,
    pub(super) apex: Name,
    pub(super) owner_count: usize,
    /// The counter slot, assigned by the publisher of the zone.
    pub(super) number: CounterSlot,
    /// Whether the zone follows another server, and can lag behind it.
    pub(super) follows: AtomicBool,
    /// Whether the zone is a shard's.
    pub(super) shard: AtomicBool,
    /// The time until which the zone may deny names, in seconds since the epoch.
    pub(super) denies_until: AtomicU64,
}

/// The position of a node in the image of one version of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodePosition {
    /// 0: the head; others are parts of the directory.
    part: usize,
    leaf: usize,
    node: usize,
}

/// The value of [`Zone::set_denies_until`] for a zone that lacks no existing name.
pub const DENIES_ALWAYS: u64 = u64::MAX;

/// The reason why a known zone cannot provide answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// The zone was never loaded, or its load failed and there is no earlier version.
    NotLoaded,
    /// A secondary's copy that was not refreshed within the SOA's expiry.
    Expired,
}

impl Zone {
    /// Returns a zone that is known and cannot be served: the server answers SERVFAIL for its names.
    pub fn unavailable(apex: Name, why: Unavailable) -> Zone {
        let qname = Qname::of(apex.as_wire());
        let head = Leaf::build::<&[u8]>(&[], qname.octets(), qname.hash(0)).expect("no nodes take no room");
        Zone { unavailable: Some(why), ..Zone::of(apex, &qname, head, None) }
    }

    /// Creates a zone of these nodes at `apex`, which is `qname`. The caller adds the rest.
    pub(super) fn of(apex: Name, qname: &Qname, head: Leaf, directory: Option<Directory>) -> Zone {
        Zone {
            head,
            directory,
            apex_hash: qname.hash(0),
            apex_labels: qname.labels() as u8,
            labels_max: qname.labels() as u8,
            negative_ttl: 0,
            serial: Serial(0),
            unavailable: None,
            denial: None,
            apex,
            owner_count: 0,
            number: CounterSlot::none(),
            follows: AtomicBool::new(false),
            shard: AtomicBool::new(false),
            denies_until: AtomicU64::new(DENIES_ALWAYS),
        }
    }

    /// Marks the zone as following another server, so that it may be stale. Call it before the zone is published to readers.
    pub fn set_follows(&self) {
        self.follows.store(true, Ordering::Relaxed);
    }

    /// Returns whether the zone follows another server.
    #[inline]
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Marks the zone as a shard's, so that its queries are sampled. Call it before the zone is published.
    pub fn set_shard(&self) {
        self.shard.store(true, Ordering::Relaxed);
    }

    /// Returns whether the zone is a shard's.
    #[inline]
    pub fn is_shard(&self) -> bool {
        self.shard.load(Ordering::Relaxed)
    }

    /// Sets the time from which existing names may be missing from the zone, in seconds since the epoch: some of its objects cannot
    /// be read (0), or the zone follows another server and may be behind. A missing name then gets SERVFAIL, and never an answer
    /// that it does not exist. A time instead of a flag also covers a process that was stopped and continues.
    pub fn set_denies_until(&self, seconds: u64) {
        self.denies_until.store(seconds, Ordering::Relaxed);
    }

    /// Returns whether the zone lacks no existing name at the time `now`, in seconds since the epoch.
    #[inline]
    pub fn may_deny(&self, now: u64) -> bool {
        now < self.denies_until.load(Ordering::Relaxed)
    }

    /// Returns the name at the zone's top.
    pub fn apex(&self) -> &Name {
        &self.apex
    }

    /// Returns the SOA's serial; `None` for an unavailable zone.
    pub fn serial(&self) -> Option<Serial> {
        self.unavailable.is_none().then_some(self.serial)
    }

    /// Returns the reason why the zone cannot provide answers; `None` if it can.
    pub fn why_unavailable(&self) -> Option<Unavailable> {
        self.unavailable
    }

    /// Returns the number of owners with records.
    pub fn owner_count(&self) -> usize {
        self.owner_count
    }

    /// Returns the memory of the zone's blocks in octets, including those that it shares with other versions.
    pub fn octets(&self) -> usize {
        let directory = self.directory.as_ref().map_or(0, |directory| directory.leaves().map(Leaf::octets).sum());
        self.head.octets() + directory
    }

    /// Returns the number under which workers count the zone's queries, once it is published in a [`super::ZoneDb`]; 65,535 if
    /// it has none.
    #[inline]
    pub fn number(&self) -> usize {
        usize::from(self.number.get())
    }

    /// Returns the hash of the apex.
    #[inline]
    pub fn apex_hash(&self) -> NameHash {
        self.apex_hash
    }

    /// Labels of the apex, the root not counted.
    #[inline]
    pub fn apex_labels(&self) -> usize {
        usize::from(self.apex_labels)
    }

    /// Returns the apex in lower case, in wire form.
    #[inline]
    pub fn apex_octets(&self) -> &[u8] {
        self.head.apex()
    }

    /// Returns the length of the apex in wire form, in octets.
    #[inline]
    pub fn apex_length(&self) -> usize {
        self.head.apex_length()
    }

    /// Returns the TTL of negative answers in seconds: the lower of the SOA's own and its MINIMUM field (RFC 2308 §3).
    #[inline]
    pub fn negative_ttl(&self) -> u32 {
        self.negative_ttl
    }

    /// Returns the proofs of a signed zone.
    pub fn denial(&self) -> Option<&Denial> {
        self.denial.as_deref()
    }

    /// Returns the apex's node; `None` for an unavailable zone.
    #[inline]
    pub fn apex_node(&self) -> Option<Node<'_>> {
        self.head.apex_node()
    }

    /// Returns the node with this hash whose labels above the apex, in lower case, are `relative`.
    #[inline]
    pub fn find(&self, hash: NameHash, relative: &[u8]) -> Option<Node<'_>> {
        if relative.is_empty() {
            return self.head.apex_node();
        }
        self.find_below(hash, || relative)
    }

    /// Returns the node with this hash, below the apex, by `relative`, which is called if a node has the hash.
    #[inline]
    pub(super) fn find_below<'n>(&self, hash: NameHash, relative: impl Fn() -> &'n [u8]) -> Option<Node<'_>> {
        match &self.directory {
            None => self.head.find(hash, relative),
            Some(directory) => directory.leaf(hash).find(hash, relative),
        }
    }

    /// Returns the node of the wildcard directly under the apex.
    #[inline]
    pub(super) fn apex_wildcard(&self) -> Option<Node<'_>> {
        match &self.directory {
            None => self.head.apex_wildcard(),
            Some(_) => self.find_below(wildcard_hash(self.apex_hash), || b"\x01*"),
        }
    }

    /// Prefetches the data for an answer about `qname` into the cache.
    #[inline]
    pub fn touch(&self, qname: &Qname) -> u8 {
        match &self.directory {
            None => self.head.touch(),
            Some(directory) => {
                // The first two names of the lookup; often the second exists.
                let first = qname.labels() - usize::from(self.labels_max).min(qname.labels());
                let second = (first + 1).min(qname.labels());
                let slots = |skipped| directory.leaf(qname.hash(skipped)).touch_slot(qname.hash(skipped));
                self.head.touch() ^ slots(first) ^ slots(second)
            }
        }
    }

    /// Returns the records of one owner, with its name in its original case; nothing for names without records.
    pub fn owner(&self, owner: &Name) -> Vec<Rrset> {
        let qname = Qname::of(owner.as_wire());
        let Some(relative) = self.relative(&qname, 0) else { return Vec::new() };
        self.find(qname.hash(0), relative).map_or_else(Vec::new, |node| node.to_rrsets(&self.apex))
    }

    /// Returns the SOA RRset; `None` for an unavailable zone.
    pub fn soa(&self) -> Option<Rrset> {
        Some(self.apex_node()?.get(RecordType::SOA)?.to_rrset(&[], &self.apex))
    }

    /// Returns the zone's records, read from the image.
    pub fn contents(&self) -> Contents {
        let mut contents = Contents::new(self.apex.clone());
        for node in self.nodes().filter(|node| !node.is_empty_non_terminal()) {
            let owner = self.name_of(node);
            for rrset in node.to_rrsets(&self.apex) {
                contents.set(owner.clone(), rrset).expect("owners and types of a zone were checked when it was built");
            }
            for records in node.rrsets() {
                if let Some(weights) = records.weights() {
                    contents
                        .set_weights(&owner, records.rtype(), weights.collect())
                        .expect("weights were checked when the zone was built");
                }
            }
        }
        for (_, node) in self.denial.iter().flat_map(|denial| denial.hashed_nodes_after(None)) {
            let owner = self.name_of(node);
            for Rrset { rtype, ttl, rdata } in node.to_rrsets(&self.apex) {
                for rdata in rdata {
                    // Not set, because signatures over other records may be present.
                    contents.add(owner.clone(), rtype, ttl, rdata).expect("hashed owners are in the zone");
                }
            }
        }
        contents
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let leaves = self.directory.iter().flat_map(Directory::leaves);
        self.head.nodes().chain(leaves.flat_map(Leaf::nodes))
    }

    /// Returns the nodes from a position on, each with its position. The order is that of the image: the apex first, and no other.
    pub fn nodes_from(&self, from: NodePosition) -> impl Iterator<Item = (NodePosition, Node<'_>)> {
        let parts = self.directory.as_ref().map_or(0, |directory| directory.parts.len());
        (from.part..=parts).flat_map(move |part| {
            let is_first = part == from.part;
            let leaves = match part.checked_sub(1) {
                None => 1,
                Some(at) => self.directory.as_ref().map_or(0, |directory| directory.parts[at].leaves.len()),
            };
            (if is_first { from.leaf } else { 0 }..leaves).flat_map(move |leaf| {
                let nodes = match (part.checked_sub(1), &self.directory) {
                    (Some(at), Some(directory)) => &*directory.parts[at].leaves[leaf],
                    _ => &self.head,
                };
                let skipped = if is_first && leaf == from.leaf { from.node } else { 0 };
                nodes
                    .nodes()
                    .enumerate()
                    .skip(skipped)
                    .map(move |(node, found)| (NodePosition { part, leaf, node }, found))
            })
        })
    }

    /// Returns the labels above the apex of the suffix of `qname` without its first `skipped` labels; `None` if it is outside the
    /// zone.
    pub(super) fn relative<'q>(&self, qname: &'q Qname, skipped: usize) -> Option<&'q [u8]> {
        let above = qname.labels().checked_sub(self.apex_labels())?;
        if skipped > above || qname.suffix(above) != self.apex_octets() {
            return None;
        }
        Some(&qname.octets()[qname.start(skipped)..qname.start(above)])
    }

    fn name_of(&self, node: Node<'_>) -> Name {
        let wire = [node.relative_as_written(), self.apex.as_wire()].concat();
        Name::from_wire(&wire).expect("a node's name was a name when it was compiled")
    }
}

/// A zone's number; without one, a number above all others.
pub(super) struct CounterSlot(AtomicU16);

impl CounterSlot {
    pub(super) const NONE: u16 = u16::MAX;

    pub(super) fn none() -> CounterSlot {
        CounterSlot(AtomicU16::new(Self::NONE))
    }

    pub(super) fn get(&self) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    /// Readers see it with the next published snapshot.
    pub(super) fn set(&self, number: u16) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// The nodes of a large zone, apex excepted.
pub(super) struct Directory {
    parts: Box<[Arc<Part>]>,
}

/// One of 256 parts of a directory, chosen by the hash's top octet.
struct Part {
    /// A power of two of them, chosen by the hash's bits from 40 on.
    leaves: Box<[Arc<Leaf>]>,
    node_count: usize,
}

const PARTS: usize = 256;
/// Nodes of a leaf on average when its part was laid out; half to twice as many before it is laid out again. A change
/// copies one leaf, and `PARTS` plus the part's leaves pointers: at 1,000,000 names both sides are some microseconds.
const LEAF_NODES: usize = 24;
/// The maximum number of leaves of a part, from the bits of the hash that select one.
const PART_LEAVES_MAX: usize = 1 << 16;

/// A changed node of a directory: the hash of its name, and its new octets, or none if it is deleted.
pub(super) struct NodeChange {
    pub(super) hash: NameHash,
    pub(super) relative: Vec<u8>,
    pub(super) node: Option<Vec<u8>>,
}

impl Directory {
    pub(super) fn build(nodes: Vec<Vec<u8>>) -> Result<Directory, TooLarge> {
        // An eighth more than the mean.
        let mut by_part = vec![Vec::new(); PARTS];
        by_part.iter_mut().for_each(|part| part.reserve_exact(nodes.len() / PARTS * 9 / 8));
        for node in nodes {
            by_part[part_index(Node::at(&node).hash())].push(node);
        }
        let parts = by_part.into_iter().map(|nodes| Part::build(nodes).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Directory { parts })
    }

    /// Returns this directory with some nodes replaced, added, or removed.
    pub(super) fn with_changes(&self, mut changes: Vec<NodeChange>) -> Result<Directory, TooLarge> {
        changes.sort_by_key(|change| part_index(change.hash));
        let mut parts = self.parts.clone();
        for changes in changes.chunk_by(|a, b| part_index(a.hash) == part_index(b.hash)) {
            let index = part_index(changes[0].hash);
            parts[index] = Arc::new(parts[index].with_changes(changes)?);
        }
        Ok(Directory { parts })
    }

    #[inline]
    fn leaf(&self, hash: NameHash) -> &Leaf {
        let part = &self.parts[part_index(hash)];
        &part.leaves[leaf_index(hash, part.leaves.len())]
    }

    fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.parts.iter().flat_map(|part| part.leaves.iter()).map(|leaf| &**leaf)
    }
}

impl Part {
    fn build<N: AsRef<[u8]>>(nodes: Vec<N>) -> Result<Part, TooLarge> {
        let leaf_count = (nodes.len() / LEAF_NODES).next_power_of_two().min(PART_LEAVES_MAX);
        let node_count = nodes.len();
        let mut by_leaf: Vec<Vec<N>> = (0..leaf_count).map(|_| Vec::new()).collect();
        for node in nodes {
            by_leaf[leaf_index(Node::at(node.as_ref()).hash(), leaf_count)].push(node);
        }
        let leaves =
            by_leaf.into_iter().map(|nodes| Leaf::build(&nodes, &[], 0).map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Part { leaves, node_count })
    }

    fn with_changes(&self, changes: &[NodeChange]) -> Result<Part, TooLarge> {
        let mut leaves = self.leaves.clone();
        let mut node_count = self.node_count;
        let mut order: Vec<&NodeChange> = changes.iter().collect();
        let leaf_count = leaves.len();
        order.sort_by_key(|change| leaf_index(change.hash, leaf_count));
        for changes in order.chunk_by(|a, b| leaf_index(a.hash, leaf_count) == leaf_index(b.hash, leaf_count)) {
            let index = leaf_index(changes[0].hash, leaf_count);
            let replaced = |node: &Node<'_>| {
                changes.iter().any(|change| change.hash == node.hash() && change.relative == node.relative())
            };
            let kept = leaves[index].nodes().filter(|node| !replaced(node)).map(|node| node.octets());
            let nodes: Vec<&[u8]> = kept.chain(changes.iter().filter_map(|change| change.node.as_deref())).collect();
            node_count = node_count + nodes.len() - leaves[index].len();
            let leaf = Leaf::build(&nodes, &[], 0)?;
            leaves[index] = Arc::new(leaf);
        }
        if node_count > 2 * LEAF_NODES * leaves.len() && leaves.len() < PART_LEAVES_MAX {
            return Part::build(leaves.iter().flat_map(|leaf| leaf.nodes()).map(|node| node.octets()).collect());
        }
        Ok(Part { leaves, node_count })
    }
}

#[inline]
fn part_index(hash: NameHash) -> usize {
    (hash >> 56) as usize
}

#[inline]
fn leaf_index(hash: NameHash, leaves: usize) -> usize {
    (hash >> 40) as usize & (leaves - 1)
}
