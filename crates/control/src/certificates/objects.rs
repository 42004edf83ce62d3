//! The Secrets of the account, of orders, and of certificates.
//!
//! Agents read those of [`AGENT_NAMESPACE`] whose name has their Router, and none of the others.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Preconditions};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, GeneralName, ParsedExtension, X509Certificate};

use super::budget::PlacedOrder;
use super::plan::{Attempt, Issued, Subject};
use crate::client::write;
use signpost_types::instance::{AGENT_NAMESPACE, certificate_name};
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;

/// The field manager.
const MANAGER: &str = "signpost-acme";
/// The annotation of a certificate: the directory of the CA that issued it.
const DIRECTORY: &str = "signpost.dev/acme-directory";
/// The label of all of them.
const LABEL: (&str, &str) = ("app.kubernetes.io/component", "acme");
/// The time, in seconds, after which an attempt that nothing continues is forgotten.
const ATTEMPT_LIFETIME: i64 = 7 * 86_400;
/// The time, in seconds, after which the orders of an attempt that succeeded do not count any more.
const SUCCESS_LIFETIME: i64 = 2 * 3_600;
/// The most certificates of a chain: agents use no longer ones.
const CHAIN_MAX: usize = 10;
/// The Secrets of a page.
const PAGE: u32 = 100;
/// The keys in Secrets.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const ATTEMPT: &str = "attempt";

/// An attempt with its private key in PEM.
pub(super) struct StoredAttempt {
    pub(super) attempt: Attempt,
    pub(super) key: String,
}

/// The stored account.
pub(super) struct StoredAccount {
    /// The credentials, as JSON.
    pub(super) credentials: String,
    /// The UID of its Secret.
    pub(super) uid: Option<String>,
}

fn text(secret: &Secret, key: &str) -> Option<String> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok()
}

/// Returns digits of a hash, for the name of an object.
fn hash(parts: &[&str]) -> String {
    HEXLOWER.encode(&digest(&SHA256, parts.join("\n").as_bytes()).as_ref()[..16])
}

async fn write(
    client: &kube::Client,
    namespace: &str,
    name: &str,
    kind: &str,
    annotations: Value,
    data: &[(&str, &str)],
) -> kube::Result<()> {
    let data: BTreeMap<&str, String> =
        data.iter().map(|(key, value)| (*key, BASE64.encode(value.as_bytes()))).collect();
    let labels = json!({LABEL.0: LABEL.1});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}});
    write::apply::<Secret>(client, Some(namespace), name, MANAGER, &secret).await
}

fn platform(client: &kube::Client) -> Api<Secret> {
    Api::namespaced(client.clone(), SCHEDULER_LEASE_NAMESPACE)
}

/// Returns the account at a directory.
pub(super) async fn account(client: &kube::Client, directory: &str) -> kube::Result<Option<StoredAccount>> {
    let secret = platform(client).get_opt(&account_name(directory)).await?;
    Ok(secret.and_then(|secret| {
        Some(StoredAccount { credentials: text(&secret, "credentials")?, uid: secret.metadata.uid })
    }))
}

/// Stores an account; returns the UID of its Secret.
pub(super) async fn write_account(
    client: &kube::Client,
    directory: &str,
    credentials: &str,
    thumbprint: &str,
) -> kube::Result<Option<String>> {
    let (name, data) = (account_name(directory), [("credentials", credentials), ("thumbprint", thumbprint)]);
    write(client, SCHEDULER_LEASE_NAMESPACE, &name, "Opaque", json!({DIRECTORY: directory}), &data).await?;
    Ok(platform(client).get_opt(&name).await?.and_then(|secret| secret.metadata.uid))
}

/// Removes an account that the CA does not have any more, unless the Secret is already that of another one.
pub(super) async fn delete_account(client: &kube::Client, directory: &str, uid: &str) -> kube::Result<()> {
    let only = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    write::delete(&platform(client), &account_name(directory), Some(only)).await.map(drop)
}

/// Returns the namespace and the name of the account's Secret.
pub(super) fn account_secret(directory: &str) -> String {
    format!("{SCHEDULER_LEASE_NAMESPACE}/{}", account_name(directory))
}

fn account_name(directory: &str) -> String {
    format!("acme-account-{}", hash(&[directory]))
}

/// Returns the attempt for a subject.
pub(super) async fn attempt(client: &kube::Client, subject: &Subject) -> kube::Result<Option<StoredAttempt>> {
    let secret = platform(client).get_opt(&attempt_name(subject)).await?;
    Ok(secret.and_then(|secret| Some(StoredAttempt { attempt: read_attempt(&secret)?, key: text(&secret, KEY)? })))
}

pub(super) async fn write_attempt(
    client: &kube::Client,
    subject: &Subject,
    StoredAttempt { attempt, key }: &StoredAttempt,
) -> kube::Result<()> {
    let text = serde_json::to_string(attempt).map_err(kube::Error::SerdeError)?;
    let data = [(ATTEMPT, text.as_str()), (KEY, key)];
    write(client, SCHEDULER_LEASE_NAMESPACE, &attempt_name(subject), "Opaque", json!({}), &data).await
}

/// Returns the orders in all attempts.
pub(super) async fn orders(client: &kube::Client) -> kube::Result<Vec<PlacedOrder>> {
    let orders = find(&platform(client), |secret| Some(read_attempt(secret)?.orders)).await?;
    Ok(orders.into_iter().flatten().collect())
}

fn read_attempt(secret: &Secret) -> Option<Attempt> {
    serde_json::from_str(&text(secret, ATTEMPT)?).ok()
}

