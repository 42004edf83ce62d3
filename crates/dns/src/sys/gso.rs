//! Selects the replies of a batch that are sent as one GSO message (UDP generic segmentation offload, UDP_SEGMENT): one message
//! of the send call, which the kernel cuts into datagrams, its segments.
//!
//! A GSO message passes the network stack once for many datagrams, which is most of the cost of an answer. Only replies to one
//! peer from one address can share a message, and only if all have one length; so replies are grouped by peer and length, in one
//! pass with a small hash table. The order among replies to one peer is free, since each is matched by its ID and question.
//!
//! ```text
//! queued:    a₁₂₀ b₁₂₀ a₁₂₀ a₁₃₆ c₁₂₀ a₁₂₀ b₁₂₀ a₁₂₀   peer and length of each reply
//! messages:  [0 2 5 7] [1] [3] [4] [6]                 lists of their places, `next` from each to the one behind it
//! ```
//!
//! A message of several segments costs the kernel as much as three or four datagrams before it saves anything, because it is one
//! large buffer that is split again; shorter ones are split. Among clients that each send a query from time to time, two replies
//! of a batch share a peer only by chance: grouping such pairs cost 13 % of all processor time. If a plan saves nothing,
//! increasingly many batches are sent without one, until a plan saves something.

use super::BATCH_MAX;

/// The longest segment: with the longer of the two IP headers, it fits the smallest MTU that IPv6 allows, so no message is
/// rejected for the length of its segments on any path. (The kernel refuses to fragment segments.)
pub(super) const SEGMENT_OCTETS_MAX: usize = 1_232;

/// The longest message: the kernel accepts the contents of one IP packet of maximum size, without its headers.
pub(super) const MESSAGE_OCTETS_MAX: usize = 65_000;

/// The maximum number of segments of a message: every kernel with UDP_SEGMENT accepts as many (newer ones: 128).
pub(super) const SEGMENTS_MAX: usize = 64;

/// The minimum number of replies that share a message. (Tests of the plan use a smaller one, so that they are easier to read.)
pub(super) const SEGMENTS_MIN: u8 = 4;

/// The maximum number of batches without a plan before the next plan.
const SKIPPED_MAX: u8 = 15;

/// Four times the maximum number of messages, so that probes seldom collide.
const TABLE: usize = 4 * BATCH_MAX;

/// No message is here, or no reply follows this one.
const NONE: u8 = u8::MAX;

const _: () = assert!(BATCH_MAX < NONE as usize && BATCH_MAX <= SEGMENTS_MAX && TABLE.is_power_of_two());

/// The messages and their replies: refilled for each batch, in reused memory.
pub(super) struct SendPlan {
    /// Indexes in `messages`, by hash.
    table: [u8; TABLE],
    next: [u8; BATCH_MAX],
    messages: [GsoMessage; BATCH_MAX],
    count: usize,
    /// The minimum number of segments of a message.
    segments_min: u8,
    /// The number of further batches without a plan, and that number after the last plan that saved nothing.
    skip: u8,
    skipped: u8,
}

#[derive(Clone, Copy)]
struct GsoMessage {
    /// The hash of the first reply: in most cases, it alone distinguishes different ones.
    hash: u32,
    first: u8,
    last: u8,
    segments: u8,
}

/// The properties of replies that the plan depends on.
pub(super) trait Replies {
    /// Returns a number that is the same for replies of one peer and length.
    fn hash(&self, reply: usize) -> u32;

    /// Returns whether both go to one peer, from one address, and are of one length.
    fn alike(&self, one: usize, other: usize) -> bool;

    /// Returns its length in octets.
    fn octets(&self, reply: usize) -> usize;
}

