//! The configuration from the operator's view: precedence, rejected values, and the reported location of errors.

use std::path::{Path, PathBuf};
use std::time::Duration;

use signpost::config::value::CookieMode;
use signpost::config::{self, ConfigSources, KEYS, Role, layers, reference};
use signpost_api::kinds::quotas::Limits;
use signpost_apiserver::audit::log::Bounds;
use signpost_apiserver::auth::jwks::Source;
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_dns::nameserver::rrl::RateLimit;
use signpost_types::names::LabelRules;

/// Loads a file's text with variables and flags; all faults as one text.
fn load(file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<config::Settings, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signpost.toml");
    std::fs::write(&path, file).expect("writes");
    let flag = |(name, value): &(&'static str, &str)| {
        let key = KEYS.iter().find(|key| key.flag == *name).expect("a flag");
        (key.path.as_str(), layers::from_flag(key, [(*value).to_owned()].iter()))
    };
    let places = ConfigSources {
        config: Some(path),
        flags: flags.iter().map(flag).collect(),
        environment: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..ConfigSources::default()
    };
    let prefix = format!("{}/", folder.path().display());
    config::load(&places).map_err(|errors| errors.to_string().replace(&prefix, ""))
}

#[test]
fn an_empty_file_gives_loopback_defaults() {
    let settings = load("", &[], &[]).expect("loads");
    assert_eq!(settings.roles, Role::ALL);
    let all = settings.dns.listen.iter().chain(&settings.api.listen).chain(&settings.admin.listen);
    assert!(all.into_iter().all(|address| address.ip().is_loopback() && address.port() > 1023));
    assert_eq!(settings.domain, "");
}

#[test]
fn flags_win_over_variables_over_the_file() {
    let file = "domain = \"file.example\"\ndns.workers = 1\n[log]\nlevel = \"warn\"";
    let variables = [("SIGNPOST_DOMAIN", "variable.example"), ("SIGNPOST_DNS_WORKERS", "2")];
    let settings = load(file, &variables, &[("domain", "Flag.Example.")]).expect("loads");
    assert_eq!((settings.domain.as_str(), settings.dns.workers), ("flag.example", 2));
    assert_eq!(settings.log.level, "warn");
}

