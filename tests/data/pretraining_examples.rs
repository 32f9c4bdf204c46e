//! The properties of pre-training examples, on a corpus in which every word occurs once, so that each token shows
//! its document and position; and on a real book.

use std::collections::HashSet;

use crate::common::{assert_contains, real_data};
use cloze::Result;
use cloze::data::pretraining::PretrainingExample;
use cloze::data::{Packing, PretrainingData, PretrainingOptions};
use cloze::text::{Casing, Paragraph, Paragraphs, WordPiece};

const SPECIALS: usize = 5;

/// Documents of 40 to 159 different words, in sentences of 3 to 17.
struct Corpus {
    paragraphs: Vec<Paragraph>,
    /// The document of each word.
    documents: Vec<u64>,
    /// The words that start a sentence.
    starts: HashSet<u32>,
    wordpiece: WordPiece,
}

impl Corpus {
    fn new(documents: u64) -> Self {
        let mut corpus = Vec::new();
        let (mut owner, mut starts) = (Vec::new(), HashSet::new());
        for document in 0..documents {
            let end = owner.len() as u64 + 40 + document * 37 % 120;
            while (owner.len() as u64) < end {
                let first = owner.len() as u64;
                let last = (first + 3 + first * 7 % 15).min(end);
                starts.insert(first as u32 + SPECIALS as u32);
                let words: Vec<String> = (first..last).map(|word| format!("w{word}")).collect();
                owner.extend(words.iter().map(|_| document));
                corpus.push(Paragraph { document, text: words.join(" ") });
            }
        }
        let words = (0..owner.len()).map(|word| format!("w{word}"));
        let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
        let vocab = specials.into_iter().chain(words).collect();
        Self {
            paragraphs: corpus,
            documents: owner,
            starts,
            wordpiece: WordPiece::from_vocab(vocab, Casing::Cased).unwrap(),
        }
    }

    fn paragraphs(&self) -> impl Iterator<Item = Result<Paragraph>> + '_ {
        self.paragraphs.iter().cloned().map(Ok)
    }

    fn build(&self, options: &PretrainingOptions) -> PretrainingData {
        PretrainingData::build(self.paragraphs(), &self.wordpiece, options, None).unwrap()
    }

    fn document(&self, token: u32) -> u64 {
        self.documents[token as usize - SPECIALS]
    }
}

fn options() -> PretrainingOptions {
    PretrainingOptions { seed: 17, ..PretrainingOptions::default() }
}

/// Puts the labels of an example back and returns the tokens of its two segments.
fn original(example: &PretrainingExample) -> (Vec<u32>, Vec<u32>) {
    let mut ids = example.ids.clone();
    for target in &example.targets {
        ids[target.position as usize] = target.label;
    }
    let boundary = example.segments.iter().filter(|&&s| s == 0).count();
    assert!(example.segments.is_sorted());
    assert_eq!((ids[0], ids[boundary - 1]), (2, 3), "[CLS] A [SEP]");
    let b = if boundary < ids.len() {
        assert_eq!(ids[ids.len() - 1], 3, "B [SEP]");
        ids[boundary..ids.len() - 1].to_vec()
    } else {
        Vec::new()
    };
    let a = ids[1..boundary - 1].to_vec();
    assert!(a.iter().chain(&b).all(|&id| id >= SPECIALS as u32));
    (a, b)
}

