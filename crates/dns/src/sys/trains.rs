//! Which replies of a batch go as one train: one message of the send call, cut into datagrams by the kernel (UDP_SEGMENT).
//!
//! A train is one walk down the network stack and up to the device for many datagrams, and the walk is most of what an
//! answer costs. Only what goes to one peer from one address can travel together, and only in pieces of one length; so
//! replies are grouped by peer and length, in one pass with a small hash table. The order among replies to one peer is
//! free, since each is matched by its ID and question.
//!
//! ```text
//! queued:  a₁₂₀ b₁₂₀ a₁₂₀ a₁₃₆ c₁₂₀ a₁₂₀ b₁₂₀ a₁₂₀     peer and length of each reply
//! trains:  [0 2 5 7] [1] [3] [4] [6]                     lists of their places, `next` from each to the one behind it
//! ```
//!
//! A train costs the kernel as much as three or four datagrams before it saves anything, since it is one large buffer that is
//! cut up again; shorter ones are dissolved. Among clients that each ask one thing now and then, two replies of a batch
//! meet by chance: coupling such pairs cost 13 % of all processor time. Where a plan brings nothing, ever more batches go
//! without one, until one of them brings something.

use super::datagrams::BATCH_MAX;

/// The longest datagram of a train: with the longer of the two IP headers it fits the smallest MTU that IPv6 allows, so no
/// train is refused for its length, whatever way it goes. (The kernel refuses to fragment the parts of a train.)
pub(super) const CAR_OCTETS_MAX: usize = 1_232;

/// The longest train: the kernel takes what one IP packet could hold, less its headers.
pub(super) const TRAIN_OCTETS_MAX: usize = 65_000;

/// The most datagrams in a train: as many as every kernel that knows UDP_SEGMENT takes (newer ones: 128).
pub(super) const CARS_MAX: usize = 64;

/// The fewest datagrams that go as a train. (Smaller in tests of the plan, which are easier to read so.)
pub(super) const CARS_MIN: u8 = 4;

/// The most batches that go without a plan before one is made again.
const REST_MAX: u8 = 15;

/// Four times the most trains, so that a probe seldom meets another's place.
const TABLE: usize = 4 * BATCH_MAX;

/// No train is here, or no reply is behind this one.
const NONE: u8 = u8::MAX;

const _: () = assert!(BATCH_MAX < NONE as usize && BATCH_MAX <= CARS_MAX && TABLE.is_power_of_two());

/// What goes where: filled anew for each batch, in memory that stays.
pub(super) struct Plan {
    /// Places in `trains`, by hash.
    table: [u8; TABLE],
    next: [u8; BATCH_MAX],
    trains: [Train; BATCH_MAX],
    count: usize,
    /// The fewest cars of a train.
    cars_min: u8,
    /// How many batches go without a plan from now on, and how many did when the last one had brought nothing.
    rest: u8,
    rested: u8,
}

#[derive(Clone, Copy)]
struct Train {
    /// Of the first reply: most that differ are told apart by it alone.
    hash: u32,
    first: u8,
    last: u8,
    cars: u8,
}

/// What a reply is like to the plan.
pub(super) trait Replies {
    /// A number that is the same for replies of one peer and length.
    fn hash(&self, reply: usize) -> u32;

    /// Whether both go to one peer, from one address, and are of one length.
    fn alike(&self, one: usize, other: usize) -> bool;

    /// Its length in octets.
    fn octets(&self, reply: usize) -> usize;
}

impl Plan {
    /// Plans of trains of `cars_min` datagrams at least.
    pub(super) fn new(cars_min: u8) -> Self {
        let nobody = Train { hash: 0, first: NONE, last: NONE, cars: 0 };
        let (table, next, trains) = ([NONE; TABLE], [NONE; BATCH_MAX], [nobody; BATCH_MAX]);
        Plan { table, next, trains, count: 0, cars_min, rest: 0, rested: 0 }
    }

    /// Plans for a batch of so many replies as [`Self::make`] does, unless batches like it brought nothing of late. Whether
    /// something goes together.
    pub(super) fn try_to_make(&mut self, count: usize, replies: &impl Replies) -> bool {
        if count < usize::from(self.cars_min) {
            return false;
        }
        if let Some(left) = self.rest.checked_sub(1) {
            self.rest = left;
            return false;
        }
        let together = self.make(count, replies) < count;
        self.rested = if together { 0 } else { (2 * self.rested + 1).min(REST_MAX) };
        self.rest = self.rested;
        together
    }

