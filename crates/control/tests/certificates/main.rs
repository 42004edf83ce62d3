//! The loop of certificates against the API server and a certificate authority, in one process.

mod authority;
mod dns;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use signpost_api::identity::{GROUP_MASTERS, Identity, USER_CONTROLLER, USER_SCHEDULER};
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::store::memory::Memory;
use signpost_control::certificates::{self, Metrics, Settings, ca};
use signpost_control::client;
use signpost_control::observe::verify::state::Server;
use signpost_control::world::issuance::Note;
use signpost_control::world::{self, World};
use signpost_types::instance::{AGENT_NAMESPACE, certificate_name};
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;
use signpost_types::v1alpha1::challenge_record::{ChallengeRecord, ChallengeRecordSpec};
use signpost_types::v1alpha1::name_claim::NameClaim;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use authority::{Authority, Behavior, Chain, Validation};
use dns::Dns;

const PATIENCE: Duration = Duration::from_secs(60);
const ZONE: &str = "*.shard1.v3.example";
/// A window of renewal that is over, as before a revocation.
const PAST: Option<([&str; 2], u64)> = Some((["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"], 21_600));

/// A platform with a Router and a CA.
struct Scene {
    server: ApiServer,
    authority: Authority,
    /// The listed name server and the resolver; `None`: there are none.
    dns: Option<Dns>,
    _stop: DropGuard,
}

/// A process that leads.
struct Leader {
    world: World,
    registry: Registry,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Scene {
    async fn start() -> Scene {
        let settings = server_settings(PlatformConfig::new("v3.example"), Arc::default());
        let (server, stop) = (ApiServer::new(Arc::new(Memory::new()), settings), CancellationToken::new());
        let (running, token) = (server.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        server.ready().await;
        let scene = Scene { server, authority: Authority::start().await, dns: None, _stop: stop.drop_guard() };
        let router = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"},
            "spec": {"addressesFrom": {"instances": true}}});
        Api::<Router>::all(scene.admin()).create(&PostParams::default(), &object(router)).await.expect("created");
        scene
    }

    /// Starts a platform with a name server, and a CA that validates names by DNS.
    async fn with_dns(behavior: Behavior) -> Scene {
        let mut scene = Scene::start().await;
        scene.dns = Some(Dns::start(scene.admin()).await);
        scene.authority.set(behavior);
        scene
    }

    /// Starts a platform that has a certificate, whose time of renewal has come.
    async fn with_certificate() -> (Scene, Secret) {
        let scene = Scene::start().await;
        scene.authority.set(Behavior { renewal: PAST, ..Behavior::default() });
        let leader = scene.lead();
        leader.until(true, "Stub CA issued").await;
        leader.stop().await;
        let certificate = scene.certificate().await.expect("a certificate");
        (scene, certificate)
    }

    fn client(&self, user: &str) -> Client {
        client::in_process(self.server.router_as(Identity::user(user)))
    }

