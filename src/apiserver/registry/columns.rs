//! Cells of `kubectl get`.

use jiff::Timestamp;
use serde_json::Value;

use super::Column;

/// The column AGE.
pub const AGE: Column =
    Column { name: "Age", kind: "date", priority: 0, description: "Time since the object was created.", cell: age };

/// Time since `metadata.creationTimestamp`.
pub fn age(object: &Value, now: i64) -> Value {
    since(text_at(object, "metadata.creationTimestamp"), now)
}

/// Time since an RFC 3339 timestamp, as kubectl prints it; null without one.
pub fn since(time: Option<&str>, now: i64) -> Value {
    match time.and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => Value::String(human_duration(now.saturating_sub(time.as_second()))),
        None => Value::Null,
    }
}

/// The value at a dotted path; null if it is absent.
pub fn at(object: &Value, path: &str) -> Value {
    path.split('.').try_fold(object, |value, segment| value.get(segment)).cloned().unwrap_or(Value::Null)
}

/// The text at a dotted path.
pub fn text_at<'a>(object: &'a Value, path: &str) -> Option<&'a str> {
    path.split('.').try_fold(object, |value, segment| value.get(segment)).and_then(Value::as_str)
}

/// The member `name` of the condition `kind` (`status`, `reason`, …); null if there is no such condition.
pub fn condition(object: &Value, kind: &str, name: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition.get(name)).cloned().unwrap_or(Value::Null)
}

/// The first few of a list of texts, and how many more there are; null for none.
pub fn list<'a>(items: impl Iterator<Item = &'a str>, shown_max: usize) -> Value {
    let items: Vec<&str> = items.collect();
    match items.len() {
        0 => Value::Null,
        count if count <= shown_max => Value::String(items.join(",")),
        count => Value::String(format!("{} + {} more...", items[..shown_max].join(","), count - shown_max)),
    }
}

/// A duration in seconds as kubectl prints ages: `67s`, `3m5s`, `5h12m`, `4d`.
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
