//! Attacks on names of other tenants, and on what messages reveal of them.
