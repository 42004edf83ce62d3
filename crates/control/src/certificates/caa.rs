//! The CAA records of a name (RFC 8659), before its certificate is ordered: the reason is then a record to change, and no failed validation.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::ca::not_ready;
use super::plan::Failure;
use crate::dns_client::Question;
use signpost_dns::wire::{Name, RecordType};

/// The flag of a property that a CA has to understand.
const CRITICAL: u8 = 0x80;
/// The properties that this check understands.
const KNOWN: [&str; 5] = ["issue", "issuewild", "iodef", "contactemail", "contactphone"];

/// The part of a directory (RFC 8555 §7.1.1) that names the CA.
#[derive(Default, Deserialize)]
struct Directory {
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(default, rename = "caaIdentities")]
    identities: Vec<String>,
}

/// A property of a CAA record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Property {
    flags: u8,
    tag: String,
    value: String,
}

impl Property {
    /// Reads the data of a record (RFC 8659 §4.1).
    fn read(data: &[u8]) -> Option<Property> {
        let (&[flags, length], rest) = data.split_first_chunk()?;
        let (tag, value) = rest.split_at_checked(length.into())?;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        Some(Property { flags, tag: text(tag).to_ascii_lowercase(), value: text(value) })
    }

    /// Returns the domain of the CA in its value; empty: none.
    fn domain(&self) -> &str {
        self.value.split(';').next().unwrap_or_default().trim()
    }
}

/// Checks whether the records of names let a CA issue a certificate for them. What cannot be found out is left to the CA.
pub(super) async fn check(
    http: &reqwest::Client,
    directory: &str,
    names: &[String],
    resolvers: &[SocketAddr],
    patience: Duration,
) -> Result<(), Failure> {
    if resolvers.is_empty() {
        return Ok(());
    }
    let Ok(response) = http.get(directory).send().await else { return Ok(()) };
    let read = response.bytes().await.ok().and_then(|octets| serde_json::from_slice::<Directory>(&octets).ok());
    let identities = read.unwrap_or_default().meta.identities;
    if identities.is_empty() {
        return Ok(());
    }
    for name in names {
        let (is_wildcard, base) = match name.strip_prefix("*.") {
            Some(base) => (true, base),
            None => (false, name.as_str()),
        };
        let mut place = Some(base);
        while let Some(owner) = place {
            let Some(properties) = records(owner, resolvers, patience).await else { break };
            if !properties.is_empty() {
                if let Some(property) = forbids(&properties, is_wildcard, &identities) {
                    return Err(not_ready("caa", describe(name, owner, property, is_wildcard, &identities[0])));
                }
                break;
            }
            place = owner.split_once('.').map(|(_, parent)| parent);
        }
    }
    Ok(())
}

fn describe(name: &str, owner: &str, property: &Property, is_wildcard: bool, identity: &str) -> String {
    let Property { flags, tag, value } = property;
    let added = if is_wildcard { "issuewild" } else { "issue" };
    format!(
        "the CAA record at {owner} ({flags} {tag} {value:?}) forbids the certificate authority to issue a certificate for {name}; add the \
         record \"{owner} CAA 0 {added} {identity:?}\""
    )
}

/// Returns the CAA records at a name; `None`: no resolver answers.
async fn records(owner: &str, resolvers: &[SocketAddr], patience: Duration) -> Option<Vec<Property>> {
    let question = Question { name: owner.parse::<Name>().ok()?, rtype: RecordType::CAA };
    let reply = question.resolve(resolvers, patience).await.ok()?;
    let answers = reply.answers.iter().filter(|record| record.rtype == RecordType::CAA);
    Some(answers.filter_map(|record| Property::read(&record.rdata)).collect())
}

/// Returns the property by which the records of a name forbid a CA with these names to issue for it (RFC 8659 §4.2, §4.3).
fn forbids<'a>(properties: &'a [Property], is_wildcard: bool, identities: &[String]) -> Option<&'a Property> {
    let is_unknown = |property: &&Property| property.flags & CRITICAL != 0 && !KNOWN.contains(&property.tag.as_str());
    if let Some(property) = properties.iter().find(is_unknown) {
        return Some(property);
    }
    let of = |tag: &'static str| properties.iter().filter(move |property| property.tag == tag);
    let tag = if is_wildcard && of("issuewild").next().is_some() { "issuewild" } else { "issue" };
    let permits = |property: &Property| identities.iter().any(|own| own.eq_ignore_ascii_case(property.domain()));
    of(tag).next().filter(|_| !of(tag).any(permits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_forbid() {
        let identities = ["ca.example".to_owned(), "other.ca.example".to_owned()];
        for (records, of_name, of_wildcard) in [
            (vec![], None, None),
            (vec!["0 issue ca.example"], None, None),
            (vec!["0 issue CA.Example; accounturi=x"], None, None),
            (vec!["0 issue another.example"], Some(0), Some(0)),
            (vec!["0 issue another.example", "0 issue other.ca.example"], None, None),
            (vec!["0 issue ;"], Some(0), Some(0)),
            (vec!["0 issue "], Some(0), Some(0)),
            (vec!["0 iodef mailto:a@b.example"], None, None),
            (vec!["0 issue ca.example", "0 issuewild ;"], None, Some(1)),
            (vec!["0 issue ;", "0 issuewild ca.example"], Some(0), None),
            (vec!["0 issuewild another.example"], None, Some(0)),
            (vec!["0 issue ca.example", "128 future x"], Some(1), Some(1)),
            (vec!["0 issue ca.example", "0 future x"], None, None),
            (vec!["128 issue ca.example"], None, None),
        ] {
            let property = |text: &&str| {
                let [flags, tag, value] = text.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
                let octets =
                    [&[flags.parse().expect("flags"), tag.len() as u8], tag.as_bytes(), value.as_bytes()].concat();
                Property::read(&octets).expect("a record")
            };
            let properties: Vec<Property> = records.iter().map(property).collect();
            for (is_wildcard, expected) in [(false, of_name), (true, of_wildcard)] {
                let found = forbids(&properties, is_wildcard, &identities);
                assert_eq!(found, expected.map(|at: usize| &properties[at]), "{records:?} {is_wildcard}");
            }
        }
        assert_eq!(Property::read(b"\0"), None);
        assert_eq!(Property::read(b"\0\x09issue"), None);
    }

    #[test]
    fn the_message_names_the_record() {
        let property = Property { flags: 0, tag: "issue".to_owned(), value: ";".to_owned() };
        assert_eq!(
            describe("www.shop.example", "shop.example", &property, false, "ca.example"),
            "the CAA record at shop.example (0 issue \";\") forbids the certificate authority to issue a certificate for \
             www.shop.example; add the record \"shop.example CAA 0 issue \"ca.example\"\""
        );
    }
}
