//! What queries and probes to find out how things are: which names are answered, which addresses are well, which instances serve, which addresses Services
//! have, whose a host is, and where it points. What is found goes into the World's [observations](crate::world::observations).

pub mod live;

pub mod health;

pub mod instances;

pub mod ownership;

pub mod programmed;

pub mod hosts;

pub mod services;
