//! The scheduler's part of a Route's status: why it has no Router, or why it cannot move. Pure.

use super::update;
use crate::client::uid::Uid;
use crate::world::RouteInfo;
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{About, RouteFinding};
use signpost_types::v1alpha1::route::{ADMITTED, MOVE_PENDING, READY, SCHEDULED};

impl RouteFinding {
    /// Returns the finding that no Router can take the Route.
    pub fn unscheduled(route: &RouteInfo, reason: &'static str, message: String) -> Self {
        let mut statements = vec![update(SCHEDULED, false, reason, message)];
        if route.host.is_none() {
            statements.push(admitted("the Route can have its name"));
        }
        RouteFinding::unbound(route, statements)
    }

    /// Returns the finding that the Route's host is not admitted.
    pub fn not_admitted(route: &RouteInfo, reason: &'static str, message: String) -> Self {
        let waits = "the scheduler places the Route when its host is admitted";
        let statements = vec![update(ADMITTED, false, reason, message), update(SCHEDULED, false, "NotAdmitted", waits)];
        RouteFinding::unbound(route, statements)
    }

    /// Tools that wait for an object (kstatus: Flux, Helm, Argo CD) know `Ready`, and take one without it for done.
    fn unbound(route: &RouteInfo, mut statements: Vec<ConditionUpdate>) -> Self {
        statements.push(update(READY, false, "NotScheduled", "the Route has no Router: see the condition Scheduled"));
        RouteFinding::new(&route.uid, About::Unbound(route.generation), statements)
    }

    /// Returns the finding that the Route must move, but currently cannot.
    pub fn move_pending(uid: &Uid, reason: &'static str, message: String) -> Self {
        let message = format!("move pending: {message}");
        RouteFinding::new(uid, About::Bound, vec![update(MOVE_PENDING, true, reason, message)])
    }

    /// Returns the finding that the Route no longer has to move.
    pub fn stays(uid: &Uid) -> Self {
        let withdrawn = update(MOVE_PENDING, false, "Withdrawn", "the move is no longer requested");
        RouteFinding::new(uid, About::Bound, vec![withdrawn])
    }

    /// Returns the negative statement, if there is one.
    pub fn trouble(&self) -> Option<&ConditionUpdate> {
        self.statements.iter().find(|statement| statement.is_true() == (statement.kind == MOVE_PENDING))
    }

    /// Returns whether the Route's status already contains all of this, about the Route's generation.
    pub fn is_said_by(&self, route: &RouteInfo) -> bool {
        let is_observed = !route.conditions.is_outdated || !matches!(self.about, About::Unbound(_));
        let is_said = |one: &ConditionUpdate| route.conditions.get(one.kind).is_some_and(|said| said.is_as(one));
        is_observed && self.statements.iter().all(is_said)
    }
}

/// Returns the condition of a Route that may have its name.
pub(super) fn admitted(message: &str) -> ConditionUpdate {
    update(ADMITTED, true, "Admitted", message)
}
