//! One shape for a control loop: a [work queue](queue), an [`executor`] of its jobs, and the [loop](controller) around both.

pub mod queue;

pub mod executor;

pub mod controller;
