//! What one value may be: a function a shape, which answers what was expected instead.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{
    CookieMode, DNS_PORT, LogClients, LogFormat, NameServer, Resolver, Role, SecretName, VerifyServer, layers, strategy,
};
use signpost_api::names;
use signpost_apiserver::{audit, limits};
use signpost_dns::nameserver::cookie::{Secret, SecretError};
use signpost_dns::nameserver::settings::NSID_OCTETS_MAX;
use signpost_dns::zone::counter_slots::NUMBERS_MAX;
use signpost_runtime::telemetry::Format;

/// Longest `api-silence`: what a mirror takes for the death of its watch in any case.
const API_SILENCE_MAX: Duration = Duration::from_secs(150);

/// Longest `lame-duck`: whoever waits longer for a process to end has forgotten it.
const LAME_DUCK_MAX: Duration = Duration::from_secs(600);

pub(super) fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.word() == text);
    found.ok_or_else(|| "must be one of api, scheduler, dns, admin".to_owned())
}

pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}

pub(super) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "must be ADDR:PORT with an IP address, such as 127.0.0.1:5300 or [::1]:5300".to_owned())
}

pub(super) fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 0..=256) => Ok(count),
        _ => Err("must be a number from 0 to 256".to_owned()),
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// A time that a connection may take; none at all would refuse every client.
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be a second at least".to_owned()),
        duration => Ok(duration),
    }
}

pub(super) fn api_silence(text: &str) -> Result<Duration, String> {
    let silence = duration(text)?;
    let range = Duration::from_secs(1)..=API_SILENCE_MAX;
    if range.contains(&silence) { Ok(silence) } else { Err("must be from 1s to 150s".to_owned()) }
}

pub(super) fn lame_duck(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time > LAME_DUCK_MAX { Err("must be 10m at most".to_owned()) } else { Ok(time) }
}

/// A whole number within `range`.
pub(super) fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a number from {} to {}", range.start(), range.end()))
}

/// A size in bytes.
pub(super) fn size(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let told = |size: u64| match size {
        size if size > 0 && size % (1 << 30) == 0 => format!("{}Gi", size >> 30),
        size if size > 0 && size % (1 << 10) == 0 => format!("{}Ki", size >> 10),
        size => size.to_string(),
    };
    limits::parse_size(text).filter(|size| range.contains(size)).ok_or_else(|| {
        let (least, most) = (told(*range.start()), told(*range.end()));
        format!("must be a number of bytes, or of Ki, Mi or Gi of them, from {least} to {most}")
    })
}

pub(super) fn cookie_mode(text: &str) -> Result<CookieMode, String> {
    match text {
        "off" => Ok(CookieMode::Off),
        "on" => Ok(CookieMode::On),
        "require" => Ok(CookieMode::Require),
        _ => Err("must be on, off or require".to_owned()),
    }
}

pub(super) fn cookie_secret(text: &str) -> Result<Secret, String> {
    text.parse().map_err(|error: SecretError| error.to_string())
}

pub(super) fn limit_mode(text: &str) -> Result<bool, String> {
    match text {
        "enforce" => Ok(true),
        "watch" => Ok(false),
        _ => Err("must be enforce or watch".to_owned()),
    }
}

pub(super) fn one_in(text: &str) -> Result<Option<NonZeroU32>, String> {
    match text.parse() {
        Ok(every) => Ok(NonZeroU32::new(every)),
        Err(_) => Err(format!("must be a number from 0 to {}", u32::MAX)),
    }
}

pub(super) fn query_log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err("must be json or text".to_owned()),
    }
}

pub(super) fn query_log_clients(text: &str) -> Result<LogClients, String> {
    match text {
        "full" => Ok(LogClients::Full),
        "network" => Ok(LogClients::Network),
        "none" => Ok(LogClients::None),
        _ => Err("must be full, network or none".to_owned()),
    }
}

pub(super) fn metrics_zones(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(zones @ 0..=NUMBERS_MAX) => Ok(zones),
        _ => Err(format!("must be a number from 0 to {NUMBERS_MAX}")),
    }
}

/// The platform's domain.
pub(super) fn zone_name(text: &str) -> Result<String, String> {
    let name = domain_name(text)?;
    names::check_zone(&name).map_err(|error| error.to_string())?;
    Ok(name)
}

pub(super) fn domain_name(text: &str) -> Result<String, String> {
    let plain = text.strip_suffix('.').unwrap_or(text);
    names::check_domain(plain).map_err(|error| error.to_string())?;
    Ok(plain.to_ascii_lowercase())
}

/// A whole number and its unit: `s`, `m`, `h` or `d`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "must be a whole number and s, m, h or d, such as 5s or 30d".to_owned();
    let split = text.len().saturating_sub(1);
    let (number, unit) = text.split_at_checked(split).ok_or_else(expected)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    let number: u32 = number.parse().map_err(|_| expected())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

/// What a name server tells of itself.
pub(super) fn server_text(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("must not be empty".to_owned()),
        length if length > NSID_OCTETS_MAX => Err(format!("must be no more than {NSID_OCTETS_MAX} octets")),
        _ => Ok(text.to_owned()),
    }
}

pub(super) fn api_name(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() { Ok(text.to_owned()) } else { domain_name(text) }
}

