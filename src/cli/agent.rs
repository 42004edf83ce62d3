//! `signpost agent`: runs next to a proxy on an instance of a Router.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use ipnet::IpNet;

use super::{Error, Exit, Outcome, directory, file, option, serve, switch};
use crate::config;
use crate::daemon::router_agent::{self, ProxyKind, RouterAgent};
use signpost_agent::lease::Instance;
use signpost_agent::proxy::isolation::Isolation;
use signpost_agent::resolve::{self, Limits, Refused};
use signpost_agent::{render, run as agent};
use signpost_dns::nameserver::prefix::Prefix;

/// The keys of the configuration that the agent shares with `signpost serve`.
const KEYS: &[&str] =
    &["kubeconfig", "api-server", "data-dir", "admin.listen", "api.read-timeout", "log.level", "log.format"];

pub(super) fn command() -> Command {
    let seconds =
        |name, default: &'static str| option(name, "SECONDS").value_parser(value_parser!(u64)).default_value(default);
    let port = |name, default: &'static str| {
        option(name, "PORT").value_parser(value_parser!(u16).range(1..)).default_value(default)
    };
    let address = |name| option(name, "IP").value_parser(value_parser!(IpAddr));
    Command::new("agent")
        .about("Run the agent of a Router's instance: it configures HAProxy or nginx for the Router's Routes")
        .after_help(
            "The agent starts the proxy, and keeps its files in <data-dir>/agent-<router>. It needs a kubeconfig of a user with \
             the role router-agent; in a pod without one, it uses the service account. While the API is unreachable, it serves \
             the last-known-good state. SIGTERM and SIGINT stop it: it waits until DNS does not return its address any more, \
             lets connections finish, and stops the proxy; a second signal skips the wait for DNS. A killed agent leaves the \
             proxy running, and the next one adopts it. Exit codes: 0 stopped on request, 1 startup or runtime failure, 2 \
             invalid usage.",
        )
        .arg(option("router", "NAME").required(true).help("The Router"))
        .arg(option("proxy", "PROGRAM").value_parser(["haproxy", "nginx"]).default_value("haproxy").help("The proxy"))
        .arg(address("address").help("The address at which clients reach the proxy [default: the address of the default route]"))
        .arg(address("listen").help("The address on which the proxy listens [default: the address in --address]"))
        .arg(port("http-port", "80").help("The port for HTTP"))
        .arg(port("https-port", "443").help("The port for HTTPS"))
        .arg(directory(option("certificates", "DIR")).help(
            "The directory with certificates, each with chain and private key in PEM: HOST.pem, and _wildcard.DOMAIN.pem for \
             *.DOMAIN; changed files are reloaded",
        ))
        .arg(file(option("upstream-ca", "FILE")).help(
            "Certificate authorities in PEM that verify applications of Routes with TLS termination reencrypt [default: not \
             verified]",
        ))
        .args(client_arguments())
        .args(endpoint_arguments())
        .args(isolation_arguments())
        .arg(
            option("name-server", "ADDR")
                .value_parser(value_parser!(SocketAddr))
                .action(ArgAction::Append)
                .help("A name server of the Router's zone, as IP:PORT (repeats) [default: found through /etc/resolv.conf]"),
        )
        .arg(option("traffic-port", "PORT").value_parser(value_parser!(u16)).help(
            "The port at which the dashboard reads the traffic of Routes, at the address in --listen, over TLS and with a token \
             that is in the Lease; 0: any free port [default: 0 if that is a loopback address, otherwise none]",
        ))
        .arg(seconds("leave-timeout", "300").help("The longest wait for DNS after SIGTERM"))
        .arg(seconds("drain-timeout", "60").help("The longest wait for connections to finish"))
        .args(serve::arguments_of(KEYS))
}

fn client_arguments() -> [Arg; 2] {
    [
        option("trusted-proxies", "PREFIX")
            .value_parser(value_parser!(Prefix))
            .value_delimiter(',')
            .action(ArgAction::Append)
            .help(
                "Networks of proxies in front of this one, such as 192.0.2.0/24 or 2001:db8::53 (repeats): their \
                     X-Forwarded-* headers are kept, and they have no limit of connections [default: none]",
            ),
        option("client-connections", "NUMBER")
            .value_parser(value_parser!(u32).range(1..=1_000_000))
            .default_value("1024")
            .help("The most connections of one client: an IPv4 address or an IPv6 /64"),
    ]
}