    fn admin(&self) -> Client {
        let identity = Identity { user: "admin".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] };
        client::in_process(self.server.router_as(identity))
    }

    fn lead(&self) -> Leader {
        let world = World::new(&self.client(USER_SCHEDULER), world::Settings::of_domain("v3.example"));
        let ca = ca::Settings {
            directory: self.authority.directory.clone(),
            contact: vec!["ops@v3.example".to_owned()],
            profile: Some("short".to_owned()),
            external_account: None,
            authorities: Some(self.authority.ca_file()),
        };
        let addresses: Vec<SocketAddr> = self.dns.iter().map(|dns| dns.address).collect();
        let settings = Settings {
            ca,
            servers: addresses.iter().map(|address| Server { name: String::new(), address: *address }).collect(),
            resolvers: addresses,
            patience: Duration::from_secs(1),
            verify_hosts: false,
            namespace_orders: 10,
            orders: 100,
            instance: "test".to_owned(),
        };
        let stop = CancellationToken::new();
        let client = self.client(USER_CONTROLLER);
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let task = tokio::spawn(certificates::run(client, world.clone(), settings, metrics, stop.clone()));
        Leader { world, registry, stop, task }
    }

    async fn certificate(&self) -> Option<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.admin(), AGENT_NAMESPACE);
        secrets.get_opt(&certificate_name("shard1", ZONE)).await.expect("read")
    }

    /// Returns the URL of the order in progress, and the private key for it.
    async fn order_in_progress(&self) -> Option<(String, Vec<u8>)> {
        let secrets: Api<Secret> = Api::namespaced(self.admin(), SCHEDULER_LEASE_NAMESPACE);
        let all = secrets.list(&ListParams::default()).await.expect("listed");
        let data = all.items.into_iter().filter_map(|secret| secret.data).find(|data| data.contains_key("attempt"))?;
        let state: Value = serde_json::from_slice(&data["attempt"].0).expect("JSON");
        Some((state["order"].as_str()?.to_owned(), data["tls.key"].0.clone()))
    }

    /// Returns the state of the order, and whether its Secret has a private key.
    async fn attempt(&self) -> (Value, bool) {
        let secrets: Api<Secret> = Api::namespaced(self.admin(), SCHEDULER_LEASE_NAMESPACE);
        let all = secrets.list(&ListParams::default()).await.expect("listed");
        let is_order =
            |secret: &&Secret| secret.metadata.name.as_deref().is_some_and(|name| name.starts_with("acme-order-"));
        let data = all.items.iter().find(is_order).and_then(|secret| secret.data.clone()).expect("an order");
        let state = serde_json::from_slice(&data["attempt"].0).expect("JSON");
        (state, !data["tls.key"].0.is_empty())
    }

    /// Deletes the platform's Secrets whose names have a prefix; returns their names.
    async fn delete_secrets(&self, prefix: &str) -> Vec<String> {
        let secrets: Api<Secret> = Api::namespaced(self.admin(), SCHEDULER_LEASE_NAMESPACE);
        let all = secrets.list(&ListParams::default()).await.expect("listed");
        let names = all.items.into_iter().filter_map(|secret| secret.metadata.name);
        let names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
        for name in &names {
            secrets.delete(name, &Default::default()).await.expect("deleted");
        }
        names
    }

    /// Returns the Events, each as `type reason note`.
    async fn events(&self) -> Vec<String> {
        let events = Api::<Event>::all(self.admin()).list(&ListParams::default()).await.expect("listed");
        let text = |event: Event| {
            let text = |part: Option<String>| part.unwrap_or_default();
            assert_eq!(event.regarding.and_then(|object| object.kind).as_deref(), Some("Router"));
            format!("{} {} {}", text(event.type_), text(event.reason), text(event.note))
        };
        events.items.into_iter().map(text).collect()
    }

    /// Waits until these are all Events: one of each reason, about a certificate of the CA.
    async fn until_events(&self, reasons: &[&str]) {
        until("the Events", async || {
            let events = self.events().await;
            let has = |reason: &&str| {
                events.iter().any(|event| event.starts_with(&format!("Normal {reason} Stub CA issued")))
            };
            events.len() == reasons.len() && reasons.iter().all(has)
        })
        .await;
    }
}

