//! Sign-in to the dashboard at an identity provider.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::browser::{Browser, ENTER};
use crate::{Example, JSON, ask, get};
use signpost_testing::identity_provider::{IdentityProvider, WEB_SECRET};
use signpost_testing::net::{Exchange, exchange, visit};
use signpost_testing::{DataDir, eventually};

/// A platform whose users sign in at a provider.
fn start() -> (IdentityProvider, DataDir, Example) {
    let (provider, secrets) = (IdentityProvider::start(), DataDir::new());
    let secret = secrets.write("client-secret", format!("{WEB_SECRET}\n"));
    let setting = provider.setting(&format!(",client-secret-file={secret}"));
    let example = Example::serving(&["--jwt-issuer", &setting]);
    (provider, secrets, example)
}

/// Sends what the page sends.
fn post(admin: SocketAddr, path: &str, cookie: &str, body: &Value) -> Exchange {
    let body = body.to_string();
    let head = format!(
        "POST /dashboard/{path} HTTP/1.1\r\nHost: {admin}\r\nOrigin: http://{admin}\r\n{JSON}\r\nCookie: {cookie}\r\n\
         Content-Length: {}",
        body.len()
    );
    exchange(admin, &head, &body).expect("the admin endpoint responds")
}

/// Begins a sign-in, and returns the address of the provider, and the cookie.
fn begin(admin: SocketAddr) -> (String, String) {
    let answer = post(admin, "login", "", &json!({"provider": 0}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("httponly; samesite=strict"), "{}", answer.head);
    let cookie = answer.cookie("signpost_login").expect("a cookie is set").to_owned();
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    (answer["address"].as_str().expect("an address").to_owned(), cookie)
}

/// Returns the query with which the provider sends the browser back.
fn query_of(back: &str) -> &str {
    back.split_once("/dashboard/callback?").expect("the browser comes back to the dashboard").1
}

/// Completes a sign-in.
fn complete(admin: SocketAddr, cookie: &str, query: &str) -> Exchange {
    post(admin, "session", cookie, &json!({"redirect": query}))
}

/// Returns the status and the reason of a rejected sign-in, which opens no session.
fn rejected(answer: &Exchange) -> (u16, String) {
    assert_eq!(answer.cookie("signpost_session"), None, "{}", answer.head);
    let body: Value = serde_json::from_str(&answer.body).expect("JSON");
    (answer.status, body["reason"].as_str().expect("a reason").to_owned())
}

#[test]
fn only_the_browser_that_began_a_sign_in_completes_it_and_once() {
    let (provider, _secrets, example) = start();
    let admin = example.server.admin;
    let name = provider.issuer.strip_prefix("http://").expect("it is an address");
    assert_eq!(get(admin, "/dashboard/session", "").1, json!({"user": null, "providers": [name]}));

    let (address, cookie) = begin(admin);
    let back = provider.sign_in(&address);
    assert!(back.starts_with(&format!("http://{admin}/dashboard/callback?")), "{back}");
    let page = visit(&back).expect("the admin endpoint responds");
    assert!(page.status == 200 && page.body.contains("assets/app.js"), "{}", page.body);
    let query = query_of(&back);

    // Another browser, another sign-in, and a forged state.
    let expired = (403, "LoginExpired".to_owned());
    let (_, other) = begin(admin);
    assert_eq!(rejected(&complete(admin, "", query)), expired);
    assert_eq!(rejected(&complete(admin, &other, query)), expired);
    assert_eq!(rejected(&complete(admin, &cookie, &query.replace("state=", "state=x"))), expired);
    assert_eq!(rejected(&complete(admin, &cookie, &query.replace("iss=", "iss=x"))), expired);
    assert_eq!(rejected(&complete(admin, &cookie.replace("signpost_login=0.", "signpost_login=0.1"), query)), expired);
    assert_eq!(provider.requests("authorization_code", 200), 0);

    let answer = complete(admin, &cookie, query);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.cookie("signpost_login"), Some("signpost_login="), "the cookie is deleted");
    let session = answer.cookie("signpost_session").expect("a session is open").to_owned();
    let (_, who) = get(admin, "/dashboard/session", &session);
    assert_eq!((&who["user"], &who["rights"]["namespaces"]), (&"idp:tina".into(), &json!(["shop"])), "{who}");
    assert_eq!((who["rights"]["all"].clone(), get(admin, "/dashboard/data/samples", &session).0), (json!(false), 403));
    // The provider accepts a code once.
    assert_eq!(rejected(&complete(admin, &cookie, query)), (403, "LoginRejected".to_owned()));

    // The user refuses.
    provider.set_denies(true);
    let (address, cookie) = begin(admin);
    let answer = complete(admin, &cookie, query_of(&provider.sign_in(&address)));
    assert_eq!(rejected(&answer), (403, "LoginRejected".to_owned()));
    assert!(answer.body.contains("access_denied: tina refuses"), "{}", answer.body);

    // Requests that are not the page's.
    assert_eq!(post(admin, "login", "", &json!({"provider": 7})).status, 404);
    assert_eq!(post(admin, "login", "", &json!({})).status, 400);
    let with = |lines: &str| ask(admin, &format!("POST /dashboard/login HTTP/1.1\r\n{lines}"), "{\"provider\": 0}").0;
    assert_eq!(with(JSON), 400, "without Origin");
    assert_eq!(with(&format!("{JSON}\r\nOrigin: http://{admin}\r\nSec-Fetch-Site: cross-site")), 403);
    assert_eq!(with(&format!("{JSON}\r\nOrigin: http://192.0.2.1:9453")), 403, "a session over plain HTTP");
    assert_eq!(with(&format!("Content-Type: text/plain\r\nOrigin: http://{admin}")), 403);
}

