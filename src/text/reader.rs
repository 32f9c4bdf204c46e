//! Reads plain text from files, `.gz` files and folders, paragraph by paragraph.
//!
//! A document ends at a blank line or at the end of its file; every other line is a paragraph. In files
//! of WikiExtractor, which begin with `<doc`, it ends at `</doc>`, and its first line, the article's
//! title, is left out. Only the current line is kept in memory, so a corpus may have any size.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flate2::bufread::MultiGzDecoder;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

use super::raw;
use super::sections::Section;

/// One paragraph of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paragraph {
    /// The number of its document, counted from 0 over all files.
    pub document: u64,
    /// One line, without the line end and outer white space, never empty.
    pub text: String,
}

/// Returns `path` itself if it is a file, else the `.txt`, `.txt.gz` and WikiExtractor files
/// (`AA/wiki_00`) anywhere below it, sorted by name.
pub fn text_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !fs::metadata(path).map_err(|e| Error::io(path, e))?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    collect(path, &mut files)?;
    if files.is_empty() {
        let message = "the folder holds no .txt, .txt.gz or wiki_00 file";
        return Err(Error::file(path, message));
    }
    Ok(files)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|e| Error::io(folder, e))?;
    let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        // Links to folders are not followed: a link to a parent would never end.
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if path.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_text(&name) {
                files.push(path);
            }
        }
    }
    Ok(())
}

fn is_text(name: &str) -> bool {
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.ends_with(".txt") || name.strip_prefix("wiki_").is_some_and(is_number)
}

/// An open file or standard input.
pub type Input = Box<dyn BufRead + Send>;

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns whether [`open`] unpacks the file.
pub fn is_packed(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    file.take(2).read_to_end(&mut start).map_err(|e| Error::io(path, e))?;
    Ok(start == GZIP)
}

/// Opens a file and unpacks it if its first bytes are those of gzip, whatever its name.
pub fn open(path: &Path) -> Result<Input> {
    unpacked(File::open(path).map_err(|e| Error::io(path, e))?, path)
}

/// Opens a file as [`open`] does; `-` is standard input.
pub fn open_or_stdin(path: &Path) -> Result<Input> {
    if path == Path::new("-") { unpacked(std::io::stdin(), path) } else { open(path) }
}

/// Returns an error if a text can be read only once. A file that doesn't exist is found when it is opened.
pub fn check_readable_twice(path: &Path) -> Result<()> {
    let other = |found: fs::Metadata| !found.is_file() && !found.is_dir();
    if path == Path::new("-") || fs::metadata(path).is_ok_and(other) {
        let message = "is a pipe or a device, which can't be read twice; expected a file";
        return Err(Error::file(path, message));
    }
    Ok(())
}

fn unpacked(source: impl Read + Send + 'static, path: &Path) -> Result<Input> {
    let mut reader = BufReader::with_capacity(1 << 16, source);
    let start = reader.fill_buf().map_err(|e| Error::io(path, e))?;
    if !start.starts_with(&GZIP) {
        return Ok(Box::new(reader));
    }
    let unpacked = MultiGzDecoder::new(reader);
    Ok(Box::new(BufReader::with_capacity(1 << 16, unpacked)))
}

