//! Divides the files of a corpus into pieces that hold whole documents, so that several threads or
//! machines can read it. The pieces depend only on the files and on the wanted size.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

use super::raw::LONGEST_LINE;
use super::reader::{first_line, is_packed, open};
use super::sections::Section;

/// Divides files, each with its size in bytes, into pieces of about `bytes` bytes. A piece is several small
/// files, or a part of a large one. A packed file is never divided.
pub fn pieces(files: &[(PathBuf, u64)], bytes: u64) -> Result<Vec<Vec<Section>>> {
    let mut pieces = Vec::new();
    let (mut piece, mut filled) = (Vec::new(), 0);
    for (path, size) in files {
        let wiki = || {
            let line = first_line(open(path)?, path)?.0;
            Ok::<_, Error>(line.trim().starts_with("<doc "))
        };
        let (wiki, whole) = (wiki()?, is_packed(path)?);
        let mut start = 0;
        while start < *size {
            let room = bytes.saturating_sub(filled);
            let end = match whole || size - start <= room {
                true => *size,
                false => border(path, wiki, start + room)?,
            };
            piece.push(Section { path: path.clone(), bytes: start..end, wiki });
            filled += end - start;
            start = end;
            if filled >= bytes {
                pieces.push(std::mem::take(&mut piece));
                filled = 0;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Returns the first border between two documents at or after `offset`, which is not 0; the end of the
/// file if there is none.
fn border(path: &Path, wiki: bool, offset: u64) -> Result<u64> {
    let fault = |e| Error::io(path, e);
    let mut file = File::open(path).map_err(fault)?;
    // The line that this byte belongs to is the first that is not judged.
    let mut at = offset - 1;
    file.seek(SeekFrom::Start(at)).map_err(fault)?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = Vec::new();
    let mut whole = false;
    loop {
        line.clear();
        let mut limited = (&mut reader).take(LONGEST_LINE as u64 + 1);
        let read = limited.read_until(b'\n', &mut line).map_err(fault)? as u64;
        if read == 0 {
            return Ok(at);
        }
        let text = std::str::from_utf8(&line).map(str::trim);
        match text {
            Ok(text) if whole && wiki && text.starts_with("<doc ") => return Ok(at),
            Ok("") if whole && !wiki => return Ok(at + read),
            _ => {}
        }
        at += read;
        whole = line.ends_with(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::sections::checksum;
    use crate::text::{Paragraph, Paragraphs};
    use std::fs;

    fn documents(paragraphs: impl Iterator<Item = Result<Paragraph>>) -> Vec<(u64, String)> {
        paragraphs.map(|p| p.map(|p| (p.document, p.text)).unwrap()).collect()
    }

    /// Reads all pieces, one after the other; documents are counted through.
    fn read(pieces: &[Vec<Section>]) -> Vec<(u64, String)> {
        let mut all: Vec<(u64, String)> = Vec::new();
        for piece in pieces {
            let next = all.last().map_or(0, |(document, _)| document + 1);
            let paragraphs = documents(Paragraphs::of_sections(piece, Default::default()));
            all.extend(paragraphs.into_iter().map(|(document, text)| (next + document, text)));
        }
        all
    }

    #[test]
    fn pieces_of_any_size_hold_the_same_documents() {
        let folder = tempfile::tempdir().unwrap();
        let plain: String = (0..40)
            .map(|n| {
                format!("{} line {n}\n{}", ["", "<doc x>"][n % 2], ["", "\n", " \t\r\n\n"][n % 3])
            })
            .collect();
        let wiki: String = (0..20)
            .map(|n| format!("<doc id=\"{n}\">\nTitle\n\nOne {n}.\n\nTwo.\n</doc>\n\n"))
            .collect();
        for (name, text) in [("a.txt", plain), ("wiki_00", wiki), ("z.txt", "last".into())] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let files: Vec<(PathBuf, u64)> = ["a.txt", "wiki_00", "z.txt"]
            .map(|name| folder.path().join(name))
            .map(|path| (path.clone(), fs::metadata(&path).unwrap().len()))
            .to_vec();
        let expected = documents(Paragraphs::new(&[folder.path()]).unwrap());
        for bytes in [1, 7, 50, 51, 52, 300, 1 << 20] {
            let pieces = pieces(&files, bytes).unwrap();
            assert_eq!(read(&pieces), expected, "pieces of {bytes} bytes");
            let ends = pieces.concat();
            let total: u64 = ends.iter().map(|s| s.bytes.end - s.bytes.start).sum();
            assert_eq!(total, files.iter().map(|(_, size)| size).sum::<u64>());
        }
        let count = pieces(&files, 50).unwrap().len();
        assert!(count > 10, "{count} pieces");
        assert_eq!(pieces(&files, 1 << 20).unwrap().len(), 1);
    }

    #[test]
    fn a_fault_in_a_later_piece_is_named_by_its_line_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        let text = b"one\n\ntwo\n\nthree\n\xff\n";
        fs::write(&path, text).unwrap();
        let pieces = pieces(&[(path, text.len() as u64)], 6).unwrap();
        assert_eq!(pieces.len(), 2);
        let mut last = Paragraphs::of_sections(&pieces[1], Default::default());
        assert_eq!(last.next().unwrap().unwrap().text, "three");
        let message = last.next().unwrap().unwrap_err().to_string();
        assert!(message.contains("t.txt:6: byte 1 of the line"), "{message}");
    }

    #[test]
    fn the_checksum_is_that_of_the_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt");
        fs::write(&path, "123456789").unwrap();
        let section = |bytes| Section { path: path.clone(), bytes, wiki: false };
        // The published check value of CRC-32.
        assert_eq!(checksum(&[section(0..4), section(4..9)]).unwrap(), 0xcbf4_3926);
    }
}
