//! The leadership of the role `scheduler`, and the servers that its loops query.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use kube::Client;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::domains;
use super::tasks::Tasks;
use crate::admin::Admin;
use crate::config;
use crate::config::secondary::Secondary;
use crate::config::value::{Resolver, system_resolvers};
use signpost_control::client::lease::{self, Leadership, Lease};
use signpost_control::compiler;
use signpost_control::name_server::domain::{self, DomainMismatch, Duty};
use signpost_control::observe::ownership::authorities::AuthoritativeServers;
use signpost_control::observe::verify;
use signpost_control::observe::verify::state::Server;
use signpost_types::v1alpha1::SCHEDULER_LEASE;

/// Competes for the Lease, once the API's objects are known to have this domain.
pub fn run_for_leadership(
    config: &config::Settings,
    client: &Client,
    instance: &str,
    admin: &Admin,
    tasks: &mut Tasks,
) -> watch::Receiver<Leadership> {
    let (lead, leadership) = watch::channel(Leadership::Follower { holder: None });
    let domains = domains(config);
    let missing = "the domain of the objects in the API is not known yet";
    let objects = admin.health.add("scheduler", "domain", missing);
    let lease = lease::Settings::lasting(config.scheduler.lease_duration);
    let (candidate, name, stop) = (client.clone(), instance.to_owned(), tasks.stop_token());
    tasks.spawn("leadership", async move {
        let report = |other: Option<&DomainMismatch>| match other {
            None => objects.ready(),
            Some(other) => objects.missing(other.to_string()),
        };
        while domain::agreed(&candidate, &domains, Duty::Lead, &stop, report).await {
            let agreeing = stop.child_token();
            let candidacy = run_for_lease(candidate.clone(), &name, lease.clone(), &lead, agreeing.clone());
            tokio::pin!(candidacy);
            tokio::select! {
                () = &mut candidacy => return,
                // A process that still has the former domain would give all Routes its names again.
                () = domain::disagrees(&candidate, &domains) => {
                    agreeing.cancel();
                    candidacy.await;
                    lead.send_replace(Leadership::Follower { holder: None });
                }
            }
        }
    });
    // This does not affect readiness: another process can be at fault, and name servers in this one still answer.
    let seen = leadership.clone();
    let leader = move || {
        let is_unknown = matches!(*seen.borrow(), Leadership::Follower { holder: None });
        is_unknown.then(|| "no scheduler leads, so Routes get no Router; the log has the reason".to_owned())
    };
    admin.health.warn("scheduler", "leader", Box::new(leader));
    leadership
}

/// Competes for leadership until `stop`, and reports the state.
async fn run_for_lease(
    client: Client,
    name: &str,
    settings: lease::Settings,
    lead: &watch::Sender<Leadership>,
    stop: CancellationToken,
) {
    let mut leadership = Lease::run(client, SCHEDULER_LEASE, name, settings, stop);
    loop {
        let now = leadership.borrow_and_update().clone();
        lead.send_replace(now);
        if leadership.changed().await.is_err() {
            return;
        }
    }
}

/// Returns the name servers that are queried to verify names: those of `verify.server`; otherwise those of `nameserver`, at the
/// addresses that resolvers use; otherwise the only name server of a platform without any, at its listener.
pub fn servers_to_ask(
    config: &config::Settings,
    platform: &compiler::Settings,
    listened: &[SocketAddr],
) -> Vec<Server> {
    if !config.verify.server.is_empty() {
        return config.verify.server.clone();
    }
    let mut servers = Vec::new();
    if config.nameserver.is_empty() {
        let name = platform.name_servers().first().map(|server| compiler::settings::text_of(&server.name));
        let name = name.unwrap_or_default();
        let ask = |address: &SocketAddr| SocketAddr::new(reachable(address.ip()), address.port());
        servers.extend(listened.iter().map(|address| Server { name: name.clone(), address: ask(address) }));
        servers.dedup();
    }
    for server in &config.nameserver {
        if server.addresses.is_empty() {
            tracing::warn!(
                server = %server.name,
                "the name server has no address in the configuration and is not queried to verify names; set verify.server"
            );
        }
        let address = |address: &IpAddr| SocketAddr::new(*address, config::DNS_PORT);
        servers.extend(server.addresses.iter().map(|ip| Server { name: server.name.clone(), address: address(ip) }));
    }
    servers
}

/// Returns the servers that must have a Route's names before it is reported as resolvable: these name servers, and the secondary
/// servers with `verify`.
pub fn servers_to_verify(name_servers: &[Server], secondaries: &[Secondary]) -> Vec<Server> {
    let mut servers = name_servers.to_vec();
    for secondary in secondaries.iter().filter(|secondary| secondary.verify) {
        let address = secondary.address;
        if servers.iter().all(|server| server.address != address) {
            servers.push(Server { name: "secondary".to_owned(), address });
        }
    }
    if servers.len() > verify::state::SERVERS_MAX {
        let (listed, asked) = (servers.len(), verify::state::SERVERS_MAX);
        tracing::warn!(listed, asked, "too many addresses of name servers; not all are queried to verify names");
    }
    servers
}

/// Returns the resolvers that are queried for the addresses of hosts.
pub fn host_resolvers(config: &config::Settings) -> Vec<SocketAddr> {
    let each = config.host.resolvers.iter().flat_map(|resolver| match resolver {
        Resolver::At(address) => vec![*address],
        Resolver::System => {
            let found = system_resolvers();
            if found.is_empty() {
                tracing::warn!("host.resolvers has system, but /etc/resolv.conf contains no resolver");
            }
            found
        }
    });
    each.collect()
}

/// Returns the resolvers of the platform: those of `verify.resolver`, otherwise those of the system.
pub fn platform_resolvers(config: &config::Settings) -> Vec<SocketAddr> {
    match config.verify.resolver.is_empty() {
        true => system_resolvers(),
        false => config.verify.resolver.clone(),
    }
}

/// Returns the settings for finding and querying the name servers of hosts.
pub fn authorities(config: &config::Settings) -> AuthoritativeServers {
    let resolvers = platform_resolvers(config);
    if resolvers.is_empty() {
        tracing::warn!("verify.hosts is true, but /etc/resolv.conf contains no resolver; set verify.resolver");
    }
    AuthoritativeServers {
        resolvers,
        port: config::DNS_PORT,
        patience: config.verify.timeout,
        private: config.verify.hosts_private_addresses,
    }
}

/// Returns an address to query for an address of a listener.
pub fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secondary_servers_are_verified_if_they_are_to_be() {
        let secondary = |address: &str, verify| Secondary {
            address: address.parse().expect("an address"),
            key: None,
            zones: Vec::new(),
            source: None,
            verify,
        };
        let secondaries =
            [("192.0.2.1:53", true), ("192.0.2.2:53", false), ("192.0.2.3:53", true), ("192.0.2.3:53", true)]
                .map(|(address, verify)| secondary(address, verify));
        // One is a name server, too.
        let listed = Server { name: "ns1.example".to_owned(), address: "192.0.2.1:53".parse().expect("an address") };
        let servers: Vec<String> = servers_to_verify(&[listed], &secondaries).iter().map(Server::to_string).collect();
        assert_eq!(servers, ["ns1.example (192.0.2.1:53)", "secondary (192.0.2.3:53)"]);
    }
}
