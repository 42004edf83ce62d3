//! `signpost dig` requests only the objects of its one name from the API, for any number of Routes.

use serde_json::Value;

use signpost_testing::program::run;
use signpost_testing::{DataDir, Server, eventually};

/// Queries the example on a server that audits all requests.
pub fn one_name_takes_no_list_of_routes(data: &DataDir, server: &Server) {
    let at = format!("@{}", server.dns);
    let why = |name: &str| {
        let ran = run(&["dig", &at, name, "-o", "json", "--data-dir", data.path()]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.err);
        serde_json::from_str::<Value>(&ran.out).expect("JSON")["why"].clone()
    };
    // An alias leads to a name on a shard, and both to one binding; a host of one's own leads to it from outside.
    eventually("the alias is served according to the objects", || {
        let why = why("myapp-test.routes.v3.rhcloud.com");
        let (steps, differences) = (&why["steps"], &why["differences"]);
        let routes = [0, 1].map(|step: usize| steps[step]["routes"][0]["route"].clone());
        assert_eq!((&routes[0], &steps[0]["found"]), (&"myapp/test".into(), &"alias".into()), "{why}");
        assert_eq!((&routes[1], &steps[1]["found"]), (&"myapp/test".into(), &"answer".into()), "{why}");
        differences.as_array().is_some_and(Vec::is_empty).then_some(())
    });
    assert_eq!(why("static.example.com")["steps"][0]["routes"][0]["route"], "myapp/static");
    // The name has no Route: the wildcard matches it on a shard, and nothing matches in the alias zone.
    assert_eq!(why("missing.shard1.v3.rhcloud.com")["steps"][0]["wildcard"], true);
    assert_eq!(why("x_y.missing.routes.v3.rhcloud.com")["steps"][0]["found"], "no-such-name");

    let text = std::fs::read_to_string(data.join("audit.log")).expect("the audit log is there");
    let asked: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let ours = |event: &&Value| event["user"]["username"] == "signpost:admin";
    let lists = |event: &&Value| event["verb"] == "list" || event["verb"] == "watch";
    let of: Vec<&Value> =
        asked.iter().filter(ours).filter(lists).map(|event| &event["objectRef"]["resource"]).collect();
    assert!(of.contains(&&Value::from("routers")), "{of:?}");
    assert!(!of.contains(&&Value::from("routebindings")) && !of.contains(&&Value::from("nameclaims")), "{of:?}");
}
