//! Token strips: a sequence of word pieces as boxes, with further rows below them.

use super::display::{Content, Show};
use super::style::{self, TEXT_SIZE, WIDTH};

/// Pixels around texts: padding and border of a box, padding of an entry below it, padding after the names of
/// the rows, and the gap between two columns.
const BOX: i32 = 16;
const ENTRY: i32 = 8;
const NAMES: i32 = 6;
const GAP: i32 = 4;

/// A row of tokens, and aligned rows below it: ids, segments, positions, tokens before masking.
#[derive(Debug, Clone, Default)]
pub struct TokenStrip {
    title: String,
    tokens: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
    /// The colour of each token; grey without one.
    colors: Vec<Option<usize>>,
}

impl TokenStrip {
    /// Creates a strip of `tokens`.
    pub fn new<S: ToString>(title: impl Into<String>, tokens: &[S]) -> Self {
        Self {
            title: title.into(),
            tokens: tokens.iter().map(S::to_string).collect(),
            ..Self::default()
        }
    }

    /// Adds a row called `name` with an entry for each token; missing ones stay empty.
    pub fn row<S: ToString>(mut self, name: impl Into<String>, entries: &[S]) -> Self {
        let entries = entries.iter().map(S::to_string).collect();
        self.rows.push((name.into(), entries));
        self
    }

    /// The number of a grey box for [`colored`](Self::colored).
    pub const PLAIN: u32 = u32::MAX;

    /// Colours each token's box by a number, such as its segment; [plain](Self::PLAIN) boxes and those without a
    /// number are grey.
    pub fn colored(mut self, groups: &[u32]) -> Self {
        let color = |&group: &u32| (group != Self::PLAIN).then_some(group as usize);
        self.colors = groups.iter().map(color).collect();
        self
    }

    /// Returns the rows in aligned columns, for a terminal.
    pub fn text(&self) -> String {
        let entry = |row: &[String], i: usize| row.get(i).cloned().unwrap_or_default();
        let names = style::longest(self.rows.iter().map(|row| &row.0));
        let mut lines = vec![format!("{:names$}", "")];
        lines.extend(self.rows.iter().map(|(name, _)| format!("{name:names$}")));
        let mut out = self.title.clone();
        let mut filled = names;
        for (i, token) in self.tokens.iter().enumerate() {
            let mut column = vec![token.clone()];
            column.extend(self.rows.iter().map(|(_, row)| entry(row, i)));
            let width = style::longest(column.iter());
            if filled + width + 2 > 100 && filled > names {
                out += &flush(&mut lines, &self.rows, names);
                filled = names;
            }
            for (line, cell) in lines.iter_mut().zip(&column) {
                *line += &format!("  {cell:width$}");
            }
            filled += width + 2;
        }
        out + &flush(&mut lines, &self.rows, names)
    }

    /// Returns the strip as HTML, for a notebook.
    pub fn html(&self) -> String {
        let mut out =
            format!("<div style=\"margin:4px 0\"><b>{}</b></div>", style::escape(&self.title));
        let mut start = 0;
        for end in self.line_ends() {
            // TEXT_SIZE in pixels.
            out += &format!(
                "<div style=\"display:flex;flex-wrap:wrap;gap:6px {GAP}px;margin-bottom:8px;\
                 font-size:13px;line-height:1.35\">"
            );
            out += &self.names_html();
            out.extend((start..end).map(|i| self.token_html(i)));
            out += "</div>";
            start = end;
        }
        out
    }

    /// Returns the ends of lines that fit a notebook's column; each line begins with the names of the rows.
    fn line_ends(&self) -> Vec<usize> {
        let wide = |text: &str| style::text_width(text, TEXT_SIZE);
        let names = match self.rows.is_empty() {
            true => 0,
            false => self.names_width() + NAMES + GAP,
        };
        let mut ends = Vec::new();
        let mut filled = names;
        for (i, token) in self.tokens.iter().enumerate() {
            let entries = self.rows.iter().filter_map(|(_, row)| row.get(i));
            let entries = entries.map(|entry| wide(entry) + ENTRY).max().unwrap_or(0);
            let width = (wide(token) + BOX).max(entries) + GAP;
            // A token that is too wide for any line gets its own.
            if filled + width > WIDTH as i32 && filled > names {
                ends.push(i);
                filled = names;
            }
            filled += width;
        }
        ends.push(self.tokens.len());
        ends
    }

    fn names_width(&self) -> i32 {
        style::widest(self.rows.iter().map(|row| &row.0), TEXT_SIZE)
    }

    /// Returns the names of the rows as a column, equally wide in every line.
    fn names_html(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut out = format!(
            "<div style=\"text-align:right;padding-right:{NAMES}px;opacity:.75;min-width:{}px\">",
            self.names_width()
        );
        out += &cell("", "padding:2px 0;border:1px solid transparent");
        out.extend(self.rows.iter().map(|(name, _)| cell(name, "")));
        out + "</div>"
    }

