//! The pages of shards, zones, Events, and processes; sorting; the keyboard help and the theme.

use serde_json::{Value, json};

use crate::browser::{Browser, ENTER, ESCAPE};
use crate::{Example, cookie_of, get};
use signpost_testing::{eventually, until};

/// Returns the texts of the cells of a column of the only sortable table, by the key of its header.
fn column(browser: &Browser, key: &str) -> Vec<String> {
    let script = format!(
        "const at = [...document.querySelectorAll('th')].findIndex((one) => one.dataset.key === '{key}'); \
         return [...document.querySelectorAll('tbody tr')].map((row) => row.children[at].innerText)"
    );
    let texts = browser.script(&script);
    texts.as_array().expect("a list").iter().map(|text| text.as_str().expect("text").to_owned()).collect()
}

#[test]
fn zones_records_and_processes_are_served_to_permitted_users() {
    let example = Example::start();
    let admin = example.server.admin;
    let cookie = cookie_of(admin, &example.token());
    let apex = "shard1.v3.rhcloud.com";

    let zones = eventually("the zones are served", || {
        let (_, zones) = get(admin, "/dashboard/data/zones", &cookie);
        (zones["total"].as_u64()? >= 5).then_some(zones)
    });
    let shard = zones["items"].as_array().expect("a list").iter().find(|zone| zone["zone"] == "shard1.v3.rhcloud.com.");
    let shard = shard.expect("the zone of a shard is served");
    assert_eq!((&shard["type"], &shard["available"]), (&json!("shard"), &json!(true)), "{shard}");
    let (_, one) = get(admin, "/dashboard/data/zones?q=SHARD1&limit=1", &cookie);
    assert_eq!((one["total"].as_u64(), one["items"].as_array().map(Vec::len)), (Some(1), Some(1)), "{one}");

    let (status, records) = get(admin, &format!("/dashboard/data/records?zone={apex}&type=soa"), &cookie);
    assert_eq!((status, records["total"].as_u64()), (200, Some(1)), "{records}");
    assert_eq!(records["items"][0]["owner"], "shard1.v3.rhcloud.com.");
    assert_eq!(records["serial"], shard["serial"], "{records}");
    let (_, all) = get(admin, &format!("/dashboard/data/records?zone={apex}"), &cookie);
    let (_, rest) = get(admin, &format!("/dashboard/data/records?zone={apex}&offset=1&limit=1"), &cookie);
    assert_eq!(rest["items"], json!([all["items"][1]]), "{all}");
    assert_eq!(get(admin, "/dashboard/data/records?zone=other.example", &cookie).0, 404);
    assert_eq!(get(admin, "/dashboard/data/records?zone=a..b", &cookie).0, 400);

    until("the name server has the serial", || {
        let path = format!("/dashboard/data/servers?zone={apex}&platform=v3.rhcloud.com");
        let (_, servers) = get(admin, &path, &cookie);
        let (_, zones) = get(admin, "/dashboard/data/zones?q=shard1", &cookie);
        let same =
            !servers["items"][0]["serial"].is_null() && servers["items"][0]["serial"] == zones["items"][0]["serial"];
        if same { Ok(()) } else { Err(format!("{servers}\n{zones}")) }
    });
    // The servers are those of a Zone object; a request cannot name another path of the API.
    for platform in ["", "../routers/shard1", "none.example", "a/b"] {
        let path = format!("/dashboard/data/servers?zone={apex}&platform={platform}");
        assert!(matches!(get(admin, &path, &cookie).0, 400 | 404), "{platform}");
    }
    let (_, process) = get(admin, "/dashboard/data/process", &cookie);
    assert_eq!(process["version"], env!("CARGO_PKG_VERSION"), "{process}");
    assert!(process["checks"].to_string().contains("[+] dns/"), "{process}");

    let tenant = cookie_of(admin, &example.tenant("tina"));
    for hidden in
        ["zones", "records?zone=v3.rhcloud.com", "servers?zone=v3.rhcloud.com&platform=v3.rhcloud.com", "process"]
    {
        assert_eq!(get(admin, &format!("/dashboard/data/{hidden}"), &tenant).0, 403, "{hidden}");
    }
}

