//! Cookies and the rate limit, as `dig`, a flood and an operator see them.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use signpost_testing::dig::printed;
use signpost_testing::peers::Peer;
use signpost_testing::{DataDir, PATIENCE, Ports, Process, Scrape, Server, eventually, free_address};

const SECRET: &str = "00112233445566778899aabbccddeeff";

const ZONE: &str = "\
@ 300 SOA ns1.shard.test. hostmaster.shard.test. 1 3600 600 86400 60
@ 300 NS ns1.shard.test.
* 60 A 192.0.2.1
";

/// Returns a name server for one zone file, with this configuration.
fn start(folder: &DataDir, config: &str) -> Server {
    std::fs::write(folder.join("shard.test.zone"), ZONE).expect("written");
    let file = folder.join("signpost.toml");
    std::fs::write(&file, config).expect("written");
    let file = file.to_str().expect("temporary paths are UTF-8");
    Server::start(Ports::free(), &["--roles", "dns,admin", "--config", file, "--zones", folder.path()])
}

/// Returns the output of `dig` for one query for an address below the wildcard.
fn dig(server: SocketAddr, options: &[&str]) -> String {
    printed(server, "app.shard.test", "A", &[&["+time=30", "+tries=2"], options].concat())
}

/// Returns the cookie that `dig` found good.
fn good_cookie(printed: &str) -> Option<&str> {
    let cookie = printed.lines().find_map(|line| line.strip_prefix("; COOKIE: "))?;
    cookie.strip_suffix(" (good)")
}

fn metric(server: &Server, series: &str) -> f64 {
    Scrape::of(server.admin).value(series)
}

#[test]
fn dig_gets_a_cookie_and_brings_it_back() {
    let folder = DataDir::new();
    let config = format!("dns.cookie-secret = [\"{SECRET}\"]");
    let server = start(&folder, &config);
    let printed = dig(server.dns, &["+cookie=0123456789abcdef"]);
    let cookie = good_cookie(&printed).unwrap_or_else(|| panic!("{printed}"));
    assert!(cookie.len() == 48 && cookie.starts_with("0123456789abcdef01000000"), "{cookie}");
    let printed = dig(server.dns, &[&format!("+cookie={cookie}")]);
    assert_eq!(good_cookie(&printed), Some(cookie), "{printed}");
    assert_eq!(metric(&server, "signpost_dns_cookies_total{kind=\"good\"}"), 1.0);
    assert!(!dig(server.dns, &["+nocookie"]).contains("COOKIE"));
    // RFC 7873 §5.4.
    let printed = dig(server.dns, &["+header-only", "+cookie"]);
    assert!(printed.contains("status: NOERROR") && good_cookie(&printed).is_some(), "{printed}");

    // Another server with the same secret takes it, as behind one address.
    let other = DataDir::new();
    let server = start(&other, &format!("{config}\ndns.cookies = \"require\""));
    assert_eq!(good_cookie(&dig(server.dns, &[&format!("+cookie={cookie}")])), Some(cookie));
    // A query without a cookie gets BADCOOKIE; by default, dig retries with the received cookie.
    let refused = dig(server.dns, &["+cookie", "+nobadcookie"]);
    assert!(refused.contains("status: BADCOOKIE") && good_cookie(&refused).is_some(), "{refused}");
    assert!(dig(server.dns, &["+cookie"]).contains("192.0.2.1"));
    assert!(dig(server.dns, &["+cookie", "+tcp", "+nobadcookie"]).contains("192.0.2.1"), "a connection proves as much");
    assert!(dig(server.dns, &["+nocookie"]).contains("192.0.2.1"), "a client without cookies gets an answer");
}

#[test]
fn a_flood_is_cut_and_a_client_finds_its_way() {
    let folder = DataDir::new();
    let server = start(&folder, "dns.rate-limit.per-second = 1\ndns.rate-limit.window = \"1s\"\ndns.workers = 1");
    // 200 at once for different names: far more than one a second for as long as this may take.
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.connect(server.dns).expect("connects");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
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
    assert_eq!(counted, f64::from(truncated));
    // dig retries over TCP, or passes with a cookie.
    assert!(dig(server.dns, &["+nocookie"]).contains("192.0.2.1"));
    let printed = dig(server.dns, &["+cookie"]);
    let cookie = good_cookie(&printed).unwrap_or_else(|| panic!("{printed}"));
    for _ in 0..3 {
        let printed = dig(server.dns, &[&format!("+cookie={cookie}"), "+ignore"]);
        assert!(printed.contains("192.0.2.1"), "{printed}");
    }

    // An operator lifts the limit and turns cookies off.
    std::fs::write(folder.join("signpost.toml"), "dns.cookies = \"off\"\ndns.workers = 1").expect("written");
    server.signal("HUP");
    eventually("cookies are off", || (!dig(server.dns, &["+cookie"]).contains("; COOKIE")).then_some(()));
    let before = metric(&server, "signpost_dns_rate_limited_total{action=\"truncated\"}");
    for _ in 0..20 {
        assert!(dig(server.dns, &["+nocookie", "+ignore"]).contains("192.0.2.1"));
    }
    assert_eq!(metric(&server, "signpost_dns_rate_limited_total{action=\"truncated\"}"), before);
}

/// Knot and NSD with the same secret, as servers of several makers behind one address have it.
fn peers(folder: &DataDir) -> [(SocketAddr, Process); 2] {
    let knot_cookies = format!(
        "mod-cookies:\n  - id: shared\n    secret: 0x{SECRET}\n    badcookie-slip: 1\ntemplate:\n  - id: default\n    \
         global-module: mod-cookies/shared\n"
    );
    let nsd_cookies = format!("  answer-cookie: yes\n  cookie-secret: {SECRET}\n  cookie-secret-file: \"\"\n");
    let here = Path::new(folder.path());
    let peer = |listen, more| Peer { listen, folder: here, zones: here, apexes: &["shard.test"], more };
    let [knot, nsd] = [free_address(), free_address()];
    [(knot, peer(knot, &knot_cookies).knot()), (nsd, peer(nsd, &nsd_cookies).nsd())]
}

#[test]
fn knot_and_nsd_take_our_cookies_and_we_take_theirs() {
    let folder = DataDir::new();
    let server = start(&folder, &format!("dns.cookies = \"require\"\ndns.cookie-secret = [\"{SECRET}\"]"));
    let peers = peers(&folder);
    let fresh = |dns| good_cookie(&dig(dns, &["+cookie=0123456789abcdef", "+nobadcookie"])).map(str::to_owned);
    let all = [server.dns, peers[0].0, peers[1].0];
    let cookies = all.map(|dns| eventually("a cookie", || fresh(dns)));
    for (maker, cookie) in cookies.iter().enumerate() {
        // Signpost and Knot return BADCOOKIE for an invalid cookie, NSD never does.
        for taker in &all[..2] {
            let printed = dig(*taker, &[&format!("+cookie={cookie}"), "+nobadcookie"]);
            assert!(printed.contains("status: NOERROR"), "made by {maker}, taken by {taker}: {printed}");
        }
        let last = if cookie.ends_with('0') { "1" } else { "0" };
        let forged = format!("{}{last}", &cookie[..47]);
        for taker in &all[..2] {
            let printed = dig(*taker, &[&format!("+cookie={forged}"), "+nobadcookie"]);
            assert!(printed.contains("status: BADCOOKIE"), "{taker}: {printed}");
        }
    }
}
