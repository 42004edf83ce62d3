//! nginx's configuration, in which Routes are entries of maps. Every change needs a reload.
//!
//! ```text
//! :80  ─► stream ───► http.sock ──┐
//! :443 ─► stream ─┬─► https.sock ─┴─► the http server ─► servers
//!                 └─► passthrough.sock ─► stream ─────► servers
//! ```
//!
//! The stream servers limit the connections of each client, and read the name in the TLS handshake. They send the client's address ahead
//! (PROXY protocol). The http server reads it. The last stream server removes it, because applications do not expect it.
//!
//! One server has all hosts, because every further one, with its certificate, makes every reload longer. Only the most used wildcard
//! certificates have servers of their own.
//! A request goes through these maps:
//!
//! ```text
//! $sent_host ─► $routed_host ─► $virtual_host ─► $route ─► $upstream, $tls_name, $route_id, $treatment ─► $action
//!                               └─► $paths_0 … ──┘
//! ```
//!
//! The value of `$route` is `<labels>:<upstream>:<over http>:<over https>:<identifier>:<TLS name>`. `labels` is the number of labels
//! below the `*.` of a wildcard. Paths are compared with `$request_uri`, the octets that the client sent; `$uri` is decoded.

mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use signpost_types::probe::{BACKEND_HEADER, PROBE_HEADER, ROUTE_HEADER, TRACE_HEADER, backend_id, route_id};
use signpost_types::v1alpha1::traffic::ClientAddress;

use self::settings::{Plan, Treatment};
use super::{
    AUTHORITIES, CERTIFICATES, FORBIDDEN, HOPS_MAX, INVALID_HOST, LOOP_DETECTED, LOOP_TOKEN, MISDIRECTED, NO_RESPONSE,
    NOT_FOUND, Settings, TIMED_OUT, TOO_LARGE, TOO_MANY, UNAVAILABLE,
};
use crate::pem::KeyPair;
use crate::site::{Action, Host, PathPrefix, Paths, RouteKey, Server, Site, Thumbprint, WILDCARD_DEPTH_MAX};

/// The main file. It has private keys, which workers then need not read from files.
pub const CONFIG: &str = "nginx.conf";
/// The file in which nginx writes why it rejects a configuration.
pub const ERRORS: &str = "errors.log";
/// The socket of a server that responds with the generation of the configuration.
pub const GENERATION_SOCKET: &str = "generation.sock";
/// The path of its server for the number of requests.
pub const STATUS_PATH: &str = "/status";
/// The socket of the agent for a line about each request: [`Entry`](crate::traffic::nginx::Entry).
pub const TRAFFIC_SOCKET: &str = "traffic.sock";
/// All sockets that nginx creates in its directory.
pub const SOCKETS: [&str; 4] = [GENERATION_SOCKET, "http.sock", "https.sock", "passthrough.sock"];

/// The most paths in a map. nginx compares them one by one, and has a variable for each map in every request.
const PATHS_PER_MAP: usize = 64;
/// The longest private key. nginx reads no longer words than 4,096 bytes. An RSA key of 4,096 bits has 3,272.
pub const KEY_BYTES_MAX: usize = 4_000;
/// The most certificates that nginx loads with its configuration. Others are read in each handshake, which triples its cost: with a
/// key of P-256, a handshake takes 0.9 ms of a worker, or 2.8 ms. Each one that is loaded makes every reload 3 ms longer.
const LOADED_CERTIFICATES_MAX: usize = 4;
/// The longest time in which another server is tried: two connections that time out, and no server that is slow to respond.
const NEXT_SERVER_TIMEOUT: Duration = Duration::from_secs(12);

/// Returns all files of the configuration by name. Each configuration has a generation of its own. `default` is the certificate of
/// clients that name no host or an unknown one.
///
/// Certificates without a [`KeyPair`] are left out.
pub fn files(site: &Site, default: &KeyPair, settings: &Settings, generation: u64) -> BTreeMap<String, String> {
    let pairs = site.certificates.iter().filter_map(|(host, one)| Some((host, KeyPair::split(&one.pem).ok()?)));
    let pairs: BTreeMap<&Host, KeyPair> = pairs.collect();
    let settings = &settings.of_router(&site.router);
    let mut files = BTreeMap::from([(CONFIG.to_owned(), config(site, default, &pairs, settings, generation))]);
    let all = pairs.into_values().chain([default.clone()]);
    files.extend(all.map(|pair| (chain_file(&pair), pair.chain)));
    files
}

/// Returns the Routes whose settings are beyond a limit of nginx, and what they do not have.
pub fn beyond_limits(site: &Site) -> Vec<(RouteKey, String)> {
    Plan::new(site).beyond(site)
}

/// Returns the file of the certificate of a pair and its chain. Its name changes with its contents, so that workers that read it before and
/// after a reload see the chain of the key that they have.
fn chain_file(pair: &KeyPair) -> String {
    let mut hasher = DefaultHasher::new();
    pair.hash(&mut hasher);
    format!("{CERTIFICATES}/{:016x}.pem", hasher.finish())
}

