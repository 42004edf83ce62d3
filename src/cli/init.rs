//! `signpost init`: a commented configuration file, from flags or from answers on a terminal.

use std::fs::OpenOptions;
use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Write as _, stderr, stdin};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};

use super::{Error, Exit, Outcome, complain, file, note, option, serve, switch};
use crate::config::reader::Layer;
use crate::config::{self, ConfigSources, KEYS, layers};

/// The keys of the file, in the order of the questions.
const QUESTIONS: [Question; 4] = [
    Question { key: "domain", text: "The domain of the platform, such as apps.example.com", default: None },
    Question {
        key: "nameserver",
        text: "Its name servers with their public addresses, such as ns1.apps.example.com=192.0.2.53, separated by spaces",
        default: Some(""),
    },
    Question {
        key: "dns.listen",
        text: "The addresses for DNS queries, separated by spaces",
        default: Some("127.0.0.1:5300"),
    },
    Question { key: "data-dir", text: "The directory for the data", default: Some("signpost-data") },
];
/// The number of answers to one question.
const ANSWERS_MAX: usize = 5;

struct Question {
    key: &'static str,
    text: &'static str,
    /// The answer to an empty line. `None`: an answer is required.
    default: Option<&'static str>,
}

pub(super) fn command() -> Command {
    let out = file(option("out", "FILE")).default_value("signpost.toml").help("The file to write");
    Command::new("init")
        .about("Write a commented configuration file, from flags or from answers on a terminal")
        .after_help(
            "On a terminal, the command prompts for each setting that has no flag. Otherwise, --domain is required. Exit \
             codes: 0 the file was written, 1 it exists or cannot be written, 2 invalid usage or an invalid value.",
        )
        .args([out, switch("force").help("Replace an existing file")])
        .args(serve::flags_of(&["domain", "nameserver", "dns.listen", "data-dir"]))
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let path = matches.get_one::<PathBuf>("out").expect("it has a default");
    let is_forced = matches.get_flag("force");
    if !is_forced && path.exists() {
        return Err(exists(path));
    }
    let prompts = stdin().is_terminal() && stderr().is_terminal();
    let mut values = Vec::new();
    for question in &QUESTIONS {
        let given = matches.try_get_many::<String>(question.key).ok().flatten();
        values.push(match (given, question.default) {
            (Some(given), _) => check(question.key, given.cloned().collect())?,
            (None, _) if prompts => answer(question)?,
            (None, Some(default)) => words(question.key, default),
            (None, None) => return Err(Error::Usage(format!("--{} is required without a terminal", question.key))),
        });
    }
    let [domain, nameservers, listen, data_dir] =
        <[Vec<String>; 4]>::try_from(values).expect("a value for each question");
    write(path, &text(&domain, &nameservers, &listen, &data_dir), is_forced)?;
    let shown = path.display();
    note(format_args!(
        "{shown} written. Next:\n  signpost check config --config {shown}\n  signpost serve --config {shown}"
    ));
    Ok(Exit::Success)
}

/// Prompts until the answer is valid.
fn answer(question: &Question) -> Result<Vec<String>, Error> {
    for _ in 0..ANSWERS_MAX {
        let default =
            question.default.map(|default| format!(" [{}]", if default.is_empty() { "none" } else { default }));
        let mut line = String::new();
        let prompted =
            write!(stderr(), "{}{}: ", question.text, default.unwrap_or_default()).and_then(|()| stderr().flush());
        let read = prompted.and_then(|()| stdin().lock().read_line(&mut line)).map_err(|error| error.to_string())?;
        let line = match (line.trim(), question.default) {
            ("", Some(default)) => default,
            ("", None) if read == 0 => break,
            (line, _) => line,
        };
        match check(question.key, words(question.key, line)) {
            Ok(values) => return Ok(values),
            Err(Error::Usage(errors)) => errors.lines().for_each(complain),
            Err(error) => return Err(error),
        }
    }
    Err(Error::Failed("no valid answer; nothing was written".to_owned()))
}

