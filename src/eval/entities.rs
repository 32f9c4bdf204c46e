//! Precision, recall and F1 of entities as `conlleval` counts them (Tjong Kim Sang and De Meulder,
//! "Introduction to the CoNLL-2003 shared task", 2003): an entity is right if its type and both its
//! ends are.

use std::collections::BTreeMap;

use super::{ClassScores, Scores, ratio};
pub use crate::data::tags::{Entity, entities};

/// Numbers of correct, predicted and true entities.
type Counts = [usize; 3];

/// Returns their `f1`, `precision` and `recall`.
fn measured(counts: Counts) -> Scores {
    let [right, predicted, gold] = counts.map(|count| count as f64);
    let scores = [
        ("f1", ratio(2.0 * right, predicted + gold)),
        ("precision", ratio(right, predicted)),
        ("recall", ratio(right, gold)),
    ];
    let scores = scores.map(|(name, value)| (name.to_owned(), value.into()));
    scores.into_iter().collect()
}

/// Returns `f1`, `precision` and `recall` over all types, `accuracy` of single tags, and `types` with
/// the first three of each type. Sentences are pairs of equally many predicted and true tags.
pub fn score<'a>(sentences: impl IntoIterator<Item = (Vec<&'a str>, Vec<&'a str>)>) -> Scores {
    let (mut right, mut words) = (0, 0);
    let counts = counted(sentences.into_iter().inspect(|(predicted, gold)| {
        words += gold.len();
        right += predicted.iter().zip(gold).filter(|(p, g)| p == g).count();
    }));
    let sum = |sum: Counts, of_kind: &Counts| std::array::from_fn(|i| sum[i] + of_kind[i]);
    let mut scores = measured(counts.values().fold(Counts::default(), sum));
    scores.insert("accuracy".into(), ratio(right as f64, words as f64).into());
    let types = counts.iter().map(|(kind, counts)| ((*kind).to_owned(), measured(*counts).into()));
    scores.insert("types".into(), types.collect::<Scores>().into());
    scores
}

/// Returns the scores of each type of entity.
pub fn classes<'a>(
    sentences: impl IntoIterator<Item = (Vec<&'a str>, Vec<&'a str>)>,
) -> Vec<ClassScores> {
    let counts = counted(sentences.into_iter());
    let of = |(kind, counts): (&str, Counts)| {
        let [right, predicted, gold] = counts.map(|count| count as u64);
        ClassScores::of(kind, right, predicted, gold)
    };
    counts.into_iter().map(of).collect()
}

/// Counts the entities of each type.
fn counted<'a>(
    sentences: impl Iterator<Item = (Vec<&'a str>, Vec<&'a str>)>,
) -> BTreeMap<&'a str, Counts> {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    for (predicted, gold) in sentences {
        let (predicted, gold) = (entities(&predicted), entities(&gold));
        for entity in &predicted {
            // Both lists are sorted by start, and no two entities share one.
            let found = gold.binary_search_by_key(&entity.start, |e| e.start);
            let [right, predicted, _] = counts.entry(entity.kind).or_default();
            *right += usize::from(found.is_ok_and(|i| gold[i] == *entity));
            *predicted += 1;
        }
        for entity in &gold {
            counts.entry(entity.kind).or_default()[2] += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(tags: &str) -> Vec<&str> {
        tags.split_whitespace().collect()
    }

    /// What `conlleval.pl` prints for these two sentences: 5 phrases, found 5, correct 3.
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
