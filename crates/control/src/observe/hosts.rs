//! The check whether custom hosts point to the platform: the condition `HostPointsHere` of Routes with a host outside the
//! platform.
//!
//! The host's DNS belongs to its owner, and the platform's name servers have no data of it. So the prober queries the configured
//! resolvers (`host.resolvers`), as the host's clients query theirs. A host points here if its CNAME chain ends at one of the
//! Route's names, or of another Route that shares the host, or if all its addresses are active ones of the Route's Router. Without
//! resolvers, the condition is `Unknown`. A host that points to the Route's alias below a former domain points here while that
//! domain is served; the condition has the current record.
//!
//! The message does not repeat the resolvers' answers: a tenant can enter any name, including one that only the platform's own
//! network can resolve.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;

use super::route_checks::{Checked, Metrics, Next, RouteCheck};
use super::verify::check::PROBE_LABEL;
use crate::client::backoff::random;
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use crate::dns_client::{Data, Question};
use crate::world::RouteInfo;
use crate::world::condition::{ConditionUpdate, Status};
use crate::world::observations::{About, Part, RouteFinding};
use crate::world::parents::FormerDomains;
use crate::world::route::NamesDigest;
use signpost_dns::wire::{Name, RecordType};
use signpost_types::names::{alias_name, host_claim_name};
use signpost_types::v1alpha1::name_claim::NameClaim;
use signpost_types::v1alpha1::route::{
    HOST_NOT_CHECKED, HOST_POINTS_HERE, NameKind, POINTS_TO_FORMER_DOMAIN, Route, RouteStatus,
};
use signpost_types::v1alpha1::router::{AddressState, Router};

/// The first wait before a host that does not point here is checked again: its owner has just read the instructions.
const RETRY_FIRST: Duration = Duration::from_secs(5);
/// The longest wait before a host is checked again.
const RETRY_LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct HostCheck {
    /// The former domains of the platform.
    pub former_domains: FormerDomains,
    /// The resolvers, queried in this order until one responds; without any, no host is checked.
    pub resolvers: Vec<SocketAddr>,
    /// The time for one answer.
    pub patience: Duration,
}

pub fn metrics() -> Metrics {
    let help = "Checks of whether a custom host points to its Route, by outcome";
    Metrics::new("host_checks", help, &["here", "former", "elsewhere", "unknown", "failed"])
}

/// A Route with a custom host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTarget {
    uid: Uid,
    host: Box<str>,
    router: Option<Arc<str>>,
    /// The Route's names, to which the host should lead.
    names: NamesDigest,
    /// Whether the Route has the condition.
    is_reported: bool,
}

impl HostTarget {
    fn new(route: &RouteInfo) -> Option<Self> {
        let host = route.custom_name.clone().filter(|_| route.bound)?;
        let is_reported = route.conditions.get(HOST_POINTS_HERE).is_some();
        let (uid, router, names) = (route.uid.clone(), route.router.clone(), route.names);
        Some(HostTarget { uid, host, router, names, is_reported })
    }
}

impl RouteCheck for HostCheck {
    type Target = HostTarget;
    const PART: Part = HOST_POINTS_HERE;
    const SUBJECT: &'static str = "whether the Route's host points here";
    const TIMEOUT: Duration = Duration::from_secs(60);

    fn target(&self, _: &ObjectKey, route: &RouteInfo) -> Option<HostTarget> {
        HostTarget::new(route)
    }

    fn is_same(now: &HostTarget, before: &HostTarget) -> bool {
        let of = |target: &HostTarget| (target.uid.clone(), target.host.clone(), target.router.clone(), target.names);
        of(now) == of(before) && (now.is_reported || !before.is_reported)
    }

    fn retry(&self) -> [Duration; 2] {
        [RETRY_FIRST, RETRY_LONGEST]
    }

