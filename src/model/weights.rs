//! Model folders in the Hugging Face layout: `config.json` and `model.safetensors`.
//!
//! Reading accepts names with and without the `bert.` prefix and the old `gamma`/`beta`; it refuses
//! a tensor that is missing, unknown or of another shape by name. Writing gives what transformers
//! loads without a missing or unexpected key.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::{Error, Result};
use crate::files::write_atomic;

use super::{Config, Layout, Part};

/// The file that holds the weights.
pub const WEIGHTS: &str = "model.safetensors";
/// The file that holds the configuration.
pub const CONFIG: &str = "config.json";

/// A model read from a folder.
#[derive(Debug)]
pub struct Model {
    pub config: Config,
    pub layout: Arc<Layout>,
    /// Laid out as `layout` says.
    pub values: Vec<f32>,
    /// Parts that the file didn't hold and that start from their initialisers.
    pub fresh: Vec<Part>,
}

impl Model {
    /// Reads the parts that the task needs. A part that the file lacks as a whole is initialised
    /// from `seed` when that is given, and refused otherwise.
    pub fn read(folder: &Path, parts: &[Part], seed: Option<u64>) -> Result<Self> {
        let config = Config::read(&folder.join(CONFIG))?;
        let path = folder.join(WEIGHTS);
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
        let file = File::parse(&path, &bytes)?;

        let layout = Layout::new(&config, parts);
        // A head that was trained for other classes is as good as none to a task that starts one.
        let fits = |part| seed.is_none() || file.fits(&layout, part);
        let missing: Vec<Part> = parts
            .iter()
            .copied()
            .filter(|&part| part != Part::Encoder && !(file.holds(part) && fits(part)))
            .collect();
        let mut values = match (missing.first(), seed) {
            (None, _) => vec![0.0; layout.total()],
            (Some(_), Some(seed)) => layout.initialise(seed),
            (Some(&part), None) => {
                return Err(Error::file(
                    &path,
                    format!("holds no {}: {}", describe(part), advice(part)),
                ));
            }
        };
        for (parameter, range) in layout.iter() {
            if !missing.contains(&parameter.part) {
                file.copy(&parameter.name, &parameter.shape, &mut values[range])?;
            }
        }
        file.refuse_unknown(&config)?;
        Ok(Self {
            config,
            layout,
            values,
            fresh: missing,
        })
    }

    /// Reads every part that the file holds.
    pub fn read_all(folder: &Path) -> Result<Self> {
        let path = folder.join(WEIGHTS);
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
        let file = File::parse(&path, &bytes)?;
        let config = Config::read(&folder.join(CONFIG))?;
        let mut parts = vec![Part::Encoder];
        parts.extend(file.task_head(&config));
        parts.extend(
            super::PRETRAINING[1..]
                .iter()
                .filter(|&&part| file.holds(part)),
        );
        Self::read(folder, &parts, None)
    }

    /// Writes `config.json` and `model.safetensors` into `folder`, each whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write(folder, &self.config, &self.layout, &self.values)
    }
}

/// Writes a model folder: see [`Model::write`].
pub fn write(folder: &Path, config: &Config, layout: &Layout, values: &[f32]) -> Result<()> {
    let mut config = config.clone();
    let bytes = to_safetensors(&config, layout, values);
    write_atomic(&folder.join(WEIGHTS), &bytes)?;
    config.architectures = vec![architecture(&config, layout).into()];
    write_atomic(&folder.join(CONFIG), config.to_json().as_bytes())
}

const MULTIPLE_CHOICE: &str = "BertForMultipleChoice";
const TOKEN_CLASSIFICATION: &str = "BertForTokenClassification";

/// The class of transformers that loads these parts.
fn architecture(config: &Config, layout: &Layout) -> &'static str {
    let has = |part| layout.parts().contains(&part);
    let task = layout.parts().iter().find_map(|part| match part {
        Part::SequenceClassifier(_) => Some("BertForSequenceClassification"),
        Part::MultipleChoice => Some(MULTIPLE_CHOICE),
        Part::TokenClassifier(_) => Some(TOKEN_CLASSIFICATION),
        Part::Span => Some("BertForQuestionAnswering"),
        Part::Encoder | Part::Pooler | Part::MaskedLm | Part::NextSentence => None,
    });
    if let Some(task) = task {
        return task;
    }
    match (has(Part::MaskedLm), has(Part::NextSentence)) {
        (true, false) if config.is_decoder => "BertLMHeadModel",
        (true, true) => "BertForPreTraining",
        (true, false) => "BertForMaskedLM",
        (false, true) => "BertForNextSentencePrediction",
        (false, false) => "BertModel",
    }
}

