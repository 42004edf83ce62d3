//! The settings of an identity provider, written as `key=value` pairs that commas separate.

use std::path::PathBuf;
use std::time::Duration;

use super::pairs::Pairs;
use super::rule::parse_duration;
use signpost_apiserver::auth::jwks::Source;
use signpost_apiserver::auth::jwt::{ALGORITHMS, IssuerSettings, LEEWAY_MAX, SignIn};
use signpost_runtime::trust;

/// The keys of a provider.
const KEYS: [&str; 14] = [
    "issuer",
    "audience",
    "jwks",
    "ca",
    "client-id",
    "client-secret-file",
    "cli-client-id",
    "scope",
    "algorithm",
    "username-claim",
    "username-prefix",
    "groups-claim",
    "groups-prefix",
    "leeway",
];
/// The keys that can be given several times.
const REPEATED: [&str; 3] = ["audience", "scope", "algorithm"];
/// The keys whose values are paths (`jwks` unless it is a URL).
pub(super) const PATHS: [&str; 3] = ["jwks", "ca", "client-secret-file"];
/// The default tolerance for a provider's clock.
const LEEWAY: Duration = Duration::from_secs(30);

/// Reads one provider.
pub(super) fn parse(text: &str) -> Result<IssuerSettings, String> {
    let pairs = Pairs::read(text, &KEYS, &REPEATED)?;
    let required = |key: &str| pairs.filled(key).ok_or_else(|| format!("{key} is missing; set {key}=VALUE"));
    let (issuer, jwks) = (required("issuer")?, required("jwks")?);
    let sign_in = sign_in(&pairs, issuer)?;
    // A key set in a file needs no authorities, but the endpoints for the sign-in can.
    let authorities = pairs.filled("ca").filter(|_| sign_in.is_none() || jwks.contains("://"));
    let keys = source(jwks, authorities)?;
    let algorithm = |name: &str| {
        let all = ALGORITHMS.map(|one| format!("{one:?}")).join(", ");
        let found = ALGORITHMS.into_iter().find(|one| format!("{one:?}") == name);
        found.ok_or_else(|| format!("algorithm \"{name}\" must be one of {all}"))
    };
    let algorithms = pairs.values("algorithm").map(algorithm).collect::<Result<Vec<_>, _>>()?;
    let leeway = pairs.one("leeway").map_or(Ok(LEEWAY), |text| {
        parse_duration(text).map_err(|_| format!("leeway \"{text}\" must be a duration such as 30s"))
    })?;
    if leeway > LEEWAY_MAX {
        return Err(format!("leeway must be at most {}s", LEEWAY_MAX.as_secs()));
    }
    let default_prefix = format!("{issuer}#");
    Ok(IssuerSettings {
        keys,
        audiences: audiences(&pairs, sign_in.as_ref())?,
        algorithms: if algorithms.is_empty() { ALGORITHMS.to_vec() } else { algorithms },
        username_claim: pairs.filled("username-claim").unwrap_or("sub").to_owned(),
        username_prefix: pairs.one("username-prefix").unwrap_or(&default_prefix).to_owned(),
        groups_claim: pairs.filled("groups-claim").unwrap_or("groups").to_owned(),
        groups_prefix: pairs.one("groups-prefix").unwrap_or(&default_prefix).to_owned(),
        leeway,
        sign_in,
        issuer: issuer.to_owned(),
    })
}

/// Returns the accepted audiences; by default, the clients with which users sign in: an ID token is made for its client.
fn audiences(pairs: &Pairs<'_>, sign_in: Option<&SignIn>) -> Result<Vec<String>, String> {
    let mut audiences: Vec<String> = pairs.values("audience").map(str::to_owned).collect();
    for (key, client) in
        sign_in.into_iter().flat_map(|one| [("client-id", &one.client_id), ("cli-client-id", &one.cli_client_id)])
    {
        match pairs.one("audience") {
            Some(_) if !audiences.contains(client) => {
                return Err(format!("{key} \"{client}\" must be among the values of audience, or set no audience"));
            }
            None if !audiences.contains(client) => audiences.push(client.clone()),
            _ => {}
        }
    }
    if audiences.is_empty() || audiences.iter().any(String::is_empty) {
        return Err("audience is missing; set audience=VALUE, because otherwise tokens for other audiences would be \
             accepted"
            .to_owned());
    }
    Ok(audiences)
}

