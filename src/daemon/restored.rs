//! What changes in objects when the store's history goes back: by a restore, or by an older file in the store's place.

use bytes::Bytes;
use jiff::Timestamp;

use signpost_api::kinds::zone::ZONE;
use signpost_apiserver::object;
use signpost_apiserver::store::KeyValue;
use signpost_control::controller::ledger;

/// The value that takes the place of a restored one, if it is to be another: the serials of zones go on later than any that
/// was given out since.
pub fn moved_on(item: &KeyValue) -> Option<Bytes> {
    let zone = item.key.0.starts_with(ZONE.key_prefix).then(|| serde_json::from_slice(&item.value).ok()).flatten()?;
    ledger::after_restore(zone, Timestamp::now()).map(|zone| Bytes::from(object::encode(&zone)))
}
