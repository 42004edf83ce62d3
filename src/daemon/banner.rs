//! The message to the operator after the start: the listeners, and the next steps.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::Process;
use super::demo;
use super::manifests::Report;
use super::scheduling::reachable;
use crate::config::{Role, Settings};

/// Prints the banner to standard output. An error is ignored.
pub(super) fn print(process: &Process, settings: &Settings, is_demo: bool) {
    let _ = io::stdout().write_all(text(process, settings, is_demo).as_bytes());
}

fn text(process: &Process, settings: &Settings, is_demo: bool) -> String {
    let Process { dns, api, admin_addresses: admin, applied, certificates, .. } = process;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "  {what:<11} {value}");
    };
    if let Some(dns) = dns {
        line("DNS", format!("{} (UDP and TCP)", list(dns.addresses())));
        for (name, addresses) in dns.encrypted().iter().filter(|(_, addresses)| !addresses.is_empty()) {
            line(name, list(addresses));
        }
    }
    if let Some(api) = api {
        line("API", format!("{} (at {})", list(&api.addresses), api.access.server_url()));
        line("kubeconfig", api.access.admin_kubeconfig().display().to_string());
    }
    if !admin.is_empty() {
        let admin_scheme = if certificates.admin.is_some() { "https" } else { "http" };
        line("admin", format!("{admin_scheme}://{}/ (dashboard, livez, readyz, metrics)", list(admin)));
    }
    if settings.has(Role::Scheduler) || settings.dns_follows_api() {
        let demo = " (a demo: cannot be delegated; to set your own domain, run \"signpost init\")";
        line("domain", format!("{}{}", settings.domain, if is_demo { demo } else { "" }));
    }
    if is_demo && !demo::has_local() {
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
    let tries = tries(process, settings, is_demo);
    if !tries.is_empty() {
        let _ = writeln!(text, "\nTry:");
        for line in tries {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn tries(process: &Process, settings: &Settings, is_demo: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(api) = &process.api {
        let kubeconfig = api.access.admin_kubeconfig();
        lines.push(format!("kubectl --kubeconfig {} get routers,routes -A", kubeconfig.display()));
    }
    let dns = process.dns.as_ref().and_then(|dns| dns.addresses().first());
    if let (Some(address), true) = (dns, settings.dns_follows_api()) {
        let ip = reachable(address.ip());
        let domain = &settings.domain;
        let query = if is_demo { format!("myapp-test.routes.{domain}") } else { format!("{domain} SOA") };
        lines.push(format!("dig @{ip} -p {} {query}", address.port()));
    }
    if let (Some(address), Some(_), None) = (process.admin_addresses.first(), &process.api, &process.certificates.admin)
    {
        // A path such as target/release/signpost works in this directory.
        let program = std::env::args_os().next().map_or_else(|| PathBuf::from("signpost"), PathBuf::from);
        let data_dir = settings.data_dir.display();
        lines.push(format!("{} dashboard --data-dir {data_dir} --admin-listen {address}", program.display()));
    }
    lines
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}