fn endpoint_arguments() -> [Arg; 6] {
    let servers = |name, default: &'static str, help: &'static str| {
        let number = value_parser!(u32).range(1..=1_000_000);
        option(name, "NUMBER").value_parser(number).default_value(default).help(help)
    };
    [
        switch("loopback-endpoints").help("Send requests also to endpoints with loopback addresses"),
        option("refused-endpoint-networks", "PREFIX")
            .value_parser(refused)
            .value_delimiter(',')
            .action(ArgAction::Append)
            .default_value("default")
            .help(
                "Networks whose addresses get no requests as endpoints (repeats); `default` means the link-local, \
                     translated and reserved networks, and the metadata services of clouds, of docs/agent.md",
            ),
        option("refused-endpoints", "ADDR")
            .value_parser(value_parser!(SocketAddr))
            .value_delimiter(',')
            .action(ArgAction::Append)
            .help(
                "Endpoints that get no requests, as IP:PORT (repeats), in addition to the listeners of the platform's \
                     Routers, such as a load balancer in front of one [default: none]",
            ),
        servers("route-servers", "200", "The most servers of a Route"),
        servers(
            "namespace-servers",
            "15000",
            "The most servers of the Routes of a namespace; the oldest Routes come first",
        ),
        servers("router-servers", "50000", "The most servers of all Routes; the oldest Routes come first"),
    ]
}

fn isolation_arguments() -> [Arg; 2] {
    [
        option("proxy-user", "NAME").help(
            "The user of the proxy's processes that serve clients, if the agent runs as root [default: a user with the \
                     name of the proxy, otherwise one without rights]",
        ),
        file(option("proxy-files", "PATH").action(ArgAction::Append)).help(
            "A file or directory that the proxy may read and execute, in addition to those of docs/agent.md, such as \
                     libraries outside /usr (repeats) [default: none]",
        ),
    ]
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let settings = config::read(&serve::places(matches))?;
    let address = matches.get_one::<IpAddr>("address").copied().map_or_else(default_address, Ok)?;
    let listen = matches.get_one::<IpAddr>("listen").copied().unwrap_or(address);
    let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
    let port = |name: &str| *matches.get_one::<u16>(name).expect("it has a default");
    let seconds = |name: &str| Duration::from_secs(*matches.get_one::<u64>(name).expect("it has a default"));
    let proxy = match matches.get_one::<String>("proxy").map(String::as_str) {
        Some("nginx") => ProxyKind::Nginx,
        _ => ProxyKind::Haproxy,
    };
    let instance = Instance {
        router: matches.get_one::<String>("router").cloned().expect("clap demands it"),
        address,
        http_port: port("http-port"),
        https_port: port("https-port"),
        proxy: proxy.word(),
        traffic: None,
    };
    let (http, https) = (SocketAddr::new(listen, instance.http_port), SocketAddr::new(listen, instance.https_port));
    let at = |address: &SocketAddr| (address.ip().to_canonical(), address.port());
    let servers = |name: &str| *matches.get_one::<u32>(name).expect("it has a default") as usize;
    let agent = RouterAgent {
        proxy,
        rendering: render::Settings {
            http: vec![http],
            https: vec![https],
            public_https_port: instance.https_port,
            upstream_authorities: path("upstream-ca"),
            trusted_proxies: matches
                .get_many("trusted-proxies")
                .unwrap_or_default()
                .map(|prefix: &Prefix| prefix.0)
                .collect(),
            client_connections_max: *matches.get_one("client-connections").expect("it has a default"),
            ..render::Settings::default()
        },
        isolation: Isolation {
            user: matches.get_one::<String>("proxy-user").cloned(),
            readable: matches.get_many("proxy-files").unwrap_or_default().cloned().collect(),
        },
        running: agent::Settings {
            directory: settings.data_dir.join(format!("agent-{}", instance.router)),
            instance,
            http,
            certificates: path("certificates"),
            // Clients reach it there, also if it listens on another address.
            listeners: vec![http, https, SocketAddr::new(address, http.port()), SocketAddr::new(address, https.port())],
            refused: Refused {
                loopback: matches.get_flag("loopback-endpoints"),
                networks: matches
                    .get_many::<Vec<IpNet>>("refused-endpoint-networks")
                    .into_iter()
                    .flatten()
                    .flatten()
                    .copied()
                    .collect(),
                listeners: matches.get_many("refused-endpoints").unwrap_or_default().map(at).collect(),
            },
            limits: Limits {
                route: servers("route-servers"),
                namespace: servers("namespace-servers"),
                router: servers("router-servers"),
            },
            drain: seconds("drain-timeout"),
        },
        name_servers: matches.get_many("name-server").unwrap_or_default().copied().collect(),
        leave_timeout: seconds("leave-timeout"),
        traffic: matches
            .get_one::<u16>("traffic-port")
            .copied()
            .or(listen.is_loopback().then_some(0))
            .map(|port| SocketAddr::new(listen, port)),
        settings,
    };
    router_agent::run(agent).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(Exit::Success)
}