impl SendPlan {
    /// Plans whose messages of several replies have `segments_min` at least.
    pub(super) fn new(segments_min: u8) -> Self {
        let nobody = GsoMessage { hash: 0, first: NONE, last: NONE, segments: 0 };
        let (table, next, messages) = ([NONE; TABLE], [NONE; BATCH_MAX], [nobody; BATCH_MAX]);
        SendPlan { table, next, messages, count: 0, segments_min, skip: 0, skipped: 0 }
    }

    /// Plans a batch of this many replies as [`Self::make`] does, unless recent similar batches saved nothing. Returns whether
    /// some replies are combined.
    pub(super) fn try_to_plan(&mut self, count: usize, replies: &impl Replies) -> bool {
        if count < usize::from(self.segments_min) {
            return false;
        }
        if let Some(left) = self.skip.checked_sub(1) {
            self.skip = left;
            return false;
        }
        let together = self.make(count, replies) < count;
        self.skipped = if together { 0 } else { (2 * self.skipped + 1).min(SKIPPED_MAX) };
        self.skip = self.skipped;
        together
    }

    /// Groups the replies `0..count`, at most [`BATCH_MAX`], and returns the number of messages, including those with one reply.
    fn make(&mut self, count: usize, replies: &impl Replies) -> usize {
        assert!(count <= BATCH_MAX);
        self.table = [NONE; TABLE];
        self.count = 0;
        for reply in 0..count {
            self.next[reply] = NONE;
            let hash = replies.hash(reply);
            let mut place = hash as usize % TABLE;
            // Ends: there are fewer messages than places.
            let at = loop {
                match self.table[place] {
                    NONE => break None,
                    message => {
                        let other = &self.messages[usize::from(message)];
                        if other.hash == hash && replies.alike(usize::from(other.first), reply) {
                            break Some(usize::from(message));
                        }
                        place = (place + 1) % TABLE;
                    }
                }
            };
            match at {
                Some(message) if self.has_room(message, replies.octets(reply)) => {
                    let message = &mut self.messages[message];
                    self.next[usize::from(message.last)] = reply as u8;
                    message.last = reply as u8;
                    message.segments += 1;
                }
                // A new message; it replaces a full one of the same kind.
                _ => {
                    self.table[place] = self.count as u8;
                    self.messages[self.count] = GsoMessage { hash, first: reply as u8, last: reply as u8, segments: 1 };
                    self.count += 1;
                }
            }
        }
        self.split_short();
        self.count
    }

    /// Splits messages that are too short into single replies.
    fn split_short(&mut self) {
        for message in 0..self.count {
            let GsoMessage { hash, first, segments, .. } = self.messages[message];
            if (2..self.segments_min).contains(&segments) {
                self.messages[message] = GsoMessage { hash, first, last: first, segments: 1 };
                let mut next = std::mem::replace(&mut self.next[usize::from(first)], NONE);
                while next != NONE {
                    self.messages[self.count] = GsoMessage { hash, first: next, last: next, segments: 1 };
                    self.count += 1;
                    next = std::mem::replace(&mut self.next[usize::from(next)], NONE);
                }
            }
        }
    }

    fn has_room(&self, message: usize, octets: usize) -> bool {
        let segments = usize::from(self.messages[message].segments);
        octets <= SEGMENT_OCTETS_MAX && segments < SEGMENTS_MAX && (segments + 1) * octets <= MESSAGE_OCTETS_MAX
    }

    /// Returns the number of messages.
    pub(super) fn messages(&self) -> usize {
        self.count
    }

    /// Returns the number of replies in the message.
    pub(super) fn segments(&self, message: usize) -> usize {
        usize::from(self.messages[..self.count][message].segments)
    }

