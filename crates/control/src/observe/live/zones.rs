//! The zones in which names are verified, and how each server stands with each.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::time::Instant;

use super::standing::Standing;
use crate::compiler::inputs::RouterInput;
use crate::world::expectation::Expectation;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// The alias zone and the shards.
#[derive(Debug)]
pub(super) struct Zones {
    alias_apex: Name,
    pub alias: Zone,
    pub shards: HashMap<Name, Shard>,
    /// Zones whose serials cannot be written: their Routers, and why.
    pub refused: HashMap<Name, (Box<str>, String)>,
    /// How many contents of zones there were.
    epochs: u64,
}

/// A zone and how each server stands with it.
#[derive(Debug)]
pub(super) struct Zone {
    /// The version that the ledger named last; before it named any, no name is there either.
    pub serial: Serial,
    /// Which contents it has: another number than any before.
    pub epoch: u64,
    pub standings: Box<[Standing]>,
    /// Whether and when each server is to be checked, and whether something waits for that.
    pub due: Box<[Option<(bool, Instant)>]>,
}

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub zone: Zone,
    pub router: Arc<RouterInput>,
    pub expectation: Expectation,
    /// The routes whose names have answers of their own.
    pub explicit: BTreeSet<Box<str>>,
    /// Which of these are asked for next.
    pub turn: usize,
}

impl Zones {
    /// An alias zone without a version, and no shard.
    pub fn new(alias_apex: Name, servers: usize) -> Self {
        let alias = Zone::new(servers, Serial(0), 0);
        Zones { alias_apex, alias, shards: HashMap::new(), refused: HashMap::new(), epochs: 0 }
    }

    /// Whether this is the alias zone.
    pub fn is_alias(&self, apex: &Name) -> bool {
        *apex == self.alias_apex
    }

    pub fn get_mut(&mut self, apex: &Name) -> Option<&mut Zone> {
        match self.is_alias(apex) {
            true => Some(&mut self.alias),
            false => self.shards.get_mut(apex).map(|shard| &mut shard.zone),
        }
    }

    /// All of them, the alias zone last.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Zone)> {
        self.shards.iter().map(|(apex, shard)| (apex, &shard.zone)).chain([(&self.alias_apex, &self.alias)])
    }

    /// A number for other contents.
    pub fn next_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }
}

impl Zone {
    /// One of which nothing is known of any of so many servers.
    pub fn new(servers: usize, serial: Serial, epoch: u64) -> Self {
        Zone {
            serial,
            epoch,
            standings: (0..servers).map(|_| Standing::default()).collect(),
            due: (0..servers).map(|_| None).collect(),
        }
    }
}