#[test]
fn events_are_filtered_and_a_tenant_gets_its_own() {
    let example = Example::start();
    let admin = example.server.admin;
    let cookie = cookie_of(admin, &example.token());
    let events = |cookie: &str, query: &str| -> Vec<Value> {
        let (_, events) = get(admin, &format!("/dashboard/data/events?{query}"), cookie);
        events["items"].as_array().cloned().unwrap_or_default()
    };
    let with_event = |query: &str, namespace: &str, name: &str| -> Vec<Value> {
        until(&format!("{query} returns an Event of {namespace}/{name}"), || {
            let found = events(&cookie, query);
            let has_event = found.iter().any(|one| one["namespace"] == namespace && one["name"] == name);
            if has_event { Ok(found) } else { Err(format!("{found:?}")) }
        })
    };
    // A Route that the scheduler sees before its Router has an Event of this reason, too.
    let failed = with_event("reason=FailedScheduling", "foo-bar", "vault");
    assert!(failed.iter().all(|one| one["reason"] == "FailedScheduling"), "{failed:?}");
    let own = events(&cookie, "type=Warning&namespace=myapp&reason=FailedScheduling");
    let is_wanted =
        |one: &Value| [&one["type"], &one["namespace"], &one["reason"]] == ["Warning", "myapp", "FailedScheduling"];
    assert!(own.iter().all(is_wanted), "{own:?}");
    with_event("kind=Route&q=scheduled%20myapp/test", "myapp", "test");
    let tenant = cookie_of(admin, &example.tenant("tina"));
    let own = eventually("the tenant gets Events", || {
        let own = events(&tenant, "limit=500");
        (!own.is_empty()).then_some(own)
    });
    assert!(own.iter().all(|one| one["namespace"] == "myapp"), "{own:?}");
}

