//! Classes or numbers for texts and pairs of texts: GLUE, and your own data of that kind.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::classes::{discovered, header_note, label, outputs_of};
use super::{
    Answers, Dataset, Kind, Labels, OwnData, Reading, Role, Task, labels_unused,
    nothing_to_measure, stored_labels, unlabelled,
};
use crate::data::bad::BadRows;
use crate::data::glue::{self, Row, Target};
use crate::data::labels::{listed, shortened};
use crate::data::table;
use crate::data::{Examples, Sequences, Targets};
use crate::engine::inference::Logits;
use crate::error::{Error, Result};
use crate::eval::{Metric, Scores, best, measure_classes, measure_values, softmax};
use crate::model::{Config, Part};

/// A task over texts or pairs of texts.
pub struct Sentences {
    name: String,
    source: Source,
    outputs: Outputs,
    metrics: &'static [Metric],
}

enum Source {
    Glue(&'static glue::Task),
    Custom(OwnData),
}

/// What the outputs of the model's head mean.
#[derive(Clone)]
enum Outputs {
    /// The task's classes.
    Classes {
        names: Vec<String>,
        /// The output of each class; other programs may have written the model with another order.
        outputs: Vec<u32>,
    },
    /// A number.
    Number { limits: Option<[f32; 2]> },
}

impl Outputs {
    fn classes(names: Vec<String>) -> Self {
        let outputs = (0..names.len() as u32).collect();
        Self::Classes { names, outputs }
    }
}

impl Sentences {
    /// A task of GLUE.
    pub fn glue(task: &'static glue::Task, labels: Labels<'_>) -> Result<Self> {
        let outputs = match task.classes() {
            None => Outputs::Number { limits: limits(task.name) },
            Some(classes) => {
                let names: Vec<String> = classes.iter().map(|&name| name.to_owned()).collect();
                match labels {
                    Labels::Training(_) => Outputs::classes(names),
                    Labels::Model(config) => {
                        Outputs::Classes { outputs: outputs_of(task, classes, config)?, names }
                    }
                }
            }
        };
        Ok(Self {
            name: task.name.into(),
            source: Source::Glue(task),
            outputs,
            metrics: Metric::of_glue(task),
        })
    }

    /// Your own data: a text, perhaps a second one, and a label. Classes are collected from the training file,
    /// whose malformed rows go to `bad`.
    pub fn custom(own: OwnData, kind: Kind, labels: Labels<'_>, bad: &mut BadRows) -> Result<Self> {
        own.check(&[1, 2], "two or three, text[,pair],label")?;
        let outputs = match (kind, labels) {
            (Kind::Number, _) => Outputs::Number { limits: None },
            (_, Labels::Model(config)) => Outputs::classes(stored_labels(config)?),
            (_, Labels::Training(path)) => Outputs::classes(discovered(&own.columns, path, bad)?),
        };
        let metrics: &[Metric] = match &outputs {
            Outputs::Number { .. } => &[Metric::Pearson, Metric::Spearman],
            Outputs::Classes { names, .. } if names.len() == 2 => &[Metric::Accuracy, Metric::F1],
            Outputs::Classes { .. } => &[Metric::Accuracy, Metric::MacroF1],
        };
        Ok(Self { name: "custom".into(), source: Source::Custom(own), outputs, metrics })
    }

    fn rows(&self, path: &Path, role: Role, reading: &mut Reading<'_>) -> Result<Vec<Row>> {
        let labels = role != Role::Test;
        match &self.source {
            Source::Glue(task) if labels => task.read(path, true, reading.bad),
            Source::Glue(task) => task.read_texts(path, reading.bad, reading.notes),
            Source::Custom(own) => {
                let labels = labels && own.labelled;
                let texts = own.texts();
                let table = match role {
                    Role::Test if texts == 1 => own.columns.open_texts(path)?,
                    _ => own.columns.open(path, texts + usize::from(labels))?,
                };
                if role == Role::Test {
                    reading.notes.extend(table.note());
                }
                table.read(reading.bad, |row| self.own_row(path, &row, texts, labels))
            }
        }
    }

