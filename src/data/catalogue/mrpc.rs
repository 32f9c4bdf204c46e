//! Makes GLUE's files of MRPC from Microsoft's originals, which GLUE may not distribute: a list of pairs
//! says which rows of the training file belong to the development set (https://gluebenchmark.com/faq,
//! download_glue_data.py).

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files::write_atomic;
use crate::text::reader::read_to_string;

const TRAIN: &str = "msr_paraphrase_train.txt";
const TEST: &str = "msr_paraphrase_test.txt";
const DEV_IDS: &str = "mrpc_dev_ids.tsv";

/// Writes train.tsv, dev.tsv and test.tsv beside the originals in `folder`; returns their names.
pub(super) fn assemble(folder: &Path) -> Result<&'static [&'static str]> {
    let dev_ids = read_to_string(&folder.join(DEV_IDS))?;
    let dev_ids: HashSet<&str> = dev_ids.lines().map(str::trim_end).collect();
    let originals = folder.join(TRAIN);
    let text = read_to_string(&originals)?;
    let mut rows = Rows::of(&originals, &text)?;
    let header = format!("{}\n", rows.header);
    let (mut train, mut dev) = (header.clone(), header);
    while let Some(row) = rows.next()? {
        let pair = format!("{}\t{}", row[1], row[2]);
        let file = if dev_ids.contains(pair.as_str()) { &mut dev } else { &mut train };
        file.push_str(&row.join("\t"));
        file.push('\n');
    }
    let originals = folder.join(TEST);
    let text = read_to_string(&originals)?;
    let mut rows = Rows::of(&originals, &text)?;
    let mut test = String::from("index\t#1 ID\t#2 ID\t#1 String\t#2 String\n");
    let mut index = 0;
    while let Some(row) = rows.next()? {
        test.push_str(&format!("{index}\t{}\n", row[1..].join("\t")));
        index += 1;
    }
    for (name, text) in [("train.tsv", train), ("dev.tsv", dev), ("test.tsv", test)] {
        write_atomic(&folder.join(name), text.as_bytes())?;
    }
    Ok(&["train.tsv", "dev.tsv", "test.tsv"])
}

/// The rows of an original: label, two ids and two sentences, separated by tabs.
struct Rows<'a> {
    path: &'a Path,
    header: &'a str,
    lines: std::iter::Enumerate<std::str::Lines<'a>>,
}

impl<'a> Rows<'a> {
    fn of(path: &'a Path, text: &'a str) -> Result<Self> {
        let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
        match lines.next() {
            Some((_, header)) => Ok(Self { path, header, lines }),
            None => Err(Error::file(path, "is empty")),
        }
    }

    fn next(&mut self) -> Result<Option<[&'a str; 5]>> {
        let Some((index, line)) = self.lines.next() else {
            return Ok(None);
        };
        let row: Vec<&str> = line.split('\t').collect();
        row.try_into().map(Some).map_err(|row: Vec<&str>| {
            let message = format!("{} fields where 5 were expected", row.len());
            Error::line(self.path, index + 1, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_development_set_is_split_off_and_the_test_set_loses_its_labels() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let header = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n";
        let rows = "1\t10\t11\ta\tb\r\n0\t20\t21\tc \"d\te\r\n1\t11\t10\tf\tg\r\n";
        std::fs::write(path(TRAIN), format!("{header}{rows}")).unwrap();
        std::fs::write(path(TEST), format!("{header}1\t5\t6\th\ti\r\n")).unwrap();
        std::fs::write(path(DEV_IDS), "20\t21\n").unwrap();
        assemble(folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        let header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
        let expected = format!("{header}1\t10\t11\ta\tb\n1\t11\t10\tf\tg\n");
        assert_eq!(read("train.tsv"), expected);
        assert_eq!(read("dev.tsv"), format!("{header}0\t20\t21\tc \"d\te\n"));
        let header = "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
        assert_eq!(read("test.tsv"), format!("{header}0\t5\t6\th\ti\n"));

        std::fs::write(path(TEST), "Quality\n1\t5\t6\n").unwrap();
        let message = assemble(folder.path()).unwrap_err().to_string();
        let expected = "_test.txt:2: 3 fields where 5";
        assert!(message.contains(expected), "{message}");
    }

    /// GLUE's own files, made from the original in the test data.
    #[test]
    fn the_files_are_those_of_glue() {
        let Some(data) = std::env::var_os("CLOZE_TEST_DATA") else {
            println!("CLOZE_TEST_DATA is not set: nothing compared");
            return;
        };
        let data = Path::new(&data).join("glue/MRPC");
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let rows = |path: &Path| -> Vec<String> {
            let text = read_to_string(path).unwrap();
            text.lines().skip(1).map(str::to_owned).collect()
        };
        std::fs::copy(data.join("dev_ids.tsv"), path(DEV_IDS)).unwrap();
        std::fs::copy(data.join(TRAIN), path(TRAIN)).unwrap();
        std::fs::copy(data.join(TRAIN), path(TEST)).unwrap();
        assemble(folder.path()).unwrap();
        for (name, count) in [("train.tsv", 3668), ("dev.tsv", 408)] {
            let (mut got, mut expected) = (rows(&path(name)), rows(&data.join(name)));
            assert_eq!(got.len(), count);
            got.sort();
            expected.sort();
            assert_eq!(got, expected, "{name}");
        }
    }
}