#[test]
fn lists_in_each_place() {
    let file = "nameserver = [\"ns1.v3.rhcloud.com=192.0.2.1,2001:db8::1\", \"ns.elsewhere.example\"]\nroles = [\"dns\", \"api\"]";
    let settings = load(file, &[], &[]).expect("loads");
    assert_eq!(settings.nameserver[0].addresses.len(), 2);
    assert_eq!(settings.nameserver[1].name, "ns.elsewhere.example");
    assert_eq!(settings.roles, [Role::Api, Role::Dns]);
    let variables = [
        ("SIGNPOST_NAMESERVER", "a.v3.rhcloud.com=192.0.2.1,192.0.2.2 b.v3.rhcloud.com=192.0.2.3"),
        ("SIGNPOST_MANIFESTS", "one:two"),
        ("SIGNPOST_DNS_LISTEN", "127.0.0.1:1,127.0.0.1:2"),
    ];
    let settings = load("", &variables, &[]).expect("loads");
    assert_eq!(settings.nameserver.len(), 2);
    assert_eq!(settings.manifests, [PathBuf::from("one"), PathBuf::from("two")]);
    assert_eq!(settings.dns.listen.len(), 2);
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
            &["signpost.toml:1:1: unknown key \"dns_listen\"; did you mean \"dns.listen\"?"][..],
        ),
        (
            "[dns]\nlistn = []",
            &[],
            &[],
            &["signpost.toml:2:1: unknown key \"dns.listn\"; did you mean \"dns.listen\"?"],
        ),
        ("[dnss]", &[], &[], &["signpost.toml:1:2: unknown key \"dnss\"; did you mean \"dns\"?"]),
        (
            "a = 1\n\n  b = 2",
            &[],
            &[],
            &["signpost.toml:1:1: unknown key \"a\"", "signpost.toml:3:3: unknown key \"b\""],
        ),
        (
            "domain = 7",
            &[],
            &[],
            &["signpost.toml:1:10: \"domain\" must be a string, found integer 7; write domain = \"apps.example.com\""],
        ),
        ("roles = [\"api\", 7]", &[], &[], &["signpost.toml:1:17: \"roles\" must be an array of strings"]),
        ("domain = \"a\"\ndomain = \"b\"", &[], &[], &["signpost.toml:2:1: duplicate key"]),
        ("domain = ", &[], &[], &["signpost.toml:1:"]),
        ("[dns]\nlisten = 1", &[], &[], &["signpost.toml:2:10: \"dns.listen\" must be an array of strings"]),
        (
            "[dns]\nrate-limit = 5",
            &[],
            &[],
            &["signpost.toml:2:1: \"dns.rate-limit\" must be a table, found integer; write [dns.rate-limit]"],
        ),
        (
            "roles = [\"dsn\"]",
            &[],
            &[],
            &["signpost.toml:1:9: \"roles\" is \"dsn\": must be api, scheduler, dns or admin"],
        ),
        (
            "",
            &[("SIGNPOST_DNS_LISTEN", "localhost:53")],
            &[],
            &["environment variable SIGNPOST_DNS_LISTEN: \"dns.listen\" is \"localhost:53\": must be ADDR:PORT"],
        ),
        (
            "",
            &[],
            &[("dns-workers", "many")],
            &["flag --dns-workers: \"dns.workers\" is \"many\": must be a number from 0 to 256"],
        ),
        (
            "",
            &[],
            &[("nameserver", "ns1.v3.rhcloud.com"), ("domain", "v3.rhcloud.com")],
            &[
                "flag --nameserver: \"nameserver\" is \"ns1.v3.rhcloud.com\": a name server inside",
                "needs its addresses",
            ],
        ),
        ("", &[], &[("nameserver", "ns1.v3.rhcloud.com=0.0.0.0")], &["not an address that clients can query"]),
        ("", &[], &[("nameserver", "ns1.v3.rhcloud.com=ns2")], &["must be NAME=ADDR[,ADDR]"]),
        ("nameserver = [\"ns.example\", \"ns.example\"]", &[], &[], &["is \"ns.example\": given twice"]),
        ("", &[], &[("verify-server", "ns1.example")], &["must be ADDR[:PORT] with an IP address"]),
        ("", &[], &[("verify-server", "ns1.example=0.0.0.0:53")], &["is not an address of a server"]),
        ("", &[], &[("verify-server", "127.0.0.1:0")], &["port 0 is not a port of a server"]),
        ("", &[], &[("verify-server", "a..b=127.0.0.1")], &["\"verify.server\" is \"a..b=127.0.0.1\""]),
        ("", &[], &[("verify-resolver", "localhost")], &["must be ADDR[:PORT] with an IP address"]),
        ("", &[], &[("verify-hosts", "maybe")], &["\"verify.hosts\" is \"maybe\": must be true or false"]),
        ("verify.interval = \"0s\"", &[], &[], &["\"verify.interval\" is \"0s\": must be at least 1s"]),
        (
            "verify.interval = 30",
            &[],
            &[],
            &[
                "signpost.toml:1:19: \"verify.interval\" must be a duration (a string), found integer 30; write interval = \"30s\"",
            ],
        ),
        ("domain = \"*.example\"", &[], &[], &["signpost.toml:1:10: \"domain\" is \"*.example\""]),
        ("dns.listen = []", &[], &[], &["signpost.toml:1:14: \"dns.listen\" is \"\": give at least one"]),
        ("api.listen = [\"127.0.0.1:9\", \"127.0.0.1:9\"]", &[], &[], &["\"127.0.0.1:9\": given twice"]),
        ("log.level = \"loud=quiet\"", &[], &[], &["\"log.level\" is \"loud=quiet\": must be error"]),
        (
            "scheduler.strategy = \"best\"",
            &[],
            &[],
            &["\"scheduler.strategy\" is \"best\": must be round-robin, least-routes"],
        ),
        (
            "scheduler.strategy = \"webhook\"",
            &[],
            &[],
            &["\"scheduler.strategy\" is \"webhook\": set \"webhook.url\" as well"],
        ),
        (
            "",
            &[],
            &[("webhook-url", "placer.example")],
            &["\"webhook.url\" is \"placer.example\": must be an https or http"],
        ),
        (
            "webhook.url = \"http://placer.example/\"",
            &[],
            &[],
            &["plain http to another machine", "\"webhook.allow-http\""],
        ),
        ("webhook.timeout = \"0s\"", &[], &[], &["\"webhook.timeout\" is \"0s\": must be at least 1s"]),
        ("webhook.fallback = \"webhook\"", &[], &[], &["must be round-robin, least-routes, weighted or rendezvous"]),
        ("dns.udp-payload = 511", &[], &[], &["\"dns.udp-payload\" is \"511\": must be a number from 512 to 4096"]),
        ("", &[], &[("dns-udp-payload", "4097")], &["must be a number from 512 to 4096"]),
        ("server.version = \"\"", &[], &[], &["\"server.version\" is \"\": must be 1 to 128 octets"]),
        ("dns.cookies = \"maybe\"", &[], &[], &["\"dns.cookies\" is \"maybe\": must be on, off or require"]),
        ("dns.cookies = true", &[], &[], &["\"dns.cookies\" must be a string, found boolean; write cookies = \"on\""]),
        (
            "dns.cookie-secret = [\"5ec2e7\"]",
            &[],
            &[],
            &["signpost.toml:1:21: \"dns.cookie-secret\" is \"(not shown)\": must be 32 hexadecimal digits"],
        ),
        (
            "",
            &[("SIGNPOST_DNS_COOKIE_SECRET", FIVE_SECRETS)],
            &[],
            &["\"dns.cookie-secret\" is \"(not shown)\": must have at most 4 values"],
        ),
        ("name-server-secret = \"n/A\"", &[], &[], &["must be NAMESPACE/NAME"]),
        (
            "dns.rate-limit.per-second = -1",
            &[],
            &[],
            &["\"dns.rate-limit.per-second\" is \"-1\": must be a number from 0 to 1000000"],
        ),
        ("dns.rate-limit.mode = \"dry\"", &[], &[], &["must be enforce or watch"]),
        ("dns.rate-limit.window = \"2h\"", &[], &[], &["must be 1s to 1h"]),
        ("dns.rate-limit.slip = 1001", &[], &[], &["must be a number from 0 to 1000"]),
        ("dns.rate-limit.ipv4-prefix = 33", &[], &[], &["must be a number from 1 to 32"]),
        ("dns.rate-limit.ipv6-prefix = 129", &[], &[], &["must be a number from 1 to 128"]),
        ("", &[], &[("dns-rate-limit-exempt", "192.0.2.1/24")], &["the range begins at 192.0.2.0"]),
        (
            "name.quarantine = \"30\"",
            &[],
            &[],
            &["\"name.quarantine\" is \"30\": must be a whole number and s, m, h or d"],
        ),
        ("name.quarantine = \"é\"", &[], &[], &["must be a whole number"]),
        ("name.quarantine-max = 0", &[], &[], &["must be a number from 1 to 1000000"]),
        ("", &[], &[("roles", "scheduler")], &["the role scheduler needs an API: give --kubeconfig"]),
        ("", &[], &[("roles", "dns")], &["nothing to serve: give --zones"]),
        ("kubeconfig = \"k\"", &[], &[], &["\"roles\" has api: remove one of them"]),
        (
            "roles = [\"dns\"]\nzones = \"z\"\napi-server = [\"https://a.example\"]",
            &[],
            &[],
            &["\"api-server\" replaces the server of a kubeconfig: set \"kubeconfig\" as well"],
        ),
        (
            "api-server = [\"https://a.example\", \"http://b.example\"]",
            &[],
            &[],
            &["signpost.toml:1:14: \"api-server\" is \"http://b.example\": must be https"],
        ),
        ("api-server = [\"https://u:p@a.example\"]", &[], &[], &["must be a URL without a user and password"]),
        ("", &[], &[("api-server", "a.example")], &["must be an https or http URL"]),
        ("", &[], &[("api-server", "https://a.example,https://a.example")], &["given twice"]),
        (
            "roles = [\"dns\"]\nzones = \"z\"\nmanifests = [\"m\"]",
            &[],
            &[],
            &["\"manifests\" are applied by the process with the role api"],
        ),
        ("roles = []", &[], &[], &["\"roles\" is empty"]),
        ("api.tls-certificate = \"c\"", &[], &[], &["\"api.tls-key\" belong together: set both, or neither"]),
        ("admin.tls-key = \"k\"", &[], &[], &["\"admin.tls-key\" belong together: set both, or neither"]),
        (
            "[admin]\ntls = false\ntls-certificate = \"c\"\ntls-key = \"k\"",
            &[],
            &[],
            &["\"admin.tls\" is false, and \"admin.tls-certificate\" is set"],
        ),
        (
            "roles = [\"dns\", \"admin\"]\nzones = \"z\"\nadmin.tls = true",
            &[],
            &[],
            &["stores no certificate: set \"admin.tls-certificate\""],
        ),
        ("audit.policy = \"some\"", &[], &[], &["\"audit.policy\" is \"some\": must be writes, all or off"]),
        ("audit.log-files = 0", &[], &[], &["must be a number from 1 to 1000"]),
        (
            "audit.log-size = 64",
            &[],
            &[],
            &["\"audit.log-size\" is \"64\": must be a number of bytes", "from 1Mi to 64Gi"],
        ),
        ("jwt-issuer = 7", &[], &[], &["signpost.toml:1:14: \"jwt-issuer\" must be an array of tables"]),
        ("[[jwt-issuer]]\nissuer = \"i\"", &[], &[], &["jwks is missing"]),
        ("[[jwt-issuer]]\nissuer = 7", &[], &[], &["signpost.toml:2:10: \"jwt-issuer\" must be strings"]),
        ("[[jwt-issuer]]\nissuer = \"a,b\"", &[], &[], &["signpost.toml:2:10: \"jwt-issuer\" must be without commas"]),
        (
            "",
            &[("SIGNPOST_JWT_ISSUER", "issuer=i,audience=a,jwks=k issuer=i,audience=b,jwks=k")],
            &[],
            &["\"issuer=i,audience=b,jwks=k\": given twice"],
        ),
    ] {
        let error = load(file, variables, flags).expect_err(file);
        for part in expected {
            assert!(error.contains(part), "{file:?}:\n{error}\nlacks\n{part}");
        }
    }
}

