//! Signpost's own rules: weights, publishing, batches.

mod batch;
mod denials;
mod publish;
mod rate_limit;
mod weights;
