//! Entities as spans of characters, as annotation tools write them: `[[start, end, label], ...]` or a list of
//! objects `{"start": 0, "end": 4, "label": "PER"}`, counted in Unicode code points, the end excluded. They become
//! tags of the text's words.

use serde::Deserialize;

use crate::text::words::Text;

use super::labels::complaint;

/// An entity in a text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Given")]
pub struct Span {
    /// Its first character.
    pub start: usize,
    /// The character behind its last one.
    pub end: usize,
    /// What it is, such as `PER`.
    pub label: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an entity is [start, end, label] or has start, end and label")]
enum Given {
    List(usize, usize, String),
    Object { start: usize, end: usize, label: String },
}

impl From<Given> for Span {
    fn from(given: Given) -> Self {
        match given {
            Given::List(start, end, label) | Given::Object { start, end, label } => {
                Self { start, end, label }
            }
        }
    }
}

/// Parses a list of entities; returns `None` for a text that is no JSON list or object, and what is wrong with one
/// that is.
pub fn parse(json: &str) -> Option<Result<Vec<Span>, String>> {
    if !json.trim_start().starts_with(['[', '{']) {
        return None;
    }
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let spans = Vec::<Span>::deserialize(value);
    Some(spans.map_err(|e| format!("the entities are no list of [start, end, label]: {e}")))
}

/// The tags of a text's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    /// A tag in IOB2 for each word.
    pub tags: Vec<String>,
    /// Number of entities that begin or end inside a word. The word has the label as a whole, or that of an earlier
    /// entity in it.
    pub cut: usize,
}

/// Returns the tags of the text's words, or what is wrong with an entity.
pub fn tags(text: &Text, mut spans: Vec<Span>) -> Result<Tagged, String> {
    spans.sort_by_key(|span| (span.start, span.end));
    let words = text.places();
    let mut tags = vec!["O".to_owned(); words.len()];
    let mut cut = 0;
    let mut before: Option<&Span> = None;
    let shown = |Span { start, end, label }: &Span| format!("[{start}, {end}, {label:?}]");
    for span in &spans {
        let wrong = |what: &str| Err(format!("the entity {} {what}", shown(span)));
        if let Some(complaint) = complaint(&span.label) {
            return wrong(&format!("has no label: {complaint}"));
        }
        if span.start >= span.end || span.end > text.len() {
            let length = text.len();
            return wrong(&format!("is no part of the text, which has {length} characters"));
        }
        if let Some(before) = before.filter(|before| span.start < before.end) {
            return wrong(&format!("overlaps the entity {}", shown(before)));
        }
        before = Some(span);
        let first = words.partition_point(|word| word.end <= span.start);
        let last = words.partition_point(|word| word.start < span.end);
        if first >= last {
            return wrong("holds no word");
        }
        cut += usize::from(words[first].start < span.start || words[last - 1].end > span.end);
        let free = first + usize::from(tags[first] != "O");
        for (index, tag) in tags[free..last].iter_mut().enumerate() {
            let position = if index == 0 { 'B' } else { 'I' };
            *tag = format!("{position}-{}", span.label);
        }
    }
    Ok(Tagged { tags, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(text: &str, json: &str) -> Result<(String, usize), String> {
        let Tagged { tags, cut } = tags(&Text::new(text), parse(json).unwrap()?)?;
        Ok((tags.join(" "), cut))
    }

    #[test]
    fn characters_become_words() {
        let text = "Zoë Ng, of 東京, left.";
        let expected = Ok(("B-PER I-PER O O B-LOC I-LOC O O O".to_owned(), 0));
        for json in [
            r#"[[11, 13, "LOC"], [0, 6, "PER"]]"#,
            r#"[{"start": 0, "end": 6, "label": "PER", "id": 7}, {"start": 10, "end": 13, "label": "LOC"}]"#,
        ] {
            assert_eq!(tagged(text, json), expected);
        }
        assert_eq!(tagged("a b", "[]"), Ok(("O O".into(), 0)));
        assert_eq!(parse("O B-PER"), None);
        assert_eq!(parse("[X] O"), None);
    }

    #[test]
    fn an_entity_that_cuts_a_word_is_counted() {
        let text = "The Rome-based firm";
        assert_eq!(tagged(text, r#"[[4, 8, "LOC"]]"#), Ok(("O B-LOC O".into(), 1)));
        // The first entity in a word gives the label; the second goes on behind it.
        let both = r#"[[4, 8, "LOC"], [9, 19, "ORG"]]"#;
        assert_eq!(tagged(text, both), Ok(("O B-LOC B-ORG".into(), 2)));
    }

    #[test]
    fn what_is_wrong_with_an_entity_is_said() {
        for case in [
            r#"[[0, 9, "X"]]|the entity [0, 9, "X"] is no part of the text, which has 7 characters"#,
            r#"[[2, 2, "X"]]|is no part"#,
            r#"[[0, 3, "X"], [2, 4, "Y"]]|the entity [2, 4, "Y"] overlaps the entity [0, 3, "X"]"#,
            r#"[[3, 4, "X"]]|holds no word"#,
            r#"[[0, 3, ""]]|the label is empty"#,
            r#"[[-1, 3, "X"]]|an entity is [start, end, label] or has start, end and label"#,
            r#"{"start": 1}|the entities are no list of [start, end, label]"#,
        ] {
            let (json, expected) = case.split_once('|').unwrap();
            let message = tagged("abc def", json).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
