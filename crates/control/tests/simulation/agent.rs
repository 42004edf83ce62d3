//! A simulated agent: it serves the Routes of its Router according to the API, and reports through its Lease.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use signpost_api::access::GROUP_ROUTER_AGENTS;
use signpost_api::identity::Identity;
use signpost_types::instance::{
    AGENT_NAMESPACE, CertificateReport, CertificatesReport, InstanceReport, ServedCertificate,
};
use signpost_types::probe::route_id;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use tokio::time::sleep;

use super::connection::Connection;
use super::outside::{Instance, Outside, Served};
use super::person::HOSTS;
use super::system::elapsed;
use super::{DOMAIN, WITH_INSTANCES};

/// The longest possible duration: renewals are most of the events in calm.
pub const LEASE: Duration = Duration::from_secs(360);
const RENEWAL: Duration = Duration::from_secs(120);

/// Returns the loops. A Route that an earlier instance served is not served until it is read again.
pub fn loops(
    connection: &Connection,
    router: &'static str,
    address: IpAddr,
    outside: Arc<Mutex<Outside>>,
) -> Vec<BoxFuture<'static, ()>> {
    let groups = vec![GROUP_ROUTER_AGENTS.to_owned()];
    let client = connection.client_of(Identity { user: "agent".to_owned(), groups });
    let now = elapsed();
    let instance = Instance { serves: Default::default(), since: now, renewed: now, had_expired: false };
    outside.lock().instances.insert(address, instance);
    vec![run(client, router, address, outside).boxed()]
}

async fn run(client: Client, router: &'static str, address: IpAddr, outside: Arc<Mutex<Outside>>) {
    loop {
        let pause = match sync(&client, router, address, &outside).await {
            Ok(()) => RENEWAL,
            Err(_) => RENEWAL / 6,
        };
        sleep(pause).await;
    }
}

async fn sync(
    client: &Client,
    router: &'static str,
    address: IpAddr,
    outside: &Arc<Mutex<Outside>>,
) -> kube::Result<()> {
    let bindings = Api::<RouteBinding>::all(client.clone());
    let bindings = bindings.list(&ListParams::default().fields(&format!("spec.router={router}"))).await?;
    // After the bindings, so that the Route of each is there.
    let routes = Api::<Route>::all(client.clone()).list(&ListParams::default()).await?;
    let generations: BTreeMap<_, _> =
        routes.items.iter().map(|route| (route.metadata.uid.as_deref(), route.metadata.generation)).collect();
    let serves = bindings.items.iter().filter_map(|binding| {
        let (name, uid) = (binding.spec.names.first()?.name.clone(), &binding.spec.route_uid);
        let generation = generations.get(&Some(uid.as_str())).copied().flatten().unwrap_or_default();
        Some((name, Served { route: route_id(uid), generation }))
    });
    if let Some(instance) = outside.lock().instances.get_mut(&address) {
        instance.serves = serves.collect();
    }
    let revision = |list: &ListMeta| list.resource_version.as_ref().and_then(|version| version.parse().ok());
    let report = InstanceReport {
        applied_revision: revision(&bindings.metadata).unwrap_or(0),
        applied_routes: revision(&routes.metadata),
        certificates: Some(certificates()),
        duration: LEASE,
        ..InstanceReport::new(router, address, jiff::Timestamp::now())
    };
    let sent = elapsed();
    let leases = Api::<Lease>::namespaced(client.clone(), AGENT_NAMESPACE);
    let parameters = PatchParams::apply("agent").force();
    leases.patch(&report.lease_name(), &parameters, &Patch::Apply(report.to_lease())).await?;
    if let Some(instance) = outside.lock().instances.get_mut(&address) {
        instance.had_expired = sent > instance.renewed + LEASE;
        instance.renewed = sent;
    }
    Ok(())
}

/// Returns certificates for all names of the Router.
fn certificates() -> CertificatesReport {
    let mut hosts: Vec<String> = HOSTS.map(str::to_owned).to_vec();
    hosts.push(format!("*.{WITH_INSTANCES}.{DOMAIN}"));
    hosts.sort();
    let certificate = |host: String| {
        let served =
            ServedCertificate { not_after: i64::from(u32::MAX), names: vec![host.clone()], ..Default::default() };
        CertificateReport { host, served: Some(served), ..Default::default() }
    };
    CertificatesReport::new(hosts.into_iter().map(certificate).collect())
}