#[test]
fn routes_have_an_age_and_are_sorted_by_the_server() {
    let example = Example::start();
    let cookie = cookie_of(example.server.admin, &example.token());
    let names = |sort: &str| -> Vec<String> {
        let (_, page) = get(example.server.admin, &format!("/dashboard/data/routes?sort={sort}"), &cookie);
        let items = page["items"].as_array().cloned().unwrap_or_default();
        assert!(items.iter().all(|item| item["created"].as_str().is_some_and(|at| at.ends_with('Z'))), "{page}");
        items.iter().map(|item| item["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let (up, down) = (names("name"), names("-name"));
    assert_eq!(up.len(), 12);
    assert!(up.is_sorted(), "{up:?}");
    assert!(down.is_sorted_by(|one, other| one >= other), "{down:?}");
}

#[test]
fn the_keyboard_has_a_help_and_the_theme_stays() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    browser.sign_in(example.server.admin, &example.token());
    browser.sees("3 shards");

    // The dialog has the focus, Escape closes it, and the focus returns.
    browser.script("document.querySelector('.brand').focus()");
    browser.press("?");
    browser.comes_true("return document.getElementById('help').open");
    assert_eq!(browser.focus(), "button Close");
    let text = browser.script("return document.getElementById('help').innerText");
    assert!(
        text.as_str().is_some_and(|text| text.contains("Open Zones") && text.contains("Focus the search")),
        "{text}"
    );
    browser.press(ESCAPE);
    browser.comes_true("return !document.getElementById('help').open");
    assert_eq!(browser.focus(), "a Signpost");
    browser.press("gz");
    browser.comes_true("return location.hash === '#/zones'");
    browser.comes_true("return document.querySelectorAll('tbody tr').length >= 5");
    // In the search, these are letters.
    browser.press("/");
    browser.press("shard1?");
    assert_eq!(browser.script("return document.getElementById('help').open"), false);
    browser.press(ESCAPE);

    let theme = "return document.documentElement.dataset.theme";
    browser.script(
        "const theme = document.querySelector('select.theme'); theme.value = 'dark'; \
         theme.dispatchEvent(new Event('input', {bubbles: true}))",
    );
    browser.comes_true(&format!("{theme} === 'dark'"));
    let page = "return getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.script(page), "rgb(16, 22, 28)");
    browser.script("location.reload()");
    browser.comes_true("return document.querySelector('select.theme')?.value === 'dark'");
    assert_eq!((browser.script(theme), browser.script(page)), (json!("dark"), json!("rgb(16, 22, 28)")));
    let said = browser.log();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn lists_are_sorted_by_their_headers() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    browser.sign_in(example.server.admin, &example.token());
    browser.go("#/routers");
    browser.comes_true("return document.querySelectorAll('tbody tr').length === 3");
    assert_eq!(column(&browser, "name"), ["shard1", "shard2", "shard3"]);
    let sorted = |key: &str| format!("return document.querySelector('th[data-key={key}]').getAttribute('aria-sort')");
    assert_eq!(browser.script(&sorted("name")), "ascending");
    browser.script("document.querySelector('th[data-key=name] button').focus()");
    browser.press(ENTER);
    browser.comes_true("return location.hash === '#/routers?sort=-name'");
    browser.comes_true(&format!("{} === 'descending'", sorted("name")));
    assert_eq!(column(&browser, "name"), ["shard3", "shard2", "shard1"]);
    let focus = browser.focus();
    assert!(focus.starts_with("button Shard"), "the focus stays: {focus}");
    assert!(column(&browser, "age").iter().all(|age| age.ends_with(" s") || age.ends_with(" min")));

    browser.go("#/routes?sort=-name");
    browser.comes_true("return document.querySelectorAll('tbody tr').length === 12");
    let names = column(&browser, "name");
    assert!(names.is_sorted_by(|one, other| one >= other), "{names:?}");
    browser.script("document.querySelector('th[data-key=age] button').click()");
    browser.comes_true(&format!("{} === 'ascending'", sorted("age")));
    browser.comes_true("return location.hash === '#/routes?sort=age'");
    let said = browser.log();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn zones_events_and_processes_have_pages() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    browser.sign_in(example.server.admin, &example.token());
    browser.go("#/zones");
    browser.comes_true("return document.querySelectorAll('tbody tr').length === 5");
    browser.sees("shard1.v3.rhcloud.com");
    browser.comes_true("return document.querySelectorAll('td .is-good').length === 5");
    browser.go("#/zones/shard1.v3.rhcloud.com");
    browser.sees("no problems");
    browser.sees("1 of 1");
    browser.sees("current");
    browser.comes_true("return document.querySelectorAll('[data-key=records] tbody tr').length > 2");
    browser.go("#/zones/shard1.v3.rhcloud.com?type=SOA");
    browser.comes_true("return document.querySelectorAll('[data-key=records] tbody tr').length === 1");

    browser.go("#/events?type=Warning");
    browser.sees("FailedScheduling");
    browser.sees("foo-bar/vault");
    browser.sees("kubectl events -A --types=Warning");
    browser.go("#/events?kind=Route&namespace=myapp");
    browser.sees("myapp/test");
    // A new Event is displayed automatically.
    let route = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: hello, namespace: myapp}\nspec: {to: {name: web}}\n";
    example.kubectl().ok_with(&["apply", "-f", "-"], route);
    browser.sees("myapp/hello");

    browser.go("#/fleet");
    browser.sees("this process");
    browser.sees("scheduler (leader)");
    browser.sees(env!("CARGO_PKG_VERSION"));
    browser.comes_true("return document.querySelector('td [title=signpost_informer_age_seconds]') !== null");
    let said = browser.log();
    assert!(said.is_empty(), "{said:#?}");
}

#[test]
fn a_waiting_route_and_a_custom_host_show_the_next_step() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    browser.sign_in(example.server.admin, &example.token());
    browser.go("#/namespaces/foo-bar/routes/vault");
    browser.sees("shard2 selects other Routes by their labels");
    browser.comes_true("return document.querySelectorAll('.card .advice').length >= 3");
    browser.sees("kubectl -n foo-bar label --overwrite route vault tier=edge");
    browser.go("#/routes?state=pending");
    browser.sees("each shard has a reason");

    browser.go("#/namespaces/myapp/routes/static");
    browser.sees("Create this record in the zone of static.example.com.");
    browser.sees("dig +noall +answer static.example.com");
    let state = browser.script("return document.querySelector('[data-key=\"HostPointsHere state\"] .pill').innerText");
    assert!(["not checked", "not checked yet"].iter().any(|text| state.as_str().is_some_and(|it| it.contains(text))));
    let said: Vec<Value> = browser.log().into_iter().map(Value::from).collect();
    assert!(said.is_empty(), "{said:#?}");
}
