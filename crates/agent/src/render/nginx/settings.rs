//! The settings of Routes in nginx.
//!
//! What nginx takes from a variable is in maps whose keys begin with the name of the Route's upstream. Limits of time, bodies and rates are
//! in locations: one for each distinct set of them, to which the server rewrites the path before nginx chooses a location. No client can
//! send such a path, because it does not begin with `/`; applications get `$request_uri`.
//!
//! Sets, lists of networks and names of cookies have a limit. A Route beyond it has no settings of that kind; with a list of networks, it
//! refuses all clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use signpost_types::traffic::{self, Network, Sticky, WEBSOCKET};
use signpost_types::v1alpha1::traffic::{ClientAddress, Hsts, ProxyProtocol};

use super::super::Settings;
use super::super::settings::{FORWARDERS_MAX, numbered};
use super::NEXT_SERVER_TIMEOUT;
use crate::site::{RouteKey, Server, Site, Upstream};

/// The most sets. A set has ten locations in each server.
const SETS_MAX: usize = 64;
/// The most lists of networks, and the most names of cookies: each is a variable in every request.
const VARIABLES_MAX: usize = 64;
/// The cookie of sessions without a name of their own. Its value is random, so that Routes can share it.
const COOKIE: &str = "signpost_session";

/// The settings that are those of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    response_ms: Option<u64>,
    tunnel_ms: Option<u64>,
    body: Option<u64>,
    requests: Option<u32>,
}

impl Set {
    fn of(settings: &traffic::Settings) -> Set {
        let traffic::Settings { request_timeout_ms, tunnel_timeout_ms, body_bytes_max, requests_max, .. } = settings;
        Set {
            response_ms: *request_timeout_ms,
            tunnel_ms: *tunnel_timeout_ms,
            body: *body_bytes_max,
            requests: *requests_max,
        }
    }
}

/// The numbers of what the Routes of a Site need.
pub(super) struct Plan {
    sets: BTreeMap<Set, usize>,
    networks: BTreeMap<Vec<Network>, usize>,
    cookies: BTreeMap<String, usize>,
}

/// A way in which a server treats requests: that of Routes without settings, or that of a set.
pub(super) struct Treatment {
    /// The location.
    pub(super) location: String,
    /// The end of the names of its further locations.
    pub(super) suffix: String,
    /// The directives that all of them have.
    pub(super) common: String,
    /// The time limits of a response.
    pub(super) quick: String,
    /// The time limits of a WebSocket or of events.
    pub(super) patient: String,
    /// The path that applications get, unless it is as nginx passes it.
    pub(super) path: &'static str,
}

impl Plan {
    pub(super) fn new(site: &Site) -> Plan {
        let of_http = || site.routes.iter().filter(|(_, upstream)| !upstream.is_passthrough());
        let sets = of_http().map(|(route, upstream)| (route, Set::of(&upstream.settings)));
        let networks = site.routes.iter();
        let networks = networks.filter_map(|(route, upstream)| Some((route, upstream.settings.networks.clone()?)));
        let cookies = of_http().filter_map(|(route, upstream)| Some((route, cookie(upstream)?)));
        Plan {
            sets: numbered(sets.filter(|(_, set)| *set != Set::default()), SETS_MAX),
            networks: numbered(networks, VARIABLES_MAX),
            cookies: numbered(cookies, VARIABLES_MAX),
        }
    }

    /// Returns the Routes beyond a limit, and what they do not have.
    pub(super) fn beyond(&self, site: &Site) -> Vec<(RouteKey, String)> {
        let reason = |upstream: &Upstream| {
            let settings = &upstream.settings;
            let set = Set::of(settings);
            let list = settings.networks.as_ref();
            if list.is_some_and(|list| !self.networks.contains_key(list)) {
                return Some(format!(
                    "all clients are refused: nginx has at most {VARIABLES_MAX} different lists of networks"
                ));
            }
            if upstream.is_passthrough() {
                return None;
            }
            if set != Set::default() && !self.sets.contains_key(&set) {
                return Some(format!("its limits are not used: nginx has at most {SETS_MAX} different sets of limits"));
            }
            let has_cookie = cookie(upstream).is_none_or(|cookie| self.cookies.contains_key(&cookie));
            (!has_cookie)
                .then(|| format!("sessions are not sticky: nginx has at most {VARIABLES_MAX} names of cookies"))
        };
        site.routes.iter().filter_map(|(route, upstream)| Some((route.clone(), reason(upstream)?))).collect()
    }

