//! Namespaces: the built-in ones, and the deletion of others.
//!
//! A deleted namespace is `Terminating`: no new objects are accepted (`handlers::create`), and this loop deletes its contents.
//! When it is empty, the loop removes its own finalizer, and the namespace is deleted with its last finalizer. Meanwhile, its
//! conditions list the remaining contents.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::auth::identity::Identity;
use super::error::ApiError;
use super::handlers::create::create_object;
use super::handlers::delete::{Deletion, Propagation, delete_object};
use super::handlers::update::change;
use super::handlers::writer::{Part, Writer};
use super::kind::Kind;
use super::registry::metadata::whole_seconds;
use super::registry::namespace::NAMESPACE;

/// The time to collect further changes before terminating namespaces are checked again.
const GATHER: Duration = Duration::from_millis(50);
/// The time until a retry after a failure, or while a finalizer holds objects.
const RETRY: Duration = Duration::from_secs(1);

/// The maximum length of a condition's message, in characters.
const MESSAGE_CHARACTERS_MAX: usize = 4_096;
/// The maximum number of failures in the conditions of a namespace.
const FAILURES_TOLD_MAX: usize = 8;

/// Returns whether the namespaces that are always there are.
pub(crate) fn are_there(server: &Shared) -> bool {
    let kind_cache = server.cache.kind_cache(&NAMESPACE);
    server.kinds.namespaces().iter().all(|name| kind_cache.exists(name))
}

