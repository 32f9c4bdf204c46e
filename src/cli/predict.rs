//! `cloze predict`: prints a fine-tuned model's answers in the task's official layout, as JSON lines or as CSV.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::cli::shared::checks::{not_an_input, refuse};
use crate::cli::shared::ranks::Shareable;
use crate::cli::shared::stdio::{stdout, still_read};
use crate::cli::shared::task::{FinetunedArgs, with_negative_numbers};
use crate::engine::inference::logits;
use crate::error::{Error, Result};
use crate::files::{create_folder, write_atomic};
use crate::model::Part;
use crate::note;
use crate::ranks::Ranks;
use crate::tasks::{Answers, Kind, Role};

#[derive(clap::Args)]
#[command(mut_args(with_negative_numbers))]
pub(crate) struct Args {
    #[command(flatten)]
    model: FinetunedArgs,
    /// File in the task's official layout, with or without labels; - for standard input (its first line
    /// then decides whether your own data is JSONL, columns under a header, or plain lines of text)
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// Folder for the submission files under their official names [default: print the main file on
    /// stdout]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["json", "format"])]
    out: Option<PathBuf>,
    /// What to print on stdout
    #[arg(long, value_enum, default_value_t = Format::Tsv)]
    format: Format,
    /// Same as --format jsonl
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Add the model's logits to JSON and CSV
    #[arg(long)]
    logits: bool,
    /// Give no prediction where the best probability is below this
    #[arg(long, value_name = "X")]
    threshold: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// The task's official submission
    Tsv,
    /// One JSON object for each row, with its texts and all probabilities
    Jsonl,
    /// The same in columns; for tasks over words a row for each word
    Csv,
}

impl Args {
    pub(crate) fn shareable(&mut self) -> Shareable<'_> {
        Shareable { engine: self.model.engine, out: self.out.as_mut() }
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    if args.input == Path::new("-") && Ranks::of_process().size() > 1 {
        refuse!("--input -: only one of several ranks has the standard input; expected a file");
    }
    let format = if args.json { Format::Jsonl } else { args.format };
    if args.logits && format == Format::Tsv {
        refuse!("--logits: a submission has no place for them; expected --format jsonl or csv too");
    }
    let mut opened = args.model.open(&args.input, Role::Test, None)?;
    if args.logits && format == Format::Csv && opened.task.part() == Part::Span {
        refuse!(
            "--logits: CSV has no columns for those of answers, a list; expected --format jsonl"
        );
    }
    if let Some(threshold) = args.threshold {
        if !(0.0..=1.0).contains(&threshold) {
            refuse!("--threshold {threshold}: expected a probability, from 0 to 1");
        }
        if matches!(
            opened.task.part(),
            Part::Span | Part::TokenClassifier(_) | Part::SequenceClassifier(1)
        ) {
            refuse!("--threshold: is for tasks that choose a class or an ending for each row");
        }
        if Kind::of(opened.engine.config()) == Kind::Classes {
            refuse!("--threshold: this model has a threshold for each class, in its config.json");
        }
    }
    let sequences = &opened.data.examples().sequences;
    let mut answers = opened.data.answers(&logits(opened.engine.as_mut(), sequences)?)?;
    if let Some(threshold) = args.threshold {
        let (count, all) = (withhold(&mut answers, threshold), answers.lines.len());
        note!(
            "{count} of {all} rows have no prediction: their best probability is below {threshold}"
        );
    }
    if !args.logits {
        let objects = answers.lines.iter_mut().filter_map(Value::as_object_mut);
        objects.for_each(|line| drop(line.shift_remove("logits")));
    }
    match &args.out {
        Some(folder) => save(&answers, folder, &args.input),
        None => print(&answers, format),
    }
}

