//! `signpost move`, `drain`, `cordon`, `uncordon`: the targets of Routes, and the effects for their users.
//!
//! Each command predicts the decisions of the scheduler (`scheduler::simulation`), prints them, and then writes the one
//! field that requests the change, which `kubectl` can write as well: the annotation `signpost.dev/move-to` of a Route,
//! or `spec.state` of a Router. With `--dry-run` it writes nothing.

pub(super) mod plan;
pub(super) mod reading;

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use self::plan::{Capacity, MovePlan};
use self::reading::{API_TIMEOUT, MoveContext};
use super::access::{self, Access, ApiLocation};
use super::output::{self, Format};
use super::style::Painter;
use super::{Exit, Outcome, confirm, note, option, print, serve, switch};
use crate::config::rule::duration_text;
use signpost_control::client::reflector::ObjectKey;
use signpost_types::names::is_at_or_below;
use signpost_types::v1alpha1::route::{MOVE_ANNOTATION, MOVE_PENDING, NameKind, Route};
use signpost_types::v1alpha1::router::{Router, RouterState};

/// The configuration keys for the API, and for moves of Routes.
pub(super) const KEYS: &[&str] = &[
    "kubeconfig",
    "api-server",
    "data-dir",
    "domain",
    "scheduler.strategy",
    "webhook.url",
    "webhook.fallback",
    "scheduler.drain-rate",
    "former-name.retention",
];
/// The polling interval for a moving Route.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// The time limit of a move, unless `--wait` sets another one.
const WAIT_SECONDS: &str = "30";

/// The exit codes of commands that move no Route, so that no setting of the scheduler matters.
const STATE_CODES: &str = "Exit codes: 0 done (or possible, with --dry-run), 1 not possible, or the API is unreachable, \
                           2 invalid usage.";
const EXIT_CODES: &str = "Predictions use the platform's settings from the API; flags and --config take precedence. \
                          Exit codes: 0 done (or possible, with --dry-run), 1 not possible, or the API is unreachable, \
                          2 invalid usage.";

pub(super) fn move_command() -> Command {
    let route = access::route_argument();
    let to = option("to", "ROUTER").required(true).help("The target Router");
    let wait = option("wait", "SECONDS")
        .default_value(WAIT_SECONDS)
        .value_parser(clap::value_parser!(u64).range(0..=3600))
        .help("The maximum wait until the Route has moved; 0: do not wait");
    let route = Command::new("route")
        .about(
            "Move a Route to another Router (its alias switches immediately, and its former name leads to the new one)",
        )
        .after_help(EXIT_CODES)
        .args([route, to, wait, access::namespace_argument()])
        .args(common());
    group("move", "Move a Route to another Router", route)
}

pub(super) fn drain_command() -> Command {
    let about = "Move all Routes of a Router to others at the rate of scheduler.drain-rate, and keep new Routes away";
    group("drain", "Drain a Router", of_router("router", about).arg(confirm::argument()).args(common()))
}

pub(super) fn cordon_command() -> Command {
    of_router("cordon", "Mark a Router as unschedulable (its Routes stay)").after_help(STATE_CODES).args(of_state())
}

pub(super) fn uncordon_command() -> Command {
    let about = "Mark a Router as schedulable (Routes that moved away do not return)";
    of_router("uncordon", about).after_help(STATE_CODES).args(of_state())
}

fn group(name: &'static str, about: &'static str, subcommand: Command) -> Command {
    Command::new(name).about(about).subcommand_required(true).arg_required_else_help(true).subcommand(subcommand)
}

fn of_router(name: &'static str, about: &'static str) -> Command {
    let router = Arg::new("router").value_name("ROUTER").required(true).help("The Router");
    Command::new(name).about(about).after_help(EXIT_CODES).arg(router)
}

fn common() -> impl Iterator<Item = Arg> {
    [dry_run(), output::argument(), access::context_argument()].into_iter().chain(serve::arguments_of(KEYS))
}

fn of_state() -> impl Iterator<Item = Arg> {
    [dry_run(), output::argument()].into_iter().chain(access::arguments())
}

fn dry_run() -> Arg {
    switch("dry-run").help("Print what would happen, and change nothing")
}

pub(super) fn run_move(matches: &ArgMatches) -> Outcome {
    let Some(("route", matches)) = matches.subcommand() else { return Ok(Exit::Usage) };
    let route = access::route(matches)?;
    let to = matches.get_one::<String>("to").expect("clap demands it");
    let wait = Duration::from_secs(*matches.get_one::<u64>("wait").expect("it has a default"));
    run(matches, async |call| {
        let key = call.platform.access.key(&route);
        move_route(call, &key, to, wait).await
    })
}

pub(super) fn run_drain(matches: &ArgMatches) -> Outcome {
    let Some(("router", matches)) = matches.subcommand() else { return Ok(Exit::Usage) };
    run(matches, async |call| set_state(call, router_of(matches), RouterState::Draining).await)
}

pub(super) fn run_cordon(matches: &ArgMatches) -> Outcome {
    run(matches, async |call| set_state(call, router_of(matches), RouterState::Cordoned).await)
}

