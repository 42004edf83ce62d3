//! The settings of Routes and Routers in HAProxy.
//!
//! The settings of a Route are entries of two maps, so that a change needs no reload. The keys begin with the name of its backend:
//!
//! ```text
//! settings.map   h7              30000:3600000:1048576:sid:31536000:sp:50:1:1
//!                h7:spdy/3.1     -
//! networks.map   h7:4c00002      -
//! ```
//!
//! The fields of the first value are: time limits of a response and a tunnel in milliseconds, largest body, cookie, age and flags of HSTS,
//! rate, whether there are networks, whether WebSockets are possible. 0 or nothing means none.
//!
//! A network is the hexadecimal start of its addresses, after `4` or `6`; one whose prefix is not a multiple of four has several. The
//! longest start of an address is found in a prefix tree.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use ipnet::IpNet;
use signpost_types::probe::route_id;
use signpost_types::traffic::{RATE_SECONDS, Sticky, WEBSOCKET};
use signpost_types::v1alpha1::traffic::ClientAddress;

use super::super::settings::FORWARDERS_MAX;
use super::super::{FORBIDDEN, Settings, TOO_LARGE, TOO_MANY};
use super::quoted;
use crate::site::Upstream;

pub(super) const SETTINGS: &str = "settings.map";
pub(super) const NETWORKS: &str = "networks.map";
/// The section with the table of requests by backend and client.
const REQUESTS: &str = "requests";
/// The longest time of a Route, in milliseconds: a week.
pub(super) const TIME_MAX_MS: u128 = 7 * 86_400_000;

/// The entries of a Route in the two maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) settings: BTreeMap<String, String>,
    pub(super) networks: BTreeMap<String, String>,
}

impl Entries {
    /// Returns the entries of a Route with a backend.
    pub(super) fn new(backend: &str, upstream: &Upstream, defaults: &str) -> Entries {
        let mut entries = Entries::default();
        let of = &upstream.settings;
        let text = fields(upstream, defaults);
        if text != defaults {
            entries.settings.insert(backend.to_owned(), text);
        }
        let upgrades = of.upgrades.iter().flatten().map(ToString::to_string).filter(|upgrade| upgrade != WEBSOCKET);
        entries.settings.extend(upgrades.map(|upgrade| (format!("{backend}:{upgrade}"), "-".to_owned())));
        let starts = of.networks.iter().flatten().flat_map(|network| starts(network.net()));
        entries.networks.extend(starts.map(|start| (format!("{backend}:{start}"), "-".to_owned())));
        entries
    }
}

/// Returns the fields of Routes without settings.
pub(super) fn default_fields(settings: &Settings) -> String {
    format!("{}:{}:0::::0:0:1", settings.response_timeout.as_millis(), settings.stream_timeout.as_millis())
}

fn fields(upstream: &Upstream, defaults: &str) -> String {
    let of = &upstream.settings;
    let mut default = defaults.split(':');
    let mut time = |ms: Option<u64>| {
        let default = default.next().unwrap_or_default().to_owned();
        ms.map_or(default, |ms| ms.to_string())
    };
    let (response, tunnel) = (time(of.request_timeout_ms), time(of.tunnel_timeout_ms));
    let cookie = of.sticky.as_ref().map(|Sticky { cookie }| {
        // Routes can share a host: each needs a cookie of its own.
        cookie.as_ref().map_or_else(|| format!("signpost_{}", route_id(&upstream.uid)), ToString::to_string)
    });
    let (age, flags) = match &of.hsts {
        None => (String::new(), String::new()),
        Some(hsts) => {
            let flags = [(hsts.include_sub_domains, 's'), (hsts.preload, 'p')];
            (
                hsts.max_age_seconds.to_string(),
                flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect(),
            )
        }
    };
    let websocket = of.upgrades.as_ref().is_none_or(|upgrades| upgrades.iter().any(|one| one.to_string() == WEBSOCKET));
    format!(
        "{response}:{tunnel}:{body}:{cookie}:{age}:{flags}:{rate}:{networks}:{websocket}",
        body = of.body_bytes_max.unwrap_or(0),
        cookie = cookie.unwrap_or_default(),
        rate = of.requests_max.unwrap_or(0),
        networks = u8::from(of.networks.is_some()),
        websocket = u8::from(websocket),
    )
}