impl Leader {
    /// Waits until the state of the certificate is this one; returns its message.
    async fn until(&self, is_issued: bool, part: &str) -> String {
        let begun = Instant::now();
        loop {
            let note = self.world.issuance.of("shard1", ZONE);
            if let Some(note) = note.as_ref().filter(|note| note.is_issued == is_issued && note.message.contains(part))
            {
                return note.message.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "{part}: {note:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a host has this state; returns its message.
    async fn until_host(&self, host: &str, is_issued: bool, part: &str) -> String {
        let state = || self.world.issuance.of("shard1", host);
        let is_it = |note: &Note| note.is_issued == is_issued && note.message.contains(part);
        until(part, async || state().is_some_and(|note| is_it(&note))).await;
        state().expect("it has a state").message
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("encoded");
        text
    }

    /// Ends the leader as a crash does.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends without a panic");
    }
}

/// The CA moves the time of renewal into the past, as before a revocation. The new order names the certificate that it replaces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_authority_chooses_the_time_of_renewal() {
    let scene = Scene::start().await;
    let far = Some((["2080-01-01T00:00:00Z", "2080-01-02T00:00:00Z"], 21_600));
    scene.authority.set(Behavior { renewal: far, ..Behavior::default() });
    let leader = scene.lead();
    leader.until(true, "Stub CA issued").await;
    // A leader records an Event after it has shown the state.
    scene.until_events(&["CertificateIssued"]).await;
    leader.stop().await;
    let first = scene.certificate().await.expect("a certificate");
    let orders = scene.authority.orders();
    assert_eq!(orders.len(), 1);
    assert_eq!((orders[0]["profile"].as_str(), orders[0]["replaces"].as_str()), (Some("short"), None));
    let (attempt, has_key) = scene.attempt().await;
    assert!(!has_key && attempt["orders"].as_array().is_some_and(|orders| orders.len() == 1), "{attempt}");

    // Without a reason, two thirds of the validity would be 2068.
    let leader = scene.lead();
    leader.until(true, "the next renewal is at 2080-01-01T").await;
    leader.stop().await;
    assert_eq!(scene.authority.orders().len(), 1);

    scene.authority.set(Behavior { renewal: PAST, ..Behavior::default() });
    let leader = scene.lead();
    until("it is renewed", async || scene.certificate().await != Some(first.clone())).await;
    // This leader has no suggestion for the new certificate yet.
    leader.until(true, "the next renewal is at 206").await;
    scene.until_events(&["CertificateIssued", "CertificateRenewed"]).await;
    leader.stop().await;
    let orders = scene.authority.orders();
    let asked = scene.authority.renewals();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[1]["replaces"].as_str(), asked.first().map(String::as_str));
    assert!(asked.iter().all(|id| *id == asked[0] && id.contains('.')), "{asked:?}");
}

/// A CA that does not know the certificate that an order replaces gets the order without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_that_is_rejected_is_ordered_anew() {
    let scene = Scene::start().await;
    scene.authority.set(Behavior { renewal: PAST, rejects_replacements: true, ..Behavior::default() });
    let leader = scene.lead();
    leader.until(true, "Stub CA issued").await;
    leader.stop().await;
    let first = scene.certificate().await;
    let leader = scene.lead();
    until("it is renewed", async || scene.certificate().await != first).await;
    leader.stop().await;
    let orders = scene.authority.orders();
    let replaces: Vec<bool> = orders.iter().map(|order| !order["replaces"].is_null()).collect();
    assert_eq!(replaces, [false, true, false]);
}

/// The pause that a CA requires holds for the next leader as well. Only the first failure is an Event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pause_of_a_rate_limit_is_kept() {
    let scene = Scene::start().await;
    scene.authority.set(Behavior { problem: Some(("rateLimited", 7_200)), ..Behavior::default() });
    let leader = scene.lead();
    let message = leader.until(false, "not now (urn:ietf:params:acme:error:rateLimited)").await;
    assert!(message.contains("the next attempt is at"), "{message}");
    until("there is an Event", async || !scene.events().await.is_empty()).await;
    leader.stop().await;
    let now = Timestamp::now().as_second();
    let (attempt, _) = scene.attempt().await;
    let retry_at = attempt["retryAt"].as_i64().expect("a time");
    assert!((now + 7_100..=now + 7_201).contains(&retry_at), "{attempt}");
    assert_eq!(attempt["orders"].as_array().map(Vec::len), Some(1));
    for _ in 0..3 {
        let leader = scene.lead();
        leader.until(false, "not now").await;
        leader.stop().await;
    }
    assert_eq!(scene.authority.orders().len(), 1);
    let events = scene.events().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(
        events[0].starts_with("Warning CertificateFailed no certificate for *.shard1.v3.example and "),
        "{events:?}"
    );
    assert!(events[0].contains("not now (urn:ietf:params:acme:error:rateLimited)"), "{events:?}");
}

