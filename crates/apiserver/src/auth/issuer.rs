//! The settings of an identity provider, written as `key=value` pairs that commas separate.

use std::path::PathBuf;
use std::time::Duration;

use super::jwks::Source;
use super::jwt::{ALGORITHMS, IssuerSettings, LEEWAY_MAX};

/// The keys of a provider, for messages.
const KEYS: &str =
    "issuer, audience, jwks, ca, algorithm, username-claim, username-prefix, groups-claim, groups-prefix, leeway";
/// The keys whose values are paths (`jwks` unless it is a URL).
pub const PATHS: [&str; 2] = ["jwks", "ca"];
/// The default tolerance for a provider's clock.
const LEEWAY: Duration = Duration::from_secs(30);

/// The reason why a text does not describe a provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IssuerError(String);

/// Reads one provider. `duration` reads texts such as `30s`.
///
/// # Errors
///
/// The first error in `text`.
pub fn parse(text: &str, duration: impl Fn(&str) -> Option<Duration>) -> Result<IssuerSettings, IssuerError> {
    issuer(text, duration).map_err(IssuerError)
}

fn issuer(text: &str, duration: impl Fn(&str) -> Option<Duration>) -> Result<IssuerSettings, String> {
    let (mut issuer, mut jwks, mut ca, mut leeway) = (None, None, None, LEEWAY);
    let (mut username_claim, mut username_prefix, mut groups_claim, mut groups_prefix) = (None, None, None, None);
    let (mut audiences, mut algorithms) = (Vec::new(), Vec::new());
    for pair in text.split(',') {
        let (key, value) =
            pair.split_once('=').ok_or_else(|| format!("\"{pair}\" must be KEY=VALUE; keys are {KEYS}"))?;
        let (key, value) = (key.trim(), value.trim());
        let once = match key {
            "audience" => {
                audiences.push(value.to_owned());
                continue;
            }
            "algorithm" => {
                let found = ALGORITHMS.into_iter().find(|one| format!("{one:?}") == value);
                let all = ALGORITHMS.map(|one| format!("{one:?}")).join(", ");
                algorithms.push(found.ok_or_else(|| format!("algorithm \"{value}\" must be one of {all}"))?);
                continue;
            }
            "leeway" => {
                leeway = duration(value).ok_or_else(|| format!("leeway \"{value}\" must be a duration such as 30s"))?;
                continue;
            }
            "issuer" => &mut issuer,
            "jwks" => &mut jwks,
            "ca" => &mut ca,
            "username-claim" => &mut username_claim,
            "username-prefix" => &mut username_prefix,
            "groups-claim" => &mut groups_claim,
            "groups-prefix" => &mut groups_prefix,
            _ => return Err(format!("unknown key \"{key}\"; keys are {KEYS}")),
        };
        if once.replace(value.to_owned()).is_some() {
            return Err(format!("{key} is set twice"));
        }
    }
    let given = |value: Option<String>, key: &str| {
        value.filter(|value| !value.is_empty()).ok_or_else(|| format!("{key} is missing; set {key}=VALUE"))
    };
    let issuer = given(issuer, "issuer")?;
    let keys = source(given(jwks, "jwks")?, ca)?;
    if audiences.is_empty() || audiences.iter().any(String::is_empty) {
        return Err("audience is missing; set audience=VALUE, because otherwise tokens for other audiences would be \
             accepted"
            .to_owned());
    }
    if leeway > LEEWAY_MAX {
        return Err(format!("leeway must be at most {}s", LEEWAY_MAX.as_secs()));
    }
    let default_prefix = format!("{issuer}#");
    Ok(IssuerSettings {
        keys,
        audiences,
        algorithms: if algorithms.is_empty() { ALGORITHMS.to_vec() } else { algorithms },
        username_claim: username_claim.filter(|claim| !claim.is_empty()).unwrap_or_else(|| "sub".to_owned()),
        username_prefix: username_prefix.unwrap_or_else(|| default_prefix.clone()),
        groups_claim: groups_claim.filter(|claim| !claim.is_empty()).unwrap_or_else(|| "groups".to_owned()),
        groups_prefix: groups_prefix.unwrap_or(default_prefix),
        leeway,
        issuer,
    })
}

