//! The sessions of signed-in users, in memory, each with a client of the API that carries the token of its sign-in.
//!
//! The browser stores a random identifier in a cookie that scripts cannot read and that other sites cannot cause to be sent. The
//! token stays here, in memory only. A session ends an hour after its last use, half a day after its start, when its user signs
//! out, when the API rejects its token, or when the process ends. A token of an identity provider lasts for minutes only; it is
//! renewed ([`Sessions::renew`]) as long as the provider issues a new one.
//!
//! The permissions of a user are never decided here: [`Session::rights`] queries the API with `SelfSubjectAccessReview` and the
//! user's own token, and again when the answer is older than `RIGHTS_LAST`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::rand;
use axum::http::{HeaderMap, StatusCode, header};
use data_encoding::BASE64URL_NOPAD;
use futures::future::join_all;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::ask::{self, Failure};
use crate::oidc;
use signpost_api::identity::GROUP_TENANT_PREFIX;
use signpost_apiserver::auth::jwt::TOKEN_OCTETS_MAX;
use signpost_control::client::{self, Bearer};
use signpost_runtime::clock;
use signpost_types::v1alpha1::{GROUP, SCHEDULER_LEASE_NAMESPACE};

/// The maximum number of sessions; beyond it, the least recently used one ends. Each is a token and a client, some ten kilobytes.
const SESSIONS_MAX: usize = 1_024;
/// The maximum number of sessions of one user: the least recently used one ends.
const SESSIONS_OF_USER_MAX: usize = 16;
/// The maximum number of concurrent API responses to one user's browsers, over all sessions.
const ANSWERS_OF_USER_MAX: usize = 8;
/// The idle timeout of a session.
const IDLE_LONGEST: Duration = Duration::from_secs(3_600);
/// The maximum lifetime of a session.
const AGE_LONGEST: Duration = Duration::from_secs(12 * 3_600);
/// The time for which an access review of the API is cached. A revoked permission takes effect after this time at the latest.
const RIGHTS_LAST: Duration = Duration::from_secs(5);
/// The remaining lifetime of a token at which it is renewed; of a shorter one, half its lifetime.
const RENEW_BEFORE: Duration = Duration::from_secs(60);
/// The pause after a failed renewal. It does not end the session, because the token can still be valid.
const RENEW_AGAIN: Duration = Duration::from_secs(10);
/// The maximum number of a user's namespaces to review.
const NAMESPACES_MAX: usize = 32;
/// The API group of Events.
const EVENTS_GROUP: &str = "events.k8s.io";
/// The cookie's name.
const COOKIE: &str = "signpost_session";
/// The path to which cookies are sent.
const COOKIE_PATH: &str = "/dashboard/";

/// The sessions of a process.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<Box<[u8]>, Arc<Session>>>);

/// The renewal of the token of a session.
pub struct Renewal {
    provider: Arc<oidc::Client>,
    refresh_token: String,
    id_token: String,
    due: Instant,
}

impl Renewal {
    /// Returns the renewal of these tokens; `None` if the provider issued no refresh token.
    pub fn of(provider: Arc<oidc::Client>, tokens: oidc::Tokens) -> Option<Self> {
        let left = u64::try_from(tokens.expires).unwrap_or(0).saturating_sub(clock::unix_seconds());
        let left = Duration::from_secs(left).min(AGE_LONGEST);
        let due = Instant::now() + left.saturating_sub(RENEW_BEFORE).max(left / 2);
        let id_token = tokens.id_token;
        tokens.refresh_token.map(|refresh_token| Renewal { provider, refresh_token, id_token, due })
    }
}

/// A signed-in user.
pub struct Session {
    pub client: kube::Client,
    bearer: Bearer,
    renewal: Mutex<Option<Renewal>>,
    pub user: String,
    pub groups: Vec<String>,
    /// Cloned by each open stream.
    pub streams: Arc<()>,
    /// The permits for API responses to the browsers of the user, shared by all their sessions.
    pub answers: Arc<Semaphore>,
    /// The namespaces to review, for users without access to all.
    namespaces: Vec<String>,
    began: Instant,
    used: Mutex<Instant>,
    rights: tokio::sync::Mutex<Option<(Instant, Rights)>>,
}

/// The permissions of a user according to the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rights {
    pub all: bool,
    pub namespaces: Vec<String>,
    pub routers: bool,
    /// Whether the user may list all Zones. This includes access to the metrics of this process, which cover all of them.
    pub zones: bool,
    pub leases: bool,
    /// Whether the user may list the Events of all namespaces.
    pub events: bool,
    /// Otherwise, those of `namespaces` whose Events the user may list.
    pub event_namespaces: Vec<String>,
}

impl Rights {
    /// Returns whether the user may list the Routes of a namespace.
    pub fn sees(&self, namespace: &str) -> bool {
        self.all || self.namespaces.iter().any(|one| one == namespace)
    }
}

