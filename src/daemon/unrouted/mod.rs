//! Names without a Route that shards' wildcards answer: what becomes of the workers' wildcard hits.
//!
//! ```text
//!  worker ─► ring (transport/wildcard_hits) ─► every 250 ms: has the name a Route? ─► tally ─► /metrics, /unrouted-names
//! ```
//!
//! A name has a Route if the alias zone has its label, as a CNAME of this very name: the alias zone has a record for every
//! bound Route. So nothing is asked of the API, and a Route that has moved away counts where it is. While the alias zone is
//! not there nothing is known, and nothing is counted. Nor is what we ask ourselves to see what a wildcard answers.

pub mod tally;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::tally::{NameKey, Tally};
use crate::admin::unrouted::Report;
use signpost_control::compiler;
use signpost_control::observe::verify::check::PROBE_LABEL;
use signpost_dns::nameserver::wildcard_hit::WildcardHit;
use signpost_dns::transport::wildcard_hits::{WINDOW, WildcardHitReceiver};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::db::Snapshot;
use signpost_dns::zone::{Zone, ZoneDb};

/// How often the rings are emptied.
const LOOK: Duration = WINDOW;
/// WildcardHitReceiver taken out of one ring before the next one's turn.
const ROUND: usize = 4096;

/// What is counted; the task counts, others read.
pub struct Unrouted {
    db: Arc<ZoneDb>,
    platform: Arc<compiler::Settings>,
    counted: Mutex<Counted>,
}

struct Counted {
    tally: Tally,
    lost: u64,
}

/// Requests for names without a Route, since the start.
#[derive(Debug, PartialEq, Eq)]
pub struct Counts {
    /// By zone: all shards' zones that have numbers, and those of before that had requests.
    pub zones: Vec<(Name, u64)>,
    pub others: u64,
    /// How many requests the lost hits stand for.
    pub lost: u64,
}

impl Unrouted {
    /// Nothing counted yet, for the shards' zones in `db`. Of each zone `names` names are told.
    pub fn new(names: usize, db: Arc<ZoneDb>, platform: Arc<compiler::Settings>) -> Self {
        let tally = Tally::new(names, Timestamp::now());
        Unrouted { db, platform, counted: Mutex::new(Counted { tally, lost: 0 }) }
    }

    /// Counts what comes out of `rings`, until `stop`.
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
            // What was seen is given up, for nobody can tell what it was.
            for _ in 0..ROUND {
                if ring.pop().is_none() {
                    break;
                }
            }
            return;
        };
        let numbers = self.db.numbers_max();
        let rest = std::iter::from_fn(|| ring.pop()).take(ROUND);
        for hit in [first].into_iter().chain(rest) {
            if let Some((apex, number)) = self.unrouted(&hit, &snapshot, &aliases) {
                let seen = NameKey { label: hit.label().into(), is_below: hit.is_below };
                let number = Some(number).filter(|number| *number < numbers);
                self.counted.lock().tally.add(&apex, number, seen, u64::from(hit.weight), now);
            }
        }
    }

    /// The shard's zone and its number, if the name has no Route there.
    fn unrouted(&self, hit: &WildcardHit, snapshot: &Snapshot, aliases: &Zone) -> Option<(Name, usize)> {
        if hit.label().starts_with(PROBE_LABEL.as_bytes()) {
            return None;
        }
        let zone = snapshot.by_hash(hit.zone)?;
        if !hit.is_below {
            let name = zone.apex().prepend(hit.label()).ok()?;
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

    /// The names asked most.
    pub fn report(&self) -> Report {
        self.counted.lock().tally.report()
    }
}