/// Returns the values of a key in one line: one, or several of a list.
fn words(key: &str, line: &str) -> Vec<String> {
    match config::find(key).is_some_and(|key| key.is_list()) {
        true => line.split_whitespace().map(str::to_owned).collect(),
        false => vec![line.to_owned()],
    }
}

/// Returns the values if the configuration accepts them.
fn check(key: &'static str, values: Vec<String>) -> Result<Vec<String>, Error> {
    let key = KEYS.iter().find(|known| known.path == key).expect("the questions are about keys");
    let mut flags = Layer::new();
    if !values.is_empty() {
        flags.insert(key.path.as_str(), layers::from_flag(key, values.iter()));
    }
    config::read(&ConfigSources { flags, ..ConfigSources::default() })?;
    Ok(values)
}

fn text(domain: &[String], nameservers: &[String], listen: &[String], data_dir: &[String]) -> String {
    let one = |values: &[String]| toml::Value::from(values.first().cloned().unwrap_or_default()).to_string();
    let list = |values: &[String]| toml::Value::from(values.to_vec()).to_string();
    let nameserver = match nameservers {
        [] => {
            "# nameserver = [\"ns1.apps.example.com=192.0.2.53\", \"ns2.apps.example.com=198.51.100.53,2001:db8::53\"]"
                .to_owned()
        }
        nameservers => format!("nameserver = {}", list(nameservers)),
    };
    format!(
        "\
# The configuration of Signpost. docs/configuration.md lists all settings. \"signpost check config --config FILE\" reports errors.

# The domain of the platform. Its parent zone delegates it to the name servers below: \"signpost doctor\" checks the delegation.
domain = {domain}

# The name servers of the domain, with their public addresses.
{nameserver}

# The store, certificates, kubeconfigs, and last-known-good zones. A relative path starts at the directory of this file.
data-dir = {data_dir}

[dns]
# The addresses for queries over UDP and TCP. Port 53 requires root or the capability CAP_NET_BIND_SERVICE.
listen = {listen}

[api]
# The addresses of the API. Other machines connect by the names in its certificate.
# listen = [\"192.0.2.53:6453\"]
# name = [\"signpost.example.com\"]

[admin]
# The addresses of health, metrics, and the dashboard, over HTTPS for clients on other machines.
# listen = [\"192.0.2.53:9453\"]
# tls = true
",
        domain = one(domain),
        data_dir = one(data_dir),
        listen = list(listen),
    )
}

fn write(path: &Path, text: &str, is_forced: bool) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create(is_forced).create_new(!is_forced).truncate(is_forced);
    let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => exists(path),
        _ => Error::Failed(format!("{}: {error}", path.display())),
    })
}

fn exists(path: &Path) -> Error {
    Error::Failed(format!("{} exists; replace it with --force, or set --out", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_values_and_is_valid() {
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>();
        let nameservers = ["ns1.apps.example.com=192.0.2.53", "ns2.apps.example.com=2001:db8::53"];
        for nameservers in [owned(&nameservers), Vec::new()] {
            let text = text(&owned(&["apps.example.com"]), &nameservers, &owned(&["192.0.2.53:53"]), &owned(&["data"]));
            let layer = layers::from_file(Path::new("signpost.toml"), &text).expect("it is valid");
            assert_eq!(layer.contains_key("nameserver"), !nameservers.is_empty());
            for key in ["domain", "dns.listen", "data-dir"] {
                assert!(layer.contains_key(key), "{key}: {text}");
            }
        }
    }

    #[test]
    fn an_invalid_value_is_an_error() {
        assert!(check("domain", words("domain", "not a domain")).is_err());
        assert!(check("dns.listen", words("dns.listen", "127.0.0.1:5300 nonsense")).is_err());
        assert_eq!(check("dns.listen", words("dns.listen", "127.0.0.1:53 [::1]:53")).expect("addresses").len(), 2);
    }
}