    async fn check(&self, client: &kube::Client, key: &ObjectKey, _: &HostTarget) -> kube::Result<Option<Checked>> {
        let routes: Api<Route> = Api::namespaced(client.clone(), key.namespace());
        let Some(route) = routes.get_opt(&key.name).await? else { return Ok(None) };
        let Some(HostTarget { uid, host, router, .. }) = HostTarget::new(&RouteInfo::new(&route)) else {
            return Ok(None);
        };
        let status = route.status.unwrap_or_default();
        // Otherwise, a host at a former domain would be elsewhere for a moment after each start.
        self.former_domains.wait().await;
        let names = names_of(&status).collect();
        let mut target = Target { names, former: self.former_aliases(&status).collect(), addresses: Vec::new() };
        if let Some(router) = router.as_deref().filter(|_| !self.resolvers.is_empty()) {
            target.addresses = addresses_of(client, router).await?;
        }
        let (mut found, leads_to) = match self.resolvers.is_empty() {
            true => (Found::NotChecked, Vec::new()),
            false => resolve(self, &host, &target).await,
        };
        if found == Found::Elsewhere {
            found = self.sharers_of(client, key, &host, router.as_deref(), &leads_to).await?.unwrap_or(found);
        }
        let record = status.names.iter().find_map(|name| name.record.as_deref()).unwrap_or("the one in status.names");
        let statements = vec![found.condition(&host, record)];
        let about = About::Name(NameKind::Custom, host.into());
        let next = match found {
            // Until the configuration changes nothing else is known.
            Found::NotChecked => Next::Never,
            Found::Here | Found::FormerDomain => Next::After(RETRY_LONGEST),
            _ => Next::Retry,
        };
        let finding = RouteFinding::new(&uid, about, statements);
        Ok(Some(Checked { outcome: found.label(), finding, next }))
    }
}

/// The known state of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Here,
    /// The host points to the Route's alias below a former domain.
    FormerDomain,
    NoRecord,
    Elsewhere,
    /// No resolver answered.
    Unresolved,
    /// No resolver is configured.
    NotChecked,
}

impl Found {
    fn label(self) -> &'static str {
        match self {
            Found::Here => "here",
            Found::FormerDomain => "former",
            Found::NoRecord | Found::Elsewhere => "elsewhere",
            Found::Unresolved | Found::NotChecked => "unknown",
        }
    }

    /// Returns the condition; `record` is the record that the owner should create.
    fn condition(self, host: &str, record: &str) -> ConditionUpdate {
        let (status, reason, message) = match self {
            Found::Here => (Status::True, "PointsHere", format!("{host} leads to a name or an address of the Route")),
            Found::FormerDomain => {
                let message = format!(
                    "{host} leads to the Route's alias below a former domain of the platform, which is served for a limited \
                     time: create {record}"
                );
                (Status::True, POINTS_TO_FORMER_DOMAIN, message)
            }
            Found::NoRecord => (Status::False, "NoRecord", format!("{host} has no record in DNS: create {record}")),
            Found::Elsewhere => {
                let message = format!("{host} does not lead to a name of the Route: create {record}");
                (Status::False, "PointsElsewhere", message)
            }
            Found::Unresolved => (
                Status::Unknown,
                "ResolverFailed",
                format!("no resolver of the platform could resolve {host}; the record to create is {record}"),
            ),
            Found::NotChecked => (
                Status::Unknown,
                HOST_NOT_CHECKED,
                format!("the platform does not check {host}; the record to create is {record}"),
            ),
        };
        ConditionUpdate { kind: HOST_POINTS_HERE, status, reason, message }
    }
}

/// Returns the names of a Route that the platform answers for.
fn names_of(status: &RouteStatus) -> impl Iterator<Item = Name> {
    let names = status.names.iter().filter(|name| name.kind != NameKind::Custom).map(|name| &name.name);
    names.chain(status.former_names.iter().map(|former| &former.name)).filter_map(|name| name.parse().ok())
}

impl HostCheck {
    /// Returns the aliases of a Route below the former domains.
    fn former_aliases(&self, status: &RouteStatus) -> impl Iterator<Item = Name> {
        let label = status.canonical_name.as_deref().and_then(|alias| alias.split_once('.')).map(|(label, _)| label);
        let former = label.map(|_| self.former_domains.list()).unwrap_or_default();
        let label = label.unwrap_or_default().to_owned();
        former.into_iter().filter_map(move |domain| alias_name(&label, &domain).parse().ok())
    }