/// Empties the predictions whose probability is below the threshold, and returns their number.
fn withhold(answers: &mut Answers, threshold: f64) -> usize {
    let mut count = 0;
    for (_, document) in &mut answers.documents {
        let mut rows = document.split_inclusive('\n');
        let mut kept = rows.next().unwrap_or_default().to_owned();
        for (row, line) in rows.zip(&mut answers.lines) {
            let low = line["score"].as_f64().is_some_and(|score| score < threshold);
            match row.split_once('\t') {
                Some((index, _)) if low => {
                    count += 1;
                    line["prediction"] = "".into();
                    kept.extend([index, "\t\n"]);
                }
                _ => kept.push_str(row),
            }
        }
        *document = kept;
    }
    count
}

/// Writes the answers' files into a folder, unless one of them would replace the file at `input`.
fn save(answers: &Answers, folder: &Path, input: &Path) -> Result<()> {
    let path = |name: &String| folder.join(name);
    for (name, _) in &answers.documents {
        not_an_input("--out: the file", &path(name), [("--input", input)])?;
    }
    create_folder(folder)?;
    for (name, text) in &answers.documents {
        let path = path(name);
        write_atomic(&path, text.as_bytes())?;
        note!("{}", path.display());
    }
    Ok(())
}

fn print(answers: &Answers, format: Format) -> Result<()> {
    let mut out = stdout();
    let written = match format {
        Format::Tsv => {
            let main = answers.documents.first();
            main.map_or(Ok(()), |(_, text)| out.write_all(text.as_bytes()))
        }
        Format::Jsonl => {
            let mut lines = answers.lines.iter();
            lines.try_for_each(|line| writeln!(out, "{line}"))
        }
        Format::Csv => {
            let table = table(&answers.lines);
            out.write_all(&table.map_err(|e| Error::Failed(format!("CSV: {e}")))?)
        }
    };
    still_read(written).map(|_| ())
}

/// Returns the answers as CSV. The first row's columns are the header; others have the same.
fn table(lines: &[Value]) -> csv::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let rows = lines.iter().filter_map(Value::as_object).flat_map(|line| match by_word(line) {
        Some(words) => words,
        None => vec![line.clone()],
    });
    for (index, row) in rows.enumerate() {
        let cells = cells(&row);
        if index == 0 {
            writer.write_record(cells.iter().map(|(name, _)| name))?;
        }
        writer.write_record(cells.iter().map(|(_, text)| text))?;
    }
    writer.into_inner().map_err(|e| e.into_error().into())
}

/// Returns an answer with a label for each word as an answer for each word.
fn by_word(line: &Map<String, Value>) -> Option<Vec<Map<String, Value>>> {
    let words = line.get("words")?.as_array()?;
    let columns = [
        ("text", "words"),
        ("prediction", "tags"),
        ("score", "scores"),
        ("probabilities", "probabilities"),
        ("logits", "logits"),
    ];
    let word = |word: usize| {
        let of = |(name, list): (&str, &str)| {
            Some((name.to_owned(), line.get(list)?.get(word)?.clone()))
        };
        let sentence = line.get("index").map(|index| ("sentence".to_owned(), index.clone()));
        sentence.into_iter().chain(columns.into_iter().filter_map(of)).collect()
    };
    Some((0..words.len()).map(word).collect())
}

