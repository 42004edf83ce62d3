//! `signpost whoami`: the user that the API sees in a kubeconfig's credential.

use clap::{ArgMatches, Command};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;

use super::Outcome;
use super::access::{self, API_TIMEOUT, Access, ApiLocation};
use super::output::{self, Format};
use super::table::Properties;

pub(super) fn command() -> Command {
    Command::new("whoami")
        .about("Show the user and groups of the kubeconfig's credential")
        .after_help("Exit codes: 0 shown, 1 the API is unreachable or rejected the credential, 2 invalid usage.")
        .arg(output::argument())
        .args(access::arguments())
}

/// The output. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Serialize)]
struct User {
    user: String,
    groups: Vec<String>,
    kubeconfig: String,
    api: String,
}

impl User {
    /// Queries the API for the user whose credential `access` has.
    async fn of(access: &Access, kubeconfig: String) -> Result<User, String> {
        let reviews: Api<SelfSubjectReview> = Api::all(access.client.clone());
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
        let status = review.map_err(|error| access.unanswered(error))?.status.unwrap_or_default();
        let info = status.user_info.unwrap_or_default();
        Ok(User {
            user: info.username.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            kubeconfig,
            api: access.url().to_owned(),
        })
    }

    /// Prints the user.
    fn show(&self, format: Format) -> Outcome {
        format.show(self, |painter| {
            let mut facts = Properties::default();
            facts.add("user", self.user.as_str());
            facts.add("groups", self.groups.join(", "));
            facts.add("kubeconfig", self.kubeconfig.as_str());
            facts.add("api", self.api.as_str());
            facts.text(painter)
        })
    }
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let user = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        User::of(&access, place.origin()).await
    })?;
    user.show(Format::of(matches))
}
