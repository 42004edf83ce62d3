//! The limits on connections, and on transfers in flight, in total and for each client.
//!
//! It keeps a count for each client with a connection, under a mutex that is locked when a connection opens and closes, but
//! never for a query.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Counts connections, or transfers, in total and by client.
pub(super) struct Admission {
    total_max: usize,
    per_client_max: usize,
    /// Written under the mutex, read without it.
    total: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, usize>>,
}

/// One admitted connection or transfer; dropping it frees its place.
pub(super) struct Permit {
    admission: Arc<Admission>,
    client: IpAddr,
}

/// The reason why a connection was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The total limit is reached.
    Total,
    /// The limit of the client is reached.
    Client,
}

impl Admission {
    pub(super) fn new(total_max: usize, per_client_max: usize) -> Self {
        Admission { total_max, per_client_max, total: AtomicUsize::new(0), clients: Mutex::default() }
    }

    /// Admits one more for `address`, or returns the reason for its rejection.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Permit, Refusal> {
        let client = client(address);
        let mut clients = self.clients.lock();
        if self.total.load(Ordering::Relaxed) >= self.total_max {
            return Err(Refusal::Total);
        }
        let of_client = clients.entry(client).or_default();
        // A new entry cannot be over the bound of one, so no empty entry stays behind.
        if *of_client >= self.per_client_max.max(1) {
            return Err(Refusal::Client);
        }
        *of_client += 1;
        self.total.fetch_add(1, Ordering::Relaxed);
        Ok(Permit { admission: Arc::clone(self), client })
    }

    /// Returns whether more than three quarters of all places are in use.
    pub(super) fn is_crowded(&self) -> bool {
        self.total.load(Ordering::Relaxed) * 4 > self.total_max * 3
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut clients = self.admission.clients.lock();
        self.admission.total.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// Returns the key of one client: an IPv4 address, or the /56 of an IPv6 address, which is the network of one site.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (!0 << (128 - 56))).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_the_total_are_bounded() {
        let admission = Arc::new(Admission::new(4, 2));
        let admit = |address: &str| admission.admit(address.parse().unwrap());
        let first = admit("192.0.2.1").unwrap();
        let _second = admit("192.0.2.1").unwrap();
        assert_eq!(admit("192.0.2.1").err(), Some(Refusal::Client));
        assert_eq!(admit("::ffff:192.0.2.1").err(), Some(Refusal::Client), "one address is one client");
        let _third = admit("2001:db8:0:1::1").unwrap();
        assert!(!admission.is_crowded());
        let fourth = admit("2001:db8:0:ff::2").unwrap();
        assert!(admission.is_crowded());
        assert_eq!(admit("192.0.2.9").err(), Some(Refusal::Total));
        drop(first);
        assert_eq!(admit("2001:db8::1").err(), Some(Refusal::Client), "one site is one client");
        let fifth = admit("192.0.2.1").unwrap();
        drop((fourth, fifth, _second, _third));
        assert_eq!(admission.total.load(Ordering::Relaxed), 0);
        assert!(admission.clients.lock().is_empty());
    }
}
