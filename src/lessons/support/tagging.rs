//! Helpers of the lessons on tagging, 17 and 18: sentences as rows with labels, baselines, scores, and the training
//! loop around a learner's step.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dfdx::nn::modules::Linear;
use dfdx::optim::{Adam, AdamConfig};
use dfdx::prelude::*;

use crate::data::bad::BadRows;
use crate::data::conll::{self, Sentence};
use crate::data::sequences::BatchSize;
use crate::data::{Packed, Sequences};
use crate::engine::optimizer::Update;
use crate::engine::{CpuEngine, Encoder, Engine, Recorded};
use crate::error::{Error, Result};
use crate::eval::{best, entities};
use crate::lessons::steps;
use crate::model::weights::Model;
use crate::model::{Dropout, Rows};
use crate::random::{Site, Stream};
use crate::tasks::WordSequences;
use crate::text::WordPiece;
use crate::train::schedule::Schedule;
use crate::view::{LineChart, LiveChart, TokenStrip};

/// Longest sequence of a lesson's data, in tokens.
const MAX_LEN: usize = 80;

/// Width of cloze-tiny's vectors.
pub const H: usize = 128;

/// Number of tags: outside, and first and other words of four types.
pub const CLASSES: usize = 9;

/// The types of names.
const KINDS: [&str; 4] = ["LOC", "MISC", "ORG", "PER"];

/// Numbers about capital letters that every word has beside its vector.
pub const CAPITALS: usize = 4;

/// A name in a sentence: its type, its first word, and the word after its last.
pub type Name = (String, usize, usize);

/// Returns the tags by their numbers: `O`, `B-LOC`, `I-LOC` and so on.
pub fn tag_names() -> Vec<String> {
    let of_kind = |kind: &str| ["B", "I"].map(|place| format!("{place}-{kind}"));
    std::iter::once("O".to_owned()).chain(KINDS.into_iter().flat_map(of_kind)).collect()
}

/// Returns for each tag the number of its type's colour, for [`TokenStrip::colored`].
pub fn colours<S: AsRef<str>>(tags: &[S]) -> Vec<u32> {
    let colour = |tag: &S| {
        let kind = tag.as_ref().split_once('-').map(|parts| parts.1);
        let place = KINDS.iter().position(|&k| Some(k) == kind);
        place.map_or(TokenStrip::PLAIN, |place| place as u32)
    };
    tags.iter().map(colour).collect()
}

fn borrowed(tags: &[String]) -> Vec<&str> {
    tags.iter().map(String::as_str).collect()
}

/// Returns the names that a sentence's tags mark, as the crate's scorer finds them.
pub fn names(tags: &[String]) -> Vec<Name> {
    let found = entities::entities(&borrowed(tags)).into_iter();
    found.map(|name| (name.kind.to_owned(), name.start, name.end)).collect()
}

/// Returns the names in several sentences' tags.
pub fn all_names<'a>(tags: impl IntoIterator<Item = &'a Vec<String>>) -> Vec<Vec<Name>> {
    tags.into_iter().map(|tags| names(tags)).collect()
}

/// Scores predicted tags as `conlleval` does: precision, recall and F1 of names, and the share of words whose tag is
/// right. All are between 0 and 1.
pub fn score(predicted: &[Vec<String>], truth: &[Sentence]) -> [f64; 4] {
    let pairs = predicted.iter().zip(truth);
    let scores = entities::score(pairs.map(|(tags, s)| (borrowed(tags), borrowed(&s.tags))));
    ["precision", "recall", "f1", "accuracy"].map(|name| scores[name].as_f64().unwrap_or(f64::NAN))
}

/// Returns a list of up to eight tags, drawn at random from two types; most lists follow no scheme.
pub fn random_tags(number: u64) -> Vec<String> {
    let mut draws = Stream::new(11, 0, Site::Other(0), number).draws();
    let length = 1 + draws.below(8);
    let all = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"];
    (0..length).map(|_| all[draws.below(5) as usize].to_owned()).collect()
}

/// Returns the true tags with a share of them, between 0 and 1, replaced at random.
pub fn spoiled(truth: &[Sentence], share: f64) -> Vec<Vec<String>> {
    let mut draws = Stream::new(12, 0, Site::Other(0), (share * 100.0) as u64).draws();
    let names = tag_names();
    let mut one = |tag: &String| match draws.uniform() < share {
        true => names[draws.below(CLASSES as u32) as usize].clone(),
        false => tag.clone(),
    };
    truth.iter().map(|sentence| sentence.tags.iter().map(&mut one).collect()).collect()
}

