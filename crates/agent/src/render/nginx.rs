//! nginx's configuration: one server for each host, one upstream for each Route. Every change needs a reload.
//!
//! ```text
//! :80  ─► http server
//! :443 ─► stream ─┬─► https.sock ─► http server
//!                 └─► passthrough.sock ─► stream ─► servers
//! ```
//!
//! The first stream server reads the name in the TLS handshake. It sends the client's address ahead (PROXY protocol), which the http
//! server reads, and which the second stream server removes, because applications do not expect it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;

use signpost_types::probe::{BACKEND_HEADER, PROBE_HEADER, ROUTE_HEADER, TRACE_HEADER, backend_id, route_id};

use super::{AUTHORITIES, DEFAULT_CERTIFICATE, MISDIRECTED, NOT_FOUND, Settings, UNAVAILABLE, certificate_file};
use crate::site::{Action, Host, Paths, RouteKey, Site, Upstream};

/// The main file.
pub const CONFIG: &str = "nginx.conf";
/// The socket of a server that responds with the generation of the configuration.
pub const GENERATION_SOCKET: &str = "generation.sock";
/// All sockets that nginx creates in its directory.
pub const SOCKETS: [&str; 3] = [GENERATION_SOCKET, "https.sock", "passthrough.sock"];

/// The scheme of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// Returns all files of the configuration by name. Each configuration has a generation of its own.
pub fn files(site: &Site, settings: &Settings, generation: u64) -> BTreeMap<String, String> {
    let mut files = BTreeMap::from([(CONFIG.to_owned(), config(site, settings, generation))]);
    let certificates = site.certificates.iter();
    files.extend(certificates.map(|(host, certificate)| (certificate_file(host), certificate.pem.to_string())));
    files
}

fn config(site: &Site, settings: &Settings, generation: u64) -> String {
    let numbers: BTreeMap<&RouteKey, usize> = site.routes.keys().enumerate().map(|(at, route)| (route, at)).collect();
    // The hash tables must have room for all; nginx doubles none by itself.
    let room = |entries: usize| (entries * 2).max(1_024).next_power_of_two();
    let size = room(site.hosts.len());
    let servers = room(site.routes.values().map(|upstream| upstream.servers.len()).sum());
    let mut text = format!(
        "{GLOBAL}\nhttp {{\n    server_names_hash_max_size {size};\n    map_hash_bucket_size 512;\n    map_hash_max_size {servers};\n{HTTP}"
    );
    if settings.upstream_authorities.is_some() {
        let _ = writeln!(text, "    proxy_ssl_verify on;\n    proxy_ssl_trusted_certificate {AUTHORITIES};");
    }
    let _ = writeln!(text, "    server {{ listen unix:{GENERATION_SOCKET}; return 200 \"{generation}\"; }}");
    for scheme in [Scheme::Http, Scheme::Https] {
        let listen = listen(settings, scheme, " default_server");
        let _ = writeln!(text, "    server {{{listen} {} }}", respond(404, NOT_FOUND));
    }
    upstreams(site, &numbers, false, &mut text);
    trace(site, &numbers, &mut text);
    for (host, paths) in &site.hosts {
        for scheme in [Scheme::Http, Scheme::Https] {
            server(site, settings, &numbers, (host, paths), scheme, &mut text);
        }
    }
    let _ = writeln!(text, "}}\n\nstream {{\n    map_hash_bucket_size 512;\n    map_hash_max_size {size};");
    let _ = writeln!(text, "    upstream https {{ server unix:https.sock; }}");
    let _ = writeln!(text, "    upstream passthrough {{ server unix:passthrough.sock; }}");
    upstreams(site, &numbers, true, &mut text);
    let (mut first, mut second) = (String::new(), String::new());
    for (host, paths) in &site.hosts {
        let route = site.passthrough(paths);
        let _ = writeln!(first, "        {host} {};", if route.is_some() { "passthrough" } else { "https" });
        if let Some(route) = route.filter(|route| site.routes[*route].is_available()) {
            let _ = writeln!(second, "        {host} u{};", numbers[route]);
        }
    }
    let _ = writeln!(
        text,
        "    map $ssl_preread_server_name $first {{\n        hostnames;\n        default https;\n{first}    }}"
    );
    let _ = writeln!(
        text,
        "    map $ssl_preread_server_name $second {{\n        hostnames;\n        default \"\";\n{second}    }}"
    );
    let binds: String = settings.https.iter().map(|address| format!(" listen {address};")).collect();
    let _ = writeln!(text, "    server {{{binds} ssl_preread on; proxy_protocol on; proxy_pass $first; }}");
    let _ = writeln!(
        text,
        "    server {{ listen unix:passthrough.sock proxy_protocol; ssl_preread on; proxy_pass $second; }}\n}}"
    );
    text
}