fn to_safetensors(config: &Config, layout: &Layout, values: &[f32]) -> Vec<u8> {
    // A bare encoder is a `BertModel`, whose names have no prefix.
    let prefixed = architecture(config, layout) != "BertModel";
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let tensors = layout.iter().map(|(parameter, range)| {
        let name = match parameter.part {
            Part::Encoder | Part::Pooler if prefixed => format!("bert.{}", parameter.name),
            _ => parameter.name.clone(),
        };
        let data = &bytes[range.start * 4..range.end * 4];
        // The view is refused only if the length disagrees with the shape; both are the layout's.
        let view = TensorView::new(Dtype::F32, parameter.shape.clone(), data);
        (
            name,
            view.expect("a layout's ranges have its shapes' lengths"),
        )
    });
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(tensors, Some(format)).expect("shapes and lengths agree")
}

/// What a part is, with its name in files.
pub fn describe(part: Part) -> &'static str {
    match part {
        Part::Encoder => "encoder",
        Part::Pooler => "pooler (pooler.dense)",
        Part::MaskedLm => "masked-LM head (cls.predictions)",
        Part::NextSentence => "next-sentence head (cls.seq_relationship)",
        Part::SequenceClassifier(_) => "sequence classifier (classifier)",
        Part::MultipleChoice => "multiple-choice head (classifier)",
        Part::TokenClassifier(_) => "token classifier (classifier)",
        Part::Span => "span head (qa_outputs)",
    }
}

fn advice(part: Part) -> &'static str {
    match part {
        Part::Encoder | Part::Pooler => "take a model that has one",
        Part::MaskedLm | Part::NextSentence => {
            "take a model that was pre-trained with it, as `cloze pretrain` writes it"
        }
        Part::SequenceClassifier(_)
        | Part::MultipleChoice
        | Part::TokenClassifier(_)
        | Part::Span => {
            "take a model that was fine-tuned for the task, as `cloze finetune` writes it"
        }
    }
}

/// A parsed safetensors file with names in their canonical form.
struct File<'a> {
    path: &'a Path,
    tensors: HashMap<String, TensorView<'a>>,
}

impl<'a> File<'a> {
    fn parse(path: &'a Path, bytes: &'a [u8]) -> Result<Self> {
        let parsed = SafeTensors::deserialize(bytes).map_err(|e| {
            Error::file(
                path,
                format!("is cut short or not a safetensors file ({e})"),
            )
        })?;
        let tensors = parsed
            .tensors()
            .into_iter()
            .map(|(name, view)| (canonical(&name), view))
            .collect();
        Ok(Self { path, tensors })
    }

    fn holds(&self, part: Part) -> bool {
        let prefix = match part {
            Part::Encoder => "embeddings.",
            Part::Pooler => "pooler.",
            Part::MaskedLm => "cls.predictions.transform.",
            Part::NextSentence => "cls.seq_relationship.",
            Part::SequenceClassifier(_)
            | Part::MultipleChoice
            | Part::TokenClassifier(_)
            | Part::Span => part.task_head().map_or("", |head| head.name),
        };
        self.tensors.keys().any(|name| name.starts_with(prefix))
    }

    /// Whether the part's tensors have the shapes that the layout asks for.
    fn fits(&self, layout: &Layout, part: Part) -> bool {
        layout
            .parameters()
            .iter()
            .filter(|parameter| parameter.part == part && part.task_head().is_some())
            .all(|parameter| {
                let tensor = self.tensors.get(&parameter.name);
                tensor.is_some_and(|tensor| tensor.shape() == parameter.shape)
            })
    }

    /// The task's head that the file holds. What a `classifier` reads only the configuration tells.
    fn task_head(&self, config: &Config) -> Option<Part> {
        if self.holds(Part::Span) {
            return Some(Part::Span);
        }
        let outputs = *self.tensors.get("classifier.weight")?.shape().first()?;
        let is = |class| config.architectures.iter().any(|name| name == class);
        Some(if is(TOKEN_CLASSIFICATION) {
            Part::TokenClassifier(outputs)
        } else if is(MULTIPLE_CHOICE) {
            Part::MultipleChoice
        } else {
            Part::SequenceClassifier(outputs)
        })
    }

