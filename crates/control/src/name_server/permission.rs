//! Questions to the loop whether a namespace has a name, as it decides when it compiles zones.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::compiler::Platform;
use crate::compiler::challenges::ChallengeInput;
use signpost_dns::wire::Name;

/// The most questions that wait.
const WAITING_MAX: usize = 64;

/// The question whether the TXT record of a ChallengeRecord in this namespace would be served.
#[derive(Debug)]
pub struct Question {
    namespace: Arc<str>,
    owner: Name,
    answer: oneshot::Sender<bool>,
}

/// The side of the jobs.
#[derive(Debug, Clone)]
pub struct Permissions(mpsc::Sender<Question>);

impl Permissions {
    /// Returns the side of the jobs, and that of the loop.
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Permissions(sender), receiver)
    }

    /// Returns whether the namespace has the name that a record at `owner` is about; `None` if the loop has ended.
    pub async fn ask(&self, namespace: &Arc<str>, owner: &Name) -> Option<bool> {
        let (answer, answered) = oneshot::channel();
        let question = Question { namespace: Arc::clone(namespace), owner: owner.clone(), answer };
        self.0.send(question).await.ok()?;
        answered.await.ok()
    }
}

impl Question {
    pub(super) fn answer(self, platform: &Platform) {
        let Question { namespace, owner, answer } = self;
        let (namespace, value) = ((*namespace).into(), Box::default());
        let record = ChallengeInput { namespace, owner, value, created: 0, expires: i64::MAX };
        // The job may have ended.
        let _ = answer.send(platform.permits(&record));
    }
}
