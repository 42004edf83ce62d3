//! The cached objects of the API: one informer and one compact type for each kind.
//!
//! The daemon creates one [`World`]. Every loop reads from it, so a process has at most one list-watch of a kind, and one value
//! of each object. A kind is listed when its first reader polls, and no longer watched after its last reader is dropped: a
//! process with only a name server never lists Routes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use self::backend::{ServiceInfo, SliceInfo};
use self::host_names::HostNames;
use self::issuance::Issuance;
use self::observations::Observations;
use self::owners::Owners;
use self::parents::FormerDomains;
use crate::client::reflector::{self, Informer};
use crate::compiler;
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::instance::{self, InstanceReport};
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::name_claim::NameClaim;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::Zone;

pub mod condition;
pub mod host_names;
pub mod issuance;
pub mod observations;

pub mod backend;
pub mod binding;
pub mod challenge;
pub mod claim;
pub mod namespace;
pub mod objects;
pub mod owners;
pub mod parents;
pub mod quarantine;
pub mod route;
pub mod router;

pub use binding::BindingInfo;
pub use challenge::ChallengeInfo;
pub use claim::ClaimInfo;
pub use namespace::NamespaceInfo;
pub use quarantine::Quarantined;
pub use route::RouteInfo;
pub use router::RouterInfo;

/// The longest wait after a failed list of deletion holds or ChallengeRecords. A cluster with older definitions lacks the kinds: requests for them fail
/// until an administrator installs the current ones.
const HOLDS_WAIT_LONGEST: Duration = Duration::from_secs(60);

/// The informers.
#[derive(Clone)]
pub struct World {
    pub routers: Informer<RouterInfo>,
    pub routes: Informer<RouteInfo>,
    /// The informer of RouteBindings.
    pub bindings: Informer<BindingInfo>,
    pub claims: Informer<ClaimInfo>,
    /// The informer of ChallengeRecords.
    pub challenges: Informer<ChallengeInfo>,
    /// The numbers of labels in quarantine and reserved hosts, from the NameClaims.
    pub quarantined: Quarantined,
    pub namespaces: Informer<NamespaceInfo>,
    /// The informer of Zones, the ledger of serials. There is one object for each shard, kept unchanged.
    pub zones: Informer<Zone>,
    /// The former domains that are served, from the Zones.
    pub former_domains: FormerDomains,
    /// The informer of deletion holds. There are few, so they are kept unchanged.
    pub holds: Informer<DeletionHold>,
    /// The informer of the Leases of Routers' instances; `None`: a Lease that is not the report of an instance.
    pub instances: Informer<Option<InstanceReport>>,
    /// The informer of all Services, read only if a Router has instances.
    pub services: Informer<ServiceInfo>,
    /// The informer of all EndpointSlices, read only if a Router has instances.
    pub slices: Informer<SliceInfo>,
    /// The Routers and Routes whose loss is held, from both kinds.
    pub owners: Owners,
    /// The findings of this process for the statuses of Routes and Routers.
    pub observations: Arc<Observations>,
    /// The state of the certificates that the platform gets.
    pub issuance: Issuance,
    /// The host names of load balancers, and their addresses.
    pub host_names: HostNames,
    /// The settings for reading objects.
    pub settings: Arc<Settings>,
}

impl World {
    /// Returns informers that list and watch through `client`, and read objects with these settings.
    pub fn new(client: &kube::Client, settings: Settings) -> Self {
        let listing = reflector::Settings::default;
        let watch_longest = settings.watch_longest.unwrap_or(listing().watch_longest);
        let of_zones = reflector::Settings { watch_longest, ..listing() };
        let domain: Arc<str> = settings.platform.domain_text().into();
        let settings = Arc::new(settings);
        let reading = Arc::clone(&settings);
        let own = Arc::clone(&domain);
        let former_domains = FormerDomains::default();
        let served = former_domains.clone();
        let quarantined = Quarantined::default();
        let counted = quarantined.clone();
        let owners = Owners::default();
        let (routers, routes) = (owners.clone(), owners.clone());
        let patient = reflector::Settings { backoff_longest: HOLDS_WAIT_LONGEST, ..listing() };
        let leases = reflector::Settings {
            namespace: Some(AGENT_NAMESPACE.to_owned()),
            label_selector: Some(instance::SELECTOR.to_owned()),
            ..listing()
        };
        World {
            routers: Informer::indexed(
                client.clone(),
                of_zones.clone(),
                move |one: Router| RouterInfo::new(&one, &reading),
                move |change| routers.take_routers(change),
            ),
            routes: Informer::indexed(
                client.clone(),
                listing(),
                |one: Route| RouteInfo::new(&one),
                move |change| routes.take_routes(change),
            ),
            bindings: Informer::new(client.clone(), of_zones, move |one: RouteBinding| {
                BindingInfo::of_platform(&one, &domain)
            }),
            claims: Informer::indexed(
                client.clone(),
                listing(),
                |one: NameClaim| ClaimInfo::new(&one),
                move |change| counted.take(change),
            ),
            challenges: Informer::new(client.clone(), patient.clone(), |one: ChallengeRecord| ChallengeInfo::new(&one)),
            quarantined,
            namespaces: Informer::new(client.clone(), listing(), |one: Namespace| NamespaceInfo::from(one)),
            zones: Informer::indexed(
                client.clone(),
                listing(),
                |one: Zone| one,
                move |change| served.take(change, &own),
            ),
            former_domains,
            holds: Informer::new(client.clone(), patient, |one: DeletionHold| one),
            instances: Informer::new(client.clone(), leases, |one: Lease| InstanceReport::read(&one)),
            services: Informer::new(client.clone(), listing(), |one: Service| ServiceInfo::from(one)),
            slices: Informer::new(client.clone(), listing(), |one: EndpointSlice| SliceInfo::from(one)),
            owners,
            observations: Arc::default(),
            issuance: Issuance::default(),
            host_names: HostNames::default(),
            settings,
        }
    }
}

/// The settings for reading objects.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The platform's zones.
    pub platform: Arc<compiler::Settings>,
    /// The duration of a watch of the objects that zones are made from (see [`reflector::Settings::watch_longest`]); `None`: the usual one.
    pub watch_longest: Option<Duration>,
}

impl Settings {
    pub fn of(platform: Arc<compiler::Settings>) -> Self {
        Settings { platform, watch_longest: None }
    }

    /// Returns the settings of a platform of which only the domain is known.
    ///
    /// # Panics
    ///
    /// If the domain is not usable (see [`compiler::Settings::of_domain`]).
    pub fn of_domain(domain: &str) -> Self {
        Settings::of(Arc::new(compiler::Settings::of_domain(domain).expect("the caller's domain is usable")))
    }
}

/// Returns the time `by` after another, or the last representable time, if that is earlier.
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(by).unwrap_or(Timestamp::MAX)
}