    /// Returns where the host of the Route at `key` leads if one of `targets` is a name of another Route with that host, on the same
    /// Router.
    async fn sharers_of(
        &self,
        client: &kube::Client,
        key: &ObjectKey,
        host: &str,
        router: Option<&str>,
        targets: &[Name],
    ) -> kube::Result<Option<Found>> {
        if targets.is_empty() {
            return Ok(None);
        }
        let claim = Api::<NameClaim>::all(client.clone()).get_opt(&host_claim_name(host)).await?;
        let holders = claim.filter(|claim| claim.spec.released_at.is_none()).map(|claim| claim.spec.holders());
        let (its, others): (Vec<_>, Vec<_>) = holders
            .into_iter()
            .flatten()
            .filter(|holder| holder.namespace == key.namespace())
            .partition(|holder| holder.name == key.name);
        let routes: Api<Route> = Api::namespaced(client.clone(), key.namespace());
        for other in others.iter().filter(|_| !its.is_empty()) {
            let status = routes.get_opt(&other.name).await?.and_then(|route| route.status).unwrap_or_default();
            if status.router.as_deref() != router {
                continue;
            }
            if self.former_aliases(&status).any(|name| targets.contains(&name)) {
                return Ok(Some(Found::FormerDomain));
            }
            if names_of(&status).any(|name| targets.contains(&name)) {
                return Ok(Some(Found::Here));
            }
        }
        Ok(None)
    }
}

async fn addresses_of(client: &kube::Client, router: &str) -> kube::Result<Vec<IpAddr>> {
    let router = Api::<Router>::all(client.clone()).get_opt(router).await?;
    let addresses = router.as_ref().map(Router::addresses).unwrap_or_default();
    let active = addresses.iter().filter(|address| address.state == AddressState::Active);
    Ok(active.filter_map(|address| address.ip.parse().ok()).collect())
}

/// The required targets of a host.
#[derive(Debug, Default)]
struct Target {
    /// The names of the Route that the platform answers for.
    names: Vec<Name>,
    /// The Route's aliases below former domains.
    former: Vec<Name>,
    /// The active addresses of its Router: the valid targets of an apex, which cannot have a CNAME.
    addresses: Vec<IpAddr>,
}

/// Queries the resolvers for the target of a host. Also returns the targets of the CNAME records that were found.
async fn resolve(check: &HostCheck, host: &str, target: &Target) -> (Found, Vec<Name>) {
    let name: Result<Name, _> = match host.strip_prefix("*.") {
        // A wildcard answers for any name; this one is random and unused.
        Some(above) => format!("{PROBE_LABEL}{:016x}.{above}", random()).parse(),
        None => host.parse(),
    };
    let Ok(name) = name else { return (Found::NoRecord, Vec::new()) };
    let mut found = Vec::new();
    let mut failed = false;
    // The CNAME is queried separately: a resolver that cannot follow it to the platform's domain still returns it.
    for rtype in [RecordType::CNAME, RecordType::A, RecordType::AAAA] {
        let question = Question { name: name.clone(), rtype };
        match question.resolve(&check.resolvers, check.patience).await {
            Ok(reply) => found.extend(reply.answers.into_iter().map(|record| record.data)),
            Err(_) => failed = true,
        }
        let leads_to = |names: &[Name]| found.iter().any(|data| matches!(data, Data::Cname(to) if names.contains(to)));
        // Their own targets are names of the Route.
        if leads_to(&target.former) {
            return (Found::FormerDomain, Vec::new());
        }
        if leads_to(&target.names) {
            return (Found::Here, Vec::new());
        }
    }
    let mut addresses =
        found.iter().filter_map(|data| if let Data::Address(address) = data { Some(address) } else { None });
    let state = match (failed, found.is_empty()) {
        (true, true) => Found::Unresolved,
        (false, true) => Found::NoRecord,
        // A partial answer is not conclusive for the missing part, but a wrong target in it is.
        _ if addresses.clone().next().is_some() && addresses.all(|address| target.addresses.contains(address)) => {
            match failed {
                true => Found::Unresolved,
                false => Found::Here,
            }
        }
        _ => Found::Elsewhere,
    };
    let targets = found.into_iter().filter_map(|data| if let Data::Cname(to) = data { Some(to) } else { None });
    (state, targets.collect())
}

