//! What the verification of names is told by the ledger of serials, which knows which zone holds what. News of one thing replaces
//! what was told of it before and not yet taken, so that what waits here is bounded by the number of objects.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

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