/// Returns the hexadecimal starts of the addresses of a network: at most eight.
fn starts(network: IpNet) -> Vec<String> {
    let (family, bits, octets) = match network.network() {
        IpAddr::V4(address) => ('4', 32, u128::from(u32::from(address))),
        IpAddr::V6(address) => ('6', 128, u128::from(address)),
    };
    let digits = usize::from(network.prefix_len().div_ceil(4));
    if digits == 0 {
        return vec![family.to_string()];
    }
    let first = octets >> (bits - 4 * digits);
    let count = 1_u128 << (4 * digits - usize::from(network.prefix_len()));
    (first..first + count).map(|start| format!("{family}{start:0digits$x}")).collect()
}

/// Sections for the settings.
pub(super) fn sections() -> String {
    format!(
        r"
# The requests of each client to each Route with a rate.
backend {REQUESTS}
    stick-table type string len 64 size 200k expire {expire}s store http_req_rate({RATE_SECONDS}s)
",
        expire = 2 * RATE_SECONDS
    )
}

/// Rules of an HTTP frontend that limit the requests to a Route. The action `serve` is decided.
pub(super) fn request_rules(settings: &Settings) -> String {
    let [forbidden, too_large, too_many] = [FORBIDDEN, TOO_LARGE, TOO_MANY].map(quoted);
    format!(
        r#"    http-request set-var(txn.backend) var(txn.route),field(1,:)
    http-request set-var(txn.settings) "var(txn.backend),map_str({SETTINGS},{defaults})"
    acl has_networks var(txn.settings),field(8,:) -m str 1
{client}{address}    http-request return status 403 content-type text/plain string "{forbidden}" if has_networks !{{ var(txn.backend),concat(:,txn.address),map_beg({NETWORKS}) -m found }}
    http-request set-var(txn.rate) var(txn.settings),field(7,:),add(0)
    acl has_rate var(txn.rate) -m int gt 0
    http-request set-var(txn.network) var(txn.client),ipmask(32,64) if has_rate
    http-request set-var(txn.counted) var(txn.backend),concat(:,txn.network) if has_rate
    http-request track-sc1 var(txn.counted) table {REQUESTS} if has_rate
    http-request return status 429 content-type text/plain hdr Retry-After {RATE_SECONDS} string "{too_many}" if has_rate {{ sc1_http_req_rate({REQUESTS}),sub(txn.rate) gt 0 }}
    # Without Content-Length, the size is what has arrived.
    http-request set-var(txn.body) var(txn.settings),field(3,:),add(0)
    http-request return status 413 content-type text/plain string "{too_large}" if {{ var(txn.body) -m int gt 0 }} {{ req.body_size,sub(txn.body) gt 0 }}
    http-request set-var(txn.cookie) var(txn.settings),field(4,:) if {{ var(txn.settings),field(4,:) -m len gt 0 }}
    http-request lua.session if {{ var(txn.cookie) -m found }}
"#,
        defaults = default_fields(settings),
        client = client_rules(settings),
        address = address_rules("http-request", "txn", "var(txn.client)"),
    )
}

/// Rules that set `txn.client` to the address of the client: that of the connection or, from trusted proxies, the last one in
/// X-Forwarded-For that is not theirs. Another text than an address ends the search, because a client may have sent all before it.
fn client_rules(settings: &Settings) -> String {
    let mut text = "    http-request set-var(txn.client) src\n".to_owned();
    if settings.client_address == ClientAddress::XForwardedFor && !settings.trusted_proxies.is_empty() {
        for network in &settings.trusted_proxies {
            let _ = writeln!(text, "    acl is_forwarder var(txn.client) -m ip {network}");
        }
        for place in 1..=FORWARDERS_MAX {
            let _ = write!(
                text,
                "    http-request unset-var(txn.forwarded)
    http-request set-var(txn.forwarded) req.hdr_ip(X-Forwarded-For,-{place}) if is_forwarder !{{ var(txn.ended) -m found }}
    http-request set-var(txn.ended) bool(true) if !{{ var(txn.forwarded) -m found }}
    http-request set-var(txn.client) var(txn.forwarded) if {{ var(txn.forwarded) -m found }}\n"
            );
        }
    }
    text
}