fn is_run(tokens: &[u32]) -> bool {
    tokens.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn pairs_are_what_their_labels_say() {
    let corpus = Corpus::new(60);
    let data = corpus.build(&options());
    for index in 0..3 * data.examples_per_epoch() {
        let example = data.example(index).unwrap();
        let (a, b) = original(&example);
        assert!(!a.is_empty() && !b.is_empty());
        assert!(example.ids.len() <= 128);
        assert!(is_run(&a) && is_run(&b), "each segment is one run of text");
        let (a_end, b_start) = (a[a.len() - 1], b[0]);
        let documents = (corpus.document(a_end), corpus.document(b_start));
        assert_eq!(example.documents, (documents.0 as u32, documents.1 as u32));
        match example.next_label {
            Some(0) => assert_eq!(b_start, a_end + 1, "B follows A"),
            Some(1) => assert_ne!(documents.0, documents.1, "B is of another document"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_epoch_uses_every_word_once() {
    let corpus = Corpus::new(200);
    let data = corpus.build(&options());
    assert_eq!(data.tokens(), corpus.documents.len() as u64);
    assert_eq!(data.documents(), 200);
    for epoch in 0..2 {
        let mut seen = vec![0; corpus.documents.len()];
        for place in 0..data.examples_per_epoch() {
            let index = epoch * data.examples_per_epoch() + place;
            let (a, b) = original(&data.example(index).unwrap());
            for token in a.into_iter().chain(b) {
                seen[token as usize - SPECIALS] += 1;
            }
        }
        assert!(seen.iter().all(|&times| times <= 1), "no word twice");
        let used: usize = seen.iter().sum();
        let lost = 1.0 - used as f64 / seen.len() as f64;
        assert!(lost < 0.05, "{lost} of the words lost to truncation");
    }
}

#[test]
fn chunks_start_and_end_with_whole_sentences() {
    let corpus = Corpus::new(60);
    let options = PretrainingOptions { short_probability: 0.0, ..options() };
    let data = corpus.build(&options);
    for index in 0..data.examples_per_epoch() {
        let example = data.example(index).unwrap();
        let (a, b) = original(&example);
        let end = b[b.len() - 1] + 1;
        let whole =
            end as usize == SPECIALS + corpus.documents.len() || corpus.starts.contains(&end);
        assert!(corpus.starts.contains(&a[0]) && whole, "example {index}");
    }
}

#[test]
fn without_pairs_an_example_is_one_run_of_text_and_nothing_is_lost() {
    let corpus = Corpus::new(40);
    let options = PretrainingOptions { packing: Packing::Document, max_len: 32, ..options() };
    let data = corpus.build(&options);
    let mut words = HashSet::new();
    for index in 0..data.examples_per_epoch() {
        let example = data.example(index).unwrap();
        assert_eq!(example.next_label, None);
        let (a, b) = original(&example);
        assert!(is_run(&a) && b.is_empty() && a.len() <= 30);
        words.extend(a);
    }
    assert_eq!(words.len(), corpus.documents.len());
    assert!(data.batch(0, 4).unwrap().next_labels.is_empty());
}

/// Full sentences: every word occurs once, in the order of the text; every example is as long as whole sentences
/// allow; a `[SEP]` stands before each new document.
#[test]
fn full_sentences_continue_with_the_next_document_after_a_separator() {
    let corpus = Corpus::new(40);
    let options = PretrainingOptions {
        packing: Packing::Full,
        short_probability: 0.0,
        max_len: 64,
        ..options()
    };
    let data = corpus.build(&options);
    assert_eq!(data.documents(), 40);
    assert_eq!(data.tokens(), corpus.documents.len() as u64);
    let (mut examples, mut crossings, mut rows) = (Vec::new(), 0, 0);
    for index in 0..data.examples_per_epoch() {
        let example = data.example(index).unwrap();
        assert_eq!(example.next_label, None);
        assert!(example.ids.len() <= 64 && example.segments.iter().all(|&s| s == 0));
        assert!(example.targets.iter().all(|t| t.label >= SPECIALS as u32));
        let mut ids = example.ids.clone();
        for target in &example.targets {
            ids[target.position as usize] = target.label;
        }
        rows += ids.len();
        assert_eq!((ids[0], ids[ids.len() - 1]), (2, 3), "[CLS] … [SEP]");
        let text = &ids[1..ids.len() - 1];
        assert_eq!(u64::from(example.documents.0), corpus.document(text[0]));
        for (before, after) in text.iter().zip(&text[1..]) {
            match (before, after) {
                (3, _) | (_, 3) => {}
                _ => {
                    assert_eq!(corpus.document(*before), corpus.document(*after));
                    assert_eq!(before + 1, *after);
                }
            }
        }
        for around in text.windows(3).filter(|around| around[1] == 3) {
            assert_eq!(around[0] + 1, around[2]);
            assert_ne!(corpus.document(around[0]), corpus.document(around[2]));
            crossings += 1;
        }
        examples.push(text.to_vec());
    }
    examples.sort();
    let words: Vec<u32> = examples.concat().into_iter().filter(|&id| id != 3).collect();
    assert!(is_run(&words) && words.len() == corpus.documents.len());
    // There are 39 borders, some of them between two examples; sentences have at most 17 words.
    assert!((30..=39).contains(&crossings), "{crossings}");
    assert!(rows > examples.len() * (64 - 17), "{rows} of {}", examples.len());
}

#[test]
fn a_batch_is_a_pure_function_of_seed_and_number() {
    let corpus = Corpus::new(60);
    let folder = tempfile::tempdir().unwrap();
    let in_memory = corpus.build(&options());
    let in_files = PretrainingData::build(
        corpus.paragraphs(),
        &corpus.wordpiece,
        &options(),
        Some(folder.path()),
    )
    .unwrap();
    let forward: Vec<_> = (0..40).map(|k| in_memory.batch(k, 7).unwrap()).collect();
    for k in (0..40).rev() {
        assert_eq!(in_files.batch(k, 7).unwrap(), forward[k as usize]);
    }
    // The batch size does not change the examples.
    let wide = in_memory.batch(3, 14).unwrap();
    let ids = [&forward[6].packed.ids[..], &forward[7].packed.ids[..]].concat();
    assert_eq!(wide.packed.ids, ids);
    assert_eq!(wide.packed.examples, (42..56).collect::<Vec<u64>>());
    let other = corpus.build(&PretrainingOptions { seed: 18, ..options() });
    assert_ne!(other.batch(0, 7).unwrap(), forward[0]);
}

#[test]
fn only_masked_rows_have_labels_and_never_special_tokens() {
    let corpus = Corpus::new(60);
    let data = corpus.build(&options());
    for k in 0..60 {
        let batch = data.batch(k, 8).unwrap();
        assert_eq!(batch.masked_rows.len(), batch.masked_labels.len());
        assert_eq!(batch.next_labels.len(), 8);
        assert!(batch.masked_rows.is_sorted_by(|a, b| a < b));
        for (i, range) in batch.packed.ranges().enumerate() {
            let example = data.example(k * 8 + i as u64).unwrap();
            assert_eq!(batch.packed.ids[range.clone()], example.ids);
            let rows = |row: &&u32| range.contains(&(**row as usize));
            assert!(batch.masked_rows.iter().any(|row| rows(&row)), "one at least");
        }
        for (&row, &label) in batch.masked_rows.iter().zip(&batch.masked_labels) {
            let id = batch.packed.ids[row as usize];
            assert!(label >= SPECIALS as u32);
            assert!(id == 4 || id >= SPECIALS as u32, "[MASK] or a plain token");
        }
        // The corpus has no [MASK] of its own.
        let masked: HashSet<u32> = batch.masked_rows.iter().copied().collect();
        for (row, &id) in batch.packed.ids.iter().enumerate() {
            assert!(id != 4 || masked.contains(&(row as u32)));
        }
    }
}

/// Returns Pearson's statistic of observed counts for expected shares.
fn chi_square(observed: &[u64], shares: &[f64]) -> f64 {
    let total: u64 = observed.iter().sum();
    let terms = observed.iter().zip(shares).map(|(&o, share)| {
        let expected = total as f64 * share;
        (o as f64 - expected).powi(2) / expected
    });
    terms.sum()
}

/// Returns the value that the statistic exceeds by chance once in 10,000 times.
fn critical(degrees: usize) -> f64 {
    [15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88, 31.83, 33.72][degrees - 1]
}

#[test]
fn shares_are_15_percent_of_which_80_10_10_and_pairs_50_50() {
    let corpus = Corpus::new(200);
    let data = corpus.build(&PretrainingOptions { short_probability: 0.0, ..options() });
    let words = corpus.documents.len() as f64;
    let (mut plain, mut chosen) = (0u64, 0u64);
    let mut fates = [0u64; 3];
    let (mut places, mut all) = ([0u64; 10], [0u64; 10]);
    let mut next = [0u64; 2];
    let mut again = 0u64;
    for index in 0..8000 {
        let example = data.example(index).unwrap();
        let tokens = example.ids.len() as u64 - 3;
        plain += tokens;
        chosen += example.targets.len() as u64;
        for target in &example.targets {
            let id = example.ids[target.position as usize];
            fates[match id {
                4 => 0,
                id if id != target.label => 1,
                _ => 2,
            }] += 1;
        }
        // Counts tokens and masks in each tenth of the sequence, without its special tokens.
        let positions = (0..example.ids.len() as u32)
            .filter(|&position| ![2, 3].contains(&example.ids[position as usize]));
        for (place, position) in (0..tokens).zip(positions) {
            let tenth = (place * 10 / tokens) as usize;
            all[tenth] += 1;
            places[tenth] += u64::from(example.targets.iter().any(|t| t.position == position));
        }
        next[example.next_label.unwrap() as usize] += 1;
        let follows = data.example(index + 8000).unwrap();
        again += u64::from(follows.next_label == example.next_label);
    }
    // The number of targets in a sequence is rounded at random, so its variance is below that of a binomial.
    let x = chi_square(&[chosen, plain - chosen], &[0.15, 0.85]);
    assert!(x < critical(1), "15 %: {chosen} of {plain}, {x}");
    // One random token in `words` is the right one by chance.
    let shares = [0.8, 0.1 - 0.1 / words, 0.1 + 0.1 / words];
    let x = chi_square(&fates, &shares);
    assert!(x < critical(2), "80/10/10: {fates:?}, {x}");
    let x = chi_square(&next, &[0.5, 0.5]);
    assert!(x < critical(1), "50/50: {next:?}, {x}");
    let x = chi_square(&[again, 8000 - again], &[0.5, 0.5]);
    assert!(x < critical(1), "independent later on: {again}, {x}");
    let x = chi_square(&places, &all.map(|tokens| tokens as f64 / plain as f64));
    assert!(x < critical(9), "masks everywhere alike: {places:?}, {x}");
}

#[test]
fn every_epoch_has_new_masks() {
    let corpus = Corpus::new(40);
    let options = PretrainingOptions { packing: Packing::Document, ..options() };
    let data = corpus.build(&options);
    let positions = |epoch: u64| {
        let mut labels = HashSet::new();
        for place in 0..data.examples_per_epoch() {
            let index = epoch * data.examples_per_epoch() + place;
            labels.extend(data.example(index).unwrap().targets.iter().map(|t| t.label));
        }
        labels
    };
    let (first, second) = (positions(0), positions(1));
    let both = first.intersection(&second).count() as f64;
    let share = both / first.len() as f64;
    assert!((0.08..0.23).contains(&share), "{share} instead of about 0.15");
}

#[test]
fn whole_words_are_masked_whole() {
    let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "a", "##b", "##c", "d"];
    let vocab = names.map(str::to_owned).to_vec();
    let wordpiece = WordPiece::from_vocab(vocab, Casing::Cased).unwrap();
    let text = "abc d ab a d abcb d a a abc d zzz";
    let paragraphs = (0..200).map(|i| Ok(Paragraph { document: i / 4, text: text.to_owned() }));
    let options = PretrainingOptions { whole_word: true, ..options() };
    let data = PretrainingData::build(paragraphs, &wordpiece, &options, None).unwrap();
    let mut whole_words = 0;
    for index in 0..2000 {
        let example = data.example(index).unwrap();
        let targets: HashSet<u32> = example.targets.iter().map(|t| t.position).collect();
        let mut ids = example.ids.clone();
        for target in &example.targets {
            ids[target.position as usize] = target.label;
            let id = example.ids[target.position as usize];
            assert!(id == 4 || id >= 6, "no special or unused token as a replacement");
        }
        for position in 1..ids.len() {
            if [7, 8].contains(&ids[position]) && ids[position - 1] >= 6 {
                let here = targets.contains(&(position as u32));
                assert_eq!(here, targets.contains(&(position as u32 - 1)), "all or none");
                whole_words += usize::from(here);
            }
            // [UNK] is never a target: nothing can be learned from it.
            assert!(ids[position] != 1 || !targets.contains(&(position as u32)));
        }
    }
    assert!(whole_words > 1000, "{whole_words}");
}

/// As Chinese text has them in a vocabulary of pieces without blanks.
#[test]
fn of_a_word_that_is_longer_than_its_share_a_part_is_masked() {
    let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"];
    let vocab = names.map(str::to_owned).to_vec();
    let wordpiece = WordPiece::from_vocab(vocab, Casing::Cased).unwrap();
    let text = format!("a{}", "b".repeat(59));
    let paragraphs = (0..40).map(|document| Ok(Paragraph { document, text: text.clone() }));
    let options = PretrainingOptions {
        whole_word: true,
        packing: Packing::Document,
        short_probability: 0.0,
        ..options()
    };
    let data = PretrainingData::build(paragraphs, &wordpiece, &options, None).unwrap();
    for index in 0..40 {
        let masked = data.example(index).unwrap().targets.len();
        assert!((1..=10).contains(&masked), "{masked} of 60");
    }
}

/// A power failure can leave such bytes in a file.
#[test]
fn zero_bytes_leave_no_trace_in_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("corpus.txt");
    let corpus = Corpus::new(6);
    let build = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let paragraphs = Paragraphs::new(&[&path]).unwrap();
        PretrainingData::build(paragraphs, &corpus.wordpiece, &options(), None).unwrap()
    };
    let mut text = String::new();
    for pair in corpus.paragraphs.chunk_by(|a, b| a.document == b.document) {
        let lines = pair.iter().map(|p| format!("{}\n", p.text));
        text += &format!("{}\n", lines.collect::<String>());
    }
    let clean = build(&text);
    let spoilt = build(&format!(
        "{}\n\0\0\0\0\n\0",
        text.replace("w2", "w\x002").replace('\n', "\0\n").replace("\n\0\n", "\n\n")
    ));
    assert_eq!(spoilt.checksum(), clean.checksum());
    assert_eq!(
        (spoilt.documents(), spoilt.tokens(), spoilt.examples_per_epoch()),
        (clean.documents(), clean.tokens(), clean.examples_per_epoch())
    );
}

#[test]
fn held_out_documents_are_not_trained_on() {
    let corpus = Corpus::new(60);
    let (train, held_out) =
        PretrainingData::build_split(corpus.paragraphs(), &corpus.wordpiece, &options(), None, 20)
            .unwrap();
    assert_eq!((train.documents(), held_out.documents()), (56, 4));
    assert_eq!(train.tokens() + held_out.tokens(), corpus.documents.len() as u64);
    let documents = |data: &PretrainingData| {
        let examples = (0..data.examples_per_epoch()).map(|i| data.example(i).unwrap().documents);
        examples.flat_map(|(a, b)| [a, b]).collect::<HashSet<u32>>()
    };
    assert_eq!(documents(&held_out), HashSet::from([1, 3, 21, 41]));
    assert!(documents(&train).is_disjoint(&documents(&held_out)));
}

/// The walk through held-out documents ends before it, and must end there when it is asked again.
#[test]
fn one_sentence_may_follow_the_last_held_out_document() {
    let corpus = Corpus::new(10);
    for documents in [5, 13, 23] {
        let text = |line: u64| (0..9).map(|i| format!("w{}", 9 * line + i)).collect::<Vec<_>>();
        let lines = 2 * documents - 1;
        let paragraph = |line: u64| Paragraph { document: line / 2, text: text(line).join(" ") };
        let paragraphs = (0..lines).map(|line| Ok(paragraph(line)));
        let split =
            PretrainingData::build_split(paragraphs, &corpus.wordpiece, &options(), None, 10);
        let (train, held_out) = split.unwrap();
        assert_eq!(train.documents() + held_out.documents(), documents);
        assert_eq!(train.tokens() + held_out.tokens(), 9 * lines);
    }
}

/// With documents of 300,000 tokens, of which every second one is held out, the seventh reaches two million. It is
/// kept whole.
#[test]
fn two_million_tokens_of_a_large_text_are_held_out() {
    let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"];
    let wordpiece =
        WordPiece::from_vocab(names.map(str::to_owned).to_vec(), Casing::Cased).unwrap();
    let text = "a ".repeat(3000);
    let paragraphs =
        (0..1600).map(|i| Ok(Paragraph { document: i / 100, text: text.trim_end().to_owned() }));
    let (train, held_out) =
        PretrainingData::build_split(paragraphs, &wordpiece, &options(), None, 2).unwrap();
    assert_eq!((held_out.documents(), train.documents()), (7, 9));
    // A document's last sentence may be too short for a pair.
    let lost = |data: &PretrainingData, all: u64| all - data.tokens();
    assert!(lost(&held_out, 2_100_000) < 10 && lost(&train, 2_700_000) < 10);
}

#[test]
fn unequal_documents_still_give_random_pairs_of_two_documents() {
    // One document has almost all of the text, so swapping within a block is not enough.
    let text = |document: u64| Paragraph { document, text: "a a a a a a d d d".to_owned() };
    let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "d"];
    let wordpiece =
        WordPiece::from_vocab(names.map(str::to_owned).to_vec(), Casing::Cased).unwrap();
    let paragraphs = (0..2000).map(|i| Ok(text(u64::from(i >= 1998))));
    let data = PretrainingData::build(paragraphs, &wordpiece, &options(), None).unwrap();
    let mut random = 0;
    for index in 0..data.examples_per_epoch() {
        let example = data.example(index).unwrap();
        let differ = example.documents.0 != example.documents.1;
        assert_eq!(example.next_label, Some(u32::from(differ)));
        random += u64::from(differ);
    }
    let share = random as f64 / data.examples_per_epoch() as f64;
    assert!((0.35..0.65).contains(&share), "{share}");
}

#[test]
fn text_that_cannot_become_examples_is_reported() {
    let corpus = Corpus::new(1);
    let build = |options: &PretrainingOptions| {
        PretrainingData::build(corpus.paragraphs(), &corpus.wordpiece, options, None).unwrap_err()
    };
    let error = build(&options()).to_string();
    assert_contains(&error, "only one: separate documents by blank lines");
    for (options, words) in [
        (PretrainingOptions { max_len: 7, ..options() }, "7 tokens are too short"),
        (PretrainingOptions { mask_probability: 0.0, ..options() }, "expected a number above 0"),
        (PretrainingOptions { short_probability: 1.5, ..options() }, "from 0 to 1"),
    ] {
        let error = build(&options);
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    let nothing = PretrainingData::build([], &corpus.wordpiece, &options(), None).unwrap_err();
    assert!(nothing.to_string().contains("too short"));
    let split = |corpus: &Corpus, every| {
        let paragraphs = corpus.paragraphs();
        PretrainingData::build_split(paragraphs, &corpus.wordpiece, &options(), None, every)
    };
    assert!(split(&Corpus::new(4), 20).is_ok());
    let error = split(&Corpus::new(3), 20).unwrap_err().to_string();
    assert_contains(&error, "at least four");
    assert_eq!(split(&corpus, 1).unwrap_err().exit_code(), 2);
}

#[test]
fn the_unigram_entropy_is_that_of_the_text() {
    let corpus = Corpus::new(10);
    let words = corpus.documents.len() as f64;
    let data = corpus.build(&options());
    assert!((data.unigram_entropy() - words.ln()).abs() < 1e-9);
}

#[test]
fn a_real_book_loses_little_text() {
    let Some(folder) = real_data() else { return };
    let book = folder.join("text/standard-ebooks/jane-austen_pride-and-prejudice.txt.gz");
    let vocab = folder.join("vocab/bert-base-uncased-vocab.txt");
    let wordpiece = WordPiece::from_vocab_file(&vocab, Casing::Uncased).unwrap();
    for max_len in [64, 128, 512] {
        let options = PretrainingOptions { max_len, ..options() };
        let paragraphs = Paragraphs::new(&[&book]).unwrap();
        let data = PretrainingData::build(paragraphs, &wordpiece, &options, None).unwrap();
        assert_eq!(data.documents(), 61, "chapters");
        let (mut used, mut random, mut full) = (0u64, 0u64, [0u64; 2]);
        for index in 0..data.examples_per_epoch() {
            let example = data.example(index).unwrap();
            used += example.ids.len() as u64 - 3;
            let label = example.next_label.unwrap();
            random += u64::from(label);
            full[label as usize] += u64::from(example.ids.len() == max_len);
        }
        let lost = 1.0 - used as f64 / data.tokens() as f64;
        println!(
            "length {max_len}: {} examples, {} tokens, {:.2} % lost, {random} random; full: {full:?}",
            data.examples_per_epoch(),
            data.tokens(),
            100.0 * lost
        );
        assert!(lost < 0.20, "{lost}");
    }
}
