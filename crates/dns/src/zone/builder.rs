//! Compiling a zone: from [`Contents`] to an image, and from one image to the next by the owners that changed.
//!
//! Apart from compiling each owner's records, this creates a node for every empty non-terminal (RFC 4592 §2.2.2), counts each
//! node's children, so that a change can remove an empty non-terminal, and marks the names below cuts and DNAMEs.

use std::collections::HashMap;
use std::sync::Arc;

use super::contents::Contents;
use super::denial::{self, AnotherChain, Denial};
use super::image::{Directory, NodeChange, Zone};
use super::leaf::{Leaf, TooLarge};
use super::node::compile::{self, NodeSource};
use super::node::{Node, flag};
use super::qname::Qname;
use super::rrset::Rrset;
use super::serial::Serial;
use crate::wire::name::labels_of;
use crate::wire::{Name, RecordType};

/// The records of an owner after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerChange {
    /// The owner of the records.
    pub owner: Name,
    /// All its RRsets; empty: the owner is deleted.
    pub rrsets: Vec<Rrset>,
    /// Weights of its address RRsets, as in [`Contents::set_weights`].
    pub weights: Vec<(RecordType, Vec<u16>)>,
}

/// The reason why contents cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// There is not exactly one well-formed SOA at the apex.
    #[error("{apex}: the apex must have exactly one SOA record, with two names and five numbers")]
    NoSoa {
        /// The zone.
        apex: Name,
    },
    /// A changed owner is neither the apex nor below it.
    #[error("{owner} is outside the zone {apex}")]
    OutOfZone {
        /// The owner.
        owner: Name,
        /// The zone.
        apex: Name,
    },
    /// A record's data is longer than a message can express.
    #[error("{owner} {rtype}: the data of a record is longer than 65535 octets")]
    RdataTooLong {
        /// The record's owner.
        owner: Name,
        /// The record's type.
        rtype: RecordType,
    },
    /// A contiguous part of the zone is larger than 4 GiB.
    #[error("{apex}: the zone is too large")]
    TooLarge {
        /// The zone.
        apex: Name,
    },
}

/// A zone of more nodes than this gets a directory. Below, a change copies the whole zone, some 100 KiB at most for
/// ordinary records; above, the 256 parts of a directory take 60 KiB at least.
const SINGLE_LEAF_NODES_MAX: usize = 512;
/// Flags that depend on other nodes than their own.
const STRUCTURAL: u8 = flag::WILDCARD_CHILD | flag::OCCLUDED;

impl Zone {
    /// Compiles `contents`, and frees each owner right after its compilation, which makes the peak of memory a third lower. It rejects
    /// only contents that cannot be served at all; checks find inconsistent ones.
    pub fn build(mut contents: Contents) -> Result<Zone, BuildError> {
        let too_large = |_: TooLarge| BuildError::TooLarge { apex: contents.apex().clone() };
        let denial = Denial::build(&contents).map_err(too_large)?.map(Arc::new);
        let (count, owners) = (contents.owner_count(), contents.take_owners());
        assemble(contents.apex(), Compilation::nodes(&contents, count, owners)?, denial)
    }

    /// Returns this zone with all records of some owners replaced; the cost depends on the change, not on the size of the zone,
    /// unless the change creates or removes a cut above other names, or selects another chain of proofs: by NSEC or NSEC3PARAM at
    /// the apex. Of several changes of one owner, the last counts.
    pub fn with_changes(&self, changes: &[OwnerChange]) -> Result<Zone, BuildError> {
        if let Some(change) = changes.iter().find(|change| !change.owner.is_at_or_below(&self.apex)) {
            return Err(BuildError::OutOfZone { owner: change.owner.clone(), apex: self.apex.clone() });
        }
        for change in changes {
            check_rdata(&change.owner, &change.rrsets)?;
        }
        if self.unavailable.is_some() {
            return self.rebuilt_with(changes);
        }
        let mut edit = Edit { zone: self, nodes: HashMap::new() };
        let applied = changes.iter().try_for_each(|change| edit.apply(change));
        match applied.and_then(|()| edit.denial(changes)) {
            Ok(denial) => edit.finish(denial),
            Err(NeedsRebuild) => self.rebuilt_with(changes),
        }
    }

