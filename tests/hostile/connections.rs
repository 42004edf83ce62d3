//! Attacks with connections and HTTP streams on the API and admin ports.
