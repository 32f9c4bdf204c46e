//! Helpers of lessons 27 and 28 (small pre-training runs that differ in one decision) and of lesson 21 (files
//! of a fine-tuned model).

use std::path::Path;

use dfdx::prelude::*;
use serde_json::Value;

use crate::data::bad::BadRows;
use crate::data::sequences::BatchSize;
use crate::data::table::{Columns, Field, Row};
use crate::data::{
    Examples, Packed, Packing, PretrainingBatch, PretrainingData, PretrainingOptions,
};
use crate::engine::optimizer::{Optimizer, Update};
use crate::engine::{
    CpuEngine, Distillation, Engine, PretrainingEngine, PretrainingScores, SoftTargets, TaskEngine,
};
use crate::error::{Error, Result};
use crate::model::weights::Model;
use crate::model::{Bert, Config, Dropout, Layout, Part, Pass, real_rows};
use crate::tasks::{Dataset, Reading, Role, Task};
use crate::text::{Paragraph, WordPiece, sentences};
use crate::train::finetune::{Finetuner, Settings, TaskReport, TaskStep};
use crate::train::schedule::Schedule;
use crate::train::stop::Stop;

/// The parts of a model that only fills blanks: it has no head for the next sentence.
pub const MLM: [Part; 2] = [Part::Encoder, Part::MaskedLm];

/// Sequences of a training step.
pub const BATCH: usize = 16;

/// How often a training run is measured.
const MEASUREMENTS: u64 = 20;

/// The seed of dropout, which the lesson's models do not use.
const SEED: u64 = 15;

/// Hidden size, heads, size of a head and intermediate size of the lesson's models.
const WIDTH: usize = 128;
const HEADS: usize = 2;
const HEAD_SIZE: usize = WIDTH / HEADS;
const INTERMEDIATE: usize = 512;

/// Returns training and held-out examples of the text's first `documents` documents. About one document in
/// ten is held out.
///
/// # Errors
/// If an option is out of its range.
pub fn examples_of(
    paragraphs: &[Paragraph],
    tokenizer: &WordPiece,
    options: &PretrainingOptions,
    documents: u64,
) -> Result<(PretrainingData, PretrainingData)> {
    let part = paragraphs.iter().filter(|p| p.document < documents);
    PretrainingData::build_split(part.cloned().map(Ok), tokenizer, options, None, 10)
}

/// Returns the configuration of a small BERT without dropout: `layers` layers of width 128 with 2 heads.
pub fn config_of(layers: usize, tokenizer: &WordPiece) -> Config {
    let mut config = Config::new(layers, WIDTH, HEADS, INTERMEDIATE, tokenizer.vocab_size());
    config.hidden_dropout_prob = 0.0;
    config.attention_probs_dropout_prob = 0.0;
    config.initializer_range = 0.05;
    config
}

/// Returns an untrained model with these parts.
///
/// # Errors
/// If the configuration is invalid.
pub fn fresh(config: &Config, parts: &[Part], seed: u64) -> Result<CpuEngine> {
    let layout = Layout::new(config, parts);
    CpuEngine::new(config, &layout, layout.initialise(seed))
}

/// Trains a model for `steps` steps on the batches that `batch` returns for step 1, 2 and so on. Twenty times
/// during the run it scores the model on `test` and passes the step and the scores to `seen`. Returns the
/// final scores.
///
/// # Errors
/// If a batch can't be made, or the engine fails.
pub fn train(
    model: &mut CpuEngine,
    steps: u64,
    batch: &dyn Fn(u64) -> Result<PretrainingBatch>,
    test: &PretrainingBatch,
    seen: &mut dyn FnMut(u64, &PretrainingScores),
) -> Result<PretrainingScores> {
    run(
        model,
        steps,
        &mut |model, step| {
            model.pretraining_gradients(&batch(step)?, dropout(step))?;
            Ok(())
        },
        test,
        seen,
    )
}

