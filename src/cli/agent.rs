//! `signpost agent`: runs next to a proxy on an instance of a Router.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{ArgMatches, Args, Command, FromArgMatches as _, ValueHint, value_parser};
use ipnet::IpNet;

use super::{Error, Exit, Outcome, serve};
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

/// The arguments that only the agent has. Their texts are the help.
#[derive(Debug, Args)]
#[group(skip)]
struct AgentArgs {
    /// The Router
    #[arg(long, value_name = "NAME")]
    router: String,
    /// The proxy
    #[arg(long, value_name = "PROGRAM", value_parser = ["haproxy", "nginx"], default_value = "haproxy")]
    proxy: String,
    /// The address at which clients reach the proxy [default: the address of the default route]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// The address on which the proxy listens [default: the address in --address]
    #[arg(long, value_name = "IP")]
    listen: Option<IpAddr>,
    /// The port for HTTP
    #[arg(long, value_name = "PORT", value_parser = value_parser!(u16).range(1..), default_value = "80")]
    http_port: u16,
    /// The port for HTTPS
    #[arg(long, value_name = "PORT", value_parser = value_parser!(u16).range(1..), default_value = "443")]
    https_port: u16,
    /// The directory with certificates, each with chain and private key in PEM: HOST.pem, and _wildcard.DOMAIN.pem for
    /// *.DOMAIN; changed files are reloaded
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    certificates: Option<PathBuf>,
    /// Certificate authorities in PEM that verify applications of Routes with TLS termination reencrypt [default: not
    /// verified]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    upstream_ca: Option<PathBuf>,
    /// Networks of proxies in front of this one, such as 192.0.2.0/24 or 2001:db8::53 (repeats): their X-Forwarded-*
    /// headers are kept, and they have no limit of connections [default: none]
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    trusted_proxies: Vec<Prefix>,
    /// The most connections of one client: an IPv4 address or an IPv6 /64
    #[arg(long, value_name = "NUMBER", value_parser = number(), default_value = "1024")]
    client_connections: u32,
    /// Send requests also to endpoints with loopback addresses
    #[arg(long)]
    loopback_endpoints: bool,
    /// Networks whose addresses get no requests as endpoints (repeats); `default` means the link-local, translated and
    /// reserved networks, and the metadata services of clouds, of docs/agent.md
    #[arg(long, value_name = "PREFIX", value_parser = refused, value_delimiter = ',', default_value = "default")]
    refused_endpoint_networks: Vec<Networks>,
    /// Endpoints that get no requests, as IP:PORT (repeats), in addition to the listeners of the platform's Routers,
    /// such as a load balancer in front of one [default: none]
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    refused_endpoints: Vec<SocketAddr>,
    /// The most servers of a Route
    #[arg(long, value_name = "NUMBER", value_parser = number(), default_value = "200")]
    route_servers: u32,
    /// The most servers of the Routes of a namespace; the oldest Routes come first
    #[arg(long, value_name = "NUMBER", value_parser = number(), default_value = "15000")]
    namespace_servers: u32,
    /// The most servers of all Routes; the oldest Routes come first
    #[arg(long, value_name = "NUMBER", value_parser = number(), default_value = "50000")]
    router_servers: u32,
    /// The user of the proxy's processes that serve clients, if the agent runs as root [default: a user with the name
    /// of the proxy, otherwise one without rights]
    #[arg(long, value_name = "NAME")]
    proxy_user: Option<String>,
    /// A file or directory that the proxy may read and execute, in addition to those of docs/agent.md, such as libraries
    /// outside /usr (repeats) [default: none]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    proxy_files: Vec<PathBuf>,
    /// A name server of the Router's zone, as IP:PORT (repeats) [default: found through /etc/resolv.conf]
    #[arg(long, value_name = "ADDR")]
    name_server: Vec<SocketAddr>,
    /// The port at which the dashboard reads the traffic of Routes, at the address in --listen, over TLS and with a token
    /// that is in the Lease; 0: any free port [default: 0 if that is a loopback address, otherwise none]
    #[arg(long, value_name = "PORT")]
    traffic_port: Option<u16>,
    /// The longest wait for DNS after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "300")]
    leave_timeout: u64,
    /// The longest wait for connections to finish
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    drain_timeout: u64,
}

/// The networks that one value of `--refused-endpoint-networks` means.
type Networks = Vec<IpNet>;

fn number() -> impl TypedValueParser<Value = u32> {
    value_parser!(u32).range(1..=1_000_000)
}

