//! The defects of the state machine, as `defects.toml` lists them, and how they are put into its sources.

use std::{collections::BTreeMap, ops::Range};

use serde::Deserialize;
use thiserror::Error;

/// A defect of the state machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defect {
    /// What the tables call it.
    pub name: String,
    /// What goes wrong.
    pub breaks: String,
    /// The seeds, from 0, within which the seeded simulation finds it.
    pub seeds: u64,
    /// Whether model checking finds it, too.
    pub model_checking: bool,
    /// Where it sits.
    #[serde(rename = "change")]
    pub changes: Vec<Change>,
}

/// One place of a defect.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The file, from the root of the workspace; it must be one of the core's.
    pub file: String,
    /// What has to be there exactly once; any run of white space in it stands for any other.
    pub find: String,
    /// What takes its place: `FOUND` is what was found, `SEEDED` whether the defect is on.
    pub put: String,
}

/// A defect that cannot be put where the list says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{defect}: {file} {problem}: `{find}`; bring its entry in tests/simulation/defects.toml up to date")]
pub struct Misfit {
    /// The defect.
    pub defect: String,
    /// The file.
    pub file: String,
    /// The text.
    pub find: String,
    /// What is wrong.
    pub problem: String,
}

/// The list.
///
/// # Panics
/// It is not of its form.
pub fn listed() -> Vec<Defect> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct List {
        defect: Vec<Defect>,
    }
    let list: List = toml::from_str(include_str!("../defects.toml")).unwrap_or_else(|e| panic!("defects.toml: {e}"));
    list.defect
}

/// Puts defects into sources, by their paths from the root of the workspace; each is on when `crate::seeded` says so.
///
/// # Errors
/// Each place where a text is not there exactly once, or where two overlap; the sources are then as they were.
pub fn seed(defects: &[Defect], sources: &mut BTreeMap<String, String>) -> Result<(), Vec<Misfit>> {
    let mut edits: BTreeMap<&str, Vec<Edit<'_>>> = BTreeMap::new();
    let mut misfits = Vec::new();
    for (number, defect) in defects.iter().enumerate() {
        for change in &defect.changes {
            let source = sources.get(&change.file).map(String::as_str);
            match place(source, change) {
                Ok(at) => edits.entry(&change.file).or_default().push(Edit { at, number, defect, change }),
                Err(problem) => misfits.push(misfit(defect, change, problem)),
            }
        }
    }
    for of_file in edits.values_mut() {
        of_file.sort_by_key(|edit| edit.at.start);
        for pair in of_file.windows(2).filter(|pair| pair[1].at.start < pair[0].at.end) {
            let problem = format!("has it where {} sits", pair[0].defect.name);
            misfits.push(misfit(pair[1].defect, pair[1].change, problem));
        }
    }
    if !misfits.is_empty() {
        return Err(misfits);
    }
    for (file, of_file) in edits {
        let Some(source) = sources.get_mut(file) else { continue };
        // From the end, so that what comes before stays where it is.
        for edit in of_file.iter().rev() {
            let text = edit.text(&source[edit.at.clone()]);
            source.replace_range(edit.at.clone(), &text);
        }
    }
    Ok(())
}

struct Edit<'a> {
    at: Range<usize>,
    number: usize,
    defect: &'a Defect,
    change: &'a Change,
}

impl Edit<'_> {
    fn text(&self, found: &str) -> String {
        let is_on = format!("crate::seeded::is_on({})", self.number);
        self.change.put.replace("FOUND", found).replace("SEEDED", &is_on)
    }
}

fn misfit(defect: &Defect, change: &Change, problem: String) -> Misfit {
    Misfit { defect: defect.name.clone(), file: change.file.clone(), find: change.find.clone(), problem }
}

fn place(source: Option<&str>, change: &Change) -> Result<Range<usize>, String> {
    let Some(source) = source else { return Err("is not there".to_owned()) };
    let mut places = occurrences(source, &change.find);
    match (places.pop(), places.len()) {
        (None, _) => Err("does not have it".to_owned()),
        (Some(at), 0) => Ok(at),
        (Some(_), others) => Err(format!("has it {} times", others + 1)),
    }
}

fn occurrences(text: &str, find: &str) -> Vec<Range<usize>> {
    let words: Vec<_> = find.split_whitespace().collect();
    let Some(first) = words.first() else { return Vec::new() };
    text.match_indices(first).filter_map(|(at, _)| Some(at..text.len() - after(&text[at..], &words)?.len())).collect()
}

/// What follows these words, of a text that begins with them.
fn after<'a>(mut text: &'a str, words: &[&str]) -> Option<&'a str> {
    for (index, word) in words.iter().enumerate() {
        let trimmed = text.trim_start();
        if index > 0 && trimmed.len() == text.len() {
            return None;
        }
        text = trimmed.strip_prefix(word)?;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defect(name: &str, find: &str, put: &str) -> Defect {
        let change = Change { file: "a.rs".to_owned(), find: find.to_owned(), put: put.to_owned() };
        Defect { name: name.to_owned(), breaks: String::new(), seeds: 1, model_checking: false, changes: vec![change] }
    }

    fn seeded(text: &str, defects: &[Defect]) -> Result<String, Vec<String>> {
        let mut sources = BTreeMap::from([("a.rs".to_owned(), text.to_owned())]);
        let result = seed(defects, &mut sources);
        let text = sources.remove("a.rs").unwrap();
        result.map(|()| text).map_err(|misfits| misfits.iter().map(|m| m.problem.clone()).collect())
    }

    #[test]
    fn each_defect_has_a_switch_of_its_own_and_neighbours_of_one_statement_compose() {
        let defects = [defect("A", "b()", "!SEEDED && FOUND"), defect("B", "if a() &&", "if SEEDED || a() &&")];
        let text = seeded("if a() && b() { c(); }", &defects).unwrap();
        assert_eq!(text, "if crate::seeded::is_on(1) || a() && !crate::seeded::is_on(0) && b() { c(); }");
    }

    #[test]
    fn how_white_space_is_broken_does_not_matter_but_that_it_is_there_does() {
        let defects = [defect("A", "a();\nb();", "FOUND c();")];
        assert_eq!(seeded("{\n    a();\n\n    b();\n}", &defects).unwrap(), "{\n    a();\n\n    b(); c();\n}");
        assert_eq!(seeded("a();b();", &defects), Err(vec!["does not have it".to_owned()]));
    }

    #[test]
    fn a_text_that_is_there_more_than_once_or_not_at_all_is_refused() {
        assert_eq!(seeded("a(); a();", &[defect("A", "a();", "")]), Err(vec!["has it 2 times".to_owned()]));
        let both = [defect("A", "b();", ""), defect("B", "c();", "")];
        assert_eq!(seeded("a();", &both), Err(vec!["does not have it".to_owned(); 2]), "all are told at once");
        assert_eq!(seeded("a();", &[defect("A", " ", "")]), Err(vec!["does not have it".to_owned()]));
    }

    #[test]
    fn a_file_that_is_not_there_is_refused_and_the_error_says_what_to_do() {
        let misfits = seed(&[defect("A", "b();", "")], &mut BTreeMap::new()).unwrap_err();
        assert_eq!(
            misfits[0].to_string(),
            "A: a.rs is not there: `b();`; bring its entry in tests/simulation/defects.toml up to date"
        );
    }

    #[test]
    fn two_that_overlap_are_refused() {
        let defects = [defect("A", "a() + b()", ""), defect("B", "b() + c()", "")];
        assert_eq!(seeded("a() + b() + c()", &defects), Err(vec!["has it where A sits".to_owned()]));
    }
}
