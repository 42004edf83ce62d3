//! The settings that a Route requests from the proxy of its Router, and those that it gets. Pure.
//!
//! [`Requested::of`] is the one reader of `spec.traffic` and of the annotations of OpenShift's Routes that mean the same; agents, which
//! configure the proxies, and the control plane, which reports settings that are not honored, both use it.
//! [`Requested::within`] applies the maxima of a Router, and [`Requested::unhonored`] lists those settings.
//!
//! All texts have types of their own, which also hold after they are read from a file: their characters have no meaning in the
//! configuration of a proxy.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::{IpNet, Ipv4Net};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::v1alpha1::route::{RouteSpec, Termination};
use crate::v1alpha1::router::RouterKind;
use crate::v1alpha1::traffic::{Hsts, NETWORKS_MAX, ProxyProtocol, StickySessions, Traffic, TrafficMaxima};

/// The default of `requestTimeoutSeconds`, in milliseconds.
pub const REQUEST_TIMEOUT_MS: u64 = 5 * 60 * 1_000;
/// The default of `tunnelTimeoutSeconds`, in milliseconds.
pub const TUNNEL_TIMEOUT_MS: u64 = 60 * 60 * 1_000;
/// The period over which requests are counted, in seconds.
pub const RATE_SECONDS: u32 = 10;
/// The upgrade that is possible without a setting.
pub const WEBSOCKET: &str = "websocket";

/// The pattern of the name of a cookie: part of a token (RFC 6265 §4.1.1).
pub const COOKIE_NAME: &str = "^[A-Za-z0-9_-]{1,64}$";
/// The pattern of a protocol in lower case (RFC 9110 §7.8).
pub const UPGRADE: &str = "^[a-z0-9][a-z0-9._-]{0,23}(/[a-z0-9.]{1,7})?$";

const TIMEOUT: &str = "haproxy.router.openshift.io/timeout";
const TUNNEL: &str = "haproxy.router.openshift.io/timeout-tunnel";
const ALLOW: &str = "haproxy.router.openshift.io/ip_allowlist";
const FORMER_ALLOW: &str = "haproxy.router.openshift.io/ip_whitelist";
const HSTS: &str = "haproxy.router.openshift.io/hsts_header";
const NO_COOKIES: &str = "haproxy.router.openshift.io/disable_cookies";
const COOKIE: &str = "router.openshift.io/cookie_name";
const LIMITS: &str = "haproxy.router.openshift.io/rate-limit-connections";
const RATE: &str = "haproxy.router.openshift.io/rate-limit-connections.rate-http";

/// The annotations of OpenShift's Routes that are read.
pub const ANNOTATIONS: [&str; 9] = [TIMEOUT, TUNNEL, ALLOW, FORMER_ALLOW, HSTS, NO_COOKIES, COOKIE, LIMITS, RATE];

/// A setting of a Route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// `requestTimeoutSeconds`
    RequestTimeout,
    /// `tunnelTimeoutSeconds`
    TunnelTimeout,
    /// `maxRequestBodyBytes`
    Body,
    /// `stickySessions`
    Sticky,
    /// `allowedNetworks`
    Networks,
    /// `hsts`
    Hsts,
    /// `requestsPerSecond`
    Rate,
    /// `proxyProtocol`
    ProxyProtocol,
    /// `upgrades`
    Upgrades,
}

impl Setting {
    /// Returns the path of the field.
    pub fn field(self) -> &'static str {
        match self {
            Setting::RequestTimeout => "spec.traffic.requestTimeoutSeconds",
            Setting::TunnelTimeout => "spec.traffic.tunnelTimeoutSeconds",
            Setting::Body => "spec.traffic.maxRequestBodyBytes",
            Setting::Sticky => "spec.traffic.stickySessions",
            Setting::Networks => "spec.traffic.allowedNetworks",
            Setting::Hsts => "spec.traffic.hsts",
            Setting::Rate => "spec.traffic.requestsPerSecond",
            Setting::ProxyProtocol => "spec.traffic.proxyProtocol",
            Setting::Upgrades => "spec.traffic.upgrades",
        }
    }
}