    /// Returns the replies of a message, in their order.
    pub(super) fn replies(&self, message: usize) -> impl Iterator<Item = usize> {
        let first = self.messages[..self.count][message].first;
        std::iter::successors(Some(first), |reply| Some(self.next[usize::from(*reply)]).filter(|next| *next != NONE))
            .map(usize::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peer and length.
    struct Cases(Vec<(u8, usize)>, fn(u8, usize) -> u32);

    impl Replies for Cases {
        fn hash(&self, reply: usize) -> u32 {
            self.1(self.0[reply].0, self.0[reply].1)
        }

        fn alike(&self, one: usize, other: usize) -> bool {
            self.0[one] == self.0[other]
        }

        fn octets(&self, reply: usize) -> usize {
            self.0[reply].1
        }
    }

    fn check(replies: &[(u8, usize)], expected: &[&[usize]]) {
        // A hash that always collides must do no more than take longer; a plan is used again and again.
        let mut plan = SendPlan::new(2);
        for hash in [|peer, length| u32::from(peer) * 7 + length as u32, |_, _| 127] {
            let count = plan.make(replies.len(), &Cases(replies.to_vec(), hash));
            let messages: Vec<Vec<usize>> = (0..count).map(|message| plan.replies(message).collect()).collect();
            assert_eq!(messages, expected);
            assert!((0..count).all(|message| plan.segments(message) == messages[message].len()));
        }
    }

    #[test]
    fn replies_are_grouped_by_peer_and_length() {
        check(&[], &[]);
        check(&[(1, 100)], &[&[0]]);
        check(
            &[(b'a', 120), (b'b', 120), (b'a', 120), (b'a', 136), (b'c', 120), (b'a', 120)],
            &[&[0, 2, 5], &[1], &[3], &[4]],
        );
    }

    #[test]
    fn messages_are_bounded() {
        let all: Vec<usize> = (0..BATCH_MAX).collect();
        check(&vec![(1, 500); BATCH_MAX], &[&all]);
        // 52 of the longest are 64,064 octets; one more octet each, and they go alone.
        check(&vec![(1, 1_232); BATCH_MAX], &[&all[..52], &all[52..]]);
        let alone: Vec<&[usize]> = all.chunks(1).collect();
        check(&vec![(1, 1_233); BATCH_MAX], &alone);
        let peers: Vec<(u8, usize)> = (0..BATCH_MAX as u8).map(|peer| (peer, 90)).collect();
        check(&peers, &alone);
    }

    #[test]
    fn short_messages_are_split() {
        let replies = b"aabbbbcacbddd".map(|peer| (peer, 90));
        for (segments_min, expected) in [
            (2, [&[0, 1, 7][..], &[2, 3, 4, 5, 9], &[6, 8], &[10, 11, 12]].to_vec()),
            (3, [&[0, 1, 7][..], &[2, 3, 4, 5, 9], &[6], &[10, 11, 12], &[8]].to_vec()),
            (4, [&[0][..], &[2, 3, 4, 5, 9], &[6], &[10], &[1], &[7], &[8], &[11], &[12]].to_vec()),
        ] {
            let mut plan = SendPlan::new(segments_min);
            let count = plan.make(replies.len(), &Cases(replies.to_vec(), |peer, _| peer.into()));
            let messages: Vec<Vec<usize>> = (0..count).map(|message| plan.replies(message).collect()).collect();
            assert_eq!(messages, expected, "{segments_min}");
        }
    }

    #[test]
    fn batches_that_bring_nothing_are_seldom_planned() {
        let batch = |peer: fn(u8) -> u8| Cases((0..8).map(|reply| (peer(reply), 90)).collect(), |peer, _| peer.into());
        let (many, one) = (batch(|reply| reply), batch(|_| 1));
        let mut plan = SendPlan::new(SEGMENTS_MIN);
        assert!(plan.try_to_plan(8, &one) && plan.try_to_plan(8, &one) && !plan.try_to_plan(3, &one));
        (0..100).for_each(|_| assert!(!plan.try_to_plan(8, &many)));
        let skipped = (0..100).take_while(|_| !plan.try_to_plan(8, &one)).count();
        assert!(skipped <= SKIPPED_MAX.into(), "{skipped}");
        assert!(plan.try_to_plan(8, &one));
    }
}