/// Returns the first line that isn't blank, without a byte-order mark, and the input from its start.
pub fn first_line(mut input: Input, path: &Path) -> Result<(String, Input)> {
    let mut start = Vec::new();
    // A line that is too long is an error when the lines are read.
    let mut limited = (&mut input).take(raw::LONGEST_LINE as u64 + 1);
    let line = loop {
        let from = start.len();
        let read = limited.read_until(b'\n', &mut start);
        let read = read.map_err(|e| Error::io(path, e))?;
        let line = &start[from..];
        if read == 0 || !line.trim_ascii().is_empty() {
            break line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
    };
    let line = String::from_utf8_lossy(line);
    let line = without_zeros(line.trim_end_matches(['\r', '\n']).to_owned());
    Ok((line, Box::new(Cursor::new(start).chain(input))))
}

/// Iterates over the lines of a text file and checks that they are text.
pub struct Lines<R> {
    reader: R,
    path: PathBuf,
    line: usize,
}

impl<R: BufRead> Lines<R> {
    /// Reads lines from `reader`; `path` is for error messages.
    pub fn new(reader: R, path: &Path) -> Self {
        Self { reader, path: path.to_path_buf(), line: 0 }
    }

    /// Iterates over the lines that aren't empty, each with its number, counted from 1. Zero bytes are
    /// dropped: a tokenizer drops them from texts, and in labels they are invisible.
    pub fn filled(self) -> impl Iterator<Item = (usize, Result<String>)> {
        let lines = self.map(|line| line.map(without_zeros));
        (1..).zip(lines).filter(|(_, line)| !matches!(line, Ok(line) if line.is_empty()))
    }

    /// Returns the underlying reader.
    pub fn reader(&self) -> &R {
        &self.reader
    }

    fn advance(&mut self) -> Result<Option<String>> {
        if self.line == 0 {
            let start = self.reader.fill_buf();
            raw::refuse_binary(start.map_err(|e| Error::io(&self.path, e))?, &self.path)?;
        }
        let Some(mut bytes) = raw::line(&mut self.reader, &self.path, self.line + 1)? else {
            return Ok(None);
        };
        self.line += 1;
        if self.line == 1 && bytes.starts_with("\u{feff}".as_bytes()) {
            bytes.drain(..3);
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        checked(bytes, &self.path, self.line).map(Some)
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}

/// Removes the character U+0000 from a text.
pub fn without_zeros(text: String) -> String {
    match text.contains('\0') {
        true => text.replace('\0', ""),
        false => text,
    }
}

/// Converts line `number` of a file to text; fails if it is not valid UTF-8.
pub fn checked(line: Vec<u8>, path: &Path, number: usize) -> Result<String> {
    String::from_utf8(line).map_err(|e| {
        let at = e.utf8_error().valid_up_to() + 1;
        let message = format!("byte {at} of the line is not valid UTF-8; {}", raw::UTF_8);
        Error::line(path, number, message)
    })
}

/// Reads all text of a file, gzip or not. For small files.
pub fn read_to_string(path: &Path) -> Result<String> {
    whole(open(path)?, path)
}

fn whole(reader: impl Read, path: &Path) -> Result<String> {
    String::from_utf8(raw::whole(reader, path)?).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&b| b == b'\n').count() + 1;
        Error::line(path, line, format!("not valid UTF-8; {}", raw::UTF_8))
    })
}

/// Reads a JSON file that was opened. Errors name the position in it and what was `expected`.
pub fn read_json<T: DeserializeOwned>(input: Input, path: &Path, expected: &str) -> Result<T> {
    let text = whole(input, path)?;
    let mut json = serde_json::Deserializer::from_str(text.trim_start_matches('\u{feff}'));
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = match error.path().to_string() {
            // The whole document, or no field that the parser could name.
            path if path == "." || path == "?" => String::new(),
            path => format!("{path}: "),
        };
        let message = format!("{field}{}; expected {expected}", error.inner());
        Error::file(path, message)
    })?;
    json.end().map_err(|error| Error::file(path, error.to_string()))?;
    Ok(value)
}

/// Iterates over the paragraphs of several files and folders.
pub struct Paragraphs {
    /// Files still to be read, in reverse order, each with the index of its argument.
    files: Vec<(usize, Section)>,
    arguments: Vec<PathBuf>,
    current: Option<(usize, Section, Lines<Input>)>,
    /// Whether each argument has given any text yet.
    found: Vec<bool>,
    /// The bytes of the files that have been read.
    read: Arc<AtomicU64>,
    document: u64,
    document_open: bool,
    kind: Kind,
    failed: bool,
}

/// The kind of the current file, and the position in it.
#[derive(Clone, Copy)]
enum Kind {
    /// Only blank lines have been read.
    New,
    /// A file of plain text.
    Plain,
    /// A WikiExtractor file, before an article's title.
    Title,
    /// A WikiExtractor file, inside an article or after it.
    Article,
}

