//! The watches of a process, from its metrics.

use std::net::SocketAddr;

use signpost_testing::Scrape;

/// Returns the number of informers of `owner` with an open watch, and their total number: of the objects that zones are built
/// from and Routes are bound by.
pub fn watches(admin: SocketAddr, owner: &str) -> (usize, usize) {
    let (scrape, labels) = (Scrape::of(admin), [("owner", owner)]);
    let of_owner = scrape.samples("signpost_informer_connected", &labels);
    let values: Vec<f64> =
        of_owner.filter(|sample| sample.labels["kind"] != "DeletionHold").map(|sample| sample.value).collect();
    (values.iter().filter(|value| **value == 1.0).count(), values.len())
}
