//! The columns of `kubectl get`, and the contents of their cells.

use std::borrow::Cow;
use std::ops::Deref;

use jiff::Timestamp;

use crate::json_scan::{Json, Paths};

/// A column of `kubectl get`.
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `date` or `boolean`.
    pub kind: &'static str,
    /// The priority: 0 is always shown, 1 only with `-o wide`.
    pub priority: u8,
    /// The description for `kubectl explain` and tools.
    pub description: &'static str,
    /// The dotted paths of all values in the cell, in the stored representation of the object.
    pub reads: &'static [&'static str],
    /// The function that creates the cell.
    pub cell: MakeCell,
}

impl Column {
    /// Returns the column with this heading that shows the text that it reads, with a description for `kubectl explain` and
    /// tools.
    pub const fn new(name: &'static str, reads: &'static [&'static str], description: &'static str) -> Column {
        Column { name, kind: "string", priority: 0, description, reads, cell: shown }
    }

    /// Returns the column with this type: `integer`, `date`, or `boolean`.
    pub const fn of_type(self, kind: &'static str) -> Column {
        Column { kind, ..self }
    }

    /// Returns the column with cells that this function creates.
    pub const fn with_cell(self, cell: MakeCell) -> Column {
        Column { cell, ..self }
    }

    /// Returns the column, shown only with `-o wide`.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }
}

/// The function that creates a cell from the values that its column reads, in that order. The time is for ages, in seconds since
/// the epoch.
pub type MakeCell = for<'a> fn(read: &[Json<'a>], now: i64) -> Cell<'a>;

/// The contents of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell<'a> {
    /// An empty cell.
    Blank,
    /// The value in the object; empty if it is absent there.
    As(Json<'a>),
    /// A text.
    Text(Cow<'a, str>),
    /// A number.
    Number(i64),
}

impl<'a> Cell<'a> {
    /// Returns a text.
    pub fn text(text: impl Into<Cow<'a, str>>) -> Cell<'a> {
        Cell::Text(text.into())
    }

    /// Appends its JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Cell::As(json) if !json.is_null() => out.extend_from_slice(json.octets()),
            Cell::Blank | Cell::As(_) => out.extend_from_slice(b"null"),
            Cell::Text(text) => serde_json::to_writer(out, text).expect("a text serializes, and a Vec takes all"),
            Cell::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        }
    }
}

/// The columns of a kind, and the paths of the values that they read.
pub struct Columns {
    columns: &'static [Column],
    paths: Paths,
    reads: usize,
}

impl Columns {
    /// Returns these columns.
    pub fn new(columns: &'static [Column]) -> Columns {
        let reads = || columns.iter().flat_map(|column| column.reads.iter().copied());
        Columns { columns, paths: Paths::new(reads()), reads: reads().count() }
    }

    /// Returns the cells of an object of which this is the JSON as stored.
    pub fn cells<'a>(&self, json: &'a [u8], now: i64) -> impl Iterator<Item = Cell<'a>> {
        let found = self.paths.find(json).unwrap_or_else(|| vec![Json::default(); self.reads]);
        let mut at = 0;
        self.columns.iter().map(move |column| {
            let read = &found[at..][..column.reads.len()];
            at += column.reads.len();
            (column.cell)(read, now)
        })
    }
}

impl Deref for Columns {
    type Target = [Column];

    fn deref(&self) -> &[Column] {
        self.columns
    }
}

/// The column AGE.
pub const AGE: Column = Column::new("Age", &["metadata.creationTimestamp"], "Time since the object was created.")
    .of_type("date")
    .with_cell(|read, now| since(read[0], now));

/// The column AGE of Kubernetes' own kinds, whose tables have the type `string`.
pub const BUILT_IN_AGE: Column = Column { kind: "string", ..AGE };

/// Returns the value that the column reads, unchanged.
fn shown<'a>(read: &[Json<'a>], _now: i64) -> Cell<'a> {
    Cell::As(read[0])
}

/// Returns the time since an RFC 3339 timestamp, as kubectl prints it; blank without a timestamp.
pub fn since<'a>(time: Json<'a>, now: i64) -> Cell<'a> {
    match time.text().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => Cell::text(human_duration(now.saturating_sub(time.as_second()))),
        None => Cell::Blank,
    }
}

/// Returns the member `name` of the condition `kind` (`status`, `reason`, …), of all conditions; nothing if there is no such one.
pub fn condition<'a>(conditions: Json<'a>, kind: &str, name: &str) -> Json<'a> {
    let mut each = conditions.items().map(|condition| condition.get(["type", name]));
    each.find(|[its_kind, _]| its_kind.is(kind)).map_or_else(Json::default, |[_, value]| value)
}

/// Returns the first few of a list of texts, and how many more there are; blank for none.
pub fn list<'a>(items: impl Iterator<Item = Cow<'a, str>>, shown_max: usize) -> Cell<'a> {
    let items: Vec<_> = items.collect();
    match items.len() {
        0 => Cell::Blank,
        count if count <= shown_max => Cell::text(items.join(",")),
        count => Cell::text(format!("{} + {} more...", items[..shown_max].join(","), count - shown_max)),
    }
}

/// Returns a duration in seconds as kubectl prints ages: `67s`, `3m5s`, `5h12m`, `4d`.
pub fn human_duration(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (185, "3m5s"),
            (10 * MINUTE, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (5 * HOUR + 12 * MINUTE, "5h12m"),
            (8 * HOUR + 59, "8h"),
            (47 * HOUR, "47h"),
            (2 * DAY, "2d"),
            (3 * DAY + 4 * HOUR, "3d4h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (3000 * DAY, "8y"),
        ] {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
    }
}
