//! Who sends a request, and whether they may.
//!
//! [`Authenticator::authenticate`] finds the sender: an [`Identity`] in the request's extensions (the process's own loops),
//! a client certificate, a bearer token, or nobody (`system:anonymous`). [`impersonate`] lets those who may speak for
//! another. [`rules`] is the one table of who may do what.

pub mod certificate;
pub mod rules;
pub mod tokens;

use arc_swap::ArcSwap;
use http::header;
use http::request::Parts;

use self::certificate::PeerCertificate;
use self::rules::{Access, Decision};
use self::tokens::Tokens;
use super::error::ApiError;
use crate::api::identity::{GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, Identity};

/// The user of a request without credentials.
pub const USER_ANONYMOUS: &str = "system:anonymous";
/// How many groups one request may ask to be seen as.
const GROUPS_MAX: usize = 64;

/// Finds out who sends a request.
#[derive(Default)]
pub struct Authenticator {
    tokens: ArcSwap<Tokens>,
}

impl Authenticator {
    /// With these bearer tokens.
    pub fn new(tokens: Tokens) -> Self {
        Authenticator { tokens: ArcSwap::from_pointee(tokens) }
    }

    /// Takes other tokens from now on; requests under way keep the old ones.
    pub fn replace_tokens(&self, tokens: Tokens) {
        self.tokens.store(tokens.into());
    }

    /// The sender; 401 if the credentials are wrong. A wrong token never makes an anonymous user of someone.
    pub fn authenticate(&self, request: &Parts) -> Result<Identity, ApiError> {
        if let Some(identity) = request.extensions.get::<Identity>() {
            return Ok(identity.clone());
        }
        if let Some(certificate) = request.extensions.get::<PeerCertificate>() {
            return Ok(certificate.identity());
        }
        let Some(authorization) = request.headers.get(header::AUTHORIZATION) else {
            return Ok(Identity { user: USER_ANONYMOUS.into(), groups: vec![GROUP_UNAUTHENTICATED.into()] });
        };
        let text = authorization.to_str().map_err(|_| ApiError::unauthorized())?;
        let (scheme, token) = text.trim().split_once(' ').ok_or_else(ApiError::unauthorized)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(ApiError::unauthorized());
        }
        self.tokens.load().identify(token.trim()).ok_or_else(ApiError::unauthorized)
    }
}

/// The identity that the request is to be judged as: the sender, or whom the `Impersonate-…` headers name, if the sender
/// may speak for them; 403 if not. Ignoring the headers would run `kubectl --as=viewer` with the sender's own rights.
pub fn impersonate(request: &Parts, sender: Identity) -> Result<Identity, ApiError> {
    let is_one = |name: &http::HeaderName| name.as_str().starts_with("impersonate-");
    if !request.headers.keys().any(is_one) {
        return Ok(sender);
    }
    let text = |value: &http::HeaderValue| {
        value.to_str().map(str::to_owned).map_err(|_| ApiError::bad_request("impersonation headers must be ASCII"))
    };
    let Some(user) = request.headers.get("impersonate-user").map(text).transpose()?.filter(|user| !user.is_empty())
    else {
        return Err(ApiError::bad_request("requested groups, uid or extra without impersonating a user"));
    };
    let groups = request.headers.get_all("impersonate-group").iter().map(text).collect::<Result<Vec<_>, _>>()?;
    if groups.len() > GROUPS_MAX {
        return Err(ApiError::bad_request(format!("at most {GROUPS_MAX} groups can be impersonated")));
    }
    let mut wanted = vec![("", "users", user.as_str())];
    wanted.extend(groups.iter().map(|group| ("", "groups", group.as_str())));
    for name in request.headers.keys().filter(|name| is_one(name)) {
        match name.as_str() {
            "impersonate-user" | "impersonate-group" => {}
            "impersonate-uid" => wanted.push(("authentication.k8s.io", "uids", "")),
            _ => wanted.push(("authentication.k8s.io", "userextras", "")),
        }
    }
    for (group, resource, name) in wanted {
        let access = Access::resource("impersonate", group, resource, None, Some(name));
        if let Decision::Denied { why } = rules::decide(&sender, &access) {
            return Err(access.forbidden(&sender, why));
        }
    }
    let anonymous = user == USER_ANONYMOUS;
    let mut identity = Identity { user, groups };
    let implied = if anonymous { GROUP_UNAUTHENTICATED } else { GROUP_AUTHENTICATED };
    if !identity.groups.iter().any(|group| group == implied) {
        identity.groups.push(implied.to_owned());
    }
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::api::identity::{GROUP_MASTERS, USER_ADMIN};

    fn parts(headers: &[(&str, &str)]) -> Parts {
        let mut builder = Request::builder().uri("/");
        for (key, value) in headers {
            builder = builder.header(*key, *value);
        }
        builder.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn tokens_identify_and_wrong_ones_are_refused() {
        let text = tokens::line("s3cret", "alice", &["ops".to_owned()]);
        let authenticator = Authenticator::new(Tokens::parse(&text).expect("tokens"));
        for (authorization, expected) in [
            (None, Ok(USER_ANONYMOUS)),
            (Some("Bearer s3cret"), Ok("alice")),
            (Some("bearer  s3cret "), Ok("alice")),
            (Some("Bearer other"), Err(401)),
            (Some("Bearer "), Err(401)),
            (Some("Basic s3cret"), Err(401)),
            (Some("s3cret"), Err(401)),
        ] {
            let headers: Vec<_> = authorization.into_iter().map(|value| ("authorization", value)).collect();
            let found = authenticator.authenticate(&parts(&headers));
            let found = found.as_ref().map(|identity| identity.user.as_str()).map_err(|error| error.code);
            assert_eq!(found, expected, "{authorization:?}");
        }
    }

    #[test]
    fn impersonation_is_authorized_or_refused() {
        let admin = Identity { user: USER_ADMIN.into(), groups: vec![GROUP_MASTERS.into()] };
        let headers = [("Impersonate-User", "bob"), ("Impersonate-Group", "dev")];
        let identity = impersonate(&parts(&headers), admin.clone()).expect("allowed");
        assert_eq!(identity.user, "bob");
        assert_eq!(identity.groups, ["dev", GROUP_AUTHENTICATED]);
        let refused = impersonate(&parts(&headers), Identity::user("eve")).map_err(|error| error.code);
        assert_eq!(refused, Err(403));
        let groups_alone = impersonate(&parts(&headers[1..]), admin).map_err(|error| error.code);
        assert_eq!(groups_alone, Err(400));
    }
}
