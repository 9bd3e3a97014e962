//! One event is one line, whatever callers wrote: nothing of theirs ends a line, begins a field, or steers a terminal.

use std::{borrow::Cow, fmt};

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogFormat {
    /// For people: `name=value` fields.
    Text,
    /// One JSON object a line.
    Json,
}

/// The line with its controls, bidirectional ones included, written out; the newline at its end stays.
pub(super) fn line(text: &str, format: LogFormat) -> Cow<'_, str> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    if body.bytes().all(|b| (b' '..0x7f).contains(&b)) || !body.chars().any(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in body.chars() {
        match format {
            _ if !is_steering(c) => escaped.push(c),
            LogFormat::Text => escaped.extend(c.escape_default()),
            LogFormat::Json => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    escaped.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    escaped.push_str(text.get(body.len()..).unwrap_or_default());
    Cow::Owned(escaped)
}

/// Whether a terminal or an editor may show something else because of this character: controls, and what is invisible or
/// turns the direction of writing.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A value of a field as text: in quotes unless it is one word or a quoted text already, however it was recorded.
pub(super) struct Field<'a>(pub(super) &'a dyn fmt::Debug);

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        if is_word(&text) || is_quoted(&text) { f.write_str(&text) } else { write!(f, "{text:?}") }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:@~-/+[]".contains(&b))
}

fn is_quoted(text: &str) -> bool {
    let Some(inner) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return false };
    let mut is_escaped = false;
    for c in inner.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return false,
            _ => {}
        }
    }
    !is_escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_once_and_steers_nothing() {
        for (given, text, json) in [
            ("plain, ä and \"quoted\" \\n\n", "plain, ä and \"quoted\" \\n\n", "plain, ä and \"quoted\" \\n\n"),
            ("a\nb\r\tc\n", "a\\nb\\r\\tc\n", "a\\u000ab\\u000d\\u0009c\n"),
            ("\u{1b}[31m\u{7f}\u{9b}\n", "\\u{1b}[31m\\u{7f}\\u{9b}\n", "\\u001b[31m\\u007f\\u009b\n"),
            (
                "\u{202e}x\u{2066}\u{200b}\u{2028}\n",
                "\\u{202e}x\\u{2066}\\u{200b}\\u{2028}\n",
                "\\u202ex\\u2066\\u200b\\u2028\n",
            ),
            ("\u{e0041}\n", "\\u{e0041}\n", "\\udb40\\udc41\n"),
            ("no end\u{85}", "no end\\u{85}", "no end\\u0085"),
        ] {
            assert_eq!(line(given, LogFormat::Text), text);
            assert_eq!(line(given, LogFormat::Json), json);
        }
    }

    #[test]
    fn a_value_is_a_word_or_in_quotes() {
        struct Raw(&'static str);
        impl fmt::Debug for Raw {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        for (recorded, written) in [
            ("orders.0", "orders.0"),
            ("127.0.0.1:7117", "127.0.0.1:7117"),
            ("", "\"\""),
            ("two words", "\"two words\""),
            ("x to=COMMITTED", "\"x to=COMMITTED\""),
            ("\"quoted once\"", "\"quoted once\""),
            ("\"x\" to=\"COMMITTED\"", "\"\\\"x\\\" to=\\\"COMMITTED\\\"\""),
            ("\"x\\\"", "\"\\\"x\\\\\\\"\""),
            ("\"", "\"\\\"\""),
            ("a\nb", "\"a\\nb\""),
        ] {
            assert_eq!(Field(&Raw(recorded)).to_string(), written, "{recorded}");
        }
        assert_eq!(Field(&"a\nb").to_string(), "\"a\\nb\"");
        assert_eq!(Field(&7).to_string(), "7");
    }
}