/// The settings of one Route, typed. The default value is that of a Route without any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Settings {
    /// In milliseconds; `None`: that of the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_timeout_ms: Option<u64>,
    /// In milliseconds; `None`: that of the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_timeout_ms: Option<u64>,
    /// The largest body of a request, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_bytes_max: Option<u64>,
    /// Whether sessions are sticky, and the name of their cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<Sticky>,
    /// The networks of clients, in order; an empty list permits none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<Network>>,
    /// The header for browsers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Hsts>,
    /// The most requests of a client in [`RATE_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_max: Option<u32>,
    /// The header of connections to endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The possible upgrades, in order; `None`: [`WEBSOCKET`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Vec<Upgrade>>,
}

/// Sticky sessions; the cookie has a name of the proxy's choice unless there is one here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sticky {
    /// The name of the cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<CookieName>,
}

/// A text that is not what its place requires.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct Invalid {
    text: String,
    expected: &'static str,
}

/// Defines a text that has been checked, with its conversions.
macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $expected:literal, $parse:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub(crate) $inner);

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<$name, Invalid> {
                let parse: fn(&str) -> Option<$inner> = $parse;
                parse(&text).map($name).ok_or(Invalid { text, expected: $expected })
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0.to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

checked!(
    /// The name of a cookie; see [`COOKIE_NAME`].
    CookieName,
    String,
    "the name of a cookie: at most 64 letters, digits, _, and -",
    |text| IS_COOKIE_NAME.is_match(text).then(|| text.to_owned())
);
checked!(
    /// A protocol of an upgrade; see [`UPGRADE`]. Not `h2c`, with which requests would pass the router unread.
    Upgrade,
    String,
    "a protocol in lower case other than h2c",
    |text| (IS_UPGRADE.is_match(text) && text != "h2c").then(|| text.to_owned())
);
checked!(
    /// A network of addresses, without bits after its prefix. One of IPv4 addresses as a part of IPv6 (`::ffff:192.0.2.0/120`) is one of
    /// IPv4: clients have IPv4 addresses then.
    Network,
    IpNet,
    "an address or a network, such as 192.0.2.0/24",
    |text| {
        let network = text.parse::<IpNet>().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))?;
        let network = network.trunc();
        Some(as_ipv4(network).unwrap_or(network))
    }
);

/// Returns the IPv4 network that an IPv6 network consists of (RFC 4291 §2.5.5.2).
fn as_ipv4(network: IpNet) -> Option<IpNet> {
    let IpNet::V6(network) = network else { return None };
    let prefix = network.prefix_len().checked_sub(96)?;
    Ipv4Net::new(network.addr().to_ipv4_mapped()?, prefix).ok().map(IpNet::V4)
}

impl Network {
    /// Returns the network.
    pub fn net(&self) -> IpNet {
        self.0
    }
}

static IS_COOKIE_NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new(COOKIE_NAME).expect("a constant"));
static IS_UPGRADE: LazyLock<Regex> = LazyLock::new(|| Regex::new(UPGRADE).expect("a constant"));

/// The settings that a Route requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requested {
    settings: Settings,
    /// The annotations whose values are used.
    annotations: BTreeMap<Setting, &'static str>,
    /// The fields and annotations with invalid values, and what is wrong.
    invalid: Vec<(&'static str, String)>,
    termination: Option<Termination>,
}

/// A setting that a Router does not honor, or not wholly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unhonored {
    /// Why.
    pub reason: Reason,
    /// The field or annotation, and a sentence.
    pub message: String,
}

/// The reason why a setting is not honored, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The value of an annotation is invalid.
    InvalidAnnotation,
    /// The proxy cannot do it, or not wholly.
    NotSupported,
    /// The Router has a lower maximum.
    AboveMaximum,
}