    fn rebuilt_with(&self, changes: &[OwnerChange]) -> Result<Zone, BuildError> {
        let mut contents = self.contents();
        for change in changes {
            contents.remove_owner(&change.owner);
            for rrset in change.rrsets.iter().filter(|rrset| !rrset.rtype.is_meta()) {
                contents.set(change.owner.clone(), rrset.clone()).expect("the owner was found to be in the zone");
            }
            for (rtype, weights) in &change.weights {
                // Weights without a matching RRset have no effect, as in a full build.
                let _ = contents.set_weights(&change.owner, *rtype, weights.clone());
            }
        }
        Zone::build(contents)
    }
}

/// The nodes of a zone, with its totals.
#[derive(Default)]
pub(super) struct Nodes {
    octets: Vec<Vec<u8>>,
    owner_count: usize,
    /// The most labels of a node, above the apex.
    labels_max: usize,
}

impl Nodes {
    pub(super) fn push(&mut self, node: Vec<u8>) {
        let view = Node::at(&node);
        self.owner_count += usize::from(!view.is_empty_non_terminal());
        self.labels_max = self.labels_max.max(labels_of(view.relative()).count());
        self.octets.push(node);
    }
}

/// Compiles all owners of a zone, and empty non-terminals.
struct Compilation<'c> {
    /// Has the weights.
    contents: &'c Contents,
    nodes: Nodes,
    /// The number of children of each node.
    children: Vec<u32>,
    /// The path from the apex to the last node: canonical order visits a name directly before the names below it.
    path: Vec<(Name, usize)>,
}

impl<'c> Compilation<'c> {
    /// Returns the nodes of all owners, which are in canonical order, with empty non-terminals; the apex first.
    fn nodes(
        contents: &'c Contents,
        count: usize,
        owners: impl Iterator<Item = (Name, Vec<Rrset>)>,
    ) -> Result<Nodes, BuildError> {
        let (nodes, children) =
            (Nodes { octets: Vec::with_capacity(count), ..Nodes::default() }, Vec::with_capacity(count));
        let mut all = Compilation { contents, nodes, children, path: Vec::new() };
        let no_soa = || BuildError::NoSoa { apex: contents.apex().clone() };
        for (owner, mut rrsets) in owners {
            check_rdata(&owner, &rrsets)?;
            if denial::is_hashed(&rrsets) {
                // Names of hashes do not exist as names (RFC 5155 §7.2.8).
                rrsets = Denial::without_nsec3(&rrsets);
                if rrsets.is_empty() {
                    continue;
                }
            }
            if all.path.is_empty() && owner != *contents.apex() {
                return Err(no_soa());
            }
            while all.path.last().is_some_and(|(above, _)| !owner.is_below(above)) {
                all.path.pop();
            }
            let base = all.path.last().map_or(0, |(above, _)| above.label_count() + 1);
            let missing = if all.path.is_empty() { 0 } else { owner.label_count() - base };
            for skipped in (1..=missing).rev() {
                all.add(ancestor(&owner, skipped), &[]);
            }
            all.add(owner, &rrsets);
        }
        let Compilation { mut nodes, children, .. } = all;
        // Most nodes have none, as compiled.
        for (node, children) in nodes.octets.iter_mut().zip(children).filter(|(_, children)| *children > 0) {
            compile::set_children(node, children);
        }
        if nodes.octets.is_empty() { Err(no_soa()) } else { Ok(nodes) }
    }

