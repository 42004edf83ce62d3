//! The user that the API sees in a kubeconfig's credential.

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::access::Access;
use crate::cli::output::Format;
use crate::cli::table::Properties;
use crate::oidc;

/// The output. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
pub(super) struct User {
    user: String,
    groups: Vec<String>,
    kubeconfig: String,
    api: String,
    /// The expiry of a token of an identity provider.
    expires: Option<Timestamp>,
}

impl User {
    /// Queries the API for the user whose credential `access` has.
    pub(super) async fn of(access: &Access, kubeconfig: String) -> Result<User, String> {
        let reviews: Api<SelfSubjectReview> = Api::all(access.client.clone());
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
        let status = review.map_err(|error| access.unanswered(error))?.status.unwrap_or_default();
        let info = status.user_info.unwrap_or_default();
        Ok(User {
            user: info.username.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            kubeconfig,
            api: access.url().to_owned(),
            expires: None,
        })
    }

    /// Adds the expiry of the user's token, if the token has one.
    pub(super) fn with_token(self, token: &str) -> User {
        let expires = oidc::expiry(token).and_then(|seconds| Timestamp::from_second(seconds).ok());
        User { expires, ..self }
    }

    /// Prints the user.
    pub(super) fn show(&self, format: Format) -> Outcome {
        format.show(self, |painter| {
            let mut facts = Properties::default();
            facts.add("user", self.user.as_str());
            facts.add("groups", self.groups.join(", "));
            facts.add("kubeconfig", self.kubeconfig.as_str());
            facts.add("api", self.api.as_str());
            if let Some(expires) = self.expires {
                facts.add("token expires", expires.to_string());
            }
            facts.text(painter)
        })
    }
}