impl Paragraphs {
    /// Lists the files of `paths` without reading them.
    pub fn new<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let arguments: Vec<PathBuf> = paths.iter().map(|p| p.as_ref().to_path_buf()).collect();
        let mut files = Vec::new();
        for (argument, path) in arguments.iter().enumerate() {
            let whole = |path| Section { path, bytes: 0..u64::MAX, wiki: false };
            files.extend(text_files(path)?.into_iter().map(|file| (argument, whole(file))));
        }
        let found = vec![false; arguments.len()];
        Ok(Self { arguments, found, ..Self::of(files, Arc::default()) })
    }

    /// Reads sections of files, which may be without any text. Adds the bytes that it reads to `read`.
    pub fn of_sections(sections: &[Section], read: Arc<AtomicU64>) -> Self {
        let files = sections.iter().map(|section| (0, section.clone())).collect();
        Self { found: vec![true], ..Self::of(files, read) }
    }

    fn of(mut files: Vec<(usize, Section)>, read: Arc<AtomicU64>) -> Self {
        files.reverse();
        Self {
            files,
            arguments: Vec::new(),
            found: Vec::new(),
            read,
            current: None,
            document: 0,
            document_open: false,
            kind: Kind::New,
            failed: false,
        }
    }

    /// Opens a section. One in the middle of a file counts its lines from 2: the first line of a file is
    /// checked in other ways.
    fn open(&self, section: &Section) -> Result<Lines<Input>> {
        let reader = unpacked(section.open(self.read.clone())?, &section.path)?;
        let lines = Lines::new(reader, &section.path);
        Ok(Lines { line: usize::from(section.bytes.start > 0), ..lines })
    }

    /// Returns the `error` of a section that begins in the middle of a file with the number of its line in
    /// the file.
    fn numbered(&self, section: &Section, error: Error) -> Error {
        let again = || {
            let mut lines = Lines { line: section.lines_before()?, ..self.open(section)? };
            lines.try_for_each(|line| line.map(drop))
        };
        again().err().unwrap_or(error)
    }

    fn end_document(&mut self) {
        self.document += u64::from(self.document_open);
        self.document_open = false;
    }

    /// Returns whether a line is a paragraph; any other line may end the document.
    fn is_paragraph(&mut self, text: &str) -> bool {
        if text.starts_with("<doc ") && !matches!(self.kind, Kind::Plain) {
            self.end_document();
            self.kind = Kind::Title;
            return false;
        }
        match self.kind {
            Kind::Title if !text.is_empty() => self.kind = Kind::Article,
            Kind::Article if text == "</doc>" => self.end_document(),
            Kind::Article => return !text.is_empty(),
            Kind::New | Kind::Plain if text.is_empty() => self.end_document(),
            Kind::New | Kind::Plain => {
                self.kind = Kind::Plain;
                return true;
            }
            Kind::Title => {}
        }
        false
    }

    fn advance(&mut self) -> Result<Option<Paragraph>> {
        loop {
            let Some((argument, section, lines)) = &mut self.current else {
                let Some((argument, section)) = self.files.pop() else {
                    return Ok(None);
                };
                let inside = section.bytes.start > 0 && !section.wiki;
                self.kind = if inside { Kind::Plain } else { Kind::New };
                self.current = Some((argument, section.clone(), self.open(&section)?));
                continue;
            };
            let argument = *argument;
            match lines.next() {
                Some(Err(error)) if section.bytes.start > 0 => {
                    let section = section.clone();
                    return Err(self.numbered(&section, error));
                }
                Some(Err(error)) => return Err(error),
                None => {
                    self.current = None;
                    self.end_document();
                    let more = self.files.last().is_some_and(|(next, _)| *next == argument);
                    if !more && !self.found[argument] {
                        let message = "there is no text here, only blank lines or nothing at all";
                        return Err(Error::file(&self.arguments[argument], message));
                    }
                }
                Some(Ok(line)) => {
                    let text = line.trim();
                    if !self.is_paragraph(text) {
                        continue;
                    }
                    self.found[argument] = true;
                    self.document_open = true;
                    return Ok(Some(Paragraph { document: self.document, text: text.to_owned() }));
                }
            }
        }
    }
}

impl Iterator for Paragraphs {
    type Item = Result<Paragraph>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance();
        self.failed = next.is_err();
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(paths: &[&Path]) -> Result<Vec<(u64, String)>> {
        Paragraphs::new(paths)?.map(|p| p.map(|p| (p.document, p.text))).collect()
    }

