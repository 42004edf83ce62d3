//! Separate processes: the API with the scheduler in one process, a name server in another, with a test's proxy between them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::{Key, Model};
use crate::observer::{Observer, Report};
use crate::platform::{NAMESPACE, Objects, alias_of, kubeconfig_to, start};
use crate::telling;
use signpost_testing::program::is_ready;
use signpost_testing::{DataDir, Ports, Scrape, Server};

/// The API read timeout of these processes (`--api-read-timeout`).
pub const SILENCE: Duration = Duration::from_secs(3);
/// The timeout as an argument.
const SILENCE_TEXT: &str = "3s";
/// After how long answers are marked as stale.
const STALE_AFTER_TEXT: &str = "1s";

/// Two processes, the written objects, and an observer.
pub struct Split {
    pub data: DataDir,
    pub state: DataDir,
    pub api_ports: Ports,
    pub api: Option<Server>,
    pub dns_ports: Ports,
    pub dns: Option<Server>,
    /// The kubeconfig of the name server.
    kubeconfig: PathBuf,
    pub objects: Objects,
    pub model: Model,
    pub observer: Observer,
    written: usize,
}

/// Returns an API with these roles and flags.
pub fn start_api(ports: Ports, data: &DataDir, roles: &str) -> Server {
    start(ports, &["--roles", roles, "--data-dir", data.path(), "--verify-names", "false"])
}

impl Split {
    /// Starts a name server that connects directly to the API.
    pub fn direct() -> Split {
        Split::with(|_, kubeconfig, _| kubeconfig.to_owned())
    }

    /// Starts a name server that connects to the URL that `between` returns for the API's address and the name server's
    /// kubeconfig. The caller keeps the second part of its result.
    pub fn through<T>(between: impl FnOnce(SocketAddr, &Path) -> (String, T)) -> (Split, T) {
        let mut kept = None;
        let split = Split::with(|api, kubeconfig, folder| {
            let (url, proxy) = between(api, kubeconfig);
            kept = Some(proxy);
            kubeconfig_to(kubeconfig, &url, folder.join("through.kubeconfig"))
        });
        (split, kept.expect("it was called"))
    }

    /// `between` gives the kubeconfig by which the name server finds the API, from the API's address, the kubeconfig that
    /// is meant for it, and a directory.
    fn with(between: impl FnOnce(SocketAddr, &Path, &Path) -> PathBuf) -> Split {
        let (data, state) = (DataDir::new(), DataDir::new());
        let (api_ports, dns_ports) = (Ports::free(), Ports::free());
        let api = start_api(api_ports, &data, "api,scheduler,admin");
        let original = data.join("name-server.kubeconfig");
        let kubeconfig = between(api_ports.api, &original, Path::new(data.path()));
        let objects = Objects::of(&data.join("kubeconfig"));
        let observer = Observer::start(dns_ports.dns);
        let mut split = Split {
            data,
            state,
            api_ports,
            api: Some(api),
            dns_ports,
            dns: None,
            kubeconfig,
            objects,
            model: Model::default(),
            observer,
            written: 0,
        };
        split.objects.found(&mut split.model, 4);
        split.start_dns();
        split.converge("at first");
        split.observer.turn_page();
        split
    }

    /// Starts the name server.
    pub fn start_dns(&mut self) {
        let kubeconfig = self.kubeconfig.to_str().expect("UTF-8");
        let own = ["--roles", "dns,admin", "--data-dir", self.state.path(), "--kubeconfig", kubeconfig];
        let patience = ["--dns-stale-after", STALE_AFTER_TEXT, "--api-read-timeout", SILENCE_TEXT];
        self.dns = Some(start(self.dns_ports, &[&own[..], &patience].concat()));
    }

    /// Starts the API and the scheduler.
    pub fn start_api(&mut self) {
        self.api = Some(start_api(self.api_ports, &self.data, "api,scheduler,admin"));
    }

    /// Makes a change of every kind: a route comes, one goes and comes back as another object, one stays and is changed,
    /// and a shard gets another address.
    pub fn change(&mut self) {
        self.written += 1;
        let number = self.written;
        self.objects.must(&mut self.model, Key::Route("r0".to_owned()), Some(format!("to-{number}")));
        self.observer.forget(&alias_of("r1"));
        self.objects.must(&mut self.model, Key::Route("r1".to_owned()), None);
        self.objects.must(&mut self.model, Key::Route("r1".to_owned()), Some(format!("again-{number}")));
        // Written after r1: a name server that answers for this one has seen r1 deleted and re-created.
        self.objects.must(&mut self.model, Key::Route(format!("new{number}")), Some("first".to_owned()));
        let addresses = format!("192.0.2.{},192.0.2.{}", 10 + number % 90, 110 + number % 90);
        self.objects.must(&mut self.model, Key::Router("shard1".to_owned()), Some(addresses));
    }

    /// Waits until DNS equals the objects, all acknowledged writes included; gives how long it took.
    pub fn converge(&mut self, when: &str) -> Duration {
        self.objects.check_kept(&mut self.model, when);
        let (live, took) = self.objects.check_served(&self.model, self.dns_ports.dns, when);
        self.observer.watch(live);
        took
    }

    /// Returns the observations since the last call; the name server must have answered every query meanwhile.
    pub fn steady(&self, when: &str) -> Report {
        let report = self.observer.turn_page();
        report.assert_steady(when);
        report
    }

    /// Returns the number of restarts of the name server's informers for this reason.
    pub fn restarts(&self, reason: &str) -> f64 {
        let labels = [("owner", "dns"), ("reason", reason)];
        Scrape::of(self.dns_ports.admin).sum("signpost_informer_restarts_total", &labels)
    }

    /// Returns the number of open watches of the name server, and the expected number.
    pub fn watches(&self) -> (usize, usize) {
        telling::watches(self.dns_ports.admin, "dns")
    }

    /// Returns whether the name server reports itself as possibly stale.
    pub fn is_stale(&self) -> bool {
        Scrape::of(self.dns_ports.admin).sum("signpost_dns_stale", &[]) == 1.0
    }

    /// Returns whether the name server calls itself ready.
    pub fn is_ready(&self) -> bool {
        is_ready(self.dns_ports.admin)
    }

    /// Returns a live name whose answers are marked when they may be stale.
    pub fn name(&self) -> String {
        format!("{NAMESPACE}-r0.shard1.{}", crate::platform::DOMAIN)
    }
}