fn source(jwks: String, ca: Option<String>) -> Result<Source, String> {
    let Some((scheme, rest)) = jwks.split_once("://") else {
        return match ca {
            None => Ok(Source::File(PathBuf::from(jwks))),
            Some(_) => Err("ca requires a jwks that is a URL".to_owned()),
        };
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let loopback = matches!(host, "127.0.0.1" | "::1" | "localhost");
    match scheme {
        _ if host.is_empty() || authority.contains('@') => Err(format!("jwks \"{jwks}\" is not a URL with a host")),
        "https" => Ok(Source::Url { url: jwks, authorities: ca.map(PathBuf::from) }),
        // An attacker on the network can replace keys that are sent over plain HTTP.
        "http" if loopback => Ok(Source::Url { url: jwks, authorities: None }),
        _ => Err(format!("jwks \"{jwks}\" must be a file or an https URL (http only on this machine)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::Algorithm;

    fn read(text: &str) -> Result<IssuerSettings, String> {
        issuer(text, |text| text.trim_end_matches('s').parse().map(Duration::from_secs).ok())
    }

    #[test]
    fn defaults_are_safe() {
        let found = read("issuer=https://idp.example,audience=signpost,jwks=https://idp.example/keys").expect("reads");
        assert_eq!(found.username_prefix, "https://idp.example#");
        assert_eq!(found.groups_prefix, "https://idp.example#");
        assert_eq!((found.username_claim.as_str(), found.groups_claim.as_str()), ("sub", "groups"));
        assert!(found.algorithms.iter().all(|one| one.family() != jsonwebtoken::AlgorithmFamily::Hmac));
    }

    #[test]
    fn all_keys() {
        let found = read(
            "issuer=i,audience=a,audience=b,jwks=/etc/keys.json,algorithm=ES256,algorithm=EdDSA,username-claim=email,\
             username-prefix=,groups-claim=roles,groups-prefix=signpost:,leeway=5s",
        )
        .expect("reads");
        assert_eq!(found.audiences, ["a", "b"]);
        assert_eq!(found.keys, Source::File("/etc/keys.json".into()));
        assert_eq!(found.algorithms, [Algorithm::ES256, Algorithm::EdDSA]);
        assert_eq!((found.username_prefix.as_str(), found.groups_prefix.as_str()), ("", "signpost:"));
        assert_eq!(found.leeway, Duration::from_secs(5));
    }

    #[test]
    fn faults_say_what_is_wrong() {
        for (text, part) in [
            ("", "must be KEY=VALUE"),
            ("issuer=i,audience=a", "jwks is missing"),
            ("audience=a,jwks=k", "issuer is missing"),
            ("issuer=i,jwks=k", "audience is missing"),
            ("issuer=i,issuer=j,audience=a,jwks=k", "issuer is set twice"),
            ("issuer=i,audience=a,jwks=k,algorithm=HS256", "must be one of RS256"),
            ("issuer=i,audience=a,jwks=k,algorithm=none", "must be one of RS256"),
            ("issuer=i,audience=a,jwks=http://idp.example/keys", "https URL"),
            ("issuer=i,audience=a,jwks=ftp://idp.example/keys", "https URL"),
            ("issuer=i,audience=a,jwks=https:///keys", "not a URL"),
            ("issuer=i,audience=a,jwks=http://127.0.0.1@idp.example/", "not a URL"),
            ("issuer=i,audience=a,jwks=k,ca=c", "ca requires a jwks that is a URL"),
            ("issuer=i,audience=a,jwks=k,leeway=301s", "at most 300s"),
            ("issuer=i,audience=a,jwks=k,colour=red", "unknown key \"colour\""),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(read("issuer=i,audience=a,jwks=http://127.0.0.1:8080/keys").is_ok());
        assert!(read("issuer=i,audience=a,jwks=http://[::1]:8080/keys").is_ok());
    }
}
