//! What is Signpost's own: weights, publishing, batches.

mod asked;
mod batch;
mod publish;
mod rate_limit;
mod weights;