    fn fail<T>(&self, message: String) -> Result<T> {
        Err(Error::file(self.path, message))
    }

    /// Copies tensor `name` as f32.
    fn copy(&self, name: &str, shape: &[usize], values: &mut [f32]) -> Result<()> {
        let Some(view) = self.tensors.get(name) else {
            return self.fail(format!("tensor {name} of shape {shape:?} is missing"));
        };
        if view.shape() != shape {
            return self.fail(format!(
                "tensor {name} has shape {:?}, but config.json asks for {shape:?}",
                view.shape()
            ));
        }
        let data = view.data();
        match view.dtype() {
            Dtype::F32 => {
                for (value, bytes) in values.iter_mut().zip(data.as_chunks::<4>().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Dtype::F16 => {
                for (value, bytes) in values.iter_mut().zip(data.as_chunks::<2>().0) {
                    *value = half::f16::from_le_bytes(*bytes).to_f32();
                }
            }
            Dtype::BF16 => {
                for (value, bytes) in values.iter_mut().zip(data.as_chunks::<2>().0) {
                    *value = half::bf16::from_le_bytes(*bytes).to_f32();
                }
            }
            other => {
                return self.fail(format!(
                    "tensor {name} is of type {other:?}, but F32, F16 or BF16 was expected"
                ));
            }
        }
        Ok(())
    }

    /// Refuses tensors that belong to no BERT of this configuration; heads of tasks that were not
    /// asked for are left alone.
    fn refuse_unknown(&self, config: &Config) -> Result<()> {
        let layout = Layout::new(config, &super::PRETRAINING);
        let other_head = ["classifier.", "qa_outputs."];
        let mut unknown: Vec<&str> = self
            .tensors
            .keys()
            .map(String::as_str)
            .filter(|name| layout.find(name).is_none())
            .filter(|name| !other_head.iter().any(|head| name.starts_with(head)))
            .filter(|name| !IGNORED.contains(name))
            .collect();
        unknown.sort_unstable();
        match unknown.first() {
            None => Ok(()),
            Some(name) => self.fail(format!(
                "tensor {name} belongs to no BERT of {} layers as config.json describes it",
                config.num_hidden_layers
            )),
        }
    }
}

/// Tensors that repeat what others hold: a table of 0, 1, 2, …, and the tied output layer.
const IGNORED: [&str; 3] = [
    "embeddings.position_ids",
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
];

/// The declared form of a name: no `bert.` prefix, LayerNorms with weight and bias.
fn canonical(name: &str) -> String {
    let name = name.strip_prefix("bert.").unwrap_or(name);
    let name: Cow<'_, str> = match name.strip_suffix("LayerNorm.gamma") {
        Some(stem) => format!("{stem}LayerNorm.weight").into(),
        None => match name.strip_suffix("LayerNorm.beta") {
            Some(stem) => format!("{stem}LayerNorm.bias").into(),
            None => name.into(),
        },
    };
    name.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PRETRAINING;

    fn small() -> Model {
        let mut config = Config::new(1, 8, 2, 16, 11);
        config.max_position_embeddings = 6;
        let layout = Layout::new(&config, &PRETRAINING);
        let values = layout.initialise(3);
        Model {
            config,
            layout,
            values,
            fresh: Vec::new(),
        }
    }

    /// The file's tensors by name, changed by `change` and written again.
    fn rewritten(folder: &Path, change: impl Fn(&mut Vec<(String, Vec<usize>, Vec<u8>)>)) {
        let path = folder.join(WEIGHTS);
        let bytes = std::fs::read(&path).unwrap();
        let mut tensors: Vec<_> = SafeTensors::deserialize(&bytes)
            .unwrap()
            .tensors()
            .into_iter()
            .map(|(name, v)| (name, v.shape().to_vec(), v.data().to_vec()))
            .collect();
        change(&mut tensors);
        let views = tensors.iter().map(|(name, shape, data)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), data).unwrap();
            (name.clone(), view)
        });
        std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let model = small();
        model.write(folder.path()).unwrap();
        let again = Model::read_all(folder.path()).unwrap();
        assert_eq!(again.values, model.values);
        assert_eq!(again.layout.parameters(), model.layout.parameters());
        assert_eq!(again.config.architectures, ["BertForPreTraining"]);
        assert!(again.fresh.is_empty());
    }

    #[test]
    fn old_names_and_names_without_prefix_are_understood() {
        let folder = tempfile::tempdir().unwrap();
        let model = small();
        model.write(folder.path()).unwrap();
        rewritten(folder.path(), |tensors| {
            for (name, ..) in tensors {
                *name = name
                    .replace("bert.", "")
                    .replace("LayerNorm.weight", "LayerNorm.gamma")
                    .replace("LayerNorm.bias", "LayerNorm.beta");
            }
        });
        assert_eq!(Model::read_all(folder.path()).unwrap().values, model.values);
    }

    #[test]
    fn a_part_that_is_missing_is_initialised_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let model = small();
        model.write(folder.path()).unwrap();
        rewritten(folder.path(), |t| {
            t.retain(|(name, ..)| !name.starts_with("cls."))
        });
        let refused = Model::read(folder.path(), &PRETRAINING, None).unwrap_err();
        assert!(
            refused.to_string().contains("holds no masked-LM head"),
            "{refused}"
        );
        let filled = Model::read(folder.path(), &PRETRAINING, Some(3)).unwrap();
        assert_eq!(filled.fresh, [Part::MaskedLm, Part::NextSentence]);
        assert_eq!(filled.values, model.values);
    }

    #[test]
    fn a_tasks_head_is_found_again_and_one_of_other_classes_starts_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = small();
        for (part, class) in [
            (Part::SequenceClassifier(3), "BertForSequenceClassification"),
            (Part::MultipleChoice, "BertForMultipleChoice"),
            (Part::TokenClassifier(5), "BertForTokenClassification"),
            (Part::Span, "BertForQuestionAnswering"),
        ] {
            model.layout = Layout::new(&model.config, &part.with_encoder());
            model.values = model.layout.initialise(4);
            model.write(folder.path()).unwrap();
            let again = Model::read_all(folder.path()).unwrap();
            assert_eq!(again.config.architectures, [class]);
            assert!(again.layout.parts().contains(&part), "{part:?}");
            assert_eq!(again.values.len(), model.values.len(), "{part:?}");
            let same = Model::read(folder.path(), &part.with_encoder(), None).unwrap();
            assert_eq!(same.values, model.values, "{part:?}");
        }
        let part = Part::SequenceClassifier(3);
        model.layout = Layout::new(&model.config, &part.with_encoder());
        model.values = model.layout.initialise(4);
        model.write(folder.path()).unwrap();
        let other = Part::SequenceClassifier(2);
        let fresh = Model::read(folder.path(), &other.with_encoder(), Some(1)).unwrap();
        assert_eq!(fresh.fresh, [other]);
        let refused = Model::read(folder.path(), &other.with_encoder(), None).unwrap_err();
        let expected = "classifier.weight has shape [3, 8], but config.json asks for [2, 8]";
        assert!(refused.to_string().contains(expected), "{refused}");
    }

    #[test]
    fn a_damaged_file_is_refused_with_the_tensor_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(WEIGHTS);
        let message = || Model::read_all(folder.path()).unwrap_err().to_string();

        small().write(folder.path()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 7, 100, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(message().contains("cut short"), "{}", message());
        }

        small().write(folder.path()).unwrap();
        rewritten(folder.path(), |t| {
            t.retain(|(name, ..)| name != "bert.encoder.layer.0.output.dense.weight");
        });
        let expected = "tensor encoder.layer.0.output.dense.weight of shape [8, 16] is missing";
        assert!(message().contains(expected), "{}", message());

        small().write(folder.path()).unwrap();
        rewritten(folder.path(), |t| {
            t.push((
                "bert.encoder.layer.1.output.dense.bias".into(),
                vec![1],
                vec![0; 4],
            ));
        });
        let expected = "tensor encoder.layer.1.output.dense.bias belongs to no BERT of 1 layers";
        assert!(message().contains(expected), "{}", message());

        small().write(folder.path()).unwrap();
        rewritten(folder.path(), |t| {
            for (name, shape, _) in t {
                if name == "bert.pooler.dense.weight" {
                    *shape = vec![4, 16];
                }
            }
        });
        let expected = "pooler.dense.weight has shape [4, 16], but config.json asks for [8, 8]";
        assert!(message().contains(expected), "{}", message());
    }
}
