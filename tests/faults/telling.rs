//! What a process tells of itself: its metrics and whether it is ready.

use std::net::SocketAddr;

use crate::server::{eventually, http_get};

/// All metrics of a process that lives.
fn page(admin: SocketAddr) -> String {
    eventually("the metrics are told", || {
        http_get(admin, "/metrics").filter(|(status, _)| *status == 200).map(|(_, page)| page)
    })
}

/// The sum of all samples of `series` that have this label text, such as `kind="Route"`; all of them where it is empty.
pub fn metric(admin: SocketAddr, series: &str, label: &str) -> f64 {
    let page = page(admin);
    let samples = page.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        let (name, labels) = name.split_once('{').unwrap_or((name, ""));
        (name == series && labels.contains(label)).then(|| value.parse::<f64>().ok())?
    });
    samples.sum()
}

/// How often the mirrors of `owner` started again for `reason`.
pub fn restarts(admin: SocketAddr, owner: &str, reason: &str) -> f64 {
    let page = page(admin);
    let (owner, reason) = (format!("owner=\"{owner}\""), format!("reason=\"{reason}\""));
    let lines = page.lines().filter(|line| {
        line.starts_with("signpost_mirror_restarts_total{") && line.contains(&owner) && line.contains(&reason)
    });
    lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// How many mirrors of `owner` have a watch open, and how many there are: of what zones are made of and routes placed by.
pub fn watches(admin: SocketAddr, owner: &str) -> (usize, usize) {
    let page = page(admin);
    let owner = format!("owner=\"{owner}\"");
    let of_owner = page.lines().filter(|line| {
        line.starts_with("signpost_mirror_connected{") && line.contains(&owner) && !line.contains("kind=\"Brake\"")
    });
    let values: Vec<f64> = of_owner.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
    (values.iter().filter(|value| **value == 1.0).count(), values.len())
}

/// What `/readyz` says.
pub fn is_ready(admin: SocketAddr) -> bool {
    matches!(http_get(admin, "/readyz"), Some((200, _)))
}
