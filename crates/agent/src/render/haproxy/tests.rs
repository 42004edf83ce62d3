//! Renderings as text: what a Site becomes, and what no Site can make of it.

use super::*;

/// Returns a Site with a Route for each host and its servers.
fn site(routes: &[(&str, &[(&str, u16)])]) -> Site {
    let mut site = Site::default();
    for (host, servers) in routes {
        let route: RouteKey = format!("test/{host}").parse().expect("a Route");
        let server = |(address, weight): &(&str, u16)| Server {
            address: address.parse().expect("an address"),
            tls_name: None,
            weight: *weight,
        };
        let servers = servers.iter().map(server).collect();
        let upstream = Upstream { uid: format!("uid of {host}"), servers, ..Upstream::default() };
        site.routes.insert(route.clone(), upstream);
        let paths = Paths::from([("/a;b".parse().expect("a path"), route)]);
        site.hosts.insert(host.parse().expect("a host"), paths);
    }
    site
}

/// Returns the commands that make a layout follow a Site.
fn follow(layout: &mut Layout, site: &Site) -> Option<Vec<Command>> {
    layout.advance(site, &site.certificates, None)
}

/// Returns the commands, with `HOST-ADDRESS` and `HOST-id` for identifiers of endpoints and Routes.
fn texts(commands: Option<Vec<Command>>) -> Vec<String> {
    let mut ids = Vec::new();
    for host in ["a.example", "b.example"] {
        let uid = format!("uid of {host}");
        ids.push((route_id(&uid), format!("{host}-id")));
        for address in ["192.0.2.1:80", "192.0.2.2:80", "[2001:db8::1]:80"] {
            let id = backend_id(&uid, address.parse().expect("an address"));
            ids.push((id, format!("{host}-{address}")));
        }
    }
    let readable = |text: String| ids.iter().fold(text.trim().to_owned(), |text, (id, name)| text.replace(id, name));
    commands.expect("there is room").into_iter().map(|command| readable(command.text)).collect()
}

#[test]
fn a_change_becomes_commands_in_a_safe_order() {
    let mut layout = Layout::new(&Site::default(), &Settings::default());
    let one: &[(&str, u16)] = &[("192.0.2.1:80", 7)];
    let added = [
        "add server h0/a.example-192.0.2.1:80 192.0.2.1:80 weight 7",
        "set server h0/a.example-192.0.2.1:80 state ready",
        "add map paths.map a.example/a\\;b/ h0:serve:refuse:a.example-id",
        "add map hosts.map a.example https",
    ];
    assert_eq!(texts(follow(&mut layout, &site(&[("a.example", one)]))), added);
    assert_eq!(texts(follow(&mut layout, &site(&[("a.example", one)]))), [""; 0]);
    let changed = [
        "set server h0/a.example-192.0.2.1:80 weight 9",
        "set server h0/a.example-192.0.2.1:80 state ready",
        "add server h0/a.example-[2001:db8::1]:80 [2001:db8::1]:80 weight 1",
        "set server h0/a.example-[2001:db8::1]:80 state ready",
    ];
    let two: &[(&str, u16)] = &[("192.0.2.1:80", 9), ("[2001:db8::1]:80", 1)];
    assert_eq!(texts(follow(&mut layout, &site(&[("a.example", two)]))), changed);
    let removed = [
        "del map hosts.map a.example",
        "del map paths.map a.example/a\\;b/",
        "set server h0/a.example-192.0.2.1:80 state maint",
        "set server h0/a.example-[2001:db8::1]:80 state maint",
    ];
    assert_eq!(texts(follow(&mut layout, &Site::default())), removed);
}

#[test]
fn a_backend_is_reused_when_its_servers_are_deleted() {
    let one: &[(&str, u16)] = &[("192.0.2.1:80", 1)];
    let (a, b) = (site(&[("a.example", one)]), site(&[("b.example", one)]));
    let mut layout = Layout::new(&a, &Settings::default());
    assert!(
        texts(follow(&mut layout, &b))
            .contains(&"add server h1/b.example-192.0.2.1:80 192.0.2.1:80 weight 1".to_owned())
    );
    let deletions = layout.deletions(0, 256);
    let names: Vec<_> = deletions.iter().map(|(_, backend, server)| (backend.as_str(), server.as_str())).collect();
    let id = backend_id("uid of a.example", "192.0.2.1:80".parse().expect("an address"));
    assert_eq!(names, [("h0", id.as_str())]);
    layout.deleted("h0", &id);
    let both = site(&[("a.example", one), ("b.example", one)]);
    assert!(
        texts(follow(&mut layout, &both))
            .contains(&"add server h0/a.example-192.0.2.1:80 192.0.2.1:80 weight 1".to_owned())
    );
}

#[test]
fn deletions_are_in_turn_and_bounded() {
    let all: Vec<(String, u16)> = (1..=7).map(|at| (format!("192.0.2.{at}:80"), 1)).collect();
    let all: Vec<(&str, u16)> = all.iter().map(|(address, weight)| (address.as_str(), *weight)).collect();
    let mut layout = Layout::new(&site(&[("a.example", &all), ("b.example", &all[..2])]), &Settings::default());
    let _ = follow(&mut layout, &Site::default());
    assert_eq!(layout.retired(), 9);
    let names = |first, most| {
        let deletions = layout.deletions(first, most).into_iter();
        deletions.map(|(_, backend, server)| format!("{backend}/{server}")).collect::<Vec<_>>()
    };
    let sorted = names(0, 100);
    assert_eq!((sorted.len(), names(0, 4)), (9, sorted[..4].to_vec()));
    assert_eq!(names(7, 4), [&sorted[7..], &sorted[..2]].concat());
    assert_eq!(names(9 + 3, 2), sorted[3..5]);
}

#[test]
fn a_server_that_returns_before_it_is_deleted_is_enabled() {
    let servers: [&[(&str, u16)]; 2] = [&[("192.0.2.1:80", 1), ("192.0.2.2:80", 1)], &[("192.0.2.1:80", 1)]];
    let mut layout = Layout::new(&site(&[("a.example", servers[0])]), &Settings::default());
    let maint = ["set server h0/a.example-192.0.2.2:80 state maint"];
    assert_eq!(texts(follow(&mut layout, &site(&[("a.example", servers[1])]))), maint);
    let ready = ["set server h0/a.example-192.0.2.2:80 weight 1", "set server h0/a.example-192.0.2.2:80 state ready"];
    assert_eq!(texts(follow(&mut layout, &site(&[("a.example", servers[0])]))), ready);
    assert_eq!((layout.retired(), layout.deletions(0, 256)), (0, vec![]));
}

#[test]
fn more_routes_than_spare_backends_need_a_new_layout() {
    let hosts: Vec<String> = (0..=SPARE_HTTP).map(|at| format!("h{at}.example")).collect();
    let one: &[(&str, u16)] = &[("192.0.2.1:80", 1)];
    let routes: Vec<_> = hosts.iter().map(|host| (host.as_str(), one)).collect();
    let mut layout = Layout::new(&Site::default(), &Settings::default());
    assert!(follow(&mut layout, &site(&routes[1..])).is_some());
    assert_eq!(follow(&mut layout, &site(&routes)), None);
}