fn config(
    site: &Site,
    default: &KeyPair,
    pairs: &BTreeMap<&Host, KeyPair>,
    settings: &Settings,
    generation: u64,
) -> String {
    let numbers: BTreeMap<&RouteKey, usize> = site.routes.keys().enumerate().map(|(at, route)| (route, at)).collect();
    // The hash tables must have room for all; nginx doubles none by itself.
    let endpoints: usize = site.routes.values().map(|upstream| upstream.servers.len()).sum();
    // A map of settings has two entries of a Route.
    let entries = endpoints.max(site.hosts.len()).max(pairs.len()).max(2 * site.routes.len());
    let size = (entries * 2).max(2_048).next_power_of_two();
    let sizes = format!("    map_hash_bucket_size 512;\n    map_hash_max_size {size};\n");
    let names = format!("    server_names_hash_bucket_size 512;\n    server_names_hash_max_size {size};\n");
    let log = if site.has_access_log { ACCESS_LOG } else { "" };
    let mut text = format!("{GLOBAL}\nhttp {{\n{sizes}{names}{HTTP}{log}");
    timeouts(settings, &mut text);
    hops(&mut text);
    if settings.upstream_authorities.is_some() {
        let _ = writeln!(text, "    proxy_ssl_verify on;\n    proxy_ssl_verify_depth 9;");
        let _ = writeln!(text, "    proxy_ssl_trusted_certificate {AUTHORITIES};");
    }
    text.push_str(&trusted(settings));
    removed_headers(&mut text);
    routes(site, &numbers, &mut text);
    challenges(site, &mut text);
    trace(site, &numbers, &mut text);
    let plan = Plan::new(site);
    plan.http(site, &numbers, settings, &mut text);
    upstreams(site, &numbers, &plan, false, &mut text);
    certificates(default, pairs, &mut text);
    servers(site, pairs, settings, &plan, &mut text);
    let _ = writeln!(
        text,
        "    server {{\n        listen unix:{GENERATION_SOCKET};\n        location = {STATUS_PATH} {{ stub_status; }}\n        \
         location / {{ return 200 \"{generation}\"; }}\n    }}\n}}\n"
    );
    stream(site, settings, &numbers, &plan, &sizes, generation, &mut text);
    text
}

fn timeouts(settings: &Settings, text: &mut String) {
    let response = settings.response_timeout.as_millis();
    let next = settings.response_timeout.min(NEXT_SERVER_TIMEOUT).as_millis();
    let _ = writeln!(text, "    keepalive_timeout {}ms;", settings.keep_alive.as_millis());
    let _ = writeln!(text, "    client_body_timeout {response}ms;\n    send_timeout {response}ms;");
    let _ = writeln!(text, "    proxy_read_timeout {response}ms;\n    proxy_send_timeout {response}ms;");
    // The timeout is that of a connection; a server that took longer to respond has the request.
    let _ = writeln!(text, "    proxy_next_upstream error timeout;\n    proxy_next_upstream_timeout {next}ms;");
}

/// The routers that a request has passed (RFC 8586). nginx reads the first `CDN-Loop` line, and passes it alone.
fn hops(text: &mut String) {
    let _ = write!(
        text,
        r#"    map $http_cdn_loop $cdn_loop {{ default "$http_cdn_loop, {LOOP_TOKEN}"; "" {LOOP_TOKEN}; }}
    map $http_cdn_loop $is_loop {{
        default "";
        "~*^(?>.*?(?<![^, \t]){LOOP_TOKEN}(?=[ \t]*(?:[,;]|$))){{{HOPS_MAX}}}" loop;
    }}
    proxy_set_header CDN-Loop $cdn_loop;
"#
    );
}

