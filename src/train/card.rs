//! The model card of a trained model: `README.md` with the front matter that the Hugging Face Hub reads
//! (huggingface.co/docs/hub/model-cards), the model's data, recipe and results.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::view::page::Table;

/// Marks a card that Cloze wrote.
const MARK: &str = "<!-- Written by cloze. Its next run replaces this file; remove this line to keep your changes. -->";
/// Characters that stand behind a backslash in texts.
const MARKS: [char; 5] = ['\\', '|', '[', ']', '`'];
const README: &str = "README.md";
/// Takes the card if the folder has a README that Cloze did not write.
const OTHER: &str = "MODEL_CARD.md";

/// The contents of a model card.
#[derive(Debug, Clone, Default)]
pub struct Card {
    /// The model's name, which is its folder's.
    pub name: String,
    /// What the model does, in a sentence or two.
    pub summary: String,
    /// The Hub's name of its task: `text-classification`.
    pub pipeline: &'static str,
    /// Name of the model from which it was trained.
    pub base_model: Option<String>,
    /// The Hub's names of the data sets.
    pub datasets: Vec<String>,
    /// Its scores.
    pub results: Vec<Measured>,
    /// Data, recipe and the like.
    pub tables: Vec<Table>,
    /// The command line that trained it.
    pub command: String,
    /// How to use the model.
    pub usage: String,
}

/// Scores on a data set.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// The data set's name for people.
    pub data: String,
    /// The Hub's name of the data set.
    pub dataset: String,
    /// The Hub's name of a part of it.
    pub config: Option<String>,
    /// The Hub's name of the split: `validation`, `test`.
    pub split: &'static str,
    /// The scores by name.
    pub scores: Vec<(String, f64)>,
}

impl Card {
    /// Writes the card into a model's folder and returns its path. A `README.md` that Cloze did not write
    /// stays.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        let readme = folder.join(README);
        let ours = match std::fs::read(&readme) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).contains(MARK),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
            Err(e) => return Err(Error::io(&readme, e)),
        };
        let path = if ours { readme } else { folder.join(OTHER) };
        write_atomic(&path, self.text().as_bytes())?;
        Ok(path)
    }

    /// Returns the card as Markdown.
    pub fn text(&self) -> String {
        let mut out = self.front_matter();
        // Writing to a string can't fail.
        let _ =
            writeln!(out, "\n{MARK}\n\n# {}\n\n{}\n", escaped(&self.name), escaped(&self.summary));
        if !self.results.is_empty() {
            out.push_str("## Results\n\n| data | metric | value |\n|---|---|---:|\n");
            for result in &self.results {
                for (name, value) in &result.scores {
                    let _ = writeln!(out, "| {} | {name} | {value:.4} |", escaped(&result.data));
                }
            }
            out.push('\n');
        }
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            let _ = writeln!(out, "## {}\n\n| | |\n|---|---|", table.heading);
            for (name, value) in &table.rows {
                let _ = writeln!(out, "| {} | {} |", escaped(name), escaped(value));
            }
            out.push('\n');
        }
        let _ = writeln!(out, "## Use\n\n{}\n", self.usage);
        let version = env!("CARGO_PKG_VERSION");
        // A block ends at a line of as many marks as it began with.
        let marks = self.command.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(3.max(marks + 1));
        let command = &self.command;
        let _ = writeln!(out, "## Made by\n\nCloze {version}:\n\n{fence}\n{command}\n{fence}");
        out
    }

    /// Returns the front matter, without the language, which is not known.
    fn front_matter(&self) -> String {
        let mut out = String::from("---\nlibrary_name: transformers\n");
        let _ = writeln!(out, "pipeline_tag: {}", self.pipeline);
        if let Some(base) = &self.base_model {
            let _ = writeln!(out, "base_model: {}", quoted(base));
        }
        list(&mut out, "datasets", self.datasets.iter().map(String::as_str));
        let mut metrics: Vec<&str> = Vec::new();
        for (name, _) in self.results.iter().flat_map(|result| &result.scores) {
            if !metrics.contains(&metric(name)) {
                metrics.push(metric(name));
            }
        }
        list(&mut out, "metrics", metrics.into_iter());
        list(&mut out, "tags", ["bert", "cloze"].into_iter());
        if !self.results.is_empty() {
            let _ = writeln!(out, "model-index:\n- name: {}\n  results:", quoted(&self.name));
            for result in &self.results {
                self.result(&mut out, result);
            }
        }
        out.push_str("---\n");
        out
    }

    fn result(&self, out: &mut String, result: &Measured) {
        let _ = writeln!(
            out,
            "  - task:\n      type: {}\n    dataset:\n      type: {}\n      name: {}",
            self.pipeline,
            quoted(&result.dataset),
            quoted(&result.data),
        );
        if let Some(config) = &result.config {
            let _ = writeln!(out, "      config: {}", quoted(config));
        }
        let _ = writeln!(out, "      split: {}\n    metrics:", result.split);
        for (name, value) in &result.scores {
            let _ = writeln!(
                out,
                "    - type: {}\n      name: {}\n      value: {value}",
                metric(name),
                quoted(name),
            );
        }
    }
}