#[test]
fn an_error_shows_the_line_to_write() {
    for (file, flags, expected) in [
        (
            "dns-listen = []\naudit = \"all\"",
            &[][..],
            &[
                "signpost.toml:1:1: unknown key \"dns-listen\"; did you mean \"dns.listen\"?",
                "signpost.toml:2:1: \"audit\" must be a table, found string; write [audit]",
            ][..],
        ),
        (
            "[dns]\ndns-workers = 3",
            &[],
            &["signpost.toml:2:1: unknown key \"dns.dns-workers\"; did you mean \"dns.workers\"?"],
        ),
        (
            "admin.tls = \"on\"",
            &[],
            &["signpost.toml:1:13: \"admin.tls\" must be a boolean, found string \"on\"; write tls = true"],
        ),
        ("verify.names = \"off\"", &[], &["found string \"off\"; write names = false"]),
        ("dns.rate-limit.window = 7", &[], &["found integer 7; write window = \"7s\""]),
        ("", &[("verify-names", "off")], &["flag --verify-names: \"verify.names\" is \"off\"", "write false"]),
    ] {
        let error = load(file, &[], flags).expect_err(file);
        for part in expected {
            assert!(error.contains(part), "{file:?}:\n{error}\nlacks\n{part}");
        }
    }
}

