//! RFC 9018: cookies that servers of all makers understand. The test vectors of its appendix are with the code.

use signpost_dns::nameserver::cookie::Cookies;

use crate::conformance::rfc7873::{COOKIE, cookies, stage};
use crate::conformance::stage::{Stage, opt, query_with_option};

/// The cookie that comes back at `now` for this one.
fn answer(stage: &mut Stage, now: u64, cookie: &[u8]) -> Vec<u8> {
    stage.peer.now = now;
    let response = stage.respond(&query_with_option("a.z.test. A", COOKIE, cookie)).expect("a response");
    opt(&response).expect("an OPT record").2.into_iter().find(|(code, _)| *code == COOKIE).expect("a cookie").1
}

fn hex(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).expect("hex")
}

/// §4: client cookie, version 1, three reserved octets of zero, the time, the hash; as appendix A.1 and A.2 have it.
#[test]
fn section_4_the_cookie_on_the_wire() {
    let mut stage = stage("* A 192.0.2.1");
    stage.peer.address = "198.51.100.100:4000".parse().expect("an address");
    let first = answer(&mut stage, 1_559_731_985, &hex("2464c4abcf10c957"));
    assert_eq!(first, hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480"));
    assert_eq!(
        answer(&mut stage, 1_559_734_385, &first),
        hex("2464c4abcf10c957010000005cf7a871d4a564a1442aca77"),
        "after 40 minutes"
    );
}

/// §4.3: kept for half an hour, renewed in the second half, of no use after that.
#[test]
fn section_4_3_renewal() {
    let mut stage = stage("* A 192.0.2.1");
    // The last begins a second before the time no longer fits 32 bits, in the year 2106.
    for made in [1_800_000_000, 0x7fff_ffff, 0xffff_ffff] {
        let cookie = answer(&mut stage, made, b"client-1");
        let bad = stage.stats.counts().cookies[2];
        assert_eq!(answer(&mut stage, made + 1800, &cookie), cookie);
        let renewed = answer(&mut stage, made + 1801, &cookie);
        assert_ne!(renewed, cookie);
        assert_eq!(renewed[12..16], ((made + 1801) as u32).to_be_bytes());
        answer(&mut stage, made + 3600, &cookie);
        assert_eq!(stage.stats.counts().cookies[2], bad, "good for an hour");
        answer(&mut stage, made + 3601, &cookie);
        assert_eq!(stage.stats.counts().cookies[2], bad + 1);
        // Of a fellow server whose clock is ahead, by at most five minutes.
        assert_eq!(answer(&mut stage, made - 300, &cookie), cookie);
        answer(&mut stage, made - 301, &cookie);
        answer(&mut stage, made + (1 << 31), &cookie);
        assert_eq!(stage.stats.counts().cookies[2], bad + 3);
    }
}

/// §5: three steps bring a new secret to all servers of an address, and no cookie of either is bad meanwhile.
#[test]
fn section_5_a_change_of_the_secret() {
    let old = cookies().first;
    let new = "445536bcd2513298075a5d379663c962".parse().expect("a secret");
    let steps = [(old, vec![]), (old, vec![new]), (new, vec![old]), (new, vec![])];
    let servers: Vec<Stage> = steps
        .into_iter()
        .map(|(first, others)| {
            let mut stage = stage("* A 192.0.2.1");
            stage.settings.cookies = Some(Cookies { first, others: others.into(), required: false });
            stage
        })
        .collect();
    // A server that is a step behind or ahead of the maker of the cookie accepts it.
    let mut servers = servers;
    for maker in 0..servers.len() {
        let cookie = answer(&mut servers[maker], 1_800_000_000, b"client-1");
        for (taker, server) in servers.iter_mut().enumerate() {
            let before = server.stats.counts().cookies[1];
            answer(server, 1_800_000_010, &cookie);
            let good = server.stats.counts().cookies[1] > before;
            if taker.abs_diff(maker) <= 1 {
                assert!(good, "made in step {maker}, taken in step {taker}");
            }
        }
    }
    let cookie = answer(&mut servers[0], 1_800_000_000, b"client-1");
    assert_ne!(answer(&mut servers[3], 1_800_000_010, &cookie), cookie, "after the change the old secret is gone");
}
