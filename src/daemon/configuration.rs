//! The configuration in the form that `serve` uses: the settings that [`config::load`] reads, and the platform that they define.
//!
//! A process that follows the API's objects needs a domain. There is no default, because names under another party's domain are
//! useless. Only [`demo`] has one.

use std::net::SocketAddr;
use std::path::Path;

use super::{demo, dns};
use crate::config::{self, ConfigSources, Error, Errors, Role, Settings};
use signpost_types::names::is_at_or_below;

/// Domains of examples: of Signpost's own pages, and those that RFC 2606 and RFC 6761 reserve.
const EXAMPLES: [&str; 7] = [demo::DOMAIN, "example.com", "example.org", "example.net", "example", "test", "invalid"];

/// The error without a domain. Beginners see it first.
const NO_DOMAIN: &str = "\"domain\" is not set: set --domain NAME, run \"signpost init\" to write a configuration file, or run \
                         \"signpost serve --demo\" to try the example platform";

/// Reads the settings and completes them, so that a process which starts with them has a platform.
///
/// # Errors
///
/// All faults of the configuration.
pub fn load(places: &ConfigSources) -> Result<Settings, Errors> {
    let mut settings = config::load(places)?;
    let fault = |text: String| Err(Errors(vec![Error::new(text)]));
    if places.is_demo {
        if !settings.has(Role::Api) {
            return fault("--demo requires the role api: add it to \"roles\", or remove --demo".to_owned());
        }
        if settings.domain.is_empty() {
            settings.domain = demo::DOMAIN.to_owned();
        } else if settings.domain != demo::DOMAIN {
            let (domain, own) = (&settings.domain, demo::DOMAIN);
            return fault(format!("\"domain\" is \"{domain}\", but --demo has the domain {own}: remove one of them"));
        }
    }
    if !settings.has_platform() {
        return Ok(settings);
    }
    if settings.domain.is_empty() {
        return fault(NO_DOMAIN.to_owned());
    }
    let listened: &[SocketAddr] = &settings.dns.listen;
    match dns::platform_settings(&settings, listened) {
        Ok(_) => Ok(settings),
        Err(error) => fault(error.to_string()),
    }
}

/// Finds valid settings that cannot work: missing files and directories, which end a start.
pub fn missing(settings: &Settings) -> Vec<String> {
    let mut missing = Vec::new();
    let mut need = |key: &str, path: &Path, is_there: bool, what: &str| {
        if !is_there {
            missing.push(format!("\"{key}\" is \"{}\": no such {what}", path.display()));
        }
    };
    let parent_is_there = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.is_dir(),
        _ => true,
    };
    if let Some(zones) = settings.zones.as_deref().filter(|_| settings.has(Role::Dns)) {
        need("zones", zones, zones.is_dir(), "directory");
    }
    for path in &settings.manifests {
        need("manifests", path, path.exists(), "file or directory");
    }
    let files = [
        ("kubeconfig", settings.kubeconfig.as_deref()),
        ("api.tls-certificate", settings.api.tls_certificate.as_deref()),
        ("api.tls-key", settings.api.tls_key.as_deref()),
        ("api.tls-ca", settings.api.tls_ca.as_deref()),
        ("webhook.ca", settings.webhook.ca.as_deref()),
        ("admin.tls-certificate", settings.admin.tls_certificate.as_deref()),
        ("admin.tls-key", settings.admin.tls_key.as_deref()),
    ];
    for (key, path) in files.into_iter().filter_map(|(key, path)| Some((key, path?))) {
        need(key, path, path.is_file(), "file");
    }
    let logs = [
        (
            "audit.log",
            settings.audit.log.as_deref().filter(|_| settings.audit.policy.is_some() && settings.has(Role::Api)),
        ),
        ("query-log.file", settings.query_log.file.as_deref().filter(|_| settings.query_log.sample > 0)),
    ];
    for (key, path) in logs.into_iter().filter_map(|(key, path)| Some((key, path?))) {
        need(key, path, parent_is_there(path), "directory to write the file to");
    }
    missing
}

/// Returns warnings about valid settings.
pub fn warnings(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    let domain = &settings.domain;
    if !domain.is_empty() && EXAMPLES.iter().any(|example| is_at_or_below(domain, example)) {
        warnings.push(format!(
            "\"domain\" is \"{domain}\", a domain reserved for examples, which cannot be delegated; set your own"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEYS;
    use crate::config::layers::from_flag;
    use crate::config::reader::Layer;

    fn load_with(flags: &[(&'static str, &str)]) -> Result<Settings, String> {
        load_as(false, flags)
    }

    fn load_as(is_demo: bool, flags: &[(&'static str, &str)]) -> Result<Settings, String> {
        let given = |(flag, value): &(&'static str, &str)| {
            let key = KEYS.iter().find(|key| key.flag == *flag).expect("a flag");
            (key.path.as_str(), from_flag(key, [(*value).to_owned()].iter()))
        };
        let flags: Layer = flags.iter().map(given).collect();
        load(&ConfigSources { flags, is_demo, ..ConfigSources::default() }).map_err(|errors| errors.to_string())
    }

    #[test]
    fn only_the_demo_has_a_domain_of_its_own() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rhcloud");
        for flags in [&[][..], &[("manifests", example)]] {
            assert_eq!(load_with(flags).expect_err("there is no default"), NO_DOMAIN);
        }
        for flags in [&[][..], &[("domain", "v3.rhcloud.com")], &[("manifests", example)]] {
            assert_eq!(load_as(true, flags).expect("it is the example's").domain, "v3.rhcloud.com");
        }
        for flags in [&[("domain", "apps.signpost.dev")][..], &[("roles", "dns"), ("zones", "zones")]] {
            assert!(load_as(true, flags).expect_err("it contradicts --demo").contains("--demo"), "{flags:?}");
        }
        // Zone files alone need none.
        let files = load_with(&[("roles", "dns"), ("zones", "zones")]).expect("it needs none");
        assert_eq!(files.domain, "");
        let primary = ("dns-primary", "zone=example.org,address=192.0.2.1");
        let copies = load_with(&[("roles", "dns"), primary]).expect("nor do zones from primary servers");
        assert!(copies.domain.is_empty() && copies.needs_data_dir() && !copies.has_platform());
    }

    #[test]
    fn contradictions_are_found_before_a_start() {
        let domain = ("domain", "apps.signpost.dev");
        let twice = [domain, ("nameserver", "ns1.signpost.dev=192.0.2.1"), ("dns-listen", "0.0.0.0:53")];
        assert!(load_with(&twice).is_ok());
        let error = load_with(&[domain, ("dns-listen", "0.0.0.0:53")]).expect_err("its name server cannot be found");
        assert!(error.contains("needs an address"), "{error}");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("m").display().to_string();
        let settings = load_with(&[domain, ("manifests", &path)]).expect("the domain is given");
        assert_eq!(missing(&settings), [format!("\"manifests\" is \"{path}\": no such file or directory")]);
        assert!(warnings(&settings).is_empty());
        let settings = load_with(&[("domain", "apps.example.com")]).expect("it is valid");
        assert!(warnings(&settings)[0].contains("a domain reserved for examples"));
    }
}