#[cfg(test)]
mod tests {
    use signpost_testing::dns::{RecordType, ResponseCode};
    use signpost_testing::name_server::{NameServer, Reply, records};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[tokio::test]
    async fn where_hosts_lead() {
        const ALIAS: &str = "CNAME shop-www.routes.v3.example.";
        let resolver = NameServer::answering(|name, rtype| {
            let first = name.split('.').next().expect("a label");
            let found: &[&str] = match (first, rtype) {
                ("alias", RecordType::CNAME) => &[ALIAS],
                ("former", RecordType::CNAME) => &["CNAME shop-www.old.v3.example."],
                // A resolver follows the former alias to a name of the Route.
                ("before", RecordType::CNAME) => {
                    &["CNAME SHOP-www.routes.v2.example.", "CNAME shop-www.s1.v3.example.", "A 192.0.2.1"]
                }
                ("through", RecordType::CNAME) => &["CNAME www.other.example."],
                ("through", RecordType::A) => &[
                    "CNAME www.other.example.",
                    "CNAME shop-www.routes.v2.example.",
                    "CNAME shop-www.s1.v3.example.",
                    "A 192.0.2.1",
                ],
                ("away", RecordType::CNAME) => &["CNAME cdn.example."],
                ("apex" | "half", RecordType::A) => &["A 192.0.2.1"],
                ("mixed", RecordType::A) => &["A 192.0.2.1", "A 198.51.100.7"],
                ("chain", RecordType::A) => {
                    &["CNAME www.other.example.", "CNAME SHOP-www.routes.v3.example.", "A 203.0.113.9"]
                }
                ("away" | "half" | "broken", _) => return vec![Reply::Rcode(ResponseCode::ServFail)],
                (first, RecordType::CNAME) if first.starts_with(PROBE_LABEL) => &[ALIAS],
                ("gone", _) => return vec![Reply::Rcode(ResponseCode::NXDomain)],
                _ => &[],
            };
            vec![Reply::Records(records(found))]
        })
        .await;
        let dead = NameServer::answering(|_, _| vec![Reply::Rcode(ResponseCode::Refused)]).await;
        let target = Target {
            names: vec![
                name("shop-www.s1.v3.example."),
                name("shop-www.routes.v3.example."),
                name("shop-www.old.v3.example."),
            ],
            former: vec![name("shop-www.routes.v2.example.")],
            addresses: vec!["192.0.2.1".parse().expect("an address")],
        };
        let former_domains = FormerDomains::default();
        let check = HostCheck {
            former_domains,
            resolvers: vec![dead.address, resolver.address],
            patience: Duration::from_secs(60),
        };
        for (host, expected) in [
            ("alias.shop.test", Found::Here),
            ("former.shop.test", Found::Here),
            ("before.shop.test", Found::FormerDomain),
            ("through.shop.test", Found::FormerDomain),
            ("chain.shop.test", Found::Here),
            ("apex.shop.test", Found::Here),
            ("*.shop.test", Found::Here),
            ("away.shop.test", Found::Elsewhere),
            ("mixed.shop.test", Found::Elsewhere),
            ("gone.shop.test", Found::NoRecord),
            ("empty.shop.test", Found::NoRecord),
            ("half.shop.test", Found::Unresolved),
            ("broken.shop.test", Found::Unresolved),
        ] {
            assert_eq!(resolve(&check, host, &target).await.0, expected, "{host}");
        }
        let silent = HostCheck { resolvers: vec![dead.address], ..check };
        assert_eq!(resolve(&silent, "alias.shop.test", &target).await.0, Found::Unresolved);
    }

    #[test]
    fn a_route_is_checked_when_something_of_it_is_other() {
        let target = |host: &str, router: &str, is_reported: bool| HostTarget {
            uid: Uid::from("u"),
            host: host.into(),
            router: Some(router.into()),
            names: NamesDigest::default(),
            is_reported,
        };
        let (bare, reported) = (target("a", "s1", false), target("a", "s1", true));
        for (now, before, expected) in [
            (&reported, &bare, true),
            (&reported, &reported, true),
            (&bare, &bare, true),
            (&bare, &reported, false),
            (&target("b", "s1", true), &reported, false),
            (&target("a", "s2", true), &reported, false),
        ] {
            assert_eq!(HostCheck::is_same(now, before), expected, "{now:?} {before:?}");
        }
    }
}
