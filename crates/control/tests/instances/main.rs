//! Instances of Routers in a cluster, and the check that they serve their Routes.

mod kubernetes;
mod programmed;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use signpost_api::identity::{GROUP_MASTERS, Identity};
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::{ApiServer, Settings};
use signpost_control::client;
use signpost_types::instance::{AGENT_NAMESPACE, CertificatesReport, InstanceReport, LEASE_DURATION, lease_name};
use signpost_types::v1alpha1::router::InstanceState;
use tokio_util::sync::{CancellationToken, DropGuard};

const PATIENCE: Duration = Duration::from_secs(60);

fn admin() -> Identity {
    Identity { user: "admin".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] }
}

/// An API server that runs until it is dropped.
struct Running {
    server: ApiServer,
    _stop: DropGuard,
}

impl Running {
    async fn start(settings: Settings) -> Running {
        let (server, stop) = (ApiServer::new(Arc::new(Memory::new()), settings), CancellationToken::new());
        let (running, token) = (server.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        server.ready().await;
        Running { server, _stop: stop.drop_guard() }
    }

    fn client(&self, identity: Identity) -> Client {
        client::in_process(self.server.router_as(identity))
    }
}

/// The agent of an instance of the Router `shard1`, as its Lease shows it.
#[derive(Clone, Debug)]
struct Agent {
    address: IpAddr,
    port: u16,
    /// The revision of bindings that it has applied.
    revision: u64,
    /// That of Routes; `None`: it does not report it.
    routes: Option<u64>,
    certificates: Option<CertificatesReport>,
    state: InstanceState,
}

impl Agent {
    /// Returns one that has applied nothing.
    fn new(address: IpAddr, port: u16) -> Agent {
        Agent { address, port, revision: 0, routes: None, certificates: None, state: InstanceState::Serving }
    }

    fn leases(platform: &Client) -> Api<Lease> {
        Api::namespaced(platform.clone(), AGENT_NAMESPACE)
    }

    async fn renew(&self, platform: &Client) {
        self.renew_for(platform, LEASE_DURATION).await;
    }

    async fn renew_for(&self, platform: &Client, duration: Duration) {
        let report = InstanceReport {
            http_port: self.port,
            state: self.state,
            applied_revision: self.revision,
            applied_routes: self.routes,
            certificates: self.certificates.clone(),
            duration,
            ..InstanceReport::new("shard1", self.address, Timestamp::now())
        };
        let (parameters, lease) = (PatchParams::apply("agent").force(), Patch::Apply(report.to_lease()));
        Agent::leases(platform).patch(&report.lease_name(), &parameters, &lease).await.expect("renewed");
    }

    async fn delete_lease(&self, platform: &Client) {
        let name = lease_name("shard1", self.address, self.port);
        Agent::leases(platform).delete(&name, &DeleteParams::default()).await.expect("deleted");
    }
}