/// Trains a student like [`train`], on consecutive batches of `data`, with a teacher's answers beside the
/// true tokens.
///
/// # Errors
/// If the teacher's hidden size or vocabulary is not the student's, or an engine fails.
pub fn train_student(
    student: &mut CpuEngine,
    teacher: &mut CpuEngine,
    data: &PretrainingData,
    steps: u64,
    test: &PretrainingBatch,
    seen: &mut dyn FnMut(u64, &PretrainingScores),
) -> Result<PretrainingScores> {
    let recipe = Distillation::default();
    run(
        student,
        steps,
        &mut |student, step| {
            let batch = data.batch(step - 1, BATCH)?;
            let answers = answers_to(teacher, &batch)?;
            let weights = recipe.weights(&batch);
            student.distillation_gradients_of_part(&batch, &answers, weights, dropout(step))?;
            Ok(())
        },
        test,
        seen,
    )
}

/// Returns a teacher's logits at the blanks of a batch, and its last hidden states at every token.
///
/// # Errors
/// If the teacher has no masked-LM head.
pub fn answers_to(teacher: &mut CpuEngine, batch: &PretrainingBatch) -> Result<SoftTargets> {
    let mut answers = SoftTargets::default();
    teacher.soft_targets(&batch.packed, &batch.masked_rows, &mut answers)?;
    Ok(answers)
}

fn run(
    model: &mut CpuEngine,
    steps: u64,
    gradients: &mut dyn FnMut(&mut CpuEngine, u64) -> Result<()>,
    test: &PretrainingBatch,
    seen: &mut dyn FnMut(u64, &PretrainingScores),
) -> Result<PretrainingScores> {
    let schedule = Schedule::linear(2e-3, steps / 10, steps);
    let optimizer = Optimizer { beta2: 0.98, ..Optimizer::default() };
    let mut scores = PretrainingScores::default();
    for step in 1..=steps {
        gradients(model, step)?;
        let learning_rate = schedule.rate(step);
        model.update(&Update { optimizer, learning_rate, step, max_norm: 1.0 })?;
        if step % (steps / MEASUREMENTS).max(1) == 0 || step == steps {
            scores = model.pretraining_scores(test)?;
            seen(step, &scores);
        }
    }
    Ok(scores)
}

fn dropout(step: u64) -> Dropout {
    Dropout { seed: SEED, step: step as u32 }
}

/// Returns loss and accuracy on blanks as a text: `2.590 nats, 56.1 % right`.
pub fn summary(scores: &PretrainingScores) -> String {
    let (loss, right) = (scores.mean_mlm_loss(), 100.0 * scores.mlm_accuracy());
    format!("{loss:.3} nats, {right:.1} % right")
}

/// Returns the token ids of the text's sentences: documents, their sentences, the ids of these.
pub fn sentence_ids(paragraphs: &[Paragraph], tokenizer: &WordPiece) -> Vec<Vec<Vec<u32>>> {
    let mut documents: Vec<Vec<Vec<u32>>> = Vec::new();
    let mut last = None;
    for paragraph in paragraphs {
        if last.replace(paragraph.document) != Some(paragraph.document) {
            documents.push(Vec::new());
        }
        let ids = sentences(&paragraph.text).into_iter().map(|s| tokenizer.encode(s).ids);
        if let Some(document) = documents.last_mut() {
            document.extend(ids);
        }
    }
    documents
}

/// Returns the examples that the crate makes of full sentences with room for `room` tokens of text, in random
/// order, without `[CLS]`, the last `[SEP]` and the masks.
///
/// # Errors
/// If `room` is too small for an example.
pub fn full_sentence_examples(
    paragraphs: &[Paragraph],
    tokenizer: &WordPiece,
    room: usize,
) -> Result<Vec<Vec<u32>>> {
    let options = PretrainingOptions {
        packing: Packing::Full,
        short_probability: 0.0,
        max_len: room + 2,
        ..PretrainingOptions::default()
    };
    let text = paragraphs.iter().cloned().map(Ok);
    let data = PretrainingData::build(text, tokenizer, &options, None)?;
    let examples = 0..data.examples_per_epoch();
    examples
        .map(|number| {
            let ids = unmasked(&data, number)?;
            Ok(ids[1..ids.len() - 1].to_vec())
        })
        .collect()
}