impl Reason {
    /// Returns the reason of a condition.
    pub fn word(self) -> &'static str {
        match self {
            Reason::InvalidAnnotation => "InvalidAnnotation",
            Reason::NotSupported => "NotSupported",
            Reason::AboveMaximum => "AboveMaximum",
        }
    }
}

/// The Router of a Route, as far as the settings depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Provider<'a> {
    /// The name.
    pub router: &'a str,
    /// The maxima.
    pub maxima: Option<&'a TrafficMaxima>,
    /// The proxies that agents configure.
    pub proxies: &'a [RouterKind],
}

impl Requested {
    /// Reads a Route. A field wins over an annotation.
    pub fn of(spec: &RouteSpec, annotations: Option<&BTreeMap<String, String>>) -> Requested {
        let mut requested =
            Requested { termination: spec.tls.as_ref().map(|tls| tls.termination), ..Requested::default() };
        if let Some(annotations) = annotations {
            requested.read_annotations(annotations);
        }
        if let Some(traffic) = &spec.traffic {
            requested.read_fields(traffic);
        }
        requested
    }

    /// Returns whether the Route has no settings.
    pub fn is_empty(&self) -> bool {
        self.invalid.is_empty() && self.settings == Settings::default()
    }

    fn read_fields(&mut self, traffic: &Traffic) {
        let seconds = |seconds: Option<u32>| seconds.map(|seconds| u64::from(seconds.max(1)) * 1_000);
        let sticky = traffic.sticky_sessions.as_ref().map(|StickySessions { cookie_name }| {
            let cookie = cookie_name.clone().map(CookieName::try_from).transpose();
            Sticky { cookie: self.valid(Setting::Sticky.field(), cookie).flatten() }
        });
        let networks = traffic.allowed_networks.iter().map(String::as_str);
        let networks =
            (networks.len() > 0).then(|| self.networks(Setting::Networks.field(), networks.collect::<Vec<_>>()));
        let upgrades = traffic.upgrades.as_ref().map(|upgrades| {
            let upgrades = upgrades.iter().cloned().map(Upgrade::try_from);
            let mut upgrades: Vec<Upgrade> =
                upgrades.filter_map(|upgrade| self.valid(Setting::Upgrades.field(), upgrade)).collect();
            upgrades.sort();
            upgrades.dedup();
            upgrades
        });
        self.put(Setting::RequestTimeout, seconds(traffic.request_timeout_seconds), |all| &mut all.request_timeout_ms);
        self.put(Setting::TunnelTimeout, seconds(traffic.tunnel_timeout_seconds), |all| &mut all.tunnel_timeout_ms);
        let bytes = traffic.max_request_body_bytes.map(|bytes| bytes.max(1));
        self.put(Setting::Body, bytes, |all| &mut all.body_bytes_max);
        self.put(Setting::Sticky, sticky, |all| &mut all.sticky);
        self.put(Setting::Networks, networks, |all| &mut all.networks);
        self.put(Setting::Hsts, traffic.hsts.clone(), |all| &mut all.hsts);
        let rate = traffic.requests_per_second.map(|rate| rate.max(1).saturating_mul(RATE_SECONDS));
        self.put(Setting::Rate, rate, |all| &mut all.requests_max);
        self.put(Setting::ProxyProtocol, traffic.proxy_protocol, |all| &mut all.proxy_protocol);
        self.put(Setting::Upgrades, upgrades, |all| &mut all.upgrades);
    }

    /// Sets a field, if it has a value.
    fn put<T>(&mut self, setting: Setting, value: Option<T>, field: fn(&mut Settings) -> &mut Option<T>) {
        if value.is_some() {
            *field(&mut self.settings) = value;
            self.annotations.remove(&setting);
        }
    }