    /// Returns the treatments of requests, the one without settings first.
    pub(super) fn treatments(&self, settings: &Settings) -> Vec<Treatment> {
        let all = |ms: u128| format!("proxy_read_timeout {ms}ms; proxy_send_timeout {ms}ms;");
        let patient = |ms: u128| format!("{} send_timeout {ms}ms;", all(ms));
        let stream = settings.stream_timeout.as_millis();
        let mut treatments = vec![Treatment {
            location: "/".to_owned(),
            suffix: String::new(),
            common: String::new(),
            quick: String::new(),
            patient: patient(stream),
            path: "",
        }];
        let of_set = |(set, number): (&Set, &usize)| {
            let body = set.body.map(|bytes| format!("client_max_body_size {bytes};"));
            let rate = set.requests.map(|requests| {
                format!("limit_req zone=requests{requests} burst={} nodelay;", requests.saturating_sub(1))
            });
            let quick = set.response_ms.map(|ms| {
                let next = u128::from(ms).min(NEXT_SERVER_TIMEOUT.as_millis());
                format!("{} proxy_next_upstream_timeout {next}ms;", all(ms.into()))
            });
            Treatment {
                location: format!("set{number}"),
                suffix: format!("-{number}"),
                common: format!("{}{}", body.unwrap_or_default(), rate.unwrap_or_default()),
                quick: quick.unwrap_or_default(),
                patient: patient(set.tunnel_ms.map_or(stream, u128::from)),
                path: "$request_uri",
            }
        };
        treatments.extend(self.sets.iter().map(of_set));
        treatments
    }

    /// Writes the maps of the http server.
    pub(super) fn http(
        &self,
        site: &Site,
        numbers: &BTreeMap<&RouteKey, usize>,
        settings: &Settings,
        text: &mut String,
    ) {
        let client = client(settings, text);
        let mut maps = [
            Map::new("$upstream", "settings", "\"\""),
            Map::new("$upstream", "client_refused", "0"),
            Map::new("\"$upstream:$http_upgrade\"", "permitted_upgrade", "$websocket"),
            Map::new("\"$scheme:$upstream\"", "hsts", "$upstream_http_strict_transport_security"),
            Map::new("$upstream", "session", "\"\""),
            Map::new("\"$scheme:$upstream:$session\"", "session_cookie", "\"\""),
        ];
        for (route, upstream) in site.routes.iter().filter(|(_, upstream)| !upstream.is_passthrough()) {
            let [settings, refused, upgrades, hsts, session, cookies] = &mut maps;
            let (of, number) = (&upstream.settings, numbers[route]);
            if let Some(set) = self.sets.get(&Set::of(of)) {
                settings.add(&format!("u{number}"), &format!("set{set}"));
            }
            if let Some(networks) = &of.networks {
                refused.add(&format!("u{number}"), &self.refused(networks));
            }
            if let Some(permitted) = &of.upgrades {
                upgrades.add(&format!("u{number}:{WEBSOCKET}"), "\"\"");
                for upgrade in permitted.iter().map(ToString::to_string) {
                    match upgrade == WEBSOCKET {
                        true => upgrades.remove(&format!("u{number}:{WEBSOCKET}")),
                        false => upgrades.add(&format!("u{number}:{upgrade}"), "$http_upgrade"),
                    }
                }
            }
            if let Some(header) = &of.hsts {
                hsts.add(&format!("https:u{number}"), &format!("\"{}\"", hsts_value(header)));
            }
            if let Some(name) = self.cookie(upstream) {
                session.add(&format!("u{number}"), &format!("$cookie_{name}"));
                for (scheme, secure) in [("http", ""), ("https", "; Secure")] {
                    let value = format!("\"{name}=$request_id; Path=/; HttpOnly{secure}\"");
                    cookies.add(&format!("{scheme}:u{number}:"), &value);
                }
            }
        }
        maps.iter().for_each(|map| map.write(text));
        self.geo(&format!("{client} "), text);
        text.push_str(HEADERS);
        let _ = writeln!(text, "    map {client} $client_network {NETWORK_OF_CLIENT}");
        for requests in self.sets.keys().filter_map(|set| set.requests).collect::<BTreeSet<_>>() {
            // The count is of ten seconds, and nginx has a rate for each minute.
            let rate = u64::from(requests) * 6;
            let _ = writeln!(
                text,
                "    limit_req_zone \"$upstream $client_network\" zone=requests{requests}:1m rate={rate}r/m;"
            );
        }
    }