impl Sessions {
    /// Opens a session with `token`, which the API must accept. Returns the session, and the identifier for its cookie.
    /// `namespace` is a namespace to review, for users whose groups do not name any.
    pub async fn open(
        &self,
        door: &kube::Client,
        token: &str,
        namespace: Option<&str>,
    ) -> Result<(String, Arc<Session>), Failure> {
        let (client, bearer) = bearing(door, token)?;
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let answer = ask::post(&client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
        let info = &answer["status"]["userInfo"];
        let user = info["username"].as_str().unwrap_or_default().to_owned();
        let groups: Vec<String> =
            info["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let mut namespaces: Vec<String> =
            groups.iter().filter_map(|group| group.strip_prefix(GROUP_TENANT_PREFIX)).map(str::to_owned).collect();
        namespaces.extend(namespace.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
        namespaces.sort();
        namespaces.dedup();
        namespaces.truncate(NAMESPACES_MAX);
        let identifier = random()?;
        let mut sessions = self.0.lock();
        let own: Vec<_> = sessions.values().filter(|other| other.user == user).collect();
        let answers = own.first().map(|other| other.answers.clone());
        let is_full_for_user = own.len() >= SESSIONS_OF_USER_MAX;
        let now = Instant::now();
        let session = Arc::new(Session {
            client,
            bearer,
            renewal: Mutex::default(),
            user,
            groups,
            streams: Arc::default(),
            answers: answers.unwrap_or_else(|| Arc::new(Semaphore::new(ANSWERS_OF_USER_MAX))),
            namespaces,
            began: now,
            used: Mutex::new(now),
            rights: tokio::sync::Mutex::default(),
        });
        if is_full_for_user || sessions.len() >= SESSIONS_MAX {
            // A user that signs in repeatedly ends only their own sessions.
            let may_end = |other: &Session| !is_full_for_user || other.user == session.user;
            let candidates = sessions.iter().filter(|(_, other)| may_end(other));
            let oldest = candidates.min_by_key(|(_, other)| *other.used.lock()).map(|(key, _)| key.clone());
            oldest.and_then(|key| sessions.remove(&key));
        }
        sessions.insert(key(&identifier), session.clone());
        Ok((identifier, session))
    }

    /// Returns the session of a request, by its cookie; it counts as used now.
    pub fn of(&self, headers: &HeaderMap) -> Result<Arc<Session>, Failure> {
        self.with(identifier(headers).ok_or_else(signed_out)?)
    }

    /// Returns the session with this identifier; it counts as used now.
    pub fn with(&self, identifier: &str) -> Result<Arc<Session>, Failure> {
        let key = key(identifier);
        let mut sessions = self.0.lock();
        let session = sessions.get(&key).ok_or_else(signed_out)?.clone();
        if session.is_over() {
            sessions.remove(&key);
            return Err(signed_out());
        }
        *session.used.lock() = Instant::now();
        Ok(session)
    }

    /// Ends the session of a request.
    pub fn close(&self, headers: &HeaderMap) {
        if let Some(identifier) = identifier(headers) {
            self.0.lock().remove(&key(identifier));
        }
    }

    /// Ends this session, whose token the API rejects.
    pub fn forget(&self, session: &Arc<Session>) {
        self.0.lock().retain(|_, other| !Arc::ptr_eq(other, session));
    }

    /// Returns whether this session still stands.
    pub fn holds(&self, session: &Arc<Session>) -> bool {
        self.0.lock().values().any(|other| Arc::ptr_eq(other, session)) && !session.is_over()
    }

    /// Ends expired sessions.
    pub fn sweep(&self) {
        self.0.lock().retain(|_, session| !session.is_over());
    }

    /// Renews the tokens that expire soon, each in a task that ends within the timeout of the provider's requests.
    pub fn renew(&self) {
        let now = Instant::now();
        for session in self.0.lock().values() {
            if let Some(renewal) = session.renewal.lock().take_if(|renewal| renewal.due <= now) {
                let session = session.clone();
                tokio::spawn(async move { session.renew(renewal).await });
            }
        }
    }
}

impl Session {
    /// Returns the permissions of the user; an error if the API rejects the token or does not respond.
    pub async fn rights(&self) -> Result<Rights, Failure> {
        let mut known = self.rights.lock().await;
        if let Some((asked, rights)) = &*known
            && asked.elapsed() < RIGHTS_LAST
        {
            return Ok(rights.clone());
        }
        let (all, routers, zones, leases, events) = tokio::join!(
            self.may("list", GROUP, "routes", None),
            self.may("list", GROUP, "routers", None),
            self.may("list", GROUP, "zones", None),
            self.may("get", "coordination.k8s.io", "leases", Some(SCHEDULER_LEASE_NAMESPACE)),
            self.may("list", EVENTS_GROUP, "events", None),
        );
        let (all, zones, events) = (all?, zones?, events?);
        let (mut namespaces, mut event_namespaces) = (Vec::new(), Vec::new());
        if !all {
            namespaces = self.listable(&self.namespaces, GROUP, "routes").await?;
        }
        if !events {
            event_namespaces = self.listable(&namespaces, EVENTS_GROUP, "events").await?;
        }
        let (routers, leases) = (routers?, leases?);
        let rights = Rights { all, namespaces, routers, zones, leases, events, event_namespaces };
        *known = Some((Instant::now(), rights.clone()));
        Ok(rights)
    }

    /// Returns the maximum remaining lifetime of the session.
    pub fn left(&self) -> Duration {
        AGE_LONGEST.saturating_sub(self.began.elapsed())
    }

    /// Returns those of `namespaces` in which the user may list a resource.
    async fn listable(&self, namespaces: &[String], group: &str, resource: &str) -> Result<Vec<String>, Failure> {
        let asked = namespaces.iter().map(|namespace| self.may("list", group, resource, Some(namespace)));
        let answers: Vec<bool> = join_all(asked).await.into_iter().collect::<Result<_, _>>()?;
        Ok(namespaces.iter().zip(answers).filter(|(_, may)| *may).map(|(namespace, _)| namespace.clone()).collect())
    }

    /// Lets the token be renewed.
    pub fn renew_with(&self, renewal: Option<Renewal>) {
        *self.renewal.lock() = renewal;
    }

    async fn renew(&self, renewal: Renewal) {
        let next = match renewal.provider.refresh(&renewal.refresh_token, &renewal.id_token).await {
            Ok(tokens) => match self.bearer.replace(&tokens.id_token) {
                Ok(()) => Renewal::of(renewal.provider, tokens),
                Err(_) => None,
            },
            Err(error @ (oidc::Error::Provider { .. } | oidc::Error::Secret(_))) => {
                tracing::warn!(%error, "failed to renew the token of a session of the dashboard; retrying");
                Some(Renewal { due: Instant::now() + RENEW_AGAIN, ..renewal })
            }
            // The session ends with its token.
            Err(error) => {
                tracing::info!(%error, user = %self.user, "the token of a session of the dashboard was not renewed");
                None
            }
        };
        self.renew_with(next);
    }

    async fn may(&self, verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> Result<bool, Failure> {
        may(&self.client, verb, group, resource, namespace).await
    }

    fn is_over(&self) -> bool {
        // An open stream counts as a use.
        let idle = self.used.lock().elapsed() > IDLE_LONGEST && Arc::strong_count(&self.streams) == 1;
        idle || self.began.elapsed() > AGE_LONGEST
    }
}

/// Returns whether the user with this token may list Zones, according to the API.
pub async fn may_list_zones(door: &kube::Client, token: &str) -> Result<bool, Failure> {
    let (client, _) = bearing(door, token)?;
    may(&client, "list", GROUP, "zones", None).await
}

/// Returns a client that carries `token`, and the token.
fn bearing(door: &kube::Client, token: &str) -> Result<(kube::Client, Bearer), Failure> {
    let unusable = || Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized", "invalid token");
    if token.is_empty() || token.len() > TOKEN_OCTETS_MAX {
        return Err(unusable());
    }
    let bearer = Bearer::new(token).map_err(|_| unusable())?;
    Ok((client::bearing(door.clone(), bearer.clone()), bearer))
}

async fn may(
    client: &kube::Client,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> Result<bool, Failure> {
    let attributes = json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace.unwrap_or("")});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let answer = ask::post(client, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
    Ok(answer["status"]["allowed"].as_bool().unwrap_or(false))
}

/// Returns the value of `Set-Cookie` for a session. `secure`: the browser came over HTTPS.
pub fn cookie(identifier: &str, secure: bool) -> String {
    set_cookie(COOKIE, identifier, AGE_LONGEST, secure)
}

/// Returns the value of `Set-Cookie` that deletes the cookie.
pub fn no_cookie() -> String {
    set_cookie(COOKIE, "", Duration::ZERO, false)
}

/// Returns the value of `Set-Cookie` for a cookie that neither scripts nor requests of other sites get.
pub fn set_cookie(name: &str, value: &str, age: Duration, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    let age = age.as_secs();
    format!("{name}={value}; Path={COOKIE_PATH}; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

fn signed_out() -> Failure {
    Failure::new(StatusCode::UNAUTHORIZED, "SignedOut", "not signed in, or the session has ended")
}

/// Returns 256 random bits as text.
pub fn random() -> Result<String, Failure> {
    let mut octets = [0_u8; 32];
    rand::fill(&mut octets).map_err(|_| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "the system returned no random numbers")
    })?;
    Ok(BASE64URL_NOPAD.encode(&octets))
}

fn identifier(headers: &HeaderMap) -> Option<&str> {
    cookie_of(headers, COOKIE)
}

/// Returns the value of the cookie with this name.
pub fn cookie_of<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == wanted && !value.is_empty()).map(|(_, value)| value)
}

/// Sessions are found by a hash, so that the duration of the lookup reveals nothing about existing identifiers.
pub fn key(identifier: &str) -> Box<[u8]> {
    digest::digest(&SHA256, identifier.as_bytes()).as_ref().into()
}
