//! Names by which the admin endpoints may be addressed.
//!
//! A web page can let its own name resolve to the address of this process (DNS rebinding). The browser then treats the responses
//! as that page's, which can read them, but still sends the page's own name as `Host`, or as `:authority` in HTTP/2. Accepted are
//! IP addresses, which no page can claim, `localhost`, names that the operator configured, and names in the served certificate.
//! Health requests are answered under any name: orchestrators use their own names for them, and the responses contain no secrets.
//! So are requests without a name (HTTP/1.0), which no browser sends.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, Version, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use prometheus_client::metrics::counter::Counter;

/// Paths that are answered under any name.
const HEALTH: &[&str] = &["/livez", "/readyz", "/healthz"];
/// The maximum length of a rejected name in the response.
const SHOWN_OCTETS_MAX: usize = 255;

type IsCertified = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The accepted names, and the number of rejected requests.
pub struct Hosts {
    names: BTreeSet<String>,
    is_certified: IsCertified,
    refused: Counter,
}

impl Hosts {
    /// Accepts `localhost`, IP addresses, `names`, and the names of the served certificate (`is_certified`).
    pub fn new(
        names: impl IntoIterator<Item = String>,
        is_certified: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        Arc::new(Hosts { names, is_certified: Box::new(is_certified), refused: Counter::default() })
    }

    /// Returns the number of refused requests, for `/metrics`.
    pub fn refused(&self) -> Counter {
        self.refused.clone()
    }

    /// Wraps `router` for requests that address an accepted name.
    pub fn checked(self: &Arc<Self>, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self.clone(), check))
    }

    fn accepts(&self, authority: &str) -> bool {
        let Some(authority) = exact_authority(authority) else { return false };
        let host = authority.host();
        let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if literal.parse::<IpAddr>().is_ok() {
            return true;
        }
        // The same name in DNS, with a trailing dot (RFC 1034 §3.1).
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        name == "localhost" || self.names.contains(&name) || (self.is_certified)(&name)
    }

    /// Returns the first name in a request that is not accepted.
    fn refuses(&self, uri: &Uri, headers: &HeaderMap) -> Option<String> {
        let of_target = uri.authority().map(|authority| authority.as_str().as_bytes());
        // All of them: a request can have several, or one in addition to `:authority`, and browsers and proxies differ in which
        // of these they use.
        let hosts = headers.get_all(header::HOST).iter().map(|value| value.as_bytes());
        let mut all = of_target.into_iter().chain(hosts).map(String::from_utf8_lossy);
        all.find(|name| !self.accepts(name)).map(|name| name.chars().take(SHOWN_OCTETS_MAX).collect())
    }
}

/// Parses a host and an optional port. Nothing else is valid: neither a user nor further characters after an address.
pub(super) fn exact_authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    let port = authority.port().map(|port| format!(":{port}")).unwrap_or_default();
    let is_exact = authority.as_str() == format!("{}{port}", authority.host());
    is_exact.then_some(authority)
}

async fn check(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    if HEALTH.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(header::HOST) {
        // RFC 9112 §3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message that lacks
        // a Host header field".
        return (StatusCode::BAD_REQUEST, "the request has no Host header\n").into_response();
    }
    let Some(name) = hosts.refuses(request.uri(), request.headers()) else { return next.run(request).await };
    hosts.refused.inc();
    let text = format!(
        "host {name:?} is not a name of this endpoint; use its IP address or localhost, or add the name to the setting \
         admin.name\n"
    );
    (StatusCode::MISDIRECTED_REQUEST, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_accepted() {
        let names = ["signpost.example.com".to_owned(), "Node1".to_owned()];
        let hosts = Hosts::new(names, |name| name == "certified.example.com");
        let accepted = "127.0.0.1,127.0.0.1:9453,192.0.2.53:1,[::1],[2001:db8::1]:9453,localhost,LocalHost:80,localhost.,\
                        signpost.example.com,SIGNPOST.example.com.:9453,node1,certified.example.com:443";
        for accepted in accepted.split(',') {
            assert!(hosts.accepts(accepted), "{accepted}");
        }
        let refused = ",evil.example,localhost.evil.example,127.0.0.1.evil.example,signpost.example.com.evil.example,\
                       evil.example/signpost.example.com,localhost evil.example,[::1].evil.example,\
                       localhost@evil.example,evil.example@localhost,2130706433.evil.example";
        for refused in refused.split(',') {
            assert!(!hosts.accepts(refused), "{refused}");
        }
    }

    #[test]
    fn each_name_of_a_request_counts() {
        let hosts = Hosts::new([], |_| false);
        let mut headers = HeaderMap::new();
        headers.append(header::HOST, "localhost".parse().expect("a value"));
        assert_eq!(hosts.refuses(&Uri::from_static("/metrics"), &headers), None);
        let absolute = Uri::from_static("http://evil.example/metrics");
        assert_eq!(hosts.refuses(&absolute, &headers).as_deref(), Some("evil.example"));
        headers.append(header::HOST, "rebound.example".parse().expect("a value"));
        assert_eq!(hosts.refuses(&Uri::from_static("/metrics"), &headers).as_deref(), Some("rebound.example"));
    }
}