/// Tags sentences by memory alone: the names of the training sentences, the longest first.
pub fn remembered(train: &[Sentence], sentences: &[Sentence]) -> Vec<Vec<String>> {
    let mut known: HashMap<&[String], String> = HashMap::new();
    for sentence in train {
        for (kind, start, end) in names(&sentence.tags) {
            known.insert(&sentence.words[start..end], kind);
        }
    }
    let longest = known.keys().map(|words| words.len()).max().unwrap_or(0);
    let tags = |sentence: &Sentence| {
        let words = &sentence.words;
        let mut tags = vec!["O".to_owned(); words.len()];
        let mut at = 0;
        while at < words.len() {
            let ends = (at + 1..=words.len().min(at + longest)).rev();
            let name = ends.into_iter().find_map(|end| Some((end, known.get(&words[at..end])?)));
            let Some((end, kind)) = name else {
                at += 1;
                continue;
            };
            tags[at..end].fill(format!("I-{kind}"));
            tags[at] = format!("B-{kind}");
            at = end;
        }
        tags
    };
    sentences.iter().map(tags).collect()
}

fn is_capitalised(word: &str) -> bool {
    word.starts_with(char::is_uppercase)
}

/// Counts found names by what is right or wrong with them, and true names that no found one overlaps.
pub fn mistakes(found: &[Vec<Name>], truth: &[Vec<Name>]) -> [(&'static str, usize); 5] {
    let meets = |a: &Name, b: &Name| a.1 < b.2 && b.1 < a.2;
    let mut counts =
        ["right", "wrong type", "wrong ends", "invented", "missed"].map(|kind| (kind, 0));
    for (found, truth) in found.iter().zip(truth) {
        for name in found {
            let place = if truth.contains(name) {
                0
            } else if truth.iter().any(|t| t.1 == name.1 && t.2 == name.2) {
                1
            } else if truth.iter().any(|t| meets(t, name)) {
                2
            } else {
                3
            };
            counts[place].1 += 1;
        }
        let missed = truth.iter().filter(|t| !found.iter().any(|name| meets(t, name)));
        counts[4].1 += missed.count();
    }
    counts
}

/// Sentences as a model reads them.
pub struct Set {
    /// The sentences.
    pub sentences: Vec<Sentence>,
    /// Their tokens.
    pub sequences: Sequences,
    /// The number of each row's tag; None for rows that are not a word's first piece.
    pub labels: Vec<Option<u32>>,
    /// The row of each word's first piece.
    pub first_rows: Vec<usize>,
    /// Whether the word of each row has a capital letter, the word before it, the word after it, and whether it is its
    /// sentence's first: (rows, 4), 0 for rows that are not a word's first piece.
    pub capitals: Vec<f32>,
    /// The vectors of all rows after the embeddings and after each layer, (rows, H) each; empty until
    /// [`encode`](Self::encode).
    pub layers: Vec<Vec<f32>>,
}

impl Set {
    /// Reads a file in CoNLL's layout.
    ///
    /// # Errors
    /// If the file can't be read, or a line of it is malformed.
    pub fn read(file: &Path, tokenizer: &WordPiece) -> Result<Self> {
        Self::new(conll::read(file, true, &mut BadRows::refused())?, tokenizer)
    }

    /// Cuts a text without tags into [words](word_places).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_text(text: &str, tokenizer: &WordPiece) -> Result<Self> {
        let words: Vec<String> =
            word_places(text).into_iter().map(|word| text[word].to_owned()).collect();
        let tags = vec!["O".to_owned(); words.len()];
        Self::new(vec![Sentence { words, tags }], tokenizer)
    }

    /// Tokenises sentences.
    ///
    /// # Errors
    /// Never with the lessons' longest sequence.
    pub fn new(sentences: Vec<Sentence>, tokenizer: &WordPiece) -> Result<Self> {
        let WordSequences { sequences, first_rows } =
            WordSequences::new(&sentences, tokenizer, MAX_LEN)?;
        let names = tag_names();
        let mut labels = vec![None; sequences.tokens()];
        let mut capitals = vec![0.0; CAPITALS * sequences.tokens()];
        let mut rows = first_rows.iter();
        for sentence in &sentences {
            let capital = |place: Option<usize>| {
                let word = place.and_then(|place| sentence.words.get(place));
                word.is_some_and(|word| is_capitalised(word))
            };
            for ((place, tag), &row) in sentence.tags.iter().enumerate().zip(rows.by_ref()) {
                labels[row] = names.iter().position(|name| name == tag).map(|class| class as u32);
                let before = capital(place.checked_sub(1));
                let flags = [capital(Some(place)), before, capital(Some(place + 1)), place == 0];
                capitals[row * CAPITALS..][..CAPITALS]
                    .copy_from_slice(&flags.map(|f| f32::from(u8::from(f))));
            }
        }
        Ok(Self { sentences, sequences, labels, first_rows, capitals, layers: Vec::new() })
    }

    /// Computes the vectors of all rows after the embeddings and after each layer.
    ///
    /// # Errors
    /// If a sequence does not fit the model.
    pub fn encode(&mut self, engine: &mut CpuEngine) -> Result<()> {
        let layers = 0..engine.config().num_hidden_layers + 1;
        self.layers = engine.hidden_states(&self.sequences.batch(&self.all()), layers)?.layers;
        Ok(())
    }

    /// Returns for each row the word that its piece is a part of, counted over all sentences; None for `[CLS]` and
    /// `[SEP]`.
    pub fn word_of(&self) -> Vec<Option<usize>> {
        let mut words = vec![None; self.labels.len()];
        let sequences = (0..self.sequences.len()).map(|i| self.sequences.rows_of(i));
        for rows in sequences {
            let inner = rows.start + 1..rows.end - 1;
            for (row, word) in inner.clone().zip(&mut words[inner]) {
                *word = self.first_rows.partition_point(|&first| first <= row).checked_sub(1);
            }
        }
        words
    }

    fn all(&self) -> Vec<usize> {
        (0..self.sequences.len()).collect()
    }

    /// Returns a layer's rows with the numbers about capital letters behind each: (rows, H + 4).
    pub fn with_capitals(&self, layer: usize) -> Vec<f32> {
        let rows = self.layers[layer].chunks_exact(H).zip(self.capitals.chunks_exact(CAPITALS));
        rows.flat_map(|(vector, flags)| [vector, flags].concat()).collect()
    }

    /// Returns each word's most probable tag by sentence, from the logits of all rows, (rows, 9).
    pub fn tags(&self, logits: &[f32]) -> Vec<Vec<String>> {
        let labels = labels(logits);
        let mut tags = self.first_rows.iter().map(|&row| labels[row].clone());
        let sentences = self.sentences.iter();
        sentences.map(|sentence| tags.by_ref().take(sentence.words.len()).collect()).collect()
    }

    /// Returns the F1 of whole names, between 0 and 1, from the logits of all rows.
    pub fn f1(&self, logits: &[f32]) -> f64 {
        score(&self.tags(logits), &self.sentences)[2]
    }

    fn batch(&self, which: &[usize]) -> TagBatch {
        let rows = which.iter().flat_map(|&i| self.sequences.rows_of(i));
        TagBatch {
            labels: rows.map(|row| self.labels[row]).collect(),
            packed: Arc::new(self.sequences.batch(which)),
        }
    }
}

