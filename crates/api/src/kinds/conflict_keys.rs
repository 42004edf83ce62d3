//! The conflict keys of Signpost's kinds ([`ConflictKey`]). They are stored, so their prefix and names stay what they are.

use aws_lc_rs::digest::{SHA256, digest};
use signpost_apiserver::registry::conflict_key::ConflictKey;

/// The prefix of conflict keys in the store.
const PREFIX: &str = "/signpost.dev/turnstiles/";

/// Returns the key of the zones of shards: each new Router touches it.
pub(super) fn zones() -> ConflictKey {
    ConflictKey(format!("{PREFIX}zones"))
}

/// Returns the key of the Router of this name: each binding touches it.
pub(super) fn router(name: &str) -> ConflictKey {
    ConflictKey(format!("{PREFIX}routers/{name}"))
}

/// Returns the key of the custom hosts whose last two labels are those of this one: each claim on such a host touches it. They
/// share 256 keys, so that there are not as many as there were domains ever.
pub(super) fn hosts_of(host: &str) -> ConflictKey {
    let host = host.to_ascii_lowercase();
    let start = host.rmatch_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1);
    let hash = digest(&SHA256, &host.as_bytes()[start..]);
    ConflictKey(format!("{PREFIX}hosts/{:02x}", hash.as_ref()[0]))
}

/// Returns the key of all custom hosts: each claim on one touches it.
pub(super) fn hosts() -> ConflictKey {
    ConflictKey(format!("{PREFIX}hosts/all"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{PlatformConfig, kinds};
    use signpost_apiserver::registry::conflict_key::KIND;

    #[test]
    fn no_kind_shows_them() {
        let kinds = kinds(PlatformConfig::new("v3.example"));
        for key in [zones(), router("zones"), hosts(), hosts_of("a.b")] {
            assert!(kinds.iter().all(|kind| !key.0.starts_with(kind.key_prefix)), "{key:?}");
        }
        assert!(kinds.iter().all(|kind| kind.kind != KIND));
        assert_ne!(zones(), router("zones"));
        assert_ne!(hosts(), router("all"));
    }

    #[test]
    fn hosts_of_one_domain_share_one() {
        for host in ["shop.example", "*.shop.example", "a.b.SHOP.Example"] {
            assert_eq!(hosts_of(host), hosts_of("www.shop.example"), "{host}");
        }
        assert_ne!(hosts_of("shop.example"), hosts_of("shop.test"));
        assert_ne!(hosts_of("example"), hosts());
    }
}
