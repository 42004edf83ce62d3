//! The simulated environment of the platform, reached by its queries and probes: the DNS of the owners of hosts, the addresses of
//! Routers, and the instances that serve Routes there. Name servers are reached here, too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::Response;
use parking_lot::Mutex;
use signpost_control::dns_client;
use signpost_control::observe::network;
use signpost_dns::zone::{Zone, ZoneDb};
use signpost_dns::zonefile;
use signpost_types::probe::ROUTE_HEADER;
use tokio::time::sleep;

use super::api::Api;
use super::chance::Chance;
use super::name_server;
use super::system::elapsed;

/// The server of the owners' zone, which is also its resolver.
pub const OWNERS: &str = "10.54.0.1:53";
const ZONE: &str = "$TTL 60\n@ SOA ns h 1 1 1 1 1\n@ NS ns\nns A 10.54.0.1\n";

/// A name server as the network sees it.
#[derive(Clone)]
pub struct Answering {
    pub db: Arc<ZoneDb>,
    pub reachable: bool,
}

/// An instance of a Router.
#[derive(Clone)]
pub struct Instance {
    /// The Route under each name.
    pub serves: BTreeMap<String, Served>,
    /// Since when it runs.
    pub since: Duration,
    /// The last renewal of the Lease.
    pub renewed: Duration,
    /// Whether the Lease had expired before that renewal. A leader that takes over then keeps the instance expired, as the Router's
    /// status shows it, until the next renewal.
    pub had_expired: bool,
}

/// A Route as an instance serves it.
#[derive(Clone, PartialEq, Eq)]
pub struct Served {
    /// The identifier of the Route.
    pub route: String,
    /// The generation of the Route.
    pub generation: i64,
}

#[derive(Default)]
pub struct Outside {
    pub name_servers: BTreeMap<SocketAddr, Answering>,
    /// Addresses that answer no probe.
    pub dead: BTreeSet<IpAddr>,
    pub instances: BTreeMap<IpAddr, Instance>,
    /// The records of the owners' zone `example.`, as lines of its file: by owner and type.
    records: BTreeMap<(String, &'static str), String>,
    /// The last time at which each challenge record existed.
    seen: BTreeMap<String, Duration>,
    owners: Arc<ZoneDb>,
}

impl Outside {
    /// Publishes or removes a record of an external host. `data` of a TXT record is its text.
    pub fn set(&mut self, owner: &str, rtype: &'static str, data: Option<&str>) {
        let owner = owner.to_ascii_lowercase();
        let before = match data {
            Some(data) => self.records.insert((owner.clone(), rtype), data.to_owned()),
            None => self.records.remove(&(owner.clone(), rtype)),
        };
        if let Some(before) = before {
            self.seen.insert(format!("{owner} {before}"), elapsed());
        }
        self.publish();
    }

    fn publish(&self) {
        let lines = self.records.iter().map(|((owner, rtype), data)| format!("{owner}. {rtype} {data}\n"));
        let text = lines.fold(ZONE.to_owned(), |text, line| text + &line);
        let path: Arc<Path> = Path::new("example.zone").into();
        let origin = "example.".parse().expect("a name");
        let read = zonefile::read_zone(text.as_bytes(), &path, Some(origin), &mut zonefile::include::NoIncludes);
        let contents = read.contents.unwrap_or_else(|| panic!("{text}: {:?}", read.findings));
        self.owners.open();
        self.owners.publish(Zone::build(contents).expect("it was read"));
    }

    pub fn get(&self, owner: &str, rtype: &'static str) -> Option<&str> {
        self.records.get(&(owner.to_ascii_lowercase(), rtype)).map(String::as_str)
    }

    /// Returns the target of a host's CNAME, which can be that of a wildcard: then no name exists at the host or below it (RFC
    /// 4592 §2.2.2).
    pub fn leads_to(&self, host: &str) -> Option<String> {
        let (host, below) = (host.to_ascii_lowercase(), format!(".{}", host.to_ascii_lowercase()));
        let is_there = self.records.keys().any(|(owner, _)| *owner == host || owner.ends_with(&below));
        let wildcard = host.split_once('.').map(|(_, above)| format!("*.{above}")).filter(|_| !is_there);
        let target = self.get(&wildcard.unwrap_or(host), "CNAME")?;
        Some(target.trim_end_matches('.').to_owned())
    }

    /// Returns whether this TXT record exists, or did within the last `time`.
    pub fn has_text(&self, owner: &str, text: &str, time: Duration) -> bool {
        let seen = self.seen.get(&format!("{} {text}", owner.to_ascii_lowercase()));
        self.get(owner, "TXT") == Some(text) || seen.is_some_and(|seen| elapsed() < *seen + time)
    }
}

/// Connects queries and probes of this thread to the simulated environment only.
pub fn simulate(outside: &Arc<Mutex<Outside>>, api: &Api, chance: &Chance) {
    outside.lock().publish();
    let lag = |api: &Api, chance: &Chance| {
        let longest = api.weather.lock().lag_longest;
        Duration::from_millis(chance.below(longest + 1))
    };
    let (there, of, by) = (outside.clone(), api.clone(), chance.clone());
    dns_client::simulate(move |server, query| {
        let (outside, lag) = (there.clone(), lag(&of, &by));
        async move {
            sleep(lag).await;
            let db = {
                let outside = outside.lock();
                let asked = outside.name_servers.get(&server).filter(|server| server.reachable);
                if server.to_string() == OWNERS {
                    Some(outside.owners.clone())
                } else {
                    asked.map(|asked| asked.db.clone())
                }
            };
            match db.and_then(|db| name_server::answer(&db, &query)) {
                Some(response) => response,
                None => std::future::pending().await,
            }
        }
        .boxed()
    });
    let (there, of, by) = (outside.clone(), api.clone(), chance.clone());
    network::simulate(move |place, host| {
        let (outside, lag, host) = (there.clone(), lag(&of, &by), host.to_owned());
        async move {
            sleep(lag).await;
            let outside = outside.lock();
            if outside.dead.contains(&place.ip()) {
                return Err("connection refused".to_owned());
            }
            let served = outside.instances.get(&place.ip()).and_then(|instance| instance.serves.get(&host));
            let response = Response::builder().status(if served.is_some() { 204 } else { 404 });
            let response =
                served.iter().fold(response, |response, one| response.header(ROUTE_HEADER, one.route.as_str()));
            Ok(response.body(()).expect("a response"))
        }
        .boxed()
    });
}
