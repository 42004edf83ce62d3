//! Kubeconfig files: where the API is, whom to trust and who one is, in the form that kubectl and kube-rs read.

use std::path::Path;

use data_encoding::BASE64;
use serde_json::Value;

use super::tokens::{self, TokenEntry};
use super::{Error, files};

/// Who a kubeconfig is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// User name.
    pub user: &'a str,
    /// Groups beside those that every authenticated user is in.
    pub groups: &'a [&'a str],
}

/// Sees to it that the file at `path` lets `client` into the API at `server` (a URL), with a token that `entries` knows.
/// A token that is already there stays; where the file is gone a new token is made and the user's former one is taken out
/// of `entries`, so removing the file and starting again is how a token is replaced. Says whether `entries` changed.
pub fn ensure(
    path: &Path,
    client: Client<'_>,
    server: &str,
    authority_pem: &str,
    entries: &mut Vec<TokenEntry>,
) -> Result<bool, Error> {
    let before = files::read(path)?;
    let known = before.as_deref().and_then(token_of).filter(|token| {
        let hash = tokens::sha256(token);
        entries.iter().any(|entry| entry.sha256 == hash && entry.user == client.user)
    });
    let is_new = known.is_none();
    let token = match known {
        Some(token) => token,
        None => {
            let token = tokens::generate()?;
            entries.retain(|entry| entry.user != client.user);
            let groups = client.groups.iter().map(|group| (*group).to_owned()).collect();
            entries.push(TokenEntry { sha256: tokens::sha256(&token), user: client.user.to_owned(), groups });
            token
        }
    };
    let text = text(client.user, server, authority_pem, &token);
    if before.as_deref() != Some(text.as_str()) {
        files::write_private(path, text.as_bytes())?;
    }
    Ok(is_new)
}

/// The token in a kubeconfig of ours.
fn token_of(text: &str) -> Option<String> {
    let config: Value = serde_saphyr::from_str(text).ok()?;
    config.pointer("/users/0/user/token")?.as_str().map(str::to_owned)
}

fn text(user: &str, server: &str, authority_pem: &str, token: &str) -> String {
    // JSON strings are YAML strings, so names with colons need no further thought.
    let quoted = |text: &str| Value::from(text).to_string();
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: signpost\n  cluster:\n    server: {}\n    \
         certificate-authority-data: {}\nusers:\n- name: {user}\n  user:\n    token: {}\ncontexts:\n- name: signpost\n  \
         context:\n    cluster: signpost\n    user: {user}\ncurrent-context: signpost\n",
        quoted(server),
        BASE64.encode(authority_pem.as_bytes()),
        quoted(token),
        user = quoted(user),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Client<'_> = Client { user: "signpost:admin", groups: &["system:masters"] };

    #[test]
    fn tokens_stay_until_the_file_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let mut entries = Vec::new();
        assert!(ensure(&path, CLIENT, "https://127.0.0.1:1", "pem", &mut entries).expect("writes"));
        let first = entries.clone();
        assert!(!ensure(&path, CLIENT, "https://127.0.0.1:2", "pem", &mut entries).expect("writes"));
        assert_eq!(entries, first, "another address needs no other token");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert!(text.contains("https://127.0.0.1:2"), "{text}");
        assert_eq!(tokens::sha256(&token_of(&text).expect("a token")), entries[0].sha256);
        std::fs::remove_file(&path).expect("removes");
        assert!(ensure(&path, CLIENT, "https://127.0.0.1:2", "pem", &mut entries).expect("writes"));
        assert!(entries.len() == 1 && entries != first, "the former token is revoked");
    }

    #[test]
    fn the_client_library_reads_it() {
        let config: kube::config::Kubeconfig =
            kube::config::Kubeconfig::from_yaml(&text("a:b", "https://[::1]:6453", "PEM", "t")).expect("parses");
        let cluster = config.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:6453"));
        assert_eq!(config.current_context.as_deref(), Some("signpost"));
        assert_eq!(config.contexts[0].context.as_ref().and_then(|context| context.user.as_deref()), Some("a:b"));
    }
}
