//! Markdown in a terminal: paragraphs in the width of the screen, emphasis, lists, tables, formulas as text.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthStr;

use super::{formula, highlight};
use crate::session::without_colours;

const BOLD: (&str, &str) = ("\x1b[1m", "\x1b[22m");
const ITALIC: (&str, &str) = ("\x1b[3m", "\x1b[23m");
const CODE: (&str, &str) = ("\x1b[36m", "\x1b[39m");
const UNDERLINE: (&str, &str) = ("\x1b[4m", "\x1b[24m");

/// A space at which no line ends.
const FIXED: &str = "\u{a0}";
/// Code and formulas up to this width stay on one line.
const SHORT: usize = 32;
/// Code and formulas on lines of their own are indented by this.
const INDENT: usize = 4;
/// The columns between two columns of a table, and the least width of one.
const GAP: usize = 2;
const NARROW: usize = 8;

/// Returns Markdown as lines of at most `width` columns; code may be wider.
pub fn render(markdown: &str, width: usize, colours: bool) -> String {
    let mut page = Page { width, colours, ..Page::default() };
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_MATH) {
        page.take(event);
    }
    page.flush();
    page.out.replace(FIXED, " ")
}

#[derive(Default)]
struct Page {
    width: usize,
    colours: bool,
    out: String,
    /// The text of the paragraph so far.
    inline: String,
    indent: usize,
    /// The mark of a list's item, until its first line is written.
    bullet: Option<String>,
    /// The next number of each list; none if it has no numbers.
    lists: Vec<Option<u64>>,
    /// The language of a block of code.
    code: Option<String>,
    table: Vec<Vec<String>>,
    /// The address of the link.
    link: String,
}

impl Page {
    fn take(&mut self, event: Event) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.inline += &text,
            Event::Code(code) => {
                let code = fixed(&code);
                match self.colours {
                    true => self.inline += &format!("{}{code}{}", CODE.0, CODE.1),
                    false => self.inline += &format!("`{code}`"),
                }
            }
            Event::InlineMath(tex) => self.inline += &fixed(&formula::text(&tex)),
            Event::DisplayMath(tex) => self.display(&formula::text(&tex)),
            Event::SoftBreak => self.inline.push(' '),
            Event::HardBreak => self.inline.push('\n'),
            Event::Rule => self.lines(&["─".repeat(self.width.min(40))]),
            Event::Html(text) | Event::InlineHtml(text) => self.inline += &text,
            Event::FootnoteReference(_) | Event::TaskListMarker(_) => {}
        }
    }

    fn start(&mut self, tag: Tag) {
        match tag {
            Tag::Paragraph => self.gap(),
            Tag::Heading { level, .. } => {
                self.gap();
                self.style(BOLD.0);
                if level == HeadingLevel::H1 {
                    self.style(UNDERLINE.0);
                }
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.gap();
                self.code = Some(match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                });
            }
            Tag::List(first) => {
                self.flush();
                if self.lists.is_empty() {
                    self.gap();
                }
                self.lists.push(first);
            }
            Tag::Item => {
                let bullet = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                self.indent += bullet.width();
                self.bullet = Some(bullet);
            }
            Tag::BlockQuote(_) => self.indent += 2,
            Tag::Table(_) => self.gap(),
            Tag::TableHead | Tag::TableRow => self.table.push(Vec::new()),
            Tag::Strong => self.style(BOLD.0),
            Tag::Emphasis => self.style(ITALIC.0),
            Tag::Link { dest_url, .. } => self.link = dest_url.to_string(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.flush(),
            TagEnd::Heading(level) => {
                if level == HeadingLevel::H1 {
                    self.style(UNDERLINE.1);
                }
                self.style(BOLD.1);
                self.flush();
            }
            TagEnd::CodeBlock => self.code_block(),
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::Item => {
                self.flush();
                let number = self.lists.last().copied().flatten();
                self.indent -= number.map_or(2, |next| format!("{}. ", next - 1).len());
            }
            TagEnd::BlockQuote(_) => self.indent -= 2,
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Some(row) = self.table.last_mut() {
                    row.push(cell);
                }
            }
            TagEnd::Table => self.table_lines(),
            TagEnd::Strong => self.style(BOLD.1),
            TagEnd::Emphasis => self.style(ITALIC.1),
            // Only addresses in the web mean something here.
            TagEnd::Link if self.link.starts_with("http") && !self.inline.ends_with(&self.link) => {
                self.inline += &format!(" ({})", self.link);
            }
            _ => {}
        }
    }

    fn style(&mut self, code: &str) {
        if self.colours {
            self.inline += code;
        }
    }

    /// Writes an empty line above a block, except above the first in an item.
    fn gap(&mut self) {
        if !self.out.is_empty() && self.bullet.is_none() {
            self.out.push('\n');
        }
    }

    fn lines(&mut self, lines: &[String]) {
        for line in lines {
            let bullet = self.bullet.take().unwrap_or_default();
            let indent = " ".repeat(self.indent - bullet.width().min(self.indent));
            self.out += format!("{indent}{bullet}{line}").trim_end();
            self.out.push('\n');
        }
    }

    /// Writes the paragraph.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.inline);
        if !text.trim().is_empty() {
            self.lines(&wrapped(&text, self.width.saturating_sub(self.indent)));
        }
    }

    fn display(&mut self, formula: &str) {
        if !self.inline.trim().is_empty() {
            self.flush();
            self.out.push('\n');
        }
        self.inline.clear();
        self.indent += INDENT;
        let width = self.width.saturating_sub(self.indent);
        let lines: Vec<String> = match formula.width() <= width {
            true => vec![formula.to_owned()],
            false => formula.split("    ").flat_map(|part| wrapped(part, width)).collect(),
        };
        self.lines(&lines);
        self.indent -= INDENT;
    }

    fn code_block(&mut self) {
        let code = std::mem::take(&mut self.inline);
        let language = self.code.take().unwrap_or_default();
        let code = match self.colours && language == "rust" {
            true => highlight::highlight(code.trim_end(), None),
            false => code.trim_end().to_owned(),
        };
        let lines: Vec<String> = code.lines().map(str::to_owned).collect();
        self.lines(&lines);
    }

    fn table_lines(&mut self) {
        let rows = std::mem::take(&mut self.table);
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let room = self.width.saturating_sub(self.indent + GAP * columns.saturating_sub(1));
        let wide = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| columns_of(cell)).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(wide).collect();
        while widths.iter().sum::<usize>() > room {
            // The widest column gives way.
            match widths.iter_mut().max().filter(|widest| **widest > NARROW) {
                Some(widest) => *widest -= 1,
                None => break,
            }
        }
        for (index, row) in rows.iter().enumerate() {
            let cells: Vec<Vec<String>> =
                row.iter().zip(&widths).map(|(cell, width)| wrapped(cell, *width)).collect();
            let height = cells.iter().map(Vec::len).max().unwrap_or(0);
            for line in 0..height {
                let parts = cells.iter().zip(&widths).map(|(cell, width)| {
                    let text = cell.get(line).map_or("", String::as_str);
                    format!("{text}{}", " ".repeat(width.saturating_sub(columns_of(text))))
                });
                let line = parts.collect::<Vec<_>>().join(&" ".repeat(GAP));
                self.lines(&[line]);
            }
            if index == 0 {
                let rule = widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>();
                self.lines(&[rule.join(&" ".repeat(GAP))]);
            }
        }
    }
}

