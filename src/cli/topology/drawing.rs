//! The topology for Graphviz and for Mermaid.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::model::{Namespace, Topology};
use super::plan::{self, Layout, routes};
use crate::cli::style::harmless;
use signpost_api::v1alpha1::router::{AddressState, RouterState};

/// A directed graph in four ranks.
#[derive(Default)]
struct Graph {
    /// Rank and label; a node's number is its place here.
    nodes: Vec<(Rank, String)>,
    /// From, to, label.
    edges: Vec<(usize, usize, String)>,
    /// Shards that have a node, by name.
    shards: HashMap<String, usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Namespace,
    Route,
    Shard,
    Address,
}

impl Graph {
    fn new(topology: &Topology, plan: &Layout) -> Graph {
        let mut graph = Graph::default();
        let (shards, _, _) = plan.shards(topology);
        for shard in shards {
            let state = match shard.state {
                RouterState::Active => "",
                RouterState::Cordoned => ", cordoned",
                RouterState::Draining => ", draining",
            };
            let node = graph.node(Rank::Shard, format!("{}\n{}{state}", harmless(&shard.name), routes(shard.routes)));
            graph.shards.insert(shard.name.clone(), node);
            for address in shard.addresses.iter().take(plan.addresses) {
                let state = match address.state {
                    AddressState::Drained => "\ndrained",
                    AddressState::Active if address.unhealthy => "\nunhealthy",
                    AddressState::Active => "",
                };
                let leaf = graph.node(Rank::Address, format!("{}{state}", harmless(&address.ip)));
                graph.edges.push((node, leaf, String::new()));
            }
            if let Some(more) = shard.addresses.len().checked_sub(plan.addresses).filter(|more| *more > 0) {
                let leaf = graph.node(Rank::Address, format!("{more} more"));
                graph.edges.push((node, leaf, String::new()));
            }
        }
        let (namespaces, more, count) = plan.namespaces(topology);
        for namespace in namespaces {
            graph.namespace(namespace, plan);
        }
        if more > 0 {
            graph.node(Rank::Namespace, format!("{more} more namespaces\n{}", routes(count)));
        }
        graph
    }

    fn node(&mut self, rank: Rank, label: String) -> usize {
        self.nodes.push((rank, label));
        self.nodes.len() - 1
    }

    /// The node of a shard. One that is not drawn by itself is among the others; so are Routers that are gone.
    fn shard(&mut self, router: Option<&str>) -> usize {
        match router {
            None => self.shared("", "waiting"),
            Some(router) => match self.shards.get(router) {
                Some(node) => *node,
                None => self.other_shards(),
            },
        }
    }

    fn other_shards(&mut self) -> usize {
        self.shared("\n", "other shards")
    }

    /// A node for several, under a key that is no Router's name.
    fn shared(&mut self, key: &str, label: &str) -> usize {
        if let Some(node) = self.shards.get(key) {
            return *node;
        }
        let node = self.node(Rank::Shard, label.to_owned());
        self.shards.insert(key.to_owned(), node);
        node
    }

    fn namespace(&mut self, namespace: &Namespace, plan: &Layout) {
        let from = self.node(Rank::Namespace, format!("{}\n{}", harmless(&namespace.name), routes(namespace.routes)));
        let mut counted: HashMap<usize, usize> = HashMap::new();
        // Without groups only the shards that matter most to the namespace have an edge of their own.
        let beside = if plan.groups { usize::MAX } else { plan::SHARDS_BESIDE };
        let (groups, _, others) = plan::most(&namespace.groups, beside, |group| group.routes.len());
        for group in groups {
            let to = self.shard(group.router.as_deref());
            let named = group.routes.len().min(plan.named);
            for leaf in &group.routes[..named] {
                let about = leaf.reason.as_deref().or(leaf.host.as_deref()).map(harmless).unwrap_or_default();
                let node = self.node(Rank::Route, format!("{}\n{about}", harmless(&leaf.name)).trim_end().to_owned());
                self.edges.push((from, node, String::new()));
                self.edges.push((node, to, String::new()));
            }
            if named < group.routes.len() {
                *counted.entry(to).or_default() += group.routes.len() - named;
            }
        }
        if others > 0 {
            let to = self.other_shards();
            *counted.entry(to).or_default() += others;
        }
        let mut counted: Vec<(usize, usize)> = counted.into_iter().collect();
        counted.sort_unstable();
        for (to, count) in counted {
            self.edges.push((from, to, routes(count)));
        }
    }
}

