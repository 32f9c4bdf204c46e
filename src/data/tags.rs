//! Tags of words: which tags a file may hold, the entities that they mark, and entity tags in one scheme.
//!
//! Entity tags may be IOB1, IOB2 (also called BIO) or IOBES: `B-X` begins, `I-X` continues, `E-X`
//! ends, `S-X` stands alone, `O` is outside.

use super::labels::{complaint, listed, shortened};

/// An entity in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity<'a> {
    /// Its type, such as `PER`.
    pub kind: &'a str,
    /// Index of its first word.
    pub start: usize,
    /// Index of the word behind its last.
    pub end: usize,
}

/// Splits a tag into its position in an entity and the entity's type; `O` and everything without a
/// `-` is outside.
fn parts(tag: &str) -> (char, &str) {
    match tag.split_once('-') {
        Some((position, kind)) => (position.chars().next().unwrap_or('O'), kind),
        None => ('O', ""),
    }
}

/// Returns whether a tag is `O` or marks an entity.
pub fn is_entity_tag(tag: &str) -> bool {
    tag == "O"
        || matches!(tag.split_once('-'), Some(("B" | "I" | "E" | "S", kind)) if !kind.is_empty())
}

/// Returns the entities that a sentence's tags mark.
pub fn entities<'a>(tags: &[&'a str]) -> Vec<Entity<'a>> {
    let mut found: Vec<Entity<'a>> = Vec::new();
    let mut before = ('O', "");
    for (index, tag) in tags.iter().enumerate() {
        let now = parts(tag);
        let continues =
            before.1 == now.1 && matches!(now.0, 'I' | 'E') && !matches!(before.0, 'O' | 'E' | 'S');
        match found.last_mut() {
            Some(last) if continues => last.end = index + 1,
            _ if now.0 == 'O' => {}
            _ => found.push(Entity { kind: now.1, start: index, end: index + 1 }),
        }
        before = now;
    }
    found
}

/// Returns tags for the same entities in IOB2: `B-` at every first word, `I-` at the others.
pub fn iob2(tags: &[&str]) -> Vec<String> {
    let mut out = vec!["O".to_owned(); tags.len()];
    for Entity { kind, start, end } in entities(tags) {
        out[start..end].fill(format!("I-{kind}"));
        out[start] = format!("B-{kind}");
    }
    out
}