/// The maps from a host and a path to a Route.
fn routes(site: &Site, numbers: &BTreeMap<&RouteKey, usize>, text: &mut String) {
    let (mut hosts, mut several, mut maps) = (String::new(), String::new(), vec![Vec::new()]);
    let mut depths = BTreeSet::new();
    for (number, (host, paths)) in site.hosts.iter().enumerate() {
        let labels = host.as_str().strip_prefix("*.").map(|suffix| suffix.split('.').count());
        depths.extend(labels);
        let value = |route: &RouteKey| value(site, numbers, labels, paths, route);
        match (paths.get("/"), paths.len()) {
            (Some(route), 1) => _ = writeln!(hosts, "        {} \"{}\";", map_key(host), value(route)),
            _ => {
                let map = maps.last_mut().expect("there is one");
                if map.len() + paths.len() > PATHS_PER_MAP && !map.is_empty() {
                    maps.push(Vec::new());
                }
                let _ = writeln!(hosts, "        {} {number};", map_key(host));
                let _ = writeln!(several, "        {number} $paths_{};", maps.len() - 1);
                // The longest prefix first.
                let mut longest: Vec<(&PathPrefix, &RouteKey)> = paths.iter().collect();
                longest.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_str().len()));
                let entry = |(path, route)| format!("        \"~^{number}{}\" \"{}\";\n", pattern(path), value(route));
                maps.last_mut().expect("there is one").extend(longest.into_iter().map(entry));
            }
        }
    }
    let _ = writeln!(
        text,
        "    map $routed_host $virtual_host {{\n        hostnames;\n        default \"\";\n{hosts}    }}"
    );
    let _ = writeln!(text, "    map $virtual_host $path_route {{\n        default $virtual_host;\n{several}    }}");
    for (number, entries) in maps.into_iter().enumerate() {
        let entries: String = entries.into_iter().collect();
        let _ = writeln!(
            text,
            "    map \"$virtual_host$request_uri\" $paths_{number} {{\n        default \"\";\n{entries}    }}"
        );
    }
    // A wildcard has a limit of labels, as in HAProxy.
    let deep = |labels: &usize| {
        format!(
            "        \"~^{labels}:[^ ]* (?:[^.]+\\.){{{},}}[^.]+(?:\\.[^.]+){{{}}}$\" \"\";\n",
            WILDCARD_DEPTH_MAX + 1,
            labels - 1
        )
    };
    let deep: String = depths.iter().map(deep).collect();
    let _ =
        writeln!(text, "    map \"$path_route $routed_host\" $route {{\n        default $path_route;\n{deep}    }}");
}

/// Returns the value of `$route`.
fn value(
    site: &Site,
    numbers: &BTreeMap<&RouteKey, usize>,
    labels: Option<usize>,
    paths: &Paths,
    route: &RouteKey,
) -> String {
    let Some(upstream) = site.routes.get(route) else { return String::new() };
    let treatment = |action: Action| match action {
        Action::Serve if !upstream.is_available() => "unavailable",
        action => action.word(),
    };
    let https = match site.passthrough(paths) {
        Some(_) => "misdirected",
        None => treatment(upstream.over_https()),
    };
    format!(
        "{}:u{}:{}:{https}:{}:{}",
        labels.map(|labels| labels.to_string()).unwrap_or_default(),
        numbers[route],
        treatment(upstream.over_http()),
        route_id(&upstream.uid),
        // One name for all servers: nginx has no name by server.
        upstream.servers.iter().find_map(|server| server.tls_name.as_ref()).map(Host::as_str).unwrap_or_default(),
    )
}

/// Returns a host as a key of a map. A few words mean something else there.
fn map_key(host: &Host) -> String {
    match host.as_str() {
        word @ ("default" | "hostnames" | "include" | "volatile") => format!("\\{word}"),
        host => host.to_owned(),
    }
}

/// Returns a regular expression for the targets below a prefix.
fn pattern(path: &PathPrefix) -> String {
    let mut pattern = String::new();
    for character in path.as_str().trim_end_matches('/').chars() {
        if !character.is_ascii_alphanumeric() && !"/-_~!&',;=:@".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern + "(?=[/?]|$)"
}

/// The token of an HTTP challenge (RFC 8555 §8.3) for a host whose certificate the platform gets.
fn challenges(site: &Site, text: &mut String) {
    let hosts = site.issued.iter().filter(|host| site.thumbprint.is_some() && site.answers_challenges(host));
    let entries: String = hosts.map(|host| format!("        {} issued;\n", map_key(host))).collect();
    let _ = write!(
        text,
        r#"    map $routed_host $is_issued {{
        default "";
{entries}    }}
    map "$scheme:$is_issued:$request_uri" $challenge_token {{
        default "";
        "~^http:issued:/\.well-known/acme-challenge/(?<acme_token>[A-Za-z0-9_-]{{1,128}})$" $acme_token;
    }}
"#
    );
}

/// The header of traced responses that names the endpoint.
fn trace(site: &Site, numbers: &BTreeMap<&RouteKey, usize>, text: &mut String) {
    let mut ids = BTreeMap::new();
    for (route, upstream) in site.routes.iter().filter(|(_, upstream)| !upstream.is_passthrough()) {
        for server in &upstream.servers {
            let key = format!("u{} {}", numbers[route], server.address);
            ids.insert(key, backend_id(&upstream.uid, server.address));
        }
    }
    let entries: String = ids.iter().map(|(key, id)| format!("        \"{key}\" {id};\n")).collect();
    let traced = request_header(TRACE_HEADER);
    let probed = request_header(PROBE_HEADER);
    let _ = writeln!(
        text,
        "    map \"$challenge_token|$scheme:{probed}\" $is_probe {{ default \"\"; \"~^[^|]\" challenge; \"~^\\|http:.\" probe; }}"
    );
    // Of several servers that were tried, the last one responded, if it has a time.
    let _ = write!(
        text,
        r#"    map "$upstream_header_time|$upstream_addr" $responder {{
        default "";
        "~[0-9]\|(.* )?(?<address>[^ ]+)$" $address;
    }}
    map "$upstream $responder" $backend {{
        default "";
{entries}    }}
    map {traced} $traced_backend {{ default $backend; '' ''; }}
    add_header {BACKEND_HEADER} $traced_backend always;
    proxy_hide_header {BACKEND_HEADER};
    proxy_hide_header {ROUTE_HEADER};
