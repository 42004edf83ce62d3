//! Detection of the API server behind a client: Signpost's own, which does more in one transaction than the API conventions
//! require, or another one.
//!
//! The client queries the version once, and again after a connection has failed, because another server can take the next one.
//! Signpost's server names itself in its version. Without a response, the server counts as another one.

use std::sync::atomic::{AtomicU8, Ordering};

use signpost_types::v1alpha1::SERVER_MARK;

const UNKNOWN: u8 = 0;
const OUR_OWN: u8 = 1;
const ANOTHER: u8 = 2;

/// The known type of the server behind a client.
#[derive(Debug, Default)]
pub struct ServerKind(AtomicU8);

impl ServerKind {
    /// Returns whether `client` is connected to Signpost's own server. Queries the version if that is unknown.
    pub async fn is_our_own(&self, client: &kube::Client) -> bool {
        match self.0.load(Ordering::Relaxed) {
            OUR_OWN => true,
            ANOTHER => false,
            _ => match client.apiserver_version().await {
                Ok(version) => {
                    let is_our_own = version.git_version.contains(SERVER_MARK);
                    self.0.store(if is_our_own { OUR_OWN } else { ANOTHER }, Ordering::Relaxed);
                    is_our_own
                }
                Err(_) => false,
            },
        }
    }

    /// Records a failure. After a failure that is not a response of the server, the version is queried again.
    pub fn failed(&self, error: &kube::Error) {
        if !matches!(error, kube::Error::Api(_)) {
            self.0.store(UNKNOWN, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use axum::Router;
    use axum::routing::get;

    use super::*;
    use crate::client::in_process;

    #[tokio::test]
    async fn it_is_asked_once_and_again_after_a_failure() {
        let asked = Arc::new(AtomicUsize::new(0));
        for (version, expected) in [("v1.32.0+signpost.0.1.0", true), ("v1.32.0", false), ("v1.32.1+k3s1", false)] {
            let (counter, before) = (Arc::clone(&asked), asked.load(Ordering::Relaxed));
            let answer = move || async move {
                counter.fetch_add(1, Ordering::Relaxed);
                format!(
                    r#"{{"major":"1","minor":"32","gitVersion":"{version}","gitCommit":"","gitTreeState":"","buildDate":"",
                        "goVersion":"","compiler":"","platform":""}}"#
                )
            };
            let client = in_process(Router::new().route("/version", get(answer)));
            let server = ServerKind::default();
            assert_eq!(server.is_our_own(&client).await, expected, "{version}");
            assert_eq!(server.is_our_own(&client).await, expected, "{version}");
            assert_eq!(asked.load(Ordering::Relaxed), before + 1);
            server.failed(&kube::Error::LinesCodecMaxLineLengthExceeded);
            assert_eq!(server.is_our_own(&client).await, expected, "{version}");
            assert_eq!(asked.load(Ordering::Relaxed), before + 2);
        }
        let silent = in_process(Router::new());
        assert!(!ServerKind::default().is_our_own(&silent).await);
    }
}
