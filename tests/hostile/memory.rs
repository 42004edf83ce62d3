//! Attacks on memory and disk: objects that are large, many, or changed repeatedly.

use serde_json::{Value, json};

use crate::support::{Bystander, Platform, is_long, routes_path};
use signpost_testing::client::Client;

/// The maximum cost of an attack.
const MEMORY_MIB: u64 = 256;
const DISK_MIB: u64 = 512;

/// A platform that is attacked, and what it takes before that.
struct Attack {
    platform: Platform,
    attacker: Client,
    bystander: Bystander,
    memory: u64,
    disk: u64,
}

impl Attack {
    fn begin() -> Attack {
        let platform = Platform::start(&[]);
        let (attacker, bystander) = (platform.tenant("attacker"), platform.bystander());
        let (memory, disk) = (platform.resident_mib(), platform.disk_mib());
        Attack { platform, attacker, bystander, memory, disk }
    }

    /// Returns the number of requests that each limit rejected, by the metrics.
    fn refused(&self, limit: &str) -> u64 {
        self.platform.metric(&format!("signpost_api_limited_requests_total{{limit=\"{limit}\"}}")) as u64
    }

    /// The attack is over: others were served all the time, and what it took is within the bounds, also after a restart.
    fn end(self, name: &str) {
        let Attack { platform, bystander, memory, disk, attacker: _ } = self;
        let (memory_now, disk_now) = (platform.resident_mib(), platform.disk_mib());
        let report = bystander.was_served();
        println!(
            "{name}: memory from {memory} to {memory_now} MiB, disk from {disk} to {disk_now} MiB, others waited for {:?}",
            report.slowest_api
        );
        assert!(memory_now < memory + MEMORY_MIB, "{name}: memory grew from {memory} to {memory_now} MiB");
        assert!(disk_now < disk + DISK_MIB, "{name}: the data directory grew from {disk} to {disk_now} MiB");
        let platform = platform.restarted();
        let memory_again = platform.resident_mib();
        println!("{name}: {memory_again} MiB after a restart");
        assert!(memory_again < memory + MEMORY_MIB, "{name}: {memory} MiB before, {memory_again} MiB after a restart");
        assert!(platform.admin.ok(&["get", "route", "app", "-n", "bystander"]).contains("app"));
    }
}

fn route(name: &str, filling: usize) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
           "metadata": {"name": name, "annotations": {"filling": noise(filling, name)}}, "spec": {"to": {"name": "web"}}})
}

/// Text that does not compress, another one for each seed.
fn noise(octets: usize, seed: &str) -> String {
    let mut state = seed
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |state, octet| (state ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3));
    let mut octet = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        char::from(alphabet[(state >> 58) as usize])
    };
    (0..octets).map(|_| octet()).collect()
}

#[test]
fn large_routes_are_refused() {
    let attack = Attack::begin();
    let path = routes_path("attacker");
    let (routes, patches) = if is_long() { (2_900, 500) } else { (40, 8) };
    for number in 0..routes {
        let (status, answer) = attack.attacker.send("POST", &path, Some(&route(&format!("r{number}"), 240_000)));
        assert_eq!(status, 413, "{answer}");
        assert!(answer.contains("bytes: limit is 65536"), "{answer}");
    }
    assert_eq!(attack.attacker.send("POST", &path, Some(&route("patched", 10))).0, 201);
    for number in 0..patches {
        let secret = noise(1_300_000, &number.to_string());
        let patch = json!({"spec": {"tls": {"termination": "edge", "secretName": secret}}});
        let (status, answer) = attack.attacker.send("PATCH", &format!("{path}/patched"), Some(&patch));
        assert_eq!(status, 422, "{answer}");
        assert!(answer.contains("spec.tls.secretName: Too long: may not be more than 253 bytes"), "{answer}");
    }
    assert_eq!((attack.refused("object-size"), attack.refused("object-fields")), (routes, patches));
    attack.end("large routes");
}

/// The maximum size of a namespace, in objects of the maximum size, each of which is changed repeatedly.
#[test]
fn a_full_namespace_that_is_rewritten_stays_within_the_bounds() {
    let attack = Attack::begin();
    let path = routes_path("attacker");
    if !is_long() {
        attack.platform.admin.ok(&["annotate", "namespace", "attacker", "signpost.dev/max-route-bytes=2Mi"]);
    }
    let mut made = 0;
    let refusal = loop {
        let (status, answer) = attack.attacker.send("POST", &path, Some(&route(&format!("r{made}"), 62_000)));
        if status != 201 {
            break (status, answer);
        }
        made += 1;
        assert!(made < 1_000, "nothing stops it");
    };
    assert_eq!(refusal.0, 403, "{}", refusal.1);
    assert!(refusal.1.contains("exceeded quota: namespace-route-bytes, requested: route-bytes="), "{}", refusal.1);
    assert_eq!(attack.refused("namespace-route-bytes"), 1);
    let changes = if is_long() { 20_000 } else { 200 };
    for number in 0..changes {
        let patch = json!({"metadata": {"annotations": {"filling": noise(62_000, &format!("change {number}"))}}});
        let (status, answer) = attack.attacker.send("PATCH", &format!("{path}/r{}", number % made), Some(&patch));
        assert_eq!(status, 200, "{answer}");
    }
    attack.end("a full namespace, rewritten");
}

/// The maximum number of objects in a namespace, each as small as possible: their cost in addition to their bytes.
#[test]
fn a_namespace_full_of_small_routes_stays_within_the_bounds() {
    let attack = Attack::begin();
    let path = routes_path("attacker");
    let maximum = if is_long() { 10_000 } else { 100 };
    if !is_long() {
        attack.platform.admin.ok(&["annotate", "namespace", "attacker", "signpost.dev/max-routes=100"]);
    }
    for number in 0..maximum {
        let (status, answer) = attack.attacker.send("POST", &path, Some(&route(&format!("r{number}"), 0)));
        assert_eq!(status, 201, "{answer}");
    }
    let (status, answer) = attack.attacker.send("POST", &path, Some(&route("one-more", 0)));
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains(&format!("used: routes={maximum}, limited: routes={maximum}; ")), "{answer}");
    attack.end("small routes");
}