    /// Adds a node below the last one of the path.
    fn add(&mut self, name: Name, rrsets: &[Rrset]) {
        let weights = |rtype| self.contents.weights(&name, rtype).map(<[u16]>::to_vec);
        let source = NodeSource { owner: &name, apex: self.contents.apex(), rrsets, weights: &weights };
        let mut node = compile::compile(&source);
        if let Some((_, parent)) = self.path.last() {
            self.children[*parent] += 1;
            adopt(&mut self.nodes.octets[*parent], &mut node, name.is_wildcard());
        }
        self.path.push((name, self.nodes.octets.len()));
        self.nodes.push(node);
        self.children.push(0);
    }
}

/// Sets the flags of `child` that depend on its parent, and those of the parent that depend on it; the caller counts the
/// children.
fn adopt(parent: &mut [u8], child: &mut [u8], child_is_wildcard: bool) {
    let above = Node::at(parent).flags();
    compile::set_flags(child, flag::OCCLUDED, above & (flag::CUT | flag::DNAME | flag::OCCLUDED) != 0);
    if child_is_wildcard {
        compile::set_flags(parent, flag::WILDCARD_CHILD, true);
    }
}

/// Returns a zone of these nodes, which include the apex.
pub(super) fn assemble(apex: &Name, nodes: Nodes, denial: Option<Arc<Denial>>) -> Result<Zone, BuildError> {
    let no_soa = || BuildError::NoSoa { apex: apex.clone() };
    let too_large = |_: TooLarge| BuildError::TooLarge { apex: apex.clone() };
    let qname = Qname::of(apex.as_wire());
    let Nodes { octets: mut nodes, owner_count, labels_max } = nodes;
    let at = nodes.iter().position(|node| Node::at(node).relative().is_empty()).ok_or_else(no_soa)?;
    let soa = Soa::read(Node::at(&nodes[at]), apex).ok_or_else(no_soa)?;
    let labels_max = labels_max + qname.labels();
    let (head, directory) = if nodes.len() <= SINGLE_LEAF_NODES_MAX {
        // The nodes that most queries need are first, next to the slots: the wildcard, then the apex.
        nodes.sort_by_key(|node| match Node::at(node).relative() {
            b"\x01*" => 0,
            b"" => 1,
            _ => 2,
        });
        (Leaf::build(&nodes, qname.octets(), qname.hash(0)).map_err(too_large)?, None)
    } else {
        let apex_node = nodes.swap_remove(at);
        let head = Leaf::build(&[apex_node], qname.octets(), qname.hash(0)).map_err(too_large)?;
        (head, Some(Directory::build(nodes).map_err(too_large)?))
    };
    let zone = Zone::of(apex.clone(), &qname, head, directory);
    let Soa { serial, negative_ttl } = soa;
    Ok(Zone { labels_max: labels_max as u8, negative_ttl, serial, denial, owner_count, ..zone })
}

/// Nodes of a zone being changed, over those that it has.
struct Edit<'z> {
    zone: &'z Zone,
    /// The changed nodes by their labels above the apex, in lower case; `None`: deleted.
    nodes: HashMap<Vec<u8>, (Qname, Option<Vec<u8>>)>,
}

/// The change affects what an edit cannot find: the nodes below a new or removed cut, or the records of another chain of proofs.
struct NeedsRebuild;