/// For Graphviz.
pub(super) fn dot(topology: &Topology, plan: &Layout) -> String {
    let graph = Graph::new(topology, plan);
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut text = "digraph topology {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n".to_owned();
    for (at, (rank, label)) in graph.nodes.iter().enumerate() {
        let shape = match rank {
            Rank::Namespace => "folder",
            Rank::Route => "box",
            Rank::Shard => "box3d",
            Rank::Address => "plaintext",
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "  n{at} [label=\"{}\", shape={shape}];", quoted(label));
    }
    for (from, to, label) in &graph.edges {
        let _ = match label.is_empty() {
            true => writeln!(text, "  n{from} -> n{to};"),
            false => writeln!(text, "  n{from} -> n{to} [label=\"{}\"];", quoted(label)),
        };
    }
    text + "}\n"
}

/// For Mermaid, as Markdown pages of code forges draw it.
pub(super) fn mermaid(topology: &Topology, plan: &Layout) -> String {
    let graph = Graph::new(topology, plan);
    let quoted = |text: &str| {
        text.replace('#', "#35;")
            .replace('"', "#quot;")
            .replace('<', "#lt;")
            .replace('>', "#gt;")
            .replace('\n', "<br/>")
    };
    let mut text = "flowchart LR\n".to_owned();
    for (at, (rank, label)) in graph.nodes.iter().enumerate() {
        let (open, close) = match rank {
            Rank::Namespace => ("([", "])"),
            Rank::Route => ("[", "]"),
            Rank::Shard => ("[[", "]]"),
            Rank::Address => ("(", ")"),
        };
        let _ = writeln!(text, "  n{at}{open}\"{}\"{close}", quoted(label));
    }
    for (from, to, label) in &graph.edges {
        let _ = match label.is_empty() {
            true => writeln!(text, "  n{from} --> n{to}"),
            false => writeln!(text, "  n{from} -->|\"{}\"| n{to}", quoted(label)),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::model::fixture::{route, router, small};
    use super::*;
    use serde_json::json;

    #[test]
    fn drawings() {
        let topology = small();
        let plan = Layout::new(&topology, 0);
        let drawn = dot(&topology, &plan);
        for part in [
            "digraph topology {\n",
            "  n0 [label=\"shard1\\n3 routes\", shape=box3d];\n",
            "  n2 [label=\"192.0.2.2\\ndrained\", shape=plaintext];\n  n3 [label=\"shard2\\n1 route, cordoned\", shape=box3d];\n",
            "  n4 [label=\"blog\\n2 routes\", shape=folder];\n",
            "  n5 [label=\"www\\nblog-www.shard1.example\", shape=box];\n",
            "  n4 -> n5;\n  n5 -> n0;\n",
        ] {
            assert!(drawn.contains(part), "{part:?} is not in\n{drawn}");
        }
        let drawn = mermaid(&topology, &Layout { named: 0, ..plan });
        let expected = "\
flowchart LR
  n0[[\"shard1<br/>3 routes\"]]
  n1(\"192.0.2.1\")
  n2(\"192.0.2.2<br/>drained\")
  n3[[\"shard2<br/>1 route, cordoned\"]]
  n4([\"blog<br/>2 routes\"])
  n5([\"shop<br/>3 routes\"])
  n6[[\"waiting\"]]
  n0 --> n1
  n0 --> n2
  n4 -->|\"1 route\"| n0
  n4 -->|\"1 route\"| n3
  n5 -->|\"2 routes\"| n0
  n5 -->|\"1 route\"| n6
";
        assert_eq!(drawn, expected);
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let topology = Topology::new(&[router("a\"b\\", &json!({}))], &[route("<x>", "#", Some("gone"))], &[]);
        let plan = Layout::new(&topology, 0);
        assert!(dot(&topology, &plan).contains(r#"[label="a\"b\\\n0 routes""#));
        let drawn = mermaid(&topology, &plan);
        assert!(
            drawn.contains("a#quot;b\\<br/>") && drawn.contains("#lt;x#gt;") && drawn.contains("other shards"),
            "{drawn}"
        );
    }
}
