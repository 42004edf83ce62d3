//! `signpost simulate`: predicts the effect on Routes if Routers are added, removed, or changed.
//!
//! The command reads the platform once, applies the changes to the copy in order, and runs the scheduler's own
//! decisions on it (`scheduler::simulation`). It writes nothing. It sends added Routers to the API as a dry run, so
//! that the API's validation applies.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command};
use kube::Api;
use kube::api::{Patch, PatchParams, ValidationDirective};

use super::access::{self, ApiLocation};
use super::moves::KEYS;
use super::moves::plan::{Capacity, MovePlan};
use super::moves::reading::{API_TIMEOUT, MoveContext};
use super::output::{self, Format};
use super::platform::{QUARANTINE_MAX, RESERVED_LABELS};
use super::{Error, Outcome, file, serve};
use crate::daemon::manifests;
use signpost_types::v1alpha1::router::{Router, RouterState};

/// The field manager of the dry runs.
const MANAGER: &str = "signpost-simulate";
/// The largest weight of a Router, as in its schema.
const WEIGHT_MAX: i64 = 1000;

pub(super) fn command() -> Command {
    let several = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).action(ArgAction::Append).help(help)
    };
    let add = several("add", "FILE", "Create or update the Routers in a YAML or JSON file (repeats)");
    let weight =
        several("set-weight", "ROUTER=N", "Set the weight of a Router, 0 to 1000 (repeats)").value_parser(weight);
    Command::new("simulate")
        .about("Simulate adding, changing, or removing Routers (makes no changes)")
        .after_help(
            "The simulation applies the changes in this order: --add, --set-weight, --cordon, --uncordon, --drain, \
             --remove. It uses the platform's strategy unless --scheduler-strategy is set. As on the platform, a bound \
             Route leaves its Router only if the Router is drained or removed. Exit codes: 0 simulated, 1 the API \
             rejected a change, an object does not exist, or the API is unreachable, 2 invalid usage.",
        )
        .arg(file(add))
        .arg(weight)
        .arg(several("cordon", "ROUTER", "Mark a Router as unschedulable (repeats)"))
        .arg(several("uncordon", "ROUTER", "Mark a Router as schedulable (repeats)"))
        .arg(several("drain", "ROUTER", "Drain a Router: move its Routes to other Routers (repeats)"))
        .arg(several("remove", "ROUTER", "Drain a Router and delete it (repeats)"))
        .args([output::argument(), access::context_argument()])
        .args(serve::arguments_of(KEYS))
        .args(serve::flags_of(&[QUARANTINE_MAX, RESERVED_LABELS]))
}

fn weight(text: &str) -> Result<(String, u32), String> {
    let parsed = text.split_once('=').and_then(|(name, weight)| Some((name, weight.parse::<u32>().ok()?)));
    match parsed {
        Some((name, weight)) if !name.is_empty() && i64::from(weight) <= WEIGHT_MAX => Ok((name.to_owned(), weight)),
        _ => Err(format!("must be ROUTER=N with N from 0 to {WEIGHT_MAX}")),
    }
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let files: Vec<PathBuf> = matches.get_many::<PathBuf>("add").into_iter().flatten().cloned().collect();
    let documents = manifests::read(&files)
        .map_err(|errors| Error::Usage(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))?;
    let plan = access::run(API_TIMEOUT, simulate(matches, &place, documents))?;
    Format::of(matches).show(&plan, |painter| plan.table(painter))
}

async fn simulate(
    matches: &ArgMatches,
    place: &ApiLocation,
    documents: Vec<manifests::Document>,
) -> Result<MovePlan, String> {
    let names = |name: &str| matches.get_many::<String>(name).into_iter().flatten();
    let mut platform = MoveContext::read(place).await?;
    let mut added = Vec::new();
    for document in documents {
        added.push(dry_run(&platform, document).await?);
    }
    let before = Capacity::of(&platform.simulation);
    let simulation = &mut platform.simulation;
    for router in added {
        simulation.set_router(router);
    }
    let absent = |name: &str| format!("NotFound: there is no Router {name}");
    for (name, weight) in matches.get_many::<(String, u32)>("set-weight").into_iter().flatten() {
        simulation.edit_router(name, |router| router.weight = *weight).then_some(()).ok_or_else(|| absent(name))?;
    }
    let states = [
        ("cordon", RouterState::Cordoned),
        ("uncordon", RouterState::Active),
        ("drain", RouterState::Draining),
        ("remove", RouterState::Draining),
    ];
    for (option, state) in states {
        for name in names(option) {
            simulation.edit_router(name, |router| router.state = state).then_some(()).ok_or_else(|| absent(name))?;
        }
    }
    let strategy = platform.known.strategy.strategy();
    // What waits for a Router is placed before anything moves, and has another chance when that has made room.
    let mut steps = simulation.place(strategy);
    steps.retain(|step| step.outcome.is_ok());
    steps.extend(simulation.drain(strategy));
    steps.extend(simulation.place(strategy));
    let mut plan = MovePlan::new("simulate", true);
    plan.notes.extend(platform.known.caveat.map(str::to_owned));
    plan.add_steps(steps, &platform.simulation, &platform.context);
    let simulation = &mut platform.simulation;
    for name in names("remove") {
        match simulation.router(name).map_or(0, |(_, shard)| shard.routes) {
            0 => {
                simulation.remove_router(name);
                plan.notes.push(format!(
                    "{name} can be deleted after the former names in its zone expire; the deletion removes the zone \
                     with these names"
                ));
            }
            left => {
                plan.notes.push(format!("{name} would not be deleted: no other Router can take {left} of its Routes"))
            }
        }
    }
    plan.capacity = Capacity::compare(&before, simulation);
    Ok(plan)
}

/// Returns the Router as it would be if it were applied.
async fn dry_run(platform: &MoveContext, document: manifests::Document) -> Result<Router, String> {
    let manifests::Document { location, object } = document;
    if object["kind"] != "Router" {
        return Err(format!("{location}: only Routers can be added to a simulation"));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let routers: Api<Router> = Api::all(platform.access.client.clone());
    let parameters = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply(MANAGER).force().dry_run()
    };
    let patch = Patch::Apply(object);
    match routers.patch(&name, &parameters, &patch).await {
        Ok(router) => Ok(router),
        Err(kube::Error::Api(status)) => Err(format!("{location}: {}", status.message)),
        Err(error) => Err(platform.access.unanswered(error)),
    }
}
