//! Some nodes of a zone in one contiguous block with its own hash table: all of a small zone, a part of a large one.
//!
//! At 100,000 zones the wait for memory decides what a query costs. The slots, the apex to compare with and the first
//! nodes share a few neighbouring cache lines, and the block starts on a line of its own.
//!
//! ```text
//! slots u32 (a power of two) · nodes u32 · first node at u32 · apex node at u32 (0: not here) · apex length u32
//! slots, 8 octets each: bits 8 to 40 of the name's hash u32 · node at u32 (0: free)
//! apex in lower case · nodes
//! ```

use super::node::Node;
use super::qname::NameHash;

/// A block of nodes.
pub(super) struct Leaf {
    octets: Box<[u8]>,
    /// Where the block begins in `octets`: the first 64-octet boundary there.
    start: u32,
}

/// The nodes take more octets than a block can address, 4 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLarge;

const LINE: usize = 64;
const HEAD: usize = 20;
const SLOT: usize = 8;

impl Leaf {
    /// A block of `nodes`, of which the one with the hash `apex_hash`, if any, is the apex. The nodes' order is kept.
    pub(super) fn build<N: AsRef<[u8]>>(nodes: &[N], apex: &[u8], apex_hash: NameHash) -> Result<Leaf, TooLarge> {
        // At most half full: a probe for a name that is not there ends after 1.5 slots on average.
        let slots = (2 * nodes.len()).next_power_of_two().max(2);
        let first = HEAD + SLOT * slots + apex.len();
        let length = first + nodes.iter().map(|node| node.as_ref().len()).sum::<usize>();
        u32::try_from(length).map_err(|_| TooLarge)?;
        let mut octets = vec![0u8; length + LINE].into_boxed_slice();
        let start = octets.as_ptr().align_offset(LINE).min(LINE);
        let block = &mut octets[start..start + length];
        block[..4].copy_from_slice(&(slots as u32).to_le_bytes());
        block[4..8].copy_from_slice(&(nodes.len() as u32).to_le_bytes());
        block[8..12].copy_from_slice(&(first as u32).to_le_bytes());
        block[16..20].copy_from_slice(&(apex.len() as u32).to_le_bytes());
        block[first - apex.len()..first].copy_from_slice(apex);
        let mut at = first;
        for node in nodes {
            let node = node.as_ref();
            block[at..at + node.len()].copy_from_slice(node);
            let hash = Node::at(node).hash();
            if hash == apex_hash && Node::at(node).relative().is_empty() {
                block[12..16].copy_from_slice(&(at as u32).to_le_bytes());
            }
            let mut slot = hash as usize & (slots - 1);
            while block[HEAD + SLOT * slot + 4..HEAD + SLOT * (slot + 1)] != [0; 4] {
                slot = (slot + 1) & (slots - 1);
            }
            let slot = &mut block[HEAD + SLOT * slot..HEAD + SLOT * (slot + 1)];
            slot[..4].copy_from_slice(&tag(hash).to_le_bytes());
            slot[4..].copy_from_slice(&(at as u32).to_le_bytes());
            at += node.len();
        }
        Ok(Leaf { octets, start: start as u32 })
    }

    #[inline]
    fn block(&self) -> &[u8] {
        &self.octets[self.start as usize..]
    }

    /// The node of the name whose hash is `hash` and whose labels above the apex, in lower case, are `relative`.
    #[inline]
    pub(super) fn find(&self, hash: NameHash, relative: &[u8]) -> Option<Node<'_>> {
        let block = self.block();
        let mask = u32_at(block, 0) as usize - 1;
        let mut slot = hash as usize & mask;
        // The table has free slots, so this ends.
        loop {
            let entry: &[u8; SLOT] = block[HEAD + SLOT * slot..].first_chunk()?;
            let at = u32_at(entry, 4);
            if at == 0 {
                return None;
            }
            if u32_at(entry, 0) == tag(hash) {
                let node = Node::at(&block[at as usize..]);
                if node.relative() == relative {
                    return Some(node);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The apex's node.
    #[inline]
    pub(super) fn apex_node(&self) -> Option<Node<'_>> {
        let block = self.block();
        let at = u32_at(block, 12) as usize;
        (at != 0).then(|| Node::at(&block[at..]))
    }

    /// The apex's name in lower case.
    #[inline]
    pub(super) fn apex(&self) -> &[u8] {
        let block = self.block();
        let end = u32_at(block, 8) as usize;
        &block[end - u32_at(block, 16) as usize..end]
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        let block = self.block();
        let mut at = u32_at(block, 8) as usize;
        (0..self.len()).map(move |_| {
            let node = Node::at(&block[at..]);
            at += node.octets().len();
            node
        })
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        u32_at(self.block(), 4) as usize
    }

    /// Octets of memory.
    pub(super) fn octets(&self) -> usize {
        self.octets.len()
    }

    /// Reads one octet of each of the first cache lines, so that they are near when the answer is written.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        let block = self.block();
        let last = block.len() - 1;
        block[0] ^ block[LINE.min(last)] ^ block[(2 * LINE).min(last)] ^ block[(3 * LINE).min(last)]
    }
}

#[inline]
fn tag(hash: NameHash) -> u32 {
    (hash >> 8) as u32
}

#[inline]
fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}
