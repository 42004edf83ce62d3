//! A Router whose addresses are those of the Services and EndpointSlices that a label selects.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::{DataDir, Kubectl, Ports, Server, until};

const ROUTER: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: edge}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: one}\nspec:\n  addressesFrom:\n    \
     namespace: edge\n    serviceSelector: {matchLabels: {tier: edge}}\n  addresses: [{ip: 192.0.2.3, state: drained}]\n";

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: proxies, namespace: edge, labels: {tier: edge}}\n\
     spec: {clusterIP: None, ports: [{port: 80}]}\n";

fn slice(endpoints: &[(u8, bool)]) -> String {
    let endpoints: String = endpoints
        .iter()
        .map(|(octet, is_ready)| format!("- {{addresses: [192.0.2.{octet}], conditions: {{ready: {is_ready}}}}}\n"))
        .collect();
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: proxies-1\n  namespace: edge\n  \
         labels: {{kubernetes.io/service-name: proxies}}\naddressType: IPv4\nendpoints:\n{endpoints}"
    )
}

#[test]
fn a_routers_addresses_follow_services() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let dns_returns = |octets: &[u8]| {
        let expected: BTreeSet<IpAddr> = octets.iter().map(|octet| [192, 0, 2, *octet].into()).collect();
        until(&format!("DNS returns {octets:?}"), || {
            let answer = Asker::new(ports.dns).ask("any.one.v3.rhcloud.com", RecordType::A, Duration::from_secs(5));
            let found: BTreeSet<IpAddr> =
                answer.map_or_else(BTreeSet::new, |answer| answer.addresses.into_iter().collect());
            if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
        });
    };
    kubectl.ok_with(&["apply", "-f", "-"], ROUTER);
    kubectl.ok_with(&["apply", "-f", "-"], SERVICE);
    // The Router drains .3, and .4 is not ready.
    kubectl.ok_with(&["apply", "-f", "-"], &slice(&[(1, true), (2, true), (3, true), (4, false)]));
    dns_returns(&[1, 2]);
    kubectl.ok_with(&["apply", "-f", "-"], &slice(&[(2, true), (4, true)]));
    dns_returns(&[2, 4]);
    let balancer = r#"{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}"#;
    kubectl.ok(&[
        "patch",
        "service",
        "proxies",
        "-n",
        "edge",
        "--type=merge",
        "-p",
        r#"{"spec": {"type": "LoadBalancer", "clusterIP": "192.0.2.100"}}"#,
    ]);
    kubectl.ok(&["patch", "service", "proxies", "-n", "edge", "--subresource=status", "--type=merge", "-p", balancer]);
    dns_returns(&[9]);
    // Another label, and back.
    kubectl.ok(&["label", "service", "proxies", "-n", "edge", "--overwrite", "tier=core"]);
    dns_returns(&[]);
    kubectl.ok(&["label", "service", "proxies", "-n", "edge", "--overwrite", "tier=edge"]);
    dns_returns(&[9]);
    // Another source.
    let patch = r#"{"spec": {"addressesFrom": null, "addresses": [{"ip": "192.0.2.3"}]}}"#;
    kubectl.ok(&["patch", "router", "one", "--type=merge", "-p", patch]);
    dns_returns(&[3]);
}
