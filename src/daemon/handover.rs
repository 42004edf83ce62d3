//! Hands the name servers' kubeconfig to a Kubernetes cluster, as a Secret that the pods of name servers mount.
//!
//! The API's process writes `name-server.kubeconfig` into its data directory at each start. Without this module, an operator
//! would have to copy that file to name servers that run in other pods. With `name-server-secret`, the process writes it into a
//! Secret with its pod's service account, and again when it changes: after a new token, or a new CA.

use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::BASE64;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::value::SecretName;
use signpost_control::client::backoff::Backoff;

/// The field manager of the Secret.
const MANAGER: &str = "signpost";
/// The interval of writes of the Secret: after a change of the file, or of the Secret by another client, they can differ for as
/// long.
pub const LOOK_AGAIN: Duration = Duration::from_secs(300);
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);
/// The waits after failures, the first and the maximum.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Writes `file` into the Secret every `interval`, until `stop`.
pub async fn keep(
    client: kube::Client,
    file: PathBuf,
    secret: SecretName,
    interval: Duration,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new(RETRY[0].min(interval), RETRY[1]);
    let mut is_logged = false;
    loop {
        let wait = match write(&client, &file, &secret).await {
            Ok(()) => {
                if !is_logged {
                    tracing::info!(namespace = secret.namespace, name = secret.name, "wrote the name servers' Secret");
                }
                is_logged = true;
                backoff.reset();
                interval
            }
            Err(error) => {
                tracing::warn!(
                    namespace = secret.namespace,
                    name = secret.name,
                    error,
                    "failed to write the name servers' Secret; the service account needs the verbs create and patch on it"
                );
                is_logged = false;
                backoff.next_wait()
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return;
        }
    }
}

async fn write(client: &kube::Client, file: &Path, secret: &SecretName) -> Result<(), String> {
    let kubeconfig = tokio::fs::read(file).await.map_err(|error| format!("{}: {error}", file.display()))?;
    let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace);
    // Without the namespace, which the path names.
    let wanted = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret.name}, "type": "Opaque",
        "data": {"kubeconfig": BASE64.encode(&kubeconfig)},
    });
    let parameters = PatchParams::apply(MANAGER).force();
    match timeout(WRITE_TIMEOUT, api.patch(&secret.name, &parameters, &Patch::Apply(wanted))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the request to the cluster's API timed out".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::Router;
    use axum::extract::Request;
    use http::StatusCode;
    use serde_json::Value;

    use super::*;
    use signpost_control::client::in_process;

    /// The cluster's API rejects one request, like before the role is bound; then it accepts the Secret with the file.
    #[tokio::test]
    async fn the_secret_holds_the_kubeconfig() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("name-server.kubeconfig");
        std::fs::write(&file, "apiVersion: v1\n").expect("written");
        let seen: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let (taken, mut counts) = tokio::sync::mpsc::unbounded_channel();
        let requests = seen.clone();
        let service = Router::new().fallback(move |request: Request| {
            let (requests, taken) = (requests.clone(), taken.clone());
            async move {
                let line = format!("{} {}", request.method(), request.uri().path());
                let body = axum::body::to_bytes(request.into_body(), 1 << 16).await.expect("a body");
                let object: Value = serde_json::from_slice(&body).expect("JSON");
                let count = {
                    let mut requests = requests.lock().expect("no panic");
                    requests.push((line, object.clone()));
                    requests.len()
                };
                let _ = taken.send(count);
                if count == 1 { (StatusCode::FORBIDDEN, String::new()) } else { (StatusCode::OK, object.to_string()) }
            }
        });
        let client = in_process(service);
        let stop = CancellationToken::new();
        let name = SecretName { namespace: "ns".to_owned(), name: "access".to_owned() };
        let task = tokio::spawn(keep(client, file.clone(), name, Duration::from_millis(1), stop.clone()));
        assert_eq!((counts.recv().await, counts.recv().await), (Some(1), Some(2)));
        std::fs::write(&file, "new").expect("written");
        let is_new = |(_, object): &(String, Value)| object["data"]["kubeconfig"] == BASE64.encode(b"new");
        while !seen.lock().expect("no panic").last().is_some_and(is_new) {
            timeout(Duration::from_secs(60), counts.recv()).await.expect("the change is written");
        }
        stop.cancel();
        task.await.expect("it ends");
        let seen = seen.lock().expect("no panic");
        assert!(seen.iter().all(|(line, _)| line == "PATCH /api/v1/namespaces/ns/secrets/access"), "{seen:?}");
        assert_eq!(seen[1].1["data"]["kubeconfig"], BASE64.encode(b"apiVersion: v1\n"));
    }
}
