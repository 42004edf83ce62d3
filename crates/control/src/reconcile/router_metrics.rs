//! The number of routes of each Router as a metric, from the Routers' own statuses, read at each scrape.

use std::fmt;

use crate::client::reflector::Store;
use crate::world::RouterInfo;
use signpost_runtime::telemetry::page::{Page, Rows};

/// The most Routers in the metric, the first by name: the size of the output must be bounded.
const ROUTERS_MAX: usize = 2_000;

/// Reads an informer of the Routers.
pub struct RouterMetrics(pub Store<RouterInfo>);

impl RouterMetrics {
    pub fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let mut routers: Vec<(String, i64)> = self
            .0
            .all()
            .into_iter()
            .filter_map(|(key, view)| Some((key.name, i64::from(view.object.status.as_ref()?.routes?))))
            .collect();
        routers.sort();
        routers.truncate(ROUTERS_MAX);
        let rows: Rows<'_, i64> =
            routers.iter().map(|(router, routes)| (vec![("router", router.as_str())], *routes)).collect();
        page.gauge("router_routes", "Routes bound to a Router, from the Router's status", &rows)
    }
}
