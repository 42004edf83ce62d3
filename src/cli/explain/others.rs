//! What else may be at a name that is, or would be, a route's: a name server of the platform, or a zone file inside one of the
//! platform's zones. The API knows the first, and nothing of the second: the files are the name servers' own.

use std::path::PathBuf;

use crate::cli::access::ApiLocation;
use crate::cli::folder::StaticZones;
use crate::cli::platform::PlatformSettings;
use signpost_api::names::is_at_or_below;
use signpost_api::v1alpha1::route_binding::RouterVerdict;
use signpost_control::compiler::settings::text_of;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// The names of the platform's name servers, without a dot at the end; none where they are not known.
    pub(super) name_servers: Vec<String>,
    /// The files, each with its zone's apex, without a dot at the end.
    files: Vec<(PathBuf, String)>,
}

impl Others {
    /// By what the API tells of the platform, if it does, and by `--nameserver` and `--zones`.
    pub(super) fn find(place: &ApiLocation, platform: Option<&PlatformSettings>) -> Result<Others, String> {
        let of_flags = Some(&place.settings.nameserver).filter(|_| place.is_given("nameserver"));
        let servers = of_flags.or_else(|| platform.and_then(|platform| platform.name_servers.as_ref()));
        let name_servers =
            servers.into_iter().flatten().map(|server| server.name.trim_end_matches('.').to_owned()).collect();
        let folder = place.settings.zones.as_deref().map(StaticZones::read).transpose();
        let zones = folder.map_err(|error| error.to_string())?.unwrap_or_default().into_zones();
        let files = zones.into_iter().map(|(path, zone)| (path, text_of(zone.apex()))).collect();
        Ok(Others { name_servers, files })
    }

    /// What is at `name` in the platform's zone `zone`, in words that follow the name; `None`: nothing that is known of.
    pub(super) fn at(&self, name: &str, zone: &str) -> Option<String> {
        if self.name_servers.iter().any(|server| server.eq_ignore_ascii_case(name)) {
            return Some("is the name of a name server of the platform, which answers with its addresses".to_owned());
        }
        // A file at the very zone is another matter: the name servers' logs say whose the zone is.
        let is_inside = |apex: &str| is_at_or_below(apex, zone) && !apex.eq_ignore_ascii_case(zone);
        let hides = |(_, apex): &&(PathBuf, String)| is_at_or_below(name, apex) && is_inside(apex);
        let (path, apex) = self.files.iter().filter(hides).max_by_key(|(_, apex)| apex.len())?;
        Some(format!("is answered from the zone {apex} of the file {}, which hides it", path.display()))
    }

    /// What is said of a Router, if the route's name in its zone `zone` would be `name`.
    pub(super) fn amend(&self, now: RouterVerdict, name: &str, zone: &str) -> RouterVerdict {
        let Some(by) = self.at(name, zone) else { return now };
        let separator = if now.eligible { ", but" } else { ":" };
        let message = now.message.map(|message| format!("{message}{separator} {name} {by}"));
        RouterVerdict { message, ..now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_a_name() {
        let others = Others {
            name_servers: vec!["shop-NS.s1.v3.example".to_owned()],
            files: ["v3.example", "s1.v3.example", "shop-web.s1.v3.example", "elsewhere.example"]
                .map(|apex| (format!("zones/{apex}.zone").into(), apex.to_owned()))
                .into(),
        };
        for (name, zone, told) in [
            ("shop-ns.s1.v3.example", "s1.v3.example", Some("is the name of a name server")),
            (
                "Shop-Web.s1.v3.example",
                "s1.v3.example",
                Some("the file zones/shop-web.s1.v3.example.zone, which hides it"),
            ),
            // What is served from the platform's own zone, or one at the same apex, is hidden by no file.
            ("shop-api.s1.v3.example", "s1.v3.example", None),
            ("shop-web.s2.v3.example", "s2.v3.example", None),
        ] {
            let found = others.at(name, zone);
            assert_eq!(found.is_some(), told.is_some(), "{name} {found:?}");
            assert!(found.is_none_or(|found| found.contains(told.unwrap_or_default())), "{name}");
        }
        let could = Some("could".to_owned());
        let now = |eligible| RouterVerdict { eligible, message: could.clone(), ..RouterVerdict::default() };
        let name = "shop-ns.s1.v3.example";
        for (eligible, begin) in
            [(true, "could, but shop-ns.s1.v3.example is"), (false, "could: shop-ns.s1.v3.example is")]
        {
            let message = others.amend(now(eligible), name, "s1.v3.example").message;
            assert!(message.as_ref().is_some_and(|message| message.starts_with(begin)), "{message:?}");
        }
        assert_eq!(others.amend(now(true), "x.s1.v3.example", "s1.v3.example").message, could);
    }
}
