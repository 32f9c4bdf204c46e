//! Tags of words: what they may be, and entities' tags in one scheme.

use crate::eval::entities::{iob2, is_entity_tag};

use super::labels::{complaint, listed, shortened};

/// What the tags of a file may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags<'a> {
    /// Anything: they aren't read.
    Unread,
    /// Labels of any kind.
    Any,
    /// These labels.
    OneOf(&'a [String]),
    /// `O`, or an entity's tag: of one of these types, where they are known.
    Entities(Option<Vec<&'a str>>),
}

impl<'a> Tags<'a> {
    /// What a model with these labels can be right about.
    pub fn known(labels: &'a [String]) -> Self {
        if labels.iter().all(|label| is_entity_tag(label)) {
            Self::entities(labels)
        } else {
            Self::OneOf(labels)
        }
    }

    /// Entities of the types that a model's labels have.
    pub fn entities(labels: &'a [String]) -> Self {
        Self::Entities(Some(types(labels.iter().map(String::as_str))))
    }

    /// What is wrong with a tag.
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

/// The types of entities' tags, each once, in the order of their names.
pub fn types<'a>(tags: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let entities = tags.filter(|tag| is_entity_tag(tag));
    let mut types: Vec<&str> = entities
        .filter_map(|tag| Some(tag.split_once('-')?.1))
        .collect();
    types.sort_unstable();
    types.dedup();
    types
}

/// Whether these labels have entities' tags of a scheme and `O` among them, and others: then the others
/// are hardly meant as labels.
pub fn broken_scheme(labels: &[&str]) -> bool {
    let begins = |label: &&str| is_entity_tag(label) && label.starts_with(['B', 'I']);
    labels.contains(&"O")
        && labels.iter().any(begins)
        && !labels.iter().all(|label| is_entity_tag(label))
}

/// Tags as they stand, but entities' in IOB2.
pub fn in_iob2(tags: Vec<String>) -> Vec<String> {
    let all: Vec<&str> = tags.iter().map(String::as_str).collect();
    if all.iter().all(|tag| is_entity_tag(tag)) {
        iob2(&all)
    } else {
        tags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_can_not_be_meant_is_named() {
        let labels = ["O", "B-PER", "I-PER", "I-LOC"].map(str::to_owned);
        let tags = Tags::known(&labels);
        assert_eq!(tags, Tags::Entities(Some(vec!["LOC", "PER"])));
        for good in ["O", "B-LOC", "S-PER", "E-LOC"] {
            assert_eq!(tags.complaint(good), None, "{good}");
        }
        assert_eq!(
            tags.complaint("B-PRE").unwrap(),
            "the tag \"B-PRE\" is of an unknown type; known are LOC, PER"
        );
        for tags in [tags, Tags::Entities(None)] {
            for bad in ["o", "PER", "X-PER", "B-", ""] {
                assert!(tags.complaint(bad).unwrap().contains("is no entity's"));
            }
        }
        assert_eq!(Tags::Entities(None).complaint("B-PRE"), None);
        let labels = ["NOUN", "VERB"].map(str::to_owned);
        let tags = Tags::known(&labels);
        assert_eq!(tags.complaint("VERB"), None);
        assert_eq!(
            tags.complaint("verb").unwrap(),
            "unknown label \"verb\"; known are NOUN, VERB"
        );
        // A model without entities can be right about none.
        assert!(
            Tags::entities(&labels)
                .complaint("B-PER")
                .unwrap()
                .ends_with("known are none")
        );
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
