//! Feature extraction: the encoder's output as vectors of tokens or of whole texts (Devlin et al., section 5.3;
//! for sentences Reimers and Gurevych, arXiv 1908.10084).

mod file;
pub mod frozen;

use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::data::sequences::BatchSize;
use crate::data::{Packed, Sequences};
use crate::engine::Engine;
use crate::error::{Error, Result};

pub use file::Vectors;
pub use frozen::Frozen;

/// How the vectors of several layers become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// One after the other.
    Concat,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
}

/// How the vectors of tokens become one vector of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Pool {
    /// Their mean, special tokens included.
    Mean,
    /// That of `[CLS]`.
    Cls,
    /// They don't: every token keeps its vector.
    None,
}

/// Which vectors are computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The layers whose output is used: 0 is after the embeddings.
    pub layers: RangeInclusive<usize>,
    /// How the vectors of several layers become one.
    pub combine: Combine,
    /// How the vectors of tokens become one vector of the text.
    pub pool: Pool,
    /// Whether every vector is scaled to length 1.
    pub normalize: bool,
}

impl Settings {
    /// Returns the length of the vectors of a model with this hidden size.
    pub fn width(&self, hidden: usize) -> usize {
        match self.combine {
            Combine::Concat => hidden * self.layers.clone().count(),
            Combine::Sum | Combine::Mean => hidden,
        }
    }
}

/// Layers counted as Python counts a list: -1 is the last. Both ends are included.
pub type LayerRange = RangeInclusive<i32>;

/// Parses a layer, such as `-1`, or the first and the last of several, such as `-4..-1`.
pub fn parse_layers(text: &str) -> Result<LayerRange> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let one = |layer: &str| layer.trim().parse().ok();
    match (one(first), one(last.trim_start_matches('='))) {
        (Some(first), Some(last)) => Ok(first..=last),
        _ => Err(Error::Usage(format!(
            "layers {text}: expected a layer such as -1, or two such as -4..-1"
        ))),
    }
}

/// Returns which hidden states these layers are: 0 is after the embeddings.
///
/// # Errors
/// If the model has no such layers.
pub fn layers(range: LayerRange, model_layers: usize) -> Result<RangeInclusive<usize>> {
    let names = format!("layers 0 (embeddings) to {model_layers}");
    counted(range, model_layers + 1, &names)
}

/// Returns these of `count` layers; `names` describes in an error which there are.
pub fn counted(range: LayerRange, count: usize, names: &str) -> Result<RangeInclusive<usize>> {
    let (first, last) = range.clone().into_inner();
    let wrong = |why: String| {
        let several = (first != last).then(|| format!("..{last}"));
        let several = several.unwrap_or_default();
        Error::Usage(format!("layers {first}{several}: {why}"))
    };
    let index = |layer: i32| {
        let from = if layer < 0 { count } else { 0 };
        let index = from.checked_add_signed(layer as isize);
        let index = index.filter(|index| *index < count);
        index.ok_or_else(|| wrong(format!("the model has {names}, or -{count} to -1")))
    };
    let layers = index(first)?..=index(last)?;
    if layers.is_empty() {
        return Err(wrong("the first layer comes after the last".into()));
    }
    Ok(layers)
}

/// What a sentence-transformers folder specifies about its vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Advice {
    /// How the vectors of tokens become one vector of the text.
    pub pool: Option<Pool>,
    /// Whether every vector is scaled to length 1.
    pub normalize: bool,
    /// Longest sequence in tokens.
    pub max_len: Option<usize>,
}

impl Advice {
    /// Reads `modules.json` and the files that it names; a folder without one specifies nothing.
    ///
    /// # Errors
    /// If the folder specifies something that Cloze does not have.
    pub fn read(folder: &Path) -> Result<Self> {
        let modules = folder.join("modules.json");
        let mut advice = Self::default();
        if !modules.exists() {
            return Ok(advice);
        }
        advice.max_len = json(&folder.join("sentence_bert_config.json"))?
            .and_then(|config| Some(config.get("max_seq_length")?.as_u64()? as usize));
        let list = json(&modules)?.unwrap_or_default();
        for module in list.as_array().into_iter().flatten() {
            let of = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
            match of("type").rsplit('.').next().unwrap_or_default() {
                "Transformer" => {}
                "Normalize" => advice.normalize = true,
                "Pooling" => {
                    let path = folder.join(of("path")).join("config.json");
                    advice.pool = Some(pooling(&path)?);
                }
                other => {
                    let message = format!(
                        "asks for a module {other:?}; only Transformer, Pooling and Normalize are known"
                    );
                    return Err(Error::file(&modules, message));
                }
            }
        }
        Ok(advice)
    }
}

/// Reads a JSON file; returns None if there is none.
fn json(path: &Path) -> Result<Option<Value>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|e| Error::file(path, format!("is not JSON: {e}")))
}