/// Returns the ids of an example with the original tokens in its blanks.
fn unmasked(data: &PretrainingData, number: u64) -> Result<Vec<u32>> {
    let mut example = data.example(number)?;
    for target in &example.targets {
        example.ids[target.position as usize] = target.label;
    }
    Ok(example.ids)
}

/// Computes the last hidden states of a sequence twice, with the same parameters: by the lessons' BERT with
/// `mask` added to its attention scores, (length, length), and by the engine as a left-to-right model.
/// Returns the largest difference.
///
/// # Errors
/// If the configuration is not one of [`config_of`].
///
/// # Panics
/// If the mask does not have length × length numbers.
pub fn gap_to_left_to_right(config: &Config, ids: &[u32], mask: Vec<f32>) -> Result<f64> {
    let config = Config { is_decoder: true, ..config.clone() };
    let layout = Layout::new(&config, &MLM);
    let values = layout.initialise(5);
    let one = alone(ids);
    let dev = Cpu::default();
    let bert = Bert::<WIDTH, HEADS, HEAD_SIZE, INTERMEDIATE, f32, Cpu>::build(
        &config, &layout, &values, &dev,
    )?;
    let pass = Pass {
        batch: &one,
        config: &config,
        dropout: None,
        mask: None,
        future: Some(dev.tensor_from_vec(mask, (ids.len(), ids.len()))),
    };
    let mut x = bert.embeddings.forward::<NoneTape>(&pass);
    for (number, layer) in bert.layers.iter().enumerate() {
        x = layer.forward(x, number as u32, &pass);
    }
    let layers = config.num_hidden_layers;
    let mut engine = CpuEngine::new(&config, &layout, values)?;
    let theirs = engine.hidden_states(&one, layers..layers + 1)?.layers.swap_remove(0);
    let gaps = real_rows(x, &one).as_vec().into_iter().zip(theirs).map(|(a, b)| (a - b).abs());
    Ok(f64::from(gaps.fold(0.0, f32::max)))
}

/// Returns a batch of one sequence of segment 0.
fn alone(ids: &[u32]) -> Packed {
    let mut one = Packed::default();
    one.push(0, ids, &vec![0; ids.len()]);
    one
}

/// Returns a batch that asks for the first `count` hidden tokens of `test`, one sequence each. `mask` is the
/// id of `[MASK]`: the asked token is replaced by it, and all others are given. Without it nothing is hidden,
/// and the answer is expected at the token before, as from a left-to-right model.
pub fn one_by_one(test: &PretrainingBatch, count: usize, mask: Option<u32>) -> PretrainingBatch {
    let mut original = test.packed.clone();
    for (row, label) in test.masked_rows.iter().zip(&test.masked_labels) {
        original.ids[*row as usize] = *label;
    }
    let mut asked = PretrainingBatch::default();
    for (row, label) in test.masked_rows.iter().zip(&test.masked_labels).take(count) {
        let row = *row as usize;
        let Some(sequence) = original.ranges().find(|rows| rows.contains(&row)) else {
            continue;
        };
        let place = (asked.packed.rows() + row - sequence.start) as u32;
        let mut ids = original.ids[sequence.clone()].to_vec();
        match mask {
            Some(mask) => {
                asked.masked_rows.push(place);
                ids[row - sequence.start] = mask;
            }
            // [CLS] is never asked for, so there is a token before.
            None => asked.masked_rows.push(place - 1),
        }
        asked.masked_labels.push(*label);
        let number = asked.packed.sequences() as u64;
        asked.packed.push(number, &ids, &original.segments[sequence]);
    }
    asked
}

