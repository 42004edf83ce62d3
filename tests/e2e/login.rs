//! Sign-in at an identity provider with kubelogin: the operator writes one kubeconfig for all users, and kubectl and signpost run
//! the credential plugin in it. A script of the test is the plugin.

use std::os::unix::fs::PermissionsExt;

use data_encoding::BASE64;
use serde_json::Value;

use signpost_testing::identity_provider::IdentityProvider;
use signpost_testing::program::{Ran, bare, program, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server};

const ROUTES: &str = "routes.signpost.dev";
const ROUTE: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: front, namespace: shop}\nspec: \
                     {to: {name: web}}\n";
/// Prints the token in a file, if the arguments are those in another file.
const PLUGIN: &str = r#"#!/bin/sh
directory=$(dirname "$0")
if [ "$*" != "$(cat "$directory/arguments")" ]; then
    echo "unexpected arguments: $*" >&2
    exit 1
fi
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}' \
    "$(cat "$directory/token")"
"#;

/// A platform whose users sign in at a provider, and a user's machine with the plugin.
struct Example {
    provider: IdentityProvider,
    data: DataDir,
    server: Server,
    machine: DataDir,
}

impl Example {
    fn start() -> Example {
        let (provider, data, machine) = (IdentityProvider::start(), DataDir::new(), DataDir::new());
        let arguments = ["--data-dir", data.path(), "--jwt-issuer", &provider.setting("")];
        let server = Server::start(Ports::free(), &arguments);
        let admin = Kubectl::new(data.join("kubeconfig"));
        admin.ok(&["create", "namespace", "shop"]);
        admin.ok_with(&["apply", "-f", "-"], ROUTE);
        let plugin = machine.write("kubectl-oidc_login", PLUGIN);
        std::fs::set_permissions(plugin, PermissionsExt::from_mode(0o755)).expect("the test owns the file");
        Example { provider, data, server, machine }
    }

    /// Runs `signpost kubeconfig` on the server's machine.
    fn kubeconfig(&self, setting: &str, arguments: &[&str]) -> Ran {
        let at = ["kubeconfig", "--data-dir", self.data.path(), "--jwt-issuer", setting];
        run(&[&at, arguments].concat())
    }

    /// Writes the kubeconfig for all users to this file on the user's machine, and returns its path.
    fn for_users(&self, name: &str, arguments: &[&str]) -> String {
        let (file, setting) = (self.machine.file(name), self.provider.setting(""));
        self.kubeconfig(&setting, &[&["--sign-in", "--out", &file], arguments].concat()).ok();
        file
    }

    /// Sets the arguments that the plugin accepts, and lets the user sign in.
    fn sign_in(&self, more: &str) {
        let issuer = &self.provider.issuer;
        let arguments = format!(
            "get-token --oidc-issuer-url={issuer} --oidc-client-id=cli --oidc-pkce-method=S256 \
             --oidc-extra-scope=groups --oidc-extra-scope=offline_access{more}"
        );
        self.machine.write("arguments", arguments);
        self.machine.write("token", self.provider.cli_token());
    }

    /// Runs a program on the user's machine.
    fn runs(&self, program: &str, kubeconfig: &str, arguments: &[&str]) -> Ran {
        let path = format!("{}:{}", self.machine.path(), std::env::var("PATH").expect("tests have a PATH"));
        Ran::of(bare(program, arguments).env("KUBECONFIG", kubeconfig).env("PATH", path))
    }

    fn kubectl(&self, kubeconfig: &str, arguments: &[&str]) -> Ran {
        let cache = self.machine.file("cache");
        self.runs("kubectl", kubeconfig, &[&["--cache-dir", &cache], arguments].concat())
    }
}

