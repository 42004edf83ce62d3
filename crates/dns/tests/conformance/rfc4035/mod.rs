//! RFC 4035 §3.1 and RFC 5155 §7.2: serving zones that another signer signed.

mod nsec;
mod nsec3;