fn attempt_name(subject: &Subject) -> String {
    format!("acme-order-{}", hash(&[&subject.router, &subject.host]))
}

/// Returns the certificate of a subject.
pub(super) async fn certificate(client: &kube::Client, subject: &Subject) -> kube::Result<Option<Issued>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), AGENT_NAMESPACE);
    let secret = secrets.get_opt(&certificate_name(&subject.router, &subject.host)).await?;
    Ok(secret.and_then(|secret| {
        let directory = secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DIRECTORY));
        read(&text(&secret, CERTIFICATE)?, directory.map_or("", String::as_str))
    }))
}

/// Copies the certificate of a host from another Router, after a move; returns whether there is one.
pub(super) async fn copy(client: &kube::Client, subject: &Subject, others: &[String]) -> kube::Result<bool> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), AGENT_NAMESPACE);
    for router in others {
        let Some(secret) = secrets.get_opt(&certificate_name(router, &subject.host)).await? else { continue };
        let directory = secret.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DIRECTORY));
        if let (Some(directory), Some(chain), Some(key)) = (directory, text(&secret, CERTIFICATE), text(&secret, KEY)) {
            write_certificate(client, subject, directory, &chain, &key).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) async fn write_certificate(
    client: &kube::Client,
    subject: &Subject,
    directory: &str,
    chain: &str,
    key: &str,
) -> kube::Result<()> {
    let name = certificate_name(&subject.router, &subject.host);
    let annotations = json!({DIRECTORY: directory, "signpost.dev/host": subject.host});
    let data = [(CERTIFICATE, chain), (KEY, key)];
    write(client, AGENT_NAMESPACE, &name, "kubernetes.io/tls", annotations, &data).await
}

/// Deletes certificates that have expired, and attempts that nothing continues: those of unused names.
pub(super) async fn sweep(client: &kube::Client, now: i64) -> kube::Result<()> {
    for namespace in [AGENT_NAMESPACE, SCHEDULER_LEASE_NAMESPACE] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let is_old = |attempt: Attempt| {
            let lifetime = if attempt.is_over() { SUCCESS_LIFETIME } else { ATTEMPT_LIFETIME };
            attempt.retry_at.max(attempt.since) + lifetime < now
        };
        let over = find(&secrets, |secret| {
            let certificate = text(secret, CERTIFICATE).and_then(|chain| read(&chain, ""));
            let is_over = read_attempt(secret).is_some_and(is_old)
                || certificate.is_some_and(|certificate| certificate.not_after < now);
            secret.metadata.name.clone().filter(|_| is_over)
        });
        for name in over.await? {
            tracing::info!(namespace, name, "deleting a Secret of a certificate that is not needed any more");
            write::delete(&secrets, &name, None).await?;
        }
    }
    Ok(())
}

/// Returns what `take` finds in the Secrets of this module in a namespace.
async fn find<T>(secrets: &Api<Secret>, take: impl Fn(&Secret) -> Option<T>) -> kube::Result<Vec<T>> {
    let mut page = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1)).limit(PAGE);
    let mut found = Vec::new();
    loop {
        let list = secrets.list(&page).await?;
        found.extend(list.items.iter().filter_map(&take));
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(found),
        }
    }
}

/// Checks a chain of certificates in PEM, which the CA issued for these names and a key.
pub(super) fn check(chain: &str, names: &[String], key: &KeyPair, directory: &str) -> Result<Issued, &'static str> {
    let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).take(CHAIN_MAX + 1).collect();
    let ders = ders.map_err(|_| "no valid chain of certificates")?;
    let read = |der| X509Certificate::from_der(der).ok().filter(|(rest, _)| rest.is_empty());
    let certificates: Option<Vec<_>> = ders.iter().map(|der| Some(read(der)?.1)).collect();
    let certificates = certificates.filter(|all| (1..=CHAIN_MAX).contains(&all.len()));
    let certificates = certificates.ok_or("no valid chain of certificates")?;
    let issued = read_issued(&certificates[0], directory).ok_or("a certificate without names")?;
    if !names.iter().all(|name| issued.names.contains(name)) {
        return Err("a certificate for other names");
    }
    if certificates[0].public_key().raw != key.subject_public_key_info() {
        return Err("a certificate for another key");
    }
    let is_issuer = |pair: &[X509Certificate<'_>]| pair[0].issuer().as_raw() == pair[1].subject().as_raw();
    if certificates.windows(2).all(is_issuer) { Ok(issued) } else { Err("certificates that do not form a chain") }
}

/// Returns what matters of the first certificate in PEM.
pub(super) fn read(chain: &str, directory: &str) -> Option<Issued> {
    let der = CertificateDer::from_pem_slice(chain.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    read_issued(&certificate, directory)
}

fn read_issued(certificate: &X509Certificate<'_>, directory: &str) -> Option<Issued> {
    let names = certificate.subject_alternative_name().ok()??;
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    let issuer = certificate.issuer();
    let authority = certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(authority) => authority.key_identifier.as_ref().map(|id| id.0),
        _ => None,
    });
    let id = authority.map(|authority| {
        format!("{}.{}", BASE64URL_NOPAD.encode(authority), BASE64URL_NOPAD.encode(certificate.raw_serial()))
    });
    let organization = issuer.iter_organization().chain(issuer.iter_common_name()).find_map(|name| name.as_str().ok());
    Some(Issued {
        not_before: certificate.validity().not_before.timestamp(),
        not_after: certificate.validity().not_after.timestamp(),
        names: names.value.general_names.iter().filter_map(name).collect(),
        issuer: organization.unwrap_or("an unnamed CA").to_owned(),
        directory: directory.to_owned(),
        id,
    })
}