"#
    );
}

/// Returns the variable with a header of a request.
fn request_header(name: &str) -> String {
    format!("$http_{}", name.to_ascii_lowercase().replace('-', "_"))
}

/// The headers of a client that applications do not get, in all spellings: a CGI application sees `-` and `_` as the same.
fn removed_headers(text: &mut String) {
    let own = [PROBE_HEADER, TRACE_HEADER, ROUTE_HEADER, BACKEND_HEADER];
    for header in REMOVED.into_iter().chain(own) {
        let mut spellings = vec![String::new()];
        for (at, part) in header.split('-').enumerate() {
            let separators: &[&str] = if at == 0 { &[""] } else { &["-", "_"] };
            let longer = |start: String| separators.iter().map(move |one| format!("{start}{one}{part}"));
            spellings = spellings.into_iter().flat_map(longer).collect();
        }
        for spelling in spellings.iter().filter(|spelling| !SET.contains(&spelling.as_str())) {
            let _ = writeln!(text, "    proxy_set_header {spelling} \"\";");
        }
    }
}

/// The headers about the client that a proxy in front of the router may have set.
fn trusted(settings: &Settings) -> String {
    match settings.client_address {
        ClientAddress::XForwardedFor => format!("{}{FORWARDED}", trusted_networks(settings)),
        // The client is the one in the protocol, and the headers are its own, in whichever network it is.
        ClientAddress::ProxyProtocol => format!("    geo $is_trusted {{ default 0; }}\n{FORWARDED}"),
    }
}

fn trusted_networks(settings: &Settings) -> String {
    let networks: String = settings.trusted_proxies.iter().map(|network| format!(" {} 1;", network.trunc())).collect();
    format!("    geo $is_trusted {{ default 0;{networks} }}\n")
}

/// The servers of the Routes with (`tcp`) or without passthrough.
fn upstreams(site: &Site, numbers: &BTreeMap<&RouteKey, usize>, plan: &Plan, tcp: bool, text: &mut String) {
    // The default server of Node.js closes a connection that is idle for 5 s.
    let keepalive = if tcp { "" } else { " keepalive 16; keepalive_timeout 4s;" };
    for (route, upstream) in &site.routes {
        if upstream.is_passthrough() != tcp || !upstream.is_available() {
            continue;
        }
        let servers: Vec<&Server> = upstream.servers.iter().filter(|server| server.weight > 0).collect();
        let session = plan.cookie(upstream).filter(|_| !tcp).map_or("", |_| settings::SESSION);
        let scale = if session.is_empty() { 1.0 } else { settings::session_scale(&servers) };
        let weight = |server: &Server| (f64::from(server.weight) * scale).round().max(1.0);
        // With `max_fails`, the failure of one request would take the server from all.
        let server = |one: &Server| format!(" server {} weight={} max_fails=0;", one.address, weight(one));
        let servers: String = servers.into_iter().map(server).collect();
        let _ = writeln!(text, "    upstream u{} {{{session}{servers}{keepalive} }}", numbers[route]);
    }
}

/// The certificates by the name in the TLS handshake. Keys are not in files, so that workers cannot read them there.
fn certificates(default: &KeyPair, pairs: &BTreeMap<&Host, KeyPair>, text: &mut String) {
    for (variable, of) in [("chain", chain_file as fn(&KeyPair) -> String), ("key", |pair| pair.key.clone())] {
        let entries = pairs.iter().map(|(host, pair)| format!("        {} \"{}\";\n", map_key(host), of(pair)));
        let entries: String = entries.collect();
        let _ = writeln!(
            text,
            "    map $ssl_server_name ${variable} {{\n        hostnames;\n        default \"{}\";\n{entries}    }}",
            of(default)
        );
    }
}

/// The server of all hosts, and the same for the most used wildcard certificates.
fn servers(site: &Site, pairs: &BTreeMap<&Host, KeyPair>, settings: &Settings, plan: &Plan, text: &mut String) {
    let content = locations(site.thumbprint.as_ref(), settings, plan);
    let loaded = most_used(site, pairs);
    // The name in a handshake chooses the server with the longest wildcard; those with certificates of their own are the first server's.
    let own = pairs.keys().filter(|host| !loaded.contains(host));
    let own = own.filter(|host| loaded.iter().any(|wildcard| host.as_str().ends_with(&wildcard.as_str()[1..])));
    let own: String = own.map(|host| format!("        server_name {host};\n")).collect();
    let _ = write!(text, "    server {{\n{LISTEN}{own}{content}    }}\n");
    for host in loaded {
        let pair = &pairs[host];
        let _ = write!(
            text,
            "    server {{\n        listen unix:https.sock ssl http2 proxy_protocol;\n        server_name {host};\n        \
             ssl_certificate {};\n        ssl_certificate_key \"data:{}\";\n{content}    }}\n",
            chain_file(pair),
            pair.key
        );
    }
}

