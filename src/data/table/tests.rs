//! Tests of tables.

use std::io::Read;

use super::*;
use crate::data::test_file;

fn read(name: &str, text: &str, columns: &str, needed: usize) -> Result<Vec<Row>> {
    let (_folder, path) = test_file(name, text);
    Columns::parse(columns)?.read_as(&path, needed, &mut BadRows::refused(), |_, row| Ok(row))
}

fn texts(row: &Row) -> Vec<Option<String>> {
    let fields = row.fields.iter();
    fields.map(|f| f.as_ref().map(Field::text)).collect()
}

#[test]
fn every_format_gives_the_same_rows() {
    let expected = [Some("spam".to_owned()), Some("Buy, \"now\"!".to_owned())];
    for (name, text) in [
        ("a.tsv", "text\tlabel\nBuy, \"now\"!\tspam\n"),
        ("a.csv", "text,label\n\"Buy, \"\"now\"\"!\",spam\n"),
        ("a.jsonl", r#"{"text": "Buy, \"now\"!", "label": "spam", "more": {}}"#),
    ] {
        let rows = read(name, text, "label,text", 2).unwrap();
        assert_eq!(rows.len(), 1, "{name}");
        assert_eq!(texts(&rows[0]), expected, "{name}");
    }
    let rows = read("a.csv", "x,1.5\ny,2\n", "2,1", 2).unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(texts(&rows[1]), [Some("2".into()), Some("y".into())]);
    let rows = read("a.jsonl", r#"{"w": ["New", 3], "n": 4}"#, "w,n", 2).unwrap();
    assert_eq!(rows[0].fields[0].as_ref().unwrap().list(), ["New", "3"]);
    assert_eq!(texts(&rows[0])[1].as_deref(), Some("4"));
}

#[test]
fn names_in_a_header_may_have_white_space_around_them() {
    for (name, text) in
        [("a.csv", "text , label\n A,spam\n"), ("a.tsv", "text \t label\n A\tspam\n")]
    {
        let rows = read(name, text, "text,label", 2).unwrap();
        assert_eq!(texts(&rows[0]), [Some(" A".into()), Some("spam".into())], "{name}");
    }
    let rows = read("a.tsv", "words\tlabels\nz.\u{a0}B.  das\tA B\n", "words,labels", 2).unwrap();
    let words = rows[0].fields[0].as_ref().unwrap().list();
    assert_eq!(words, ["z.\u{a0}B.", "das"]);
}

#[test]
fn a_column_that_is_not_needed_may_be_missing() {
    for (name, text) in
        [("a.tsv", "text\nA\n"), ("a.csv", "text\nA\n"), ("a.jsonl", "{\"text\":\"A\"}\n")]
    {
        let rows = read(name, text, "text,label", 1).unwrap();
        assert_eq!(texts(&rows[0]), [Some("A".into()), None], "{name}");
    }
}

#[test]
fn what_is_missing_is_named() {
    for case in [
        "a.tsv|text\tx\n1\t2\n|:1: there is no column label; there are text, x",
        "a.csv|text,label\nA\n|:2: the row has 1 columns, but column 2",
        "a.jsonl|{\"text\":1}|:1: the object has no \"label\"; it has text",
        "a.jsonl|{\"text\":1,\"label\":null}|:1: \"label\" is null",
        "a.jsonl|{\"text\":|:1: is no JSON object",
        "a.json|[{\"text\":1}]|:1: is a JSON array; expected an object in each line",
        "a.jsonl|{\"text\":{},\"label\":1}|neither text, a number",
        "a.xlsx|x|neither .tsv, .csv, .txt, .jsonl (or those with .gz) nor .parquet",
        "a.tsv|text\tlabel\n|holds no row",
        "a.csv||holds no row",
        "a.csv|text,label\nA,\"x\nB,y\n|a.csv:2: a quote opens",
    ] {
        let [name, text, expected] = case.split('|').collect::<Vec<_>>()[..] else {
            panic!("{case}")
        };
        let error = read(name, text, "text,label", 2).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Columns::parse("text,,label").is_err() && Columns::parse("0,1").is_err());
}

#[test]
fn bad_rows_of_every_format_are_skipped_and_still_counted() {
    let tsv = b"text\tlabel\nA\tx\nonly\n\xff\tx\n\nHello\t world\tx\nC\ty\n";
    let csv = b"text,label\nA,x\nonly\n\xff,x\n\nHello, world,x\nC,y\n";
    let jsonl = b"{\"text\":\"A\",\"label\":1}\n{}\n{\"text\":\"\xff\"}\n\n[]\n{\"text\":\"C\",\"label\":2}";
    let columns = Columns::parse("text,label").unwrap();
    for (name, text, first) in [("a.tsv", &tsv[..], 2), ("a.csv", csv, 2), ("a.jsonl", jsonl, 1)] {
        let (_folder, path) = test_file(name, text);
        let mut bad = BadRows::skipped();
        let rows = columns.read_as(&path, 2, &mut bad, |_, row| Ok(row)).unwrap();
        let places: Vec<_> = rows.iter().map(|row| (row.place, row.line)).collect();
        assert_eq!(places, [(0, first), (4, first + 5)], "{name}");
        let report = bad.report().unwrap();
        let (path, line) = (path.display(), first + 1);
        let expected = format!("3 bad rows left out, the first: {path}:{line}");
        assert!(report.starts_with(&expected), "{report}");
    }
}

#[test]
fn without_a_header_the_first_row_limits_the_columns() {
    let text = "Hello,spam\nHello, world,spam\n";
    let error = read("a.csv", text, "1,2", 1).unwrap_err().to_string();
    let expected =
        "a.csv:2: the row has 3 columns, but the first row has 2: a text with commas needs quotes";
    assert!(error.ends_with(expected), "{error}");
    let quoted = "text,label\n\"Hello, world\",spam\n";
    let rows = read("a.csv", quoted, "text,label", 2).unwrap();
    assert_eq!(texts(&rows[0])[0].as_deref(), Some("Hello, world"));
}

#[test]
fn zero_bytes_are_dropped_from_every_field() {
    for (name, text) in [
        ("a.tsv", "text\tlabel\0\n\0\nA\0 b\tspam\0\n"),
        ("a.csv", "text,label\0\n\n\"A\0 b\",spam\0\n"),
        ("a.jsonl", "\n\n{\"text\":\"A\0 b\",\"label\":\"spam\"}\0\n"),
    ] {
        let rows = read(name, text, "text,label", 2).unwrap();
        let expected = [Some("A b".to_owned()), Some("spam".to_owned())];
        assert_eq!((rows.len(), rows[0].line), (1, 3), "{name}");
        assert_eq!(texts(&rows[0]), expected, "{name}");
    }
}

/// Returns the layout of an input of this name.
fn layout_of(name: &str, text: &'static str, columns: &Columns, texts: bool) -> Layout {
    let input = Box::new(text.as_bytes());
    let (layout, mut input) = layout::detect(columns, input, Path::new(name), 1, texts).unwrap();
    let mut whole = String::new();
    input.read_to_string(&mut whole).unwrap();
    assert_eq!(whole, text);
    layout
}

#[test]
fn the_layout_of_standard_input_follows_from_its_first_line() {
    let columns = Columns::parse("text").unwrap();
    for (text, layout) in [
        ("\n \n {\"text\": \"a\tb\"}\n", Layout::Jsonl),
        ("\u{feff}{}", Layout::Jsonl),
        ("[{\"text\": \"a\"}]\n", Layout::Jsonl),
        (" [\n{\"text\": \"a\"}]\n", Layout::Jsonl),
        ("[1] A note\n", Layout::Lines),
        ("text,label\na\tb,c\n", Layout::Delimited(b',')),
        ("text\tlabel, or so\n", Layout::Delimited(b'\t')),
        ("text\nOne, two\n", Layout::Delimited(b'\t')),
        ("label|text\n", Layout::Delimited(b'|')),
        ("One, two; three\n", Layout::Lines),
        ("message\tlabel\n", Layout::Delimited(b'\t')),
        ("", Layout::Lines),
    ] {
        assert_eq!(layout_of("-", text, &columns, true), layout, "{text:?}");
    }
    assert_eq!(layout_of("notes.txt.gz", "One, two\n", &columns, true), Layout::Lines);
    for (name, texts) in [("notes.tsv", true), ("notes.txt", false)] {
        let layout = layout_of(name, "One, two\n", &columns, texts);
        assert!(matches!(layout, Layout::Delimited(_)), "{name}");
    }
    // Without a header the first line may be a text with a comma.
    let numbered = Columns::parse("1").unwrap();
    assert_eq!(layout_of("-", "One, two\n", &numbered, true), Layout::Delimited(b'\t'));
    let forced = columns.with_delimiter(";").unwrap();
    assert_eq!(layout_of("-", "One, two\n", &forced, true), Layout::Delimited(b';'));
}

#[test]
fn plain_lines_are_texts() {
    let columns = Columns::parse("text,label").unwrap();
    let text = "\u{feff}One, two\n\n  \n\"Three\r\n";
    let table = columns.open_texts_from(Box::new(text.as_bytes()), Path::new("-")).unwrap();
    let note = "standard input: read as plain lines, each of them a text";
    assert_eq!(table.note().as_deref(), Some(note));
    let rows = table.read(&mut BadRows::refused(), |_, row| Ok(row)).unwrap();
    let rows: Vec<_> = rows.iter().map(|row| (row.place, row.line, texts(row))).collect();
    let text = |text: &str| vec![Some(text.to_owned()), None];
    assert_eq!(rows, [(0, 1, text("One, two")), (1, 4, text("\"Three"))]);
    let header = "text;label\na;b\n".as_bytes();
    let table = columns.open_texts_from(Box::new(header), Path::new("-")).unwrap();
    let note = "standard input: read as rows under a header, separated by semicolons";
    assert_eq!(table.note().as_deref(), Some(note));
}

#[test]
fn the_header_decides_about_the_delimiter_whatever_the_name_says() {
    let expected = [Some("Hi, \"you\"".to_owned()), Some("ham".to_owned())];
    for name in ["a.csv", "a.tsv", "a.txt"] {
        for text in [
            "id,text,label\n1,\"Hi, \"\"you\"\"\",ham\n",
            "id;\"text\";label\n1;\"Hi, \"\"you\"\"\";ham\n",
            "id|text|label\n1|\"Hi, \"\"you\"\"\"|ham\n",
            "id\ttext\tlabel\n1\tHi, \"you\"\tham\n",
        ] {
            let rows = read(name, text, "text,label", 2).unwrap();
            assert_eq!(texts(&rows[0]), expected, "{name}: {text}");
        }
        for text in ["1;ham;Hi\n", "1,ham,Hi\n", "1|ham|Hi\n", "1\tham\tHi\n"] {
            let rows = read(name, text, "3,2", 2).unwrap();
            assert_eq!(texts(&rows[0]), [Some("Hi".into()), Some("ham".into())], "{name}: {text}");
        }
    }
    // The usual delimiter goes first.
    let rows = read("a.csv", "text,label\nA;B,x\n", "text,label", 2).unwrap();
    assert_eq!(texts(&rows[0])[0].as_deref(), Some("A;B"));
    let error = read("a.csv", "text;lable\nA;x\n", "text,label", 2).unwrap_err().to_string();
    assert!(error.ends_with("a.csv:1: there is no column label; there are text, lable"), "{error}");
    let error = read("a.csv", "text;label\nA;B;x\n", "text,label", 2).unwrap_err().to_string();
    assert!(
        error.ends_with("but the header has 2: a text with the delimiter needs quotes"),
        "{error}"
    );
}

#[test]
fn a_delimiter_may_be_given() {
    let columns = || Columns::parse("text,label").unwrap();
    for (delimiter, text) in [("tab", "text\tlabel\nA,b\tx\n"), ("#", "text#label\n\"A,b\"#x\n")] {
        let (_folder, path) = test_file("a.csv", text);
        let columns = columns().with_delimiter(delimiter).unwrap();
        let rows = columns.read_as(&path, 2, &mut BadRows::refused(), |_, row| Ok(row)).unwrap();
        assert_eq!(texts(&rows[0]), [Some("A,b".into()), Some("x".into())]);
        let stored = [("columns", "text,label".into()), ("delimiter", delimiter.into())];
        assert_eq!(columns.options(), stored);
    }
    assert_eq!(columns().options().len(), 1);
    for wrong in ["", "ab", "\"", "é", "\n"] {
        assert!(columns().with_delimiter(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_field_that_is_not_needed_may_hold_anything() {
    let text = "{\"text\":\"A\",\"label\":{\"x\":1}}\n";
    let rows = read("a.jsonl", text, "text,label", 1).unwrap();
    assert_eq!(texts(&rows[0])[1].as_deref(), Some("{\"x\":1}"));
}

#[test]
fn the_files_of_a_pattern_are_read_one_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("train-0.csv"), "text,label\nA,x\nB\n").unwrap();
    // Another delimiter and another order of the columns.
    std::fs::write(path("train-1.csv"), "label;text\ny;C\n").unwrap();
    let columns = Columns::parse("text,label").unwrap();
    let mut bad = BadRows::skipped();
    let all = path("train-*.csv");
    let rows = columns.read_as(&all, 2, &mut bad, |file, row| Ok((file.to_owned(), row)));
    let rows = rows.unwrap();
    let rows: Vec<_> = rows.iter().map(|(file, row)| (file, row.place, texts(row))).collect();
    let fields = |a: &str, b: &str| vec![Some(a.to_owned()), Some(b.to_owned())];
    let expected =
        [(&path("train-0.csv"), 0, fields("A", "x")), (&path("train-1.csv"), 2, fields("C", "y"))];
    assert_eq!(rows, expected);
    let report = bad.report().unwrap();
    assert!(report.contains("train-0.csv:3: "), "{report}");
}