    /// Groups the replies `0..count`, at most [`BATCH_MAX`], and returns how many trains that makes, those of one included.
    fn make(&mut self, count: usize, replies: &impl Replies) -> usize {
        assert!(count <= BATCH_MAX);
        self.table = [NONE; TABLE];
        self.count = 0;
        for reply in 0..count {
            self.next[reply] = NONE;
            let hash = replies.hash(reply);
            let mut place = hash as usize % TABLE;
            // Ends: there are fewer trains than places.
            let at = loop {
                match self.table[place] {
                    NONE => break None,
                    train => {
                        let other = &self.trains[usize::from(train)];
                        if other.hash == hash && replies.alike(usize::from(other.first), reply) {
                            break Some(usize::from(train));
                        }
                        place = (place + 1) % TABLE;
                    }
                }
            };
            match at {
                Some(train) if self.has_room(train, replies.octets(reply)) => {
                    let train = &mut self.trains[train];
                    self.next[usize::from(train.last)] = reply as u8;
                    train.last = reply as u8;
                    train.cars += 1;
                }
                // A new train; where one of the same kind is full, in its place.
                _ => {
                    self.table[place] = self.count as u8;
                    self.trains[self.count] = Train { hash, first: reply as u8, last: reply as u8, cars: 1 };
                    self.count += 1;
                }
            }
        }
        self.dissolve();
        self.count
    }

    /// Lets the replies of trains that are too short go one by one.
    fn dissolve(&mut self) {
        for train in 0..self.count {
            let Train { hash, first, cars, .. } = self.trains[train];
            if (2..self.cars_min).contains(&cars) {
                self.trains[train] = Train { hash, first, last: first, cars: 1 };
                let mut next = std::mem::replace(&mut self.next[usize::from(first)], NONE);
                while next != NONE {
                    self.trains[self.count] = Train { hash, first: next, last: next, cars: 1 };
                    self.count += 1;
                    next = std::mem::replace(&mut self.next[usize::from(next)], NONE);
                }
            }
        }
    }

    fn has_room(&self, train: usize, octets: usize) -> bool {
        let cars = usize::from(self.trains[train].cars);
        octets <= CAR_OCTETS_MAX && cars < CARS_MAX && (cars + 1) * octets <= TRAIN_OCTETS_MAX
    }

    /// How many trains there are.
    pub(super) fn trains(&self) -> usize {
        self.count
    }

    /// How many replies the train holds.
    pub(super) fn cars(&self, train: usize) -> usize {
        usize::from(self.trains[..self.count][train].cars)
    }

    /// The replies of a train, in their order.
    pub(super) fn replies(&self, train: usize) -> impl Iterator<Item = usize> {
        let first = self.trains[..self.count][train].first;
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
        let mut plan = Plan::new(2);
        for hash in [|peer, length| u32::from(peer) * 7 + length as u32, |_, _| 127] {
            let count = plan.make(replies.len(), &Cases(replies.to_vec(), hash));
            let trains: Vec<Vec<usize>> = (0..count).map(|train| plan.replies(train).collect()).collect();
            assert_eq!(trains, expected);
            assert!((0..count).all(|train| plan.cars(train) == trains[train].len()));
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
    fn trains_are_bounded() {
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
    fn short_trains_are_dissolved() {
        let replies = b"aabbbbcacbddd".map(|peer| (peer, 90));
        for (cars_min, expected) in [
            (2, [&[0, 1, 7][..], &[2, 3, 4, 5, 9], &[6, 8], &[10, 11, 12]].to_vec()),
            (3, [&[0, 1, 7][..], &[2, 3, 4, 5, 9], &[6], &[10, 11, 12], &[8]].to_vec()),
            (4, [&[0][..], &[2, 3, 4, 5, 9], &[6], &[10], &[1], &[7], &[8], &[11], &[12]].to_vec()),
        ] {
            let mut plan = Plan::new(cars_min);
            let count = plan.make(replies.len(), &Cases(replies.to_vec(), |peer, _| peer.into()));
            let trains: Vec<Vec<usize>> = (0..count).map(|train| plan.replies(train).collect()).collect();
            assert_eq!(trains, expected, "{cars_min}");
        }
    }

    #[test]
    fn batches_that_bring_nothing_are_seldom_planned() {
        let batch = |peer: fn(u8) -> u8| Cases((0..8).map(|reply| (peer(reply), 90)).collect(), |peer, _| peer.into());
        let (many, one) = (batch(|reply| reply), batch(|_| 1));
        let mut plan = Plan::new(CARS_MIN);
        assert!(plan.try_to_make(8, &one) && plan.try_to_make(8, &one) && !plan.try_to_make(3, &one));
        (0..100).for_each(|_| assert!(!plan.try_to_make(8, &many)));
        let rested = (0..100).take_while(|_| !plan.try_to_make(8, &one)).count();
        assert!(rested <= REST_MAX.into(), "{rested}");
        assert!(plan.try_to_make(8, &one));
    }
}