/// Reads the pooling that a sentence-transformers module specifies.
fn pooling(path: &Path) -> Result<Pool> {
    let config = json(path)?.ok_or_else(|| Error::file(path, "is missing"))?;
    let on = |key: &str| config.get(key).and_then(Value::as_bool) == Some(true);
    let others = ["max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"];
    let mut others = others.iter();
    let other = others.find(|mode| on(&format!("pooling_mode_{mode}")));
    let (mean, cls) = (on("pooling_mode_mean_tokens"), on("pooling_mode_cls_token"));
    match (mean, cls, other) {
        (true, false, None) => Ok(Pool::Mean),
        (false, true, None) => Ok(Pool::Cls),
        _ => Err(Error::file(
            path,
            "asks for a pooling other than mean or [CLS] alone: choose one of these",
        )),
    }
}

/// Computes the vectors of all sequences, in their order: one for each, or without pooling one for each token.
pub fn embed(
    engine: &mut dyn Engine,
    sequences: &Sequences,
    settings: &Settings,
) -> Result<Vec<Vec<f32>>> {
    let ranks = engine.ranks().clone();
    // All ranks must make the same batches, but may have different numbers of threads.
    let tokens = ranks.least(engine.inference_tokens())?;
    let batches = sequences.by_length(BatchSize::Tokens(tokens));
    let mut own = Vec::new();
    for batch in batches.iter().skip(ranks.rank()).step_by(ranks.size()) {
        crate::interrupt::poll();
        let vectors = embed_batch(engine, &sequences.batch(batch), settings)?;
        own.extend(vectors.into_iter().flatten());
    }
    let gathered = ranks.gather_values(own)?;
    let mut rests: Vec<&[f32]> = gathered.iter().map(Vec::as_slice).collect();
    let width = settings.width(engine.config().hidden_size);
    let mut all = vec![Vec::new(); sequences.len()];
    for (number, batch) in batches.iter().enumerate() {
        let rest = &mut rests[number % ranks.size()];
        for sequence in batch.iter().flat_map(|&example| sequences.of_example(example)) {
            let vectors = match settings.pool {
                Pool::None => sequences.ids(sequence).len(),
                Pool::Cls | Pool::Mean => 1,
            };
            let (own, others) = rest.split_at(vectors * width);
            all[sequence] = own.to_vec();
            *rest = others;
        }
    }
    Ok(all)
}

/// Computes the vectors of a batch's sequences: one for each, or without pooling one for each token.
pub fn embed_batch(
    engine: &mut dyn Engine,
    batch: &Packed,
    settings: &Settings,
) -> Result<Vec<Vec<f32>>> {
    let hidden = engine.config().hidden_size;
    let width = settings.width(hidden);
    let layers = *settings.layers.start()..*settings.layers.end() + 1;
    let states = engine.hidden_states(batch, layers)?;
    let of_sequence = |rows: std::ops::Range<usize>| {
        let mut tokens = vec![0.0; rows.len() * width];
        for (row, vector) in rows.zip(tokens.chunks_exact_mut(width)) {
            let at = row * hidden..(row + 1) * hidden;
            combine(states.layers.iter().map(|layer| &layer[at.clone()]), settings.combine, vector);
        }
        let mut vectors = match settings.pool {
            Pool::None => tokens,
            Pool::Cls => tokens[..width].to_vec(),
            Pool::Mean => mean(&tokens, width),
        };
        if settings.normalize {
            vectors.chunks_exact_mut(width).for_each(normalize);
        }
        vectors
    };
    Ok(batch.ranges().map(of_sequence).collect())
}

/// Computes the vector of a token from those of its layers.
fn combine<'a>(layers: impl ExactSizeIterator<Item = &'a [f32]>, how: Combine, into: &mut [f32]) {
    let factor = match how {
        Combine::Mean => 1.0 / layers.len() as f32,
        Combine::Sum | Combine::Concat => 1.0,
    };
    for (index, layer) in layers.enumerate() {
        match how {
            Combine::Concat => into[index * layer.len()..][..layer.len()].copy_from_slice(layer),
            Combine::Sum | Combine::Mean => {
                for (sum, x) in into.iter_mut().zip(layer) {
                    *sum += factor * x;
                }
            }
        }
    }
}

fn mean(tokens: &[f32], width: usize) -> Vec<f32> {
    let mut mean = vec![0.0; width];
    for token in tokens.chunks_exact(width) {
        for (sum, x) in mean.iter_mut().zip(token) {
            *sum += x;
        }
    }
    let count = (tokens.len() / width) as f32;
    mean.iter_mut().for_each(|x| *x /= count);
    mean
}