pub(super) fn run_uncordon(matches: &ArgMatches) -> Outcome {
    run(matches, async |call| set_state(call, router_of(matches), RouterState::Active).await)
}

fn router_of(matches: &ArgMatches) -> &str {
    matches.get_one::<String>("router").expect("clap demands it")
}

/// One call of a command.
struct Call {
    platform: MoveContext,
    dry_run: bool,
    /// Whether the command prompts the user first.
    asks: bool,
    format: Format,
}

impl Call {
    fn show(&self, plan: &MovePlan) {
        print(&self.format.render(plan, || plan.table(Painter::of_stdout())));
    }
}

fn run(matches: &ArgMatches, act: impl AsyncFnOnce(Call) -> Result<(), String>) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let wait = matches.try_get_one::<u64>("wait").ok().flatten().copied().unwrap_or(0);
    let (asks, more) = (confirm::asks(matches), confirm::time(matches));
    access::run(API_TIMEOUT + Duration::from_secs(wait) + more, async {
        let platform = MoveContext::read(&place).await?;
        let dry_run = matches.get_flag("dry-run");
        act(Call { platform, dry_run, asks, format: Format::of(matches) }).await
    })?;
    Ok(Exit::Success)
}

async fn move_route(mut call: Call, key: &ObjectKey, to: &str, wait: Duration) -> Result<(), String> {
    let simulation = &mut call.platform.simulation;
    if simulation.router(to).is_none() {
        return Err(format!("NotFound: there is no Router {to}"));
    }
    if simulation.route(key).is_none() {
        return Err(format!("NotFound: there is no Route {key}"));
    }
    // One that has none yet is placed there, and nowhere else.
    let on = simulation.bound(key).map(|bound| (&*bound.router, &*bound.dns));
    let zone = simulation.router(to).map(|(router, _)| router.dns.as_str());
    // A Router that was re-created with another zone does not have the Route's name.
    if on.is_some_and(|(router, dns)| router == to && zone.is_none_or(|zone| zone.eq_ignore_ascii_case(dns))) {
        note(format!("{key} is already on {to}"));
        return Ok(());
    }
    let (on, zone) = (on.map(|(router, _)| router.to_owned()), zone.unwrap_or_default().to_owned());
    let before = Capacity::of(simulation);
    let steps = simulation.move_route(key, to).expect("it was found above");
    let refused = steps.first().and_then(|step| step.outcome.as_ref().err()).map(|rejection| rejection.message.clone());
    let mut plan = MovePlan::new("move", call.dry_run);
    plan.add_steps(steps, &call.platform.simulation, &call.platform.context);
    plan.capacity = Capacity::compare(&before, &call.platform.simulation);
    plan.capacity.retain(|capacity| capacity.router == to);
    if call.dry_run {
        call.show(&plan);
    }
    if let Some(why) = refused {
        return Err(match on {
            Some(on) => format!("{key} cannot move: {why}; it stays on {on}"),
            None => format!("{key} cannot be placed on {to}: {why}"),
        });
    }
    if call.dry_run {
        return Ok(());
    }
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let routes: Api<Route> = Api::namespaced(call.platform.access.client.clone(), namespace);
    let patch = json!({"metadata": {"annotations": {MOVE_ANNOTATION: to}}});
    routes
        .patch(&key.name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map_err(|error| call.platform.access.unanswered(error))?;
    call.show(&plan);
    if wait.is_zero() {
        return Ok(());
    }
    let there = tokio::time::timeout(wait, until_there(&call.platform.access, &routes, key, (to, &zone))).await;
    there.unwrap_or_else(|_| {
        Err(format!("{key} has not moved to {to} yet; run \"kubectl describe route.signpost.dev\" for the reason"))
    })
}

/// Waits until a Route is on the requested Router, with its name in that Router's zone; the error is the reason why it
/// is not.
async fn until_there(
    access: &Access,
    routes: &Api<Route>,
    key: &ObjectKey,
    (to, zone): (&str, &str),
) -> Result<(), String> {
    loop {
        let route = routes.get_opt(&key.name).await.map_err(|error| access.unanswered(error))?;
        let Some(route) = route else { return Err(format!("Route {key} was deleted")) };
        let status = route.status.unwrap_or_default();
        let system = status.names.iter().find(|name| name.kind == NameKind::System);
        let is_in_zone = system.is_none_or(|system| is_at_or_below(&system.name, zone));
        if status.router.as_deref() == Some(to) && is_in_zone {
            note(format!("{key} is on {to}"));
            let requested =
                route.metadata.annotations.as_ref().and_then(|annotations| annotations.get(MOVE_ANNOTATION));
            if requested.is_some_and(|requested| requested == to) {
                withdraw(access, routes, key, to).await?;
            }
            return Ok(());
        }
        let pending = status.conditions.iter().find(|one| one.type_ == MOVE_PENDING && one.status == "True");
        if let Some(pending) = pending {
            return Err(format!(
                "{key} cannot move yet ({}): {}; it moves when this changes; to cancel the move, run: kubectl annotate \
                 route.signpost.dev -n {} {} {MOVE_ANNOTATION}-",
                pending.reason,
                pending.message,
                key.namespace.as_deref().unwrap_or_default(),
                key.name
            ));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Removes the request of a completed move, unless it was changed. Signpost's own API removes it with the move, a cluster's API does not:
/// the Route would return to that Router later, for example after a drain.
async fn withdraw(access: &Access, routes: &Api<Route>, key: &ObjectKey, to: &str) -> Result<(), String> {
    let path = format!("/metadata/annotations/{}", MOVE_ANNOTATION.replace('/', "~1"));
    let operations = json!([{"op": "test", "path": path, "value": to}, {"op": "remove", "path": path}]);
    let patch = serde_json::from_value(operations).expect("it is a JSON patch");
    match routes.patch(&key.name, &PatchParams::default(), &Patch::<Route>::Json(patch)).await {
        Ok(_) => Ok(()),
        // The test failed, or the Route is gone.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
        Err(error) => Err(access.unanswered(error)),
    }
}

async fn set_state(mut call: Call, name: &str, state: RouterState) -> Result<(), String> {
    let (strategy, caveat, rate) =
        (call.platform.known.strategy, call.platform.known.caveat, call.platform.known.drain_rate);
    let simulation = &mut call.platform.simulation;
    let Some((router, _)) = simulation.router(name) else { return Err(format!("NotFound: there is no Router {name}")) };
    let action = match state {
        RouterState::Draining => "drain",
        RouterState::Cordoned => "cordon",
        RouterState::Active => "uncordon",
    };
    let was = router.state;
    let mut plan = MovePlan::new(action, call.dry_run);
    plan.notes.extend(caveat.filter(|_| state == RouterState::Draining).map(str::to_owned));
    if was == state {
        plan.notes.push(format!("{name} is already {}", state.word()));
    }
    let before = Capacity::of(simulation);
    simulation.edit_router(name, |router| router.state = state);
    if state == RouterState::Draining {
        // Of several that drain, only this one is spoken of.
        let steps = simulation.drain_router(name, strategy.strategy());
        let seconds = rate.map(|rate| steps.len() as u64 / u64::from(rate.max(1)));
        match (rate, seconds) {
            (Some(rate), Some(seconds @ 2..)) => {
                plan.notes.push(format!("at {rate} Routes per second, this takes {seconds} s"));
            }
            (None, _) => plan.notes.push("the drain rate is unknown (scheduler.drain-rate)".to_owned()),
            _ => {}
        }
        plan.add_steps(steps, &call.platform.simulation, &call.platform.context);
    } else {
        let routes = simulation.router(name).map_or(0, |(_, shard)| shard.routes);
        plan.notes.push(match state {
            RouterState::Cordoned => format!("{name} gets no new Routes; its {routes} Routes stay"),
            _ => format!("{name} accepts new Routes; it has {routes}"),
        });
    }
    plan.capacity = Capacity::compare(&before, &call.platform.simulation);
    let stays = plan.about_stays(name);
    let first = if stays.is_some() { "then, " } else { "" };
    plan.notes.extend(stays);
    if state != RouterState::Draining {
        plan.capacity.retain(|capacity| capacity.state == Some(RouterState::Active) || capacity.router == name);
    }
    if !call.dry_run && was != state {
        if call.asks {
            confirm::confirm(&format!("{} Route(s) will leave {name}. Drain it?", plan.moves.len()))?;
        }
        let routers: Api<Router> = Api::all(call.platform.access.client.clone());
        let patch = Patch::Merge(json!({"spec": {"state": state}}));
        let patched = routers.patch(name, &PatchParams::default(), &patch).await;
        patched.map_err(|error| call.platform.access.unanswered(error))?;
        if state == RouterState::Draining {
            note_drain(&mut plan, name, first, rate);
        }
    }
    call.show(&plan);
    let is_stuck = plan.moves.is_empty() && !plan.stays.is_empty();
    if call.dry_run && state == RouterState::Draining && is_stuck {
        return Err(format!("{name} cannot be drained now: none of its Routes can move"));
    }
    Ok(())
}

/// Adds what the operator can wait for after a drain has begun, and when the Router can be deleted.
fn note_drain(plan: &mut MovePlan, name: &str, first: &str, rate: Option<u32>) {
    // What leaves at the rate of scheduler.drain-rate, twice over, and a minute.
    let patience = rate.map_or(3_600, |rate| 60 + 2 * plan.moves.len() as u64 / u64::from(rate.max(1)));
    plan.notes.push(format!(
        "{first}wait until its Routes have left: kubectl wait router.signpost.dev/{name} \
         --for=jsonpath='{{.status.routes}}'=0 --timeout={patience}s"
    ));
    let when = match plan.former_name_seconds {
        Some(0) => String::new(),
        Some(seconds) => format!(", {} after the last Route has left", duration_text(seconds)),
        None => ", at the end of former-name.retention".to_owned(),
    };
    plan.notes.push(format!(
        "delete it when its condition Drained is True{when}; to stop the drain, run: signpost uncordon {name}"
    ));
}