impl Edit<'_> {
    fn apply(&mut self, change: &OwnerChange) -> Result<(), NeedsRebuild> {
        let qname = Qname::of(change.owner.as_wire());
        let weights = |rtype| {
            let of_type = change.weights.iter().find(|(weighted, _)| *weighted == rtype);
            of_type
                .map(|(_, weights)| weights.clone())
                .filter(|weights| weights.iter().any(|weight| *weight != weights[0]))
        };
        let is_kept = |rrset: &&Rrset| !rrset.rdata.is_empty() && !rrset.rtype.is_meta();
        let mut rrsets: Vec<Rrset> = change.rrsets.iter().filter(is_kept).cloned().collect();
        if denial::is_hashed(&rrsets) {
            rrsets = Denial::without_nsec3(&rrsets);
        }
        let source = NodeSource { owner: &change.owner, apex: self.zone.apex(), rrsets: &rrsets, weights: &weights };
        let mut node = compile::compile(&source);
        match self.get(&qname, 0) {
            Some(old) => {
                let (flags, children) = (Node::at(old).flags(), Node::at(old).children());
                let redirects = flag::CUT | flag::DNAME;
                if children > 0 && (flags ^ Node::at(&node).flags()) & redirects != 0 {
                    return Err(NeedsRebuild);
                }
                let is_apex = Node::at(&node).relative().is_empty();
                if rrsets.is_empty() && children == 0 && !is_apex {
                    self.remove(&qname, 0);
                    return Ok(());
                }
                compile::set_children(&mut node, children);
                compile::set_flags(&mut node, flags & STRUCTURAL, true);
                *old = node;
            }
            None if rrsets.is_empty() => {}
            None => self.insert(&qname, 0, node, &change.owner),
        }
        Ok(())
    }

    /// Returns the node of a suffix of `qname`, ready to be changed.
    fn get(&mut self, qname: &Qname, skipped: usize) -> Option<&mut Vec<u8>> {
        let relative = self.zone.relative(qname, skipped)?;
        if !self.nodes.contains_key(relative) {
            let node = self.zone.find(qname.hash(skipped), relative)?.octets().to_vec();
            self.nodes.insert(relative.to_vec(), (Qname::of(qname.suffix(skipped)), Some(node)));
        }
        self.nodes.get_mut(relative)?.1.as_mut()
    }

    /// Adds a node, and the missing nodes above it.
    fn insert(&mut self, qname: &Qname, skipped: usize, mut node: Vec<u8>, owner: &Name) {
        if self.get(qname, skipped + 1).is_none() {
            let above = ancestor(owner, skipped + 1);
            let source = NodeSource { owner: &above, apex: self.zone.apex(), rrsets: &[], weights: &|_| None };
            self.insert(qname, skipped + 1, compile::compile(&source), owner);
        }
        let is_wildcard = qname.suffix(skipped).starts_with(b"\x01*");
        let parent = self.get(qname, skipped + 1).expect("it was there or has just been inserted");
        let children = Node::at(parent).children() + 1;
        compile::set_children(parent, children);
        adopt(parent, &mut node, is_wildcard);
        let relative = self.zone.relative(qname, skipped).expect("the owner is in the zone").to_vec();
        self.nodes.insert(relative, (Qname::of(qname.suffix(skipped)), Some(node)));
    }

    /// Removes a node, and the empty non-terminals above it that exist only because of it.
    fn remove(&mut self, qname: &Qname, skipped: usize) {
        let relative = self.zone.relative(qname, skipped).expect("the owner is in the zone").to_vec();
        self.nodes.insert(relative, (Qname::of(qname.suffix(skipped)), None));
        let Some(parent) = self.get(qname, skipped + 1) else { return };
        let children = Node::at(parent).children().saturating_sub(1);
        compile::set_children(parent, children);
        if qname.suffix(skipped).starts_with(b"\x01*") {
            compile::set_flags(parent, flag::WILDCARD_CHILD, false);
        }
        let node = Node::at(parent);
        if children == 0 && node.is_empty_non_terminal() && !node.relative().is_empty() {
            self.remove(qname, skipped + 1);
        }
    }

    fn denial(&self, changes: &[OwnerChange]) -> Result<Option<Arc<Denial>>, NeedsRebuild> {
        let zone = self.zone;
        let apex_node = zone.apex_node().ok_or(NeedsRebuild)?;
        let records = changes.iter().map(|change| (&change.owner, &change.rrsets[..]));
        Denial::with_changes(zone.denial.as_ref(), (&zone.apex, apex_node), records)
            .map_err(|_: AnotherChain| NeedsRebuild)
    }

    fn finish(self, denial: Option<Arc<Denial>>) -> Result<Zone, BuildError> {
        let zone = self.zone;
        let too_large = |_: TooLarge| BuildError::TooLarge { apex: zone.apex.clone() };
        let mut changes: Vec<NodeChange> = self
            .nodes
            .into_iter()
            .map(|(relative, (qname, node))| NodeChange { hash: qname.hash(0), relative, node })
            .collect();
        let Some(directory) = &zone.directory else {
            let replaced = |node: &Node<'_>| changes.iter().any(|change| change.relative == node.relative());
            let kept = zone.head.nodes().filter(|node| !replaced(node)).map(|node| node.octets().to_vec());
            let mut nodes = Nodes::default();
            kept.for_each(|node| nodes.push(node));
            changes.into_iter().filter_map(|change| change.node).for_each(|node| nodes.push(node));
            return assemble(&zone.apex, nodes, denial);
        };
        let is_owner = |node: Node<'_>| !node.is_empty_non_terminal();
        let mut owner_count = zone.owner_count;
        for change in &changes {
            owner_count += usize::from(change.node.as_deref().map(Node::at).is_some_and(is_owner));
            owner_count -= usize::from(zone.find(change.hash, &change.relative).is_some_and(is_owner));
        }
        let labels =
            changes.iter().map(|change| labels_of(&change.relative).count()).max().unwrap_or(0) + zone.apex_labels();
        let apex_change = changes.iter().position(|change| change.relative.is_empty());
        let apex_node = match apex_change.map(|at| changes.swap_remove(at)) {
            Some(change) => change.node.expect("the apex is never removed"),
            None => zone.head.nodes().next().expect("the apex was compiled").octets().to_vec(),
        };
        let soa =
            Soa::read(Node::at(&apex_node), &zone.apex).ok_or_else(|| BuildError::NoSoa { apex: zone.apex.clone() })?;
        let head = Leaf::build(&[apex_node], zone.apex_octets(), zone.apex_hash).map_err(too_large)?;
        let directory = directory.with_changes(changes).map_err(too_large)?;
        let labels_max = zone.labels_max.max(labels as u8);
        let zone = Zone::of(zone.apex.clone(), &Qname::of(zone.apex.as_wire()), head, Some(directory));
        Ok(Zone { labels_max, negative_ttl: soa.negative_ttl, serial: soa.serial, denial, owner_count, ..zone })
    }
}