fn columns_of(text: &str) -> usize {
    without_colours(text).width()
}

/// Keeps a short text on one line.
fn fixed(text: &str) -> String {
    match text.width() <= SHORT {
        true => text.replace(' ', FIXED),
        false => text.to_owned(),
    }
}

/// Breaks a text into lines at spaces.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for part in text.trim().split('\n') {
        let (mut line, mut used) = (String::new(), 0);
        for word in part.split(' ').filter(|word| !word.is_empty()) {
            let columns = columns_of(word);
            if used > 0 && used + 1 + columns > width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line += word;
            used += columns;
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emphasis_is_bold_or_italic_and_plain_without_colours() {
        assert_eq!(render("a **b** *c* `d`", 80, false), "a b c `d`\n");
        let shown = render("a **b** *c* `d`", 80, true);
        assert_eq!(shown, "a \x1b[1mb\x1b[22m \x1b[3mc\x1b[23m \x1b[36md\x1b[39m\n");
    }

    #[test]
    fn blocks_keep_their_form() {
        let text = "# Title\n\nOne\ntwo $x_1$:\n\n- a\n- b\n  c\n\n1. one\n2. two\n\n```\ncode  x\n```\n\n$$ y = \\sqrt 2 $$\n";
        let shown =
            "Title\n\nOne two x₁:\n\n• a\n• b c\n\n1. one\n2. two\n\ncode  x\n\n    y = √2\n";
        assert_eq!(render(text, 80, false), shown);
        let table = "| a | b |\n|---|---|\n| one | two words |\n";
        assert_eq!(render(table, 80, false), "a    b\n───  ─────────\none  two words\n");
        assert_eq!(render("[a](https://b.c) [d](e.rs)", 80, false), "a (https://b.c) d\n");
    }

    #[test]
    fn every_text_of_the_lessons_fits_and_has_no_latex() {
        for lesson in cloze::lessons::all().unwrap() {
            let cells = lesson.cells.iter();
            let texts =
                cells.filter(|cell| cell.kind == cloze::lessons::format::CellKind::Markdown);
            for text in texts.map(|cell| cell.solution()) {
                for event in Parser::new_ext(&text, Options::ENABLE_TABLES | Options::ENABLE_MATH) {
                    if let Event::InlineMath(tex) | Event::DisplayMath(tex) = event {
                        let shown = formula::text(&tex);
                        assert!(!shown.contains(['\\', '{', '}', '$']), "{tex}: {shown}");
                    }
                }
                let shown = render(&text, 80, false);
                let code = text.contains("```");
                for line in shown.lines() {
                    assert!(
                        code || line.width() <= 80 || line.contains("http"),
                        "{}: {line}",
                        lesson.name
                    );
                    assert!(code || !line.contains("**"), "{}: {line}", lesson.name);
                }
            }
        }
    }
}