    fn own_row(&self, path: &Path, row: &table::Row, texts: usize, labels: bool) -> Result<Row> {
        let text = |index: usize| row.fields[index].as_ref().map(table::Field::text);
        let target = match labels {
            true => label(path, row)?.map(|label| self.target(label)),
            false => None,
        };
        let target = target.transpose();
        Ok(Row {
            index: row.place.to_string(),
            line: row.line,
            a: text(0).unwrap_or_default(),
            b: (texts == 2).then(|| text(1).unwrap_or_default()),
            labelled: row.fields.get(texts).is_some_and(Option::is_some),
            target: target.map_err(|message| Error::line(path, row.line, message))?,
        })
    }

    /// Returns a remark on a training file whose first row may be a header that the columns do not mention.
    fn header_note(&self, path: &Path, rows: &[Row]) -> Result<Option<String>> {
        match (&self.source, &self.outputs) {
            (Source::Custom(own), Outputs::Classes { names, .. })
                if own.columns.without_header(path)? =>
            {
                Ok(header_note(path, rows, names))
            }
            _ => Ok(None),
        }
    }

    fn target(&self, label: &str) -> std::result::Result<Target, String> {
        match &self.outputs {
            Outputs::Classes { names, .. } => names
                .iter()
                .position(|name| name == label)
                .map(|class| Target::Class(class as u32))
                .ok_or_else(|| {
                    let label = shortened(label);
                    format!("unknown label {label:?}; known are {}", listed(names))
                }),
            Outputs::Number { .. } => match label.trim().parse::<f32>() {
                Ok(value) if value.is_finite() => Ok(Target::Value(value)),
                _ => Err(format!("the label is {:?}; expected a number", shortened(label))),
            },
        }
    }
}

impl Task for Sentences {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> Part {
        Part::SequenceClassifier(match &self.outputs {
            Outputs::Classes { names, .. } => names.len(),
            Outputs::Number { .. } => 1,
        })
    }

    fn describe(&self, config: &mut Config) {
        let problem = match &self.outputs {
            Outputs::Classes { names, .. } => {
                config.set_labels(names);
                "single_label_classification"
            }
            Outputs::Number { .. } => {
                config.set_labels(&["score"]);
                "regression"
            }
        };
        config.other.insert("problem_type".into(), problem.into());
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        match &self.source {
            Source::Glue(_) => Vec::new(),
            Source::Custom(own) => own.columns.options(),
        }
    }

    fn metric(&self) -> &'static str {
        self.metrics[0].name()
    }

    fn loss(&self) -> &'static str {
        match self.outputs {
            Outputs::Classes { .. } => "cross-entropy (nats)",
            Outputs::Number { .. } => "squared error",
        }
    }

    fn read(&self, path: &Path, role: Role, mut reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let mut rows = self.rows(path, role, &mut reading)?;
        if role == Role::Train {
            reading.notes.extend(self.header_note(path, &rows)?);
        }
        rows.truncate(reading.limit.unwrap_or(usize::MAX));
        let labelled = rows.iter().filter(|row| row.labelled).count();
        match role {
            Role::Test if labelled > 0 => reading.notes.push(labels_unused(path)),
            Role::Train | Role::Dev if labelled < rows.len() => return Err(unlabelled(path)),
            _ => {}
        }
        let texts: Vec<(&str, Option<&str>)> =
            rows.iter().map(|row| (row.a.as_str(), row.b.as_deref())).collect();
        let sequences = Sequences::tokenise(reading.wordpiece, &texts, reading.max_len)?;
        reading.notes.extend(sequences.cut_note(path, reading.max_len));
        let examples = Examples {
            sequences,
            targets: if role == Role::Test { Targets::Unknown } else { targets(&rows) },
        };
        Ok(Box::new(Read {
            examples,
            texts: match role {
                Role::Test => rows.iter().map(|row| (row.a.clone(), row.b.clone())).collect(),
                Role::Train | Role::Dev => Vec::new(),
            },
            indices: rows.into_iter().map(|row| row.index).collect(),
            outputs: self.outputs.clone(),
            metrics: self.metrics,
            submission: match self.source {
                Source::Glue(task) => task.submission(path).into(),
                Source::Custom(_) => "predictions.tsv".into(),
            },
        }))
    }
}