    fn read_annotations(&mut self, annotations: &BTreeMap<String, String>) {
        let of = |name: &'static str| annotations.get(name).map(|value| value.trim());
        for (name, setting) in [(TIMEOUT, Setting::RequestTimeout), (TUNNEL, Setting::TunnelTimeout)] {
            let Some(text) = of(name) else { continue };
            let time = milliseconds(text).ok_or_else(|| format!("{text:?} is not a time such as 30s or 5m"));
            let field: fn(&mut Settings) -> &mut Option<u64> = match setting {
                Setting::RequestTimeout => |all| &mut all.request_timeout_ms,
                _ => |all| &mut all.tunnel_timeout_ms,
            };
            self.annotate(setting, name, time, field);
        }
        // An empty one is how a list is removed.
        let list = |name| of(name).filter(|text| !text.is_empty()).map(|text| (name, text));
        if let Some((name, text)) = [ALLOW, FORMER_ALLOW].into_iter().find_map(list) {
            let networks = self.networks(name, text.split_whitespace().collect());
            self.annotate(Setting::Networks, name, Ok::<_, Invalid>(networks), |all| &mut all.networks);
        }
        if let Some(text) = of(HSTS) {
            let header = hsts(text).ok_or_else(|| format!("{text:?} is not a header such as max-age=31536000;preload"));
            self.annotate(Setting::Hsts, HSTS, header, |all| &mut all.hsts);
        }
        let no_cookies = of(NO_COOKIES).and_then(|text| self.boolean(NO_COOKIES, text));
        if let Some(text) = of(COOKIE) {
            let sticky = CookieName::try_from(text.to_owned()).map(|name| Sticky { cookie: Some(name) });
            match no_cookies {
                Some(true) => drop(self.valid(COOKIE, sticky)),
                _ => self.annotate(Setting::Sticky, COOKIE, sticky, |all| &mut all.sticky),
            }
        }
        let is_limited = of(LIMITS).and_then(|text| self.boolean(LIMITS, text));
        if let Some(text) = of(RATE) {
            let count = text.parse().ok().filter(|count: &u32| (1..=1_000_000).contains(count));
            let count = count.ok_or_else(|| format!("{text:?} is not a number from 1 to 1000000"));
            match is_limited {
                Some(true) => self.annotate(Setting::Rate, RATE, count, |all| &mut all.requests_max),
                _ => drop(self.valid(RATE, count)),
            }
        }
    }

    fn boolean(&mut self, name: &'static str, text: &str) -> Option<bool> {
        self.valid(
            name,
            text.to_ascii_lowercase().parse::<bool>().map_err(|_| format!("{text:?} is not true or false")),
        )
    }

    /// Sets a field from an annotation, if that is valid.
    fn annotate<T>(
        &mut self,
        setting: Setting,
        name: &'static str,
        value: Result<T, impl fmt::Display>,
        field: fn(&mut Settings) -> &mut Option<T>,
    ) {
        if let Some(value) = self.valid(name, value) {
            *field(&mut self.settings) = Some(value);
            self.annotations.insert(setting, name);
        }
    }

    /// Returns a valid value, or records what is wrong.
    fn valid<T>(&mut self, place: &'static str, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|error| self.invalid.push((place, error.to_string()))).ok()
    }

    /// Returns the valid networks of a list. Without any, no client is served: an error in the list never opens an application.
    fn networks(&mut self, place: &'static str, texts: Vec<&str>) -> Vec<Network> {
        if texts.len() > NETWORKS_MAX {
            self.invalid.push((place, format!("only the first {NETWORKS_MAX} networks count")));
        }
        let texts = texts.into_iter().take(NETWORKS_MAX).map(|text| Network::try_from(text.to_owned()));
        let mut networks: Vec<Network> = texts.filter_map(|network| self.valid(place, network)).collect();
        networks.sort();
        networks.dedup();
        networks
    }

