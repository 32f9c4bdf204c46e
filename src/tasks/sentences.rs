//! Classes or numbers for texts and pairs of texts: GLUE, and your own data of that kind.

use std::path::Path;

use serde_json::{Value, json};

use super::classes::{self, discovered, header_note, label, outputs_of};
use super::rows::{Outputs, Read, limits, targets};
use super::{
    Dataset, Kind, Labels, LongText, Options, OwnData, Reading, Role, Task, labels_unused,
    stored_labels, unlabelled,
};
use crate::data::bad::BadRows;
use crate::data::glue::{self, Row, Target};
use crate::data::labels::{listed, shortened};
use crate::data::table;
use crate::data::{Examples, Sequences, Targets};
use crate::error::{Error, Result};
use crate::eval::{Metric, Scores, sets};
use crate::model::{Config, Part};
use crate::train::task::{LOSS, OPTIONS};

/// A task over texts or pairs of texts.
pub struct Sentences {
    name: String,
    source: Source,
    outputs: Outputs,
    metrics: &'static [Metric],
    long_text: LongText,
}

enum Source {
    Glue(&'static glue::Task),
    Custom(OwnData),
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
            long_text: LongText::Cut,
        })
    }

    /// Your own data: a text, perhaps a second one, and a label. Classes are collected from the training file,
    /// whose malformed rows go to `bad`.
    pub fn custom(
        own: OwnData,
        kind: Kind,
        options: &Options,
        labels: Labels<'_>,
        bad: &mut BadRows,
    ) -> Result<Self> {
        own.check(&[1, 2], "two or three, text[,pair],label")?;
        if options.long_text == LongText::Windows && own.texts() != 1 {
            let message = "windows of long texts need one text column; pairs are cut";
            return Err(Error::Usage(message.into()));
        }
        let columns = &own.columns;
        let outputs = match (kind, labels) {
            (Kind::Number, _) => Outputs::Number { limits: None },
            (Kind::Classes, Labels::Model(config)) => Outputs::Sets {
                names: stored_labels(config)?,
                thresholds: Some(stored_thresholds(config)),
            },
            (Kind::Classes, Labels::Training(path)) => {
                Outputs::Sets { names: discovered(columns, path, true, bad)?, thresholds: None }
            }
            (_, Labels::Model(config)) => Outputs::classes(stored_labels(config)?),
            (_, Labels::Training(path)) => Outputs::classes(discovered(columns, path, false, bad)?),
        };
        let metrics: &[Metric] = match &outputs {
            Outputs::Number { .. } => &[Metric::Pearson, Metric::Spearman],
            Outputs::Classes { names, .. } if names.len() == 2 => {
                &[Metric::Accuracy, Metric::F1, Metric::MacroF1, Metric::Mcc]
            }
            Outputs::Classes { .. } => &[Metric::Accuracy, Metric::MacroF1, Metric::Mcc],
            Outputs::Sets { .. } => &[Metric::MicroF1, Metric::MacroF1, Metric::Accuracy],
        };
        let (name, source) = ("custom".into(), Source::Custom(own));
        Ok(Self { name, source, outputs, metrics, long_text: options.long_text })
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
                table.read(reading.bad, |file, row| self.own_row(file, &row, texts, labels))
            }
        }
    }

    fn own_row(&self, path: &Path, row: &table::Row, texts: usize, labels: bool) -> Result<Row> {
        let text = |index: usize| row.fields[index].as_ref().map(table::Field::text);
        let target = match (labels, &self.outputs) {
            (false, _) => Ok(None),
            (true, Outputs::Sets { names, .. }) => {
                classes::labels(row).map(|labels| set(names, &labels)).transpose()
            }
            (true, _) => label(path, row)?.map(|label| self.target(label)).transpose(),
        };
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
            Outputs::Classes { names, .. } | Outputs::Sets { names, .. } => {
                class_of(names, label).map(Target::Class)
            }
            Outputs::Number { .. } => match label.trim().parse::<f32>() {
                Ok(value) if value.is_finite() => Ok(Target::Value(value)),
                _ => Err(format!("the label is {:?}; expected a number", shortened(label))),
            },
        }
    }
}

/// Returns the index of a class, or what is wrong with its name.
fn class_of(names: &[String], label: &str) -> std::result::Result<u32, String> {
    let found = names.iter().position(|name| name == label);
    found.map(|class| class as u32).ok_or_else(|| {
        let label = shortened(label);
        format!("unknown label {label:?}; known are {}", listed(names))
    })
}

