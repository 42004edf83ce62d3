//! RFC 1034: domain names, concepts and facilities; above all the algorithm of §4.3.2.

mod alias;
mod delegation;
