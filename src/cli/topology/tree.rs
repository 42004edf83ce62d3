//! The topology as a text tree.

use std::fmt::Write as _;

use super::model::{Group, Leaf, Namespace, Shard, Topology};
use super::plan::{self, Layout, routes};
use crate::cli::style::{Painter, Style, harmless};
use signpost_api::v1alpha1::router::{AddressState, RouterState};

/// The tree: namespaces with their routes by shard, then the shards.
pub(super) fn text(topology: &Topology, plan: &Layout, painter: Painter) -> String {
    let mut text = String::new();
    let (namespaces, more, their_routes) = plan.namespaces(topology);
    for namespace in namespaces {
        let heading = painter.paint(Style::Strong, &harmless(&namespace.name));
        // Writing to a String cannot fail, here and below.
        let _ = match plan.groups {
            true => writeln!(text, "{heading}   {}", routes(namespace.routes)),
            false => writeln!(text, "{heading}   {}: {}", routes(namespace.routes), beside(namespace)),
        };
        if plan.groups {
            for (at, group) in namespace.groups.iter().enumerate() {
                branch(&mut text, group, at + 1 == namespace.groups.len(), plan, painter);
            }
        }
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more namespaces with {}", routes(their_routes));
    }
    if topology.namespaces.is_empty() {
        text.push_str("no routes\n");
    }
    text.push('\n');
    let (shards, more, their_routes) = plan.shards(topology);
    let width = shards.iter().map(|shard| shard.name.chars().count()).max().unwrap_or(0);
    for shard in shards {
        shard_line(&mut text, shard, width, plan, painter);
    }
    if more > 0 {
        let _ = writeln!(text, "and {more} more shards with {}", routes(their_routes));
    }
    text
}

/// The shards that a namespace has most routes on, for a line.
fn beside(namespace: &Namespace) -> String {
    let (shown, more, others) = plan::most(&namespace.groups, plan::SHARDS_BESIDE, |group| group.routes.len());
    let mut parts: Vec<String> = shown
        .into_iter()
        .map(|group| format!("{} {}", harmless(group.router.as_deref().unwrap_or("waiting")), group.routes.len()))
        .collect();
    if more > 0 {
        parts.push(format!("{more} more shards {others}"));
    }
    parts.join(", ")
}

fn branch(text: &mut String, group: &Group, last: bool, plan: &Layout, painter: Painter) {
    let (fork, stem) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
    let name = match &group.router {
        Some(router) => harmless(router),
        None => painter.paint(Style::Warning, "waiting"),
    };
    let _ = writeln!(text, "{fork}{name}   {}", routes(group.routes.len()));
    let shown = &group.routes[..group.routes.len().min(plan.named)];
    let more = group.routes.len() - shown.len();
    let width = shown.iter().map(|leaf| leaf.name.chars().count()).max().unwrap_or(0);
    for (at, Leaf { name, host, reason }) in shown.iter().enumerate() {
        let fork = if at + 1 == shown.len() && more == 0 { "└─ " } else { "├─ " };
        let about = reason.as_deref().or(host.as_deref()).map(harmless).unwrap_or_default();
        let line = format!("{stem}{fork}{:width$}   {}", harmless(name), painter.paint(Style::Dim, &about));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if more > 0 && !shown.is_empty() {
        let _ = writeln!(text, "{stem}└─ and {more} more");
    }
}

/// How many routes: all that it has, or so many of them.
fn count(shard: &Shard) -> String {
    match shard.of {
        Some(all) => format!("{} of {}", shard.routes, routes(all as usize)),
        None => routes(shard.routes),
    }
}

fn shard_line(text: &mut String, shard: &Shard, width: usize, plan: &Layout, painter: Painter) {
    let state = match shard.state {
        RouterState::Active => String::new(),
        state => painter.paint(Style::Warning, &format!(" {}", state.word())),
    };
    let name = format!("{:width$}", harmless(&shard.name));
    let _ = writeln!(text, "{}   {}{state}", painter.paint(Style::Strong, &name), count(shard));
    let mut addresses: Vec<String> = shard
        .addresses
        .iter()
        .take(plan.addresses)
        .map(|address| match address.state {
            AddressState::Active if address.unhealthy => {
                painter.paint(Style::Bad, &format!("{} (unhealthy)", harmless(&address.ip)))
            }
            AddressState::Active => harmless(&address.ip),
            AddressState::Drained => painter.paint(Style::Warning, &format!("{} (drained)", harmless(&address.ip))),
        })
        .collect();
    let more = shard.addresses.len() - addresses.len();
    if more > 0 {
        addresses.push(format!("and {more} more"));
    }
    if addresses.is_empty() {
        addresses.push(painter.paint(Style::Bad, "no address"));
    }
    // The addresses share their shard's line.
    text.truncate(text.trim_end().len());
    let _ = writeln!(text, "   {}", addresses.join(", "));
}

#[cfg(test)]
mod tests {
    use super::super::model::fixture::small;
    use super::*;

    #[test]
    fn a_tree() {
        let topology = small();
        let expected = "\
blog   2 routes
├─ shard1   1 route
│  └─ www   blog-www.shard1.example
└─ shard2   1 route
   └─ old   blog-old.shard2.example
shop   3 routes
├─ shard1   2 routes
│  ├─ cart    shop-cart.shard1.example
│  └─ front   shop-front.shard1.example
└─ waiting   1 route
   └─ vault   NoRouter

shard1   3 routes   192.0.2.1, 192.0.2.2 (drained)
shard2   1 route cordoned   no address
";
        assert_eq!(text(&topology, &Layout::new(&topology, 0), Painter::PLAIN), expected);
    }

    #[test]
    fn less_of_it() {
        let topology = small();
        let named = Layout { named: 1, ..Layout::new(&topology, 0) };
        assert!(
            text(&topology, &named, Painter::PLAIN)
                .contains("│  ├─ cart   shop-cart.shard1.example\n│  └─ and 1 more\n")
        );
        let tight = text(&topology, &Layout::new(&topology, 2), Painter::PLAIN);
        let expected = "\
shop   3 routes: shard1 2, waiting 1
and 1 more namespaces with 2 routes

shard1   3 routes   192.0.2.1, 192.0.2.2 (drained)
and 1 more shards with 1 route
";
        assert_eq!(tight, expected);
    }
}
