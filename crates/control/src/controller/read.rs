//! Objects as the loops need them that make zones of them: reduced by the compiler, once for all of these loops.

use std::sync::Arc;

use super::asked::register::{Shown, shown};
use crate::client::reflector::{Mirrors, View};
use crate::client::slim;
use crate::compiler::Verdict;
use crate::compiler::inputs::{BindingInput, RouterInput};
use signpost_api::v1alpha1::route_binding::RouteBinding;
use signpost_api::v1alpha1::router::Router;
use signpost_runtime::telemetry::trace::Trace;

/// An object as the compiler needs it, with what is wrong with it.
#[derive(Debug)]
pub struct Read<T> {
    /// What of it can be used.
    pub input: Option<Arc<T>>,
    pub(super) verdicts: Box<[Verdict]>,
    /// The trails of a binding.
    pub(super) trails: Box<[Shown]>,
    /// The trace of the Route that it is of, if it is traced.
    pub(super) trace: Option<Box<Trace>>,
}

impl<T> Read<T> {
    /// One with which nothing is wrong.
    pub fn right(input: Arc<T>) -> Self {
        Read { input: Some(input), ..Read::default() }
    }
}

impl<T> Default for Read<T> {
    fn default() -> Self {
        Read { input: None, verdicts: Box::default(), trails: Box::default(), trace: None }
    }
}

impl Read<RouterInput> {
    /// A Router, where `domain` is the platform's.
    pub(super) fn router(router: &Router, domain: &str) -> Self {
        let mut verdicts = Vec::new();
        let input = RouterInput::read(router, domain, &mut verdicts).map(Arc::new);
        Read { input, verdicts: verdicts.into(), trails: Box::default(), trace: None }
    }
}

impl Read<BindingInput> {
    /// A RouteBinding.
    pub fn binding(binding: &RouteBinding) -> Self {
        let mut verdicts = Vec::new();
        let input = BindingInput::read(binding, &mut verdicts).map(|mut input| {
            input.shard = slim::text(&input.shard);
            Arc::new(input)
        });
        let trace = Trace::of(&binding.spec.route_uid).map(Box::new);
        Read { input, verdicts: verdicts.into(), trails: shown(binding), trace }
    }
}

/// The RouteBindings, for all loops that make zones of them.
pub fn bindings(mirrors: &Mirrors) -> View<Read<BindingInput>> {
    mirrors.view(Read::binding)
}
