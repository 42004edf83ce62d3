//! `signpost login`: a tenant signs in at an identity provider; kubectl and signpost then use tokens that renew themselves.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use signpost_testing::client::{Client, trusting};
use signpost_testing::identity_provider::IdentityProvider;
use signpost_testing::net::visit;
use signpost_testing::program::{command, ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Process, Server};

const ROUTES: &str = "routes.signpost.dev";
const ROUTE: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: front, namespace: shop}\nspec: \
                     {to: {name: web}}\n";

/// A platform whose users sign in at a provider, and a user's machine.
struct Example {
    provider: IdentityProvider,
    data: DataDir,
    home: DataDir,
    server: Server,
    api: String,
}

impl Example {
    fn start() -> Example {
        let (provider, data, ports) = (IdentityProvider::start(), DataDir::new(), Ports::free());
        let arguments = ["--data-dir", data.path(), "--jwt-issuer", &provider.setting("")];
        let server = Server::start(ports, &arguments);
        let admin = Kubectl::new(data.join("kubeconfig"));
        admin.ok(&["create", "namespace", "shop"]);
        admin.ok_with(&["apply", "-f", "-"], ROUTE);
        Example { provider, data, home: DataDir::new(), server, api: format!("https://{}", ports.api) }
    }

    fn kubeconfig(&self) -> String {
        self.home.file("kube/config")
    }

    /// Starts the command with the user's kubeconfig.
    fn login(&self, arguments: &[&str]) -> Process {
        let kubeconfig = self.kubeconfig();
        Process::logged(&mut command(&[&["login", "--kubeconfig", &kubeconfig], arguments].concat()))
    }

    /// Returns the address that a running command prints.
    fn address(login: &Process) -> String {
        login.logs("/authorize?").trim().to_owned()
    }

    /// Returns the file with the user's tokens.
    fn tokens(&self) -> String {
        let mut files = std::fs::read_dir(self.home.join("kube/signpost-login")).expect("the directory is there");
        let file = files.find_map(|file| {
            let path = file.expect("readable").path();
            (path.extension()? == "json").then_some(path)
        });
        file.expect("a file with tokens").to_str().expect("UTF-8").to_owned()
    }
}

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_tenant_needs_only_the_server_and_its_authority() {
    let example = Example::start();
    let (provider, authority) = (&example.provider, example.data.file("pki/ca.crt"));

    // The API names the provider and the client for command lines to everyone.
    let pem = std::fs::read_to_string(&authority).expect("the server wrote it");
    let stranger = Client::new(trusting(&pem), example.api.trim_start_matches("https://").parse().expect("an address"));
    let (status, text) = stranger.get("/.well-known/oauth-protected-resource").expect("it responds");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let expected = json!({"resource": example.api, "authorization_servers": [provider.issuer],
        "bearer_methods_supported": ["header"], "clients": [{"issuer": provider.issuer, "client_id": "cli"}]});
    assert_eq!((status, document), (200, expected));

    let server = ["--server", &example.api, "--ca", &authority, "--namespace", "shop", "--no-browser"];
    let mut login = example.login(&server);
    let back = provider.sign_in(&Example::address(&login));
    // Other pages in the browser can send requests to the port.
    for foreign in [back.replace("state=", "state=x"), back.replace("/callback", "/other")] {
        visit(&foreign).expect("it responds");
    }
    assert_eq!(visit(&back).expect("it responds").status, 200);
    assert!(login.wait().success(), "{}", login.log());
    for part in ["idp:tina", "signpost:tenant:shop", "token expires"] {
        assert!(login.log().contains(part), "{}", login.log());
    }
    for file in [example.kubeconfig(), example.tokens()] {
        assert_eq!(mode(&file), 0o600, "{file}");
    }
    let read = |file: String| std::fs::read_to_string(file).expect("it is there");
    let tokens: Value = serde_json::from_str(&read(example.tokens())).expect("JSON");
    assert!(!read(example.kubeconfig()).contains(tokens["id_token"].as_str().expect("a token")));

    let kubectl = Kubectl::new(example.kubeconfig().into());
    assert!(kubectl.ok(&["get", ROUTES]).contains("front"));
    assert!(kubectl.refused(&["get", ROUTES, "-n", "default"], "").contains("forbidden"));
    let kubeconfig = example.kubeconfig();
    let at = ["--kubeconfig", kubeconfig.as_str()];
    assert!(kubectl.ok(&["auth", "whoami"]).contains("idp:tina"));
    assert_eq!(provider.requests("refresh_token", 200), 0, "the token lasts for an hour");
    // Another command that needs the token itself.
    let admin = format!("http://{}", example.server.admin);
    let link = ok(&[&["dashboard", "--no-browser", "--admin", &admin][..], &at].concat());
    assert!(link.contains("#sign-in="), "{link}");
}

#[test]
fn tokens_renew_themselves_until_the_provider_refuses() {
    let example = Example::start();
    let (provider, authority) = (&example.provider, example.data.file("pki/ca.crt"));
    // Shorter than the plugin accepts, so that it renews the token each time.
    provider.set_lifetime(80);
    let mut login = example.login(&["--server", &example.api, "--ca", &authority, "--no-browser"]);
    visit(&provider.sign_in(&Example::address(&login))).expect("it responds");
    assert!(login.wait().success(), "{}", login.log());
    let tokens = example.tokens();
    let plugin = || run(&["login", "--print-credential", &tokens]);
    let credential: Value = serde_json::from_str(&plugin().ok()).expect("JSON");
    assert_eq!((&credential["kind"], provider.requests("refresh_token", 200)), (&"ExecCredential".into(), 1));
    // A refresh token works once, and concurrent commands do not use the same.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Kubectl::new(example.kubeconfig().into()).ok(&["get", ROUTES, "-n", "shop"]));
        }
    });
    assert!(provider.requests("refresh_token", 200) > 4);
    assert_eq!(provider.requests("refresh_token", 400), 0);
    provider.set_lifetime(0);
    plugin().ok();
    provider.revoke_all();
    let error = plugin().fails(1);
    assert!(error.contains("invalid_grant") && error.contains("sign in again with \"signpost login\""), "{error}");

    // The next sign-in needs no server: it is in the kubeconfig. This one is on another device.
    provider.set_lifetime(3_600);
    let mut login = example.login(&["--device"]);
    login.logs("with the code ABCD-EFGH");
    provider.approve_devices();
    assert!(login.wait().success(), "{}", login.log());
    Kubectl::new(example.kubeconfig().into()).ok(&["get", ROUTES, "-n", "shop"]);

    // The user refuses; the kubeconfig does not change.
    provider.set_denies(true);
    let mut login = example.login(&["--no-browser"]);
    visit(&provider.sign_in(&Example::address(&login))).expect("it responds");
    assert_eq!(login.wait().code(), Some(1));
    assert!(login.log().contains("rejected the sign-in: access_denied: tina refuses"), "{}", login.log());
    Kubectl::new(example.kubeconfig().into()).ok(&["get", ROUTES, "-n", "shop"]);

    // Wrong arguments, which the API or the provider does not know.
    for (arguments, part) in [
        (&["--issuer", "https://other.example"][..], "the API names other identity providers"),
        (&["--issuer", "http://other.example", "--client-id", "cli"], "must be an https URL"),
        (&["--context", "none"], "none"),
    ] {
        let mut login = example.login(arguments);
        assert_eq!(login.wait().code(), Some(1), "{arguments:?}: {}", login.log());
        assert!(login.log().contains(part), "{arguments:?}: {}", login.log());
    }
}
