//! `docs/configuration.md`, made from the table of settings. A test compares the two.

use std::fmt::Write as _;

use super::rule::Form;
use super::settings::KEYS;
use super::table::Key;

/// The page, as Markdown.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    let mut heading = "";
    for key in KEYS.iter() {
        // Writing to a String cannot fail.
        if key.heading != heading {
            heading = key.heading;
            let table = match key.table {
                "" => "At the top level of the file.".to_owned(),
                table => format!("In the table `[{table}]` of the file."),
            };
            let _ = write!(page, "\n## {heading}\n\n{table}\n");
        }
        let _ = write!(page, "\n### {}\n\n{}\n\n| | |\n|---|---|\n", key.flag, key.help);
        let _ = writeln!(page, "| file | `{}`{}: {} |", key.name, table_of(key), values(key));
        let repeats = if key.is_list() { " (repeats)" } else { "" };
        let _ = writeln!(page, "| flag | `--{} {}`{repeats} |", key.flag, key.value_name);
        let _ = writeln!(page, "| variable | `{}` |", key.variable());
        if !key.range.is_empty() {
            let _ = writeln!(page, "| range | {} |", key.range);
        }
        let default = if key.default.value.is_some_and(|value| value == key.default.shown) {
            format!("`{}`", key.default.shown)
        } else {
            key.default.shown.replace('<', "&lt;").replace('>', "&gt;")
        };
        let reload = if key.reloads { "on SIGHUP" } else { "after a restart" };
        let _ = writeln!(page, "| default | {default} |\n| applies | {reload} |");
    }
    page
}

fn table_of(key: &Key) -> String {
    if key.table.is_empty() { String::new() } else { format!(" in `[{}]`", key.table) }
}

/// The type of a value in the file.
fn values(key: &Key) -> String {
    let words = key.words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ");
    match key.form {
        Form::Tables { .. } => "an array of tables with these keys, or of strings `\"KEY=VALUE,...\"`".to_owned(),
        Form::Boolean => "`true` or `false`".to_owned(),
        Form::Integer => "a whole number".to_owned(),
        Form::Duration => "a duration, such as `\"5s\"`".to_owned(),
        Form::Size => "a size, such as `\"64Mi\"`, or a number of bytes".to_owned(),
        Form::Path if key.is_list() => "an array of strings, relative to the directory of the file".to_owned(),
        Form::Path => "a string, relative to the directory of the file".to_owned(),
        Form::Text if key.is_list() && words.is_empty() => "an array of strings".to_owned(),
        Form::Text if key.is_list() => format!("an array of {words}"),
        Form::Text if words.is_empty() => "a string".to_owned(),
        Form::Text => words,
    }
}

const HEAD: &str = "\
# Configuration

<!-- Generated from src/config/settings.rs by `signpost check config --reference`; a test compares the two. -->

Set a value in a TOML file, as a flag, or as an environment variable. A flag overrides a variable, a variable overrides the
file, and the file overrides the default. A list comes from one place as a whole.

Name the file with `--config FILE` or `SIGNPOST_CONFIG`; without them, Signpost reads no file.

```toml
# signpost.toml
domain = \"v3.rhcloud.com\"
nameserver = [\"ns1.v3.rhcloud.com=192.0.2.53\", \"ns2.v3.rhcloud.com=198.51.100.53,2001:db8::53\"]

[dns]
listen = [\"192.0.2.53:53\"]
cookies = \"require\"

[dns.rate-limit]
per-second = 100
window = \"5s\"

[admin]
tls = true

[[jwt-issuer]]
issuer = \"https://idp.example\"
audience = [\"signpost\"]
jwks = \"https://idp.example/keys\"
groups-prefix = \"signpost:\"
```

- **Flags and variables** are the path of the key with dashes: `slip` in `[dns.rate-limit]` is `--dns-rate-limit-slip` and
  `SIGNPOST_DNS_RATE_LIMIT_SLIP`. With `serve` and `check config`, the flag of a boolean
  needs no value for `true`.
- **Durations** are a whole number and `s`, `m`, `h` or `d`. **Sizes** are a number of bytes, or of `Ki`, `Mi` or `Gi`.
- **Lists** in a variable are separated by commas or spaces; those of `nameserver` and `jwt-issuer` by spaces, and those of
  `manifests` by colons.
- **Errors** name file, line and column, and a similar key for an unknown one. Names of former versions are errors that name
  the new key. `signpost check config` reports all errors without starting anything.
- **Reload**: `SIGHUP` reads the file again. If it has errors, all settings stay as they were, and the log has the errors.
  The log also lists changed keys that need a restart.
";