/// A leader is killed at each request to the CA, after the CA has handled it. The next one continues: no key is lost, and at most one order is
/// repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_at_any_step_has_a_successor() {
    let (mut resumed, mut steps) = (0, 0);
    loop {
        let scene = Scene::start().await;
        scene.authority.fall_silent_after(Some(steps));
        let leader = scene.lead();
        until("it is issued, or the CA falls silent", async || {
            scene.authority.is_silent() || scene.certificate().await.is_some()
        })
        .await;
        leader.kill().await;
        if !scene.authority.is_silent() {
            break;
        }
        let before = scene.order_in_progress().await;
        scene.authority.fall_silent_after(None);
        let leader = scene.lead();
        leader.until(true, "Stub CA issued").await;
        leader.stop().await;
        let orders = scene.authority.orders().len();
        let data = scene.certificate().await.and_then(|secret| secret.data).expect("a certificate");
        match before {
            Some((_, key)) => {
                resumed += 1;
                assert_eq!((orders, &data["tls.key"].0), (1, &key), "step {steps}");
            }
            None => assert!(orders <= 2, "step {steps}: {orders}"),
        }
        steps += 1;
    }
    assert!(steps >= 6 && resumed >= 2, "{steps} {resumed}");
}

/// The platform creates no other account for one that the CA has revoked. The message names the Secret to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_account_is_replaced_when_its_secret_is_deleted() {
    let (scene, good) = Scene::with_certificate().await;
    let revoked = Behavior { renewal: PAST, revoked_accounts: 1, ..Behavior::default() };
    scene.authority.set(revoked);
    let leader = scene.lead();
    let message = leader.until(true, "the account is revoked (urn:ietf:params:acme:error:unauthorized)").await;
    leader.stop().await;
    let count = scene.authority.orders().len();
    let leader = scene.lead();
    leader.until(true, "the account is revoked").await;
    leader.stop().await;
    assert_eq!(scene.authority.orders().len(), count, "no attempt before its time");
    assert_eq!(scene.certificate().await.as_ref(), Some(&good));

    let accounts = scene.delete_secrets("acme-account-").await;
    assert_eq!(accounts.len(), 1);
    let advice = format!("; to create another account, delete Secret signpost-system/{}", accounts[0]);
    assert!(message.contains(&advice), "{message}");
    scene.delete_secrets("acme-order-").await;
    let leader = scene.lead();
    until("it is renewed", async || scene.certificate().await.as_ref() != Some(&good)).await;
    leader.stop().await;
}

/// A certificate for other names or another key, or no certificate at all, leaves the last good one in place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_replaces_no_good_one() {
    let (scene, good) = Scene::with_certificate().await;
    for (chain, expected) in [
        (Chain::OtherNames, "sent a certificate for other names"),
        (Chain::OtherKey, "sent a certificate for another key"),
        (Chain::Rubbish, "sent no valid chain of certificates"),
        (Chain::Torn, "sent no valid chain of certificates"),
        (Chain::Unrelated, "sent certificates that do not form a chain"),
        (Chain::Expired, "has to be renewed at once; check the clock"),
    ] {
        // The pause after the failure before is over.
        scene.delete_secrets("acme-order-").await;
        let count = scene.authority.orders().len();
        scene.authority.set(Behavior { renewal: PAST, chain, ..Behavior::default() });
        let leader = scene.lead();
        let message = leader.until(true, expected).await;
        leader.stop().await;
        assert!(
            message.starts_with("Stub CA issued a certificate for") && message.contains("; the renewal: "),
            "{message}"
        );
        assert_eq!(scene.certificate().await.as_ref(), Some(&good), "{chain:?}");
        assert_eq!(scene.authority.orders().len(), count + 1, "{chain:?}");
        let (attempt, _) = scene.attempt().await;
        assert_eq!((attempt["order"].as_str(), attempt["failures"].as_u64()), (None, Some(1)), "{chain:?} {attempt}");
    }
}

/// A CA that fails while it signs has validated the names: the next order does not wait long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ca_that_does_not_sign_fails_no_validation() {
    let scene = Scene::start().await;
    scene.authority.set(Behavior { fails_to_sign: true, ..Behavior::default() });
    let leader = scene.lead();
    leader.until(false, "cannot sign").await;
    leader.stop().await;
    let (attempt, _) = scene.attempt().await;
    assert_eq!((attempt["order"].as_str(), attempt["failedValidations"].as_u64()), (None, Some(0)), "{attempt}");
    assert!(attempt["retryAt"].as_i64().expect("a time") < Timestamp::now().as_second() + 60, "{attempt}");
}

