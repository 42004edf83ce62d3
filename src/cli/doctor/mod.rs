//! `signpost doctor`: follows the delegation like a resolver, from the root or a given parent to the name servers of
//! the domain, and reports problems with the exact records to add.
//!
//! [`walk`] collects the observations of [`survey`], and [`judge`] derives [`finding`]s from them. It queries from this
//! machine, and therefore sees the same as a resolver here.

mod finding;
mod judge;
mod survey;
mod walk;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueHint, value_parser};

use self::finding::Report;
use self::survey::NameServers;
use self::walk::{DoctorTarget, HostTarget};
use super::access::{self, ApiLocation};
use super::output::{self, Format};
use super::platform::PlatformSettings;
use super::{Error, Outcome, note, progress, serve, success_if};
use crate::config::NameServer;
use crate::config::value::{server_address, system_resolvers};
use signpost_dns::wire::Name;
use signpost_runtime::trust;
use signpost_types::names::{ALIAS_LABEL, check_domain};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

/// The configuration keys for the intended state, and for the API.
const KEYS: &[&str] = &["domain", "nameserver", "kubeconfig", "api-server", "data-dir"];
/// The time limit for the API in total.
const API_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for all queries: a thousand zones at a silent server.
const LIMIT: Duration = Duration::from_secs(3_600);
/// The root's servers, a to m (https://www.iana.org/domains/root/servers). A walk needs one that answers.
const ROOTS: [&str; 13] = [
    "198.41.0.4",
    "170.247.170.2",
    "192.33.4.12",
    "199.7.91.13",
    "192.203.230.10",
    "192.5.5.241",
    "192.112.36.4",
    "198.97.190.53",
    "192.36.148.17",
    "192.58.128.30",
    "193.0.14.129",
    "199.7.83.42",
    "202.12.27.33",
];

/// The arguments that only this command has. Their texts are the help.
#[derive(Debug, Args)]
#[group(skip)]
struct DoctorArgs {
    /// A server of the parent zone, to query instead of following referrals from the root (repeats)
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = server_address)]
    parent: Vec<SocketAddr>,
    /// A file of root hints in the format of InterNIC [default: the root servers of the Internet]
    #[arg(long, value_name = "HINTS", value_hint = ValueHint::FilePath, conflicts_with = "parent")]
    root: Option<PathBuf>,
    /// The port of all servers that the command finds
    #[arg(long, value_name = "PORT", value_parser = value_parser!(u16).range(1..), default_value = "53")]
    port: u16,
    /// A custom host to check: its CNAME must lead to its Route
    #[arg(long, value_name = "HOST", value_parser = host)]
    name: Option<Name>,
    /// The expected CNAME target of the host [default: from the status of its Route]
    #[arg(long, value_name = "NAME", value_parser = host, requires = "name")]
    target: Option<Name>,
    /// The resolver to query for the host [default: the system's]
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = server_address)]
    resolver: Option<SocketAddr>,
    /// The zone of a shard, to check its wildcard (repeats) [default: the zones of all Routers]
    #[arg(long, value_name = "ZONE", value_parser = host)]
    shard: Option<Vec<Name>>,
    /// The CA certificates in PEM to trust for the transports over TLS that SVCB records offer [default: the system's
    /// certificates]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tls_ca: Option<PathBuf>,
    /// The time to wait for a response, for each of two tries
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=60), default_value = "2")]
    timeout: u64,
    /// Accept loopback and private addresses, for a platform in a private network
    #[arg(long)]
    private: bool,
    /// Treat warnings as errors for the exit code
    #[arg(long)]
    strict: bool,
}

pub(super) fn command() -> Command {
    DoctorArgs::augment_args(Command::new("doctor"))
        .about("Check DNS delegation from the root by queries to public name servers, and print the records to add")
        .after_help(
            "Without --parent or --root, the command queries public name servers, from the root of the Internet down \
             to those of the parent zone, and with --name also the system's resolver. It checks the parent's \
             delegation and glue, addresses, UDP and TCP, EDNS, authority, equal serials, recursion, transfers, the \
             TLS handshakes of transports in SVCB records, and the wildcards of shards. With --name, \
             it also checks a custom host. It changes nothing. docs/delegate.md explains each finding. Exit codes: 0 \
             no errors (warnings are allowed without --strict), 1 errors found, 2 invalid usage.",
        )
        .arg(output::argument())
        .args(serve::arguments_of(KEYS))
        .arg(access::context_argument())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let args = DoctorArgs::from_arg_matches(matches).expect("clap has checked the arguments");
    let is_strict = args.strict;
    let target = target(args, &place).map_err(Error::Usage)?;
    let survey = access::run(LIMIT, async { Ok(progress::during("querying name servers", target.survey()).await) })?;
    let report = Report::new(&target.domain, judge::diagnose(&survey));
    Format::of(matches).show(&report, |painter| report.table(painter))?;
    let faults = if is_strict { report.errors + report.warnings } else { report.errors };
    Ok(success_if(faults == 0))
}

