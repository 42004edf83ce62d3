//! `docs/configuration.md`, made from the table of keys so that it cannot be wrong. A test compares the two.

use std::fmt::Write as _;

use super::keys::{KEYS, Shape};

/// The page, as Markdown.
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for key in KEYS {
        let values = match key.shape {
            Shape::Text => "a string",
            Shape::Path => "a string, relative to the file's folder",
            Shape::Count => "a whole number",
            Shape::List { .. } => "an array of strings",
            Shape::Paths => "an array of strings, relative to the file's folder",
            Shape::Tables { .. } => "an array of tables with these keys, or of strings",
        };
        let several = if key.shape.is_list() { " (repeats)" } else { "" };
        let reload = if key.reloads { "by SIGHUP" } else { "by a restart" };
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\n{}\n\n| | |\n|---|---|\n| in the file | `{}`, {values} |\n| flag | `{} {}`{several} |\n\
             | variable | `{}` |\n| default | `{}` |\n| a change comes into effect | {reload} |\n",
            key.name,
            key.help,
            key.name,
            key.flag(),
            key.value_name,
            key.variable(),
            key.default,
        );
    }
    page
}

const HEAD: &str = "\
# Configuration

<!-- Made from src/config/keys.rs by `signpost check config --reference`; a test compares the two. -->

Every key can be set in one TOML file (named by `--config FILE` or `SIGNPOST_CONFIG`; none is read otherwise), as a flag,
and as an environment variable. A flag wins over a variable, that over the file, and that over the default; a list is
taken from one place whole. Unknown keys are errors that name file, line and column.

```toml
# signpost.toml
domain = \"v3.rhcloud.com\"
nameserver = [\"ns1.v3.rhcloud.com=192.0.2.53\", \"ns2.v3.rhcloud.com=198.51.100.53,2001:db8::53\"]
dns-listen = [\"192.0.2.53:53\"]

[[jwt-issuer]]
issuer = \"https://idp.example\"
audience = [\"signpost\"]
jwks = \"https://idp.example/keys\"
groups-prefix = \"signpost:\"
```

In an environment variable the values of a list are parted by commas or spaces; those of `nameserver`
and `jwt-issuer` by spaces, those of `manifests` by colons. `signpost check config` says what is wrong without starting anything.

`SIGHUP` reads the file again. If it is bad, the settings stay as they were and the log says why. Changed keys that need a
restart are named in the log.
";
