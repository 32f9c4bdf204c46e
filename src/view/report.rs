//! A run's report as a web page: one file with everything in it, to be looked at while the run goes
//! on and kept when it is over.

use std::fmt::Write as _;

use super::LineChart;
use super::style::escape;

/// How often an open page of a running run is loaded again, in seconds.
const REFRESH: u32 = 15;

/// Names with their values under a heading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    pub heading: String,
    pub rows: Vec<(String, String)>,
}

impl Table {
    /// An empty table.
    pub fn new(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.rows.push((name.into(), value.to_string()));
        self
    }
}

/// What a report shows.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub title: String,
    /// Where the run stands, in a sentence.
    pub status: String,
    /// Whether the run goes on: the page then looks for news by itself.
    pub running: bool,
    /// The share of the run that is done, 0 to 1.
    pub done: f64,
    /// The figures of the moment: what they are, and their values.
    pub figures: Vec<(String, String)>,
    pub charts: Vec<LineChart>,
    pub tables: Vec<Table>,
    /// What started the run.
    pub command: String,
}

/// Light or dark as the reader's system is; the charts take the page's text colour.
const STYLE: &str = "\
:root { color-scheme: light dark; --page: #fff; --ink: #24292f; --soft: #57606a; --line: #d0d7de; \
--panel: #f6f8fa; --accent: #2f86d1 }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #dfe5ec; --soft: #98a3af; \
--line: #343b44; --panel: #1c2128 } }
body { margin: 0 auto; padding: 1.5rem; max-width: 94rem; background: var(--page); \
color: var(--ink); font: 15px/1.5 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
h1 { font-size: 1.5rem; margin: 0 }
h2 { font-size: 1rem; margin: 0 0 .5rem }
.status { color: var(--soft); margin: .25rem 0 1rem }
progress { width: 100%; accent-color: var(--accent) }
.figures { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0 }
.figures div, section { background: var(--panel); border: 1px solid var(--line); \
border-radius: 6px; padding: .6rem .9rem }
.figures b { display: block; font-size: 1.25rem; font-weight: 600; \
font-variant-numeric: tabular-nums }
.figures span { color: var(--soft); font-size: .85rem }
.grid { display: grid; gap: .75rem; margin: .75rem 0; \
grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)) }
.tables { columns: 30rem 2; column-gap: .75rem }
.tables section { break-inside: avoid; margin-bottom: .75rem }
section { overflow-x: auto }
section > svg { display: block; width: 100%; color: var(--ink) }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; \
border-top: 1px solid var(--line); font-weight: 400; overflow-wrap: anywhere }
th { color: var(--soft); width: 40% }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; font: 13px/1.5 ui-monospace, monospace }
";

impl Page {
    /// The page as HTML.
    pub fn html(&self) -> String {
        let mut out = String::with_capacity(1 << 16);
        let title = escape(&self.title);
        out.push_str("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        // Writing to a string has no way to fail.
        if self.running {
            let _ = writeln!(out, "<meta http-equiv=\"refresh\" content=\"{REFRESH}\">");
        }
        let _ = writeln!(
            out,
            "<title>{title}</title><style>\n{STYLE}</style></head><body>"
        );
        let _ = writeln!(
            out,
            "<h1>{title}</h1>\n<p class=\"status\">{}</p>\n<progress value=\"{:.4}\" aria-label=\"share \
             of the run that is done\"></progress>",
            escape(&self.status),
            self.done.clamp(0.0, 1.0),
        );
        out.push_str("<div class=\"figures\">\n");
        for (name, value) in &self.figures {
            let (name, value) = (escape(name), escape(value));
            let _ = writeln!(out, "<div><b>{value}</b><span>{name}</span></div>");
        }
        out.push_str("</div>\n<div class=\"grid\">\n");
        for chart in &self.charts {
            let _ = writeln!(out, "<section>{}</section>", chart.svg());
        }
        out.push_str("</div>\n<div class=\"tables\">\n");
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            let _ = writeln!(out, "<section><h2>{}</h2><table>", escape(&table.heading));
            for (name, value) in &table.rows {
                let (name, value) = (escape(name), escape(value));
                let _ = writeln!(
                    out,
                    "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>"
                );
            }
            out.push_str("</table></section>\n");
        }
        let _ = writeln!(
            out,
            "</div>\n<section><h2>Command</h2><pre>{}</pre></section>\n</body></html>",
            escape(&self.command)
        );
        out
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
            "<th scope=\"row\">batch</th><td>32</td>",
            "cloze finetune 'a &amp; b'",
            "http-equiv=\"refresh\"",
            "prefers-color-scheme: dark",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("<script") && !html.contains("src=") && !html.contains("Nothing"));
        page.running = false;
        assert!(!page.html().contains("http-equiv"));
    }
}