/// The server of a host.
fn server(
    site: &Site,
    settings: &Settings,
    numbers: &BTreeMap<&RouteKey, usize>,
    (host, paths): (&Host, &Paths),
    scheme: Scheme,
    text: &mut String,
) {
    let _ = writeln!(text, "    server {{{} server_name {host};", listen(settings, scheme, ""));
    if scheme == Scheme::Https {
        let file = certificate(site, host).map_or(DEFAULT_CERTIFICATE.to_owned(), certificate_file);
        let _ = writeln!(text, "        ssl_certificate {file}; ssl_certificate_key {file};");
        if site.passthrough(paths).is_some() {
            let _ = writeln!(text, "        {}\n    }}", respond(421, MISDIRECTED));
            return;
        }
    }
    for (path, route) in paths {
        let Some(upstream) = site.routes.get(route) else { continue };
        let action = match scheme {
            Scheme::Http => upstream.over_http(),
            Scheme::Https => upstream.over_https(),
        };
        let content = match action {
            Action::Refuse => respond(404, NOT_FOUND),
            Action::Redirect => match settings.public_https_port {
                443 => "return 302 https://$host$request_uri;".to_owned(),
                port => format!("return 302 https://$host:{port}$request_uri;"),
            },
            Action::Serve if !upstream.is_available() => respond(503, UNAVAILABLE),
            Action::Serve => proxy_pass(upstream, numbers[route]),
        };
        let content = match scheme {
            Scheme::Http => format!("{} {content}", probe(upstream)),
            Scheme::Https => content,
        };
        let path = path.as_str().trim_end_matches('/');
        if !path.is_empty() {
            let _ = writeln!(text, "        location = \"{path}\" {{ {content} }}");
        }
        let _ = writeln!(text, "        location \"{path}/\" {{ {content} }}");
    }
    if !paths.contains_key("/") {
        let _ = writeln!(text, "        location / {{ {} }}", respond(404, NOT_FOUND));
    }
    text.push_str("    }\n");
}

/// Returns the response to probes of a Route.
fn probe(upstream: &Upstream) -> String {
    let id = route_id(&upstream.uid);
    format!("if ({} != \"\") {{ add_header {ROUTE_HEADER} {id}; return 204; }}", request_header(PROBE_HEADER))
}

/// The header of traced responses that names the endpoint.
fn trace(site: &Site, numbers: &BTreeMap<&RouteKey, usize>, text: &mut String) {
    let mut ids = BTreeMap::new();
    for (route, upstream) in site.routes.iter().filter(|(_, upstream)| !upstream.is_passthrough()) {
        for server in &upstream.servers {
            // The value of $proxy_host is the name of the upstream.
            let key = format!("u{} {}", numbers[route], server.address);
            ids.insert(key, backend_id(&upstream.uid, server.address));
        }
    }
    let entries: String = ids.iter().map(|(key, id)| format!("        \"{key}\" {id};\n")).collect();
    let traced = request_header(TRACE_HEADER);
    // Of several servers that were tried, the last one responded, if it has a time.
    let _ = write!(
        text,
        r#"    map "$upstream_header_time|$upstream_addr" $responder {{
        default "";
        "~[0-9]\|(.* )?(?<address>[^ ]+)$" $address;
    }}
    map "$proxy_host $responder" $backend {{
        default "";
{entries}    }}
    map {traced} $traced_backend {{ default $backend; '' ''; }}
    add_header {BACKEND_HEADER} $traced_backend always;
    proxy_hide_header {BACKEND_HEADER};
    proxy_set_header {TRACE_HEADER} "";
    proxy_set_header {PROBE_HEADER} "";