/// Asks a model for the pieces of long words in the first 200 examples of `data`. `words` groups the
/// positions of an example into words; of those with several pieces each piece is asked for in turn, with the
/// word's other pieces given or, if `whole`, hidden too. `mask` is the id of `[MASK]`. Returns how many
/// pieces were guessed right, and how many were asked for.
///
/// # Errors
/// If the model has no masked-LM head.
pub fn pieces_right(
    model: &mut CpuEngine,
    data: &PretrainingData,
    words: &dyn Fn(&[u32]) -> Vec<Vec<usize>>,
    mask: u32,
    whole: bool,
) -> Result<(usize, usize)> {
    let (mut right, mut total) = (0, 0);
    for number in 0..data.examples_per_epoch().min(200) {
        let original = unmasked(data, number)?;
        for word in words(&original).iter().filter(|word| word.len() > 1) {
            for &asked in word {
                let mut ids = original.clone();
                for &place in word.iter().filter(|&&place| whole || place == asked) {
                    ids[place] = mask;
                }
                let logits = model.masked_lm_logits(&alone(&ids), &[asked as u32])?;
                let label = logits[original[asked] as usize];
                right += usize::from(logits.iter().all(|&z| z <= label));
                total += 1;
            }
        }
    }
    Ok((right, total))
}

/// Reads a file of a task's data; a malformed row is an error. Texts are cut to 128 tokens.
///
/// # Errors
/// If the file can't be read.
pub fn read(
    task: &dyn Task,
    file: &Path,
    role: Role,
    tokenizer: &WordPiece,
) -> Result<Box<dyn Dataset>> {
    let reading = Reading {
        wordpiece: tokenizer,
        max_len: 128,
        limit: None,
        split: None,
        bad: &mut BadRows::refused(),
        notes: &mut Vec::new(),
    };
    task.read(file, role, reading)
}

/// Passes each step's number and loss on.
struct Losses<'a>(&'a mut dyn FnMut(u64, f64));

impl TaskReport for Losses<'_> {
    fn step(&mut self, step: &TaskStep) {
        (self.0)(step.step, step.loss);
    }

    fn skipped(&mut self, _: u64, _: &str) {}

    fn epoch(&mut self, _: u32, _: u64, _: &mut dyn TaskEngine) -> Result<()> {
        Ok(())
    }
}

/// Fine-tunes a model on `train` for `epochs` epochs, in batches of 16 at a learning rate of 0.001, and passes
/// each step's number and loss (in nats) to `seen`. Returns the trained parameters.
///
/// # Errors
/// If the run diverges, or the engine fails.
pub fn fine_tune(
    model: &Model,
    train: &Examples,
    epochs: u32,
    seen: &mut dyn FnMut(u64, f64),
) -> Result<Vec<f32>> {
    let engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let settings = Settings {
        epochs,
        batch: BatchSize::Examples(16),
        learning_rate: 1e-3,
        seed: 1,
        ..Settings::default()
    };
    let mut trainer = Finetuner::new(Box::new(engine), train, settings)?;
    trainer.run(None, &mut Losses(seen), &Stop::default())?;
    trainer.engine().parameters()
}

/// Returns the texts of a file with the columns `text` and `label`.
///
/// # Errors
/// If the file can't be read.
pub fn texts(file: &Path) -> Result<Vec<String>> {
    let text =
        |_: &Path, row: Row| Ok(row.fields[0].as_ref().map_or_else(String::new, Field::text));
    Columns::parse("text")?.read_as(file, 1, &mut BadRows::refused(), text)
}

/// Returns the names of the files in a folder and their sizes in bytes, by name.
///
/// # Errors
/// If the folder can't be read.
pub fn files(folder: &Path) -> Result<Vec<(String, u64)>> {
    let read = || -> std::io::Result<Vec<(String, u64)>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                all.push((name, entry.metadata()?.len()));
            }
        }
        all.sort();
        Ok(all)
    };
    read().map_err(|e| Error::io(folder, e))
}