/// Scales a vector to length 1, unless it is all zeros.
fn normalize(vector: &mut [f32]) {
    let squares = vector.iter().map(|&x| f64::from(x).powi(2));
    let length = squares.sum::<f64>().sqrt();
    if length > 0.0 {
        let scale = |x: &mut f32| *x = (f64::from(*x) / length) as f32;
        vector.iter_mut().for_each(scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::CpuEngine;
    use crate::model::{Config, Layout, Part};
    use crate::text::{Casing, WordPiece};

    #[test]
    fn layers_are_counted_as_in_python() {
        let layers = |text| layers(parse_layers(text)?, 6);
        assert_eq!(layers("-1").unwrap(), 6..=6);
        assert_eq!(layers("-4..-1").unwrap(), 3..=6);
        assert_eq!(layers("0..=2").unwrap(), 0..=2);
        assert_eq!(layers("-7").unwrap(), 0..=0);
        for case in [
            "-8|layers -8: the model has layers 0 (embeddings) to 6, or -7 to -1",
            "7|layers 0 (embeddings) to 6",
            "last|expected a layer such as -1",
            "-1..-4|layers -1..-4: the first layer comes after the last",
        ] {
            let (text, expected) = case.split_once('|').unwrap();
            let message = layers(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    fn engine() -> CpuEngine {
        let config = Config::new(3, 8, 2, 16, 8);
        let layout = Layout::new(&config, &[Part::Encoder]);
        CpuEngine::new(&config, &layout, layout.initialise(1)).unwrap()
    }

    fn wordpiece() -> WordPiece {
        let vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"];
        WordPiece::from_vocab(vocab.map(String::from).into(), Casing::Uncased).unwrap()
    }

    fn sequences() -> Sequences {
        Sequences::tokenise(&wordpiece(), &[("a", None), ("a b c", None), ("", None)], 16).unwrap()
    }

    #[test]
    fn every_window_of_a_text_has_its_own_vector() {
        let mut engine = engine();
        let texts = ["a b c a b c b", "a", "c b a a"];
        let sequences = Sequences::in_windows(&wordpiece(), &texts, 5).unwrap();
        assert!(sequences.len() > sequences.examples());
        let settings =
            Settings { layers: 3..=3, combine: Combine::Mean, pool: Pool::Cls, normalize: false };
        let all = embed(&mut engine, &sequences, &settings).unwrap();
        let mut expected = Vec::new();
        for example in 0..sequences.examples() {
            let batch = sequences.batch(&[example]);
            expected.extend(embed_batch(&mut engine, &batch, &settings).unwrap());
        }
        let close = |(a, b): (&Vec<f32>, &Vec<f32>)| {
            a.len() == 8 && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
        };
        assert!(all.len() == sequences.len() && all.iter().zip(&expected).all(close));
    }

    #[test]
    fn pooling_and_combining_agree_with_the_hidden_states() {
        let (mut engine, sequences) = (engine(), sequences());
        let states = engine.hidden_states(&sequences.batch(&[1]), 0..4).unwrap();
        let rows = 5;
        let of = |layer: usize, row: usize, i: usize| states.layers[layer][row * 8 + i];
        for combine in [Combine::Concat, Combine::Sum, Combine::Mean] {
            for pool in [Pool::Mean, Pool::Cls, Pool::None] {
                let settings = Settings { layers: 2..=3, combine, pool, normalize: false };
                let got = embed(&mut engine, &sequences, &settings).unwrap();
                assert_eq!(got.len(), 3);
                let width = settings.width(8);
                let token = |row: usize, i: usize| match combine {
                    Combine::Concat => of(2 + i / 8, row, i % 8),
                    Combine::Sum => of(2, row, i) + of(3, row, i),
                    Combine::Mean => (of(2, row, i) + of(3, row, i)) / 2.0,
                };
                let expected: Vec<f32> = match pool {
                    Pool::None => (0..rows * width).map(|k| token(k / width, k % width)).collect(),
                    Pool::Cls => (0..width).map(|i| token(0, i)).collect(),
                    Pool::Mean => (0..width)
                        .map(|i| (0..rows).map(|row| token(row, i)).sum::<f32>() / rows as f32)
                        .collect(),
                };
                assert_eq!(got[1].len(), expected.len(), "{combine:?} {pool:?}");
                for (got, expected) in got[1].iter().zip(&expected) {
                    assert!((got - expected).abs() < 1e-5, "{combine:?} {pool:?}");
                }
            }
        }
    }

    #[test]
    fn normalised_vectors_have_length_one() {
        let settings =
            Settings { layers: 3..=3, combine: Combine::Concat, pool: Pool::Mean, normalize: true };
        for vector in embed(&mut engine(), &sequences(), &settings).unwrap() {
            let length: f32 = vector.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn the_pooling_of_a_sentence_transformers_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Advice::read(folder.path()).unwrap(), Advice::default());
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        write("sentence_bert_config.json", r#"{"max_seq_length": 99}"#);
        let pooling = |mode: &str| {
            let text = format!(r#"{{"pooling_mode_{mode}": true}}"#);
            write("1_Pooling/config.json", &text);
        };
        let modules = |last: &str| {
            format!(
                r#"[{{"path": "", "type": "sentence_transformers.models.Transformer"}},
                    {{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}},
                    {{"path": "2", "type": "sentence_transformers.models.{last}"}}]"#
            )
        };
        write("modules.json", &modules("Normalize"));
        pooling("cls_token");
        let advice = Advice::read(folder.path()).unwrap();
        let expected = (Some(Pool::Cls), true, Some(99));
        assert_eq!((advice.pool, advice.normalize, advice.max_len), expected);
        pooling("max_tokens");
        let message = Advice::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("choose one of these"), "{message}");
        pooling("mean_tokens");
        write("modules.json", &modules("Dense"));
        let message = Advice::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains("a module \"Dense\""), "{message}");
    }
}