/// Returns the set of these classes.
fn set(names: &[String], labels: &[&str]) -> std::result::Result<Target, String> {
    let classes = labels.iter().map(|label| class_of(names, label));
    let mut classes = classes.collect::<std::result::Result<Vec<u32>, String>>()?;
    classes.sort_unstable();
    classes.dedup();
    Ok(Target::Classes(classes))
}

/// Returns the thresholds of classes that fine-tuning stored in a model's configuration; none if it chose none.
pub fn stored_thresholds(config: &Config) -> Vec<f64> {
    let stored = config.other.get(OPTIONS).and_then(|options| options.get(sets::THRESHOLDS));
    let stored = stored.and_then(Value::as_object);
    let (Some(stored), Some(names)) = (stored, config.labels()) else {
        return Vec::new();
    };
    let of = |name: &&str| stored.get(*name).and_then(Value::as_f64);
    names.iter().map(|name| of(name).unwrap_or(sets::USUAL_THRESHOLD)).collect()
}

impl Task for Sentences {
    fn name(&self) -> &str {
        &self.name
    }

    fn part(&self) -> Part {
        Part::SequenceClassifier(match &self.outputs {
            Outputs::Classes { names, .. } | Outputs::Sets { names, .. } => names.len(),
            Outputs::Number { .. } => 1,
        })
    }

    fn describe(&self, config: &mut Config) {
        let problem = match &self.outputs {
            Outputs::Classes { names, .. } => {
                config.set_labels(names);
                "single_label_classification"
            }
            Outputs::Sets { names, .. } => {
                config.set_labels(names);
                "multi_label_classification"
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
            Source::Custom(own) => {
                let long_text = json!(self.long_text);
                let windows = (self.long_text != LongText::Cut).then_some(("long_text", long_text));
                own.columns.options().into_iter().chain(windows).collect()
            }
        }
    }

    fn remember(&self, scores: &Scores, config: &mut Config) {
        let options = config.other.get_mut(OPTIONS).and_then(Value::as_object_mut);
        if let (Some(thresholds), Some(options)) = (scores.get(sets::THRESHOLDS), options) {
            options.insert(sets::THRESHOLDS.into(), thresholds.clone());
        }
    }

    fn metric(&self) -> &'static str {
        self.metrics[0].name()
    }

    fn metrics(&self) -> Vec<&'static str> {
        self.metrics.iter().map(|metric| metric.name()).chain([LOSS]).collect()
    }

    fn loss(&self) -> &'static str {
        match self.outputs {
            Outputs::Classes { .. } | Outputs::Sets { .. } => "cross-entropy (nats)",
            Outputs::Number { .. } => "squared error",
        }
    }

    fn read(&self, path: &Path, role: Role, mut reading: Reading<'_>) -> Result<Box<dyn Dataset>> {
        let rows = self.rows(path, role, &mut reading)?;
        if role == Role::Train {
            reading.notes.extend(self.header_note(path, &rows)?);
        }
        let mut rows = reading.part(rows, role, |row| match &row.target {
            Some(Target::Class(class)) => vec![*class],
            Some(Target::Classes(classes)) => classes.clone(),
            Some(Target::Value(_)) | None => Vec::new(),
        });
        let labelled = rows.iter().filter(|row| row.labelled).count();
        match role {
            Role::Test if labelled > 0 => reading.notes.push(labels_unused(path)),
            Role::Train | Role::Dev if labelled < rows.len() => return Err(unlabelled(path)),
            _ => {}
        }
        let sequences = match self.long_text {
            LongText::Cut => {
                let texts: Vec<(&str, Option<&str>)> =
                    rows.iter().map(|row| (row.a.as_str(), row.b.as_deref())).collect();
                Sequences::tokenise(reading.wordpiece, &texts, reading.max_len)?
            }
            LongText::Windows => {
                let texts: Vec<&str> = rows.iter().map(|row| row.a.as_str()).collect();
                Sequences::in_windows(reading.wordpiece, &texts, reading.max_len)?
            }
        };
        reading.notes.extend(sequences.cut_note(path, reading.max_len));
        let examples = Examples {
            sequences,
            targets: if role == Role::Test {
                Targets::Unknown
            } else {
                targets(&rows, &self.outputs)
            },
        };
        if role == Role::Train {
            for row in &mut rows {
                (row.a, row.b) = (String::new(), None);
            }
        }
        Ok(Box::new(Read {
            examples,
            rows,
            outputs: self.outputs.clone(),
            metrics: self.metrics,
            submission: match self.source {
                Source::Glue(task) => task.submission(path).into(),
                Source::Custom(_) => "predictions.tsv".into(),
            },
        }))
    }
}