    /// Writes the maps of the stream server for passthrough. Connections that begin with the PROXY protocol go to endpoints at once.
    pub(super) fn stream(&self, site: &Site, numbers: &BTreeMap<&RouteKey, usize>, text: &mut String) {
        self.geo("", text);
        let mut map = Map::new("$second", "client_refused", "0");
        for (route, upstream) in site.routes.iter().filter(|(_, upstream)| upstream.is_passthrough()) {
            if let Some(networks) = &upstream.settings.networks {
                map.add(&format!("u{}", numbers[route]), &self.refused(networks));
            }
        }
        map.write(text);
        text.push_str("    map \"$client_refused:$first\" $way { default $first; \"~^1:\" \"\"; }\n");
    }

    /// Returns the variable that is 1 for clients outside of networks.
    fn refused(&self, networks: &[Network]) -> String {
        self.networks.get(networks).map_or_else(|| "1".to_owned(), |number| format!("$refused_{number}"))
    }

    /// Writes the lists of networks.
    fn geo(&self, client: &str, text: &mut String) {
        for (networks, number) in &self.networks {
            // A default is a network of all addresses, which nginx takes once.
            let halves =
                |network: &Network| network.net().subnets(network.net().prefix_len().max(1)).into_iter().flatten();
            let entries: String = networks.iter().flat_map(halves).map(|network| format!(" {network} 0;")).collect();
            let _ = writeln!(text, "    geo {client}$refused_{number} {{ default 1;{entries} }}");
        }
    }

    /// Returns the name of the cookie of a Route with sticky sessions.
    pub(super) fn cookie(&self, upstream: &Upstream) -> Option<String> {
        cookie(upstream).filter(|cookie| self.cookies.contains_key(cookie))
    }
}

/// The end of the lines about a server of the upstream of a session.
///
/// A later attempt has another key, because the same one leads to the endpoint that has failed.
pub(super) const SESSION: &str = " hash $session_key$attempt consistent;";

/// The largest weight of a server with sessions: nginx has 160 places of 16 bytes for each unit of a weight.
const SESSION_WEIGHT_MAX: u16 = 16;

/// Returns the factor for the weights of servers with sessions: the smallest weights with the same shares, if they are small enough.
pub(super) fn session_scale(servers: &[&Server]) -> f64 {
    let common = servers.iter().map(|server| server.weight).fold(0, gcd).max(1);
    let largest = servers.iter().map(|server| server.weight).max().unwrap_or(1) / common;
    f64::from(largest.min(SESSION_WEIGHT_MAX)) / f64::from(largest) / f64::from(common)
}

fn gcd(one: u16, other: u16) -> u16 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Chooses the location of a set, in each server.
pub(super) const CHOICE: &str = "        if ($settings) { rewrite ^ $settings last; }\n";

const HEADERS: &str = r#"    map $session $session_key { default $session; "" $request_id; }
    map $session_cookie $session_cache { default private; "" ""; }
    add_header Set-Cookie $session_cookie always;
    # No cache may give the cookie to others.
    add_header Cache-Control $session_cache always;
    proxy_hide_header Strict-Transport-Security;
    add_header Strict-Transport-Security $hsts always;
    limit_req_status 429;
"#;

/// An IPv6 /64 is one client, like for the number of connections.
const NETWORK_OF_CLIENT: &str = r#"{
        default "";
        "~^(?<v4_client>[0-9.]+)$" $v4_client;
        "~*^(?<v6_network>(?:[0-9a-f]{1,4}:){4})" $v6_network;
        "~*^(?<short_v6_network>(?:[0-9a-f]{1,4}:){0,3}:)" $short_v6_network;
    }"#;