/// Returns the wildcard certificates that most hosts use.
fn most_used<'a>(site: &Site, pairs: &BTreeMap<&'a Host, KeyPair>) -> Vec<&'a Host> {
    let mut uses: BTreeMap<&'a Host, usize> = BTreeMap::new();
    for host in site.hosts.keys().filter(|host| !pairs.contains_key(host)) {
        let Some((_, parent)) = host.as_str().split_once('.') else { continue };
        let wildcard: Option<Host> = format!("*.{parent}").parse().ok();
        if let Some((wildcard, _)) = wildcard.and_then(|wildcard| pairs.get_key_value(&wildcard)) {
            *uses.entry(wildcard).or_default() += 1;
        }
    }
    let mut uses: Vec<_> = uses.into_iter().map(|(host, count)| (std::cmp::Reverse(count), host)).collect();
    uses.sort();
    uses.into_iter().take(LOADED_CERTIFICATES_MAX).map(|(_, host)| host).collect()
}

/// Returns the treatment of requests, which all servers have.
fn locations(thumbprint: Option<&Thumbprint>, settings: &Settings, plan: &Plan) -> String {
    let respond = |status: u16, body: &str| format!("return {status} \"{}\";", body.replace('\n', "\\n"));
    let port = match settings.public_https_port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let thumbprint = thumbprint.map_or("", Thumbprint::as_str);
    let responses = [
        ("challenge", format!("return 200 \"$challenge_token.{thumbprint}\";")),
        ("invalid", respond(400, INVALID_HOST)),
        ("refuse", respond(404, NOT_FOUND)),
        ("misdirected", respond(421, MISDIRECTED)),
        ("unavailable", respond(503, UNAVAILABLE)),
        ("loop", respond(508, LOOP_DETECTED)),
        ("redirect", format!("return 302 https://$routed_host{port}$request_uri;")),
        ("probe", format!("add_header {ROUTE_HEADER} $route_id; return 204;")),
    ];
    // A status leads to a location that passes the request as it came. No client sees it.
    let ways = [("once", 470), ("patient", 471), ("once-patient", 472), ("again", 473), ("again-patient", 474)];
    let (no_response, timed_out) = (respond(502, NO_RESPONSE), respond(504, TIMED_OUT));
    let failed = format!("if ($failure = no-response) {{ {no_response} }} if ($failure = timed-out) {{ {timed_out} }}");
    let mut text = format!("        recursive_error_pages on;\n{}", settings::CHOICE);
    let errors = "error_page 413 @too-large; error_page 429 @too-many;";
    let _ = writeln!(text, "        error_page 502 = @no-response; error_page 504 = @timed-out; {errors}");
    for (name, content) in [
        ("no-response", &no_response),
        ("timed-out", &timed_out),
        ("too-large", &respond(413, TOO_LARGE)),
        ("too-many", &respond(429, TOO_MANY)),
    ] {
        let _ = writeln!(text, "        location @{name} {{ {content} }}");
    }
    for treatment in plan.treatments(settings) {
        let Treatment { location, suffix, common, quick, patient, path } = treatment;
        let internal = if suffix.is_empty() { "" } else { "internal; " };
        let _ = writeln!(text, "        location {location} {{\n            {internal}{common} {quick}");
        let _ = writeln!(text, "            error_page 502 = @no-response; error_page 504 = @timed-out; {errors}");
        for (name, status) in ways {
            let _ = writeln!(text, "            error_page {status} = @{name}{suffix};");
        }
        for (action, content) in &responses {
            let _ = writeln!(text, "            if ($action = {action}) {{ {content} }}");
        }
        let _ = writeln!(text, "            if ($client_refused) {{ {} }}", respond(403, FORBIDDEN));
        for (action, status) in ways {
            let _ = writeln!(text, "            if ($action = {action}) {{ return {status}; }}");
        }
        let pass = format!("proxy_pass $upstream_scheme://$upstream{path};");
        let _ = writeln!(text, "            {pass}\n        }}");
        let second = |of: &str| format!("error_page 502 504 = @second{of}{suffix}; {errors}");
        let third = |of: &str| format!("error_page 502 504 = @third{of}{suffix}; {errors}");
        for (name, content) in [
            ("once", quick.clone()),
            ("once-patient", patient.clone()),
            ("again", format!("{quick} {}", second(""))),
            ("again-patient", format!("{patient} {}", second("-patient"))),
            ("second", format!("{failed} set $attempt 2; {quick} {}", third(""))),
            ("second-patient", format!("{failed} set $attempt 2; {patient} {}", third("-patient"))),
            ("third", format!("{failed} set $attempt 3; {quick}")),
            ("third-patient", format!("{failed} set $attempt 3; {patient}")),
        ] {
            let _ = writeln!(
                text,
                "        location @{name}{suffix} {{ {common} proxy_next_upstream off; {content} {pass} }}"
            );
        }
        let _ = writeln!(text, "        location @patient{suffix} {{ {common} {patient} {pass} }}");
    }
    text
}