/// Returns the subjects of the checks, from flags, configuration, and API.
fn target(args: DoctorArgs, place: &ApiLocation) -> Result<DoctorTarget, String> {
    let (settings, port) = (&place.settings, args.port);
    let roots = match &args.root {
        None => ROOTS.iter().map(|root| SocketAddr::new(root.parse().expect("an address"), port)).collect(),
        Some(file) => hints(file, port)?,
    };
    let api = ask_api(place, args.name.as_ref());
    let domain = match &api {
        Some(api) if !place.is_given("domain") => name(&api.domain)?,
        None if !place.is_given("domain") => {
            return Err("no domain is set; set --domain, or use a kubeconfig".to_owned());
        }
        _ => name(&settings.domain)?,
    };
    let reported = api.as_ref().and_then(|api| api.name_servers.as_ref());
    let expected = reported.unwrap_or(&settings.nameserver).iter();
    let expected = expected.map(|server| Ok((name(&server.name)?, server.addresses.iter().copied().collect())));
    let expected = expected.collect::<Result<NameServers, String>>()?;
    let shards = args.shard.or_else(|| api.as_ref().map(|api| api.shards.clone()));
    let (known, proof) = api.map_or((None, None), |api| (api.target, api.proof));
    let target = args.target.or(known);
    let host = match args.name {
        None => None,
        Some(name) => {
            let resolver = args.resolver.or_else(|| system_resolvers().first().copied());
            let resolver = resolver.ok_or("/etc/resolv.conf: no resolver found; set --resolver")?;
            Some(HostTarget { name, target, proof, resolver })
        }
    };
    Ok(DoctorTarget {
        timeout: Duration::from_secs(args.timeout),
        alias_zone: domain.prepend(ALIAS_LABEL.as_bytes()).map_err(|error| error.to_string())?,
        domain,
        expected,
        private: args.private,
        parents: args.parent,
        roots,
        port,
        shards,
        host,
        trust: match &args.tls_ca {
            None => trust::of_system(),
            Some(file) => trust::only_file(file).map_err(|error| format!("{error} (--tls-ca)"))?,
        },
    })
}

struct ApiInfo {
    domain: String,
    /// The name servers of the platform, if they are known.
    name_servers: Option<Vec<NameServer>>,
    shards: Vec<Name>,
    target: Option<Name>,
    /// Owner and text of the record that should prove the host.
    proof: Option<(Name, String)>,
}

/// Reads from the API, if there is one. Without it, fewer checks are possible.
fn ask_api(place: &ApiLocation, host: Option<&Name>) -> Option<ApiInfo> {
    if !place.is_there() {
        return None;
    }
    let reported = access::run(API_TIMEOUT, reported(place, host));
    reported.inspect_err(|why| note(format_args!("note: continuing without the API: {why}"))).ok()
}

async fn reported(place: &ApiLocation, host: Option<&Name>) -> Result<ApiInfo, String> {
    let access = place.connect().await?;
    let PlatformSettings { domain, name_servers, .. } = PlatformSettings::find(place, &access).await?;
    let zone = |router: Router| {
        let name = router.metadata.name.unwrap_or_default();
        let dns = router.spec.dns.filter(|dns| !dns.is_empty());
        self::name(&dns.unwrap_or_else(|| format!("{name}.{domain}")))
    };
    let routers: Vec<Router> = access.all().await?;
    let shards = routers.into_iter().filter_map(|router| zone(router).ok()).collect::<BTreeSet<_>>();
    let (mut target, mut proof) = (None, None);
    if let Some(host) = host {
        // Users who may not list all Routes can set --target.
        let routes: Vec<Route> = access.all_permitted().await?.unwrap_or_default();
        let has = |route: &&Route| route.spec.host.as_deref().is_some_and(|given| name(given).as_ref() == Ok(host));
        let status = routes.iter().find(has).and_then(|route| route.status.as_ref());
        target = status.and_then(|status| name(status.canonical_name.as_deref()?).ok());
        let challenge = status.and_then(|status| status.challenge.as_ref());
        proof = challenge.and_then(|challenge| Some((name(&challenge.name).ok()?, challenge.value.clone())));
    }
    Ok(ApiInfo { domain, name_servers, shards: shards.into_iter().collect(), target, proof })
}

fn name(text: &str) -> Result<Name, String> {
    text.parse().map_err(|error| format!("{text} is not a domain name: {error}"))
}

fn host(text: &str) -> Result<Name, String> {
    let plain = text.trim_end_matches('.').to_ascii_lowercase();
    check_domain(&plain).map_err(|error| error.to_string())?;
    name(&plain)
}

/// Returns the addresses in a file of root hints: those of all its A and AAAA records.
fn hints(file: &Path, port: u16) -> Result<Vec<SocketAddr>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error} (--root)", file.display()))?;
    let addresses = addresses_of_hints(&text);
    if addresses.is_empty() {
        return Err(format!("{}: no A or AAAA record found (--root)", file.display()));
    }
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

fn addresses_of_hints(text: &str) -> Vec<IpAddr> {
    let of_line = |line: &str| {
        let line = line.split(';').next().unwrap_or_default();
        let mut words = line.split_whitespace().skip_while(|word| !matches!(*word, "A" | "AAAA" | "a" | "aaaa"));
        words.nth(1)?.parse().ok()
    };
    text.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_read_as_internic_writes_them() {
        let text = "; formerly NS.INTERNIC.NET\n.  3600000  NS  A.ROOT-SERVERS.NET.\n\
                    A.ROOT-SERVERS.NET.  3600000  A  192.0.2.4 ; a\nA.ROOT-SERVERS.NET. 3600000 IN AAAA 2001:db8::4\n";
        let addresses: Vec<String> = addresses_of_hints(text).iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["192.0.2.4", "2001:db8::4"]);
    }
}