/// Returns each row's most probable tag from the logits, (rows, 9).
fn labels(logits: &[f32]) -> Vec<String> {
    let names = tag_names();
    logits.chunks_exact(CLASSES).map(|row| names[best(row) as usize].clone()).collect()
}

/// Returns where the words of a text are, in bytes: between blanks, with punctuation at their ends apart.
pub fn word_places(text: &str) -> Vec<Range<usize>> {
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    let mark = |c: char| c.is_ascii_punctuation();
    for chunk in text.split_inclusive(char::is_whitespace) {
        let word = chunk.trim_end();
        let open = word.len() - word.trim_start_matches(mark).len();
        let close = word.trim_end_matches(mark).len().max(open);
        let marks = |range: Range<usize>| range.map(|at| at..at + 1);
        let inner = (open < close).then_some(open..close);
        let all = marks(0..open).chain(inner).chain(marks(close..word.len()));
        places.extend(all.map(|place| start + place.start..start + place.end));
        start += chunk.len();
    }
    places
}

/// Returns numbers as a tensor of rows of `F`: (rows, F).
pub fn rows<const F: usize>(values: &[f32]) -> Rows<F, f32, Cpu> {
    Cpu::default().tensor_from_vec(values.to_vec(), (values.len() / F, Const::<F>))
}

/// A linear head: from `F` numbers of a row to the logits of the tags.
pub type Head<const F: usize> = Linear<F, CLASSES, f32, Cpu>;

