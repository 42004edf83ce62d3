//! Impersonation: the `Impersonate-…` headers of `kubectl --as`, `--as-group`, and `--as-uid`.
//!
//! The rule table has a separate permission for each of user, group, uid, and extra, as in Kubernetes. A request without one of
//! them is rejected: ignoring a header would run `kubectl --as=viewer` with the sender's own permissions.

use std::collections::BTreeMap;

use http::request::Parts;

use super::identity::{GROUP_AUTHENTICATED, GROUP_UNAUTHENTICATED, Identity, USER_ANONYMOUS};
use super::rules::{Access, Authorizer};
use crate::error::ApiError;

/// The maximum number of impersonated groups of a request.
const GROUPS_MAX: usize = 64;
/// The maximum number of extra values of a request.
const EXTRAS_MAX: usize = 64;
/// The prefix of headers with extra values.
const EXTRA_PREFIX: &str = "impersonate-extra-";

/// The identity that a request acts as, and its other attributes. Permissions depend only on the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// User and groups.
    pub identity: Identity,
    /// Uid, if one was impersonated.
    pub uid: Option<String>,
    /// Extra values by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Returns the impersonated subject of a request; `None`: the sender. 403 if the sender lacks the permission, 400 if the headers
/// are invalid.
pub fn impersonate(
    authorizer: &dyn Authorizer,
    request: &Parts,
    sender: &Identity,
) -> Result<Option<Subject>, ApiError> {
    let is_one = |name: &http::HeaderName| name.as_str().starts_with("impersonate-");
    if !request.headers.keys().any(is_one) {
        return Ok(None);
    }
    let text = |value: &http::HeaderValue| {
        value.to_str().map(str::to_owned).map_err(|_| ApiError::bad_request("impersonation headers must be ASCII"))
    };
    let one = |name: &str| -> Result<Option<String>, ApiError> {
        Ok(request.headers.get(name).map(text).transpose()?.filter(|value| !value.is_empty()))
    };
    let Some(user) = one("impersonate-user")? else {
        return Err(ApiError::bad_request("requested groups, uid or extra without impersonating a user"));
    };
    let groups = request.headers.get_all("impersonate-group").iter().map(text).collect::<Result<Vec<_>, _>>()?;
    if groups.len() > GROUPS_MAX {
        return Err(ApiError::bad_request(format!("at most {GROUPS_MAX} groups can be impersonated")));
    }
    let uid = one("impersonate-uid")?;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in &request.headers {
        match name.as_str() {
            "impersonate-user" | "impersonate-group" | "impersonate-uid" => {}
            other => match other.strip_prefix(EXTRA_PREFIX).filter(|key| !key.is_empty()) {
                Some(key) => extra.entry(decoded(key)).or_default().push(text(value)?),
                // An unknown header must not be ignored either.
                None if is_one(name) => {
                    return Err(ApiError::bad_request(format!("unknown impersonation header {other}")));
                }
                None => {}
            },
        }
    }
    if extra.values().map(Vec::len).sum::<usize>() > EXTRAS_MAX {
        return Err(ApiError::bad_request(format!("at most {EXTRAS_MAX} extra values can be impersonated")));
    }

    let may = |group: &str, resource: &str, name: &str| {
        authorizer.authorize(sender, &Access::resource("impersonate", group, resource, None, Some(name)))
    };
    may("", "users", &user)?;
    groups.iter().try_for_each(|group| may("", "groups", group))?;
    uid.iter().try_for_each(|uid| may("authentication.k8s.io", "uids", uid))?;
    for (key, values) in &extra {
        let resource = format!("userextras/{key}");
        values.iter().try_for_each(|value| may("authentication.k8s.io", &resource, value))?;
    }

    let implied = if user == USER_ANONYMOUS { GROUP_UNAUTHENTICATED } else { GROUP_AUTHENTICATED };
    let mut identity = Identity { user, groups };
    if !identity.groups.iter().any(|group| group == implied) {
        identity.groups.push(implied.to_owned());
    }
    Ok(Some(Subject { identity, uid, extra }))
}

/// Returns a key of extra values: percent-decoded, because a header name allows fewer characters than a key.
fn decoded(key: &str) -> String {
    let mut octets = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let encoded = (*first == b'%').then(|| tail.get(..2)).flatten();
        let octet = encoded.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        octets.push(octet.unwrap_or(*first));
        rest = if octet.is_some() { &tail[2..] } else { tail };
    }
    // As in Kubernetes, a value that is not text after decoding stays unchanged.
    String::from_utf8(octets).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::parts;
    use super::*;
    use crate::auth::identity::GROUP_MASTERS;
    use crate::auth::rules::MastersOnly;

    fn admin() -> Identity {
        Identity { user: "admin".into(), groups: vec![GROUP_MASTERS.into()] }
    }

    #[test]
    fn each_header_is_authorized_or_refused() {
        const USER: (&str, &str) = ("Impersonate-User", "bob");
        for (headers, as_admin, as_other) in [
            (&[][..], None, None),
            (&[USER], None, Some(403)),
            (&[USER, ("Impersonate-Group", "dev")], None, Some(403)),
            (&[USER, ("Impersonate-Uid", "u-1")], None, Some(403)),
            (&[USER, ("Impersonate-Extra-scopes", "view")], None, Some(403)),
            (&[("Impersonate-Group", "dev")], Some(400), Some(400)),
            (&[("Impersonate-Uid", "u-1")], Some(400), Some(400)),
            (&[("Impersonate-Extra-scopes", "view")], Some(400), Some(400)),
            (&[("Impersonate-User", "")], Some(400), Some(400)),
            (&[USER, ("Impersonate-Future", "x")], Some(400), Some(400)),
            (&[USER, ("Impersonate-Extra-", "x")], Some(400), Some(400)),
        ] {
            let code = |sender: Identity| {
                impersonate(&MastersOnly, &parts(headers), &sender).map_err(|error| error.code).err()
            };
            assert_eq!(code(admin()), as_admin, "admin {headers:?}");
            assert_eq!(code(Identity::user("eve")), as_other, "eve {headers:?}");
        }
    }

    #[test]
    fn all_that_was_asked_for_is_reported() {
        let headers = [
            ("Impersonate-User", "bob"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Uid", "u-1"),
            ("Impersonate-Extra-acme.com%2Fproject", "one"),
            ("Impersonate-Extra-acme.com%2Fproject", "two"),
        ];
        let subject = impersonate(&MastersOnly, &parts(&headers), &admin()).expect("allowed").expect("another");
        assert_eq!(subject.identity.user, "bob");
        assert_eq!(subject.identity.groups, ["dev", GROUP_AUTHENTICATED]);
        assert_eq!(subject.uid.as_deref(), Some("u-1"));
        assert_eq!(subject.extra["acme.com/project"], ["one", "two"]);
        let anonymous = impersonate(&MastersOnly, &parts(&[("Impersonate-User", USER_ANONYMOUS)]), &admin());
        assert_eq!(anonymous.expect("allowed").expect("another").identity.groups, [GROUP_UNAUTHENTICATED]);
    }

    #[test]
    fn a_refusal_names_the_right_that_lacks() {
        let headers = [("Impersonate-User", "bob")];
        let message = impersonate(&MastersOnly, &parts(&headers), &Identity::user("eve")).expect_err("refused").message;
        assert_eq!(
            message,
            "users \"bob\" is forbidden: User \"eve\" cannot impersonate resource \"users\" in API group \"\" at the \
             cluster scope"
        );
    }
}