/// The listeners, and passthrough.
fn stream(
    site: &Site,
    settings: &Settings,
    numbers: &BTreeMap<&RouteKey, usize>,
    plan: &Plan,
    sizes: &str,
    generation: u64,
    text: &mut String,
) {
    let _ = write!(text, "stream {{\n{sizes}{STREAM}{}", trusted_networks(settings));
    // A zone for each generation: the count of a worker that is killed would stay in a zone.
    let _ = writeln!(text, "    limit_conn_zone $limited_client zone=clients{generation}:10m;");
    // The http server is to end a connection first.
    let of_routes = Duration::from_millis(settings::longest_ms(site));
    let timeout = settings.stream_timeout.max(settings.response_timeout).max(of_routes) + Duration::from_secs(60);
    let _ = writeln!(text, "    proxy_timeout {}ms;", timeout.as_millis());
    upstreams(site, numbers, plan, true, text);
    let (mut first, mut second, mut ids) = (String::new(), String::new(), String::new());
    for (host, paths) in &site.hosts {
        let route = site.passthrough(paths);
        let way = match route.map(|route| (&site.routes[route], numbers[route])) {
            None => "https".to_owned(),
            Some((upstream, number)) if settings::is_announced(upstream) => format!("u{number}"),
            Some(_) => "passthrough".to_owned(),
        };
        let _ = writeln!(first, "        {} {way};", map_key(host));
        if let Some(route) = route.filter(|route| site.routes[*route].is_available()) {
            let _ = writeln!(second, "        {} u{};", map_key(host), numbers[route]);
            let _ = writeln!(ids, "        {} {};", map_key(host), route_id(&site.routes[route].uid));
        }
    }
    for (variable, default, entries) in
        [("first", "https", first), ("second", "\"\"", second), ("counted_route", "\"\"", ids)]
    {
        let _ = writeln!(
            text,
            "    map $ssl_preread_server_name ${variable} {{\n        hostnames;\n        default {default};\n{entries}    }}"
        );
    }
    plan.stream(site, numbers, text);
    let is_announced = settings.client_address == ClientAddress::ProxyProtocol && !settings.trusted_proxies.is_empty();
    let announced = if is_announced { " proxy_protocol" } else { "" };
    for network in settings.trusted_proxies.iter().filter(|_| is_announced) {
        let _ = writeln!(text, "    set_real_ip_from {network};");
    }
    let limit = format!("limit_conn clients{generation} {};", settings.client_connections_max);
    for (addresses, way) in [(&settings.http, "http"), (&settings.https, "$way")] {
        let binds: String = addresses.iter().map(|address| format!(" listen {address}{announced};")).collect();
        let preread = if way == "http" { "" } else { " ssl_preread on;" };
        let _ = writeln!(text, "    server {{{binds}{preread} {limit} proxy_protocol on; proxy_pass {way}; }}");
    }
    let _ = writeln!(
        text,
        "    server {{\n        listen unix:passthrough.sock proxy_protocol;\n        ssl_preread on;\n        proxy_pass $second;\n        \
         access_log syslog:server=unix:{TRAFFIC_SOCKET},nohostname,tag=signpost traffic;\n    }}\n}}"
    );
}

/// The headers of a client that never reach an application unchanged.
const REMOVED: [&str; 19] = [
    "Client-IP",
    "Forwarded",
    "HTTP2-Settings",
    "Proxy",
    "Proxy-Connection",
    "True-Client-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Original-URL",
    "X-Real-IP",
    "X-Rewrite-URL",
    "X-Scheme",
];
/// The headers that get a value from the router.
const SET: [&str; 8] = [
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
];

/// Directives that are the same everywhere. Limits and timeouts are those of HAProxy's configuration.
const GLOBAL: &str = "\
# Written by signpost agent, which overwrites changes.
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
pid nginx.pid;
error_log stderr warn;
error_log errors.log emerg;
worker_processes auto;
# The limit for the remaining connections of a replaced worker.
worker_shutdown_timeout 10m;
events { worker_connections 16384; }
";