/// Returns the names and texts of an answer's columns. Lists of objects have no column.
fn cells(line: &Map<String, Value>) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let mut cells = Vec::new();
    for (key, value) in line {
        let several = |name: &str| match key.as_str() {
            "probabilities" => format!("p({name})"),
            "logits" => format!("logit({name})"),
            key => format!("{}{name}", key.trim_end_matches('s')),
        };
        match value {
            // A CSV file keeps the order of its rows; its columns begin with the texts.
            _ if key == "index" => {}
            Value::Object(all) => {
                cells.extend(all.iter().map(|(name, value)| (several(name), text(value))));
            }
            Value::Array(all) if all.iter().any(Value::is_object) => {}
            // The classes of a text that can have several.
            Value::Array(all) if key == "prediction" => {
                let classes: Vec<String> = all.iter().map(text).collect();
                cells.push((key.clone(), classes.join("|")));
            }
            Value::Array(all) => {
                let all = all.iter().enumerate();
                cells.extend(all.map(|(name, value)| (several(&name.to_string()), text(value))));
            }
            single => cells.push((key.clone(), text(single))),
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn csv(lines: &[Value]) -> String {
        String::from_utf8(table(lines).unwrap()).unwrap()
    }

    #[test]
    fn answers_become_columns() {
        let line = |text: &str| {
            json!({"index": "7", "text": text, "pair": "b", "prediction": "x", "score": 0.75,
                "probabilities": {"x": 0.75, "y, z": 0.25}, "logits": {"x": 1.5, "y, z": -1}})
        };
        let expected = "text,pair,prediction,score,p(x),\"p(y, z)\",logit(x),\"logit(y, z)\"\n\
                        \"Hi, \"\"you\"\"\",b,x,0.75,0.75,0.25,1.5,-1\n\
                        a,b,x,0.75,0.75,0.25,1.5,-1\n";
        assert_eq!(csv(&[line("Hi, \"you\""), line("a")]), expected);
        let choice = json!({"index": 0, "context": "c", "endings": ["d", "e"], "prediction": 1,
            "score": 0.5, "probabilities": [0.5, 0.5]});
        let expected = "context,ending0,ending1,prediction,score,p(0),p(1)\nc,d,e,1,0.5,0.5,0.5\n";
        assert_eq!(csv(&[choice]), expected);
        let answer = json!({"id": "q", "prediction": "", "start": null, "n_best": [{"text": ""}]});
        assert_eq!(csv(&[answer]), "id,prediction,start\nq,,\n");
        let several = json!({"text": "a", "prediction": ["x", "z"], "probabilities": {"x": 1.0}});
        assert_eq!(csv(&[several]), "text,prediction,p(x)\na,x|z,1.0\n");
        assert_eq!(csv(&[]), "");
    }

    #[test]
    fn words_have_a_row_each() {
        let line = json!({"index": 3, "text": "a b", "words": ["a", "b"], "tags": ["O", "B-X"],
            "scores": [0.5, 1.0], "entities": [], "probabilities": [{"O": 0.5}, {"O": 0.0}]});
        let expected = "sentence,text,prediction,score,p(O)\n3,a,O,0.5,0.5\n3,b,B-X,1.0,0.0\n";
        assert_eq!(csv(&[line]), expected);
    }

    #[test]
    fn the_file_that_was_read_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("SST-2.tsv");
        std::fs::write(&input, "sentence\nfine\n").unwrap();
        let documents = ["other.tsv", "SST-2.tsv"].map(|name| (name.into(), "answers".into()));
        let answers = Answers { documents: documents.into(), lines: Vec::new() };
        let message = save(&answers, folder.path(), &input).unwrap_err().to_string();
        assert!(message.contains("SST-2.tsv: is a file of --input"), "{message}");
        assert_eq!(std::fs::read_to_string(&input).unwrap(), "sentence\nfine\n");
        assert!(!folder.path().join("other.tsv").exists());
    }

    #[test]
    fn an_improbable_prediction_is_left_empty() {
        let document = "index\tprediction\n4\tham\n6\tspam\n".to_owned();
        let line = |score: f64| json!({"prediction": "x", "score": score});
        let lines = vec![line(0.8), line(0.79)];
        let mut answers = Answers { documents: vec![("x.tsv".into(), document)], lines };
        assert_eq!(withhold(&mut answers, 0.8), 1);
        assert_eq!(answers.documents[0].1, "index\tprediction\n4\tham\n6\t\n");
        assert_eq!(
            (&answers.lines[0]["prediction"], &answers.lines[1]["prediction"]),
            (&json!("x"), &json!(""))
        );
    }
}
