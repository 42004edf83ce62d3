//! The lock-free map of zones: where the control plane publishes and the data plane reads.

/// What one batch of queries is answered from: the zones as they were at one moment.
pub struct Snapshot {}