/// Returns the Hub's name of a metric.
fn metric(name: &str) -> &str {
    match name {
        "mcc" => "matthews_correlation",
        "pearson" => "pearsonr",
        "spearman" => "spearmanr",
        "exact" => "exact_match",
        "macro_f1" => "f1",
        _ => name,
    }
}

fn list<'a>(out: &mut String, name: &str, values: impl Iterator<Item = &'a str>) {
    for (index, value) in values.enumerate() {
        if index == 0 {
            let _ = writeln!(out, "{name}:");
        }
        let _ = writeln!(out, "- {}", quoted(value));
    }
}

/// Quotes a string for YAML, if needed, as in JSON.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "y" | "n" | "yes" | "no" | "true" | "false" | "on" | "off" | "null"
    );
    if starts && text.chars().all(plain) && !word {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

/// Escapes a text for a line or a table's cell of Markdown: it has no markup, no links and no pictures.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Not every renderer knows a backslash before these.
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            c if MARKS.contains(&c) => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns a text that was [`escaped`].
#[cfg(any(test, feature = "cli"))]
pub(crate) fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(&next) if c == '\\' && MARKS.contains(&next) => {
                out.push(next);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out.replace("&lt;", "<").replace("&amp;", "&")
}

/// Makes a text fit between the marks of a code span.
#[cfg(any(test, feature = "cli"))]
pub(crate) fn in_code(text: &str) -> String {
    text.replace(|c: char| c == '`' || c.is_control(), "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        Card {
            name: "mrpc".into(),
            summary: "A BERT.".into(),
            pipeline: "text-classification",
            base_model: Some("123: \"x\"".into()),
            datasets: vec!["nyu-mll/glue".into()],
            results: vec![Measured {
                data: "MRPC".into(),
                dataset: "nyu-mll/glue".into(),
                config: Some("mrpc".into()),
                split: "validation",
                scores: vec![("accuracy".into(), 0.75), ("mcc".into(), 0.5)],
            }],
            tables: vec![Table::new("Recipe").row("a | b", 32)],
            command: "cloze finetune mrpc".into(),
            usage: "As any BERT.".into(),
        }
    }

    #[test]
    fn the_front_matter_is_the_hub_s() {
        let expected = "---\n\
            library_name: transformers\n\
            pipeline_tag: text-classification\n\
            base_model: \"123: \\\"x\\\"\"\n\
            datasets:\n- nyu-mll/glue\n\
            metrics:\n- accuracy\n- matthews_correlation\n\
            tags:\n- bert\n- cloze\n\
            model-index:\n- name: mrpc\n  results:\n  - task:\n      type: text-classification\n    \
            dataset:\n      type: nyu-mll/glue\n      name: MRPC\n      config: mrpc\n      \
            split: validation\n    metrics:\n    \
            - type: accuracy\n      name: accuracy\n      value: 0.75\n    \
            - type: matthews_correlation\n      name: mcc\n      value: 0.5\n---\n";
        let text = card().text();
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("| MRPC | accuracy | 0.7500 |") && text.contains("| a \\| b | 32 |"));
        assert!(text.contains("```\ncloze finetune mrpc\n```"));
    }

    #[test]
    fn texts_are_no_markup() {
        let wicked = "<b>&\\|[x](javascript:y)`\n# z";
        let card = Card {
            name: wicked.into(),
            summary: wicked.into(),
            tables: vec![Table::new("Recipe").row(wicked, wicked)],
            command: "cloze\n```\n<b>".into(),
            ..card()
        };
        let text = card.text();
        let plain = "&lt;b>&amp;\\\\\\|\\[x\\](javascript:y)\\` # z";
        for part in [
            format!("# {plain}\n\n{plain}\n"),
            format!("| {plain} | {plain} |\n"),
            "````\ncloze\n```\n<b>\n````\n".into(),
        ] {
            assert!(text.contains(&part), "{part}\n{text}");
        }
        assert_eq!(unescaped(plain), wicked.replace('\n', " "));
        assert_eq!(unescaped("\\d \\| a"), "\\d | a");
        assert_eq!(in_code("a`b\n"), "a?b?");
    }

    #[test]
    fn a_readme_of_somebody_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert_eq!(card().write(folder.path()).unwrap(), path(README));
        let again = Card { name: "other".into(), ..card() };
        assert_eq!(again.write(folder.path()).unwrap(), path(README));
        let text = std::fs::read_to_string(path(README)).unwrap();
        assert!(text.contains("# other") && !path(OTHER).exists());

        std::fs::write(path(README), "# Mine").unwrap();
        assert_eq!(card().write(folder.path()).unwrap(), path(OTHER));
        assert_eq!(std::fs::read_to_string(path(README)).unwrap(), "# Mine");
    }
}
