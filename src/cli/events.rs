//! `signpost events`: what happened to routes and other objects, oldest first.

use clap::{Arg, ArgAction, ArgMatches, Command};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::Serialize;

use super::access::{self, API_TIMEOUT, Access, Place};
use super::output::{self, Format};
use super::style::{Painter, Style};
use super::table::{Cell, Table};
use super::{Exit, age, print, progress};
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;

/// How long `--watch` goes on: until it is interrupted.
const EVER: std::time::Duration = std::time::Duration::from_secs(10 * 365 * 86_400);

pub(super) fn command() -> Command {
    let about = Arg::new("for")
        .long("for")
        .value_name("KIND/NAME")
        .value_parser(|text: &str| match text.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() => Ok((kind.to_owned(), name.to_owned())),
            _ => Err("must be KIND/NAME, such as route/front"),
        })
        .help("Only events about this object, such as route/front");
    let warnings =
        Arg::new("warnings").long("warnings").action(ArgAction::SetTrue).help("Only events of the type Warning");
    let watch = Arg::new("watch")
        .long("watch")
        .short('w')
        .action(ArgAction::SetTrue)
        .help("Goes on with what happens, until interrupted; in JSON and YAML, a document each");
    Command::new("events")
        .about("Lists what happened to objects, oldest first")
        .after_help("Exit codes: 0 listed (there may be none), 1 the API does not answer, 2 called wrongly.")
        .args([about, warnings, watch])
        .args(access::namespace_arguments())
        .arg(output::argument())
        .args(access::arguments())
}

pub(super) fn run(matches: &ArgMatches) -> Exit {
    let place = match Place::of(matches) {
        Ok(place) => place,
        Err(exit) => return exit,
    };
    let wish = Wish {
        about: matches.get_one::<(String, String)>("for").cloned(),
        warnings: matches.get_flag("warnings"),
        format: Format::of(matches),
    };
    let outcome = if matches.get_flag("watch") {
        access::run(EVER, async { wish.watch(&place.connect().await?).await })
    } else {
        let listed = access::run(API_TIMEOUT, async {
            let access = place.connect().await?;
            progress::during("listing events", wish.list(&access)).await
        });
        listed.and_then(|rows| wish.format.show(&rows, |painter| table(&rows, Timestamp::now(), painter)))
    };
    super::exit_of(outcome)
}

/// Which events are wanted, and how.
struct Wish {
    about: Option<(String, String)>,
    warnings: bool,
    format: Format,
}

impl Wish {
    async fn list(&self, access: &Access) -> Result<Vec<Row>, String> {
        let api: Api<Event> = access.scoped();
        let events = access.list(&api, ListParams::default()).await?;
        let mut rows: Vec<Row> = events.iter().map(Row::of).filter(|row| self.wants(row)).collect();
        if rows.is_empty() {
            self.find(access).await?;
        }
        rows.sort_by(|a, b| (a.at, &a.namespace, &a.name).cmp(&(b.at, &b.namespace, &b.name)));
        Ok(rows)
    }

    /// Complains if the object that events are wanted of is not there: of an object that is, there may be none.
    async fn find(&self, access: &Access) -> Result<(), String> {
        let Some((kind, name)) = &self.about else { return Ok(()) };
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        let is_there = match kind.to_ascii_lowercase().as_str() {
            "route" | "routes" => !access.list(&access.scoped::<Route>(), named).await?.is_empty(),
            "router" | "routers" => !access.list(&Api::<Router>::all(access.client.clone()), named).await?.is_empty(),
            _ => true,
        };
        if is_there {
            Ok(())
        } else {
            Err(format!("NotFound: there is no {kind} {name}, and there are no events of one"))
        }
    }

    fn wants(&self, row: &Row) -> bool {
        let about = self.about.as_ref().is_none_or(|(kind, name)| {
            // "routes" and "Route" are what people call the same kind.
            let singular = kind.strip_suffix('s').unwrap_or(kind);
            (row.kind.eq_ignore_ascii_case(kind) || row.kind.eq_ignore_ascii_case(singular)) && row.name == *name
        });
        about && (!self.warnings || row.is_warning())
    }

    /// Prints what is there, then what comes, until the API is away for good.
    async fn watch(&self, access: &Access) -> Result<(), String> {
        let api: Api<Event> = access.scoped();
        // A wrong credential is told at once, not tried for ever.
        api.list(&ListParams::default().limit(1)).await.map_err(|error| access.unanswered(error))?;
        let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
        let mut events = std::pin::pin!(events.into_stream());
        loop {
            match events.next().await {
                None => return Ok(()),
                // It connects again by itself, ever more slowly.
                Some(Err(error)) => super::note(format_args!("the watch was interrupted: {error}")),
                Some(Ok(event)) => {
                    let row = Row::of(&event);
                    if self.wants(&row) {
                        let text = self.format.render(&row, || line(&row))?;
                        print(&if self.format == Format::Yaml { format!("---\n{text}") } else { text });
                    }
                }
            }
        }
    }
}