/// Returns the classes or the numbers of all rows, in their order.
fn targets(rows: &[Row]) -> Targets {
    let mut classes = Vec::new();
    let mut values = Vec::new();
    for row in rows {
        match row.target {
            Some(Target::Class(class)) => classes.push(class),
            Some(Target::Value(value)) => values.push(value),
            None => {}
        }
    }
    if values.is_empty() { Targets::Classes(classes) } else { Targets::Values(values) }
}

/// A file of texts.
struct Read {
    examples: Examples,
    indices: Vec<String>,
    /// The texts or pairs of texts of a file for prediction; none of others.
    texts: Vec<(String, Option<String>)>,
    outputs: Outputs,
    metrics: &'static [Metric],
    submission: String,
}

/// Returns the numbers of a model's outputs by the names of their classes.
fn by_name<N: Copy + Into<Value>>(names: &[String], outputs: &[u32], row: &[N]) -> Value {
    let of = |(name, &output): (&String, &u32)| (name.clone(), row[output as usize].into());
    Value::Object(names.iter().zip(outputs).map(of).collect())
}

/// Returns the class whose logit is the largest.
fn class(outputs: &[u32], row: &[f32]) -> u32 {
    let output = best(row);
    // Every output has a class, because the head has as many outputs as there are classes.
    outputs.iter().position(|&o| o == output).unwrap_or(0) as u32
}

/// Returns the limits of the numbers of a task; none if it has classes or your own numbers.
pub fn limits(task: &str) -> Option<[f32; 2]> {
    let task = glue::Task::find(task)?;
    task.classes().is_none().then_some([0.0, 5.0])
}

/// Returns the number between the limits that is nearest to `value`.
pub fn limited(value: f32, limits: Option<[f32; 2]>) -> f32 {
    limits.map_or(value, |[low, high]| value.clamp(low, high))
}

impl Dataset for Read {
    fn rows(&self) -> usize {
        self.indices.len()
    }

    fn examples(&self) -> &Examples {
        &self.examples
    }

    fn measure(&self, logits: &Logits) -> Result<Scores> {
        match (&self.outputs, &self.examples.targets) {
            (Outputs::Classes { outputs, .. }, Targets::Classes(gold)) => {
                let rows = logits.values().chunks_exact(logits.outputs);
                let predicted: Vec<u32> = rows.map(|row| class(outputs, row)).collect();
                Ok(measure_classes(self.metrics, &predicted, gold))
            }
            (Outputs::Number { .. }, Targets::Values(gold)) => {
                Ok(measure_values(self.metrics, logits.values(), gold))
            }
            _ => Err(nothing_to_measure()),
        }
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let mut text = String::from("index\tprediction\n");
        let mut lines = Vec::new();
        let rows = logits.values().chunks_exact(logits.outputs);
        for (example, (index, row)) in self.indices.iter().zip(rows).enumerate() {
            let mut line = json!({"index": index});
            if let Some((a, b)) = self.texts.get(example) {
                line["text"] = a.as_str().into();
                if let Some(b) = b {
                    line["pair"] = b.as_str().into();
                }
            }
            let prediction = match &self.outputs {
                Outputs::Classes { names, outputs } => {
                    let class = class(outputs, row) as usize;
                    let probabilities = softmax(row);
                    line["prediction"] = names[class].as_str().into();
                    line["score"] = probabilities[outputs[class] as usize].into();
                    line["probabilities"] = by_name(names, outputs, &probabilities);
                    line["logits"] = by_name(names, outputs, row);
                    names[class].clone()
                }
                Outputs::Number { limits } => {
                    let value = limited(row[0], *limits);
                    line["prediction"] = value.into();
                    line["logits"] = row.into();
                    format!("{value:.3}")
                }
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{index}\t{prediction}");
            lines.push(line);
        }
        Ok(Answers { documents: vec![(self.submission.clone(), text)], lines })
    }
}
