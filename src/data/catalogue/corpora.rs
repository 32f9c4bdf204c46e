//! Converts corpora to the format of pre-training: one paragraph a line, documents separated by a blank
//! line.

use std::io::{BufRead, BufReader, Read, Write};

/// Converts WikiText: articles begin with a heading `= Title =`; headings of sections have more signs.
/// Numbers and compounds that its tokenisation split (` @-@ `) are joined again.
pub(super) fn wikitext(raw: &mut dyn Read, out: &mut dyn Write) -> std::io::Result<()> {
    let mut documents = Documents::new(out);
    for line in BufReader::new(raw).lines() {
        let line = line?;
        let line = line.trim();
        let heading = line.len() > 3 && line.starts_with("= ") && line.ends_with(" =");
        if heading {
            if !line.starts_with("= =") {
                documents.next();
            }
        } else if !line.is_empty() {
            let line = line.replace(" @-@ ", "-").replace(" @,@ ", ",").replace(" @.@ ", ".");
            documents.line(&line)?;
        }
    }
    Ok(())
}

/// Converts the Children's Book Test: one sentence a line in the spelling of the Penn Treebank; books begin
/// with `_BOOK_TITLE_`. The original brackets and quotation marks are restored.
pub(super) fn books(raw: &mut dyn Read, out: &mut dyn Write) -> std::io::Result<()> {
    const SPELLINGS: &str = "-LRB-( -RRB-) -LCB-{ -RCB-} -LSB-[ -RSB-] ``\" ''\"";
    let mut documents = Documents::new(out);
    for line in BufReader::new(raw).lines() {
        let line = line?;
        let line = line.trim();
        if line.starts_with("_BOOK_TITLE_") {
            documents.next();
        } else if !line.is_empty() {
            let line = SPELLINGS
                .split(' ')
                .map(|spelling| spelling.split_at(spelling.len() - 1))
                .fold(line.replace(" n't", "n't"), |line, (from, to)| line.replace(from, to));
            documents.line(&line)?;
        }
    }
    Ok(())
}

/// Writes lines, and a blank line between documents.
struct Documents<'a> {
    out: &'a mut dyn Write,
    /// Whether the current document has lines.
    begun: bool,
    /// Whether a blank line is due before the next line.
    between: bool,
}

impl<'a> Documents<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self { out, begun: false, between: false }
    }

    fn next(&mut self) {
        self.between |= self.begun;
        self.begun = false;
    }

    fn line(&mut self, text: &str) -> std::io::Result<()> {
        if std::mem::take(&mut self.between) {
            self.out.write_all(b"\n")?;
        }
        self.begun = true;
        writeln!(self.out, "{text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reform = fn(&mut dyn Read, &mut dyn Write) -> std::io::Result<()>;

    fn text(reform: Reform, raw: &str) -> String {
        let mut out = Vec::new();
        reform(&mut raw.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn articles_become_documents_of_paragraphs() {
        let raw = " \n = One = \n \n First @-@ rate , 1 @,@ 000 . \n Second . \n \n = = Part = = \n \n Third . \n \
                   \n = Empty = \n \n = Two = \n \n Fourth , x = y = \n";
        let expected = "First-rate , 1,000 .\nSecond .\nThird .\n\nFourth , x = y =\n";
        assert_eq!(text(wikitext, raw), expected);
    }

    #[test]
    fn books_become_documents_of_sentences() {
        let raw = "_BOOK_TITLE_ : a.txt.out\nHe did n't -LRB- go -RRB- .\n``\n\nNo !''\n_BOOK_TITLE_ : b\nEnd .\n";
        let expected = "He didn't ( go ) .\n\"\nNo !\"\n\nEnd .\n";
        assert_eq!(text(books, raw), expected);
    }
}
