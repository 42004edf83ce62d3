//! The state of the certificates that the platform gets, for the conditions of Routes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::put::Put as _;

/// The state of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whether there is one that is valid.
    pub is_issued: bool,
    /// Whether it is that of the zone of a Router.
    pub is_of_zone: bool,
    /// The reason of the condition while an instance has none.
    pub reason: &'static str,
    pub message: String,
}

/// The states by Router, and by host or `*.` and its zone. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Issuance(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<NoteMap>,
    news: Notify,
}

#[derive(Debug, Default)]
struct NoteMap {
    notes: HashMap<String, HashMap<String, Note>>,
    /// The Routers with changes.
    changed: Vec<String>,
}

impl Issuance {
    /// Sets the state of a certificate; `None`: the platform does not get it.
    pub fn set(&self, router: &str, host: &str, note: Option<Note>) {
        let mut guard = self.0.known.lock();
        let known = &mut *guard;
        let of_router = known.notes.entry(router.to_owned()).or_default();
        if of_router.get(host) == note.as_ref() {
            return;
        }
        of_router.put(host.to_owned(), note);
        if of_router.is_empty() {
            known.notes.remove(router);
        }
        known.changed.push(router.to_owned());
        drop(guard);
        self.0.news.notify_one();
    }

    /// Returns the state of the certificate for a name on a Router: that of the name itself, otherwise that of the wildcard for it.
    pub fn of(&self, router: &str, name: &str) -> Option<Note> {
        let known = self.0.known.lock();
        let of_router = known.notes.get(router)?;
        let wildcard = || of_router.get(&format!("*.{}", name.split_once('.')?.1));
        of_router.get(name).or_else(wildcard).cloned()
    }

    /// Waits for changes.
    pub async fn wait(&self) {
        self.0.news.notified().await;
    }

    /// Takes the Routers with changes.
    pub fn take_changed(&self) -> Vec<String> {
        std::mem::take(&mut self.0.known.lock().changed)
    }

    /// Removes all states: another process leads.
    pub fn clear(&self) {
        let mut known = self.0.known.lock();
        let routers: Vec<String> = std::mem::take(&mut known.notes).into_keys().collect();
        known.changed.extend(routers);
        drop(known);
        self.0.news.notify_one();
    }
}
