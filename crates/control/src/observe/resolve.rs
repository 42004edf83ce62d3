//! The addresses of host names, for shards whose load balancer has a name instead of an address, as on AWS.
//!
//! The leader queries the resolvers for each name that a loop [needs](HostNames), and again when the answer expires. So the shard's
//! zone has addresses. A CNAME at its wildcard would also answer for every other type, such as the TXT records of
//! `_acme-challenge`.
//!
//! A failure keeps the last addresses: the name is still that of the load balancer, and an answer without addresses is an outage.
//! NXDOMAIN and an answer without usable addresses are failures, too. The records of one family stay if only their query fails.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::backoff::random;
use crate::client::reflector::ObjectKey;
use crate::dns_client::{Data, Question};
use crate::work::controller::{self, Action, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::host_names::{HostNames, Resolution};
use signpost_dns::wire::{Name, RecordType};
use signpost_types::addresses::unusable_outside;

/// The names in resolution at once; one owner gets half of them.
const IN_FLIGHT_MAX: usize = 16;
/// The most names; the others have a fault.
const NAMES_MAX: usize = 4096;
/// The most addresses of a name: those of a Router.
const ADDRESSES_MAX: usize = 128;
/// The shortest time between two resolutions of a name. Load balancers have TTLs of about 60 seconds; a name with a TTL of 0 would
/// otherwise be resolved, and its zone be published, all the time.
const SHORTEST: Duration = Duration::from_secs(10);
/// The longest time between two resolutions of a name: a load balancer can change its addresses before a long TTL ends.
const LONGEST: Duration = Duration::from_secs(300);
/// The waits after failures, the first and the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];

#[derive(Debug, Clone)]
pub struct Settings {
    /// The resolvers, queried in this order until one responds.
    pub resolvers: Vec<SocketAddr>,
    /// The time for one answer.
    pub patience: Duration,
}

/// Resolves the needed names until `stop`.
pub async fn run(settings: Settings, names: HostNames, stop: CancellationToken) {
    let mut inputs = Inputs::default();
    inputs.add(controller::signals(names.clone(), HostNames::requested), |resolver: &mut Resolver, ()| resolver.take());
    let queue = WorkQueue::new(IN_FLIGHT_MAX, RETRY);
    let mut resolver = Resolver { settings: Arc::new(settings), names, wanted: BTreeSet::new(), queue };
    resolver.take();
    controller::run(resolver, inputs, stop).await;
}

struct Resolver {
    settings: Arc<Settings>,
    names: HostNames,
    wanted: BTreeSet<String>,
    queue: WorkQueue<ObjectKey>,
}

impl Resolver {
    /// Takes in the names that loops need.
    fn take(&mut self) {
        let mut wanted = self.names.wanted();
        for name in wanted.iter().skip(NAMES_MAX) {
            let fault = Some(format!("more than {NAMES_MAX} host names are in use"));
            self.names.set(name, Resolution { fault, ..self.names.get(name) });
        }
        wanted = wanted.into_iter().take(NAMES_MAX).collect();
        for gone in self.wanted.difference(&wanted) {
            self.queue.forget(&ObjectKey::cluster(gone));
        }
        for new in wanted.difference(&self.wanted) {
            self.queue.add(ObjectKey::cluster(new), Instant::now());
        }
        self.wanted = wanted;
    }
}

impl Controller for Resolver {
    type Key = ObjectKey;
    type Job = Arc<Settings>;
    type Done = [Result<Answer, String>; 2];

    const JOB_TIMEOUT: Duration = Duration::from_secs(60);

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn plan(&mut self, key: &ObjectKey, _: Instant) -> Plan<Arc<Settings>> {
        if self.wanted.contains(&key.name) { Plan::Act(Arc::clone(&self.settings)) } else { Plan::Nothing }
    }

    fn act(&self, key: &ObjectKey, settings: Arc<Settings>) -> Action<Self::Done> {
        let name = key.name.clone();
        async move {
            Ok(match name.parse::<Name>() {
                Ok(name) => {
                    let query = |rtype| answer(&settings, Question { name: name.clone(), rtype });
                    let (a, aaaa) = join(query(RecordType::A), query(RecordType::AAAA)).await;
                    [a, aaaa]
                }
                Err(error) => [Err(error.to_string()), Err(error.to_string())],
            })
        }
        .boxed()
    }

    fn done(&mut self, key: ObjectKey, result: kube::Result<Self::Done>, now: Instant) {
        if !self.wanted.contains(&key.name) {
            return;
        }
        let late = || Err("no resolver answered in time".to_owned());
        let answers = result.unwrap_or_else(|_| [late(), late()]);
        let before = self.names.get(&key.name);
        let (after, valid) = merged(&before, answers);
        if let Some(fault) = after.fault.as_ref().filter(|_| before.fault != after.fault) {
            tracing::warn!(
                host = key.name,
                fault,
                "failed to resolve the host name of a load balancer; its last addresses stay"
            );
        }
        self.names.set(&key.name, after);
        match valid {
            Some(valid) => {
                self.queue.succeeded(&key);
                self.queue.plan(key, now + valid);
            }
            None => self.queue.failed(&key, now, random()),
        }
    }
}

/// The records of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    addresses: Vec<IpAddr>,
    /// The lowest TTL of the records, those of the CNAME chain included; `None`: there is no record.
    ttl: Option<u32>,
}