fn sign_in(pairs: &Pairs<'_>, issuer: &str) -> Result<Option<SignIn>, String> {
    let Some(client_id) = pairs.filled("client-id") else {
        let mut keys = ["client-secret-file", "cli-client-id", "scope", "client-id"].into_iter();
        let other = keys.find(|key| pairs.one(key).is_some());
        return other.map_or(Ok(None), |key| Err(format!("{key} requires client-id=VALUE")));
    };
    if !trust::is_for_credentials(issuer) {
        return Err(format!("issuer \"{issuer}\" must be an https URL for client-id (http only on this machine)"));
    }
    let scopes: Vec<String> = pairs.values("scope").map(str::to_owned).collect();
    if let Some(bad) = scopes.iter().find(|scope| scope.is_empty() || scope.contains(char::is_whitespace)) {
        return Err(format!("scope \"{bad}\" must be one word; repeat scope for several"));
    }
    Ok(Some(SignIn {
        client_id: client_id.to_owned(),
        cli_client_id: pairs.filled("cli-client-id").unwrap_or(client_id).to_owned(),
        secret_file: pairs.filled("client-secret-file").map(PathBuf::from),
        scopes,
        authorities: pairs.filled("ca").map(PathBuf::from),
    }))
}

fn source(jwks: &str, ca: Option<&str>) -> Result<Source, String> {
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
        "https" => Ok(Source::Url { url: jwks.to_owned(), authorities: ca.map(PathBuf::from) }),
        // An attacker on the network can replace keys that are sent over plain HTTP.
        "http" if loopback => Ok(Source::Url { url: jwks.to_owned(), authorities: None }),
        _ => Err(format!("jwks \"{jwks}\" must be a file or an https URL (http only on this machine)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algorithms(found: &IssuerSettings) -> Vec<String> {
        found.algorithms.iter().map(|one| format!("{one:?}")).collect()
    }

    #[test]
    fn defaults_are_safe() {
        let found = parse("issuer=https://idp.example,audience=signpost,jwks=https://idp.example/keys").expect("reads");
        assert_eq!(found.username_prefix, "https://idp.example#");
        assert_eq!(found.groups_prefix, "https://idp.example#");
        assert_eq!((found.username_claim.as_str(), found.groups_claim.as_str()), ("sub", "groups"));
        assert!(algorithms(&found).iter().all(|one| !one.starts_with("HS")));
    }

    #[test]
    fn all_keys() {
        let found = parse(
            "issuer=i,audience=a,audience=b,jwks=/etc/keys.json,algorithm=ES256,algorithm=EdDSA,username-claim=email,\
             username-prefix=,groups-claim=roles,groups-prefix=signpost:,leeway=5s",
        )
        .expect("reads");
        assert_eq!(found.audiences, ["a", "b"]);
        assert_eq!(found.keys, Source::File("/etc/keys.json".into()));
        assert_eq!(algorithms(&found), ["ES256", "EdDSA"]);
        assert_eq!((found.username_prefix.as_str(), found.groups_prefix.as_str()), ("", "signpost:"));
        assert_eq!(found.leeway, Duration::from_secs(5));
    }

    #[test]
    fn clients_for_the_sign_in_are_the_audiences() {
        let found = parse("issuer=https://idp.example,jwks=k,client-id=web,cli-client-id=cli,scope=a,scope=b,ca=c");
        let found = found.expect("reads");
        assert_eq!(found.audiences, ["web", "cli"]);
        let expected = SignIn {
            client_id: "web".to_owned(),
            secret_file: None,
            cli_client_id: "cli".to_owned(),
            scopes: vec!["a".to_owned(), "b".to_owned()],
            authorities: Some("c".into()),
        };
        assert_eq!(found.sign_in, Some(expected));
        let found = parse("issuer=http://127.0.0.1:1,audience=a,audience=b,jwks=k,client-id=b,client-secret-file=f");
        let found = found.expect("reads");
        assert_eq!(found.audiences, ["a", "b"]);
        let sign_in = found.sign_in.expect("a client is set");
        assert_eq!((sign_in.cli_client_id.as_str(), sign_in.secret_file), ("b", Some("f".into())));
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
            ("issuer=i,jwks=k,client-id=c", "must be an https URL for client-id"),
            ("issuer=http://idp.example,jwks=k,client-id=c", "must be an https URL for client-id"),
            ("issuer=i,audience=a,jwks=k,client-id=", "client-id requires"),
            ("issuer=i,audience=a,jwks=k,scope=openid", "scope requires client-id"),
            ("issuer=i,audience=a,jwks=k,client-secret-file=f", "client-secret-file requires client-id"),
            ("issuer=https://i,audience=a,jwks=k,client-id=c", "client-id \"c\" must be among"),
            ("issuer=https://i,audience=c,jwks=k,client-id=c,cli-client-id=d", "cli-client-id \"d\" must be among"),
            ("issuer=https://i,jwks=k,client-id=c,scope=a b", "must be one word"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse("issuer=i,audience=a,jwks=http://127.0.0.1:8080/keys").is_ok());
        assert!(parse("issuer=i,audience=a,jwks=http://[::1]:8080/keys").is_ok());
    }
}