    /// Returns the settings within the maxima of a Router.
    pub fn within(&self, maxima: Option<&TrafficMaxima>) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(maxima) = maxima {
            let least = |value: u64, most: Option<u64>| most.map_or(value, |most| value.min(most));
            let limits = Limits::of(maxima);
            for (value, default, most) in [
                (&mut settings.request_timeout_ms, REQUEST_TIMEOUT_MS, limits.request_timeout_ms),
                (&mut settings.tunnel_timeout_ms, TUNNEL_TIMEOUT_MS, limits.tunnel_timeout_ms),
                (&mut settings.body_bytes_max, u64::MAX, limits.body_bytes_max),
            ] {
                if most.is_some() {
                    *value = Some(least(value.unwrap_or(default), most));
                }
            }
            if let Some(most) = limits.requests_max {
                settings.requests_max = Some(settings.requests_max.map_or(most, |rate| rate.min(most)));
            }
        }
        settings
    }

    /// Returns the settings that a Router does not honor.
    pub fn unhonored(&self, provider: Provider<'_>) -> Vec<Unhonored> {
        let mut unhonored: Vec<Unhonored> = self.invalid.iter().map(invalid).collect();
        if self.settings == Settings::default() {
            return unhonored;
        }
        if provider.proxies.is_empty() {
            let message = format!("spec.traffic: no agent configures the proxies of Router {}", provider.router);
            unhonored.push(Unhonored { reason: Reason::NotSupported, message });
            return unhonored;
        }
        for setting in self.present() {
            let place = self.place(setting);
            for proxy in provider.proxies {
                if let Some(why) = self.unsupported(setting, *proxy) {
                    unhonored.push(Unhonored { reason: Reason::NotSupported, message: format!("{place}: {why}") });
                }
            }
        }
        unhonored.extend(provider.maxima.into_iter().flat_map(|maxima| self.above(maxima, provider.router)));
        unhonored.dedup();
        unhonored
    }

    /// Returns the settings that the Route has.
    fn present(&self) -> impl Iterator<Item = Setting> {
        let all = &self.settings;
        [
            (Setting::RequestTimeout, all.request_timeout_ms.is_some()),
            (Setting::TunnelTimeout, all.tunnel_timeout_ms.is_some()),
            (Setting::Body, all.body_bytes_max.is_some()),
            (Setting::Sticky, all.sticky.is_some()),
            (Setting::Networks, all.networks.is_some()),
            (Setting::Hsts, all.hsts.is_some()),
            (Setting::Rate, all.requests_max.is_some()),
            (Setting::ProxyProtocol, all.proxy_protocol.is_some()),
            (Setting::Upgrades, all.upgrades.is_some()),
        ]
        .into_iter()
        .filter(|(_, is_present)| *is_present)
        .map(|(setting, _)| setting)
    }

    /// Returns the annotation or the field of a setting.
    fn place(&self, setting: Setting) -> &'static str {
        self.annotations.get(&setting).copied().unwrap_or(setting.field())
    }

    /// Returns why a proxy does not honor a setting, or not wholly.
    fn unsupported(&self, setting: Setting, proxy: RouterKind) -> Option<&'static str> {
        let is_nginx = proxy == RouterKind::Nginx;
        let is_passthrough = self.termination == Some(Termination::Passthrough);
        match setting {
            Setting::Networks => None,
            Setting::ProxyProtocol if is_nginx && !is_passthrough => {
                Some("nginx sends the PROXY protocol only with TLS passthrough")
            }
            Setting::ProxyProtocol if is_nginx && self.settings.proxy_protocol == Some(ProxyProtocol::V2) => {
                Some("nginx sends version 1 of the PROXY protocol only, and with version 2 none")
            }
            Setting::ProxyProtocol => None,
            _ if is_passthrough => Some("the router does not see requests with TLS passthrough"),
            Setting::Hsts if self.termination.is_none() => Some("the Route has no TLS"),
            Setting::Body if !is_nginx => Some("HAProxy does not limit a body without Content-Length"),
            Setting::Sticky if is_nginx => {
                Some("nginx keeps a session at its endpoint only while the endpoints of the Route are the same")
            }
            _ => None,
        }
    }

    /// Returns the settings above a maximum.
    fn above(&self, maxima: &TrafficMaxima, router: &str) -> Vec<Unhonored> {
        let (all, limits) = (&self.settings, Limits::of(maxima));
        let rate = |rate: Option<u32>| rate.map(u64::from);
        let seconds = |ms: u64| format!("{} s", ms as f64 / 1_000.0);
        let bytes = |bytes: u64| format!("{bytes} bytes");
        let rates = |rate: u64| format!("{} requests per second", rate as f64 / f64::from(RATE_SECONDS));
        let rows: [Row<'_>; 4] = [
            (Setting::RequestTimeout, all.request_timeout_ms, limits.request_timeout_ms, &seconds),
            (Setting::TunnelTimeout, all.tunnel_timeout_ms, limits.tunnel_timeout_ms, &seconds),
            (Setting::Body, all.body_bytes_max, limits.body_bytes_max, &bytes),
            (Setting::Rate, rate(all.requests_max), rate(limits.requests_max), &rates),
        ];
        let above = rows.into_iter().filter_map(|(setting, wanted, most, text)| {
            let (wanted, most) = wanted.zip(most).filter(|(wanted, most)| wanted > most)?;
            let message = format!(
                "{}: {} is above the maximum of Router {router}, so {} applies",
                self.place(setting),
                text(wanted),
                text(most)
            );
            Some(Unhonored { reason: Reason::AboveMaximum, message })
        });
        above.collect()
    }
}

