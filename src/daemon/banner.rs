//! The message to the operator after the start: the listeners, and the next steps.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::api::Api;
use super::demo;
use super::manifests::Report;
use super::scheduling::reachable;
use crate::config::{Role, Settings};

pub struct Banner<'a> {
    pub settings: &'a Settings,
    pub is_demo: bool,
    pub dns: &'a [SocketAddr],
    /// The addresses of the encrypted transports, by their short names.
    pub encrypted: Vec<(&'static str, Vec<SocketAddr>)>,
    /// The API, if it runs in this process.
    pub api: Option<&'a Api>,
    pub admin: &'a [SocketAddr],
    /// `http` or `https`.
    pub admin_scheme: &'a str,
    pub applied: Option<&'a Report>,
}

/// Prints the banner to standard output. An error is ignored.
pub fn print(banner: &Banner<'_>) {
    let _ = io::stdout().write_all(text(banner).as_bytes());
}

fn text(banner: &Banner<'_>) -> String {
    let Banner { settings, is_demo, dns, encrypted, api, admin, admin_scheme, applied } = banner;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<11} {value}");
    };
    if !dns.is_empty() {
        line("DNS", format!("{} (UDP and TCP)", list(dns)));
    }
    for (name, addresses) in encrypted.iter().filter(|(_, addresses)| !addresses.is_empty()) {
        line(name, list(addresses));
    }
    if let Some(api) = api {
        line("API", format!("{} (at {})", list(&api.addresses), api.access.server_url()));
        line("kubeconfig", api.access.admin_kubeconfig().display().to_string());
    }
    if !admin.is_empty() {
        line("admin", format!("{admin_scheme}://{}/ (dashboard, livez, readyz, metrics)", list(admin)));
    }
    if settings.has(Role::Scheduler) || settings.dns_follows_api() {
        let demo = " (a demo: cannot be delegated; to set your own domain, run \"signpost init\")";
        line("domain", format!("{}{}", settings.domain, if *is_demo { demo } else { "" }));
    }
    if *is_demo && !demo::has_local() {
        line("HAProxy", "not found: the shard \"local\" is missing; install HAProxy, and start again".to_owned());
    }
    if let Some(folder) = &settings.zones {
        line("zone files", folder.display().to_string());
    }
    if let Some(report) = applied {
        let Report { created, changed, unchanged, kept } = report;
        let mut counts = format!("{created} created, {changed} changed, {unchanged} unchanged");
        if !kept.is_empty() {
            let _ = write!(counts, ", {} kept because other clients have set their fields", kept.len());
        }
        line("manifests", counts);
    }
    let mut text = format!("signpost {} is running\n{text}", env!("CARGO_PKG_VERSION"));
    if let Some(report) = applied {
        for kept in &report.kept {
            let _ = writeln!(text, "  kept        {kept}");
        }
    }
    let tries = tries(banner);
    if !tries.is_empty() {
        let _ = writeln!(text, "\nTry:");
        for line in tries {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn tries(banner: &Banner<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(api) = banner.api {
        let kubeconfig = api.access.admin_kubeconfig();
        lines.push(format!("kubectl --kubeconfig {} get routers,routes -A", kubeconfig.display()));
    }
    if let (Some(address), true) = (banner.dns.first(), banner.settings.dns_follows_api()) {
        let ip = reachable(address.ip());
        let domain = &banner.settings.domain;
        let query = if banner.is_demo { format!("myapp-test.routes.{domain}") } else { format!("{domain} SOA") };
        lines.push(format!("dig @{ip} -p {} {query}", address.port()));
    }
    if let (Some(address), Some(_), "http") = (banner.admin.first(), banner.api, banner.admin_scheme) {
        // A path such as target/release/signpost works in this directory.
        let program = std::env::args_os().next().map_or_else(|| PathBuf::from("signpost"), PathBuf::from);
        let data_dir = banner.settings.data_dir.display();
        lines.push(format!("{} dashboard --data-dir {data_dir} --admin-listen {address}", program.display()));
    }
    lines
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}