/// A line that an error suggests, or the reference shows, is accepted.
#[test]
fn every_default_and_every_example_is_valid() {
    let before = load("", &[], &[]).expect("loads");
    for key in KEYS.iter().filter(|key| key.path != "jwt-issuer" && !key.is_secret) {
        let table = if key.table.is_empty() { String::new() } else { format!("[{}]\n", key.table) };
        let file = format!("{table}{}", key.assignment(key.example()));
        let found = load(&file, &[], &[]);
        assert!(found.is_ok() || found.is_err_and(|error| !error.contains("signpost.toml:")), "{file}");
        if let Some(value) = key.default.value.filter(|value| !value.is_empty()) {
            let settings = load("", &[(&key.variable(), value)], &[]).expect(value);
            assert_eq!(config::changed(&before, &settings), (vec![], vec![]), "{}", key.path);
        }
    }
}

#[test]
fn cookies_and_rate_limit() {
    let settings = load("", &[], &[]).expect("loads");
    assert_eq!((settings.dns.cookies, settings.dns.cookie_secret.len()), (CookieMode::On, 0));
    assert_eq!(settings.rate_limit(), RateLimit::of_amplified());
    assert_eq!(settings.limits(), Limits::default());
    assert_eq!(settings.label_rules(), LabelRules::default());
    assert_eq!(settings.audit_bounds(), Bounds::default());
    let secrets = "00112233445566778899aabbccddeeff,e5e973e5a6b2a43f48e7dc849e37bfcf";
    let file = "dns.cookies = \"require\"\n[dns.rate-limit]\nper-second = 100\nslip = 2\nmode = \"watch\"\nwindow = \"1m\"\n\
                exempt = [\"192.0.2.0/24\", \"2001:db8::53\"]";
    let settings = load(file, &[("SIGNPOST_DNS_COOKIE_SECRET", secrets)], &[]).expect("loads");
    assert_eq!((settings.dns.cookies, settings.dns.cookie_secret.len()), (CookieMode::Require, 2));
    assert!(!format!("{settings:?}").contains("0x22"), "secrets are not printed");
    let limit = settings.rate_limit();
    assert_eq!((limit.per_second, limit.slip, limit.enforced, limit.exempt.len()), (100, 2, false, 2));
    assert_eq!((limit.window, limit.free_multiple), (60, 0));
    let limit = load("dns.rate-limit.exempt = [\"192.0.2.53\"]", &[], &[]).expect("loads").rate_limit();
    assert_eq!((limit.per_second, limit.exempt.len()), (1_000, RateLimit::of_amplified().exempt.len() + 1));
    let (now, restart) = config::changed(&load("", &[], &[]).expect("loads"), &settings);
    let limits = ["per-second", "mode", "window", "slip", "exempt"].map(|key| format!("dns.rate-limit.{key}"));
    assert_eq!(now[..2], ["dns.cookies", "dns.cookie-secret"]);
    assert_eq!(now[2..], limits);
    assert!(restart.is_empty());
}

