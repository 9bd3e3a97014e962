//! Answers without what differs from run to run, so that whole bodies can be compared with a literal.

use serde_json::{Map, Value, json};

use crate::raw::Reply;

/// The same value with every instant replaced by `"T"`, once it was found to be RFC 3339 UTC, and every remaining
/// duration by `"MS"`.
///
/// # Panics
/// When an instant is not one.
pub fn shape(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, v)| (name.clone(), member(name, v))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn member(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if name.ends_with("Time") => {
            assert!(is_rfc_3339_utc(text), "{name}: {text}");
            json!("T")
        }
        Value::Number(n) if name == "deadlineInMs" || name == "keptForMs" => {
            assert!(n.is_u64(), "{name}: {n}");
            json!("MS")
        }
        other => shape(other),
    }
}

fn is_rfc_3339_utc(text: &str) -> bool {
    let pattern = "dddd-dd-ddTdd:dd:dd";
    let (head, tail) = text.split_at(pattern.len().min(text.len()));
    let fits = |(p, c): (char, char)| if p == 'd' { c.is_ascii_digit() } else { p == c };
    let fraction = tail.strip_suffix('Z');
    head.len() == pattern.len()
        && pattern.chars().zip(head.chars()).all(fits)
        && fraction.is_some_and(|f| f.is_empty() || f.strip_prefix('.').is_some_and(|d| d.parse::<u64>().is_ok()))
}

/// An answer about one transaction in a few words: `200 COMMITTED replayed`, or `OUTCOME_COMMITTED (COMMITTED)` for a
/// refusal that tells the transaction.
///
/// # Panics
/// When the answer breaks a rule that holds for all answers.
#[track_caller]
pub fn in_short(reply: &Reply) -> String {
    if (200..300).contains(&reply.status) {
        let reply = reply.clone().ok(reply.status);
        let told = reply["state"].as_str().or_else(|| reply["outcome"].as_str()).unwrap_or_default().to_owned();
        let replayed = if reply["replayed"] == true { " replayed" } else { "" };
        return format!("{} {told}{replayed}", reply.status);
    }
    let refused = reply.clone().refused(reply.code());
    match refused["txn"]["state"].as_str() {
        Some(state) => format!("{} ({state})", refused.code()),
        None => refused.code().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_remaining_times_are_taken_out_and_nothing_else() {
        let value = json!({"endTime": "2026-01-02T03:04:05.678Z", "deadlineInMs": 5, "items": [{"keptForMs": 7, "n": 7}],
            "beginTime": null});
        let expected = json!({"endTime": "T", "deadlineInMs": "MS", "items": [{"keptForMs": "MS", "n": 7}],
            "beginTime": null});
        assert_eq!(shape(&value), expected);
    }

    #[test]
    fn only_rfc_3339_in_utc_passes_for_an_instant() {
        assert!(is_rfc_3339_utc("2026-01-02T03:04:05Z"));
        for wrong in [
            "",
            "2026-01-02",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05+01:00",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05.Z",
            "1767323045678",
        ] {
            assert!(!is_rfc_3339_utc(wrong), "{wrong}");
        }
    }
}
