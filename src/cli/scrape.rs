//! The numbers of running processes: `/metrics` and `/readyz` of their admin endpoints.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches};
use serde::de::DeserializeOwned;

use super::access::cause;
use super::{Error, file, option, serve};
use crate::admin::exposition::{MetricSample, samples};
use crate::config::{self, AdminTls};
use crate::daemon::scheduling::reachable;
use signpost_runtime::trust;

/// The time limit of one response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer in octets: a page with a hundred thousand series.
const PAGE_OCTETS_MAX: usize = 32 * 1024 * 1024;

/// The keys for the admin endpoint of a process.
const KEYS: &[&str] = &["admin.listen", "admin.tls"];

/// `--admin` and `--admin-ca`, and the flags of the keys that replace them. The command also has `--config` and
/// `--data-dir`.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    let authorities = file(option("admin-ca", "FILE"))
        .help("The CA certificates in PEM to trust for an --admin URL over HTTPS [default: the system's certificates]");
    let admin = option("admin", "URL")
        .action(ArgAction::Append)
        .value_parser(ValueParser::new(|text: &str| {
            let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
            match rest {
                Some(rest) if !rest.is_empty() => Ok(text.trim_end_matches('/').to_owned()),
                _ => Err("must be a URL, such as http://127.0.0.1:9453"),
            }
        }))
        .help("The URL of the admin endpoint of a process (repeats) [default: from admin.listen]");
    [admin, authorities].into_iter().chain(serve::flags_of(KEYS))
}

pub(super) struct Target {
    pub(super) urls: Vec<String>,
    /// The file of authorities to trust, or `None` for the system's authorities.
    pub(super) authorities: Option<PathBuf>,
}

/// Returns what `--admin` and `--admin-ca` name; without them the endpoint of the server with the same configuration.
pub(super) fn target(matches: &ArgMatches) -> Result<Target, Error> {
    let authorities = matches.get_one::<PathBuf>("admin-ca").cloned();
    if let Some(urls) = matches.get_many::<String>("admin") {
        return Ok(Target { urls: urls.cloned().collect(), authorities });
    }
    let settings = config::read(&serve::places(matches))?;
    let listened = settings.admin.listen.first().copied().expect("there is one at least");
    let address = SocketAddr::new(reachable(listened.ip()), listened.port());
    let scheme = if settings.admin_tls() == AdminTls::Off { "http" } else { "https" };
    // The authority that has signed the server's own certificate, where it can be read.
    let own = || {
        let files = ["pki/ca.crt", "admin-pki/ca.crt"].map(|file| settings.data_dir.join(file));
        files.into_iter().find(|file| std::fs::File::open(file).is_ok())
    };
    let authorities = if settings.admin_tls() == AdminTls::On { authorities.or_else(own) } else { authorities };
    Ok(Target { urls: vec![format!("{scheme}://{address}")], authorities })
}

/// A client of admin endpoints, which goes where it is sent and nowhere else.
#[derive(Clone)]
pub(super) struct Admin(reqwest::Client);