/// Rules that set `address` in a scope of variables to the text that `networks.map` has the starts of.
fn address_rules(rule: &str, scope: &str, client: &str) -> String {
    format!(
        "    {rule} set-var({scope}.digits) {client},hex,lower,regsub(^0{{20}}ffff,) if has_networks
    {rule} set-var({scope}.address) str(6),concat(,{scope}.digits) if has_networks
    {rule} set-var({scope}.address) str(4),concat(,{scope}.digits) if has_networks {{ var({scope}.digits) -m len 8 }}\n"
    )
}

/// Rules of the TCP frontend, which close the connections of clients that a Route with passthrough does not permit.
pub(super) fn connection_rules(hosts: &str) -> String {
    format!(
        "    tcp-request content set-var(sess.backend) var(sess.vhost),map_str({hosts})
    acl has_networks var(sess.backend),map_str({SETTINGS}),field(8,:) -m str 1
{}    tcp-request content reject if has_networks !{{ var(sess.backend),concat(:,sess.address),map_beg({NETWORKS}) -m found }}\n",
        address_rules("tcp-request content", "sess", "src")
    )
}

/// Rules of an HTTP frontend for responses.
pub(super) fn response_rules(scheme: &str) -> String {
    let (secure, hsts) = match scheme {
        "https" => ("; Secure", HSTS),
        _ => ("", ""),
    };
    format!(
        r#"    acl is_same_session srv_name,strcmp(txn.server) eq 0
    http-response add-header Set-Cookie "%[var(txn.cookie)]=%[srv_name]; Path=/; HttpOnly{secure}" if {{ var(txn.cookie) -m found }} !is_same_session
    # No cache may give it to others.
    http-response add-header Cache-Control private if {{ var(txn.cookie) -m found }} !is_same_session
{hsts}"#
    )
}

/// Over plain HTTP, the header must not be there (RFC 6797 §7.2).
const HSTS: &str = r#"    http-response set-header Strict-Transport-Security "max-age=%[var(txn.settings),field(5,:)]" if { var(txn.settings),field(5,:) -m len gt 0 }
    http-response set-header Strict-Transport-Security "%[res.fhdr(Strict-Transport-Security)]; includeSubDomains" if { var(txn.settings),field(6,:) -m sub s }
    http-response set-header Strict-Transport-Security "%[res.fhdr(Strict-Transport-Security)]; preload" if { var(txn.settings),field(6,:) -m sub p }
"#;

/// Rules of a backend for HTTP. `use-server` has no effect with the name of a server that is not there, or gets no requests any more.
pub(super) const BACKEND: &str = r"    http-request set-timeout server var(txn.timeout)
    http-request set-timeout tunnel var(txn.settings),field(2,:)
    use-server %[var(txn.server)] if { var(txn.server) -m found }
";

/// The action of the script for sticky sessions.
pub(super) const SCRIPT: &str = r#"
-- Finds the endpoint of a session, and keeps its cookie from the application.
core.register_action("session", {"http-req"}, function(txn)
    local name = txn:get_var("txn.cookie")
    local others, is_there = {}, false
    for _, line in pairs(txn.http:req_get_headers()["cookie"] or {}) do
        for pair in string.gmatch(line, "[^;]+") do
            local key, value = string.match(pair, "^%s*([^=]*)=(.-)%s*$")
            if key == name then
                is_there = true
                if string.match(value, "^[%w.-]+$") then
                    txn:set_var("txn.server", value)
                end
            else
                table.insert(others, (string.gsub(pair, "^%s+", "")))
            end
        end
    end
    if is_there and #others > 0 then
        txn.http:req_set_header("cookie", table.concat(others, "; "))
    elseif is_there then
        txn.http:req_del_header("cookie")
    end
end)
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_networks() {
        for (network, expected) in [
            ("0.0.0.0/0", "4"),
            ("::/0", "6"),
            ("192.0.2.7/32", "4c0000207"),
            ("192.0.2.0/24", "4c00002"),
            ("10.0.0.0/8", "40a"),
            ("128.0.0.0/2", "48 49 4a 4b"),
            ("192.0.2.4/31", "4c0000204 4c0000205"),
            ("2001:db8::/32", "620010db8"),
            ("2001:db8::/31", "620010db8 620010db9"),
            ("::1/128", "600000000000000000000000000000001"),
        ] {
            assert_eq!(starts(network.parse().expect("a network")).join(" "), expected, "{network}");
        }
    }
}