#[test]
fn a_session_lasts_longer_than_its_first_token() {
    let (provider, _secrets, example) = start();
    let admin = example.server.admin;
    provider.set_lifetime(12);
    let (address, cookie) = begin(admin);
    let answer = complete(admin, &cookie, query_of(&provider.sign_in(&address)));
    let session = answer.cookie("signpost_session").expect("a session is open").to_owned();
    // Each token is renewed after half its lifetime.
    eventually("the first token has expired", || (provider.requests("refresh_token", 200) >= 3).then_some(()));
    assert_eq!(get(admin, "/dashboard/data/overview", &session).0, 200);
    provider.revoke_all();
    eventually("the session ends with its last token", || {
        (get(admin, "/dashboard/data/overview", &session).0 == 401).then_some(())
    });
}

#[test]
fn a_browser_comes_back_to_the_page_that_it_left() {
    let Some(browser) = Browser::start() else { return };
    let (provider, _secrets, example) = start();
    let admin = example.server.admin;
    // The provider is on another site, as it usually is.
    let page = format!("http://localhost:{}/dashboard/", admin.port());
    browser.open(&format!("{page}#/routes"));
    browser.sees(&format!("Sign in with {}", provider.issuer.replace("http://", "")));
    browser.comes_true("return document.activeElement?.dataset.action === 'provider'");
    browser.press(ENTER);
    browser.comes_true("return document.querySelector('.who') !== null");
    browser.comes_true(&format!("return location.href === {}", Value::from(format!("{page}#/routes"))));
    let names: Vec<Value> = browser.cookies().into_iter().map(|cookie| cookie["name"].clone()).collect();
    assert_eq!(names, ["signpost_session"]);

    // A refused sign-in is explained, and can be tried again.
    provider.set_denies(true);
    browser.script("document.querySelector('[data-action=sign-out]').click()");
    browser.comes_true("return document.activeElement?.dataset.action === 'provider'");
    browser.press(ENTER);
    browser.sees("access_denied: tina refuses");
    browser.comes_true("return document.activeElement?.dataset.action === 'provider'");
}