"#
    );
}

/// Returns the variable with a header of a request.
fn request_header(name: &str) -> String {
    format!("$http_{}", name.to_ascii_lowercase().replace('-', "_"))
}

fn proxy_pass(upstream: &Upstream, number: usize) -> String {
    // One name for all servers: nginx has no name by server.
    match upstream.servers.iter().find_map(|server| server.tls_name.as_ref()) {
        Some(name) => format!("proxy_ssl_server_name on; proxy_ssl_name {name}; proxy_pass https://u{number};"),
        None => format!("proxy_pass http://u{number};"),
    }
}

/// The servers of the Routes with (`tcp`) or without passthrough.
fn upstreams(site: &Site, numbers: &BTreeMap<&RouteKey, usize>, tcp: bool, text: &mut String) {
    for (route, upstream) in &site.routes {
        if upstream.is_passthrough() != tcp || !upstream.is_available() {
            continue;
        }
        let servers = upstream.servers.iter().filter(|server| server.weight > 0);
        let servers: String =
            servers.map(|server| format!(" server {} weight={};", server.address, server.weight)).collect();
        let keepalive = if tcp { "" } else { " keepalive 16;" };
        let _ = writeln!(text, "    upstream u{} {{{servers}{keepalive} }}", numbers[route]);
    }
}

fn listen(settings: &Settings, scheme: Scheme, extra: &str) -> String {
    let http = |address: &SocketAddr| format!(" listen {address}{extra};");
    match scheme {
        Scheme::Http => settings.http.iter().map(http).collect(),
        Scheme::Https if extra.is_empty() => " listen unix:https.sock ssl http2 proxy_protocol;".to_owned(),
        Scheme::Https => format!(
            " listen unix:https.sock ssl http2 proxy_protocol{extra}; ssl_certificate {DEFAULT_CERTIFICATE}; ssl_certificate_key {DEFAULT_CERTIFICATE};"
        ),
    }
}

/// Returns the certificate of a host, which can be that of a wildcard one label above (RFC 9525 §6.3).
fn certificate<'a>(site: &'a Site, host: &Host) -> Option<&'a Host> {
    let wildcard = host.as_str().split_once('.').map(|(_, parent)| format!("*.{parent}")).unwrap_or_default();
    let found = site.certificates.get_key_value(host).or_else(|| site.certificates.get_key_value(wildcard.as_str()));
    found.map(|(host, _)| host)
}

fn respond(status: u16, body: &str) -> String {
    format!("return {status} \"{}\";", body.replace('\n', "\\n"))
}

/// Directives that are the same everywhere. Timeouts are those of HAProxy's configuration.
const GLOBAL: &str = "\
# Written by signpost agent, which overwrites changes.
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
pid nginx.pid;
error_log stderr warn;
worker_processes auto;
# The limit for the remaining connections of a replaced worker.
worker_shutdown_timeout 30m;
events { worker_connections 16384; }
";

const HTTP: &str = "    \
server_names_hash_bucket_size 512;
    access_log off;
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
    ssl_protocols TLSv1.2 TLSv1.3;
    set_real_ip_from unix:;
    real_ip_header proxy_protocol;
    map $http_upgrade $connection_header { default upgrade; '' ''; }
    proxy_http_version 1.1;
    proxy_request_buffering off;
    proxy_connect_timeout 5s;
    proxy_read_timeout 30s;
    proxy_send_timeout 30s;
    proxy_set_header Host $http_host;
    proxy_set_header Upgrade $http_upgrade;
    proxy_set_header Connection $connection_header;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;
";
