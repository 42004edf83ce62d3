//! ChallengeRecords.

use std::sync::Arc;

use jiff::Timestamp;

use crate::compiler::challenges::ChallengeInput;
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;

/// A ChallengeRecord.
#[derive(Debug, Clone)]
pub struct ChallengeInfo {
    /// The TSIG key that added it; `None`: the platform.
    pub key: Option<Box<str>>,
    /// The time at which it is deleted.
    pub expires: Timestamp,
    /// The input for zones, if the record can be in one.
    pub input: Option<Arc<ChallengeInput>>,
}

impl ChallengeInfo {
    /// Reads a ChallengeRecord.
    pub fn new(record: &ChallengeRecord) -> Self {
        let key = record.spec.key.as_deref().map(Into::into);
        ChallengeInfo { key, expires: record.spec.expires_at.0, input: ChallengeInput::read(record).map(Arc::new) }
    }
}
