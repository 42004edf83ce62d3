//! The watches of a process, from its metrics.

use std::net::SocketAddr;

use signpost_testing::Scrape;

/// How many informers of `owner` have a watch open, and how many there are: of what zones are made of and routes placed by.
pub fn watches(admin: SocketAddr, owner: &str) -> (usize, usize) {
    let (scrape, labels) = (Scrape::of(admin), [("owner", owner)]);
    let of_owner = scrape.samples("signpost_informer_connected", &labels);
    let values: Vec<f64> =
        of_owner.filter(|sample| sample.labels["kind"] != "DeletionHold").map(|sample| sample.value).collect();
    (values.iter().filter(|value| **value == 1.0).count(), values.len())
}