/// Keeps the permanent namespaces and deletes the terminating ones, until `cancel` fires.
pub(crate) async fn run(server: &Arc<Shared>, cancel: &CancellationToken) {
    let work = async {
        loop {
            server.cache.reaches(1, RETRY).await;
            if server.cache.applied() > 0 {
                break;
            }
        }
        let mut reported = None;
        while let Err(error) = make(server).await {
            // The store reports a full disk itself.
            let reported_of = Some((error.code, error.reason));
            if error.code != 507 && reported != reported_of {
                tracing::warn!(%error, "failed to create the initial namespaces; retrying");
                reported = reported_of;
            }
            tokio::time::sleep(RETRY).await;
        }
        loop {
            let seen = server.cache.applied();
            let terminating: Vec<_> = server
                .cache
                .snapshot(&NAMESPACE, "")
                .objects
                .into_iter()
                .filter(|namespace| namespace.is_deleting())
                .collect();
            for namespace in &terminating {
                if let Err(error) = end(server, namespace.name()).await {
                    tracing::warn!(namespace = namespace.name(), %error, "failed to finalize the namespace; retrying");
                }
            }
            if terminating.is_empty() {
                server.cache.reaches(seen + 1, Duration::from_secs(60)).await;
                tokio::time::sleep(GATHER).await;
            } else {
                // Not after each change: a namespace whose objects have finalizers stays for long, and all of its objects are read.
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    cancel.run_until_cancelled(work).await;
}

async fn make(server: &Arc<Shared>) -> Result<(), ApiError> {
    let identity = Identity::server();
    let writer = Writer::internal(server, &NAMESPACE, None, &identity);
    for name in server.kinds.namespaces() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match create_object(&writer, namespace, false).await {
            // A damaged Namespace exists, too, and must not stop the server.
            Err(error) if error.reason != "AlreadyExists" && !error.is_damaged() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes the contents of a namespace or, if it is empty, removes the finalizer.
async fn end(server: &Arc<Shared>, namespace: &str) -> Result<(), ApiError> {
    let identity = Identity::server();
    let prefix = format!("{namespace}/");
    let deletion = Deletion { propagation: Some(Propagation::Background), ..Deletion::default() };
    let mut failed = Vec::new();
    let mut remaining = Remaining::default();
    for kind in server.kinds.iter().filter(|kind| kind.namespaced && kind.view.is_none()) {
        let writer = Writer::internal(server, kind, Some(namespace), &identity);
        for object in server.cache.snapshot(kind, &prefix).objects {
            if object.is_deleting() {
                continue;
            }
            match delete_object(&writer, object.name(), &deletion).await {
                Err(error) if error.code != 404 => failed.push(error),
                _ => {}
            }
        }
        let left = server.cache.snapshot(kind, &prefix);
        left.damaged.iter().for_each(|_| remaining.count(kind, &Value::Null));
        for object in left.objects {
            remaining.count(kind, &object.tree_without_managed_fields());
        }
    }
    if !remaining.resources.is_empty() {
        report(server, namespace, &remaining, &failed).await?;
        return failed.pop().map_or(Ok(()), Err);
    }
    let writer = Writer::internal(server, &NAMESPACE, None, &identity);
    change(&writer, namespace, Part::Finalize, |live| {
        let mut new = live.tree.clone();
        new["spec"]["finalizers"] = json!([]);
        Ok((new, true))
    })
    .await
    .map(|_| ())
}

/// The remaining contents of a terminating namespace.
#[derive(Default)]
struct Remaining {
    /// The number of objects of each resource, such as `leases.coordination.k8s.io`.
    resources: BTreeMap<String, usize>,
    /// The number of objects that each finalizer holds.
    finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    fn count(&mut self, kind: &Kind, object: &Value) {
        *self.resources.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for finalizer in finalizers {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }

    /// Returns the type, status, reason, and message of each condition, with the values of Kubernetes, which tools search for.
    fn conditions(&self, failed: &[ApiError]) -> [(&'static str, bool, &'static str, String); 5] {
        let list = |counts: &BTreeMap<String, usize>, verb: &str| {
            let reported: Vec<String> =
                counts.iter().map(|(what, count)| format!("{what} {verb} {count} resource instances")).collect();
            reported.join(", ")
        };
        let failures: Vec<String> = failed.iter().take(FAILURES_TOLD_MAX).map(ToString::to_string).collect();
        let deletion = match failures.is_empty() {
            true => {
                (false, "ContentDeleted", "All content successfully deleted, may be waiting on finalization".into())
            }
            false => {
                (true, "ContentDeletionFailed", format!("Failed to delete all resource types: {}", failures.join(", ")))
            }
        };
        let content = format!("Some resources are remaining: {}", list(&self.resources, "has"));
        let finalizers = match self.finalizers.is_empty() {
            true => (false, "ContentHasNoFinalizers", "All content-preserving finalizers finished".into()),
            false => {
                let reported = list(&self.finalizers, "in");
                (
                    true,
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {reported}"),
                )
            }
        };
        let discovered = "All resources successfully discovered".into();
        let parsed = "All legacy kube types successfully parsed".into();
        [
            ("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered", discovered),
            ("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions", parsed),
            ("NamespaceDeletionContentFailure", deletion.0, deletion.1, deletion.2),
            ("NamespaceContentRemaining", true, "SomeResourcesRemain", content),
            ("NamespaceFinalizersRemaining", finalizers.0, finalizers.1, finalizers.2),
        ]
    }
}

/// Writes the remaining contents to the conditions of a namespace, if they have changed.
async fn report(
    server: &Arc<Shared>,
    namespace: &str,
    remaining: &Remaining,
    failed: &[ApiError],
) -> Result<(), ApiError> {
    let identity = Identity::server();
    let writer = Writer::internal(server, &NAMESPACE, None, &identity);
    let conditions = remaining.conditions(failed);
    let reported = change(&writer, namespace, Part::Status, |live| {
        let mut new = live.tree.clone();
        let before = live.tree["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let reported = conditions.iter().map(|(kind, holds, reason, message)| {
            let status = if *holds { "True" } else { "False" };
            let same = before.iter().find(|found| found["type"] == *kind && found["status"] == status);
            let since =
                same.map_or_else(|| whole_seconds(writer.now).into(), |same| same["lastTransitionTime"].clone());
            let message: String = message.chars().take(MESSAGE_CHARACTERS_MAX).collect();
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        });
        new["status"]["conditions"] = reported.collect();
        Ok((new, false))
    });
    reported.await.map(|_| ())
}
