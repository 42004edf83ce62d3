//! Requests that bound Routes leave their Routers: another loop decides and makes them, and the scheduler chooses new Routers.
//!
//! ```text
//!   request ─► outstanding ─► the scheduler's queue ──┬── moved: over
//!      ▲            │                                 └── no target ──┬── requested: waits in the queue
//!      │            └── withdraw: it leaves the queue                 └── a drain: over, and answered
//!      └───────────── something changed that could help ◄─────────────────────┘
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::client::reflector::ObjectKey;
use crate::world::{BindingInfo, RouteInfo};

/// The reason why a route leaves its Router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveReason {
    /// The route's annotation requests it, or the admission of its host names another Router.
    Asked,
    /// The Router is draining.
    Drained,
    /// The first Route with the host has another Router.
    Followed,
}

/// A request that a route leave a Router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveRequest {
    pub router: Arc<str>,
    /// The Router's zone when the route was bound to it.
    pub dns: Arc<str>,
    /// Why.
    pub reason: MoveReason,
}

impl MoveRequest {
    /// Returns whether the request still applies to the current route and Router.
    pub fn is_of(&self, route: &RouteInfo, binding: &BindingInfo) -> bool {
        let is_meant = self.reason != MoveReason::Asked || route.move_to.is_some() || route.adopted.is_some();
        is_meant && self.router == binding.router && self.dns == binding.dns
    }
}

/// The requests and their results; clones share them.
#[derive(Debug, Clone, Default)]
pub struct MoveRequests(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    requested: Notify,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    outstanding: HashMap<ObjectKey, MoveRequest>,
    /// The Routes with a new or withdrawn request. The scheduler takes them all in each iteration of its loop.
    news: Vec<ObjectKey>,
    answers: Answers,
}

#[derive(Debug, Default)]
pub struct Answers {
    /// Routes that have nowhere to go.
    pub stuck: Vec<ObjectKey>,
    /// Whether something has changed that could help those.
    pub could_help: bool,
}

/// The methods for requesters.
impl MoveRequests {
    /// Requests that the route at `key` move, replacing an earlier request. The scheduler handles it if the request is different,
    /// or `again`.
    pub fn request(&self, key: &ObjectKey, request: MoveRequest, again: bool) {
        let mut state = self.0.state.lock();
        if state.outstanding.get(key) != Some(&request) || again {
            state.outstanding.insert(key.clone(), request);
            state.news.push(key.clone());
            self.0.requested.notify_one();
        }
    }

    /// Withdraws the request for the route at `key`, and its condition.
    pub fn withdraw(&self, key: &ObjectKey) {
        let mut state = self.0.state.lock();
        state.outstanding.remove(key);
        state.news.push(key.clone());
        self.0.requested.notify_one();
    }

    /// Waits for answers.
    pub async fn answered(&self) {
        self.0.answered.notified().await;
    }

    pub fn take_answers(&self) -> Answers {
        std::mem::take(&mut self.0.state.lock().answers)
    }
}

/// The methods for the scheduler.
impl MoveRequests {
    /// Waits for requests.
    pub async fn requested(&self) {
        self.0.requested.notified().await;
    }

    /// Makes [`requested`](Self::requested) return again.
    pub fn remind(&self) {
        self.0.requested.notify_one();
    }

    /// Returns the routes with a new or withdrawn request.
    pub fn take_news(&self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.0.state.lock().news)
    }

    /// Returns the request for a route.
    pub fn get(&self, key: &ObjectKey) -> Option<MoveRequest> {
        self.0.state.lock().outstanding.get(key).cloned()
    }

    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.0.state.lock().outstanding.contains_key(key)
    }

    /// Records that the route has moved.
    pub fn moved(&self, key: &ObjectKey) {
        self.0.state.lock().outstanding.remove(key);
    }

    /// Marks the route as without a target, or unable to move. For a route on a draining Router, that ends the request until the
    /// drain requests it again.
    pub fn mark_stuck(&self, key: &ObjectKey) {
        let mut state = self.0.state.lock();
        let Some(request) = state.outstanding.get(key) else { return };
        if request.reason == MoveReason::Drained {
            state.outstanding.remove(key);
        }
        state.answers.stuck.push(key.clone());
        self.0.answered.notify_one();
    }

    /// Retries routes without a target after a change that could help.
    pub fn could_help(&self) {
        self.0.state.lock().answers.could_help = true;
        self.0.answered.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_news_once_and_ends_with_its_answer() {
        let (requests, key) = (MoveRequests::default(), ObjectKey::namespaced("ns", "a"));
        let request = |reason| MoveRequest { router: "s1".into(), dns: "s1.test".into(), reason };
        requests.request(&key, request(MoveReason::Drained), false);
        requests.request(&key, request(MoveReason::Drained), false);
        assert_eq!(requests.take_news().len(), 1);
        requests.request(&key, request(MoveReason::Drained), true);
        requests.request(&key, request(MoveReason::Asked), false);
        assert_eq!(requests.take_news().len(), 2);
        requests.mark_stuck(&key);
        assert_eq!((requests.take_answers().stuck.len(), requests.holds(&key)), (1, true), "it waits in the queue");
        requests.request(&key, request(MoveReason::Drained), false);
        requests.mark_stuck(&key);
        requests.mark_stuck(&key);
        assert_eq!((requests.take_answers().stuck.len(), requests.holds(&key)), (1, false));
        requests.withdraw(&key);
        assert_eq!((requests.take_news().len(), requests.holds(&key)), (2, false));
    }

    #[test]
    fn a_request_is_about_one_binding() {
        let binding = BindingInfo { router: "s1".into(), dns: "s1.test".into(), ..BindingInfo::default() };
        let asked = RouteInfo { move_to: Some("s2".into()), ..RouteInfo::default() };
        let request = |reason| MoveRequest { router: "s1".into(), dns: "s1.test".into(), reason };
        assert!(request(MoveReason::Asked).is_of(&asked, &binding));
        assert!(!request(MoveReason::Asked).is_of(&RouteInfo::default(), &binding), "the request is gone");
        assert!(request(MoveReason::Drained).is_of(&RouteInfo::default(), &binding));
        let elsewhere = BindingInfo { dns: "new.test".into(), ..binding };
        assert!(!request(MoveReason::Drained).is_of(&asked, &elsewhere));
    }
}
