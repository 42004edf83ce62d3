//! The manifests of the README and of `docs/`: the API accepts each of them, by a dry run.

use std::collections::BTreeSet;

use serde_json::Value;

use signpost_testing::{DataDir, Kubectl, Ports, Server, root};

/// The groups that the API serves, of which kinds are applied; others, such as a Deployment, are only parsed.
const SERVED: [&str; 3] = ["signpost.dev/v1alpha1", "v1", "discovery.k8s.io/v1"];

/// Returns the YAML documents of a page: blocks of YAML, and here-documents for `kubectl`.
fn manifests(text: &str) -> Vec<String> {
    let (mut found, mut block, mut end) = (Vec::new(), None::<String>, String::new());
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(manifest) = &mut block {
            if trimmed == end {
                found.extend(block.take());
            } else {
                *manifest += &format!("{line}\n");
            }
        } else if trimmed == "```yaml" {
            (block, end) = (Some(String::new()), "```".to_owned());
        } else if let Some((command, word)) = trimmed.split_once("<<")
            && command.contains("kubectl")
        {
            (block, end) = (Some(String::new()), word.trim_matches(['\'', '"']).to_owned());
        }
    }
    let unindented = |text: &String| {
        let indent =
            text.lines().filter(|line| !line.trim().is_empty()).map(|line| line.len() - line.trim_start().len());
        let indent = indent.min().unwrap_or(0);
        text.lines().map(|line| format!("{}\n", line.get(indent..).unwrap_or_default())).collect()
    };
    found.iter().map(unindented).collect()
}

#[test]
fn the_api_accepts_the_manifests_of_every_page() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let _server = Server::start(ports, &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let docs = std::fs::read_dir(root().join("docs")).expect("it is there");
    let docs = docs
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "md"));
    let (mut namespaces, mut applied) = (BTreeSet::from(["default".to_owned()]), 0);
    for path in docs.chain([root().join("README.md")]) {
        let text = std::fs::read_to_string(&path).expect("UTF-8");
        for manifest in manifests(&text) {
            let page = path.display();
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&manifest).unwrap_or_else(|error| panic!("{page}: {error}:\n{manifest}"));
            for document in documents {
                let text = |path: &str| document.pointer(path).and_then(Value::as_str);
                // Values of a chart and configurations of other programs have no kind.
                if text("/kind").is_none() {
                    continue;
                }
                let version = text("/apiVersion").unwrap_or_else(|| panic!("{page}: no apiVersion:\n{manifest}"));
                if !SERVED.contains(&version) {
                    continue;
                }
                let namespace = text("/metadata/namespace").unwrap_or("default");
                if namespaces.insert(namespace.to_owned()) {
                    kubectl.ok(&["create", "namespace", namespace]);
                }
                let arguments = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
                let ran = kubectl.run_with(&arguments, &document.to_string());
                assert!(ran.status.success(), "{page}: {}\n{manifest}", String::from_utf8_lossy(&ran.stderr));
                applied += 1;
            }
        }
    }
    assert!(applied >= 12, "{applied} objects were found");
}
