//! The endpoint at which an agent serves the traffic of its Routes, for the dashboard.
//!
//! It has a certificate and a token of its own, which are new at each start, and which the agent publishes in its Lease. A user who may
//! read the Lease can therefore read the traffic, and verify that it comes from the agent that wrote the Lease.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router as Endpoints;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use data_encoding::{BASE64, HEXLOWER};
use tokio::net::TcpListener;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_util::sync::CancellationToken;

use super::sockets;
use signpost_agent::traffic::Traffic;
use signpost_agent::traffic::view::Scope;
use signpost_dns::transport::inherited_sockets::InheritedSockets;
use signpost_runtime::httpd::{self, Limits};
use signpost_runtime::tls;
use signpost_types::instance::{TRAFFIC_PATH, TrafficAccess};

/// The most namespaces in a request. The rest of a longer list is ignored.
const NAMESPACES_MAX: usize = 64;
/// The most connections: the processes with a dashboard are few.
const CONNECTIONS_MAX: usize = 64;

/// The endpoint before it is served.
pub struct TrafficServer {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    access: TrafficAccess,
}

impl TrafficServer {
    /// Listens, with a certificate for the address of the instance.
    pub fn open(listen: SocketAddr, address: IpAddr) -> Result<TrafficServer, Box<dyn Error>> {
        let mut listeners = sockets::listen(&[listen], "--traffic-port", &mut InheritedSockets::default())?;
        let listener = listeners.remove(0);
        let port = listener.local_addr().map_or(listen.port(), |address| address.port());
        let failed = |error: &dyn std::fmt::Display| format!("cannot create a certificate: {error}");
        let made = rcgen::generate_simple_self_signed(vec![address.to_string()]).map_err(|error| failed(&error))?;
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(|error| failed(&error))?;
        let key = any_supported_type(&key).map_err(|error| failed(&error))?;
        let mut token = [0; 32];
        aws_lc_rs::rand::fill(&mut token).map_err(|_| failed(&"no random numbers"))?;
        let access =
            TrafficAccess { port, token: HEXLOWER.encode(&token), certificate: BASE64.encode(certificate.as_ref()) };
        let certified = CertifiedKey::new(vec![certificate], key);
        let config = tls::server_config(Arc::new(SingleCertAndKey::from(certified)))?;
        Ok(TrafficServer { listener, config, access })
    }

    /// Returns the way to it, for the Lease.
    pub fn access(&self) -> TrafficAccess {
        self.access.clone()
    }

    /// Serves until `stop` fires.
    pub fn spawn(self, traffic: Arc<Traffic>, stop: CancellationToken) {
        let endpoints = endpoints(traffic, self.access.token);
        let limits = Limits { connections: CONNECTIONS_MAX, ..Limits::default() };
        tokio::spawn(httpd::serve(self.listener, Some(self.config), endpoints, limits, stop));
    }
}

fn endpoints(traffic: Arc<Traffic>, token: String) -> Endpoints {
    let expected: Arc<str> = format!("Bearer {token}").into();
    let view = move |headers: HeaderMap, uri: Uri| {
        let response = respond(&traffic, &expected, &headers, uri.query().unwrap_or_default());
        async move { response }
    };
    Endpoints::new().route(TRAFFIC_PATH, get(view))
}

fn respond(traffic: &Traffic, expected: &str, headers: &HeaderMap, query: &str) -> Response {
    let authorization = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    if verify_slices_are_equal(authorization, expected.as_bytes()).is_err() {
        return (StatusCode::UNAUTHORIZED, "the token is in the Lease of the instance\n").into_response();
    }
    match serde_json::to_vec(&traffic.view(&scope(query))) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Returns the scope in a query.
fn scope(query: &str) -> Scope {
    let pairs = || form_urlencoded::parse(query.as_bytes());
    if let Some((_, route)) = pairs().find(|(name, _)| name == "route") {
        return Scope::Route(route.into_owned());
    }
    let namespaces = pairs().filter(|(name, _)| name == "namespace");
    let namespaces =
        namespaces.map(|(_, value)| value.into_owned()).take(NAMESPACES_MAX).collect::<std::collections::BTreeSet<_>>();
    if namespaces.is_empty() { Scope::All } else { Scope::Namespaces(namespaces) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        let namespaces = |names: &[&str]| Scope::Namespaces(names.iter().map(|&name| name.to_owned()).collect());
        for (query, expected) in [
            ("", Scope::All),
            ("other=x", Scope::All),
            ("namespace=shop", namespaces(&["shop"])),
            ("namespace=shop&namespace=bank", namespaces(&["bank", "shop"])),
            // Not all: it is a namespace that does not exist.
            ("namespace=", namespaces(&[""])),
            ("namespace=shop&route=shop%2Fweb", Scope::Route("shop/web".to_owned())),
        ] {
            assert_eq!(scope(query), expected, "{query}");
        }
    }

    #[tokio::test]
    async fn only_with_the_token() {
        let traffic = Traffic::default();
        for (value, status) in [
            (Some("Bearer abc"), StatusCode::OK),
            (Some("Bearer abd"), StatusCode::UNAUTHORIZED),
            (Some("Bearer abcd"), StatusCode::UNAUTHORIZED),
            (Some("abc"), StatusCode::UNAUTHORIZED),
            (None, StatusCode::UNAUTHORIZED),
        ] {
            let headers = value.map(|value| (header::AUTHORIZATION, value.parse().expect("a header")));
            let headers: HeaderMap = headers.into_iter().collect();
            assert_eq!(respond(&traffic, "Bearer abc", &headers, "").status(), status, "{value:?}");
        }
    }
}
