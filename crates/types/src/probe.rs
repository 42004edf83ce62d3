//! Requests that show what an instance of a Router serves: which Route, and which endpoint answered.
//!
//! | request header | response header | over |
//! |---|---|---|
//! | [`PROBE_HEADER`] | [`ROUTE_HEADER`] of the Route that has the host and path; the proxy answers with 204 itself | plain HTTP |
//! | [`TRACE_HEADER`] | [`BACKEND_HEADER`] of the endpoint that answered | HTTP, and TLS that ends at the router |
//!
//! Any value except the empty one counts. The proxies remove both headers from requests to applications.
//!
//! All clients can send these requests. The identifiers are hashes of the Route's UID, which is random. They therefore reveal
//! nothing about the Route, its namespace, or the addresses of its endpoints to users that may not read the Route.

use std::net::SocketAddr;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;

/// The header of a request that the proxy answers itself if it serves a Route for the host and path.
pub const PROBE_HEADER: &str = "Signpost-Probe";
/// The header of the response to a probe: the [`route_id`].
pub const ROUTE_HEADER: &str = "Signpost-Route";
/// The header of a request whose response names the endpoint.
pub const TRACE_HEADER: &str = "Signpost-Trace";
/// The header of the response to a traced request: the [`backend_id`]. It is absent if no endpoint answered.
pub const BACKEND_HEADER: &str = "Signpost-Backend";

/// The octets of a hash that an identifier shows.
const ID_OCTETS: usize = 8;

/// Returns the identifier of the Route with a UID: 16 lower-case hexadecimal digits.
pub fn route_id(uid: &str) -> String {
    id(&["signpost route", uid])
}

/// Returns the identifier of an endpoint of the Route with a UID: 16 lower-case hexadecimal digits.
pub fn backend_id(uid: &str, endpoint: SocketAddr) -> String {
    id(&["signpost backend", uid, &endpoint.to_string()])
}

/// Hashes parts, none of which has an octet 0.
fn id(parts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part.as_bytes());
        context.update(&[0]);
    }
    HEXLOWER.encode(&context.finish().as_ref()[..ID_OCTETS])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents and control planes can have different versions, so an identifier never changes.
    #[test]
    fn identifiers() {
        let (uid, other) = ("6f1c7a52-9d0e-4b57-8a43-2f0a54b1c001", "6f1c7a52-9d0e-4b57-8a43-2f0a54b1c002");
        let [v4, v6] = ["192.0.2.1:80", "[2001:db8::1]:80"].map(|text| text.parse().expect("an address"));
        let ids = [route_id(uid), route_id(other), backend_id(uid, v4), backend_id(other, v4), backend_id(uid, v6)];
        let expected =
            ["4f56c37b68290394", "f19bba7b6d03b5d3", "ec68bd84a4fea60f", "b78c43144bec7ef7", "596db200701d9b7d"];
        assert_eq!(ids, expected);
    }
}
