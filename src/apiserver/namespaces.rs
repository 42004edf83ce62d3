//! Namespaces: those that are always there, and the end of those that are deleted.
//!
//! A deleted namespace is `Terminating`: nothing new is taken into it (`handlers::create`), and this loop deletes what is in
//! it. When nothing is left it lets go of the namespace, which is gone with its last finalizer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::error::ApiError;
use super::handlers::create::create_object;
use super::handlers::delete::{Deletion, Propagation, delete_object};
use super::handlers::update::change;
use super::handlers::write::{Part, Writer};
use super::registry::{Kind, find, kinds};
use crate::api::identity::{GROUP_MASTERS, Identity, USER_CONTROLLER};

/// The namespaces that are always there.
const ALWAYS: [&str; 2] = ["default", "kube-system"];
/// How long to let changes gather before terminating namespaces are looked at again.
const GATHER: Duration = Duration::from_millis(50);
/// How long until another try when something did not work or is held by a finalizer.
const RETRY: Duration = Duration::from_secs(1);

/// The identity of the server's own loops, which may do what is needed.
pub(crate) fn own_identity() -> Identity {
    Identity { user: USER_CONTROLLER.to_owned(), groups: vec![GROUP_MASTERS.to_owned()] }
}

fn kind() -> &'static Kind {
    find("", "v1", "namespaces").expect("namespaces are always served")
}

/// Whether the namespaces that are always there are.
pub(crate) fn are_there(server: &Shared) -> bool {
    let shelf = server.cache.shelf(kind());
    ALWAYS.iter().all(|name| shelf.get(name).is_some())
}

/// Keeps the permanent namespaces and ends the others, until `cancel` fires.
pub(crate) async fn run(server: &Arc<Shared>, cancel: &CancellationToken) {
    let work = async {
        loop {
            server.cache.reaches(1, RETRY).await;
            if server.cache.applied() > 0 {
                break;
            }
        }
        while let Err(error) = make(server).await {
            tracing::warn!(%error, "the first namespaces could not be made yet");
            tokio::time::sleep(RETRY).await;
        }
        loop {
            let seen = server.cache.applied();
            let terminating: Vec<_> =
                server.cache.snapshot(kind(), "").objects.into_iter().filter(|namespace| namespace.deleting).collect();
            let mut wait = Duration::from_secs(60);
            for namespace in &terminating {
                wait = RETRY;
                if let Err(error) = end(server, namespace.name()).await {
                    tracing::warn!(namespace = namespace.name(), %error, "the namespace cannot end yet");
                }
            }
            server.cache.reaches(seen + 1, wait).await;
            tokio::time::sleep(GATHER).await;
        }
    };
    cancel.run_until_cancelled(work).await;
}

async fn make(server: &Arc<Shared>) -> Result<(), ApiError> {
    let identity = own_identity();
    let writer = Writer::internal(server, kind(), None, &identity);
    for name in ALWAYS {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        match create_object(&writer, namespace, false).await {
            Err(error) if error.reason != "AlreadyExists" => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Deletes what is in a namespace, or, when nothing is, lets go of it.
async fn end(server: &Arc<Shared>, namespace: &str) -> Result<(), ApiError> {
    let identity = own_identity();
    let prefix = format!("{namespace}/");
    let deletion = Deletion { propagation: Some(Propagation::Background), ..Deletion::default() };
    let mut left = false;
    let mut failed = None;
    for kind in kinds().iter().filter(|kind| kind.namespaced && kind.view.is_none()) {
        let writer = Writer::internal(server, kind, Some(namespace), &identity);
        for object in server.cache.snapshot(kind, &prefix).objects {
            left = true;
            if object.deleting {
                continue;
            }
            match delete_object(&writer, object.name(), &deletion).await {
                Err(error) if error.code != 404 => failed = Some(error),
                _ => {}
            }
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    if left && kinds().iter().any(|kind| kind.namespaced && server.cache.shelf(kind).has_any(&prefix)) {
        return Ok(());
    }
    let writer = Writer::internal(server, kind(), None, &identity);
    change(&writer, namespace, Part::Finalize, |live| {
        let mut new = live.tree.clone();
        new["spec"]["finalizers"] = json!([]);
        Ok((new, true))
    })
    .await
    .map(|_| ())
}
