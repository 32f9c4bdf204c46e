//! The web page of a run: a single file that can be opened during the run and kept after it.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::digest::{SHA256, digest};

use super::LineChart;
use super::style::{SVG_STYLE, escape};

/// Seconds after which the page of an active run reloads itself.
const REFRESH: u32 = 15;

/// A table of names and values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// Its heading.
    pub heading: String,
    /// Its names and values.
    pub rows: Vec<(String, String)>,
}

impl Table {
    /// Creates an empty table.
    pub fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.rows.push((name.into(), value.to_string()));
        self
    }
}

/// The content of the page.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// The state of the run in a sentence.
    pub status: String,
    /// Whether the run is active; the page then reloads itself.
    pub running: bool,
    /// The finished share of the run, from 0 to 1.
    pub done: f64,
    /// Names and values of the current figures.
    pub figures: Vec<(String, String)>,
    /// The charts.
    pub charts: Vec<LineChart>,
    /// Other pictures, as SVG.
    pub pictures: Vec<String>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The command that started the run.
    pub command: String,
}

/// Light or dark, as the reader's system; the charts take the page's text colour.
const STYLE: &str = include_str!("page.css");

/// Returns the content security policy of a page that may load nothing, and run and style only what `allowed` names.
pub(super) fn policy(allowed: &str) -> String {
    format!("default-src 'none'; base-uri 'none'; form-action 'none'; {allowed}")
}

/// Returns the hash by which a policy allows the text of a script, a style element or a style attribute.
pub(super) fn hash(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

impl Page {
    /// Returns the page as HTML.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let refresh = match self.running {
            true => format!("<meta http-equiv=\"refresh\" content=\"{REFRESH}\">\n"),
            false => String::new(),
        };
        // The charts have a style attribute; no other one is allowed.
        let styles = [STYLE, SVG_STYLE].map(hash).join(" ");
        let policy = policy(&format!("style-src 'unsafe-hashes' {styles}"));
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             {refresh}<title>{title}</title><style>{STYLE}</style></head><body>\n\
             <h1>{title}</h1>\n<p class=\"status\">{}</p>\n\
             <progress value=\"{:.4}\" aria-label=\"share of the run that is done\"></progress>\n\
             <div class=\"figures\">\n",
            escape(&self.status),
            self.done.clamp(0.0, 1.0),
        );
        for (name, value) in &self.figures {
            let (name, value) = (escape(name), escape(value));
            out += &format!("<div><b>{value}</b><span>{name}</span></div>\n");
        }
        out += "</div>\n<div class=\"grid\">\n";
        for picture in self.charts.iter().map(LineChart::svg).chain(self.pictures.iter().cloned()) {
            out += &format!("<section>{picture}</section>\n");
        }
        out += "</div>\n<div class=\"tables\">\n";
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            let heading = escape(&table.heading);
            out += &format!("<section><h2>{heading}</h2><table>\n");
            for (name, value) in &table.rows {
                let (name, value) = (escape(name), escape(value));
                out += &format!("<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>\n");
            }
            out += "</table></section>\n";
        }
        let command = escape(&self.command);
        out + &format!(
            "</div>\n<section><h2>Command</h2><pre>{command}</pre></section>\n</body></html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_everything_and_asks_for_nothing_from_elsewhere() {
        let mut page = Page {
            title: "Fine-tuning on <own> data".into(),
            status: "step 3 of 4".into(),
            running: true,
            done: 0.75,
            figures: vec![("loss".into(), "0.5".into())],
            pictures: vec!["<svg>confusion</svg>".into()],
            charts: vec![LineChart::new("Loss").line("training", &[(1.0, 2.0), (2.0, 1.0)])],
            tables: vec![Table::new("Recipe").row("batch", 32), Table::new("Nothing")],
            command: "cloze finetune 'a & b'".into(),
        };
        let html = page.html();
        for part in [
            "<title>Fine-tuning on &lt;own&gt; data</title>",
            "step 3 of 4",
            "value=\"0.7500\"",
            "<b>0.5</b><span>loss</span>",
            "<svg role=\"img\" aria-label=\"Loss\"",
            "<section><svg>confusion</svg></section>",
            "<th scope=\"row\">batch</th><td>32</td>",
            "cloze finetune 'a &amp; b'",
            "http-equiv=\"refresh\"",
            "prefers-color-scheme: dark",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("Nothing"));
        page.running = false;
        assert!(!page.html().contains("http-equiv=\"refresh\""));
    }
}
