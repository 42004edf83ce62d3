//! Signpost's own rules: weights, publishing, batches.

mod batch;
mod publish;
mod rate_limit;
mod weights;
