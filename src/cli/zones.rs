//! The zones of a platform for a single read by a command: built from the API's objects as in a name server, under the
//! serials in the Zone objects, and read from zone files.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::access::{Access, ApiLocation};
use super::folder::StaticZones;
use super::platform::PlatformSettings;
use super::style::Style;
use super::table::Cell;
use super::{complain, hold, note};
use crate::config::Settings;
use crate::daemon::platform;
use signpost_control::compiler::{self, apex};
use signpost_control::name_server::export::{self, Export};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Contents;
use signpost_dns::zonefile::rdata_out;
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::ZoneKind;

/// The configuration keys for the zones.
pub(super) const KEYS: &[&str] =
    &["kubeconfig", "api-server", "data-dir", "domain", "nameserver", "zones", "dns.listen"];

/// A record in the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct RecordLine {
    pub(super) owner: String,
    ttl: u32,
    #[serde(rename = "type")]
    pub(super) rtype: String,
    data: String,
}

impl RecordLine {
    /// Returns the record with this data.
    pub(super) fn new(owner: &Name, ttl: u32, rtype: RecordType, rdata: &[u8]) -> RecordLine {
        RecordLine { owner: owner.to_string(), ttl, rtype: rtype.to_string(), data: rdata_out::text(rtype, rdata) }
    }
}

impl fmt::Display for RecordLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordLine { owner, ttl, rtype, data } = self;
        write!(f, "{owner} {ttl} IN {rtype} {data}")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Routers, the configuration, and the base file if there is one.
    Parent,
    Alias,
    Shard(String),
    File(PathBuf),
}

impl Source {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Source::Parent => "parent",
            Source::Alias => "alias",
            Source::Shard(_) => "shard",
            Source::File(_) => "file",
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ZoneEntry {
    /// The records of the zone, including its SOA.
    pub(super) contents: Contents,
    pub(super) source: Source,
    /// Whether name servers publish it under the same serial: it is in the ledger, or in a file.
    pub(super) serial_is_sure: bool,
}

/// The common output of all commands for a zone. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ZoneSummary {
    pub(super) zone: String,
    /// `parent`, `alias`, `shard` or `file`.
    pub(super) kind: &'static str,
    pub(super) serial: Option<u32>,
    /// Whether the serial is allocated.
    pub(super) published: bool,
}

impl ZoneEntry {
    /// Returns the common output of all commands for the zone.
    pub(super) fn summary(&self) -> ZoneSummary {
        ZoneSummary {
            zone: self.contents.apex().to_string(),
            kind: self.source.kind(),
            serial: apex::serial_of(&self.contents),
            published: self.serial_is_sure,
        }
    }
}

impl ZoneSummary {
    /// Returns the serial, in parentheses if it is not allocated.
    pub(super) fn serial_cell(&self) -> Cell {
        match self.serial {
            Some(serial) if self.published => Cell::from(serial.to_string()),
            Some(serial) => Cell::styled(Style::Warning, format!("({serial})")).ranked(serial),
            None => Cell::or_dash(None::<String>),
        }
    }
}

/// All zones, and what they were made from.
#[derive(Debug, Default)]
pub(super) struct Zones {
    /// The parent zone, the alias zone, the shards' in canonical order, then those of files in the order of their
    /// names.
    pub(super) zones: Vec<ZoneEntry>,
    pub(super) routers: Vec<Router>,
    pub(super) bindings: Vec<RouteBinding>,
    /// The settings that apply to every zone; none without an API.
    pub(super) platform: Option<compiler::Settings>,
    /// The addresses at which the platform verifies names, from the API.
    pub(super) asked: Vec<SocketAddr>,
    /// The paths of Routes on custom hosts, by `namespace/name`, if claims were read.
    pub(super) paths: BTreeMap<String, String>,
}

/// The inputs of zones other than the API's objects: zone files and the configuration.
pub(super) struct ZoneInputs {
    files: Vec<(PathBuf, Contents)>,
    /// The API, and the settings that apply to its zones; none without an API.
    pub(super) api: Option<(Access, compiler::Settings)>,
    asked: Vec<SocketAddr>,
    /// The paths for [`Zones::paths`].
    pub(super) paths: BTreeMap<String, String>,
}

