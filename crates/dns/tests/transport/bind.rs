//! Opening addresses: the errors an operator meets, and port 0.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use signpost_dns::transport::{BindError, Config, bind};

use crate::support::{Server, ask, udp_client};

fn config(address: SocketAddr, udp_workers: usize) -> Config {
    Config { addresses: vec![address], udp_workers, ..Config::default() }
}

#[test]
fn an_address_in_use_is_named_with_its_protocol() {
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let udp = UdpSocket::bind(free).unwrap();
    let udp_address = udp.local_addr().unwrap();
    let tcp = TcpListener::bind(free).unwrap();
    let tcp_address = tcp.local_addr().unwrap();
    for (address, protocol) in [(udp_address, "UDP"), (tcp_address, "TCP")] {
        let error = bind(&config(address, 2)).err().expect("in use");
        assert!(matches!(error, BindError::InUse { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{protocol} {address} is in use")), "{error}");
    }
}

#[test]
fn a_second_server_does_not_share_the_port() {
    for workers in [1, 3] {
        let first = bind(&config("127.0.0.1:0".parse().unwrap(), workers)).unwrap();
        let address = first.addresses()[0];
        for others in [1, 3] {
            let error = bind(&config(address, others)).err().expect("in use");
            assert!(matches!(error, BindError::InUse { address: named, .. } if named == address), "{error}");
        }
        drop(first);
        bind(&config(address, workers)).expect("free again");
    }
}

#[test]
fn one_bad_address_of_many_leaves_none_open() {
    let elsewhere: SocketAddr = "192.0.2.77:5300".parse().unwrap();
    // A port that is free for UDP may be in use for TCP, on a machine with other processes.
    let refused = (0..16).find_map(|_| {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = Config { addresses: vec![port, elsewhere], ..Config::default() };
        let error = bind(&config).err().expect("not here");
        (!matches!(error, BindError::InUse { .. })).then_some((port, error))
    });
    let (port, error) = refused.expect("one of many ports is free");
    assert!(matches!(error, BindError::NotHere { address } if address == elsewhere), "{error}");
    drop(UdpSocket::bind(port).expect("free again"));
}

#[test]
fn port_0_is_one_port_for_all_workers_and_both_protocols() {
    let server = Server::with(|config| {
        config.addresses = vec!["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        config.udp_workers = 3;
    });
    assert!(server.addresses.iter().all(|address| address.port() != 0));
    for address in &server.addresses {
        ask(&udp_client(*address), 7, 4);
        std::net::TcpStream::connect(address).expect("the same port by TCP");
    }
}

#[test]
fn both_wildcards_can_have_one_port() {
    use std::net::Ipv6Addr;
    // A port that is free for UDP may be in use by a connection of another test.
    let free = (0..100).find_map(|_| {
        let port = UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port();
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok().then_some(port)
    });
    let port = free.expect("one of many ports is free");
    let server = Server::with(|config| {
        config.addresses = vec![([0, 0, 0, 0], port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
    });
    assert_eq!(server.address().port(), port);
    ask(&udp_client(SocketAddr::from(([127, 0, 0, 1], port))), 1, 4);
    ask(&udp_client(SocketAddr::from((Ipv6Addr::LOCALHOST, port))), 2, 4);
}

#[test]
fn pinned_workers_answer() {
    let server = Server::with(|config| config.pin = true);
    ask(&udp_client(server.address()), 1, 4);
}