/// Some CAs validate a name before they respond to the request for it. The problem has the type of a revoked account, and is about the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_validation_that_fails_in_its_request_is_one() {
    let challenges = Some(("dns-01", Validation::Fails));
    let scene = Scene::with_dns(Behavior { challenges, ..Behavior::default() }).await;
    let leader = scene.lead();
    let message = leader.until(false, "wrong record (urn:ietf:params:acme:error:unauthorized)").await;
    leader.stop().await;
    assert!(!message.contains("delete Secret"), "{message}");
    let (attempt, _) = scene.attempt().await;
    assert_eq!((attempt["order"].as_str(), attempt["failedValidations"].as_u64()), (None, Some(1)), "{attempt}");
    assert!(attempt["retryAt"].as_i64().expect("a time") > Timestamp::now().as_second() + 600, "{attempt}");
    assert!(scene.records().await.is_empty(), "the order has ended");
}

/// Two orders find at the same time that the CA has lost the account. They create one account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_account_is_replaced_once() {
    let scene = Scene::start().await;
    let leader = scene.lead();
    leader.until(true, "Stub CA issued").await;
    scene.authority.set(Behavior { lost_accounts: 1, ..Behavior::default() });
    scene.create_namespace("shop").await;
    let hosts = ["a.shop.example", "b.shop.example"];
    for (name, host) in ["a", "b"].into_iter().zip(hosts) {
        scene.create_route("shop", name, host).await;
    }
    for host in hosts {
        leader.until_host(host, true, "Stub CA issued").await;
    }
    leader.stop().await;
    assert_eq!(scene.authority.accounts(), 2);
}

/// A CA that is away, or that a CAA record forbids, receives no order: the namespace can place as many as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_ca_does_not_receive_does_not_count() {
    let caa_identity = Some("ca.example");
    let scene = Scene::with_dns(Behavior { is_away: true, caa_identity, ..Behavior::default() }).await;
    scene.create_namespace("shop").await;
    scene.create_route("shop", "www", "www.shop.example").await;
    let leader = scene.lead();
    let part = "sent no valid response";
    leader.until_host("www.shop.example", false, part).await;
    leader.until(false, part).await;
    leader.stop().await;
    assert!(scene.placed_orders().await.is_empty());

    scene.delete_secrets("acme-order-").await;
    scene.dns.as_ref().expect("it has one").forbid("shop.example");
    scene.authority.set(Behavior { caa_identity, ..Behavior::default() });
    let leader = scene.lead();
    leader.until_host("www.shop.example", false, "the CAA record at shop.example").await;
    leader.until(true, "Stub CA issued").await;
    leader.stop().await;
    assert_eq!(scene.placed_orders().await.len(), 1, "that of the zone");
    assert_eq!(scene.orders_below("shop.example"), 0);
}

/// An order that continues keeps its TXT records, and renews those that expire soon. They are deleted when it has its result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_continues_keeps_its_records() {
    let behavior = |result| Behavior { challenges: Some(("dns-01", result)), ..Behavior::default() };
    let scene = Scene::with_dns(behavior(Validation::Overloaded)).await;
    let leader = scene.lead();
    leader.until(false, "overloaded").await;
    leader.stop().await;
    let (attempt, records) = (scene.attempt().await.0, scene.records().await);
    assert!(attempt["order"].is_string(), "{attempt}");
    assert_eq!(records.len(), 2, "one for each name");

    // Half an hour later, in the same order.
    let api: Api<ChallengeRecord> = Api::namespaced(scene.admin(), SCHEDULER_LEASE_NAMESPACE);
    let soon = Timestamp::now() + Duration::from_secs(1_700);
    for record in &records {
        let name = record.metadata.name.clone().expect("a name");
        let spec = ChallengeRecordSpec { expires_at: Time(soon), ..record.spec.clone() };
        api.delete(&name, &Default::default()).await.expect("deleted");
        api.create(&PostParams::default(), &ChallengeRecord::new(&name, spec)).await.expect("created");
    }
    let leader = scene.lead();
    until("they are renewed", async || {
        let records = scene.records().await;
        records.len() == 2 && records.iter().all(|record| record.spec.expires_at.0 > soon)
    })
    .await;
    scene.authority.set(behavior(Validation::Good));
    leader.until(true, "Stub CA issued").await;
    leader.stop().await;
    assert!(scene.records().await.is_empty());
    assert_eq!(scene.authority.orders().len(), 1);
}

