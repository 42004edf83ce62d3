//! `signpost whoami`: the user that the API sees in a kubeconfig's credential.

use clap::{ArgMatches, Command};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use serde::Serialize;

use super::access::{self, API_TIMEOUT, ApiLocation};
use super::output::{self, Format};
use super::table::Properties;
use super::{Exit, Outcome};

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

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let user = access::run(API_TIMEOUT, async {
        let access = place.connect().await?;
        let reviews: Api<SelfSubjectReview> = Api::all(access.client.clone());
        let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
        let status = review.map_err(|error| access.unanswered(error))?.status.unwrap_or_default();
        let info = status.user_info.unwrap_or_default();
        Ok(User {
            user: info.username.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            kubeconfig: place.origin(),
            api: access.url().to_owned(),
        })
    })?;
    Format::of(matches).show(&user, |painter| {
        let mut facts = Properties::default();
        facts.add("user", user.user.as_str());
        facts.add("groups", user.groups.join(", "));
        facts.add("kubeconfig", user.kubeconfig.as_str());
        facts.add("api", user.api.as_str());
        facts.text(painter)
    })?;
    Ok(Exit::Success)
}