impl Admin {
    /// Returns a client, which over HTTPS trusts the `authorities` of a file, or the system's. It sends nothing yet.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Admin, String> {
        let client = trust::client(authorities).map_err(|error| format!("{error} (--admin-ca)"))?;
        client.timeout(TIMEOUT).build().map(Admin).map_err(|error| error.to_string())
    }

    /// Returns the metrics of the process at `url`, with the time of the request.
    pub(super) async fn scrape(&self, url: &str) -> Result<Scrape, String> {
        let asked = Instant::now();
        let (status, text) = self.get(url, "/metrics").await?;
        if status != 200 {
            return Err(format!("{url}/metrics returned {status}"));
        }
        Ok(Scrape { at: asked, samples: samples(&text).collect() })
    }

    /// Returns whether the process at `url` is ready, and the line of each thing that it needs.
    pub(super) async fn ready(&self, url: &str) -> Result<(bool, Vec<String>), String> {
        let (status, text) = self.get(url, "/readyz").await?;
        if status != 200 && status != 503 {
            return Err(format!("{url}/readyz returned {status}"));
        }
        Ok((status == 200, text.lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect()))
    }

    /// Returns the report at a path of the first of these processes that has one; otherwise the reason of the last one.
    pub(super) async fn report<T: DeserializeOwned>(&self, urls: &[String], path: &str) -> Result<T, String> {
        let mut report = Err(String::new());
        for url in urls {
            report = match self.get(url, path).await {
                Ok((200, text)) => parsed(url, &text),
                Ok((status, text)) => Err(format!("{url}{path} returned {status}: {}", text.trim())),
                Err(error) => Err(error),
            };
            if report.is_ok() {
                break;
            }
        }
        report
    }

    /// Returns a one-time link to the dashboard of the process at `url` for the user with this token, and the user's name.
    pub(super) async fn sign_in_link(&self, url: &str, token: &str) -> Result<SignInLink, String> {
        let body = serde_json::json!({"token": token}).to_string();
        let request = self.0.post(format!("{url}/dashboard/session/link")).header("content-type", "application/json");
        let (status, text) = self.send(request.body(body), url, "/dashboard/session/link").await?;
        match status {
            200 => parsed(url, &text),
            status => {
                let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
                let why = answer["message"].as_str().map_or_else(|| text.trim().to_owned(), str::to_owned);
                Err(format!("{url} rejected the sign-in with status {status}: {why}"))
            }
        }
    }

    async fn get(&self, url: &str, path: &str) -> Result<(u16, String), String> {
        self.send(self.0.get(format!("{url}{path}")), url, path).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, url: &str, path: &str) -> Result<(u16, String), String> {
        let failure = |error: reqwest::Error| {
            let is_late = error.is_timeout();
            let why = if is_late { "timed out".to_owned() } else { cause(&error.without_url()) };
            format!("{url} does not answer: {why} (--admin)")
        };
        let mut response = request.send().await.map_err(failure)?;
        let mut octets = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failure)? {
            if octets.len() + chunk.len() > PAGE_OCTETS_MAX {
                return Err(format!("{url}{path} is longer than {PAGE_OCTETS_MAX} bytes"));
            }
            octets.extend_from_slice(&chunk);
        }
        let (status, text) = (response.status(), String::from_utf8_lossy(&octets).into_owned());
        // The host in the URL is not a name of the endpoint: its response contains the setting that allows it.
        if status == reqwest::StatusCode::MISDIRECTED_REQUEST {
            return Err(format!("{url} rejected the host name: {}", text.trim()));
        }
        Ok((status.as_u16(), text))
    }
}

fn parsed<T: DeserializeOwned>(url: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{url}: invalid response: {error}"))
}

/// The answer to a request for a sign-in link.
#[derive(Debug, serde::Deserialize)]
pub(super) struct SignInLink {
    pub(super) code: String,
    pub(super) user: String,
}

/// The numbers of a process at one moment.
#[derive(Debug, Clone)]
pub(super) struct Scrape {
    /// The time of the request.
    pub(super) at: Instant,
    samples: Vec<MetricSample>,
}

impl Scrape {
    /// Numbers from their text, for tests.
    #[cfg(test)]
    pub(super) fn of_text(at: Instant, text: &str) -> Scrape {
        Scrape { at, samples: samples(text).collect() }
    }

    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a MetricSample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    /// Returns the sum of the samples of this name; `None` if there is none.
    pub(super) fn sum(&self, name: &str) -> Option<f64> {
        let mut samples = self.of(name).peekable();
        samples.peek()?;
        Some(samples.map(|sample| sample.value).sum())
    }

    /// Returns the sums of the samples of this name, by one label.
    pub(super) fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.of(name) {
            if let Some(value) = sample.labels.get(label) {
                *sums.entry(value.clone()).or_insert(0.0) += sample.value;
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format() {
        let text = "# HELP a Some.\n# TYPE a counter\na_total{x=\"1\",y=\"q\\\"u\\\\o,t}e\"} 3\na_total{x=\"1\"} 1e1\n\
                    a_total{x=\"2\"} 4 1700000000\nb 0.5\nc{} NaN\nnonsense\nd{x=\"unclosed 1\n";
        let scrape = Scrape::of_text(Instant::now(), text);
        assert_eq!(scrape.samples.len(), 5);
        assert_eq!(scrape.samples[0].labels["y"], "q\"u\\o,t}e");
        assert_eq!(scrape.sum("a_total"), Some(17.0));
        assert_eq!(scrape.by("a_total", "x"), BTreeMap::from([("1".into(), 13.0), ("2".into(), 4.0)]));
        assert_eq!((scrape.sum("b"), scrape.sum("absent")), (Some(0.5), None));
    }
}