    /// Returns paragraphs from their documents and texts: `0 one|0 two`.
    fn pairs(expected: &str) -> Vec<(u64, String)> {
        let pair = |pair: &str| pair.split_once(' ').map(|(d, t)| (d.parse().unwrap(), t.into()));
        expected.split('|').filter_map(pair).collect()
    }

    #[test]
    fn only_files_and_folders_can_be_read_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        fs::write(&file, "one").unwrap();
        for path in [folder.path(), &file, Path::new("missing")] {
            assert!(check_readable_twice(path).is_ok(), "{}", path.display());
        }
        let message = check_readable_twice(Path::new("-")).unwrap_err().to_string();
        assert!(message.contains("-: is a pipe or a device"), "{message}");
        #[cfg(unix)]
        assert!(check_readable_twice(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn blank_lines_and_file_ends_separate_documents() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.txt"), folder.path().join("b.txt"));
        fs::write(&a, "\u{feff}one\r\n two \n\n \t \nthree\n\n").unwrap();
        fs::write(&b, "four\nfive").unwrap();
        let expected = "0 one|0 two|1 three|2 four|2 five";
        assert_eq!(read(&[&a, &b]).unwrap(), pairs(expected));
    }

    #[test]
    fn a_folder_is_read_in_order_with_its_packed_files_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("m")).unwrap();
        fs::write(folder.path().join("z.txt"), "last").unwrap();
        fs::write(folder.path().join("notes.md"), "never").unwrap();
        fs::write(folder.path().join("empty.txt"), "").unwrap();
        let packed = File::create(folder.path().join("m/b.txt.gz")).unwrap();
        let mut gz = flate2::write::GzEncoder::new(packed, Default::default());
        gz.write_all("first\n\nsecond\n".as_bytes()).unwrap();
        gz.finish().unwrap();
        let expected = "0 first|1 second|2 last";
        assert_eq!(read(&[folder.path()]).unwrap(), pairs(expected));
    }

    #[test]
    fn articles_of_wikiextractor_are_documents_without_their_titles() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("AA")).unwrap();
        let file = folder.path().join("AA").join("wiki_00");
        let text = "<doc id=\"1\" url=\"u\" title=\"Oak\">\nOak\n\nOne.\n\nTwo.\n\n</doc>\n\n\
                    <doc id=\"2\" url=\"u\" title=\"Elm\">\nElm\n\n</doc>\n\
                    <doc id=\"3\" url=\"u\" title=\"Ash\">\nAsh\n\nThree <doc > it.\n</doc>\n";
        fs::write(&file, text).unwrap();
        fs::write(folder.path().join("AA").join("wiki_notes"), "never").unwrap();
        // In any other file such a line is text.
        fs::write(folder.path().join("b.txt"), "\nfour\n<doc five>\n\nsix").unwrap();
        let expected = "0 One.|0 Two.|1 Three <doc > it.|2 four|2 <doc five>|3 six";
        assert_eq!(read(&[folder.path()]).unwrap(), pairs(expected));
    }

    #[test]
    fn a_file_that_is_not_text_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        let message = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read(&[&path]).unwrap_err().to_string()
        };
        let expected = "t.txt: there is no text here, only blank lines or nothing at all";
        assert!(message(b"").ends_with(expected));
        assert!(message(b"\n  \n").contains("no text"));
        let expected = "t.txt:2: byte 5 of the line is not valid UTF-8";
        assert!(message(b"good\nbad \xff\xfe\n").contains(expected));
        assert!(message(b"\x7fELF\0\0\0").contains("t.txt: this is a binary file"));
        assert!(message(b"\x1f\x8b\x08\x00broken").contains("t.txt"));
        let missing = read(&[&folder.path().join("missing.txt")]).unwrap_err();
        assert!(missing.to_string().contains("missing.txt"));
        let bare = folder.path().join("bare");
        fs::create_dir(&bare).unwrap();
        let empty = read(&[&bare]).unwrap_err();
        assert!(empty.to_string().contains("holds no .txt"));
    }
}
