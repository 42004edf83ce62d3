//! RFC 4592: the role of wildcards.

mod empty_nonterminal;
mod wildcard;
