//! Cookies and the rate limit, as `dig`, a flood and an operator see them.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::server::{DataDir, Ports, Server, eventually, http_get};

const ZONE: &str = "\
@ 300 SOA ns1.shard.test. hostmaster.shard.test. 1 3600 600 86400 60
@ 300 NS ns1.shard.test.
* 60 A 192.0.2.1
";

/// A name server for one zone file, with this configuration.
fn start(folder: &DataDir, config: &str) -> Server {
    std::fs::write(folder.join("shard.test.zone"), ZONE).expect("written");
    let file = folder.join("signpost.toml");
    std::fs::write(&file, config).expect("written");
    let file = file.to_str().expect("temporary paths are UTF-8");
    Server::start(Ports::free(), &["--roles", "dns,admin", "--config", file, "--zones", folder.path()])
}

/// What `dig` prints about one query for an address below the wildcard.
fn dig(server: &Server, options: &[&str]) -> String {
    let output = Command::new("dig")
        .args([&format!("@{}", server.dns.ip()), "-p", &server.dns.port().to_string()])
        .args(["+norecurse", "+time=5", "+tries=2", "app.shard.test", "A"])
        .args(options)
        .output()
        .expect("dig is installed: the test command of the README installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The cookie that `dig` found good.
fn good_cookie(printed: &str) -> Option<&str> {
    let cookie = printed.lines().find_map(|line| line.strip_prefix("; COOKIE: "))?;
    cookie.strip_suffix(" (good)")
}

fn metric(server: &Server, line: &str) -> u64 {
    let (_, page) = http_get(server.admin, "/metrics").expect("metrics are served");
    let value = page.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {line} in\n{page}"))
}

#[test]
fn dig_gets_a_cookie_and_brings_it_back() {
    let folder = DataDir::new();
    let config = "dns-cookie-secret = [\"00112233445566778899aabbccddeeff\"]";
    let server = start(&folder, config);
    let printed = dig(&server, &["+cookie=0123456789abcdef"]);
    let cookie = good_cookie(&printed).unwrap_or_else(|| panic!("{printed}"));
    assert!(cookie.len() == 48 && cookie.starts_with("0123456789abcdef01000000"), "{cookie}");
    let printed = dig(&server, &[&format!("+cookie={cookie}")]);
    assert_eq!(good_cookie(&printed), Some(cookie), "{printed}");
    assert_eq!(metric(&server, "signpost_dns_cookies_total{kind=\"good\"}"), 1);
    assert!(!dig(&server, &["+nocookie"]).contains("COOKIE"));
    // RFC 7873 §5.4.
    let printed = dig(&server, &["+header-only", "+cookie"]);
    assert!(printed.contains("status: NOERROR") && good_cookie(&printed).is_some(), "{printed}");

    // Another server with the same secret takes it, as behind one address.
    let other = DataDir::new();
    let server = start(&other, &format!("{config}\ndns-cookies = \"require\""));
    assert_eq!(good_cookie(&dig(&server, &[&format!("+cookie={cookie}")])), Some(cookie));
    // Without one dig is told so; left to itself, it asks again with what it got.
    let refused = dig(&server, &["+cookie", "+nobadcookie"]);
    assert!(refused.contains("status: BADCOOKIE") && good_cookie(&refused).is_some(), "{refused}");
    assert!(dig(&server, &["+cookie"]).contains("192.0.2.1"));
    assert!(dig(&server, &["+cookie", "+tcp", "+nobadcookie"]).contains("192.0.2.1"), "a connection proves as much");
    assert!(dig(&server, &["+nocookie"]).contains("192.0.2.1"), "who knows nothing of cookies is answered");
}

#[test]
fn a_flood_is_cut_and_a_client_finds_its_way() {
    let folder = DataDir::new();
    let server = start(&folder, "dns-rate-limit = 1\ndns-rate-limit-window = 1\ndns-workers = 1");
    // 200 at once for different names: far more than one a second for as long as this may take.
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(server.dns).expect("connects");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let (mut whole, mut truncated) = (0, 0);
    for id in 0..200u8 {
        let query =
            [&[0, id, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a' + id % 26], &b"\x05shard\x04test\0\0\x01\0\x01"[..]];
        client.send(&query.concat()).expect("sent");
        let mut reply = [0; 512];
        let length = client.recv(&mut reply).expect("each is answered, in one way or the other");
        match (reply[2] & 2, reply[7]) {
            (0, 1) => whole += 1,
            (2, 0) => {
                truncated += 1;
                assert_eq!(length, query.concat().len(), "no larger than the query");
            }
            other => panic!("{other:?}: {:?}", &reply[..length]),
        }
    }
    assert!(whole >= 1 && truncated > whole, "{whole} whole, {truncated} truncated");
    let counted = metric(&server, "signpost_dns_rate_limited_total{action=\"truncated\"}");
    assert_eq!(counted, truncated);
    // dig goes on over TCP, or is let through with a cookie.
    assert!(dig(&server, &["+nocookie"]).contains("192.0.2.1"));
    let printed = dig(&server, &["+cookie"]);
    let cookie = good_cookie(&printed).unwrap_or_else(|| panic!("{printed}"));
    for _ in 0..3 {
        let printed = dig(&server, &[&format!("+cookie={cookie}"), "+ignore"]);
        assert!(printed.contains("192.0.2.1"), "{printed}");
    }

    // An operator lifts the limit and turns cookies off.
    std::fs::write(folder.join("signpost.toml"), "dns-cookies = \"off\"\ndns-workers = 1").expect("written");
    server.signal("HUP");
    eventually("cookies are off", || (!dig(&server, &["+cookie"]).contains("; COOKIE")).then_some(()));
    let before = metric(&server, "signpost_dns_rate_limited_total{action=\"truncated\"}");
    for _ in 0..20 {
        assert!(dig(&server, &["+nocookie", "+ignore"]).contains("192.0.2.1"));
    }
    assert_eq!(metric(&server, "signpost_dns_rate_limited_total{action=\"truncated\"}"), before);
}
