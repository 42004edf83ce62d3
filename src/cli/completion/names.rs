//! `signpost completion names`: the names of objects that may stand where the cursor is, one a line. Shells ask it, not people:
//! it says nothing of what goes wrong, and is soon done.

use std::fmt::Debug;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::cli::access::{self, Access, ApiLocation};
use crate::cli::{Exit, Outcome, print};
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;

/// How long somebody who pressed a key waits at most.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// Objects that are looked through, a page after the other. Nobody chooses among more.
const PAGE_SIZE: u32 = 1_000;
const PAGES_MAX: usize = 10;
/// Names that are offered.
const OFFERED_MAX: usize = 1_000;

/// What a word names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Route,
    Router,
    Namespace,
}

pub(super) fn command() -> Command {
    let words = Arg::new("words").num_args(0..).allow_hyphen_values(true).trailing_var_arg(true);
    Command::new("names").hide(true).disable_help_flag(true).arg(words)
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let words: Vec<&str> = matches.get_many::<String>("words").into_iter().flatten().map(String::as_str).collect();
    for name in offered(&words).unwrap_or_default() {
        print(&format!("{name}\n"));
    }
    Ok(Exit::Success)
}

/// The words before the one that is begun, what is begun of it, and what stands in front of that within the word.
fn parted<'a>(words: &[&'a str]) -> Option<(Vec<&'a str>, &'a str, &'a str)> {
    let (last, before) = words.split_last()?;
    // Some shells leave `--option=value` together.
    Some(match last.split_once('=').filter(|(option, _)| option.starts_with("--")) {
        Some((option, value)) => ([before, &[option]].concat(), value, &last[..=option.len()]),
        None => (before.to_vec(), last, ""),
    })
}

/// The names that begin as the last of the words.
fn offered(words: &[&str]) -> Option<Vec<String>> {
    let (before, begun, front) = parted(words)?;
    let named = named(&crate::cli::command(), &before, begun)?;
    let matches = crate::cli::command().ignore_errors(true).try_get_matches_from(before).ok()?;
    let mut matches = &matches;
    while let Some((_, below)) = matches.subcommand() {
        matches = below;
    }
    let place = ApiLocation::of(matches).ok().filter(ApiLocation::is_there)?;
    let names = access::run(PATIENCE, async {
        let access = place.connect().await?;
        names(&access, named, begun).await.map_err(|error| error.to_string())
    });
    let mut names = names.ok()?;
    names.retain(|name| name.starts_with(begun));
    names.truncate(OFFERED_MAX);
    Some(names.into_iter().map(|name| format!("{front}{name}")).collect())
}

/// What the word after these names, of which the first is the program; `None` if that is no object.
fn named(program: &Command, before: &[&str], begun: &str) -> Option<Named> {
    let mut command = program;
    let mut given = 0;
    let mut option: Option<&Arg> = None;
    for word in before.iter().skip(1) {
        // Some shells part `--option=value` there.
        if *word == "=" || option.take().is_some() && !word.starts_with('-') {
            continue;
        }
        let is_it = |argument: &&Arg| {
            let long = word.strip_prefix("--").is_some_and(|name| argument.get_long() == Some(name));
            let short = word
                .strip_prefix('-')
                .is_some_and(|name| argument.get_short().is_some_and(|short| name.chars().eq([short])));
            (long || short) && argument.get_action().takes_values()
        };
        option = command.get_arguments().find(is_it);
        if word.starts_with('-') {
            continue;
        }
        match command.find_subcommand(word) {
            Some(below) => (command, given) = (below, 0),
            None => given += 1,
        }
    }
    let argument = match option {
        Some(option) => option,
        None if begun.starts_with('-') => return None,
        None => command.get_positionals().nth(given)?,
    };
    kind(argument, before.last().copied())
}

/// What the argument names, where this word is before it.
pub(super) fn kind(argument: &Arg, before: Option<&str>) -> Option<Named> {
    match (argument.get_id().as_str(), argument.get_value_names()?) {
        ("namespace", _) => Some(Named::Namespace),
        ("router", _) => Some(Named::Router),
        (_, [name]) if name == "ROUTER" => Some(Named::Router),
        (_, [name]) if name == "[NAMESPACE/]NAME" && before == Some("router") => Some(Named::Router),
        (_, [name]) if name == "[NAMESPACE/]NAME" => Some(Named::Route),
        _ => None,
    }
}

async fn names(access: &Access, named: Named, begun: &str) -> Result<Vec<String>, kube::Error> {
    let client = access.client.clone();
    match (named, begun.split_once('/')) {
        (Named::Router, _) => listed::<Router>(&Api::all(client)).await,
        (Named::Namespace, _) => listed::<Namespace>(&Api::all(client)).await,
        (Named::Route, None) => listed::<Route>(&Api::namespaced(client, &access.namespace)).await,
        (Named::Route, Some((namespace, _))) => {
            let names = listed::<Route>(&Api::namespaced(client, namespace)).await?;
            Ok(names.into_iter().map(|name| format!("{namespace}/{name}")).collect())
        }
    }
}

async fn listed<K>(api: &Api<K>) -> Result<Vec<String>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut names = Vec::new();
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    for _ in 0..PAGES_MAX {
        let page = api.list_metadata(&parameters).await?;
        names.extend(page.items.iter().map(kube::ResourceExt::name_any));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_word_names_is_known_by_its_place() {
        let program = crate::cli::command();
        let (route, router, namespace) = (Some(Named::Route), Some(Named::Router), Some(Named::Namespace));
        for (line, expected) in [
            ("signpost explain route ", route),
            ("signpost explain route shop/f", route),
            ("signpost explain route -n shop ", route),
            ("signpost explain route --why-not ", router),
            ("signpost explain route --why-not = sh", router),
            ("signpost explain route --why-not=sh", router),
            ("signpost explain route front ", None),
            ("signpost explain route -", None),
            ("signpost explain route --namespace ", namespace),
            ("signpost explain ", None),
            ("signpost explain route -n ", namespace),
            ("signpost move route front --to ", router),
            ("signpost move route --to s1 ", route),
            ("signpost drain router ", router),
            ("signpost cordon ", router),
            ("signpost uncordon ", router),
            ("signpost completion ", None),
            ("signpost serve --domain ", None),
            ("signpost ", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let (before, begun, _) = parted(&words).expect("split gives one part at least");
            assert_eq!(named(&program, &before, begun), expected, "{line}");
        }
    }
}
