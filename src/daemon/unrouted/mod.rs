//! Names without a Route that shards' wildcards answer: the evaluation of the workers' wildcard hits.
//!
//! ```text
//!  worker ─► ring (transport/wildcard_hits) ─► every 250 ms: has the name a Route? ─► tally ─► /metrics, /unrouted-names
//! ```
//!
//! A name has a Route if the alias zone has a CNAME with its label and exactly this name as its target: the alias zone has a
//! record for every bound Route. The API is therefore not queried, and a moved Route counts at its current Router. Adopted hosts have
//! other labels than their aliases, and come from the objects. While the alias zone is missing, nothing is counted. Signpost's own
//! queries for wildcards are not counted either.

pub mod tally;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::tally::{NameKey, Tally};
use crate::admin::unrouted::Report;
use signpost_control::compiler;
use signpost_control::compiler::adopted::AdoptedHosts;
use signpost_control::name_server::status::Status;
use signpost_control::observe::verify::check::PROBE_LABEL;
use signpost_dns::nameserver::wildcard_hit::WildcardHit;
use signpost_dns::transport::wildcard_hits::{WINDOW, WildcardHitReceiver};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::db::Snapshot;
use signpost_dns::zone::{Zone, ZoneDb};

/// The interval at which the rings are emptied.
const LOOK: Duration = WINDOW;
/// The maximum number of hits taken out of one ring before the next ring.
const ROUND: usize = 4096;

/// The counts; only the task writes them.
pub struct Unrouted {
    db: Arc<ZoneDb>,
    platform: Arc<compiler::Settings>,
    status: Arc<Status>,
    counted: Mutex<Counted>,
}

struct Counted {
    tally: Tally,
    lost: u64,
}

/// The requests for names without a Route, since the start.
#[derive(Debug, PartialEq, Eq)]
pub struct Counts {
    /// The counts by zone: all shards' zones that have numbers, and former zones with requests.
    pub zones: Vec<(Name, u64)>,
    pub others: u64,
    /// The number of requests that the lost hits represent.
    pub lost: u64,
}

impl Unrouted {
    /// Returns empty counts for the shards' zones in `db`. Reports contain `names` names per zone.
    pub fn new(names: usize, db: Arc<ZoneDb>, platform: Arc<compiler::Settings>, status: Arc<Status>) -> Self {
        let tally = Tally::new(names, Timestamp::now());
        Unrouted { db, platform, status, counted: Mutex::new(Counted { tally, lost: 0 }) }
    }

    /// Counts the hits in `rings`, until `stop`.
    pub async fn run(self: Arc<Self>, mut rings: Vec<WildcardHitReceiver>, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let now = Timestamp::now();
            let lost = rings.iter().map(WildcardHitReceiver::lost).sum();
            self.counted.lock().lost = lost;
            self.counted.lock().tally.turn(now);
            for ring in &mut rings {
                self.take(ring, now);
            }
        }
    }

    fn take(&self, ring: &mut WildcardHitReceiver, now: Timestamp) {
        let Some(first) = ring.pop() else { return };
        let snapshot = self.db.snapshot();
        let Some(aliases) = self.db.get(self.platform.alias_apex()).filter(|zone| zone.why_unavailable().is_none())
        else {
            // The pending hits are dropped, because they cannot be classified.
            for _ in 0..ROUND {
                if ring.pop().is_none() {
                    break;
                }
            }
            return;
        };
        let numbers = self.db.numbers_max();
        let adopted = Arc::clone(&self.status.state().adopted_hosts);
        let rest = std::iter::from_fn(|| ring.pop()).take(ROUND);
        for hit in [first].into_iter().chain(rest) {
            if let Some((apex, number)) = self.unrouted(&hit, &snapshot, &aliases, &adopted) {
                let seen = NameKey { label: hit.label().into(), is_below: hit.is_below };
                let number = Some(number).filter(|number| *number < numbers);
                self.counted.lock().tally.add(&apex, number, seen, u64::from(hit.weight), now);
            }
        }
    }

    /// Returns the shard's zone and its number, if the name has no Route there.
    fn unrouted(
        &self,
        hit: &WildcardHit,
        snapshot: &Snapshot,
        aliases: &Zone,
        adopted: &AdoptedHosts,
    ) -> Option<(Name, usize)> {
        if hit.label().starts_with(PROBE_LABEL.as_bytes()) {
            return None;
        }
        let zone = snapshot.by_hash(hit.zone)?;
        let name = zone.apex().prepend(hit.label()).ok()?;
        if adopted.has(&name, hit.is_below) {
            return None;
        }
        if !hit.is_below {
            let alias = aliases.apex().prepend(hit.label()).ok()?;
            let leads_here = |target: &[u8]| target.eq_ignore_ascii_case(name.as_wire());
            let mut records = aliases.owner(&alias).into_iter().filter(|rrset| rrset.rtype == RecordType::CNAME);
            if records.any(|rrset| rrset.rdata.iter().any(|target| leads_here(target))) {
                return None;
            }
        }
        Some((zone.apex().clone(), zone.number()))
    }

    pub fn counts(&self) -> Counts {
        let apexes = self.db.numbered();
        let counted = self.counted.lock();
        let (requests, others) = counted.tally.requests();
        let requests = requests.iter().copied().chain(std::iter::repeat(0));
        let zones = apexes
            .into_iter()
            .zip(requests)
            .filter(|(apex, count)| *count > 0 || self.db.get(apex).is_some_and(|zone| zone.is_shard()));
        Counts { zones: zones.collect(), others, lost: counted.lost }
    }

    /// Returns the names with the most queries.
    pub fn report(&self) -> Report {
        self.counted.lock().tally.report()
    }
}
