//! Reads bytes within size limits and rejects binary files.
//!
//! The limits hold for unpacked bytes, so that a small `.gz` file can't fill the memory either.

use std::io::{BufRead, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// Longest accepted line in bytes: a hundred books.
pub const LONGEST_LINE: usize = 64 << 20;
/// Largest file in bytes that is read into memory.
const LARGEST_FILE: u64 = 4 << 30;

/// How many bytes at the start of a file are checked.
const CHECKED: usize = 8 << 10;
/// A file with fewer non-text bytes than this is not binary.
const FEW: usize = 4;
/// A file is binary if at least this percentage of its bytes is not text.
const MOSTLY: usize = 30;

/// Reads line `number` with its line end; returns `None` at the end of the file.
pub fn line(mut reader: impl BufRead, path: &Path, number: usize) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut limited = reader.by_ref().take(LONGEST_LINE as u64 + 1);
    let read = limited.read_until(b'\n', &mut bytes);
    read.map_err(|e| Error::io(path, e))?;
    if bytes.len() > LONGEST_LINE && !bytes.ends_with(b"\n") {
        let most = LONGEST_LINE >> 20;
        let message = format!("line {number} is longer than {most} MiB; expected shorter lines");
        return Err(Error::file(path, message));
    }
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// Reads a whole file that should be text.
pub fn whole(reader: impl Read, path: &Path) -> Result<Vec<u8>> {
    let bytes = up_to(LARGEST_FILE, reader, path)?;
    refuse_binary(&bytes, path)?;
    Ok(bytes)
}

fn up_to(most: u64, reader: impl Read, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = reader.take(most + 1).read_to_end(&mut bytes);
    if read.map_err(|e| Error::io(path, e))? as u64 > most {
        let most = crate::memory::format_bytes(most);
        let message = format!("holds more than {most}, which is the most that is read at once");
        return Err(Error::file(path, message));
    }
    Ok(bytes)
}

/// Returns an error if the `start` of a file is mostly not UTF-8 text. A few zero bytes don't make a file
/// binary: the tokenizer drops them.
pub fn refuse_binary(start: &[u8], path: &Path) -> Result<()> {
    let start = &start[..start.len().min(CHECKED)];
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(Error::file(path, UTF_16));
    }
    let controls = start.iter().filter(|&&byte| is_control(byte)).count();
    let invalid: usize = start.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    if controls + invalid < FEW || (controls + invalid) * 100 < start.len() * MOSTLY {
        return Ok(());
    }
    // In UTF-16 European letters have one zero byte each, always the first or always the second.
    let zeros = |first| {
        let bytes = start.iter().skip(first).step_by(2);
        bytes.filter(|&&byte| byte == 0).count()
    };
    let message = match [zeros(0), zeros(1)] {
        [0, zeros] | [zeros, 0] if zeros * 100 >= start.len() * MOSTLY => UTF_16,
        _ => {
            let message = format!("this is a binary file or in another encoding; {UTF_8}");
            return Err(Error::file(path, message));
        }
    };
    Err(Error::file(path, message))
}

/// What is expected of a text, and how a file in the other usual encoding is converted.
pub const UTF_8: &str =
    "expected UTF-8 text (Latin-1 is converted by iconv -f latin1 -t utf-8 FILE > NEW)";
const UTF_16: &str = "this looks like UTF-16; expected UTF-8 text";

/// Returns whether this ASCII character never occurs in text; tabs, line and page ends, backspaces and
/// escape sequences do.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && !b"\t\n\r\x08\x0b\x0c\x1b".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn fault(start: &[u8]) -> Option<String> {
        let error = refuse_binary(start, Path::new("x.txt")).err()?;
        Some(error.to_string())
    }

    fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn only_a_file_that_is_mostly_not_text_is_binary() {
        let text = [
            &b""[..],
            b"\0\0\0",
            b"A log whose end was never written\0\0\0\0\0\0\0\0",
            b"\x1b[1mbold\x1b[0m\x0c\x08\x08\x08\x08",
            "Déjà vu, Grüße, Привет, 東京".as_bytes(),
            b"Caf\xe9, d\xe9j\xe0 vu: Latin-1 is named by its line",
        ];
        for text in text {
            assert_eq!(fault(text), None, "{}", text.escape_ascii());
        }
        let binary = format!("x.txt: this is a binary file or in another encoding; {UTF_8}");
        let cp1251 = b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0";
        let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0";
        let late = [&b"text "[..], &[0x90; 9_000]].concat();
        for bytes in [&elf[..], cp1251, b"\0\0\0\0", &late] {
            assert_eq!(fault(bytes).as_deref(), Some(&*binary), "{bytes:?}");
        }
        // The rest of the file is checked line by line.
        let late = [&b"text "[..].repeat(2_000), &[0; 9_000][..]].concat();
        assert_eq!(fault(&late), None);
    }

    #[test]
    fn utf_16_is_named() {
        let expected = Some(format!("x.txt: {UTF_16}"));
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            for text in ["Some lines\nof “text”\n", "\u{feff}東京タワー", "\u{feff}a"] {
                assert_eq!(fault(&utf_16(text, bytes)), expected, "{text}");
            }
        }
    }

    #[test]
    fn endless_input_is_refused() {
        let path = Path::new("x.txt");
        let endless = std::io::repeat(b'a');
        let error = line(BufReader::new(endless), path, 7).unwrap_err();
        let expected = "x.txt: line 7 is longer than 64 MiB; expected shorter lines";
        assert_eq!(error.to_string(), expected);
        let longest = [&vec![b'a'; LONGEST_LINE][..], b"\nnext"].concat();
        let mut reader = &longest[..];
        let read = line(&mut reader, path, 1).unwrap().unwrap();
        assert_eq!((read.len(), reader), (LONGEST_LINE + 1, &b"next"[..]));

        let error = up_to(2 << 20, std::io::repeat(b'a'), path).unwrap_err();
        let expected = "x.txt: holds more than 2 MiB, which is the most that is read at once";
        assert_eq!(error.to_string(), expected);
        assert_eq!(up_to(4, &b"four"[..], path).unwrap(), b"four");
    }
}
