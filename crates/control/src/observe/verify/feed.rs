//! Updates from the serial allocator, which has the names of each zone, for name verification.
//!
//! An update of an object replaces an earlier unread one, so the number of objects bounds the waiting updates.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::compiler::ShardView;
use crate::compiler::inputs::BindingInput;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// The updates of one term of leadership.
#[derive(Debug, Default)]
pub struct ZoneFeed {
    update: Mutex<ZoneUpdate>,
    changed: Notify,
}

/// Changes of the zones. A deleted object has the value `None`.
#[derive(Debug, Default)]
pub struct ZoneUpdate {
    /// The Routers of shards by their zones, each with the serial in which these contents appeared.
    pub shards: HashMap<Name, Option<(Arc<ShardView>, Serial)>>,
    /// The bindings of aliases by their labels, each with the serial in which the alias appeared, or one after it.
    pub aliases: HashMap<Box<str>, Option<(Arc<BindingInput>, Serial)>>,
    /// The newest serial of the alias zone.
    pub alias_serial: Option<Serial>,
    /// The Routers of zones whose serials the API refuses to store, with the reason.
    pub refused: HashMap<Name, Option<(Arc<ShardView>, String)>>,
    /// The shards that are withheld, by zone: the name of the Router, and the zone around it. `None`: no change.
    pub withheld: Option<WithheldShards>,
}

/// The names of the Routers of withheld shards, by zone, each with the zone around it.
pub type WithheldShards = BTreeMap<Name, (Box<str>, Name)>;

impl ZoneFeed {
    /// Changes the update that waits.
    pub fn update(&self, change: impl FnOnce(&mut ZoneUpdate)) {
        change(&mut self.update.lock());
        self.changed.notify_one();
    }

    /// Waits for an update.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }

    pub fn take(&self) -> ZoneUpdate {
        std::mem::take(&mut self.update.lock())
    }
}