impl ZoneInputs {
    /// Reads the zone directory, if there is one, and connects to the API if the second argument is set. Prints errors
    /// of invalid files.
    pub(super) async fn find(place: &ApiLocation, ask: bool) -> Result<ZoneInputs, String> {
        let settings = &place.settings;
        let mut files = match &settings.zones {
            None => StaticZones::default(),
            Some(folder) => StaticZones::read(folder).map_err(|error| error.to_string())?,
        };
        for finding in files.errors() {
            complain(finding);
        }
        if files.errors().next().is_some() {
            return Err("zone files contain errors".to_owned());
        }
        let (mut api, mut asked) = (None, Vec::new());
        if ask {
            let access = place.connect().await?;
            let known = PlatformSettings::find(place, &access).await?;
            let listened: Vec<_> = settings.dns.listen.iter().map(|address| address.ip()).collect();
            let base = files.take(&known.domain);
            if known.name_servers.is_none() {
                note("the platform's name servers are unknown; set --nameserver, or the --config of the server");
            }
            asked = known.asked.iter().filter_map(|address| address.parse().ok()).collect();
            let nameserver = known.name_servers.unwrap_or_default();
            let mut settings = Settings { domain: known.domain, nameserver, ..settings.clone() };
            settings.nameserver_transport = known.transports;
            if let Some(path) = known.https_path {
                settings.dns_https.path = path;
            }
            let platform = platform::settings(&settings, &listened, base).map_err(|error| error.to_string())?;
            let former = known.former_domains;
            let bases = former.iter().filter_map(|former| files.take(&former.domain));
            let bases: BTreeMap<Name, Arc<Contents>> =
                bases.map(|base| (base.apex().clone(), Arc::new(base))).collect();
            let platform = platform.with_former_domains(&former, |domain| bases.get(domain).cloned());
            // Users who may not read DeletionHolds get no note.
            let holds = access.all_permitted::<DeletionHold>().await?.unwrap_or_default();
            hold::line(&holds).into_iter().for_each(note);
            api = Some((access, platform));
        }
        Ok(ZoneInputs { files: files.into_zones(), api, asked, paths: BTreeMap::new() })
    }

    /// Returns the zones, including the zones compiled from the API's objects. As in a name server, the file of a shard's zone comes before
    /// its Router.
    pub(super) fn zones(&self, exported: Option<Export>) -> Zones {
        let mut zones = Zones { asked: self.asked.clone(), paths: self.paths.clone(), ..Zones::default() };
        if let Some(exported) = exported {
            zones.zones.extend(exported.zones.into_iter().map(|zone| ZoneEntry {
                contents: zone.contents,
                source: match (zone.kind, zone.router) {
                    (ZoneKind::Parent, _) => Source::Parent,
                    (ZoneKind::Alias, _) => Source::Alias,
                    (ZoneKind::Shard, router) => Source::Shard(router.unwrap_or_default().into()),
                },
                serial_is_sure: zone.in_ledger,
            }));
            zones.routers = exported.routers;
            zones.bindings = exported.bindings;
            zones.platform = self.api.as_ref().map(|(_, platform)| platform.clone());
        }
        for (path, contents) in &self.files {
            let (apex, path) = (contents.apex(), path.clone());
            let (contents, source) = (contents.clone(), Source::File(path.clone()));
            let entry = ZoneEntry { contents, source, serial_is_sure: true };
            match zones.zones.iter_mut().find(|zone| zone.contents.apex() == apex) {
                None => zones.zones.push(entry),
                Some(found) if matches!(found.source, Source::Shard(_)) => {
                    note(format_args!("zone {apex} comes from the file {}, not from its Router", path.display()));
                    *found = entry;
                }
                Some(_) => {
                    note(format_args!("the file {} is not served: the zone {apex} is generated", path.display()))
                }
            }
        }
        zones
    }
}

impl Zones {
    /// Reads the zone directory, if there is one, and all objects of the API if the second argument is set. Prints the
    /// skipped objects.
    pub(super) async fn gather(place: &ApiLocation, ask: bool) -> Result<Zones, String> {
        let ground = ZoneInputs::find(place, ask).await?;
        let exported = match &ground.api {
            None => None,
            Some((access, platform)) => {
                let exported = export::export(access.client.clone(), platform).await;
                Some(exported.map_err(|error| access.unanswered(error))?)
            }
        };
        exported.iter().for_each(complain_of);
        Ok(ground.zones(exported))
    }

    /// Returns the zone of a name: the longest apex at or above it.
    pub(super) fn of(&self, name: &Name) -> Option<&ZoneEntry> {
        let holds = |zone: &&ZoneEntry| name.is_at_or_below(zone.contents.apex());
        self.zones.iter().filter(holds).max_by_key(|zone| zone.contents.apex().label_count())
    }

    pub(super) fn at(&self, apex: &Name) -> Option<&ZoneEntry> {
        self.zones.iter().find(|zone| zone.contents.apex() == apex)
    }
}

/// Prints the reasons why objects are left out of zones.
pub(super) fn complain_of(exported: &Export) {
    for diagnostic in &exported.diagnostics {
        complain(format_args!("skipped: {diagnostic}"));
    }
}
