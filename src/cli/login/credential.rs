//! The tokens of a sign-in, in a private file in the directory of the kubeconfig, and the credential plugin that prints them
//! (`client.authentication.k8s.io/v1`). kubectl and other clients run it when they need a token. It renews an expired one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::{Exit, Outcome, access, note, print};
use crate::oidc::{self, Tokens};
use signpost_apiserver::auth::resource_metadata::PublicClient;
use signpost_runtime::clock;
use signpost_runtime::tls::{files, tokens, users};

/// The version of the plugin's protocol.
pub(super) const API_VERSION: &str = "client.authentication.k8s.io/v1";
/// The directory of the files, in the directory of the kubeconfig.
const DIRECTORY: &str = "signpost-login";
/// The length of a file name in characters of a hash, enough to be unique among the users of a kubeconfig.
const NAME_LENGTH: usize = 16;
/// The minimum remaining lifetime of a token that needs no renewal. kube-rs runs the plugin again below one minute.
const FRESH: i64 = 90;
/// The time limit of a renewal: two requests to the provider.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedLogin {
    client: PublicClient,
    id_token: String,
    refresh_token: Option<String>,
}

impl SavedLogin {
    pub(super) fn new(client: PublicClient, tokens: Tokens) -> Self {
        SavedLogin { client, id_token: tokens.id_token, refresh_token: tokens.refresh_token }
    }

    fn read(path: &Path) -> Result<Self, String> {
        let text = files::read(path).map_err(|error| error.to_string())?;
        let text = text.ok_or_else(|| format!("{}: file not found; run \"signpost login\"", path.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{}: {error}; run \"signpost login\" to replace it", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).expect("texts are JSON");
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = files::private_folder(folder).and_then(|()| files::write_private(path, text.as_bytes()));
        written.map_err(|error| error.to_string())
    }

    /// Returns the seconds until the token expires.
    fn left(&self) -> i64 {
        let now = i64::try_from(clock::unix_seconds()).unwrap_or(i64::MAX);
        oidc::expiry(&self.id_token).unwrap_or(0).saturating_sub(now)
    }
}

/// Returns the file for a user of a kubeconfig.
pub(super) fn path(kubeconfig: &Path, user: &str) -> PathBuf {
    let folder = kubeconfig.parent().unwrap_or(Path::new("."));
    folder.join(DIRECTORY).join(format!("{}.json", &tokens::sha256(user)[..NAME_LENGTH]))
}

/// Prints the credential in a file, with a renewed token if necessary.
pub(super) fn run(path: &Path) -> Outcome {
    let saved = current(path)?;
    let expires = Timestamp::from_second(oidc::expiry(&saved.id_token).unwrap_or(0)).unwrap_or_default();
    let status = json!({"token": saved.id_token, "expirationTimestamp": expires});
    let credential = json!({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status});
    print(&format!("{credential}\n"));
    Ok(Exit::Success)
}

fn current(path: &Path) -> Result<SavedLogin, String> {
    let saved = SavedLogin::read(path)?;
    if saved.left() > FRESH {
        return Ok(saved);
    }
    // Many providers accept a refresh token once, so concurrent plugins must not use the same.
    let _lock = users::lock(path.parent().unwrap_or(Path::new("."))).map_err(|error| error.to_string())?;
    let saved = SavedLogin::read(path)?;
    if saved.left() > FRESH {
        return Ok(saved);
    }
    match renewed(&saved) {
        Ok(renewed) => {
            // The token is valid, even if the next command must sign in again.
            let written = renewed.write(path);
            written.unwrap_or_else(|error| note(format_args!("failed to save the renewed token: {error}")));
            Ok(renewed)
        }
        // The provider may be reachable again before the token expires.
        Err(_) if saved.left() > 0 => Ok(saved),
        Err(error) => Err(error),
    }
}

fn renewed(saved: &SavedLogin) -> Result<SavedLogin, String> {
    let again = "sign in again with \"signpost login\"";
    let refresh_token = saved.refresh_token.as_deref();
    let refresh_token = refresh_token.ok_or_else(|| format!("the token of your sign-in has expired; {again}"))?;
    let client = oidc::Client::new(saved.client.clone(), None).map_err(|error| error.to_string())?;
    access::run(RENEWAL_TIMEOUT, async {
        let tokens = client.refresh(refresh_token, &saved.id_token).await.map_err(|error| match error {
            oidc::Error::Rejected { .. } => format!("your sign-in has expired ({error}); {again}"),
            error => error.to_string(),
        })?;
        Ok(SavedLogin::new(saved.client.clone(), tokens))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64URL_NOPAD;

    fn saved(left: i64) -> SavedLogin {
        let expires = i64::try_from(clock::unix_seconds()).expect("a time") + left;
        let claims = BASE64URL_NOPAD.encode(json!({"exp": expires}).to_string().as_bytes());
        // Nothing listens there.
        let client = PublicClient {
            issuer: "http://127.0.0.1:1".to_owned(),
            client_id: "cli".to_owned(),
            scopes: Vec::new(),
            ca: None,
        };
        SavedLogin { client, id_token: format!("e30.{claims}.c2ln"), refresh_token: None }
    }

    #[test]
    fn a_token_is_used_while_it_is_valid() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = path(&folder.path().join("config"), "signpost-login");
        assert!(current(&file).expect_err("there is no file").contains("signpost login"));
        for (left, with_refresh_token, error) in [
            (3_600, false, None),
            (60, false, None),
            (60, true, None),
            (-1, false, Some("has expired; sign in again")),
            (-1, true, Some("127.0.0.1:1")),
        ] {
            let refresh_token = with_refresh_token.then(|| "refresh".to_owned());
            let saved = SavedLogin { refresh_token, ..saved(left) };
            saved.write(&file).expect("it is written");
            match (current(&file), error) {
                (Ok(found), None) => assert_eq!(found, saved),
                (Err(found), Some(part)) => assert!(found.contains(part), "{found}"),
                other => panic!("{left} {with_refresh_token}: {other:?}"),
            }
        }
        std::fs::write(&file, "{}").expect("written");
        assert!(current(&file).expect_err("it is damaged").contains("to replace it"));
    }
}
