//! Names and TTLs in the entries of the last-known-good state: names in the wire format, TTLs in seconds.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use signpost_dns::wire::Name;
use signpost_dns::zone::Ttl;

pub mod name {
    use super::*;

    pub fn serialize<S: Serializer>(name: &Name, serializer: S) -> Result<S::Ok, S::Error> {
        name.as_wire().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        Name::from_wire(<&[u8]>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

pub mod optional_name {
    use super::*;

    pub fn serialize<S: Serializer>(name: &Option<Name>, serializer: S) -> Result<S::Ok, S::Error> {
        name.as_ref().map(Name::as_wire).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Name>, D::Error> {
        let wire = <Option<&[u8]>>::deserialize(deserializer)?;
        wire.map(Name::from_wire).transpose().map_err(D::Error::custom)
    }
}

pub mod names {
    use super::*;

    pub fn serialize<S: Serializer>(names: &[Name], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(names.iter().map(Name::as_wire))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<[Name]>, D::Error> {
        let wires = <Vec<&[u8]>>::deserialize(deserializer)?;
        wires.into_iter().map(Name::from_wire).collect::<Result<_, _>>().map_err(D::Error::custom)
    }
}

pub mod ttl {
    use super::*;

    pub fn serialize<S: Serializer>(ttl: &Ttl, serializer: S) -> Result<S::Ok, S::Error> {
        ttl.seconds().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Ttl, D::Error> {
        Ttl::new(u32::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("the TTL is too large"))
    }
}