/// Returns a head with a bias of zeros, whose weights are drawn from a normal distribution of this standard deviation,
/// the same ones each time.
pub fn head<const F: usize>(deviation: f32) -> Head<F> {
    let dev = Cpu::seed_from_u64(1);
    let weight: Tensor<Rank2<CLASSES, F>, f32, Cpu> = dev.sample_normal();
    Linear { weight: weight * deviation, bias: dev.zeros() }
}

/// Returns the optimizer of a head on frozen vectors: AdamW with a learning rate of 0.01 and a weight decay of 0.01.
pub fn adam<const F: usize>(head: &Head<F>) -> Adam<Head<F>, f32, Cpu> {
    let weight_decay = Some(WeightDecay::Decoupled(0.01));
    Adam::new(head, AdamConfig { lr: 1e-2, weight_decay, ..AdamConfig::default() })
}

/// A training batch of sentences.
pub struct TagBatch {
    /// The tokens.
    pub packed: Arc<Packed>,
    /// The number of each row's tag, if it has one.
    pub labels: Vec<Option<u32>>,
}

/// A tagger in training: an encoder and a head over its last hidden states.
pub struct Tagger {
    /// The encoder, on the crate's engine.
    pub encoder: Encoder,
    /// The head.
    pub head: Head<H>,
    /// The optimizer of the head.
    pub adam: Adam<Head<H>, f32, Cpu>,
}

impl Tagger {
    /// Returns a tagger with the encoder's parameters `values`, and a head whose weights have this standard deviation.
    ///
    /// # Errors
    /// If the model has another width than [`H`], or `values` don't fit it.
    pub fn new(model: &Model, values: &[f32], deviation: f32) -> Result<Self> {
        let width = model.config.hidden_size;
        if width != H {
            return Err(Error::Usage(format!("the model is {width} wide, but the head reads {H}")));
        }
        let head = head(deviation);
        Ok(Self {
            encoder: Encoder::new(CpuEngine::new(&model.config, &model.layout, values.to_vec())?),
            adam: Adam::new(&head, AdamConfig::default()),
            head,
        })
    }

    /// Returns a batch's last hidden states, with a tape that leads through the encoder. `number` is that of the step.
    ///
    /// # Errors
    /// If a sequence does not fit the model.
    pub fn hidden(&self, batch: &TagBatch, number: u64) -> Result<Recorded<(usize, Const<H>)>> {
        self.encoder.encode(&batch.packed, Dropout { seed: 1, step: number as u32 })
    }

    /// Updates the head by its gradients, and the encoder by those that the backward pass left in the engine. `number`
    /// is that of the step, counted from 1.
    ///
    /// # Errors
    /// If a gradient is missing or not a finite number.
    pub fn update(
        &mut self,
        gradients: &Gradients<f32, Cpu>,
        number: u64,
        rate: f64,
    ) -> Result<()> {
        self.adam.cfg.lr = rate;
        let updated = self.adam.update(&mut self.head, gradients);
        updated.map_err(|error| Error::Failed(error.to_string()))?;
        self.encoder.engine().update(&Update {
            optimizer: Default::default(),
            learning_rate: rate,
            step: number,
            max_norm: 1.0,
        })?;
        Ok(())
    }

    fn logits(&self, set: &Set) -> Result<Vec<f32>> {
        let hidden = self.encoder.infer::<H>(&set.sequences.batch(&set.all()))?;
        Ok(self.head.forward(hidden).as_vec())
    }

    /// Returns each word's most probable tag by sentence.
    ///
    /// # Errors
    /// If a sequence does not fit the model.
    pub fn tags(&self, set: &Set) -> Result<Vec<Vec<String>>> {
        Ok(set.tags(&self.logits(set)?))
    }

    /// Returns the most probable tag of each row, of every piece and special token.
    ///
    /// # Errors
    /// As [`tags`](Self::tags).
    pub fn labels(&self, set: &Set) -> Result<Vec<String>> {
        Ok(labels(&self.logits(set)?))
    }
}

/// Trains a tagger on a batch. Its arguments are the tagger, the batch, the number of the step, counted from 1, and the
/// learning rate. Returns the loss.
pub type TagStep = fn(&mut Tagger, &TagBatch, u64, f64) -> Result<f64>;