/// Parses a network of `--refused-endpoint-networks`.
fn refused(text: &str) -> Result<Vec<IpNet>, String> {
    match text {
        "default" => Ok(resolve::networks()),
        text => text.parse().map(|prefix: Prefix| vec![prefix.0]).map_err(|error| error.to_string()),
    }
}

/// Returns the address from which this machine sends to others. Nothing is sent.
fn default_address() -> Result<IpAddr, Error> {
    let address = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:53")?;
        socket.local_addr()
    };
    address()
        .map(|address| address.ip())
        .map_err(|error| Error::Usage(format!("there is no default route ({error}); set --address")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigSources;

    /// Each option of the agents of managed instances is one that the agent has, with the value of the configuration.
    #[test]
    fn managed_instances_have_the_settings_of_the_platform() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("signpost.toml");
        let text = "[routers]\ntrusted-proxies = [\"192.0.2.0/24\", \"2001:db8::1\"]\nclient-connections = 7\n\
                    refused-endpoint-networks = [\"default\", \"198.51.100.0/24\"]\nrefused-endpoints = [\"203.0.113.1:80\"]\n\
                    route-servers = 8\nnamespace-servers = 9\nrouter-servers = 10\nproxy-user = \"proxies\"\n\
                    proxy-files = [\"/opt/haproxy\"]\n\
                    [api]\nlisten = [\"192.0.2.53:6443\"]\n[dns]\nlisten = [\"127.0.0.1:0\"]\n";
        std::fs::write(&file, text).expect("written");
        let settings = config::read(&ConfigSources { config: Some(file), ..ConfigSources::default() }).expect("valid");
        let (common, opt) = (["agent", "--router", "shard1"].map(str::to_owned), PathBuf::from("/opt/haproxy"));
        let parse = |options: Vec<String>| command().try_get_matches_from(common.iter().cloned().chain(options));
        for (options, refused, user) in [
            (settings.agent_options(), vec!["203.0.113.1:80"], None),
            (
                settings.local_agent_options(),
                vec!["203.0.113.1:80", "192.0.2.53:6443", "127.0.0.1:9453"],
                Some("proxies"),
            ),
        ] {
            let matches = parse(options).expect("the agent has these options");
            let number = |name: &str| *matches.get_one::<u32>(name).expect("it has a value");
            let servers = ["client-connections", "route-servers", "namespace-servers", "router-servers"].map(number);
            assert_eq!(servers, [7, 8, 9, 10]);
            let proxies: Vec<IpNet> =
                matches.get_many("trusted-proxies").unwrap_or_default().map(|prefix: &Prefix| prefix.0).collect();
            assert_eq!(proxies.iter().map(IpNet::to_string).collect::<Vec<_>>(), ["192.0.2.0/24", "2001:db8::1/128"]);
            let networks = matches.get_many::<Vec<IpNet>>("refused-endpoint-networks").into_iter().flatten().flatten();
            assert_eq!(networks.count(), resolve::networks().len() + 1);
            let endpoints = matches.get_many::<SocketAddr>("refused-endpoints").unwrap_or_default();
            assert_eq!(endpoints.map(SocketAddr::to_string).collect::<Vec<_>>(), refused);
            assert_eq!(matches.get_one::<String>("proxy-user").map(String::as_str), user);
            let files = matches.get_many::<PathBuf>("proxy-files").unwrap_or_default();
            assert_eq!(files.collect::<Vec<_>>(), user.map(|_| &opt).into_iter().collect::<Vec<_>>());
        }
        // Without settings, an agent of another version gets no option that it may not have.
        let plain = config::read(&ConfigSources::default()).expect("valid");
        assert_eq!(plain.agent_options(), Vec::<String>::new());
    }
}