/// The parts of a SOA record that the engine needs (RFC 1035 §3.3.13).
struct Soa {
    serial: Serial,
    negative_ttl: u32,
}

impl Soa {
    fn read(apex: Node<'_>, apex_name: &Name) -> Option<Soa> {
        let records = apex.get(RecordType::SOA).filter(|records| records.count() == 1)?;
        let rrset = records.to_rrset(&[], apex_name);
        let (_, rest) = Name::split_from(&rrset.rdata[0]).ok()?;
        let (_, numbers) = Name::split_from(rest).ok()?;
        let numbers: &[u8; 20] = numbers.try_into().ok()?;
        let number = |at: usize| u32::from_be_bytes([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
        Some(Soa { serial: Serial(number(0)), negative_ttl: records.ttl().min(number(16)) })
    }
}

fn check_rdata(owner: &Name, rrsets: &[Rrset]) -> Result<(), BuildError> {
    let too_long = |rrset: &&Rrset| rrset.rdata.iter().any(|rdata| rdata.len() > usize::from(u16::MAX));
    match rrsets.iter().find(too_long) {
        Some(rrset) => Err(BuildError::RdataTooLong { owner: owner.clone(), rtype: rrset.rtype }),
        None => Ok(()),
    }
}

/// `name` without its first `skipped` labels.
fn ancestor(name: &Name, skipped: usize) -> Name {
    let octets: usize = name.labels().take(skipped).map(|label| label.len() + 1).sum();
    Name::from_wire(&name.as_wire()[octets..]).expect("a suffix of a name is a name")
}