const HTTP: &str = r#"    variables_hash_max_size 4096;
    variables_hash_bucket_size 256;
    # The agent counts requests. Those that the router itself answers are for no Route.
    map $action $counted_route { default $route_id; "~^(?:none|invalid|refuse|misdirected|redirect|loop|probe|challenge)$" ""; }
    log_format traffic "h|$counted_route|$status|$request_length|$bytes_sent|$upstream_addr|$upstream_header_time";
    access_log syslog:server=unix:traffic.sock,nohostname,tag=signpost traffic;
    # An application that fails is not an error of the router.
    error_log stderr crit;
    server_tokens off;
    default_type text/plain;
    client_body_temp_path temporary/body;
    proxy_temp_path temporary/proxy;
    fastcgi_temp_path temporary/fastcgi;
    uwsgi_temp_path temporary/uwsgi;
    scgi_temp_path temporary/scgi;
    # The size of a request is for the application to limit.
    client_max_body_size 0;
    client_header_timeout 10s;
    # In all, less than 64 KiB.
    large_client_header_buffers 2 31k;
    underscores_in_headers on;
    ssl_protocols TLSv1.2 TLSv1.3;
    set_real_ip_from unix:;
    real_ip_header proxy_protocol;

    # RFC 9112 section 3.2.2: the host of a target in absolute form is that of the request, regardless of the Host field.
    map $request $sent_host {
        default $http_host;
        "~^[^ ]+ [A-Za-z][A-Za-z0-9+.-]*://(?<authority>[^/?# ]*)" $authority;
    }
    # $host is its host in lower case, without the port.
    map $sent_host $routed_host { default ""; "~^[A-Za-z0-9._-]+(?::[0-9]{1,5})?$" $host; }
    map "$routed_host$request_uri" $is_invalid { default ""; "~^/" invalid; "~#" invalid; }
    map $route $upstream { default ""; "~^[0-9]*:(?<route_upstream>[^:]+)" $route_upstream; }
    map $route $route_id { default ""; "~^(?:[^:]*:){4}(?<route_identifier>[^:]+)" $route_identifier; }
    map $route $tls_name { default ""; "~^(?:[^:]*:){5}(?<route_tls_name>.+)" $route_tls_name; }
    map $tls_name $upstream_scheme { default https; "" http; }
    map "$scheme:$route" $treatment {
        default none;
        "~^http:[0-9]*:[^:]+:(?<over_http>[^:]+)" $over_http;
        "~^https:[0-9]*:[^:]+:[^:]+:(?<over_https>[^:]+)" $over_https;
    }
    # A request goes to another server only if no byte of it was sent. nginx itself does that for POST, PATCH and LOCK. For others, it can
    # be done for requests without a body, which nginx would not read twice. HTTP/2 does not announce one.
    map "$server_protocol $request_method $content_length:$http_transfer_encoding" $repetition {
        default once;
        "~^[^ ]+ (?:POST|PATCH|LOCK) " "";
        "~^[^ ]+ (?:GET|HEAD|OPTIONS) 0?:$" again;
        "~^HTTP/1\.[01] [^ ]+ 0?:$" again;
    }
    map "$upstream_bytes_sent|$upstream_status" $failure {
        volatile;
        default no-response;
        "~(?:^|[ ,:])0\|(?:.*[ ,:])?50[24]$" unsent;
        "~504$" timed-out;
    }
    map $http_upgrade $websocket { default ""; websocket websocket; }
    map "$server_protocol $permitted_upgrade $http_connection" $upgrade {
        default "";
        "~*^HTTP/1\.1 (?<upgrade_protocol>[^ ]+) (?:.*[, \t])?upgrade[ \t]*(?:,|$)" $upgrade_protocol;
    }
    map "$upgrade $http_accept" $patience { default ""; "~*^[^ ]+ |text/event-stream" patient; }
    map "$repetition-$patience" $way { default "$repetition-$patience"; "-" direct; "-patient" patient; "~^([a-z]+)-$" $repetition; }
    map $upgrade $connection_option { default upgrade; "" ""; }
    map $http_te $te { default ""; "~*(?:^|,)[ \t]*trailers[ \t]*(?:,|$)" trailers; }
    map "$is_invalid:$is_probe:$treatment:$is_loop" $action {
        default $treatment;
        "~^invalid" invalid;
        "~^:challenge:" challenge;
        "~:none:" refuse;
        "~^:probe:" probe;
        "~:serve:loop$" loop;
        "~:serve:$" $way;
    }

    proxy_http_version 1.1;
    # Neither requests nor responses get onto the disk.
    proxy_request_buffering off;
    proxy_buffering off;
    proxy_max_temp_file_size 0;
    proxy_buffer_size 32k;
    proxy_buffers 4 32k;
    proxy_connect_timeout 5s;
    proxy_next_upstream_tries 3;
    proxy_ssl_server_name on;
    proxy_ssl_name $tls_name;
    # Those of one connection. A client that requested an upgrade, or must request one, gets its name.
    map "$server_protocol $status" $response_upgrade { default ""; "~^HTTP/1\.1 (?:101|426)$" $upstream_http_upgrade; }
    map "$server_protocol $status" $response_connection { default ""; "HTTP/1.1 426" upgrade; }
    add_header Upgrade $response_upgrade always;
    add_header Connection $response_connection always;
    proxy_hide_header Upgrade;
    proxy_hide_header Proxy-Connection;
    proxy_ignore_headers X-Accel-Redirect X-Accel-Expires X-Accel-Limit-Rate X-Accel-Buffering X-Accel-Charset;
    proxy_pass_header X-Accel-Redirect;
    proxy_pass_header X-Accel-Expires;
    proxy_pass_header X-Accel-Limit-Rate;
    proxy_pass_header X-Accel-Buffering;
    proxy_pass_header X-Accel-Charset;
    proxy_pass_header X-Pad;
    proxy_pass_header Server;
    proxy_pass_header Date;
    proxy_headers_hash_max_size 2048;
    proxy_headers_hash_bucket_size 128;
    proxy_set_header Host $sent_host;
    proxy_set_header Upgrade $upgrade;
    proxy_set_header Connection $connection_option;
    proxy_set_header TE $te;