#[test]
fn one_kubeconfig_signs_all_users_in() {
    let example = Example::start();
    let file = example.for_users("config", &["--namespace", "shop"]);
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).expect("it is there");
    assert!(!text.contains("token:") && !text.contains("client-key"), "{text}");

    example.sign_in("");
    assert!(example.kubectl(&file, &["get", ROUTES]).ok().contains("front"));
    assert!(example.kubectl(&file, &["get", ROUTES, "-n", "default"]).fails(1).contains("forbidden"));
    let who = example.kubectl(&file, &["auth", "whoami"]).ok();
    assert!(who.contains("idp:tina") && who.contains("signpost:tenant:shop"), "{who}");

    // Commands of signpost run the plugin, too, and one of them needs the token itself.
    let signpost = |arguments: &[&str]| example.runs(program(), &file, arguments);
    assert!(signpost(&["explain", "route", "front"]).ok().contains("front"));
    let admin = format!("http://{}", example.server.admin);
    let link = signpost(&["dashboard", "--no-browser", "--admin", &admin]);
    assert!(link.err.contains("signs in idp:tina"), "{}", link.err);

    // The plugin reports why it has no token.
    example.sign_in(" --more");
    for failed in [example.kubectl(&file, &["get", ROUTES]), signpost(&["explain", "route", "front"])] {
        assert!(failed.fails(1).contains("unexpected arguments: get-token"));
    }
    let link = signpost(&["dashboard", "--no-browser", "--admin", &admin]).fails(1);
    assert!(link.contains("cannot use the user in $KUBECONFIG"), "{link}");
}

#[test]
fn the_plugin_trusts_the_authority_of_the_provider() {
    let example = Example::start();
    let (authority, file) = (example.data.file("pki/ca.crt"), example.machine.file("config"));
    let setting = example.provider.setting(&format!(",ca={authority}"));
    example.kubeconfig(&setting, &["--sign-in", "--out", &file]).ok();
    let pem = std::fs::read(authority).expect("the server wrote it");
    example.sign_in(&format!(" --certificate-authority-data={}", BASE64.encode(&pem)));
    assert!(example.kubectl(&file, &["get", ROUTES, "-n", "shop"]).ok().contains("front"));
}

#[test]
fn platforms_share_no_names_in_a_merged_kubeconfig() {
    let example = Example::start();
    let one = example.for_users("one", &["--server", "https://one.example:6453"]);
    let two = example.for_users("two", &["--server", "https://two.example:6453/"]);
    let of_tina = example.machine.file("tina");
    let add = ["user", "add", "tina", "--role", "viewer", "--no-credential", "--data-dir", example.data.path()];
    run(&add).ok();
    example.kubeconfig(&example.provider.setting(""), &["--user", "tina", "--out", &of_tina]).ok();
    let merged = format!("{one}:{two}:{of_tina}");
    let view = example.kubectl(&merged, &["config", "view", "-o", "json"]).ok();
    let view: Value = serde_json::from_str(&view).expect("JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let mut contexts: Vec<[String; 3]> = view["contexts"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|named| [&named["name"], &named["context"]["cluster"], &named["context"]["user"]].map(text))
        .collect();
    contexts.sort();
    let provider = example.provider.issuer.replace("http://", "");
    let context = |name: &str, user: String| [name.to_owned(), name.to_owned(), user];
    let expected = [
        context("one.example:6453", format!("{provider}@one.example:6453")),
        context("signpost", "tina".to_owned()),
        context("two.example:6453", format!("{provider}@two.example:6453")),
    ];
    assert_eq!(contexts, expected);
}

#[test]
fn a_kubeconfig_needs_a_provider_that_answers() {
    let example = Example::start();
    let other = "issuer=http://127.0.0.1:1,jwks=/keys,client-id=web";
    for (setting, arguments, part) in [
        ("issuer=a,audience=b,jwks=/keys", &["--sign-in"][..], "no provider has a client-id"),
        (other, &["--sign-in"], "identity provider: http://127.0.0.1:1/"),
        (other, &["--sign-in", "--issuer", "https://idp.example"], "set it to one of http://127.0.0.1:1"),
    ] {
        let error = example.kubeconfig(setting, arguments).fails(1);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    for arguments in [&["--sign-in", "--user", "tina"][..], &["--sign-in", "--ttl", "1h"], &["--issuer", "a"], &[]] {
        example.kubeconfig(other, arguments).fails(2);
    }
}
