//! Some nodes of a zone in one contiguous block with its own hash table: all of a small zone, a part of a large one.
//!
//! With 100,000 zones, the wait for memory determines the cost of a query. The slots, the apex for the comparison, and the first
//! nodes share a few adjacent cache lines, and the block starts at a cache line.
//!
//! ```text
//! slots, a power of two of 8 octets each: node at u32 (0: free) · bits 8 to 40 of its name's hash u32
//! apex in lower case · nodes
//! ```

use super::node::Node;
use super::qname::NameHash;

/// A block of nodes.
pub(super) struct Leaf {
    octets: Box<[u8]>,
    /// The start of the block in `octets`: the first 64-octet boundary there. All other offsets count from here.
    start: u32,
    /// The number of slots less one.
    mask: u32,
    /// The offset of the apex's node; 0 if it is elsewhere.
    apex_node: u32,
    /// The offset of the node of the wildcard directly below the apex; 0 if it is elsewhere.
    apex_wildcard: u32,
    node_count: u32,
    apex_length: u8,
}

/// The nodes take more octets than a block can address, 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

const LINE: usize = 64;
const SLOT: usize = 8;

impl Leaf {
    /// Creates a block of `nodes`, of which the node with the hash `apex_hash`, if any, is the apex. Keeps their order.
    pub(super) fn build<N: AsRef<[u8]>>(nodes: &[N], apex: &[u8], apex_hash: NameHash) -> Result<Leaf, TooLarge> {
        // At most half full: a probe for a missing name ends after 1.5 slots on average.
        let slots = (2 * nodes.len()).next_power_of_two().max(2);
        let first = SLOT * slots + apex.len();
        let length = first + nodes.iter().map(|node| node.as_ref().len()).sum::<usize>();
        u32::try_from(length + LINE).map_err(|_| TooLarge)?;
        let mut octets = vec![0u8; length + LINE].into_boxed_slice();
        let start = octets.as_ptr().align_offset(LINE).min(LINE);
        let block = &mut octets[start..start + length];
        block[first - apex.len()..first].copy_from_slice(apex);
        let (mut apex_node, mut apex_wildcard) = (0, 0);
        let mut at = first;
        for node in nodes {
            let node = node.as_ref();
            block[at..at + node.len()].copy_from_slice(node);
            let hash = Node::at(node).hash();
            if hash == apex_hash && Node::at(node).relative().is_empty() {
                apex_node = at as u32;
            }
            if Node::at(node).relative() == b"\x01*" {
                apex_wildcard = at as u32;
            }
            let mut slot = hash as usize & (slots - 1);
            while block[SLOT * slot..SLOT * slot + 4] != [0; 4] {
                slot = (slot + 1) & (slots - 1);
            }
            let entry = u64::from(tag(hash)) << 32 | at as u64;
            block[SLOT * slot..SLOT * (slot + 1)].copy_from_slice(&entry.to_le_bytes());
            at += node.len();
        }
        Ok(Leaf {
            octets,
            start: start as u32,
            mask: slots as u32 - 1,
            apex_node,
            apex_wildcard,
            node_count: nodes.len() as u32,
            apex_length: apex.len() as u8,
        })
    }

    #[inline]
    fn block(&self) -> &[u8] {
        &self.octets[self.start as usize..]
    }

    /// Returns the node of the name with the hash `hash` and, in lower case, the labels `relative` above the apex; these are
    /// compared if a node has the hash.
    #[inline]
    pub(super) fn find<'n>(&self, hash: NameHash, relative: impl Fn() -> &'n [u8]) -> Option<Node<'_>> {
        let block = self.block();
        let mut slot = hash as u32 & self.mask;
        // The table has free slots, so this ends.
        loop {
            let entry = u64::from_le_bytes(*block.get(SLOT * slot as usize..)?.first_chunk()?);
            let at = entry as u32;
            if at == 0 {
                return None;
            }
            if (entry >> 32) as u32 == tag(hash) {
                let node = Node::at(block.get(at as usize..)?);
                if node.relative() == relative() {
                    return Some(node);
                }
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// Returns the apex's node.
    #[inline]
    pub(super) fn apex_node(&self) -> Option<Node<'_>> {
        self.node(self.apex_node)
    }

    /// Returns the node of the wildcard directly under the apex.
    #[inline]
    pub(super) fn apex_wildcard(&self) -> Option<Node<'_>> {
        self.node(self.apex_wildcard)
    }

    /// Returns the node at this offset; none at 0.
    #[inline]
    fn node(&self, at: u32) -> Option<Node<'_>> {
        if at == 0 {
            return None;
        }
        Some(Node::at(self.block().get(at as usize..)?))
    }

    /// Returns the apex's name in lower case.
    #[inline]
    pub(super) fn apex(&self) -> &[u8] {
        let at = self.start as usize + self.slot_octets();
        &self.octets[at..at + usize::from(self.apex_length)]
    }

    /// Returns the length of the apex's name in octets.
    #[inline]
    pub(super) fn apex_length(&self) -> usize {
        usize::from(self.apex_length)
    }

    /// Returns all nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let block = self.block();
        // After the apex's name.
        let mut at = self.slot_octets() + usize::from(self.apex_length);
        (0..self.len()).map(move |_| {
            let node = Node::at(&block[at..]);
            at += node.octets().len();
            node
        })
    }

    #[inline]
    fn slot_octets(&self) -> usize {
        SLOT * (self.mask as usize + 1)
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.node_count as usize
    }

    /// Returns the memory in octets.
    pub(super) fn octets(&self) -> usize {
        self.octets.len()
    }

    /// Reads the slot where a probe for `hash` begins.
    #[inline]
    pub(super) fn touch_slot(&self, hash: NameHash) -> u8 {
        self.block().get(SLOT * (hash as u32 & self.mask) as usize).copied().unwrap_or(0)
    }

    /// Reads one octet of each of the first cache lines, so that they are in the cache when the answer is written.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        let block = self.block();
        let line = |number: usize| block.get(number * LINE).copied().unwrap_or(0);
        line(0) ^ line(1) ^ line(2) ^ line(3)
    }
}

#[inline]
fn tag(hash: NameHash) -> u32 {
    (hash >> 8) as u32
}