/// The owner of a host with an asterisk chooses the Route that proves it. Another Route of the host changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_route_of_a_host_with_an_asterisk_proves_it() {
    const HOST: &str = "*.shop.example";
    let challenges = Some(("dns-01", Validation::Good));
    let scene = Scene::with_dns(Behavior { challenges, renewal: PAST, ..Behavior::default() }).await;
    let dns = scene.dns.as_ref().expect("it has one");
    scene.create_namespace("shop").await;
    scene.create_route("shop", "b", HOST).await;
    let leader = scene.lead();
    leader.until_host(HOST, false, "\"_acme-challenge.shop.example CNAME shop-b.acme.v3.example.\" exists").await;
    assert!(leader.metrics().contains("acme_failing_certificates{class=\"host\"} 0"), "{}", leader.metrics());
    leader.stop().await;
    dns.lead("_acme-challenge.shop.example", "shop-b.acme.v3.example");
    scene.create_route("shop", "a", HOST).await;
    let leader = scene.lead();
    leader.until_host(HOST, true, "Stub CA issued").await;
    leader.stop().await;

    // It has to be renewed, which fails without the record.
    dns.lead("_acme-challenge.shop.example", "other.example");
    let count = scene.orders_below("shop.example");
    for _ in 0..2 {
        let leader = scene.lead();
        leader.until_host(HOST, true, "the renewal: the platform orders a certificate").await;
        let failing = "acme_failing_certificates{class=\"host\"} 1";
        until("it is failing", async || leader.metrics().contains(failing)).await;
        leader.stop().await;
    }
    assert_eq!(scene.orders_below("shop.example"), count);
    let warning = |note: &str| note.starts_with("no certificate for *.shop.example: the platform orders");
    until("there are Events", async || scene.notes("CertificateFailed").await.iter().any(|note| warning(note))).await;
    // One for each Route.
    assert_eq!(scene.notes("CertificateFailed").await.len(), 2);
}