"#;

/// The access log: text in JSON for the agent. Texts of clients are cut off, because a line must fit into a datagram.
const ACCESS_LOG: &str = r#"    map $request_uri $log_path { default $request_uri; "~^(?<log_path_start>.{1024})" $log_path_start; }
    map $http_user_agent $log_agent { default $http_user_agent; "~^(?<log_agent_start>.{512})" $log_agent_start; }
    map $request_method $log_method { default $request_method; "~^(?<log_method_start>.{32})" $log_method_start; }
    map $sent_host $log_host { default $sent_host; "~^(?<log_host_start>.{256})" $log_host_start; }
    log_format access escape=json 'a|{"r":"$route_id","s":"$status","method":"$log_method","scheme":"$scheme","host":"$log_host","path":"$log_path","protocol":"$server_protocol","agent":"$log_agent","client":"$remote_addr","id":"$request_id","in":"$request_length","out":"$bytes_sent","endpoint":"$upstream_addr","head":"$upstream_header_time","total":"$request_time"}';
    access_log syslog:server=unix:traffic.sock,nohostname,tag=signpost access;
    proxy_set_header X-Request-Id $request_id;
"#;

const LISTEN: &str = "        listen unix:http.sock proxy_protocol;
        listen unix:https.sock ssl http2 proxy_protocol default_server;
        ssl_certificate $chain;
        ssl_certificate_key data:$key;
";

/// An absent header and an empty one are the same to nginx. It also reads `X_Forwarded_Proto` as `X-Forwarded-Proto` if that comes first:
/// trusted proxies have to remove such spellings of their clients.
const FORWARDED: &str = r#"    map $is_trusted $forwarded { default ""; 1 $http_forwarded; }
    map $is_trusted $forwarded_prefix { default ""; 1 $http_x_forwarded_prefix; }
    map $is_trusted $forwarded_server { default ""; 1 $http_x_forwarded_server; }
    map $is_trusted $forwarded_ssl { default ""; 1 $http_x_forwarded_ssl; }
    map $is_trusted $forwarded_for { default $remote_addr; 1 $proxy_add_x_forwarded_for; }
    map "$is_trusted:$http_x_forwarded_proto" $forwarded_proto { default $scheme; "~^1:." $http_x_forwarded_proto; }
    map "$is_trusted:$http_x_forwarded_host" $forwarded_host { default $sent_host; "~^1:." $http_x_forwarded_host; }
    map "$is_trusted:$http_x_forwarded_port" $forwarded_port {
        default $proxy_protocol_server_port;
        "~^1:." $http_x_forwarded_port;
    }
    proxy_set_header Forwarded $forwarded;
    proxy_set_header X-Forwarded-For $forwarded_for;
    proxy_set_header X-Forwarded-Proto $forwarded_proto;
    proxy_set_header X-Forwarded-Host $forwarded_host;
    proxy_set_header X-Forwarded-Port $forwarded_port;
    proxy_set_header X-Forwarded-Prefix $forwarded_prefix;
    proxy_set_header X-Forwarded-Server $forwarded_server;
    proxy_set_header X-Forwarded-Ssl $forwarded_ssl;
"#;

const STREAM: &str = r#"    error_log stderr crit;
    log_format traffic "s|$counted_route|$status|$bytes_received|$bytes_sent|$upstream_addr|$upstream_connect_time";
    preread_timeout 10s;
    proxy_connect_timeout 5s;
    proxy_next_upstream_tries 3;
    upstream http { server unix:http.sock max_fails=0; }
    upstream https { server unix:https.sock max_fails=0; }
    upstream passthrough { server unix:passthrough.sock max_fails=0; }
    # A client is an IPv4 address or an IPv6 /64.
    map $binary_remote_addr $client { default $binary_remote_addr; "~(?s)^(?<network>.{8}).{8}$" $network; }
    map $is_trusted $limited_client { default $client; 1 ""; }
"#;