pub(super) fn label(text: &str) -> Result<String, String> {
    match names::is_host_label(text) {
        true => Ok(text.to_ascii_lowercase()),
        false => {
            Err("must be one label of a host name: at most 63 letters, digits and inner dashes, no dots".to_owned())
        }
    }
}

pub(super) fn name_server(text: &str, domain: &str) -> Result<NameServer, String> {
    let (name, list) = text.split_once('=').unwrap_or((text, ""));
    let name = domain_name(name)?;
    let address = |text: &str| match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(format!("{address} is no address that anyone can ask")),
        Ok(address) => Ok(address),
        Err(_) => Err(format!("must be NAME=ADDR[,ADDR] with IP addresses; \"{text}\" is none")),
    };
    let addresses: Vec<IpAddr> =
        layers::split(list, &[',']).iter().map(|text| address(text)).collect::<Result<_, _>>()?;
    if addresses.is_empty() && !domain.is_empty() && names::is_at_or_below(&name, domain) {
        return Err(format!("a name server inside {domain} needs its addresses: {name}=ADDR[,ADDR]"));
    }
    Ok(NameServer { name, addresses })
}

/// `[NAME=]ADDR[:PORT]`.
pub(super) fn verify_server(text: &str) -> Result<VerifyServer, String> {
    let (name, address) = match text.split_once('=') {
        Some((name, address)) => (Some(domain_name(name)?), address),
        None => (None, text),
    };
    let shape = "must be [NAME=]ADDR[:PORT] with an IP address, such as ns1.example.com=127.0.0.1:5301";
    let address =
        server_address(address).map_err(|error| if error == NO_ADDRESS { shape.to_owned() } else { error })?;
    Ok(VerifyServer { name, address })
}

const NO_ADDRESS: &str = "must be ADDR[:PORT] with an IP address, such as 192.0.2.53 or [2001:db8::53]:53";

/// `ADDR[:PORT]` of a server that is asked.
pub(super) fn server_address(text: &str) -> Result<SocketAddr, String> {
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let parsed: Option<SocketAddr> =
        text.parse().ok().or_else(|| plain.parse::<IpAddr>().ok().map(|address| (address, DNS_PORT).into()));
    match parsed {
        Some(address) if address.ip().is_unspecified() => Err(format!("{} is no address to ask", address.ip())),
        Some(address) if address.port() == 0 => Err("port 0 is no port to ask".to_owned()),
        Some(address) => Ok(address),
        None => Err(NO_ADDRESS.to_owned()),
    }
}

/// `system`, or `ADDR[:PORT]` of a resolver.
pub(super) fn resolver(text: &str) -> Result<Resolver, String> {
    match text {
        "system" => Ok(Resolver::System),
        text => server_address(text).map(Resolver::At).map_err(|error| format!("{error}, or system")),
    }
}

/// How long a Lease lasts.
pub(super) fn lease_duration(text: &str) -> Result<Duration, String> {
    let parsed = duration(text)?;
    let is_whole = parsed.subsec_nanos() == 0 && (3..=300).contains(&parsed.as_secs());
    is_whole.then_some(parsed).ok_or_else(|| "must be in whole seconds, from 3s to 5m".to_owned())
}

/// The URL that takes spans. One without a path is a collector's, where that is `/v1/traces`.
pub(super) fn trace_endpoint(text: &str) -> Result<String, String> {
    let url = strategy::url(text)?;
    let bare = url.trim_end_matches('/');
    let is_bare = bare.split_once("://").is_some_and(|(_, rest)| !rest.contains(['/', '?']));
    Ok(if is_bare { format!("{bare}/v1/traces") } else { url })
}

/// A namespace and a name of a Secret, as DNS labels and names.
pub(super) fn secret_name(text: &str) -> Result<SecretName, String> {
    let is_name = |text: &str| {
        let is_label = |label: &str| {
            let is_plain = |octet: u8| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-');
            !label.is_empty() && label.bytes().all(is_plain) && !label.starts_with('-') && !label.ends_with('-')
        };
        text.len() <= 253 && text.split('.').all(is_label)
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => {
            Ok(SecretName { namespace: namespace.to_owned(), name: name.to_owned() })
        }
        _ => Err("must be NAMESPACE/NAME, such as signpost/signpost-name-server".to_owned()),
    }
}

/// A name for people and programs to read.
pub(super) fn service(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|octet| octet.is_ascii_graphic()) && (1..=128).contains(&text.len());
    if is_plain { Ok(text.to_owned()) } else { Err("must be 1 to 128 characters of ASCII without spaces".to_owned()) }
}

pub(super) fn log_level(text: &str) -> Result<String, String> {
    match text.parse::<tracing_subscriber::EnvFilter>() {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err("must be error, warn, info, debug or trace, or directives such as info,signpost=debug".to_owned()),
    }
}

pub(super) fn audit_policy(text: &str) -> Result<Option<audit::Policy>, String> {
    match text {
        "writes" => Ok(Some(audit::Policy::Writes)),
        "all" => Ok(Some(audit::Policy::All)),
        "off" => Ok(None),
        _ => Err("must be writes, all or off".to_owned()),
    }
}

pub(super) fn log_format(text: &str) -> Result<Format, String> {
    match text {
        "human" => Ok(Format::Human),
        "json" => Ok(Format::Json),
        _ => Err("must be human or json".to_owned()),
    }
}