/// Splits a safetensors file into its header and the bytes of its tensors.
///
/// # Errors
/// If the file is cut off, or its header is no JSON.
pub fn split_file(bytes: &[u8]) -> Result<(Value, &[u8])> {
    let broken = || Error::Failed("this is no safetensors file".into());
    let length = bytes.first_chunk::<8>().ok_or_else(broken)?;
    let end = usize::try_from(u64::from_le_bytes(*length)).ok().and_then(|n| n.checked_add(8));
    let (head, data) = end.and_then(|end| bytes.split_at_checked(end)).ok_or_else(broken)?;
    let header = serde_json::from_slice(&head[8..]).map_err(|_| broken())?;
    Ok((header, data))
}

/// Writes a configuration and one file of weights into an empty folder and loads the folder as a model.
/// Returns the error, or "it loads".
///
/// # Errors
/// If a file can't be written.
pub fn load_error(folder: &Path, config: &str, name: &str, weights: &[u8]) -> Result<String> {
    let write = || -> std::io::Result<()> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("config.json"), config)?;
        std::fs::write(folder.join(name), weights)
    };
    write().map_err(|e| Error::io(folder, e))?;
    let loaded = Model::read_all(folder);
    Ok(loaded.map_or_else(|error| error.to_string(), |_| "it loads".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Casing, embedded};

    fn text() -> (Vec<Paragraph>, WordPiece) {
        let paragraphs: Vec<Paragraph> = embedded::paragraphs().take(40).collect();
        let texts = paragraphs.iter().map(|p| Ok(p.text.clone()));
        let tokenizer = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
        (paragraphs, tokenizer)
    }

    fn options() -> PretrainingOptions {
        PretrainingOptions {
            max_len: 32,
            packing: Packing::Document,
            ..PretrainingOptions::default()
        }
    }

    #[test]
    fn training_lowers_the_loss_and_is_measured_at_its_end() {
        let (paragraphs, tokenizer) = text();
        let (data, _) = examples_of(&paragraphs, &tokenizer, &options(), u64::MAX).unwrap();
        let test = data.batch(0, 16).unwrap();
        let mut teacher = fresh(&config_of(1, &tokenizer), &MLM, 1).unwrap();
        let before = teacher.pretraining_scores(&test).unwrap().mean_mlm_loss();
        let mut steps = Vec::new();
        let batch = |step: u64| data.batch(step - 1, BATCH);
        let seen = &mut |step: u64, _: &PretrainingScores| steps.push(step);
        let scores = train(&mut teacher, 30, &batch, &test, seen).unwrap();
        assert_eq!((steps.len(), steps.last()), (30, Some(&30)));
        assert!(scores.mean_mlm_loss() < before);
        assert_eq!(scores, teacher.pretraining_scores(&test).unwrap());
        assert!(summary(&scores).ends_with("% right"));
        let mut student = fresh(&config_of(1, &tokenizer), &MLM, 2).unwrap();
        let before = student.pretraining_scores(&test).unwrap().mean_mlm_loss();
        let seen = &mut |_: u64, _: &PretrainingScores| {};
        let scores = train_student(&mut student, &mut teacher, &data, 30, &test, seen).unwrap();
        assert!(scores.mean_mlm_loss() < before);
    }

    #[test]
    fn full_sentences_hold_the_whole_text() {
        let (paragraphs, tokenizer) = text();
        let documents = sentence_ids(&paragraphs, &tokenizer);
        assert_eq!(documents.len() as u64, paragraphs.last().unwrap().document + 1);
        let examples = full_sentence_examples(&paragraphs, &tokenizer, 62).unwrap();
        assert!(examples.iter().all(|ids| ids.len() <= 62));
        let sep = tokenizer.special().sep;
        let tokens = examples.iter().flatten().filter(|&&id| id != sep).count();
        assert_eq!(tokens, documents.iter().flatten().flatten().count());
    }

    #[test]
    fn only_the_mask_of_the_future_equals_the_left_to_right_engine() {
        let (paragraphs, tokenizer) = text();
        let ids = tokenizer.encode_with_special(&paragraphs[0].text).ids;
        let length = ids.len();
        let config = config_of(2, &tokenizer);
        let gap = |sees: &dyn Fn(usize, usize) -> bool| {
            let places = (0..length * length).map(|i| (i / length, i % length));
            let mask = places.map(|(q, k)| if sees(q, k) { 0.0 } else { -1e9 }).collect();
            gap_to_left_to_right(&config, &ids, mask).unwrap()
        };
        assert!(gap(&|q, k| k <= q) < 1e-3);
        assert!(gap(&|_, _| true) > 1e-2);
        assert!(gap(&|q, k| k <= q + 1) > 1e-2);
    }

    #[test]
    fn both_kinds_of_model_are_asked_for_the_same_tokens() {
        let (paragraphs, tokenizer) = text();
        let (data, _) = examples_of(&paragraphs, &tokenizer, &options(), u64::MAX).unwrap();
        let test = data.batch(0, 8).unwrap();
        let mask = tokenizer.special().mask;
        let both = one_by_one(&test, 5, Some(mask));
        let left = one_by_one(&test, 5, None);
        assert_eq!(both.masked_labels, left.masked_labels);
        assert_eq!(both.masked_labels, test.masked_labels[..5]);
        for (row, label) in both.masked_rows.iter().zip(&both.masked_labels) {
            let row = *row as usize;
            assert_eq!((both.packed.ids[row], left.packed.ids[row]), (mask, *label));
        }
        let before: Vec<u32> = both.masked_rows.iter().map(|row| row - 1).collect();
        assert_eq!(left.masked_rows, before);
    }

    #[test]
    fn pieces_of_long_words_are_counted_once_each() {
        let (paragraphs, tokenizer) = text();
        let (data, _) = examples_of(&paragraphs, &tokenizer, &options(), u64::MAX).unwrap();
        let mut model = fresh(&config_of(1, &tokenizer), &MLM, 1).unwrap();
        let words = |_: &[u32]| vec![vec![1, 2], vec![3]];
        let mask = tokenizer.special().mask;
        let (right, total) = pieces_right(&mut model, &data, &words, mask, true).unwrap();
        assert_eq!(total as u64, 2 * data.examples_per_epoch().min(200));
        assert!(right <= total);
    }

    #[test]
    fn a_safetensors_file_is_split_into_header_and_data() {
        let header =
            serde_json::json!({ "a": { "dtype": "U8", "shape": [3], "data_offsets": [0, 3] } });
        let json = header.to_string().into_bytes();
        let length = (json.len() as u64).to_le_bytes();
        let file = [&length[..], &json, &[1, 2, 3]].concat();
        let (again, data) = split_file(&file).unwrap();
        assert_eq!((again, data), (header, &[1, 2, 3][..]));
        for broken in [&file[..4], &file[..12], &[0xff; 16][..]] {
            assert!(split_file(broken).is_err());
        }
    }

    #[test]
    fn a_folder_that_does_not_load_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("broken");
        let error = load_error(&folder, "{}", "pytorch_model.bin", b"abc").unwrap();
        assert_ne!(error, "it loads");
        let listed = files(&folder).unwrap();
        assert_eq!(listed[0].1, 2);
        assert_eq!(listed[1], ("pytorch_model.bin".into(), 3));
    }

    #[test]
    fn a_model_is_fine_tuned_on_the_spam_set() {
        let set = crate::lessons::data::folder("spam").unwrap();
        let base = crate::lessons::data::folder(crate::lessons::data::TINY).unwrap();
        let file = set.join("dev.tsv");
        let tokenizer = WordPiece::from_file(&WordPiece::file_in(&base), None).unwrap();
        let task = crate::tasks::your_own("text,label", &file).unwrap();
        let mut model = Model::read(&base, &task.part().with_encoder(), Some(1)).unwrap();
        task.describe(&mut model.config);
        let data = read(&*task, &file, Role::Train, &tokenizer).unwrap();
        assert_eq!(texts(&file).unwrap().len(), data.rows());
        let mut losses = Vec::new();
        let seen = &mut |_: u64, loss: f64| losses.push(loss);
        let values = fine_tune(&model, data.examples(), 2, seen).unwrap();
        assert_eq!(losses.len(), 2 * data.rows().div_ceil(16));
        assert_ne!(values, model.values);
    }
}
