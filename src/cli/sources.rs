//! `signpost sources`: shows the shards and names that the objects of a cluster mean, and publishes nothing. Without a cluster, it shows
//! those of the running platform, from the admin endpoint of the process that leads.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, ArgMatches, Command};
use kube::api::{DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::access::{self, API_TIMEOUT, ApiLocation, cause};
use super::output::{self, ListOptions, Listing};
use super::style::Style;
use super::table::{Cell, Table};
use super::{Error, Outcome, file, option, progress, scrape, serve, switch};
use crate::config::value;
use crate::daemon::manifests;
use signpost_control::sources::inventory::{Inventory, Kind};
use signpost_control::sources::{self, Family, Mode, reader};

const SHARD_COLUMNS: [&str; 5] = ["shard", "zone", "addresses", "source", "mode"];
const NAME_COLUMNS: [&str; 5] = ["host", "shard", "source", "admitted-by", "mode"];
const NOTE_COLUMNS: [&str; 3] = ["object", "reason", "message"];

pub(super) fn command() -> Command {
    let cluster = file(option("cluster-kubeconfig", "FILE")).help("The kubeconfig of the cluster to read");
    let files = file(option("filename", "FILE"))
        .short('f')
        .action(ArgAction::Append)
        .help("Read the objects in this YAML or JSON file instead of those of a cluster (repeats)");
    let domains = option("also-domain", "DOMAIN")
        .action(ArgAction::Append)
        .help("A further domain in which shards can be, in addition to --domain (repeats)");
    let classes = option("ingress-class", "CLASS=ZONE")
        .action(ArgAction::Append)
        .value_parser(value::ingress_class)
        .help("The zone of the shard of an ingress class (repeats)");
    let controllers = option("gateway-controller", "NAME")
        .action(ArgAction::Append)
        .help("Read only the Gateways of this controller (repeats) [default: all controllers]");
    let private = switch("private-addresses").help("Accept private addresses, which clients in your networks reach");
    let columns = SHARD_COLUMNS.into_iter().chain(NAME_COLUMNS).chain(NOTE_COLUMNS);
    Command::new("sources")
        .about("Show which shards and names the Gateways, Ingresses, and OpenShift routes of a cluster mean")
        .after_help(
            "Without --cluster-kubeconfig and -f, the command shows what the running platform derives, from the admin endpoint \
             of the process that leads. With a cluster, it reads that, and changes nothing there or on the platform. It needs \
             the permission to list the kinds; one that it cannot list is in the notes. -o name lists the hosts. Exit codes: 0 \
             shown, 1 the cluster or the process is unreachable, or the process does not lead, 2 invalid usage.",
        )
        .args([cluster, files, domains, classes, controllers, private, access::context_argument()])
        .group(ArgGroup::new("objects").args(["cluster-kubeconfig", "filename"]))
        .args(scrape::arguments())
        .args(output::list_arguments(columns))
        .args(serve::arguments_of(&["domain", "data-dir"]))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    if !matches.contains_id("objects") {
        let scrape::Target { urls, authorities } = scrape::target(matches)?;
        let admin = scrape::Admin::new(authorities.as_deref())?;
        let read = || Ok(access::run(API_TIMEOUT, admin.report::<Value>(&urls, "/sources"))?);
        return ListOptions::of(matches).show(read, listing);
    }
    let mut settings = ApiLocation::of(matches)?.settings.sources();
    if settings.domain.is_empty() {
        return Err(Error::Usage("\"domain\" is not set: set --domain NAME".to_owned()));
    }
    let all = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect::<Vec<String>>();
    // Options add to the settings of the platform.
    settings.modes = Family::ALL.into_iter().map(|family| (family, Mode::Show)).collect();
    settings.domains.extend(all("also-domain"));
    settings.gateway_controllers.extend(all("gateway-controller"));
    settings.ingress_classes.extend(matches.get_many("ingress-class").into_iter().flatten().cloned());
    settings.private_addresses |= matches.get_flag("private-addresses");
    let read = || {
        let inventory = match matches.get_one::<PathBuf>("cluster-kubeconfig") {
            Some(kubeconfig) => {
                let context = matches.get_one::<String>("context").cloned();
                let reading = of_cluster(kubeconfig, context, &settings);
                access::run(API_TIMEOUT, progress::during("reading the cluster", reading))?
            }
            None => of_files(matches, &settings)?,
        };
        Ok(json!(sources::derive(&inventory, &settings)))
    };
    ListOptions::of(matches).show(read, listing)
}

/// Reads the objects in files.
fn of_files(matches: &ArgMatches, settings: &sources::Settings) -> Result<Inventory, Error> {
    let files: Vec<PathBuf> = matches.get_many::<PathBuf>("filename").into_iter().flatten().cloned().collect();
    let documents = manifests::read(&files)
        .map_err(|errors| Error::Usage(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
    let mut by_kind: BTreeMap<Kind, Vec<Value>> = Kind::ALL.into_iter().map(|kind| (kind, Vec::new())).collect();
    for manifests::Document { object, .. } in documents {
        let group =
            object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let kind = (group, object["kind"].as_str().unwrap_or_default());
        if let Some(known) = Kind::ALL.into_iter().find(|known| known.group_and_name() == kind) {
            by_kind.entry(known).or_default().push(object);
        }
    }
    let mut inventory = Inventory::default();
    by_kind.into_iter().for_each(|(kind, objects)| inventory.add(kind, objects, &settings.annotation_prefixes));
    Ok(inventory)
}

/// Reads the objects of a cluster. A kind that is not served has none.
async fn of_cluster(
    kubeconfig: &PathBuf,
    context: Option<String>,
    settings: &sources::Settings,
) -> Result<Inventory, String> {
    let at = kubeconfig.display();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).map_err(|error| format!("{at}: {}", cause(&error)))?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.map_err(|error| format!("{at}: {}", cause(&error)))?;
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| format!("{at}: {}", cause(&error)))?;
    let unreachable =
        |error: kube::Error| format!("the API at {url} cannot be read: {} (kubeconfig {at})", cause(&error));
    let discovered = reader::discover(client.clone(), Kind::ALL.into()).await.map_err(unreachable)?;
    let mut inventory = Inventory::default();
    inventory.failures = discovered.unknown;
    for kind in Kind::ALL {
        let Some(resource) = discovered.served.get(&kind) else {
            inventory.set_absent(kind);
            continue;
        };
        match objects(&client, resource).await {
            Ok(objects) => inventory.add(kind, objects, &settings.annotation_prefixes),
            Err(kube::Error::Api(status)) => drop(inventory.failures.insert(kind, status.message)),
            Err(error) => return Err(unreachable(error)),
        }
    }
    Ok(inventory)
}

async fn objects(client: &Client, resource: &ApiResource) -> Result<Vec<Value>, kube::Error> {
    let api = Api::<DynamicObject>::all_with(client.clone(), resource);
    let mut objects = Vec::new();
    access::each(&api, ListParams::default(), |object| {
        objects.push(serde_json::to_value(object).expect("it was JSON"));
    })
    .await?;
    Ok(objects)
}

/// Returns three tables: shards, names, and notes. Their names are the hosts.
fn listing(derived: &Value) -> Listing {
    let list = |name: &str| derived[name].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut shards = Table::bounded(SHARD_COLUMNS);
    for shard in list("shards") {
        let targets = ["addresses", "hostNames"].into_iter().flat_map(|field| shard[field].as_array()).flatten();
        let targets: Vec<String> = targets.map(text).collect();
        let targets = match targets.is_empty() {
            true => Cell::styled(Style::Bad, "none"),
            false => Cell::from(targets.join(", ")),
        };
        let [name, zone, mode] = ["name", "dns", "mode"].map(|field| Cell::from(text(&shard[field])));
        shards.row_of(Vec::new(), [name, zone, targets, source(&shard["source"]).into(), mode]);
    }
    let mut names = Table::bounded(NAME_COLUMNS);
    for name in list("names") {
        let [host, shard, by, mode] =
            ["host", "shard", "admittedBy", "mode"].map(|field| Cell::from(text(&name[field])));
        names.row_of(vec![text(&name["host"])], [host, shard, source(&name["source"]).into(), by, mode]);
    }
    let mut notes = Table::bounded(NOTE_COLUMNS);
    for note in list("notes") {
        let reason = Cell::styled(Style::Warning, text(&note["reason"]));
        notes.row_of(Vec::new(), [source(&note["source"]).into(), reason, text(&note["message"]).into()]);
    }
    let tables: Vec<Table> = [shards, names, notes].into_iter().filter(|table| !table.is_empty()).collect();
    let nothing = "there is no Gateway, Ingress, Service, or OpenShift route that means a shard or a name";
    Listing { note: tables.is_empty().then(|| nothing.to_owned()), tables }
}

/// Returns the text form of an object's name.
fn source(source: &Value) -> String {
    let [kind, namespace, name] = ["kind", "namespace", "name"].map(|field| source[field].as_str().unwrap_or_default());
    match (namespace, name) {
        ("", "") => kind.to_owned(),
        ("", name) => format!("{kind} {name}"),
        (namespace, name) => format!("{kind} {namespace}/{name}"),
    }
}
