//! What the proof of names is told by the loops that know: which zone holds what, and which Routes have changed.
//!
//! The ledger of serials and the keeper of placement cache the objects already; a second informer of 100,000 Routes would cost
//! the memory and the time of each event once more. News of one thing replaces what was told of it before and not yet
//! taken, so that what waits here is bounded by the number of objects.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::reflector::ObjectKey;
use crate::compiler::inputs::{BindingInput, RouterInput};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// From the ledger of serials of one term of leadership.
#[derive(Debug, Default)]
pub struct ZoneFeed {
    news: Mutex<ZoneNews>,
    told: Notify,
}

/// What has changed in the zones.
#[derive(Debug, Default)]
pub struct ZoneNews {
    /// Shards, by their zones; `None`: gone.
    pub shards: HashMap<Name, Option<ShardNews>>,
    /// Aliases, by their labels; `None`: gone.
    pub aliases: HashMap<Box<str>, Option<AliasNews>>,
    /// The newest serial of the alias zone.
    pub alias_serial: Option<Serial>,
    /// Zones whose serials the API refuses to have written, with their Routers and why; `None`: it does no more.
    pub refused: HashMap<Name, Option<(Arc<RouterInput>, String)>>,
}

/// A shard's zone, whose contents have a serial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardNews {
    /// The Router that it is made from.
    pub router: Arc<RouterInput>,
    /// The serial in which it appeared.
    pub serial: Serial,
}

/// An alias that is in the alias zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasNews {
    /// The binding that it is made from.
    pub binding: Arc<BindingInput>,
    /// The serial in which it appeared, or one after it.
    pub serial: Serial,
}

impl ZoneFeed {
    /// Tells something.
    pub fn tell(&self, change: impl FnOnce(&mut ZoneNews)) {
        change(&mut self.news.lock());
        self.told.notify_one();
    }

    /// Waits for news.
    pub async fn wait(&self) {
        self.told.notified().await;
    }

    /// Takes all news.
    pub fn take(&self) -> ZoneNews {
        std::mem::take(&mut self.news.lock())
    }
}

/// From the keeper of placement, as long as someone listens.
#[derive(Debug, Default)]
pub struct RouteFeed {
    news: Mutex<Option<RouteNews>>,
    told: Notify,
}

/// What has happened to Routes, and to the status of Routers.
#[derive(Debug, Default)]
struct RouteNews {
    changed: HashSet<ObjectKey>,
    /// Routers that say something else of their zones than before, by their names.
    routers: HashSet<String>,
    /// When Routes without a Router were seen first, by the hash of where they are: it is for a metric, and of thousands that
    /// come at a time no text is kept for that.
    appeared: HashMap<u64, Instant>,
}

impl RouteFeed {
    /// From now on news is kept.
    pub fn open(&self) {
        *self.news.lock() = Some(RouteNews::default());
    }

    /// From now on it is not.
    pub fn close(&self) {
        *self.news.lock() = None;
    }

    /// A Route was created.
    pub fn appeared(&self, key: &ObjectKey, now: Instant) {
        if let Some(news) = &mut *self.news.lock() {
            news.appeared.insert(hash_of(key), now);
        }
    }

    /// A Route with a Router has changed, or its conditions have.
    pub fn changed(&self, key: &ObjectKey) {
        if let Some(news) = &mut *self.news.lock() {
            news.changed.insert(key.clone());
            self.told.notify_one();
        }
    }

    /// A Route is gone.
    pub fn gone(&self, key: &ObjectKey) {
        if let Some(news) = &mut *self.news.lock() {
            news.appeared.remove(&hash_of(key));
            news.changed.insert(key.clone());
            self.told.notify_one();
        }
    }

    /// A Router's status says something else of its zone than before.
    pub fn router_changed(&self, name: &str) {
        if let Some(news) = &mut *self.news.lock() {
            news.routers.insert(name.to_owned());
            self.told.notify_one();
        }
    }

    /// Waits for changes.
    pub async fn wait(&self) {
        self.told.notified().await;
    }

    /// Takes the changed Routes.
    pub fn take(&self) -> HashSet<ObjectKey> {
        self.news.lock().as_mut().map(|news| std::mem::take(&mut news.changed)).unwrap_or_default()
    }

    /// Takes the Routers that say something else.
    pub fn take_routers(&self) -> HashSet<String> {
        self.news.lock().as_mut().map(|news| std::mem::take(&mut news.routers)).unwrap_or_default()
    }

    /// When the Route at `key` was seen first; this is told once.
    pub fn take_appeared(&self, key: &ObjectKey) -> Option<Instant> {
        let mut news = self.news.lock();
        let appeared = &mut news.as_mut()?.appeared;
        let at = appeared.remove(&hash_of(key));
        if appeared.is_empty() {
            // After a storm of them the room is given back.
            *appeared = HashMap::new();
        }
        at
    }
}

fn hash_of(key: &ObjectKey) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}
