//! Kubeconfig files: the URL of the API, the trust anchors, and the credential, in the form for kubectl and kube-rs.

use std::path::Path;

use data_encoding::BASE64;
use serde_json::Value;

use super::tokens::{self, TokenEntry};
use super::{Error, files};

/// The user of a kubeconfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// User name.
    pub user: &'a str,
    /// The groups in addition to those of every authenticated user.
    pub groups: &'a [&'a str],
}

/// The trust anchors of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// These CAs, in PEM.
    Authority(String),
    /// The trust anchors of the client's system.
    System,
}

/// The credential of a client.
#[derive(Debug, Clone, Copy)]
pub enum Secret<'a> {
    /// A bearer token.
    Token(&'a str),
    /// A certificate and its key, both in PEM.
    Certificate(&'a str, &'a str),
    /// The tokens that a plugin of `kubectl` prints (`client.authentication.k8s.io/v1`).
    Plugin {
        /// The arguments of `kubectl`.
        arguments: &'a [String],
        /// The text for users who have not installed the plugin.
        install_hint: &'a str,
    },
}

/// The name of the cluster and of the context in kubeconfigs with a secret.
pub const CONTEXT: &str = "signpost";

/// The contents of a kubeconfig.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The name of the cluster and of the context. kubectl merges the files in `$KUBECONFIG` by name.
    pub context: &'a str,
    /// The user name, for display only: the secret determines the user.
    pub user: &'a str,
    /// URL of the API.
    pub server: &'a str,
    /// The trust anchors.
    pub trust: &'a Trust,
    /// The credential.
    pub secret: Secret<'a>,
    /// The default namespace of commands; `None`: `default`.
    pub namespace: Option<&'a str>,
}

/// Ensures that the file at `path` gives `client` access to the API at `server` (a URL), with a token in `entries`. An existing
/// token stays. If the file is missing, a new token is created and the user's former one is removed from `entries`. To replace a
/// token, remove the file and restart. Tokens of other machines than `machine` stay. Returns whether `entries` changed.
pub fn ensure(
    path: &Path,
    client: Client<'_>,
    (server, trust): (&str, &Trust),
    machine: Option<&str>,
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
            entries.retain(|entry| entry.user != client.user || entry.machine.as_deref() != machine);
            let groups = client.groups.iter().map(|group| (*group).to_owned()).collect();
            let (sha256, user, machine) = (tokens::sha256(&token), client.user.to_owned(), machine.map(str::to_owned));
            entries.push(TokenEntry { sha256, user, groups, machine });
            token
        }
    };
    let secret = Secret::Token(&token);
    let text = text(&Contents { context: CONTEXT, user: client.user, server, trust, secret, namespace: None });
    if before.as_deref() != Some(text.as_str()) {
        files::write_private(path, text.as_bytes())?;
    }
    Ok(is_new)
}

/// Returns the token in a kubeconfig that Signpost wrote.
fn token_of(text: &str) -> Option<String> {
    let config: Value = serde_saphyr::from_str(text).ok()?;
    config.pointer("/users/0/user/token")?.as_str().map(str::to_owned)
}

/// Returns the URL of the API and the trust anchors in a kubeconfig that Signpost wrote.
pub fn server_of(text: &str) -> Option<(String, Trust)> {
    let config: Value = serde_saphyr::from_str(text).ok()?;
    let cluster = config.pointer("/clusters/0/cluster")?;
    let trust = match cluster.get("certificate-authority-data").and_then(Value::as_str) {
        Some(data) => Trust::Authority(String::from_utf8(BASE64.decode(data.as_bytes()).ok()?).ok()?),
        None => Trust::System,
    };
    Some((cluster.get("server")?.as_str()?.to_owned(), trust))
}

