//! The publications of name servers, and their invariants after every publication.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use signpost_dns::wire::Name;
use signpost_dns::zone::db::Snapshot;
use signpost_dns::zone::{Serial, Zone, ZoneDb};

use super::{Truth, is_older};
use crate::AHEAD;

/// The publications of name servers.
#[derive(Default)]
pub(super) struct Published {
    pub(super) servers: BTreeMap<String, Server>,
    /// A sum of the contents under each serial.
    pub(super) contents: BTreeMap<(Name, u32), (u64, String)>,
}

#[derive(Default)]
pub(super) struct Server {
    /// The map of zones in which it publishes, while it runs.
    pub(super) db: Option<Arc<ZoneDb>>,
    pub(super) serials: BTreeMap<Name, Serial>,
    /// Whether its zones deny names that are not found.
    is_denying: bool,
    pub(super) snapshot: Option<Arc<Snapshot>>,
    pub(super) zones: Vec<Arc<Zone>>,
}

impl Truth {
    /// Sets the map of zones in which a server publishes; `None`: it is down.
    pub fn serves(&mut self, server: &str, db: Option<Arc<ZoneDb>>) {
        let server = self.published.servers.entry(server.to_owned()).or_default();
        (server.db, server.snapshot, server.zones) = (db, None, Vec::new());
    }

    /// Removes a server's state: its disk is lost, with its serials.
    pub fn forgets(&mut self, server: &str) {
        self.note(format!("{server} loses its disk"));
        self.published.servers.entry(server.to_owned()).or_default().serials.clear();
    }

    /// Checks the possible publications of a name server.
    pub fn check_published(&mut self, name: &str) {
        let Some(server) = self.published.servers.get_mut(name) else { return };
        let Some(db) = server.db.clone() else { return };
        let snapshot = db.snapshot();
        let is_denying = server.zones.iter().all(|zone| zone.may_deny(0));
        let is_new_denying = std::mem::replace(&mut server.is_denying, is_denying) != is_denying;
        if server.snapshot.as_ref().is_some_and(|before| Arc::ptr_eq(before, &snapshot)) {
            if is_new_denying {
                self.note(format!("{name} {}", if is_denying { "denies names" } else { "is unsure" }));
                self.check_live(name, None);
            }
            return;
        }
        server.snapshot = Some(snapshot);
        let zones: Vec<_> = db.zones().into_iter().filter(|zone| zone.why_unavailable().is_none()).collect();
        let is_same = |zone: &&Arc<Zone>| server.zones.iter().any(|before| Arc::ptr_eq(before, zone));
        let new: Vec<_> = zones.iter().filter(|zone| !is_same(zone)).cloned().collect();
        // A zone that returns begins with the clock's serial, possibly of another clock, unless its own was ahead of all.
        server.serials.retain(|apex, last| last.0 >= AHEAD || zones.iter().any(|zone| zone.apex() == apex));
        server.zones = zones;
        for zone in new {
            let Some(serial) = zone.serial() else { continue };
            let apex = zone.apex().clone();
            self.note(format!("{name} publishes {apex} {}", serial.0));
            let server = self.published.servers.get_mut(name).expect("it publishes");
            let before = server.serials.insert(apex.clone(), serial);
            self.check(!before.is_some_and(|before| is_older(serial, before)), || {
                format!("{name} goes from serial {} of {apex} back to {}", before.expect("is older").0, serial.0)
            });
            let (sum, by) = (sum_of(&zone), name.to_owned());
            let known = self.published.contents.entry((apex.clone(), serial.0)).or_insert((sum, by)).clone();
            // A provisional serial that is not in the ledger does not matter to other servers.
            self.check(known.0 == sum || !self.named.contains(&(apex.clone(), serial.0)), || {
                format!("{name} has other contents of {apex} under serial {} than {}", serial.0, known.1)
            });
        }
        if db.is_ready() {
            self.check_live(name, None);
        }
    }
}

fn sum_of(zone: &Zone) -> u64 {
    let mut sum = DefaultHasher::new();
    for (owner, rrsets) in zone.contents().owners() {
        format!("{owner} {rrsets:?}").hash(&mut sum);
    }
    sum.finish()
}