/// Returns the answer of the first resolver that responds.
async fn answer(settings: &Settings, question: Question) -> Result<Answer, String> {
    let response = question.resolve(&settings.resolvers, settings.patience).await.map_err(|error| error.to_string())?;
    let address = |data: &Data| if let Data::Address(address) = data { Some(*address) } else { None };
    Ok(Answer {
        addresses: response.answers.iter().filter_map(|record| address(&record.data)).collect(),
        ttl: response.answers.iter().map(|record| record.ttl).min(),
    })
}

/// Returns the resolution after the answers for A and AAAA, and the time until the next one; `None`: it has failed.
fn merged(before: &Resolution, answers: [Result<Answer, String>; 2]) -> (Resolution, Option<Duration>) {
    let (mut addresses, mut faults, mut ttl) = (BTreeSet::new(), Vec::new(), None);
    for (answer, is_v6) in answers.into_iter().zip([false, true]) {
        match answer {
            Ok(answer) => {
                let (useless, found): (Vec<_>, Vec<_>) =
                    answer.addresses.into_iter().partition(|ip| unusable_outside(*ip).is_some());
                addresses.extend(found);
                faults.extend(useless.first().map(|ip| format!("it resolves to {ip}, which clients cannot reach")));
                ttl = ttl.into_iter().chain(answer.ttl).min();
            }
            Err(fault) => {
                addresses.extend(before.addresses.iter().flatten().filter(|ip| ip.is_ipv6() == is_v6));
                faults.push(fault);
            }
        }
    }
    while addresses.len() > ADDRESSES_MAX {
        addresses.pop_last();
    }
    if addresses.is_empty() && faults.is_empty() {
        faults.push("it has no address in DNS".to_owned());
    }
    let valid = Duration::from_secs(ttl.unwrap_or(0).into()).clamp(SHORTEST, LONGEST);
    let valid = faults.is_empty().then_some(valid);
    let addresses = Some(addresses).filter(|addresses| !addresses.is_empty()).or_else(|| before.addresses.clone());
    (Resolution { addresses, fault: faults.into_iter().next() }, valid)
}

#[cfg(test)]
mod tests {
    use signpost_testing::dns::ResponseCode;
    use signpost_testing::name_server::{NameServer, Reply, records};

    use super::*;