/// An event. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// When it happened last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    event_type: String,
    pub(super) reason: String,
    /// The object's kind, namespace and name.
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// How often it happened.
    count: i32,
    pub(super) message: String,
}

impl Row {
    fn of(event: &Event) -> Row {
        let about = event.regarding.clone().unwrap_or_default();
        let series = event.series.as_ref();
        let at = series
            .map(|series| series.last_observed_time.0)
            .or_else(|| event.deprecated_last_timestamp.as_ref().map(|time| time.0))
            .or_else(|| event.event_time.as_ref().map(|time| time.0))
            .or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0));
        Row {
            at,
            event_type: event.type_.clone().unwrap_or_default(),
            reason: event.reason.clone().unwrap_or_default(),
            kind: about.kind.unwrap_or_default(),
            namespace: about.namespace,
            name: about.name.unwrap_or_default(),
            count: series.map(|series| series.count).or(event.deprecated_count).unwrap_or(1),
            message: event.note.clone().unwrap_or_default(),
        }
    }

    fn is_warning(&self) -> bool {
        self.event_type == "Warning"
    }

    fn object(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

/// An event on a line of its own, when no column can know its width.
fn line(row: &Row) -> String {
    let at = row.at.map_or("-".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let times = if row.count > 1 { format!(" (x{})", row.count) } else { String::new() };
    let text = format!("{at} {} {} {}: {}{times}", row.event_type, row.reason, row.object(), row.message);
    super::style::harmless(&text) + "\n"
}

fn table(rows: &[Row], now: Timestamp, painter: Painter) -> String {
    if rows.is_empty() {
        return "no events\n".to_owned();
    }
    let mut table = Table::new(["LAST", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]);
    for row in rows {
        let style = |text: &str| match row.is_warning() {
            true => Cell::styled(Style::Warning, text),
            false => Cell::from(text),
        };
        table.row([
            Cell::or_dash(row.at.map(|at| age::since(at, now))),
            style(&row.event_type),
            style(&row.reason),
            Cell::from(row.object()),
            Cell::from(row.count.to_string()),
            Cell::from(row.message.as_str()),
        ]);
    }
    table.text(painter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(event: Value) -> Row {
        let mut object = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "x", "namespace": "shop"},
            "eventTime": null});
        object.as_object_mut().expect("an object").extend(event.as_object().expect("an object").clone());
        Row::of(&serde_json::from_value(object).expect("an Event"))
    }

    fn rows() -> [Row; 2] {
        [
            row(
                json!({"eventTime": "2025-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Scheduled", "note": "on shard1",
                "regarding": {"kind": "Route", "namespace": "shop", "name": "front"}}),
            ),
            row(
                json!({"eventTime": "2025-01-01T00:00:00.000000Z", "type": "Warning", "reason": "NoRouter", "note": "none\nat all",
                "regarding": {"kind": "Router", "name": "shard1"}, "series": {"count": 7, "lastObservedTime": "2025-01-01T00:04:00.000000Z"}}),
            ),
        ]
    }

    #[test]
    fn a_line_an_event() {
        let expected = "\
LAST   TYPE      REASON      OBJECT             COUNT   MESSAGE
5m     Normal    Scheduled   Route shop/front   1       on shard1
60s    Warning   NoRouter    Router shard1      7       none at all
";
        let now = "2025-01-01T00:05:00Z".parse().expect("a time");
        assert_eq!(table(&rows(), now, Painter::PLAIN), expected);
        assert_eq!(line(&rows()[1]), "2025-01-01T00:04:00Z Warning NoRouter Router shard1: none at all (x7)\n");
    }

    #[test]
    fn events_about_an_object() {
        let [first, second] = rows();
        let wish = |about: Option<(&str, &str)>, warnings| Wish {
            about: about.map(|(kind, name)| (kind.to_owned(), name.to_owned())),
            warnings,
            format: Format::Table,
        };
        for (about, warnings, wanted) in [
            (None, false, [true, true]),
            (None, true, [false, true]),
            (Some(("route", "front")), false, [true, false]),
            (Some(("Routes", "front")), false, [true, false]),
            (Some(("router", "shard1")), false, [false, true]),
            (Some(("route", "shard1")), false, [false, false]),
        ] {
            let wish = wish(about, warnings);
            assert_eq!([wish.wants(&first), wish.wants(&second)], wanted, "{about:?}");
        }
    }
}
