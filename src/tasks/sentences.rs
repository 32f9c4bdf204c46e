//! Sentences and pairs of sentences, told apart or scored: GLUE, and your own data of that kind.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::classes::{discovered, header_note, label, outputs_of};
use super::{
    Answers, Dataset, Kind, Labels, Own, Reading, Role, Task, labels_unused, nothing_to_measure,
    stored_labels, unlabelled,
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

/// A task over sentences or pairs.
pub struct Sentences {
    name: String,
    source: Source,
    answer: Answer,
    metrics: &'static [Metric],
}

enum Source {
    Glue(&'static glue::Task),
    Own(Own),
}

/// What the model says of a row.
#[derive(Clone)]
enum Answer {
    /// One of these, in the order of the data's classes.
    Class {
        names: Vec<String>,
        /// The model's output for each class of the data: models of others may have another order.
        outputs: Vec<u32>,
    },
    /// A number between two limits.
    Number { limits: Option<[f32; 2]> },
}

impl Answer {
    fn classes(names: Vec<String>) -> Self {
        let outputs = (0..names.len() as u32).collect();
        Self::Class { names, outputs }
    }
}

impl Sentences {
    /// One of GLUE's.
    pub fn glue(task: &'static glue::Task, labels: Labels<'_>) -> Result<Self> {
        let answer = match task.classes() {
            None => Answer::Number {
                limits: limits(task.name),
            },
            Some(classes) => {
                let names: Vec<String> = classes.iter().map(|&name| name.to_owned()).collect();
                match labels {
                    Labels::Training(_) => Answer::classes(names),
                    Labels::Model(config) => Answer::Class {
                        outputs: outputs_of(task, classes, config)?,
                        names,
                    },
                }
            }
        };
        Ok(Self {
            name: task.name.into(),
            source: Source::Glue(task),
            answer,
            metrics: Metric::of_glue(task),
        })
    }

    /// Your own data: a text, perhaps a second one, and a label. `bad` is for the rows of a training
    /// file whose classes are to be known.
    pub fn custom(own: Own, kind: Kind, labels: Labels<'_>, bad: &mut BadRows) -> Result<Self> {
        own.check(&[1, 2], "two or three, text[,pair],label")?;
        let answer = match (kind, labels) {
            (Kind::Number, _) => Answer::Number { limits: None },
            (_, Labels::Model(config)) => Answer::classes(stored_labels(config)?),
            (_, Labels::Training(path)) => Answer::classes(discovered(&own.columns, path, bad)?),
        };
        let metrics: &[Metric] = match &answer {
            Answer::Number { .. } => &[Metric::Pearson, Metric::Spearman],
            Answer::Class { names, .. } if names.len() == 2 => &[Metric::Accuracy, Metric::F1],
            Answer::Class { .. } => &[Metric::Accuracy, Metric::MacroF1],
        };
        Ok(Self {
            name: "custom".into(),
            source: Source::Own(own),
            answer,
            metrics,
        })
    }

    fn rows(&self, path: &Path, role: Role, bad: &mut BadRows) -> Result<Vec<Row>> {
        let labels = role != Role::Test;
        match &self.source {
            Source::Glue(task) => task.read(path, labels, bad),
            Source::Own(own) => {
                let labels = labels && own.labelled;
                let needed = own.texts() + usize::from(labels);
                own.columns.read_as(path, needed, bad, |row| {
                    self.own_row(path, &row, own.texts(), labels)
                })
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

    /// What is to be said of a training file that may have a header where none is expected.
    fn header_note(&self, path: &Path, rows: &[Row]) -> Result<Option<String>> {
        match (&self.source, &self.answer) {
            (Source::Own(own), Answer::Class { names, .. })
                if own.columns.without_header(path)? =>
            {
                Ok(header_note(path, rows, names))
            }
            _ => Ok(None),
        }
    }

    fn target(&self, label: &str) -> std::result::Result<Target, String> {
        match &self.answer {
            Answer::Class { names, .. } => names
                .iter()
                .position(|name| name == label)
                .map(|class| Target::Class(class as u32))
                .ok_or_else(|| {
                    let label = shortened(label);
                    format!("unknown label {label:?}; known are {}", listed(names))
                }),
            Answer::Number { .. } => match label.trim().parse::<f32>() {
                Ok(value) if value.is_finite() => Ok(Target::Value(value)),
                _ => Err(format!(
                    "the label is {:?}; expected a number",
                    shortened(label)
                )),
            },
        }
    }
}

impl Task for Sentences {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> Part {
        Part::SequenceClassifier(match &self.answer {
            Answer::Class { names, .. } => names.len(),
            Answer::Number { .. } => 1,
        })
    }

    fn describe(&self, config: &mut Config) {
        let problem = match &self.answer {
            Answer::Class { names, .. } => {
                config.set_labels(names);
                "single_label_classification"
            }
            Answer::Number { .. } => {
                config.set_labels(&["score"]);
                "regression"
            }
        };
        config.other.insert("problem_type".into(), problem.into());
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        match &self.source {
            Source::Glue(_) => Vec::new(),
            Source::Own(own) => vec![("columns", own.columns.to_string().into())],
        }
    }

    fn metric(&self) -> &'static str {
        self.metrics[0].name()
    }

    fn loss(&self) -> &'static str {
        match self.answer {
            Answer::Class { .. } => "cross-entropy (nats)",
            Answer::Number { .. } => "squared error",
        }
    }

    fn read(&self, path: &Path, role: Role, reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let mut rows = self.rows(path, role, reading.bad)?;
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
        let texts: Vec<(&str, Option<&str>)> = rows
            .iter()
            .map(|row| (row.a.as_str(), row.b.as_deref()))
            .collect();
        let sequences = Sequences::tokenise(reading.wordpiece, &texts, reading.max_len)?;
        reading
            .notes
            .extend(sequences.cut_note(path, reading.max_len));
        let examples = Examples {
            sequences,
            targets: if role == Role::Test {
                Targets::Unknown
            } else {
                targets(&rows)
            },
        };
        Ok(Box::new(Read {
            examples,
            indices: rows.into_iter().map(|row| row.index).collect(),
            answer: self.answer.clone(),
            metrics: self.metrics,
            submission: match self.source {
                Source::Glue(task) => task.submission(path).into(),
                Source::Own(_) => "predictions.tsv".into(),
            },
        }))
    }
}

/// All classes or all values, in the order of the rows.
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
    if values.is_empty() {
        Targets::Classes(classes)
    } else {
        Targets::Values(values)
    }
}

/// A file of sentences.
struct Read {
    examples: Examples,
    indices: Vec<String>,
    answer: Answer,
    metrics: &'static [Metric],
    submission: String,
}

/// The data's class that a row of logits is largest at.
fn class(outputs: &[u32], row: &[f32]) -> u32 {
    let output = best(row);
    // Every output stands for a class: the head has as many as there are.
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
        match (&self.answer, &self.examples.targets) {
            (Answer::Class { outputs, .. }, Targets::Classes(gold)) => {
                let rows = logits.values().chunks_exact(logits.outputs);
                let predicted: Vec<u32> = rows.map(|row| class(outputs, row)).collect();
                Ok(measure_classes(self.metrics, &predicted, gold))
            }
            (Answer::Number { .. }, Targets::Values(gold)) => {
                Ok(measure_values(self.metrics, logits.values(), gold))
            }
            _ => Err(nothing_to_measure()),
        }
    }

    fn answers(&self, logits: &Logits) -> Result<Answers> {
        let mut text = String::from("index\tprediction\n");
        let mut lines = Vec::new();
        for (index, row) in self
            .indices
            .iter()
            .zip(logits.values().chunks_exact(logits.outputs))
        {
            let (told, line) = match &self.answer {
                Answer::Class { names, outputs } => {
                    let name = &names[class(outputs, row) as usize];
                    let shares = softmax(row);
                    let of = |(name, &output): (&String, &u32)| {
                        (name.clone(), Value::from(shares[output as usize]))
                    };
                    let shares: Map<_, _> = names.iter().zip(outputs).map(of).collect();
                    let line = json!({"index": index, "prediction": name, "probabilities": shares});
                    (name.clone(), line)
                }
                Answer::Number { limits } => {
                    let value = limited(row[0], *limits);
                    (
                        format!("{value:.3}"),
                        json!({"index": index, "prediction": value}),
                    )
                }
            };
            // Writing to a string has no way to fail.
            let _ = writeln!(text, "{index}\t{told}");
            lines.push(line);
        }
        Ok(Answers {
            documents: vec![(self.submission.clone(), text)],
            lines,
        })
    }
}