    fn token_html(&self, i: usize) -> String {
        let color = match self.colors.get(i) {
            Some(&Some(group)) => {
                let c = style::series(group);
                format!("{},{},{}", c.0, c.1, c.2)
            }
            _ => "122,128,136".into(),
        };
        let token = format!(
            "padding:2px 7px;border-radius:5px;font-family:monospace;\
             background:rgba({color},.16);border:1px solid rgba({color},.75)"
        );
        let mut out = String::from("<div style=\"text-align:center\">");
        out += &cell(&self.tokens[i], &token);
        for (_, row) in &self.rows {
            let entry = row.get(i).map_or("", String::as_str);
            out += &cell(entry, "padding:0 4px;font-variant-numeric:tabular-nums");
        }
        out + "</div>"
    }
}

/// Returns a box or entry of a strip, with full height even if it is empty.
fn cell(text: &str, css: &str) -> String {
    let text = match text {
        "" => "&nbsp;".to_owned(),
        text => style::escape(text),
    };
    format!("<div style=\"{css}\">{text}</div>")
}

impl Show for TokenStrip {
    fn content(&self) -> Content {
        Content::html(style::figure(&self.html())).with_text(self.text())
    }
}

/// Returns the finished text lines and starts new ones.
fn flush(lines: &mut [String], rows: &[(String, Vec<String>)], names: usize) -> String {
    let mut out = String::new();
    let heads = std::iter::once("").chain(rows.iter().map(|r| r.0.as_str()));
    for (line, head) in lines.iter_mut().zip(heads) {
        out += &format!("\n  {}", line.trim_end());
        *line = format!("{head:names$}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_with_their_tokens() {
        let strip = TokenStrip::new("ids", &["[CLS]", "em", "##bed"]).row("id", &[2, 7001, 15]);
        let expected = "ids\n      [CLS]  em    ##bed\n  id  2      7001  15";
        assert_eq!(strip.text(), expected);
    }

    #[test]
    fn long_strips_wrap_and_lose_nothing() {
        let tokens: Vec<String> = (0..60).map(|i| format!("token{i}")).collect();
        let strip = TokenStrip::new("long", &tokens).row("n", &(0..60).collect::<Vec<_>>());
        let text = strip.text();
        assert!(text.lines().all(|l| l.chars().count() <= 104));
        assert!(tokens.iter().all(|t| text.contains(t.as_str())));
        assert_eq!(text.lines().filter(|l| l.starts_with("  n")).count(), 5 + 1);
    }

    #[test]
    fn every_line_in_a_notebook_names_its_rows() {
        let tokens: Vec<String> = (0..40).map(|i| format!("token{i}")).collect();
        let html = |count: usize| {
            TokenStrip::new("long", &tokens[..count])
                .row("position", &(0..count).collect::<Vec<_>>())
                .html()
        };
        assert_eq!(html(3).matches("position").count(), 1);
        let lines = html(40).matches("position").count();
        assert!((3..10).contains(&lines), "{lines}");
        assert!(tokens.iter().all(|t| html(40).contains(&format!(">{t}<"))));
    }

    #[test]
    fn long_names_shorten_the_lines() {
        let tokens = ["token"; 60];
        let ends = |name: &str| TokenStrip::new("x", &tokens).row(name, &[0; 60]).line_ends();
        // A token takes 39 pixels of letters, 16 of its box and 4 of the gap; the name 10 more than its text.
        let name = style::text_width("id", TEXT_SIZE) + 10;
        let fit = (WIDTH as i32 - name) / 59;
        assert_eq!(ends("id")[0], fit as usize);
        // A name that takes a quarter of the line.
        let long = "n".repeat(23);
        let short = style::text_width(&long, TEXT_SIZE) + 10;
        assert_eq!(ends(&long)[0] as i32, (WIDTH as i32 - short) / 59);
        assert!(ends(&long).len() > ends("id").len());
        // Each line has a token even without room for it.
        assert_eq!(ends(&"n".repeat(200)).len(), 60);
    }

    #[test]
    fn boxes_are_coloured_by_their_groups_or_grey() {
        let strip = TokenStrip::new("x", &["a", "b", "c"]).colored(&[0, TokenStrip::PLAIN]);
        let html = strip.html();
        assert_eq!(html.matches("rgba(47,134,209,.16)").count(), 1);
        assert_eq!(html.matches("rgba(122,128,136,.16)").count(), 2);
    }

    #[test]
    fn tokens_are_escaped_in_html() {
        assert!(TokenStrip::new("x", &["<b>"]).html().contains("&lt;b&gt;"));
    }
}