#[test]
fn identity_settings_of_a_name_server() {
    let before = load("", &[], &[]).expect("loads");
    assert_eq!((&before.server.id, &before.server.version, before.dns.udp_payload), (&None, &None, 1232));
    let file = "dns.udp-payload = 4096\n[server]\nid = \"ns1\"\nversion = \"one\"";
    let after = load(file, &[], &[]).expect("loads");
    assert_eq!((after.server.version.as_deref(), after.dns.udp_payload), (Some("one"), 4096));
    let (now, restart) = config::changed(&before, &after);
    assert_eq!((now, restart), (vec!["dns.udp-payload", "server.id", "server.version"], vec![]));
}

#[test]
fn servers_to_verify_have_port_53_unless_they_say_so() {
    let text = "192.0.2.1,ns2.example=127.0.0.1:5302,[2001:db8::1],2001:db8::2,ns5.example.=[2001:db8::3]:5305";
    let settings = load("", &[("SIGNPOST_VERIFY_SERVER", text)], &[]).expect("loads");
    let servers: Vec<String> =
        settings.verify.server.iter().map(|server| format!("{:?} {}", server.name, server.address)).collect();
    assert_eq!(
        servers,
        [
            "\"\" 192.0.2.1:53",
            "\"ns2.example\" 127.0.0.1:5302",
            "\"\" [2001:db8::1]:53",
            "\"\" [2001:db8::2]:53",
            "\"ns5.example\" [2001:db8::3]:5305",
        ]
    );
    let many: Vec<String> = (0..33).map(|number| format!("127.0.0.{number}")).collect();
    assert!(
        load("", &[("SIGNPOST_VERIFY_SERVER", &many.join(","))], &[])
            .expect_err("too many")
            .contains("at most 32 values")
    );
}