/// Writes the variables with the address of a client, and returns the last one: that of the connection or, from trusted proxies, the last
/// one in X-Forwarded-For that is not theirs. Another text than an address ends the search, because a client may have sent all before it.
fn client(settings: &Settings, text: &mut String) -> &'static str {
    if settings.client_address == ClientAddress::ProxyProtocol || settings.trusted_proxies.is_empty() {
        return "$remote_addr";
    }
    let networks: String = settings.trusted_proxies.iter().map(|network| format!(" {network} 1;")).collect();
    let mut is_trusted = "$is_trusted".to_owned();
    let mut found = String::new();
    for place in 1..=FORWARDERS_MAX {
        let after = place - 1;
        let _ = write!(
            text,
            r#"    map "{is_trusted}:$http_x_forwarded_for" $forwarder_{place} {{
        default "";
        "~^1:(?:.*,)?[ \t]*(?<forwarder{place}>[0-9]+(?:\.[0-9]+){{3}}|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)[ \t]*(?:,[^,]*){{{after}}}$" $forwarder{place};
    }}
    geo $forwarder_{place} $is_forwarder_{place} {{ default 0;{networks} }}
"#
        );
        is_trusted = format!("$is_forwarder_{place}");
        found = format!("$forwarder_{place}|{found}");
    }
    let _ = writeln!(
        text,
        "    map \"{found}\" $client_address {{ default $remote_addr; \"~^\\|*(?<found_address>[^|]+)\" $found_address; }}"
    );
    "$client_address"
}

/// Returns the name of the cookie of a Route with sticky sessions, as nginx can have it in a variable.
fn cookie(upstream: &Upstream) -> Option<String> {
    let Sticky { cookie } = upstream.settings.sticky.as_ref()?;
    Some(cookie.as_ref().map_or_else(|| COOKIE.to_owned(), |name| name.to_string().replace('-', "_")))
}

/// Returns whether the endpoints of a Route with passthrough get the PROXY protocol.
pub(super) fn is_announced(upstream: &Upstream) -> bool {
    upstream.settings.proxy_protocol == Some(ProxyProtocol::V1) && upstream.is_available()
}

/// Returns the longest time limit of a Route, in milliseconds.
pub(super) fn longest_ms(site: &Site) -> u64 {
    let of = |upstream: &Upstream| upstream.settings.request_timeout_ms.max(upstream.settings.tunnel_timeout_ms);
    site.routes.values().filter_map(of).max().unwrap_or(0)
}

fn hsts_value(hsts: &Hsts) -> String {
    let mut value = format!("max-age={}", hsts.max_age_seconds);
    for (is_set, directive) in [(hsts.include_sub_domains, "; includeSubDomains"), (hsts.preload, "; preload")] {
        value.push_str(if is_set { directive } else { "" });
    }
    value
}

/// A map of nginx.
struct Map {
    of: &'static str,
    to: &'static str,
    default: &'static str,
    entries: BTreeMap<String, String>,
}

impl Map {
    fn new(of: &'static str, to: &'static str, default: &'static str) -> Map {
        Map { of, to, default, entries: BTreeMap::new() }
    }

    fn add(&mut self, key: &str, value: &str) {
        self.entries.insert(key.to_owned(), value.to_owned());
    }

    fn remove(&mut self, key: &str) {
        self.entries.remove(key);
    }

    fn write(&self, text: &mut String) {
        let Map { of, to, default, entries } = self;
        let entries: String = entries.iter().map(|(key, value)| format!("        \"{key}\" {value};\n")).collect();
        let _ = writeln!(text, "    map {of} ${to} {{\n        default {default};\n{entries}    }}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_servers_with_sessions_are_small() {
        for (weights, expected) in [
            (vec![], vec![]),
            (vec![256], vec![1.0]),
            (vec![256, 256, 256], vec![1.0, 1.0, 1.0]),
            (vec![256, 64, 64], vec![4.0, 1.0, 1.0]),
            (vec![256, 85], vec![16.0, 5.0]),
            (vec![7, 3], vec![7.0, 3.0]),
        ] {
            let address = "192.0.2.1:80".parse().expect("an address");
            let servers: Vec<Server> =
                weights.iter().map(|weight| Server { address, tls_name: None, weight: *weight }).collect();
            let scale = session_scale(&servers.iter().collect::<Vec<_>>());
            let found: Vec<f64> = weights.iter().map(|weight| (f64::from(*weight) * scale).round()).collect();
            assert_eq!(found, expected, "{weights:?}");
        }
    }
}
