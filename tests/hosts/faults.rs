//! The faults, one at a time, and how they follow from a seed.

use std::fmt;
use std::time::{Duration, Instant};

use crate::observers::Observers;
use crate::random::Random;
use crate::scene::{Role, Scene};

/// The bandwidth of a slow link, in each direction.
const SLOW_LINK: &str = "1mbit";
/// The time for which a slow host is stopped in each period.
const STANDSTILL: Duration = Duration::from_millis(400);
const MOVEMENT: Duration = Duration::from_millis(100);

/// A fault of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All of its processes are killed, and started again.
    Kill,
    /// The processes of the host are stopped, and continued later.
    Pause,
    /// The processes of the host run for a fifth of the time.
    SlowProcessor,
    SlowLink,
    /// No packet passes to and from the other hosts.
    Isolation,
    /// No packet passes to and from some of the other hosts.
    Partition,
    /// Packets to the other hosts are lost, those from them arrive.
    NoneSent,
    /// Packets from the other hosts are lost, those to them arrive.
    NoneReceived,
}

/// All kinds.
pub const KINDS: [Kind; 8] = [
    Kind::Kill,
    Kind::Pause,
    Kind::SlowProcessor,
    Kind::SlowLink,
    Kind::Isolation,
    Kind::Partition,
    Kind::NoneSent,
    Kind::NoneReceived,
];

/// A fault of one host.
pub struct Fault {
    kind: Kind,
    machine: usize,
    name: String,
    /// The hosts that a cut is about.
    others: Vec<usize>,
    time: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} of {} for {:.1?}", self.kind, self.name, self.time)
    }
}

impl Fault {
    /// Returns a fault of this kind and length, of any host.
    pub fn draw(scene: &Scene, random: &mut Random, kind: Kind, time: Duration) -> Fault {
        // The leader of etcd has most of the faults: the other members depend on it.
        let any = random.below(scene.machines.len());
        let is_leader = scene.machines[any].role == Role::Etcd && random.below(2) == 0;
        Fault::of(scene, random, kind, if is_leader { scene.etcd_leader() } else { any }, time)
    }

    /// Returns a fault of a host.
    pub fn of(scene: &Scene, random: &mut Random, kind: Kind, machine: usize, time: Duration) -> Fault {
        let all = (0..scene.machines.len()).filter(|other| *other != machine);
        let others: Vec<usize> = all.filter(|_| kind != Kind::Partition || random.below(2) == 0).collect();
        let mut name = scene.machines[machine].host.name().to_owned();
        if kind == Kind::Partition {
            let names: Vec<&str> = others.iter().map(|other| scene.machines[*other].host.name()).collect();
            name = format!("{name} from {}", names.join(", "));
        }
        Fault { kind, machine, name, others, time }
    }

    /// Causes it, ends it, and waits until all hosts are ready; returns when it ended.
    pub fn happen(&self, scene: &mut Scene, observers: &Observers) -> Instant {
        let name = scene.machines[self.machine].host.name().to_owned();
        let role = scene.machines[self.machine].role;
        let is_cut = matches!(self.kind, Kind::Isolation | Kind::Partition | Kind::NoneSent | Kind::NoneReceived);
        // The observers reach a host that is cut off from the others.
        let is_unreachable = !is_cut && matches!(role, Role::NameServer | Role::Resolver);
        if is_unreachable {
            observers.set_reachable(&name, false);
        }
        let end = Instant::now() + self.time;
        match self.kind {
            Kind::Kill => {
                scene.machines[self.machine].kill();
                wait(end);
                scene.machines[self.machine].start();
            }
            Kind::Pause => {
                let host = &scene.machines[self.machine].host;
                host.pause();
                wait(end);
                host.resume();
            }
            Kind::SlowProcessor => {
                let host = &scene.machines[self.machine].host;
                while Instant::now() < end {
                    host.pause();
                    std::thread::sleep(STANDSTILL);
                    host.resume();
                    std::thread::sleep(MOVEMENT);
                }
            }
            Kind::SlowLink => {
                scene.machines[self.machine].host.limit(SLOW_LINK);
                wait(end);
                scene.machines[self.machine].host.unlimit();
            }
            Kind::Isolation | Kind::Partition | Kind::NoneSent | Kind::NoneReceived => {
                for other in &self.others {
                    let (host, other) = (&scene.machines[self.machine].host, &scene.machines[*other].host);
                    if self.kind != Kind::NoneReceived {
                        scene.network.cut(host, other);
                    }
                    if self.kind != Kind::NoneSent {
                        scene.network.cut(other, host);
                    }
                }
                wait(end);
                scene.network.heal();
            }
        }
        let healed = Instant::now();
        scene.wait_ready();
        if is_unreachable {
            observers.set_reachable(&name, true);
        }
        healed
    }
}

fn wait(end: Instant) {
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
}
