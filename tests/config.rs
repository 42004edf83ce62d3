//! Configuration as an operator meets it: what wins, what is refused, and where the fault is said to be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use signpost::config::keys::{KEYS, Shape};
use signpost::config::{self, CookieMode, Places, Role, layers, reference};
use signpost_apiserver::auth::jwks::Source;
use signpost_control::scheduler::chooser::Chooser;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_dns::nameserver::rrl::RateLimit;

/// Loads a file's text with variables and flags; all faults as one text.
fn load(file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<config::Settings, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signpost.toml");
    std::fs::write(&path, file).expect("writes");
    let flag = |(name, value): &(&'static str, &str)| {
        let source = layers::Source::Flag(format!("--{name}"));
        (*name, layers::Given { values: vec![(*value).to_owned()], source })
    };
    let places = Places {
        config: Some(path),
        flags: flags.iter().map(flag).collect(),
        environment: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    let prefix = format!("{}/", folder.path().display());
    config::load(&places).map_err(|errors| errors.to_string().replace(&prefix, ""))
}

#[test]
fn an_empty_file_gives_loopback_defaults() {
    let settings = load("", &[], &[]).expect("loads");
    assert_eq!(settings.roles, Role::ALL);
    let all = settings.dns_listen.iter().chain(&settings.api_listen).chain(&settings.admin_listen);
    assert!(all.into_iter().all(|address| address.ip().is_loopback() && address.port() > 1023));
    assert_eq!(settings.domain, "");
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let file = "domain = \"file.example\"\ndns-workers = 1\nlog-level = \"warn\"";
    let variables = [("SIGNPOST_DOMAIN", "variable.example"), ("SIGNPOST_DNS_WORKERS", "2")];
    let settings = load(file, &variables, &[("domain", "Flag.Example.")]).expect("loads");
    assert_eq!((settings.domain.as_str(), settings.dns_workers), ("flag.example", 2));
    assert_eq!(settings.log_level, "warn");
}

#[test]
fn lists_in_each_place() {
    let file = "nameserver = [\"ns1.v3.rhcloud.com=192.0.2.1,2001:db8::1\", \"ns.elsewhere.example\"]\nroles = [\"dns\", \"api\"]";
    let settings = load(file, &[], &[]).expect("loads");
    assert_eq!(settings.nameservers[0].addresses.len(), 2);
    assert_eq!(settings.nameservers[1].name, "ns.elsewhere.example");
    assert_eq!(settings.roles, [Role::Api, Role::Dns]);
    let variables = [
        ("SIGNPOST_NAMESERVER", "a.v3.rhcloud.com=192.0.2.1,192.0.2.2 b.v3.rhcloud.com=192.0.2.3"),
        ("SIGNPOST_MANIFESTS", "one:two"),
        ("SIGNPOST_DNS_LISTEN", "127.0.0.1:1,127.0.0.1:2"),
    ];
    let settings = load("", &variables, &[]).expect("loads");
    assert_eq!(settings.nameservers.len(), 2);
    assert_eq!(settings.manifests, [PathBuf::from("one"), PathBuf::from("two")]);
    assert_eq!(settings.dns_listen.len(), 2);
}

#[test]
fn paths_in_the_file_are_beside_it() {
    let settings = load("zones = \"zones\"\ndata-dir = \"/var/lib/signpost\"", &[], &[]).expect("loads");
    assert_eq!(settings.data_dir, Path::new("/var/lib/signpost"));
    assert!(settings.zones.expect("was given").is_absolute());
}

const FIVE_SECRETS: &str = "00000000000000000000000000000001 00000000000000000000000000000002 \
                            00000000000000000000000000000003 00000000000000000000000000000004 \
                            00000000000000000000000000000005";

#[test]
fn faults_say_where_and_what() {
    for (file, variables, flags, expected) in [
        (
            "dns_listen = []",
            &[][..],
            &[][..],
            &["signpost.toml:1:1: unknown key \"dns_listen\"; did you mean \"dns-listen\"?"][..],
        ),
        (
            "a = 1\n\n  b = 2",
            &[],
            &[],
            &["signpost.toml:1:1: unknown key \"a\"", "signpost.toml:3:3: unknown key \"b\""],
        ),
        ("domain = 7", &[], &[], &["signpost.toml:1:10: \"domain\" must be a string, found integer"]),
        ("roles = [\"api\", 7]", &[], &[], &["signpost.toml:1:17: \"roles\" must be an array of strings"]),
        ("domain = \"a\"\ndomain = \"b\"", &[], &[], &["signpost.toml:2:1: duplicate key"]),
        ("domain = ", &[], &[], &["signpost.toml:1:"]),
        ("[dns]\nlisten = 1", &[], &[], &["signpost.toml:1:2: unknown key \"dns\""]),
        (
            "roles = [\"dsn\"]",
            &[],
            &[],
            &["signpost.toml:1:9: \"roles\" is \"dsn\": must be one of api, scheduler, dns, admin"],
        ),
        (
            "",
            &[("SIGNPOST_DNS_LISTEN", "localhost:53")],
            &[],
            &["environment variable SIGNPOST_DNS_LISTEN: \"dns-listen\" is \"localhost:53\": must be ADDR:PORT"],
        ),
        (
            "",
            &[],
            &[("dns-workers", "many")],
            &["flag --dns-workers: \"dns-workers\" is \"many\": must be a number from 0 to 256"],
        ),
        ("", &[], &[("nameserver", "ns1.v3.rhcloud.com"), ("domain", "v3.rhcloud.com")], &["needs its addresses"]),
        ("", &[], &[("nameserver", "ns1.v3.rhcloud.com=0.0.0.0")], &["no address that anyone can ask"]),
        ("", &[], &[("nameserver", "ns1.v3.rhcloud.com=ns2")], &["must be NAME=ADDR[,ADDR]"]),
        ("", &[], &[("verify-server", "ns1.example")], &["must be [NAME=]ADDR[:PORT] with an IP address"]),
        ("", &[], &[("verify-server", "ns1.example=0.0.0.0:53")], &["0.0.0.0 is no address to ask"]),
        ("", &[], &[("verify-server", "127.0.0.1:0")], &["port 0 is no port to ask"]),
        ("", &[], &[("verify-server", "a..b=127.0.0.1")], &["\"verify-server\" is \"a..b=127.0.0.1\""]),
        ("", &[], &[("verify-resolver", "localhost")], &["must be ADDR[:PORT] with an IP address"]),
        ("", &[], &[("verify-hosts", "yes")], &["\"verify-hosts\" is \"yes\": must be on or off"]),
        ("verify-interval = \"0s\"", &[], &[], &["\"verify-interval\" is \"0s\": must be a second at least"]),
        ("domain = \"*.example\"", &[], &[], &["signpost.toml:1:10: \"domain\" is \"*.example\""]),
        ("dns-listen = []", &[], &[], &["signpost.toml:1:14: \"dns-listen\" is \"\": give at least one"]),
        ("api-listen = [\"127.0.0.1:9\", \"127.0.0.1:9\"]", &[], &[], &["the address is given twice"]),
        ("log-level = \"loud=quiet\"", &[], &[], &["\"log-level\" is \"loud=quiet\": must be error"]),
        ("strategy = \"best\"", &[], &[], &["\"strategy\" is \"best\": there is no strategy \"best\""]),
        ("strategy = \"webhook\"", &[], &[], &["\"strategy\" is \"webhook\": give \"webhook-url\" as well"]),
        (
            "",
            &[],
            &[("webhook-url", "placer.example")],
            &["\"webhook-url\" is \"placer.example\": must be an https or http"],
        ),
        (
            "webhook-url = \"http://placer.example/\"",
            &[],
            &[],
            &["plain http to another machine", "\"webhook-allow-http\""],
        ),
        ("webhook-timeout = \"0s\"", &[], &[], &["\"webhook-timeout\" is \"0s\": must be a second at least"]),
        ("webhook-fallback = \"webhook\"", &[], &[], &["there is no strategy \"webhook\""]),
        ("dns-udp-payload = 511", &[], &[], &["\"dns-udp-payload\" is \"511\": must be a number from 512 to 4096"]),
        ("", &[], &[("dns-udp-payload", "4097")], &["must be a number from 512 to 4096"]),
        ("server-version = \"\"", &[], &[], &["\"server-version\" is \"\": must not be empty"]),
        ("dns-cookies = \"maybe\"", &[], &[], &["\"dns-cookies\" is \"maybe\": must be on, off or require"]),
        (
            "dns-cookie-secret = [\"5ec2e7\"]",
            &[],
            &[],
            &["signpost.toml:1:21: \"dns-cookie-secret\" is \"(not shown)\": must be 32 hexadecimal digits"],
        ),
        (
            "",
            &[("SIGNPOST_DNS_COOKIE_SECRET", FIVE_SECRETS)],
            &[],
            &["\"dns-cookie-secret\" is \"(not shown)\": there may be 4 at most"],
        ),
        ("name-server-secret = \"n/A\"", &[], &[], &["must be NAMESPACE/NAME"]),
        ("dns-rate-limit = -1", &[], &[], &["\"dns-rate-limit\" is \"-1\": must be a number from 0 to 1000000"]),
        ("dns-rate-limit-mode = \"dry\"", &[], &[], &["must be enforce or watch"]),
        ("dns-rate-limit-window = 0", &[], &[], &["must be a number from 1 to 3600"]),
        ("dns-rate-limit-slip = 1001", &[], &[], &["must be a number from 0 to 1000"]),
        ("dns-rate-limit-ipv4-prefix = 33", &[], &[], &["must be a number from 1 to 32"]),
        ("dns-rate-limit-ipv6-prefix = 129", &[], &[], &["must be a number from 1 to 128"]),
        ("", &[], &[("dns-rate-limit-exempt", "192.0.2.1/24")], &["the range begins at 192.0.2.0"]),
        (
            "name-quarantine = \"30\"",
            &[],
            &[],
            &["\"name-quarantine\" is \"30\": must be a whole number and s, m, h or d"],
        ),
        ("name-quarantine = \"é\"", &[], &[], &["must be a whole number"]),
        ("name-quarantine-max = 0", &[], &[], &["must be a number from 1 to 1000000"]),
        ("", &[], &[("roles", "scheduler")], &["the role scheduler needs an API: give --kubeconfig"]),
        ("", &[], &[("roles", "dns")], &["nothing to serve: give --zones"]),
        ("kubeconfig = \"k\"", &[], &[], &["leave out one of the two"]),
        (
            "roles = [\"dns\"]\nzones = \"z\"\nmanifests = [\"m\"]",
            &[],
            &[],
            &["\"manifests\" are applied by the process with the role api"],
        ),
        ("roles = []", &[], &[], &["\"roles\" is empty"]),
        ("api-tls-certificate = \"c\"", &[], &[], &["\"api-tls-key\" go together: give both, or neither"]),
        ("admin-tls-key = \"k\"", &[], &[], &["\"admin-tls-key\" go together: give both, or neither"]),
        (
            "admin-tls = \"off\"\nadmin-tls-certificate = \"c\"\nadmin-tls-key = \"k\"",
            &[],
            &[],
            &["\"admin-tls\" is off, and \"admin-tls-certificate\" is given"],
        ),
        (
            "roles = [\"dns\", \"admin\"]\nzones = \"z\"\nadmin-tls = \"on\"",
            &[],
            &[],
            &["keeps no certificate of its own: give \"admin-tls-certificate\""],
        ),
        ("audit = \"some\"", &[], &[], &["\"audit\" is \"some\": must be writes, all or off"]),
        ("audit-log-files = 0", &[], &[], &["must be a number from 1 to 1000"]),
        ("jwt-issuer = 7", &[], &[], &["signpost.toml:1:14: \"jwt-issuer\" must be an array of tables"]),
        ("[[jwt-issuer]]\nissuer = \"i\"", &[], &[], &["jwks lacks"]),
        ("[[jwt-issuer]]\nissuer = 7", &[], &[], &["signpost.toml:2:10: \"jwt-issuer\" must be strings"]),
        ("[[jwt-issuer]]\nissuer = \"a,b\"", &[], &[], &["signpost.toml:2:10: \"jwt-issuer\" must be without commas"]),
        (
            "",
            &[("SIGNPOST_JWT_ISSUER", "issuer=i,audience=a,jwks=k issuer=i,audience=b,jwks=k")],
            &[],
            &["the issuer i is given twice"],
        ),
    ] {
        let error = load(file, variables, flags).expect_err(file);
        for part in expected {
            assert!(error.contains(part), "{file:?}:\n{error}\nlacks\n{part}");
        }
    }
}

#[test]
fn cookies_and_rate_limit() {
    let settings = load("", &[], &[]).expect("loads");
    assert_eq!((settings.dns_cookies, settings.dns_cookie_secrets.len()), (CookieMode::On, 0));
    assert_eq!((&settings.dns_rate_limit, settings.dns_rate_limit.per_second), (&RateLimit::default(), 0), "off");
    // What the table of keys says is the default is.
    let told: String = KEYS
        .iter()
        .filter(|key| key.name.starts_with("dns-rate-limit") && key.name != "dns-rate-limit-exempt")
        .map(|key| match key.shape {
            Shape::Count => format!("{} = {}\n", key.name, key.default),
            _ => format!("{} = \"{}\"\n", key.name, key.default),
        })
        .collect();
    assert_eq!(told.lines().count(), 6, "{told}");
    assert_eq!(load(&told, &[], &[]).expect("loads").dns_rate_limit, RateLimit::default(), "{told}");
    let secrets = "00112233445566778899aabbccddeeff,e5e973e5a6b2a43f48e7dc849e37bfcf";
    let file = "dns-cookies = \"require\"\ndns-rate-limit = 100\ndns-rate-limit-slip = 2\ndns-rate-limit-mode = \"watch\"\n\
                dns-rate-limit-exempt = [\"192.0.2.0/24\", \"2001:db8::53\"]";
    let settings = load(file, &[("SIGNPOST_DNS_COOKIE_SECRET", secrets)], &[]).expect("loads");
    assert_eq!((settings.dns_cookies, settings.dns_cookie_secrets.len()), (CookieMode::Require, 2));
    assert!(!format!("{settings:?}").contains("0x22"), "secrets are not printed");
    let limit = &settings.dns_rate_limit;
    assert_eq!((limit.per_second, limit.slip, limit.enforced, limit.exempt.len()), (100, 2, false, 2));
    let (now, restart) = config::changed::keys(&load("", &[], &[]).expect("loads"), &settings);
    let all = ["dns-cookies", "dns-cookie-secret", "dns-rate-limit", "dns-rate-limit-mode", "dns-rate-limit-slip"];
    assert_eq!(now, [&all[..], &["dns-rate-limit-exempt"]].concat());
    assert!(restart.is_empty());
}

#[test]
fn what_a_name_server_tells_of_itself() {
    let before = load("", &[], &[]).expect("loads");
    assert_eq!((&before.server_id, &before.server_version, before.dns_udp_payload), (&None, &None, 1232));
    let file = "server-id = \"ns1\"\nserver-version = \"one\"\ndns-udp-payload = 4096";
    let after = load(file, &[], &[]).expect("loads");
    assert_eq!((after.server_version.as_deref(), after.dns_udp_payload), (Some("one"), 4096));
    let (now, restart) = config::changed::keys(&before, &after);
    assert_eq!((now, restart), (vec!["server-id", "server-version", "dns-udp-payload"], vec![]));
}

#[test]
fn servers_to_verify_have_port_53_unless_they_say_so() {
    let text = "192.0.2.1,ns2.example=127.0.0.1:5302,[2001:db8::1],2001:db8::2,ns5.example.=[2001:db8::3]:5305";
    let settings = load("", &[("SIGNPOST_VERIFY_SERVER", text)], &[]).expect("loads");
    let told: Vec<String> =
        settings.verify.servers.iter().map(|server| format!("{:?} {}", server.name, server.address)).collect();
    assert_eq!(
        told,
        [
            "None 192.0.2.1:53",
            "Some(\"ns2.example\") 127.0.0.1:5302",
            "None [2001:db8::1]:53",
            "None [2001:db8::2]:53",
            "Some(\"ns5.example\") [2001:db8::3]:5305",
        ]
    );
    let many: Vec<String> = (0..33).map(|number| format!("127.0.0.{number}")).collect();
    assert!(
        load("", &[("SIGNPOST_VERIFY_SERVER", &many.join(","))], &[]).expect_err("too many").contains("32 at most")
    );
}

#[test]
fn what_chooses_routers_reloads() {
    let old = load("", &[], &[]).expect("loads");
    assert_eq!(old.chooser(), Chooser::Strategy(StrategyName::RoundRobin));
    let file = "strategy = \"webhook\"\nwebhook-url = \"https://placer.example/\"\nwebhook-ca = \"ca.pem\"";
    let new = load(file, &[("SIGNPOST_WEBHOOK_TIMEOUT", "5s")], &[("webhook-fallback", "weighted")]).expect("loads");
    let Chooser::Webhook(webhook) = new.chooser() else { panic!("{:?}", new.chooser()) };
    assert_eq!((webhook.url.as_str(), webhook.timeout), ("https://placer.example/", Duration::from_secs(5)));
    assert_eq!(webhook.fallback, StrategyName::Weighted);
    assert!(webhook.authorities.is_some_and(|path| path.is_absolute()), "it stands beside the file");
    let all = ["strategy", "webhook-url", "webhook-timeout", "webhook-ca", "webhook-fallback"];
    assert_eq!(config::changed::keys(&old, &new), (all.to_vec(), vec![]));
}

#[test]
fn a_missing_file_is_named() {
    let places = Places { config: Some(PathBuf::from("/nowhere/signpost.toml")), ..Places::default() };
    let error = config::load(&places).expect_err("there is none").to_string();
    assert!(error.starts_with("/nowhere/signpost.toml: cannot read"), "{error}");
}

#[test]
fn serving_zone_files_alone_needs_no_data_directory() {
    let settings = load("roles = [\"dns\", \"admin\"]\nzones = \"zones\"", &[], &[]).expect("loads");
    assert!(!settings.needs_data_dir() && !settings.dns_follows_api());
}

#[test]
fn a_reload_knows_what_it_can_change() {
    let old = load("", &[], &[]).expect("loads");
    let new = load("log-level = \"debug\"\ndomain = \"other.example\"", &[], &[]).expect("loads");
    let (now, restart) = config::changed::keys(&old, &new);
    assert_eq!(now, ["log-level"]);
    assert_eq!(restart, ["domain"]);
}

#[test]
fn variables_that_look_like_ours_are_pointed_out() {
    let variables: Vec<(String, String)> = ["SIGNPOST_DNS_LISTN", "SIGNPOST_SERVICE_HOST", "SIGNPOST_DOMAIN", "PATH"]
        .map(|name| (name.to_owned(), "x".to_owned()))
        .to_vec();
    let unknown = layers::unknown_variables(&variables);
    assert_eq!(unknown, [("SIGNPOST_DNS_LISTN".to_owned(), Some("SIGNPOST_DNS_LISTEN".to_owned()))]);
}

#[test]
fn the_reference_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let found = std::fs::read_to_string(path).expect("docs/configuration.md is there");
    let message = "docs/configuration.md is out of date; write the output of `signpost check config --reference` there";
    assert!(found == reference::page(), "{message}");
}

