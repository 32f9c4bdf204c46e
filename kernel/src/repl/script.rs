//! Reads cells from a script: a file or standard input.

use std::io::BufRead;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use cloze::{Error, Result};

use crate::session::call_of_main;
use crate::session::completeness::{self, Completeness};

/// A line that comes later than this does not belong to the cell before it: whoever types into a pipe
/// waits for the answer.
const LATE: Duration = Duration::from_millis(200);

/// A line that begins a cell in jupytext's percent format. The cell ends before the next such line.
const MARK: &str = "// %%";

/// Reads a script cell by cell.
pub struct Script {
    lines: mpsc::Receiver<std::io::Result<String>>,
    /// A line that was read to find out whether the cell continues.
    ahead: Option<String>,
    /// The cell of a script that is a program.
    program: Option<String>,
    name: String,
    line: usize,
}

/// One cell of a script.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub code: String,
    /// Its first line, from 1.
    pub line: usize,
}

impl Script {
    pub fn standard_input() -> Self {
        Self::read("standard input", std::io::BufReader::new(std::io::stdin()))
    }

    pub fn file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
        let name = path.display().to_string();
        Ok(match program(&text) {
            Some(program) => Self { program: Some(program), ..Self::read(&name, std::io::empty()) },
            None => Self::read(&name, std::io::Cursor::new(text)),
        })
    }

    fn read(name: &str, reader: impl BufRead + Send + 'static) -> Self {
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in reader.lines() {
                // The script has ended at an error.
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { lines, ahead: None, program: None, name: name.to_owned(), line: 0 }
    }

    /// Its name in error messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next cell: as many lines as belong together. Returns `None` at the end.
    pub fn next(&mut self) -> Result<Option<Piece>> {
        if let Some(code) = self.program.take() {
            return Ok(Some(Piece { code, line: 1 }));
        }
        let mut code = String::new();
        let mut first = self.line + 1;
        while let Some(line) = self.take()? {
            if line.starts_with("#!") && !line.starts_with("#![") && self.line == 1 {
                // The line with the path of the interpreter.
                first = self.line + 1;
                continue;
            }
            if code.trim().is_empty() {
                code.clear();
                first = self.line;
                if line.starts_with(MARK) {
                    code = self.marked()?;
                    if code.trim().is_empty() {
                        continue;
                    }
                    return Ok(Some(Piece { code, line: first + 1 }));
                }
            }
            code.push_str(&line);
            code.push('\n');
            let open = matches!(completeness::judge(&code), Completeness::Incomplete { .. });
            if !open && !code.trim().is_empty() && !self.continues()? {
                return Ok(Some(Piece { code, line: first }));
            }
        }
        // The compiler reports what is missing at the end of the input.
        let left = !code.trim().is_empty();
        Ok(left.then_some(Piece { code, line: first }))
    }

    /// Reads the lines of a cell below its mark.
    fn marked(&mut self) -> Result<String> {
        let mut code = String::new();
        while let Some(line) = self.take()? {
            if line.starts_with(MARK) {
                self.line -= 1;
                self.ahead = Some(line);
                break;
            }
            code.push_str(&line);
            code.push('\n');
        }
        Ok(code)
    }

    fn take(&mut self) -> Result<Option<String>> {
        let line = match self.ahead.take() {
            Some(line) => Some(line),
            None => match self.lines.recv() {
                Ok(line) => Some(self.good(line)?),
                Err(_) => None,
            },
        };
        self.line += usize::from(line.is_some());
        Ok(line)
    }

    fn good(&self, line: std::io::Result<String>) -> Result<String> {
        line.map_err(|source| Error::io(&self.name, source))
    }

    /// Returns whether the next line belongs to a cell that seems complete.
    fn continues(&mut self) -> Result<bool> {
        match self.lines.recv_timeout(LATE) {
            Ok(line) => {
                let line = self.good(line)?;
                let continues = continues(&line);
                self.ahead = Some(line);
                Ok(continues)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(false),
        }
    }
}

/// Returns a text whose code stands in `fn main`, with a call of it. It keeps the numbers of its lines.
fn program(text: &str) -> Option<String> {
    // A cell has no path of an interpreter and no attributes of a crate.
    let lines = text.lines().map(|line| match line.starts_with("#!") {
        true => format!("//{line}\n"),
        false => format!("{line}\n"),
    });
    let text: String = lines.collect();
    let call = call_of_main(&text)?;
    Some(format!("{text}{call}\n"))
}

/// Returns whether a line is indented, or begins with text that begins no statement.
fn continues(line: &str) -> bool {
    let text = line.trim_start();
    let indented = text.len() < line.len() && !text.is_empty();
    let else_branch = text
        .strip_prefix("else")
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
    let operator = ["&&", "||", "?", "+", "/ ", "=", "as ", "where"]
        .iter()
        .any(|begin| text.starts_with(begin));
    let method = text.starts_with('.') && !text.starts_with("..");
    // An indented `:vars` is a cell of its own.
    indented && !text.starts_with(':') || else_branch || operator || method
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &'static str) -> Vec<(usize, String)> {
        let mut script = Script::read("test", text.as_bytes());
        let mut pieces = Vec::new();
        while let Some(piece) = script.next().unwrap() {
            pieces.push((piece.line, piece.code));
        }
        pieces
    }

    #[test]
    fn every_complete_piece_is_a_cell_with_its_line() {
        assert_eq!(
            pieces("let x = 1;\n\nfn f() {\n    x\n}\n:vars\nlet y =\n"),
            [
                (1, "let x = 1;\n".to_owned()),
                (3, "fn f() {\n    x\n}\n".to_owned()),
                (6, ":vars\n".to_owned()),
                (7, "let y =\n".to_owned()),
            ]
        );
        assert_eq!(pieces(""), []);
        assert_eq!(pieces("\n\n"), []);
    }

    #[test]
    fn a_chain_of_several_lines_is_one_cell() {
        for text in [
            "let x = a()\n    .b()\n    .c();\n",
            "a()\n.b()\n",
            "if a {\n}\nelse {\n}\n",
            "let x = a\n    + b;\n",
        ] {
            assert_eq!(pieces(text), [(1, text.to_owned())], "{text}");
        }
        assert_eq!(pieces("a\nelsewhere\n").len(), 2);
    }

    #[test]
    fn a_marked_cell_ends_at_the_next_mark() {
        assert_eq!(
            pieces("let a = 1;\n// %%\n\nlet b = 2;\nb + 1\n// %%\n// %%\n:vars\n"),
            [
                (1, "let a = 1;\n".to_owned()),
                (3, "\nlet b = 2;\nb + 1\n".to_owned()),
                (8, ":vars\n".to_owned()),
            ]
        );
    }

    #[test]
    fn a_program_is_one_cell_that_calls_its_main() {
        let called = program("#!/usr/bin/cloze\n#![allow(a)]\nfn main() {\n}\nfn f() {}");
        let code = "//#!/usr/bin/cloze\n//#![allow(a)]\nfn main() {\n}\nfn f() {}\nmain();\n";
        assert_eq!(called.as_deref(), Some(code));
        assert_eq!(program("fn f() {}\nf();\n"), None);
    }

    #[test]
    fn the_line_with_the_interpreter_is_skipped() {
        let script = "#!/usr/bin/env -S cloze-kernel repl\n1 + 1\n";
        assert_eq!(pieces(script), [(2, "1 + 1\n".to_owned())]);
        assert_eq!(pieces("#![allow(unused)]\n").len(), 1);
    }
}
