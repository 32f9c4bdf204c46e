//! Entities in sequences of tags, and precision, recall and F1 of them as `conlleval` counts them
//! (Tjong Kim Sang and De Meulder, "Introduction to the CoNLL-2003 shared task", 2003): an entity is
//! right when its type and both its ends are.
//!
//! The tags may be IOB1, IOB2 (also called BIO) or IOBES: `B-X` begins, `I-X` goes on, `E-X` ends,
//! `S-X` stands alone, `O` is outside.

use std::collections::BTreeMap;

use serde_json::json;

use super::Scores;

/// An entity: its type and its first word and the one behind its last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity<'a> {
    pub kind: &'a str,
    pub start: usize,
    pub end: usize,
}

/// A tag's place in an entity and the entity's type; `O` and everything without a `-` is outside.
fn parts(tag: &str) -> (char, &str) {
    match tag.split_once('-') {
        Some((place, kind)) => (place.chars().next().unwrap_or('O'), kind),
        None => ('O', ""),
    }
}

/// Whether a tag is `O` or an entity's.
pub fn is_entity_tag(tag: &str) -> bool {
    tag == "O"
        || matches!(tag.split_once('-'), Some(("B" | "I" | "E" | "S", kind)) if !kind.is_empty())
}

/// The entities of a sentence's tags.
pub fn entities<'a>(tags: &[&'a str]) -> Vec<Entity<'a>> {
    let mut found: Vec<Entity<'a>> = Vec::new();
    let mut open = false;
    let mut before = ('O', "");
    for (index, tag) in tags.iter().enumerate() {
        let now = parts(tag);
        let goes_on = open
            && before.1 == now.1
            && matches!(now.0, 'I' | 'E')
            && !matches!(before.0, 'E' | 'S');
        match found.last_mut() {
            Some(last) if goes_on => last.end = index + 1,
            _ if now.0 == 'O' => {}
            _ => found.push(Entity {
                kind: now.1,
                start: index,
                end: index + 1,
            }),
        }
        open = now.0 != 'O';
        before = now;
    }
    found
}

/// The same entities in IOB2: every first word `B-`, every other `I-`.
pub fn iob2(tags: &[&str]) -> Vec<String> {
    let mut out = vec!["O".to_owned(); tags.len()];
    for entity in entities(tags) {
        for (index, tag) in (entity.start..entity.end).zip(&mut out[entity.start..entity.end]) {
            let place = if index == entity.start { 'B' } else { 'I' };
            *tag = format!("{place}-{}", entity.kind);
        }
    }
    out
}

/// Entities that are right, predicted and true, of one type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    right: usize,
    predicted: usize,
    gold: usize,
}

impl Counts {
    fn precision(self) -> f64 {
        ratio(self.right, self.predicted)
    }

    fn recall(self) -> f64 {
        ratio(self.right, self.gold)
    }

    fn f1(self) -> f64 {
        ratio(2 * self.right, self.predicted + self.gold)
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// `f1`, `precision`, `recall` over all types, `accuracy` of single tags, and `types` with the first
/// three of each type. Sentences are pairs of predicted and true tags, equally many.
pub fn score<'a>(sentences: impl IntoIterator<Item = (Vec<&'a str>, Vec<&'a str>)>) -> Scores {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    let (mut right, mut words) = (0, 0);
    for (predicted, gold) in sentences {
        words += gold.len();
        right += predicted.iter().zip(&gold).filter(|(p, g)| p == g).count();
        let (predicted, gold) = (entities(&predicted), entities(&gold));
        for entity in &predicted {
            let of_kind = counts.entry(entity.kind).or_default();
            of_kind.predicted += 1;
            // Both lists are in the order of their starts, and no two share one.
            if gold
                .binary_search_by_key(&entity.start, |e| e.start)
                .is_ok_and(|i| gold[i] == *entity)
            {
                of_kind.right += 1;
            }
        }
        for entity in &gold {
            counts.entry(entity.kind).or_default().gold += 1;
        }
    }
    let all = counts
        .values()
        .fold(Counts::default(), |sum, of_kind| Counts {
            right: sum.right + of_kind.right,
            predicted: sum.predicted + of_kind.predicted,
            gold: sum.gold + of_kind.gold,
        });
    let of = |counts: Counts| json!({"f1": counts.f1(), "precision": counts.precision(), "recall": counts.recall()});
    let mut scores = Scores::new();
    scores.insert("f1".into(), all.f1().into());
    scores.insert("precision".into(), all.precision().into());
    scores.insert("recall".into(), all.recall().into());
    scores.insert("accuracy".into(), ratio(right, words).into());
    let types = counts
        .iter()
        .map(|(kind, counts)| ((*kind).to_owned(), of(*counts)));
    scores.insert("types".into(), types.collect::<Scores>().into());
    scores
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
        for tags in [
            "I-PER I-PER B-PER I-LOC O I-ORG I-ORG I-ORG",
            "B-PER I-PER B-PER B-LOC O B-ORG I-ORG I-ORG",
            "B-PER E-PER S-PER S-LOC O B-ORG I-ORG E-ORG",
        ] {
            assert_eq!(found(tags), expected, "{tags}");
            assert_eq!(
                iob2(&split(tags)),
                split("B-PER I-PER B-PER B-LOC O B-ORG I-ORG I-ORG")
            );
        }
        // What a model may predict: conlleval lets an inner tag begin.
        assert_eq!(found("O I-LOC I-PER I-PER"), [("LOC", 1, 2), ("PER", 2, 4)]);
        assert!(is_entity_tag("B-PER") && is_entity_tag("O"));
        assert!(!is_entity_tag("NOUN") && !is_entity_tag("X-PER") && !is_entity_tag("B-"));
    }

    /// The figures that `conlleval.pl` prints for these two sentences: 5 phrases, found 5, correct 3.
    #[test]
    fn scores_are_those_of_conlleval() {
        let pairs = [
            ("B-PER I-PER O B-LOC O", "B-PER I-PER O B-LOC I-LOC"),
            ("I-ORG O B-MISC B-PER O", "B-ORG O B-MISC O B-LOC"),
        ];
        let scores = score(pairs.map(|(p, g)| (split(p), split(g))));
        assert_eq!(scores["precision"], 3.0 / 5.0);
        assert_eq!(scores["recall"], 3.0 / 5.0);
        assert_eq!(scores["f1"], 6.0 / 10.0);
        assert_eq!(scores["accuracy"], 0.6);
        assert_eq!(scores["types"]["LOC"]["f1"], 0.0);
        assert_eq!(scores["types"]["ORG"]["f1"], 1.0);
        assert_eq!(scores["types"]["PER"]["precision"], 0.5);
        assert_eq!(score([(split("O"), split("O"))])["f1"], 0.0);
    }
}