#[test]
fn identity_providers_are_tables_or_texts() {
    let table = "[[jwt-issuer]]\nissuer = \"https://idp.example\"\naudience = [\"a\", \"b\"]\njwks = \"keys.json\"\n\
                 groups-prefix = \"signpost:\"\nleeway = \"5s\"\n\
                 [[jwt-issuer]]\nissuer = \"i\"\naudience = \"c\"\njwks = \"https://idp.example/keys\"\n";
    let settings = load(table, &[], &[]).expect("loads");
    let [first, second] = &settings.jwt_issuers[..] else { panic!("two") };
    assert_eq!((first.issuer.as_str(), first.audiences.len()), ("https://idp.example", 2));
    assert_eq!(first.groups_prefix, "signpost:");
    assert_eq!(first.leeway, Duration::from_secs(5));
    // Files stand beside the configuration's.
    assert!(matches!(&first.keys, Source::File(path) if path.is_absolute()), "{:?}", first.keys);
    assert!(matches!(&second.keys, Source::Url { url, .. } if url == "https://idp.example/keys"));
    let text = "issuer=i,audience=a,jwks=keys.json";
    let settings = load("", &[], &[("jwt-issuer", text)]).expect("loads");
    assert_eq!(settings.jwt_issuers[0].keys, Source::File("keys.json".into()));
}