    /// The addresses before, the answers for A and AAAA, and the addresses, the time, and the fault after them.
    #[test]
    fn what_answers_change() {
        let set = |ips: &str| -> BTreeSet<IpAddr> {
            ips.split_whitespace().map(|ip| ip.parse().expect("an address")).collect()
        };
        let ok = |ips: &str, ttl: u32| {
            let addresses: Vec<IpAddr> = set(ips).into_iter().collect();
            Ok(Answer { ttl: (!addresses.is_empty()).then_some(ttl), addresses })
        };
        let no = || Err("SERVFAIL".to_owned());
        for (before, answers, after, seconds, fault) in [
            ("", [ok("192.0.2.1 192.0.2.2", 60), ok("", 0)], "192.0.2.1 192.0.2.2", Some(60), None),
            ("192.0.2.1", [ok("192.0.2.2", 60), ok("2001:db8::2", 20)], "192.0.2.2 2001:db8::2", Some(20), None),
            // The floor and the cap.
            ("", [ok("192.0.2.1", 0), ok("", 0)], "192.0.2.1", Some(10), None),
            ("", [ok("192.0.2.1", 86_400), ok("", 0)], "192.0.2.1", Some(300), None),
            // A failure keeps the known addresses: of both families, or of one.
            ("192.0.2.1 2001:db8::1", [no(), no()], "192.0.2.1 2001:db8::1", None, Some("SERVFAIL")),
            ("192.0.2.1 2001:db8::1", [ok("192.0.2.2", 60), no()], "192.0.2.2 2001:db8::1", None, Some("SERVFAIL")),
            ("192.0.2.1", [ok("", 0), ok("", 0)], "192.0.2.1", None, Some("it has no address in DNS")),
            ("192.0.2.1", [ok("127.0.0.1", 60), ok("", 0)], "192.0.2.1", None, Some("it resolves to 127.0.0.1")),
            ("", [ok("192.0.2.1 169.254.0.1", 60), ok("", 0)], "192.0.2.1", None, Some("it resolves to 169.254.0.1")),
            // A private network is reachable for those who use such a load balancer.
            ("", [ok("10.0.0.1", 60), ok("fd00::1", 60)], "10.0.0.1 fd00::1", Some(60), None),
            ("", [no(), no()], "", None, Some("SERVFAIL")),
        ] {
            let known = |ips: &str| Some(set(ips)).filter(|ips| !ips.is_empty());
            let before = Resolution { addresses: known(before), fault: None };
            let (found, valid) = merged(&before, answers.clone());
            assert_eq!(found.addresses, known(after), "{answers:?}");
            assert_eq!(valid.map(|valid| valid.as_secs()), seconds, "{answers:?}");
            let is_expected = found.fault.as_deref().zip(fault).map(|(found, fault)| found.starts_with(fault));
            assert!(is_expected.unwrap_or(found.fault.is_none() && fault.is_none()), "{answers:?}: {:?}", found.fault);
        }
    }

    /// The first resolver refuses, the second one answers; a name that is not needed any more is forgotten.
    #[tokio::test]
    async fn needed_names_are_resolved() {
        let refusing = NameServer::answering(|_, _| vec![Reply::Rcode(ResponseCode::Refused)]).await;
        let resolver = NameServer::answering(|name, rtype| {
            let found: &[&str] = match (name, rtype.to_string().as_str()) {
                ("lb.cloud.example." | "lb.cloud.example", "A") => &["CNAME a.cloud.example.", "A 192.0.2.7"],
                _ => &[],
            };
            vec![Reply::Records(records(found))]
        })
        .await;
        let names = HostNames::default();
        let (mut results, stop) = (names.results(), CancellationToken::new());
        let settings =
            Settings { resolvers: vec![refusing.address, resolver.address], patience: Duration::from_secs(60) };
        let running = tokio::spawn(run(settings, names.clone(), stop.clone()));
        let wanted = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        names.want("test", wanted(&["gone.cloud.example", "lb.cloud.example"]));
        while names.get("lb.cloud.example").addresses.is_none() || names.get("gone.cloud.example").fault.is_none() {
            results.changed().await.expect("it runs");
        }
        let found = names.get("lb.cloud.example");
        assert_eq!((found.addresses, found.fault), (Some(["192.0.2.7".parse().expect("an address")].into()), None));
        names.want("test", wanted(&["lb.cloud.example"]));
        assert_eq!(names.wanted(), wanted(&["lb.cloud.example"]));
        assert_eq!(names.get("gone.cloud.example"), Resolution::default());
        stop.cancel();
        running.await.expect("it ends");
    }
}
