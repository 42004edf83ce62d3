//! `signpost dashboard`: a one-time link that signs a browser in.

use std::process::{Command as Program, Stdio};
use std::time::Duration;

use clap::{ArgMatches, Command};

use super::access::{self, API_TIMEOUT, ApiLocation};
use super::scrape::{self, Admin, Target};
use super::{Error, Exit, Outcome, note, print, switch};

/// The time limit of the command.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn command() -> Command {
    let no_browser = switch("no-browser").help("Only print the link");
    Command::new("dashboard")
        .about("Print a one-time link that signs you in to the dashboard, and open it")
        .after_help(
            "The link signs in the user of the kubeconfig, whose token it does not contain. It works once, within five \
             minutes. On a desktop, the command also opens it in the browser. Exit codes: 0 the link was printed, 1 the \
             process does not answer or rejected the token, or the kubeconfig has none, 2 invalid usage.",
        )
        .arg(no_browser)
        .args(scrape::arguments())
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let place = ApiLocation::of(matches)?;
    let Target { urls, authorities } = scrape::target(matches)?;
    let [url] = urls.as_slice() else {
        return Err(Error::Usage("--admin: give one URL".to_owned()));
    };
    let token = access::run(API_TIMEOUT, place.token())?.ok_or_else(|| {
        format!(
            "the user in {} has no token; sign in at {url}/dashboard/ with the token of another user",
            place.origin()
        )
    })?;
    let link = access::run(LIMIT, async { Admin::new(authorities.as_deref())?.sign_in_link(url, &token).await })?;
    let address = format!("{url}/dashboard/#sign-in={}", link.code);
    print(&format!("{address}\n"));
    note(format_args!("This link signs in {} once, within five minutes.", link.user));
    if !matches.get_flag("no-browser") {
        open(&address);
    }
    Ok(Exit::Success)
}

/// Opens an address in the browser of the desktop, if there is one. The link was printed, so failures are ignored.
fn open(address: &str) {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match () {
        () if cfg!(target_os = "macos") => "open",
        () if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => "xdg-open",
        () => return,
    };
    let _ = Program::new(program).arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}
