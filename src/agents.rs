//! Requests to the agents of Routers for the traffic of Routes, by the dashboard and commands.
//!
//! An agent's credential may be stolen, and a Lease then has any address. A request goes only to the address in the name of the
//! Lease, by GET to one path, over TLS with the certificate of the Lease; a redirect is not followed, and the answer is bounded.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::ListParams;

use signpost_agent::traffic::view::View;
use signpost_types::instance::{AGENT_NAMESPACE, InstanceReport, SELECTOR, TRAFFIC_PATH, TrafficAccess};

/// The time for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of an answer. One with 50 Routes has 30 KiB, and one of a Route with 1,000 endpoints 150 KiB.
const ANSWER_BYTES_MAX: usize = 512 << 10;

/// The traffic of an instance cannot be read, for this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Lists the instances that report.
pub async fn list(client: kube::Client) -> kube::Result<Vec<InstanceReport>> {
    let leases: Api<Lease> = Api::namespaced(client, AGENT_NAMESPACE);
    let listed = leases.list(&ListParams::default().labels(SELECTOR)).await?;
    Ok(listed.iter().filter_map(InstanceReport::read).collect())
}

/// Queries an agent for its traffic.
pub async fn request(instance: &InstanceReport, query: &str) -> Result<View, Unreadable> {
    let late = || Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs()));
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange(instance, query)).await;
    answer.unwrap_or_else(|_| late()).map_err(Unreadable)
}

async fn exchange(instance: &InstanceReport, query: &str) -> Result<View, String> {
    let access = instance.traffic.as_ref().ok_or("its agent does not offer it; set --traffic-port")?;
    let url = url(instance.address, access, query).ok_or("its address cannot be one of an instance")?;
    let certificate = access.certificate_der().unwrap_or_default();
    let certificate = reqwest::Certificate::from_der(&certificate).map_err(|_| "its certificate is not valid")?;
    let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let http = http.tls_certs_only([certificate]).pool_max_idle_per_host(0).https_only(true).build();
    let http = http.map_err(|_| "its certificate is not valid")?;
    let sent = http.get(url).bearer_auth(&access.token).send().await;
    let mut response = sent.map_err(|error| match error.is_connect() {
        true => "no connection, or it has another certificate".to_owned(),
        false => "no valid response".to_owned(),
    })?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(format!("HTTP status {}", response.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|_| "the response is not complete")? {
        if body.len() + piece.len() > ANSWER_BYTES_MAX {
            return Err("the response is too large".to_owned());
        }
        body.extend_from_slice(&piece);
    }
    serde_json::from_slice(&body).map_err(|_| "the response is not valid".to_owned())
}

/// Returns the URL of an agent.
fn url(address: IpAddr, access: &TrafficAccess, query: &str) -> Option<String> {
    let canonical = address.to_canonical();
    let broadcast = matches!(canonical, IpAddr::V4(address) if address.is_broadcast());
    let is_usable = !canonical.is_unspecified() && !canonical.is_multicast() && !broadcast;
    let authority = SocketAddr::new(address, access.port);
    let separator = if query.is_empty() { "" } else { "?" };
    is_usable.then(|| format!("https://{authority}{TRAFFIC_PATH}{separator}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hostile Lease leads to no other place than its address.
    #[test]
    fn urls() {
        let access = TrafficAccess { port: 9454, token: String::new(), certificate: String::new() };
        for (address, query, expected) in [
            ("192.0.2.1", "", Some("https://192.0.2.1:9454/traffic")),
            ("127.64.0.1", "route=a%2Fb", Some("https://127.64.0.1:9454/traffic?route=a%2Fb")),
            ("2001:db8::1", "", Some("https://[2001:db8::1]:9454/traffic")),
            ("0.0.0.0", "", None),
            ("::", "", None),
            ("::ffff:0.0.0.0", "", None),
            ("224.0.0.1", "", None),
            ("ff02::1", "", None),
            ("255.255.255.255", "", None),
        ] {
            let url = url(address.parse().expect("an address"), &access, query);
            assert_eq!(url.as_deref(), expected, "{address}");
        }
    }
}
