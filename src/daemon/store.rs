//! The store of the role `api`: its engine, its metrics, its health, and backups.

use std::sync::Arc;

use super::Error;
use super::data_dir::DataDir;
use super::restored;
use super::room;
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::admin::health::Check;
use crate::config::Settings;
use signpost_apiserver::backup::Source;
use signpost_apiserver::store::embedded::{Embedded, Options};
#[cfg(feature = "etcd")]
use signpost_apiserver::store::etcd::Etcd;
use signpost_apiserver::store::{Store, backup};

/// An open store.
#[derive(Clone)]
pub enum Engine {
    /// A file in the data directory.
    File(Embedded),
    /// A cluster of etcd.
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
}

impl Engine {
    /// Opens the file in the data directory.
    pub async fn open_file(data_dir: &DataDir, check: &Check) -> Result<Engine, Error> {
        // An older copy continues like a restored store.
        let options = || Options { moved_on: restored::moved_on, ..Options::default() };
        let path = data_dir.join("");
        let open = async || {
            let path = path.clone();
            let opened = tokio::task::spawn_blocking(move || Embedded::open(&path, options())).await;
            opened.expect("opening a store does not panic")
        };
        Ok(Engine::File(room::when_there_is_room(check, open).await?))
    }

    pub fn objects(&self) -> Arc<dyn Store> {
        match self {
            Engine::File(file) => Arc::new(file.clone()),
            #[cfg(feature = "etcd")]
            Engine::Etcd(etcd) => Arc::new(etcd.clone()),
        }
    }

    /// Adds its metrics. A task ends the process after an error from which the store cannot recover.
    #[cfg_attr(not(feature = "etcd"), expect(unused_variables))]
    pub fn attend(&self, settings: &Settings, admin: &Admin, tasks: &mut Tasks) {
        match self {
            Engine::File(file) => {
                tasks.watch("the store", file.ended());
                let damage = file.damage();
                tasks.watch("the store's file", async move { damage.broken().await });
                let (writable, damage) = (file.writable(), file.damage());
                admin.metrics.write_with(move |page| {
                    let help = "Whether the store accepts writes (1), or its disk is full or fails (0)";
                    let is_writable = writable.load(std::sync::atomic::Ordering::Relaxed);
                    page.level("store_writable", help, i64::from(is_writable))?;
                    let help = "Damaged stored values: they are neither served nor treated as deleted";
                    page.level("store_damaged_values", help, damage.count() as i64)
                });
            }
            #[cfg(feature = "etcd")]
            Engine::Etcd(etcd) => {
                admin.metrics.register(|registry| etcd.metrics().register(registry));
                if !settings.etcd.history.is_zero() {
                    let (etcd, history, stop) = (etcd.clone(), settings.etcd.history, tasks.stop_token());
                    tasks.spawn("compaction of etcd", async move { etcd.keep_compacting(history, stop).await });
                }
            }
        }
    }

    /// Reports the state of the store in `check`.
    #[cfg_attr(not(feature = "etcd"), expect(unused_variables))]
    pub fn watch(self, settings: &Settings, check: Check, tasks: &mut Tasks) {
        let stop = tasks.stop_token();
        match self {
            Engine::File(file) => tasks.spawn("disk", room::watch(file, check, stop)),
            #[cfg(feature = "etcd")]
            Engine::Etcd(etcd) => {
                tasks.spawn("watch of etcd", super::etcd::watch(etcd, settings.clone(), check, stop));
            }
        }
    }

    /// Writes backups for the API. It blocks the calling thread.
    pub fn backups(&self) -> Source {
        let engine = self.clone();
        #[cfg(feature = "etcd")]
        let runtime = tokio::runtime::Handle::current();
        Arc::new(move |to| {
            let written = match &engine {
                Engine::File(file) => backup::backup(file, to),
                #[cfg(feature = "etcd")]
                Engine::Etcd(etcd) => etcd.backup(&runtime, to),
            };
            written.map(drop).map_err(|error| error.to_string())
        })
    }
}