/// A CA that has no time of renewal for one certificate has those of others, also without `Retry-After`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_without_a_time_of_renewal_stops_no_other() {
    let scene = Scene::start().await;
    scene.create_namespace("shop").await;
    scene.create_route("shop", "www", "www.shop.example").await;
    let leader = scene.lead();
    leader.until(true, "Stub CA issued").await;
    leader.until_host("www.shop.example", true, "Stub CA issued").await;
    leader.stop().await;
    assert_eq!(scene.authority.orders().len(), 2);
    scene.authority.set(Behavior { renewal: PAST, has_half_of_renewals: true, ..Behavior::default() });
    let leader = scene.lead();
    until("the other one is renewed", async || scene.authority.orders().len() == 3).await;
    leader.stop().await;
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of a test")
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Scene {
    async fn create_namespace(&self, name: &str) {
        let namespace = json!({"metadata": {"name": name}});
        Api::<Namespace>::all(self.admin()).create(&PostParams::default(), &object(namespace)).await.expect("created");
    }

    /// Returns the TXT records of the platform's own orders.
    async fn records(&self) -> Vec<ChallengeRecord> {
        let records: Api<ChallengeRecord> = Api::namespaced(self.admin(), SCHEDULER_LEASE_NAMESPACE);
        records.list(&ListParams::default()).await.expect("listed").items
    }

    /// Returns the orders that count for the budget.
    async fn placed_orders(&self) -> Vec<Value> {
        let secrets: Api<Secret> = Api::namespaced(self.admin(), SCHEDULER_LEASE_NAMESPACE);
        let all = secrets.list(&ListParams::default()).await.expect("listed").items.into_iter();
        let attempts = all.filter_map(|secret| Some(secret.data?.remove("attempt")?.0));
        let attempts = attempts.map(|text| serde_json::from_slice::<Value>(&text).expect("JSON"));
        attempts.flat_map(|attempt| attempt["orders"].as_array().cloned().unwrap_or_default()).collect()
    }

    /// Returns the notes of the Events with a reason.
    async fn notes(&self, reason: &str) -> Vec<String> {
        let events = Api::<Event>::all(self.admin()).list(&ListParams::default()).await.expect("listed").items;
        let has_reason = |event: &Event| event.reason.as_deref() == Some(reason);
        events.into_iter().filter(has_reason).filter_map(|event| event.note).collect()
    }

    /// Creates a Route with a custom host that leads here, as the scheduler and the reconciler report it.
    async fn create_route(&self, namespace: &str, name: &str, host: &str) {
        let (routes, label) = (Api::<Route>::namespaced(self.admin(), namespace), format!("{namespace}-{name}"));
        let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": name},
            "spec": {"to": {"name": "web"}, "host": host, "tls": {"termination": "edge"}}});
        let created = routes.create(&PostParams::default(), &object(route)).await.expect("created");
        let (uid, generation) = (created.metadata.uid, created.metadata.generation);
        let holder = json!({"namespace": namespace, "name": name, "uid": uid});
        let claim = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": label},
            "spec": {"type": "label", "value": label, "since": "2026-01-01T00:00:00Z", "holder": holder}});
        let scheduler = self.client(USER_SCHEDULER);
        Api::<NameClaim>::all(scheduler.clone()).create(&PostParams::default(), &object(claim)).await.expect("claimed");
        let binding = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"name": name},
            "spec": {"routeNamespace": namespace, "routeName": name, "routeUID": uid, "router": "shard1",
                "dns": "shard1.v3.example", "label": label, "strategy": "round-robin", "names": [
                    {"name": format!("{label}.shard1.v3.example"), "type": "system"},
                    {"name": format!("{label}.routes.v3.example"), "type": "alias"},
                    {"name": host, "type": "custom", "record": format!("{host} CNAME {label}.routes.v3.example.")}]}});
        let bindings = Api::<RouteBinding>::namespaced(scheduler, namespace);
        bindings.create(&PostParams::default(), &object(binding)).await.expect("bound");
        let status = json!({"status": {"observedGeneration": generation, "conditions": [{"type": "HostPointsHere",
            "status": "True", "reason": "PointsHere", "message": "", "observedGeneration": generation,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        routes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
    }

    /// Returns the number of orders for names below a domain.
    fn orders_below(&self, domain: &str) -> usize {
        let orders = self.authority.orders();
        orders.iter().filter(|order| order["identifiers"].to_string().contains(domain)).count()
    }
}

/// A namespace with very many hosts at once gets its share of the orders, over several leaders. Others get theirs meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_very_many_hosts_uses_its_own_budget() {
    const HOSTS: usize = 1_000;
    let scene = Scene::start().await;
    for namespace in ["attacker", "bystander"] {
        scene.create_namespace(namespace).await;
    }
    for at in 0..HOSTS {
        scene.create_route("attacker", &format!("r{at}"), &format!("h{at}.attacker.example")).await;
    }
    for leader in 0..3 {
        let running = scene.lead();
        let host = format!("www{leader}.bystander.example");
        scene.create_route("bystander", &format!("www{leader}"), &host).await;
        let state = |host: &str| running.world.issuance.of("shard1", host);
        until("the bystander has a certificate", async || state(&host).is_some_and(|note| note.is_issued)).await;
        let hosts = || (0..HOSTS).map(|at| format!("h{at}.attacker.example"));
        until("each host has a state", async || hosts().all(|host| state(&host).is_some())).await;
        let issued = hosts().filter_map(|host| state(&host)).filter(|note| note.is_issued).count();
        let limited = hosts().filter_map(|host| state(&host)).filter(|note| note.reason == "OrdersLimited").count();
        assert_eq!((issued, limited), (10, HOSTS - 10), "leader {leader}");
        running.stop().await;
        assert_eq!((scene.orders_below("attacker.example"), scene.orders_below("bystander.example")), (10, leader + 1));
    }
}
