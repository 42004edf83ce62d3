//! Connections to the API that break in every way, of a name server and of a scheduler.

use crate::gate::{Gate, Mode};
use crate::model::{Key, Model};
use crate::observer::Observer;
use crate::platform::{Objects, kubeconfig_to, start};
use crate::split::{SILENCE, Split, start_api};
use crate::telling;
use signpost_testing::{DataDir, Ports, eventually};

const MODES: [Mode; 5] = [Mode::Reset, Mode::Hang, Mode::HalfClose, Mode::Garbage, Mode::Drip];

#[test]
fn of_a_name_server() {
    let (mut split, gate) = Split::through(|api, _| {
        let gate = Gate::to(api);
        (format!("https://{}", gate.address), gate)
    });
    let all = split.watches().1;
    for mode in MODES {
        let when = format!("{mode:?}");
        gate.set(mode);
        split.change();
        if mode != Mode::Drip {
            eventually(&format!("{when}: it is visible"), || (split.watches().0 < all).then_some(()));
            gate.set(Mode::Pass);
        }
        let took = split.converge(&when);
        gate.set(Mode::Pass);
        eventually(&format!("{when}: all watches are open"), || (split.watches().0 == all).then_some(()));
        assert!(split.is_ready());
        println!(
            "connections of a name server, {when}: DNS equals the objects after {took:?}; {}",
            split.steady(&when)
        );
    }

    // Only existing connections hang, as when a firewall forgets them: new ones pass, and no error is returned.
    gate.set(Mode::Hang);
    eventually("all watches hang", || (gate.held() >= all).then_some(()));
    gate.set(Mode::Pass);
    split.change();
    let took = split.converge("forgotten connections");
    println!(
        "connections of a name server forgotten: DNS equals the objects after {took:?}, with --api-read-timeout {SILENCE:?}"
    );
    split.steady("forgotten connections");
}

#[test]
fn of_a_scheduler() {
    let (api_data, dns_data, scheduler_data) = (DataDir::new(), DataDir::new(), DataDir::new());
    let (api_ports, dns_ports, scheduler_ports) = (Ports::free(), Ports::free(), Ports::free());
    let _api = start_api(api_ports, &api_data, "api,admin");
    let gate = Gate::to(api_ports.api);
    let (through, of_scheduler) = (format!("https://{}", gate.address), api_data.join("scheduler.kubeconfig"));
    let of_scheduler = kubeconfig_to(&of_scheduler, &through, api_data.join("through.kubeconfig"));
    let (of_scheduler, of_dns) = (of_scheduler.to_str().expect("UTF-8"), api_data.join("name-server.kubeconfig"));
    let of_dns = of_dns.to_str().expect("UTF-8");
    let roles = ["--roles", "scheduler,admin", "--data-dir", scheduler_data.path(), "--kubeconfig", of_scheduler];
    let _scheduler =
        start(scheduler_ports, &[&roles[..], &["--verify-names", "false", "--api-read-timeout", "3s"]].concat());
    let roles = ["--roles", "dns,admin", "--data-dir", dns_data.path(), "--kubeconfig", of_dns];
    let _dns = start(dns_ports, &roles);

    let (objects, mut model) = (Objects::of(&api_data.join("kubeconfig")), Model::default());
    objects.found(&mut model, 2);
    let observer = Observer::start(dns_ports.dns);
    observer.watch(objects.check_served(&model, dns_ports.dns, "at first").0);
    let watches = || telling::watches(scheduler_ports.admin, "scheduler");
    let all = watches().1;
    for (number, mode) in MODES.into_iter().enumerate() {
        let when = format!("{mode:?}");
        gate.set(mode);
        objects.must(&mut model, Key::Route(format!("new{number}")), Some("first".to_owned()));
        if mode != Mode::Drip {
            eventually(&format!("{when}: it is visible"), || (watches().0 < all).then_some(()));
            gate.set(Mode::Pass);
        }
        let (live, took) = objects.check_served(&model, dns_ports.dns, &when);
        observer.watch(live);
        gate.set(Mode::Pass);
        eventually(&format!("{when}: all watches are open"), || (watches().0 == all).then_some(()));
        println!("connections of a scheduler, {when}: a new route is served {took:?} after that");
    }
    gate.set(Mode::Hang);
    eventually("all watches hang", || (gate.held() >= all).then_some(()));
    gate.set(Mode::Pass);
    objects.must(&mut model, Key::Route("last".to_owned()), Some("first".to_owned()));
    let (_, took) = objects.check_served(&model, dns_ports.dns, "forgotten connections");
    println!(
        "connections of a scheduler forgotten: a new route is served after {took:?}, with --api-read-timeout {SILENCE:?}"
    );
    objects.check_kept(&mut model, "after all");
    observer.report().assert_steady("all faults of the scheduler's connections");
}
