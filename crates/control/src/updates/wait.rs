//! The wait until name servers have the TXT records of an update.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use super::changes::Expected;
use crate::dns_client::{Data, Question};
use crate::observe::verify::check::is_for_documentation;
use signpost_dns::wire::header::Rcode;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::ZoneDb;
use signpost_dns::zone::qname::Qname;

/// The interval of comparisons with this server's zones.
const OWN_EVERY: Duration = Duration::from_millis(5);
/// The wait before the next query of a server without the change, first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(160));
/// The time for a response; a query is sent twice. Without one, the server is silent.
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

/// Waits until the servers have the values. Returns the first one without them at `deadline`; a server that is silent, or cannot answer
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
    if is_for_documentation(server.ip()) {
        return;
    }
    let of_names: Vec<BoxFuture<'_, ()>> = expected.iter().map(|expected| name_has(server, expected).boxed()).collect();
    stream::iter(of_names).buffer_unordered(QUERIES_MAX).collect::<()>().await;
}

async fn name_has(server: SocketAddr, expected: &Expected) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use signpost_testing::dns::ResponseCode;
    use signpost_testing::name_server::{NameServer, Reply, records};

    use super::*;

    fn expected() -> Vec<Expected> {
        let values = |text: &str| BTreeSet::from([text.into()]);
        vec![Expected { owner: "c.test.".parse().expect("a name"), present: values("new"), absent: values("old") }]
    }

    /// A server that answers with each of these in turn, and then with the last one.
    async fn server(replies: Vec<Vec<Reply>>) -> NameServer {
        let next = AtomicUsize::new(0);
        NameServer::answering(move |_, _| {
            let at = next.fetch_add(1, Ordering::Relaxed).min(replies.len() - 1);
            replies[at].clone()
        })
        .await
    }

    #[tokio::test]
    async fn a_server_without_the_change_counts_and_a_silent_one_does_not() {
        let texts = |texts: &[&str]| vec![Reply::Records(records(texts))];
        let rcode = |rcode| vec![Reply::Rcode(rcode)];
        for (replies, has) in [
            (vec![texts(&["TXT new"])], true),
            (vec![texts(&["TXT other", "TXT new"])], true),
            (vec![rcode(ResponseCode::NXDomain), texts(&["TXT old"]), texts(&["TXT new"])], true),
            (vec![texts(&["TXT new", "TXT old"])], false),
            (vec![texts(&["TXT old"])], false),
            (vec![rcode(ResponseCode::NXDomain)], false),
            (vec![rcode(ResponseCode::Refused)], false),
            // It cannot answer now, or does not answer at all: a resolver queries another one.
            (vec![rcode(ResponseCode::ServFail)], true),
            (vec![Vec::new()], true),
        ] {
            let shown = format!("{replies:?}");
            let (good, tested) = (server(vec![texts(&["TXT new"])]).await, server(replies).await);
            let servers = [good.address, tested.address];
            let patience = if has { Duration::from_secs(60) } else { Duration::from_millis(300) };
            let without = others(&servers, &expected(), Instant::now() + patience).await;
            assert_eq!(without, (!has).then_some(tested.address), "{shown}");
        }
    }
}
