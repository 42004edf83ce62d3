//! The network of probes, which a simulation replaces. Queries have theirs in [`dns_client`](crate::dns_client).

use std::cell::RefCell;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use http::Response;

/// The response to a probe; the error is the reason why there is none.
type Answer = BoxFuture<'static, Result<Response<()>, String>>;

type Network = Box<dyn Fn(SocketAddr, &str) -> Answer>;

thread_local! {
    static SIMULATED: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// Makes `network` answer all later probes of this thread instead of the kernel: for simulations. It gets the probed address, and
/// the host in the request.
pub fn simulate(network: impl Fn(SocketAddr, &str) -> Answer + 'static) {
    SIMULATED.set(Some(Box::new(network)));
}

/// Returns the response of the simulated network, if there is one.
pub(super) fn simulated(place: SocketAddr, host: &str) -> Option<Answer> {
    SIMULATED.with_borrow(|network| network.as_ref().map(|network| network(place, host)))
}