fn invalid((place, error): &(&'static str, String)) -> Unhonored {
    // The rules of the API refuse the invalid value of a field; other APIs may have other rules.
    Unhonored { reason: Reason::InvalidAnnotation, message: format!("{place}: {error}") }
}

/// A setting, its value, the maximum, and the text of a value.
type Row<'a> = (Setting, Option<u64>, Option<u64>, &'a dyn Fn(u64) -> String);

/// The maxima in the units of [`Settings`].
struct Limits {
    request_timeout_ms: Option<u64>,
    tunnel_timeout_ms: Option<u64>,
    body_bytes_max: Option<u64>,
    requests_max: Option<u32>,
}

impl Limits {
    fn of(maxima: &TrafficMaxima) -> Limits {
        let seconds = |seconds: Option<u32>| seconds.map(|seconds| u64::from(seconds.max(1)) * 1_000);
        Limits {
            request_timeout_ms: seconds(maxima.request_timeout_seconds),
            tunnel_timeout_ms: seconds(maxima.tunnel_timeout_seconds),
            body_bytes_max: maxima.max_request_body_bytes.map(|bytes| bytes.max(1)),
            requests_max: maxima.requests_per_second.map(|rate| rate.max(1).saturating_mul(RATE_SECONDS)),
        }
    }
}

/// Returns the milliseconds of a time of HAProxy, such as `30s`; a number alone has them. At least 1 ms and at most a week.
fn milliseconds(text: &str) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok().filter(|number| *number > 0)?;
    let ms = match &text[end..] {
        "us" => number.div_ceil(1_000),
        "" | "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        "d" => number.checked_mul(86_400_000)?,
        _ => return None,
    };
    (ms <= 7 * 86_400_000).then_some(ms)
}

/// Returns the values of a `Strict-Transport-Security` header (RFC 6797 §6.1).
fn hsts(text: &str) -> Option<Hsts> {
    let mut header = Hsts { max_age_seconds: 0, include_sub_domains: false, preload: false };
    let mut has_age = false;
    for directive in text.split(';').map(str::trim).filter(|directive| !directive.is_empty()) {
        let lower = directive.to_ascii_lowercase();
        match lower.split_once('=') {
            Some(("max-age", age)) if !has_age => {
                header.max_age_seconds = age.trim().trim_matches('"').parse().ok().filter(|age| *age <= 315_360_000)?;
                has_age = true;
            }
            None if lower == "includesubdomains" => header.include_sub_domains = true,
            None if lower == "preload" => header.preload = true,
            _ => return None,
        }
    }
    has_age.then_some(header)
}

#[cfg(test)]
mod tests;