pub(super) fn command() -> Command {
    AgentArgs::augment_args(Command::new("agent"))
        .about("Run the agent of a Router's instance: it configures HAProxy or nginx for the Router's Routes")
        .after_help(
            "The agent starts the proxy, and keeps its files in <data-dir>/agent-<router>. It needs a kubeconfig of a user with \
             the role router-agent; in a pod without one, it uses the service account. While the API is unreachable, it serves \
             the last-known-good state. SIGTERM and SIGINT stop it: it waits until DNS does not return its address any more, \
             lets connections finish, and stops the proxy; a second signal skips the wait for DNS. A killed agent leaves the \
             proxy running, and the next one adopts it. Exit codes: 0 stopped on request, 1 startup or runtime failure, 2 \
             invalid usage.",
        )
        .args(serve::arguments_of(KEYS))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let settings = config::read(&serve::places(matches))?;
    let args = AgentArgs::from_arg_matches(matches).expect("clap has checked the arguments");
    let address = args.address.map_or_else(default_address, Ok)?;
    let listen = args.listen.unwrap_or(address);
    let proxy = if args.proxy == "nginx" { ProxyKind::Nginx } else { ProxyKind::Haproxy };
    let instance = Instance {
        router: args.router,
        address,
        http_port: args.http_port,
        https_port: args.https_port,
        proxy: proxy.word(),
        traffic: None,
    };
    let (http, https) = (SocketAddr::new(listen, instance.http_port), SocketAddr::new(listen, instance.https_port));
    let at = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    let traffic_port = args.traffic_port.or(listen.is_loopback().then_some(0));
    // Clients reach the proxy at the address, also if it listens on another one. What the agent itself offers is not for Routes.
    let mut listeners =
        vec![http, https, SocketAddr::new(address, http.port()), SocketAddr::new(address, https.port())];
    listeners.extend(&settings.admin.listen);
    listeners.extend(args.traffic_port.map(|port| SocketAddr::new(listen, port)));
    let agent = RouterAgent {
        proxy,
        rendering: render::Settings {
            http: vec![http],
            https: vec![https],
            public_https_port: instance.https_port,
            upstream_authorities: args.upstream_ca,
            trusted_proxies: args.trusted_proxies.iter().map(|prefix| prefix.0).collect(),
            client_connections_max: args.client_connections,
            ..render::Settings::default()
        },
        isolation: Isolation { user: args.proxy_user, readable: args.proxy_files },
        running: agent::Settings {
            directory: settings.data_dir.join(format!("agent-{}", instance.router)),
            instance,
            http,
            certificates: args.certificates,
            listeners,
            refused: Refused {
                loopback: args.loopback_endpoints,
                networks: args.refused_endpoint_networks.into_iter().flatten().collect(),
                listeners: args.refused_endpoints.into_iter().map(at).collect(),
            },
            limits: Limits {
                route: args.route_servers as usize,
                namespace: args.namespace_servers as usize,
                router: args.router_servers as usize,
            },
            drain: Duration::from_secs(args.drain_timeout),
        },
        name_servers: args.name_server,
        leave_timeout: Duration::from_secs(args.leave_timeout),
        traffic: traffic_port.map(|port| SocketAddr::new(listen, port)),
        settings,
    };
    router_agent::run(agent).map_err(|error| Error::Failed(error.to_string()))?;
    Ok(Exit::Success)
}

/// Parses a network of `--refused-endpoint-networks`.
fn refused(text: &str) -> Result<Networks, String> {
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
            let args = AgentArgs::from_arg_matches(&matches).expect("these are its arguments");
            let servers = [args.client_connections, args.route_servers, args.namespace_servers, args.router_servers];
            assert_eq!(servers, [7, 8, 9, 10]);
            let proxies: Vec<IpNet> = args.trusted_proxies.iter().map(|prefix| prefix.0).collect();
            assert_eq!(proxies.iter().map(IpNet::to_string).collect::<Vec<_>>(), ["192.0.2.0/24", "2001:db8::1/128"]);
            assert_eq!(args.refused_endpoint_networks.concat().len(), resolve::networks().len() + 1);
            let endpoints = args.refused_endpoints.iter();
            assert_eq!(endpoints.map(SocketAddr::to_string).collect::<Vec<_>>(), refused);
            assert_eq!(args.proxy_user.as_deref(), user);
            assert_eq!(args.proxy_files.iter().collect::<Vec<_>>(), user.map(|_| &opt).into_iter().collect::<Vec<_>>());
        }
        // Without settings, an agent of another version gets no option that it may not have.
        let plain = config::read(&ConfigSources::default()).expect("valid");
        assert_eq!(plain.agent_options(), Vec::<String>::new());
    }
}