/// Which tags a file may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags<'a> {
    /// Anything: tags aren't read.
    Unread,
    /// Labels of any kind.
    Any,
    /// These labels.
    OneOf(&'a [String]),
    /// `O`, or an entity's tag: of one of these types, if they are known.
    Entities(Option<Vec<&'a str>>),
}

impl<'a> Tags<'a> {
    /// Returns the tags that a model with these labels can predict.
    pub fn known(labels: &'a [String]) -> Self {
        if labels.iter().all(|label| is_entity_tag(label)) {
            Self::entities(labels)
        } else {
            Self::OneOf(labels)
        }
    }

    /// Returns the tags of entities whose types occur in a model's labels.
    pub fn entities(labels: &'a [String]) -> Self {
        Self::Entities(Some(types(labels.iter().map(String::as_str))))
    }

    /// Returns what is wrong with a tag, if anything.
    pub fn complaint(&self, tag: &str) -> Option<String> {
        let shown = shortened(tag);
        match self {
            Self::Unread => None,
            Self::Any => complaint(tag),
            Self::OneOf(labels) => {
                let unknown = || format!("unknown label {shown:?}; known are {}", listed(labels));
                (!labels.iter().any(|label| label == tag)).then(unknown)
            }
            Self::Entities(_) if !is_entity_tag(tag) => Some(format!(
                "the tag {shown:?} is no entity's; expected O, or B-, I-, E- or S- and a type, such as B-PER"
            )),
            Self::Entities(None) => None,
            Self::Entities(Some(types)) => {
                let (_, kind) = tag.split_once('-')?;
                let unknown = || {
                    let known = listed(types);
                    format!("the tag {shown:?} is of an unknown type; known are {known}")
                };
                (!types.contains(&kind)).then(unknown)
            }
        }
    }
}

/// Returns the types of the entity tags, each once, sorted.
pub fn types<'a>(tags: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let entities = tags.filter(|tag| is_entity_tag(tag));
    let mut types: Vec<&str> = entities.filter_map(|tag| Some(tag.split_once('-')?.1)).collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// Returns whether labels mix `O` and entity tags with others, which are then hardly meant as labels.
pub fn broken_scheme(labels: &[&str]) -> bool {
    let begins = |label: &&str| is_entity_tag(label) && label.starts_with(['B', 'I']);
    labels.contains(&"O")
        && labels.iter().any(begins)
        && !labels.iter().all(|label| is_entity_tag(label))
}

/// Returns entity tags in IOB2, and other tags unchanged.
pub fn in_iob2(tags: Vec<String>) -> Vec<String> {
    let all: Vec<&str> = tags.iter().map(String::as_str).collect();
    if all.iter().all(|tag| is_entity_tag(tag)) { iob2(&all) } else { tags }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(tags: &str) -> Vec<&str> {
        tags.split_whitespace().collect()
    }

    fn found(tags: &str) -> Vec<(&str, usize, usize)> {
        let entities = entities(&split(tags));
        entities.iter().map(|e| (e.kind, e.start, e.end)).collect()
    }

    #[test]
    fn every_scheme_gives_the_same_entities() {
        let expected = [("PER", 0, 2), ("PER", 2, 3), ("LOC", 3, 4), ("ORG", 5, 8)];
        let in_iob2 = split("B-PER I-PER B-PER B-LOC O B-ORG I-ORG I-ORG");
        for tags in [
            "I-PER I-PER B-PER I-LOC O I-ORG I-ORG I-ORG",
            "B-PER I-PER B-PER B-LOC O B-ORG I-ORG I-ORG",
            "B-PER E-PER S-PER S-LOC O B-ORG I-ORG E-ORG",
        ] {
            assert_eq!(found(tags), expected, "{tags}");
            assert_eq!(iob2(&split(tags)), in_iob2);
        }
        // What a model may predict: conlleval lets an entity begin with an inner tag.
        assert_eq!(found("O I-LOC I-PER I-PER"), [("LOC", 1, 2), ("PER", 2, 4)]);
        assert!(is_entity_tag("B-PER") && is_entity_tag("O"));
        assert!(!is_entity_tag("NOUN") && !is_entity_tag("X-PER") && !is_entity_tag("B-"));
    }

    #[test]
    fn a_tag_that_can_not_be_meant_is_named() {
        let labels = ["O", "B-PER", "I-PER", "I-LOC"].map(str::to_owned);
        let tags = Tags::known(&labels);
        assert_eq!(tags, Tags::Entities(Some(vec!["LOC", "PER"])));
        for good in ["O", "B-LOC", "S-PER", "E-LOC"] {
            assert_eq!(tags.complaint(good), None, "{good}");
        }
        let expected = "the tag \"B-PRE\" is of an unknown type; known are LOC, PER";
        assert_eq!(tags.complaint("B-PRE").unwrap(), expected);
        for tags in [tags, Tags::Entities(None)] {
            for bad in ["o", "PER", "X-PER", "B-", ""] {
                assert!(tags.complaint(bad).unwrap().contains("is no entity's"));
            }
        }
        assert_eq!(Tags::Entities(None).complaint("B-PRE"), None);
        let labels = ["NOUN", "VERB"].map(str::to_owned);
        let tags = Tags::known(&labels);
        assert_eq!(tags.complaint("VERB"), None);
        let expected = "unknown label \"verb\"; known are NOUN, VERB";
        assert_eq!(tags.complaint("verb").unwrap(), expected);
        // A model without entity labels can predict none.
        let none = Tags::entities(&labels).complaint("B-PER").unwrap();
        assert!(none.ends_with("known are none"), "{none}");
        assert_eq!(Tags::Any.complaint("verb"), None);
        assert!(Tags::Any.complaint("").is_some() && Tags::Unread.complaint("").is_none());
    }

    #[test]
    fn a_scheme_is_broken_by_labels_of_another_kind() {
        assert!(broken_scheme(&["B-PER", "I-PER", "O", "o"]));
        assert!(!broken_scheme(&["B-PER", "I-PER", "O"]));
        assert!(!broken_scheme(&["B-PER", "I-PER", "o"]));
        assert!(!broken_scheme(&["NOUN", "O", "VERB"]));
    }
}
