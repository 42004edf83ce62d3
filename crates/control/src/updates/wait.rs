//! The wait until name servers have the TXT records of an update.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use super::changes::Expected;
use crate::dns_client::{Data, Question};
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::ZoneDb;
use signpost_dns::zone::qname::Qname;

/// The interval of comparisons with this server's zones.
const OWN_EVERY: Duration = Duration::from_millis(5);
/// The wait before the next query of a server without the change, first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));
/// The time for a response; a query is sent twice. A server without one by then is silent.
const PATIENCE: Duration = Duration::from_millis(250);
/// The queries to one server at a time.
const QUERIES_MAX: usize = 8;

/// Waits until this server's zones have the values. Returns whether they have before `deadline`.
pub async fn own(db: &ZoneDb, expected: &[Expected], deadline: Instant) -> bool {
    loop {
        if expected.iter().all(|expected| expected.is_met_by(&values_of(db, &expected.owner))) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(OWN_EVERY).await;
    }
}

/// Waits until the servers have the values. Returns the first that has them not before `deadline`; a server that is silent, or cannot answer
/// now, does not count, as for resolvers.
pub async fn others(servers: &[SocketAddr], expected: &[Expected], deadline: Instant) -> Option<SocketAddr> {
    let each = servers.iter().map(|server| async move {
        let has = timeout_at(deadline, server_has(*server, expected)).await;
        has.is_err().then_some(*server)
    });
    futures::future::join_all(each).await.into_iter().flatten().next()
}

/// Returns when a server has the values, or is silent.
async fn server_has(server: SocketAddr, expected: &[Expected]) {
    let of_names = stream::iter(expected).map(|expected| async move {
        let mut wait = AGAIN.0;
        loop {
            let question = Question { name: expected.owner.clone(), rtype: RecordType::TXT };
            let response = match question.ask(server, PATIENCE).await {
                Ok(response) if response.rcode != Rcode::SERVFAIL => response,
                _ => return,
            };
            let texts = response.answers.iter().filter_map(|record| match &record.data {
                Data::Text(text) => Some(String::from_utf8_lossy(text).into()),
                _ => None,
            });
            if matches!(response.rcode, Rcode::NOERROR | Rcode::NXDOMAIN) && expected.is_met_by(&texts.collect()) {
                return;
            }
            sleep(wait).await;
            wait = (wait * 2).min(AGAIN.1);
        }
    });
    of_names.buffer_unordered(QUERIES_MAX).collect::<()>().await;
}

impl Expected {
    /// Returns whether a server with these values has the change.
    fn is_met_by(&self, values: &BTreeSet<Box<str>>) -> bool {
        self.present.is_subset(values) && self.absent.is_disjoint(values)
    }
}

/// Returns the TXT values of a name in this server's zones.
fn values_of(db: &ZoneDb, owner: &Name) -> BTreeSet<Box<str>> {
    let snapshot = db.snapshot();
    let rrsets = snapshot.enclosing(&Qname::of(owner.as_wire()), 0).map(|zone| zone.owner(owner)).unwrap_or_default();
    let texts = rrsets.into_iter().filter(|rrset| rrset.rtype == RecordType::TXT).flat_map(|rrset| rrset.rdata);
    texts.filter_map(|rdata| Some(String::from_utf8_lossy(rdata.get(1..)?).into())).collect()
}
