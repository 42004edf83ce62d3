//! The changes of objects when the store's history goes back: by a restore, or by an older file in place of the store.

use bytes::Bytes;
use jiff::Timestamp;

use signpost_api::kinds::zone::ZONE;
use signpost_apiserver::object;
use signpost_apiserver::store::KeyValue;
use signpost_control::ledger;

/// Returns the replacement of a restored value, if it needs one: the serials of zones continue above any that was allocated
/// since.
pub fn moved_on(item: &KeyValue) -> Option<Bytes> {
    let zone = item.key.0.starts_with(ZONE.key_prefix).then(|| serde_json::from_slice(&item.value).ok()).flatten()?;
    ledger::after_restore(zone, Timestamp::now()).map(|zone| Bytes::from(object::encode(&zone)))
}
