//! What the API's store tells of itself, read when it is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use crate::admin::page::Page;
use signpost_apiserver::store::Damage;

/// Exposes whether the store takes writes, and what of it is damaged.
pub struct StoreMetrics {
    /// Whether it takes writes.
    pub writable: Arc<AtomicBool>,
    /// What is damaged in it.
    pub damage: Arc<Damage>,
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreMetrics").finish_non_exhaustive()
    }
}

impl Collector for StoreMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page::new(encoder);
        let writable = [(vec![], i64::from(self.writable.load(Ordering::Relaxed)))];
        page.gauge(
            "store_writable",
            "Whether the store takes writes (1), or its disk is full or fails (0)",
            &writable,
        )?;
        let help = "Stored values that are damaged: they are neither served nor taken for deleted";
        page.gauge("store_damaged_values", help, &[(vec![], self.damage.count() as i64)])
    }
}