/// Trains a tagger by `step` for 20 epochs of batches of 16 sentences, with a peak learning rate of 1e-3, and draws a
/// live chart of the loss and of the F1 on `dev`. Returns that F1 at the end, between 0 and 1.
///
/// # Errors
/// Those of `step`.
pub fn fine_tune(
    name: &str,
    tagger: &mut Tagger,
    train: &Set,
    dev: &Set,
    step: TagStep,
) -> Result<f64> {
    let size = BatchSize::Examples(16);
    let batches: Vec<Vec<usize>> =
        (0..20).flat_map(|epoch| train.sequences.epoch(1, epoch, size)).collect();
    let total = steps(batches.len() as u64);
    let schedule = Schedule::linear(1e-3, total / 10, total);
    let chart = LineChart::new(format!("Finding names: {name}")).axes("step", "loss, and F1");
    let mut live = LiveChart::new(chart);
    let mut f1 = 0.0;
    for (number, which) in (1..=total).zip(&batches) {
        let batch = train.batch(which);
        let loss = step(tagger, &batch, number, schedule.rate(number))?;
        live.push("loss of the batch", number as f64, loss);
        if number % 14 == 0 || number == total {
            f1 = score(&tagger.tags(dev)?, &dev.sentences)[2];
            live.push("F1 on the other set", number as f64, f1);
        }
    }
    Ok(f1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::bundled;
    use crate::data::{Examples, Targets};
    use crate::lessons::support::variants;
    use crate::model::Part;
    use crate::tasks::{self, Labels, Options, Role};

    fn tokenizer() -> WordPiece {
        let folder = bundled::folder(bundled::TINY).unwrap();
        WordPiece::from_file(&WordPiece::file_in(&folder), None).unwrap()
    }

    fn list(tags: &str) -> Vec<String> {
        tags.split(' ').map(str::to_owned).collect()
    }

    fn sentence(words: &str, tags: &str) -> Sentence {
        Sentence { words: list(words), tags: list(tags) }
    }

    #[test]
    fn tags_have_names_and_colours() {
        let names = tag_names();
        assert_eq!((names.len(), names[0].as_str(), names[8].as_str()), (CLASSES, "O", "I-PER"));
        assert_eq!(colours(&["B-LOC", "I-PER", "O"]), [0, 3, TokenStrip::PLAIN]);
    }

    #[test]
    fn memory_finds_the_longest_known_name_and_mistakes_are_sorted() {
        let train = [sentence("Porto", "B-LOC"), sentence("FC Porto won", "B-ORG I-ORG O")];
        let asked = [sentence("FC Porto left Porto for Goa", "B-ORG I-ORG O B-PER O B-LOC")];
        let found = remembered(&train, &asked);
        assert_eq!(found[0], list("B-ORG I-ORG O B-LOC O O"));
        let truth = [names(&asked[0].tags)];
        let counts = mistakes(&all_names(&found), &truth);
        assert_eq!(counts.map(|count| count.1), [1, 1, 0, 0, 1]);
        let [precision, recall, f1, accuracy] = score(&found, &asked);
        assert_eq!((precision, recall, f1), (0.5, 1.0 / 3.0, 0.4));
        assert!((accuracy - 4.0 / 6.0).abs() < 1e-12);
        let wrong = [list("B-ORG O B-LOC O O O")];
        let counts = mistakes(&all_names(&wrong), &truth);
        assert_eq!(counts.map(|count| count.1), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn spoiling_replaces_about_the_asked_share() {
        let truth = vec![sentence("a b c d", "O O B-PER O"); 200];
        let changed = |share| {
            let spoiled = spoiled(&truth, share);
            let pairs = spoiled.iter().flatten().zip(truth.iter().flat_map(|s| &s.tags));
            pairs.filter(|(a, b)| a != b).count()
        };
        assert_eq!(changed(0.0), 0);
        assert!((300..420).contains(&changed(0.5)));
        assert_eq!(random_tags(3), random_tags(3));
        assert!((0..100).all(|number| (1..=8).contains(&random_tags(number).len())));
    }

    #[test]
    fn a_set_has_the_rows_and_labels_of_the_crate_s_task() {
        let tokenizer = tokenizer();
        let file = bundled::folder("names").unwrap().join("valid.txt");
        let set = Set::read(&file, &tokenizer).unwrap();
        let task = tasks::open("ner", &Options::default(), Labels::Training(&file)).unwrap();
        let read = variants::read(&*task, &file, Role::Train, &tokenizer).unwrap();
        let targets = Targets::Rows(set.labels.clone());
        let same = Examples { sequences: set.sequences.clone(), targets };
        assert_eq!(same.checksum(), read.examples().checksum());
    }

    #[test]
    fn words_are_between_blanks_and_punctuation_at_their_ends_is_apart() {
        for (text, expected) in [
            ("Ann O'Neill, Zoë (of Goa).", "Ann|O'Neill|,|Zoë|(|of|Goa|)|."),
            ("  a-b \n... \"x\"", "a-b|.|.|.|\"|x|\""),
            ("", ""),
        ] {
            let words: Vec<&str> = word_places(text).into_iter().map(|word| &text[word]).collect();
            assert_eq!(words.join("|"), expected);
        }
    }

    #[test]
    fn pieces_know_their_words() {
        let tokenizer = tokenizer();
        let text = "Calcutta slept. Zanzibar woke";
        let set = Set::of_text(text, &tokenizer).unwrap();
        let pieces = tokenizer.encode_with_special(text);
        assert_eq!(set.sequences.ids(0), pieces.ids);
        // Without punctuation inside words, the words are those of the tokenizer.
        let words: Vec<Option<usize>> =
            pieces.words.iter().map(|word| word.map(|word| word as usize)).collect();
        assert_eq!(set.word_of(), words);
        assert!(set.word_of().len() > set.first_rows.len() + 2);
    }

    #[test]
    fn capital_letters_stand_in_the_rows_of_first_pieces() {
        let set = Set::of_text("The ship left Lisbon", &tokenizer()).unwrap();
        let of_word = |word: usize| &set.capitals[set.first_rows[word] * CAPITALS..][..CAPITALS];
        assert_eq!(of_word(0), [1.0, 0.0, 0.0, 1.0]);
        assert_eq!(of_word(2), [0.0, 0.0, 1.0, 0.0]);
        assert_eq!(set.capitals[..CAPITALS], [0.0; CAPITALS]);
    }

    #[test]
    fn the_largest_logit_of_a_first_piece_is_its_word_s_tag() {
        let mut set = Set::of_text("Porto won", &tokenizer()).unwrap();
        let mut logits = vec![0.0; CLASSES * set.labels.len()];
        logits[set.first_rows[0] * CLASSES + 1] = 1.0;
        assert_eq!(set.tags(&logits), [list("B-LOC O")]);
        set.sentences[0].tags = list("B-LOC O");
        assert_eq!(set.f1(&logits), 1.0);
    }

    #[test]
    fn a_tagger_is_trained_by_the_given_step() {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let model = Model::read(&folder, &[Part::Encoder], None).unwrap();
        let mut set = Set::of_text("Porto won", &tokenizer()).unwrap();
        let mut engine =
            CpuEngine::new(&model.config, &model.layout, model.values.clone()).unwrap();
        set.encode(&mut engine).unwrap();
        let rows = set.labels.len();
        assert_eq!((set.layers.len(), set.layers[2].len()), (3, rows * H));
        assert_eq!(set.with_capitals(2).len(), rows * (H + CAPITALS));
        let mut tagger = Tagger::new(&model, &model.values, 0.0).unwrap();
        let step: TagStep = |tagger, batch, number, rate| {
            assert!(number <= 20 && rate > 0.0 && !batch.labels.is_empty());
            tagger.head.bias = Cpu::default().tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
            Ok(1.0)
        };
        let other = Set::of_text("Porto won", &tokenizer()).unwrap();
        assert_eq!(fine_tune("a test", &mut tagger, &other, &set, step).unwrap(), 0.0);
        assert_eq!(tagger.tags(&set).unwrap(), [list("B-LOC B-LOC")]);
        assert_eq!(tagger.labels(&set).unwrap(), vec!["B-LOC"; rows]);
    }

    #[test]
    fn an_update_changes_the_head_and_the_encoder() {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let model = Model::read(&folder, &[Part::Encoder], None).unwrap();
        let set = Set::of_text("Porto won", &tokenizer()).unwrap();
        let mut tagger = Tagger::new(&model, &model.values, 0.02).unwrap();
        let hidden = tagger.hidden(&set.batch(&[0]), 1).unwrap();
        let gradients = tagger.head.forward(hidden).square().mean().backward();
        let weight = tagger.head.weight.as_vec();
        tagger.update(&gradients, 1, 1e-3).unwrap();
        assert_ne!(tagger.head.weight.as_vec(), weight);
        assert_ne!(tagger.encoder.engine().parameters().unwrap(), model.values);
        assert_eq!(adam(&tagger.head).cfg.lr, 1e-2);
    }
}
