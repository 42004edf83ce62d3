//! One shape for a control loop: a [work queue](queue), and an [executor](executor) of its jobs.

pub mod queue;

pub mod executor;