/// Returns the text of a kubeconfig.
pub fn text(contents: &Contents<'_>) -> String {
    // JSON strings are valid YAML strings, so names with colons need no special treatment.
    let quoted = |text: &str| Value::from(text).to_string();
    let encoded = |pem: &str| BASE64.encode(pem.as_bytes());
    let trust = match contents.trust {
        Trust::Authority(pem) => format!("    certificate-authority-data: {}\n", encoded(pem)),
        Trust::System => String::new(),
    };
    let secret = match contents.secret {
        Secret::Token(token) => format!("    token: {}\n", quoted(token)),
        Secret::Certificate(certificate, key) => {
            format!("    client-certificate-data: {}\n    client-key-data: {}\n", encoded(certificate), encoded(key))
        }
        Secret::Plugin { arguments, install_hint } => {
            let arguments: String = arguments.iter().map(|text| format!("      - {}\n", quoted(text))).collect();
            format!(
                "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: kubectl\n      \
                 args:\n{arguments}      installHint: {}\n      interactiveMode: IfAvailable\n      \
                 provideClusterInfo: false\n",
                quoted(install_hint)
            )
        }
    };
    let namespace = contents.namespace.map(|name| format!("    namespace: {}\n", quoted(name))).unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {context}\n  cluster:\n    server: {server}\n{trust}users:\n- name: \
         {user}\n  user:\n{secret}contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: \
         {user}\n{namespace}current-context: {context}\n",
        context = quoted(contents.context),
        server = quoted(contents.server),
        user = quoted(contents.user),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::ExecInteractiveMode;

    const CLIENT: Client<'_> = Client { user: "signpost:admin", groups: &["system:masters"] };

    #[test]
    fn tokens_stay_until_the_file_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let pem = Trust::Authority("pem".to_owned());
        let mut entries = Vec::new();
        assert!(ensure(&path, CLIENT, ("https://127.0.0.1:1", &pem), None, &mut entries).expect("writes"));
        let first = entries.clone();
        assert!(!ensure(&path, CLIENT, ("https://127.0.0.1:2", &pem), None, &mut entries).expect("writes"));
        assert_eq!(entries, first, "another address needs no other token");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert!(text.contains("https://127.0.0.1:2"), "{text}");
        assert_eq!(tokens::sha256(&token_of(&text).expect("a token")), entries[0].sha256);
        std::fs::remove_file(&path).expect("removes");
        assert!(ensure(&path, CLIENT, ("https://127.0.0.1:2", &pem), None, &mut entries).expect("writes"));
        assert!(entries.len() == 1 && entries != first, "the former token is revoked");
        let path = folder.path().join("of another machine");
        assert!(ensure(&path, CLIENT, ("https://127.0.0.1:2", &pem), Some("two"), &mut entries).expect("writes"));
        assert_eq!(entries.len(), 2, "each machine has its own");
    }

    #[test]
    fn the_client_library_reads_it() {
        let contents = Contents {
            context: CONTEXT,
            user: "a:b",
            server: "https://[::1]:6453",
            trust: &Trust::Authority("PEM".to_owned()),
            secret: Secret::Token("t"),
            namespace: None,
        };
        let read = |contents: &Contents<'_>| kube::config::Kubeconfig::from_yaml(&text(contents)).expect("parses");
        let config = read(&contents);
        let cluster = config.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:6453"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        assert_eq!(config.current_context.as_deref(), Some("signpost"));
        assert_eq!(config.contexts[0].context.as_ref().and_then(|context| context.user.as_deref()), Some("a:b"));
        assert_eq!(server_of(&text(&contents)), Some(("https://[::1]:6453".to_owned(), contents.trust.clone())));

        let secret = Secret::Certificate("CERT", "KEY");
        let contents = Contents { trust: &Trust::System, secret, namespace: Some("shop"), ..contents };
        let config = read(&contents);
        let user = config.auth_infos[0].auth_info.as_ref().expect("a user");
        assert_eq!(user.client_certificate_data.as_deref(), Some("Q0VSVA=="));
        assert!(user.client_key_data.is_some() && user.token.is_none());
        let context = config.contexts[0].context.as_ref().expect("a context");
        assert_eq!(context.namespace.as_deref(), Some("shop"));
        assert_eq!(server_of(&text(&contents)).map(|(_, trust)| trust), Some(Trust::System));

        let arguments = ["oidc-login".to_owned(), "--oidc-client-id=a: b".to_owned()];
        let secret = Secret::Plugin { arguments: &arguments, install_hint: "Install it: now" };
        let config = read(&Contents { context: "[::1]:6453", secret, ..contents });
        assert_eq!((&config.clusters[0].name, &config.contexts[0].name), (&"[::1]:6453".into(), &"[::1]:6453".into()));
        assert_eq!(config.current_context.as_deref(), Some("[::1]:6453"));
        let plugin = config.auth_infos[0].auth_info.as_ref().and_then(|user| user.exec.as_ref()).expect("a plugin");
        assert_eq!(plugin.args.as_deref(), Some(&arguments[..]));
        assert_eq!(plugin.install_hint.as_deref(), Some("Install it: now"));
        assert_eq!(plugin.interactive_mode, Some(ExecInteractiveMode::IfAvailable));
    }
}
