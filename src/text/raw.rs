//! Bytes before they are text: how many of them are read at most, and whether they are text at all.
//!
//! The limits are on what is unpacked, so that a small `.gz` file can't fill the memory either.

use std::io::{BufRead, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// Most bytes of a line: a hundred books.
pub const LONGEST_LINE: usize = 64 << 20;
/// Most bytes of a file that is read as a whole.
const LARGEST_FILE: u64 = 4 << 30;

/// How many bytes at the start of a file are judged.
const JUDGED: usize = 8 << 10;
/// A file with fewer non-text bytes than this is not binary.
const FEW: usize = 4;
/// A file is binary if at least this percentage of its bytes is not text.
const MOSTLY: usize = 30;

/// Reads line `number` with its end; None at the end of the file.
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

/// Reads all of a file that should be text.
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

/// Refuses a file whose `start` is mostly not UTF-8 text. A stray zero byte makes no binary file: the
/// tokenizer drops it.
pub fn refuse_binary(start: &[u8], path: &Path) -> Result<()> {
    let start = &start[..start.len().min(JUDGED)];
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(Error::file(path, UTF_16));
    }
    let controls = start.iter().filter(|&&byte| is_control(byte)).count();
    let invalid: usize = start.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    if controls + invalid < FEW || (controls + invalid) * 100 < start.len() * MOSTLY {
        return Ok(());
    }
    // Letters of Europe have a zero byte each in UTF-16, all first or all second.
    let zeros = |first| {
        start
            .iter()
            .skip(first)
            .step_by(2)
            .filter(|&&byte| byte == 0)
    };
    let message = match [zeros(0).count(), zeros(1).count()] {
        [0, zeros] | [zeros, 0] if zeros * 100 >= start.len() * MOSTLY => UTF_16,
        _ => "this is a binary file or in another encoding; expected UTF-8 text",
    };
    Err(Error::file(path, message))
}

const UTF_16: &str = "this looks like UTF-16; expected UTF-8 text";

/// Whether no text has this ASCII character; tabs, line and page ends, backspaces and escape
/// sequences do occur.
fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && !b"\t\n\r\x08\x0b\x0c\x1b".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn judged(start: &[u8]) -> Option<String> {
        let error = refuse_binary(start, Path::new("x.txt")).err()?;
        Some(error.to_string())
    }

    fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn only_what_is_mostly_no_text_is_a_binary_file() {
        let text = [
            &b""[..],
            b"\0\0\0",
            b"A log whose end was never written\0\0\0\0\0\0\0\0",
            b"\x1b[1mbold\x1b[0m\x0c\x08\x08\x08\x08",
            "Déjà vu, Grüße, Привет, 東京".as_bytes(),
            b"Caf\xe9, d\xe9j\xe0 vu: Latin-1 is named by its line",
        ];
        for text in text {
            assert_eq!(judged(text), None, "{}", text.escape_ascii());
        }
        let binary = "x.txt: this is a binary file or in another encoding; expected UTF-8 text";
        let cp1251 = b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0";
        let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0";
        let late = [&b"text "[..], &[0x90; 9_000]].concat();
        for bytes in [&elf[..], cp1251, b"\0\0\0\0", &late] {
            assert_eq!(judged(bytes).as_deref(), Some(binary), "{bytes:?}");
        }
        // What follows the start is judged line by line.
        let late = [&b"text "[..].repeat(2_000), &[0; 9_000][..]].concat();
        assert_eq!(judged(&late), None);
    }

    #[test]
    fn utf_16_is_called_by_its_name() {
        let told = Some(format!("x.txt: {UTF_16}"));
        for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            for text in ["Some lines\nof “text”\n", "\u{feff}東京タワー", "\u{feff}a"] {
                assert_eq!(judged(&utf_16(text, bytes)), told, "{text}");
            }
        }
    }

    #[test]
    fn what_never_ends_is_refused() {
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