#[test]
fn what_chooses_routers_reloads() {
    let old = load("", &[], &[]).expect("loads");
    assert_eq!(old.chooser(), StrategyConfig::Strategy(StrategyName::RoundRobin));
    let file = "scheduler.strategy = \"webhook\"\n[webhook]\nurl = \"https://placer.example/\"\nca = \"ca.pem\"";
    let new = load(file, &[("SIGNPOST_WEBHOOK_TIMEOUT", "5s")], &[("webhook-fallback", "weighted")]).expect("loads");
    let StrategyConfig::Webhook(webhook) = new.chooser() else { panic!("{:?}", new.chooser()) };
    assert_eq!((webhook.url.as_str(), webhook.timeout), ("https://placer.example/", Duration::from_secs(5)));
    assert_eq!(webhook.fallback, StrategyName::Weighted);
    assert!(webhook.authorities.is_some_and(|path| path.is_absolute()), "it is in the directory of the file");
    let all = ["scheduler.strategy", "webhook.url", "webhook.timeout", "webhook.ca", "webhook.fallback"];
    assert_eq!(config::changed(&old, &new), (all.to_vec(), vec![]));
}

#[test]
fn every_strategy_can_be_selected() {
    for name in StrategyName::ALL {
        let settings = load(&format!("scheduler.strategy = \"{name}\""), &[], &[("webhook-fallback", name.as_str())]);
        let settings = settings.expect("loads");
        assert_eq!(settings.chooser(), StrategyConfig::Strategy(name));
        assert_eq!(settings.webhook.fallback, name);
    }
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("signpost.toml");
    let places = ConfigSources { config: Some(path.clone()), ..ConfigSources::default() };
    let error = config::load(&places).expect_err("there is none").to_string();
    assert!(error.starts_with(&format!("{}: cannot read", path.display())), "{error}");
}

#[test]
fn serving_zone_files_alone_needs_no_data_directory() {
    let settings = load("roles = [\"dns\", \"admin\"]\nzones = \"zones\"", &[], &[]).expect("loads");
    assert!(!settings.needs_data_dir() && !settings.dns_follows_api());
}

#[test]
fn a_reload_knows_what_it_can_change() {
    let old = load("", &[], &[]).expect("loads");
    let new = load("log.level = \"debug\"\ndomain = \"other.example\"", &[], &[]).expect("loads");
    let (now, restart) = config::changed(&old, &new);
    assert_eq!(now, ["log.level"]);
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
    let [first, second] = &settings.jwt_issuer[..] else { panic!("two") };
    assert_eq!((first.issuer.as_str(), first.audiences.len()), ("https://idp.example", 2));
    assert_eq!(first.groups_prefix, "signpost:");
    assert_eq!(first.leeway, Duration::from_secs(5));
    // The paths are relative to the configuration's directory.
    assert!(matches!(&first.keys, Source::File(path) if path.is_absolute()), "{:?}", first.keys);
    assert!(matches!(&second.keys, Source::Url { url, .. } if url == "https://idp.example/keys"));
    let text = "issuer=i,audience=a,jwks=keys.json";
    let settings = load("", &[], &[("jwt-issuer", text)]).expect("loads");
    assert_eq!(settings.jwt_issuer[0].keys, Source::File("keys.json".into()));
    let table = "[[jwt-issuer]]\nissuer = \"https://idp.example\"\njwks = \"https://idp.example/keys\"\nclient-id = \
                 \"web\"\nclient-secret-file = \"secret\"\nscope = [\"groups\", \"email\"]\n";
    let settings = load(table, &[], &[]).expect("loads");
    let sign_in = settings.jwt_issuer[0].sign_in.as_ref().expect("a client is set");
    assert!(sign_in.secret_file.as_ref().is_some_and(|path| path.is_absolute()), "{sign_in:?}");
    assert_eq!(sign_in.scopes, ["groups", "email"]);
}

#[test]
fn the_pages_show_files_that_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut examples = 0;
    for entry in std::fs::read_dir(root.join("docs")).expect("a directory") {
        let path = entry.expect("readable").path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for example in text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()) {
            let settings = load(example, &[("SIGNPOST_DOMAIN", "apps.example.com")], &[]);
            assert!(settings.is_ok(), "{}: {}", path.display(), settings.expect_err("it is not valid"));
            examples += 1;
        }
    }
    assert!(examples >= 6, "{examples}");
}
