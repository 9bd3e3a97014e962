//! Text that becomes part of a statement.

/// A name, quoted.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name in a schema, both quoted; without one, wherever the search path finds it.
pub(crate) fn qualified(schema: Option<&str>, name: &str) -> String {
    match schema {
        Some(schema) => format!("{}.{}", identifier(schema), identifier(name)),
        None => identifier(name),
    }
}

/// A text constant. Whatever `standard_conforming_strings` says, a backslash is one.
pub(crate) fn literal(text: &str) -> String {
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes_its_quotes() {
        assert_eq!(identifier("a\"; DROP TABLE t; --"), "\"a\"\"; DROP TABLE t; --\"");
        assert_eq!(qualified(Some("s"), "t"), "\"s\".\"t\"");
        assert_eq!(qualified(None, "t"), "\"t\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("\\'"), "E'\\\\'''");
    }
}
