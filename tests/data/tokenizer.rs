//! `cloze tokenize` and `cloze vocab`, and the tokenizer against the output of the Python package `tokenizers`.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use cloze::text::{Casing, WordPiece};
use serde_json::Value;

use crate::common::{
    Folder, assert_contains, cloze, error_line, fails, piped, read_json, real_data, stderr, stdout,
    succeeds, text, words,
};

fn vocab(data: &Path, kind: &str) -> PathBuf {
    data.join(format!("vocab/bert-base-{kind}-vocab.txt"))
}

fn golden(data: &Path, kind: &str) -> Vec<Value> {
    let path = data.join(format!("golden/tokenizer-{kind}.jsonl.gz"));
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    let rows: Vec<Value> = text
        .split('\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 690);
    rows
}

#[test]
fn the_library_equals_the_reference_in_every_id_and_offset() {
    let Some(data) = real_data() else { return };
    for (kind, casing) in [("uncased", Casing::Uncased), ("cased", Casing::Cased)] {
        let wordpiece = WordPiece::from_vocab_file(&vocab(&data, kind), casing).unwrap();
        for row in golden(&data, kind) {
            let text = row["text"].as_str().unwrap();
            let encoding = wordpiece.encode_with_special(text);
            let offsets = serde_json::to_value(&encoding.offsets).unwrap();
            assert_eq!(serde_json::json!(encoding.ids), row["ids"], "{text:?}");
            assert_eq!(offsets, row["offsets"], "{text:?}");
            let mut ids = Vec::new();
            wordpiece.encode_ids(text, &mut ids);
            assert_eq!(ids, encoding.ids[1..encoding.len() - 1], "{text:?}");
        }
    }
}

#[test]
fn the_command_equals_the_reference_in_every_id_and_offset() {
    let Some(data) = real_data() else { return };
    for kind in ["uncased", "cased"] {
        let mut rows = golden(&data, kind);
        // The command reads lines; the library's test has the texts with line ends.
        rows.retain(|row| !row["text"].as_str().unwrap().contains('\n'));
        assert!(rows.len() >= 688);
        let lines: String =
            rows.iter().map(|row| format!("{}\n", row["text"].as_str().unwrap())).collect();
        let flags = ["--json", "--cased"];
        let flags = &flags[..if kind == "cased" { 2 } else { 1 }];
        let printed = pieces(&vocab(&data, kind), flags, &lines);
        let answers: Vec<&str> = printed.lines().collect();
        assert_eq!(answers.len(), rows.len());
        for (answer, row) in answers.iter().zip(&rows) {
            let answer: Value = serde_json::from_str(answer).unwrap();
            assert_eq!(answer["ids"], row["ids"], "{row}");
            assert_eq!(answer["offsets"], row["offsets"], "{row}");
            let tokens = answer["tokens"].as_array().unwrap();
            assert_eq!(tokens.len(), row["ids"].as_array().unwrap().len());
        }
    }
}

/// Writes a vocabulary into a new folder.
fn small_vocab(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocab.txt");
    std::fs::write(&path, lines).unwrap();
    (folder, path)
}

const SMALL: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nem\n##bed\n##ding\n##s\nthe\n.\n";

fn tokenize(vocab: &Path, flags: &[&str], input: impl AsRef<[u8]> + Send) -> Output {
    piped([&["tokenize", "--vocab", text(vocab)], flags].concat(), input)
}

/// Returns what `cloze tokenize` prints.
fn pieces(vocab: &Path, flags: &[&str], input: impl AsRef<[u8]> + Send) -> String {
    let output = tokenize(vocab, flags, input);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn each_output_form_has_one_line_per_input_line() {
    let (_folder, vocab) = small_vocab(SMALL);
    for (flags, input, expected) in [
        (
            &[][..],
            "The embeddings.\n\n[MASK] xyz",
            "[CLS] the em ##bed ##ding ##s . [SEP]\n[CLS] [SEP]\n[CLS] [MASK] [UNK] [SEP]\n",
        ),
        (&["--ids"], "The embeddings.\n\n[MASK] xyz", "2 9 5 6 7 8 10 3\n2 3\n2 4 1 3\n"),
        (&["--offsets"], "The embeddings.", "0-0 0-3 4-6 6-9 9-13 13-14 14-15 0-0\n"),
        (
            &["--json"],
            "the",
            "{\"ids\":[2,9,3],\"offsets\":[[0,0],[0,3],[0,0]],\"tokens\":[\"[CLS]\",\"the\",\"[SEP]\"]}\n",
        ),
        (&[], "", ""),
    ] {
        assert_eq!(pieces(&vocab, flags, input), expected);
    }
    error_line(&tokenize(&vocab, &["--ids", "--json"], ""), 2);
}

#[test]
fn the_real_vocabulary_splits_embeddings_as_bert_does() {
    let Some(data) = real_data() else { return };
    let printed = pieces(&vocab(&data, "uncased"), &[], "embeddings\n");
    assert_eq!(printed, "[CLS] em ##bed ##ding ##s [SEP]\n");
}

#[test]
fn a_bad_vocabulary_gets_one_sentence_with_file_and_line() {
    let refused = |lines: &[u8], expected: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocab.txt");
        std::fs::write(&path, lines).unwrap();
        let output = tokenize(&path, &[], "the");
        let message = error_line(&output, 1);
        assert_eq!(stderr(&output).lines().count(), 1, "{message}");
        assert!(message.starts_with("error: "), "{message}");
        assert_contains(&message, "vocab.txt");
        assert_contains(&message, expected);
    };
    let without = SMALL.replace("[MASK]\n", "");
    refused(without.as_bytes(), "the token [MASK] is missing");
    let twice = "vocab.txt:12: the token `em` stands already on line 6";
    refused(format!("{SMALL}em\n").as_bytes(), twice);
    refused(b"", "it is empty");
    let empty = SMALL.replace("the", "");
    refused(empty.as_bytes(), "vocab.txt:10: an empty line");
    refused(b"[PAD]\n\xff\n", "vocab.txt:2: not valid UTF-8");
}

#[test]
fn bad_input_gets_one_sentence_after_the_lines_before_it() {
    let (_folder, vocab) = small_vocab(SMALL);
    for (input, printed, message) in [
        (
            &b"the\nthe \xff\n"[..],
            "2 9 3\n",
            "stdin:2: byte 5 of the line is not valid UTF-8; expected UTF-8 text (Latin-1 is converted by \
             iconv -f latin1 -t utf-8 FILE > NEW)",
        ),
        (
            b"\x7fELF\x02\x01\x01\0\0\n",
            "",
            "stdin: this is a binary file or in another encoding; expected UTF-8 text (Latin-1 is converted \
             by iconv -f latin1 -t utf-8 FILE > NEW)",
        ),
        (b"\xff\xfet\0h\0e\0\n\0", "", "stdin: this looks like UTF-16; expected UTF-8 text"),
    ] {
        let output = tokenize(&vocab, &["--ids"], input);
        assert_eq!((output.status.code(), &*stdout(&output)), (Some(1), printed));
        assert_eq!(stderr(&output), format!("error: {message}\n"));
    }
    error_line(&tokenize(Path::new("nowhere/vocab.txt"), &[], ""), 1);
}

/// Ids and offsets, without those of [CLS] and [SEP], with the uncased and the cased vocabulary of `vocab/`.
type Pieces = &'static [(u32, (usize, usize))];
/// Lines with zero bytes and what `encode(line)` returns for them: BertWordPieceTokenizer of `tokenizers` 0.23.3 and
/// BertTokenizerFast of transformers 5.23 agree.
const ZERO_BYTES: [(&str, Pieces, Pieces); 10] = [
    ("\0", &[], &[]),
    ("\0\0 \0", &[], &[]),
    ("\0Hello world", &[(7592, (1, 6)), (2088, (7, 12))], &[(8667, (1, 6)), (1362, (7, 12))]),
    ("He\0llo wor\0\0ld\0", &[(7592, (0, 6)), (2088, (7, 14))], &[(8667, (0, 6)), (1362, (7, 14))]),
    (
        "un\0affable \0 em\0beddings",
        &[
            (14477, (0, 4)),
            (20961, (4, 7)),
            (3468, (7, 10)),
            (7861, (13, 15)),
            (8270, (16, 19)),
            (4667, (19, 23)),
            (2015, (23, 24)),
        ],
        &[
            (8362, (0, 2)),
            (9823, (3, 5)),
            (8057, (5, 7)),
            (2165, (7, 10)),
            (9712, (13, 15)),
            (4774, (16, 19)),
            (3408, (19, 23)),
            (1116, (23, 24)),
        ],
    ),
    ("Zürich\0 S\0ão", &[(10204, (0, 6)), (7509, (8, 12))], &[(16592, (0, 6)), (7447, (8, 12))]),
    (
        "[MA\0SK] [MASK]\0",
        &[(1031, (0, 1)), (7308, (1, 6)), (1033, (6, 7)), (103, (8, 14))],
        &[
            (164, (0, 1)),
            (9960, (1, 3)),
            (1708, (4, 5)),
            (2428, (5, 6)),
            (166, (6, 7)),
            (103, (8, 14)),
        ],
    ),
    (
        "\0the\0.\0 中\0文",
        &[(1996, (1, 4)), (1012, (5, 6)), (1746, (8, 9)), (1861, (10, 11))],
        &[(1103, (1, 4)), (119, (5, 6)), (980, (8, 9)), (1030, (10, 11))],
    ),
    (
        "a\u{fffd}b\0\x01c\x7f d",
        &[(5925, (0, 6)), (1040, (8, 9))],
        &[(170, (0, 1)), (1830, (2, 3)), (1665, (5, 6)), (173, (8, 9))],
    ),
    (" \0 \0x\0 ", &[(1060, (4, 5))], &[(193, (4, 5))]),
];

#[test]
fn zero_bytes_are_dropped_as_in_hugging_face() {
    let lines: Vec<&str> = ZERO_BYTES.iter().map(|(line, _, _)| *line).collect();
    let input = lines.join("\n");
    let Some(data) = real_data() else { return };
    for name in ["uncased", "cased"] {
        let (mut ids, mut offsets) = (String::new(), String::new());
        for (_, uncased, cased) in ZERO_BYTES {
            let pieces = if name == "cased" { cased } else { uncased };
            let inner = |one: fn(&(u32, (usize, usize))) -> String| {
                pieces.iter().map(one).collect::<Vec<String>>().join(" ")
            };
            ids += &format!("101 {} 102\n", inner(|(id, _)| id.to_string())).replace("  ", " ");
            let places = inner(|(_, (start, end))| format!("{start}-{end}"));
            offsets += &format!("0-0 {places} 0-0\n").replace("  ", " ");
        }
        let vocab = vocab(&data, name);
        let cased = (name == "cased").then_some("--cased");
        for (form, expected) in [("--ids", ids), ("--offsets", offsets)] {
            let flags: Vec<&str> = cased.into_iter().chain([form]).collect();
            assert_eq!(pieces(&vocab, &flags, &input), expected);
        }
    }
}

#[test]
fn a_line_of_zero_bytes_has_no_pieces() {
    let (_folder, vocab) = small_vocab(SMALL);
    let printed = pieces(&vocab, &["--ids"], "\0\0\nt\0he\n");
    assert_eq!(printed, "2 3\n2 9 3\n");
}

/// Endless lines, from a program and from a small compressed file.
#[test]
fn a_line_that_never_ends_is_refused() {
    let (folder, vocab) = small_vocab(SMALL);
    let mut child = tokenizing(&vocab);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"the\n").unwrap();
    // The command does not read all of this GiB.
    assert!((0..1 << 10).any(|_| stdin.write_all(&[b'a'; 1 << 20]).is_err()));
    let output = child.wait_with_output().unwrap();
    let expected = "line 2 is longer than 64 MiB; expected shorter lines\n";
    assert_eq!(stderr(&output), format!("error: stdin: {expected}"));
    assert_eq!(output.status.code(), Some(1));

    let path = folder.path().join("bomb.txt.gz");
    let file = std::fs::File::create(&path).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(b"the\n").unwrap();
    for _ in 0..65 {
        packed.write_all(&[b'a'; 1 << 20]).unwrap();
    }
    packed.finish().unwrap();
    let out = folder.path().join("out");
    let args = ["vocab", "--size", "32", "--text", text(&path), "--out", text(&out)];
    let message = fails(args, 1);
    assert!(message.ends_with(&format!("bomb.txt.gz: {}", expected.trim_end())), "{message}");
}

#[test]
fn a_vocabulary_does_not_replace_the_text_that_it_comes_from() {
    let folder = Folder::new();
    folder.write("a.txt", "the cat sat on the mat\n");
    let (text_folder, out) = (folder.0.path(), folder.path("a.txt"));
    let args = ["vocab", "--size", "32", "--text", text(text_folder), "--out", text(&out)];
    assert_contains(&fails(args, 2), "a.txt: is a file of --text, which would be lost");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "the cat sat on the mat\n");
}

/// Starts `cloze tokenize` with pipes.
fn tokenizing(vocab: &Path) -> Child {
    let mut command = cloze();
    command.args(["tokenize", "--vocab", text(vocab)]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (_folder, vocab) = small_vocab(SMALL);
    let mut child = tokenizing(&vocab);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // One line is answered before a second is sent.
    stdin.write_all(b"the embeddings\n").unwrap();
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "[CLS] the em ##bed ##ding ##s [SEP]\n");
    drop(stdout);
    let writer = std::thread::spawn(move || {
        let line = "the embeddings ".repeat(1000) + "\n";
        // Writing is expected to fail as soon as the child has ended.
        (0..100_000).any(|_| stdin.write_all(line.as_bytes()).is_err())
    });
    let output = child.wait_with_output().unwrap();
    assert!(writer.join().unwrap());
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_model_folder_configures_its_vocabulary() {
    let (folder, path) = small_vocab(SMALL);
    let file = |name: &str| folder.path().join(name);
    assert_eq!(WordPiece::from_file(&path, None).unwrap().casing(), Casing::Uncased);
    std::fs::write(file("tokenizer_config.json"), r#"{"do_lower_case": false}"#).unwrap();
    let cased = WordPiece::from_file(folder.path(), None).unwrap();
    assert_eq!(cased.casing(), Casing::Cased);
    assert_eq!(cased.encode("The the").tokens, ["[UNK]", "the"]);

    // It can be saved and read back, from tokenizer.json and from vocab.txt.
    let saved = tempfile::tempdir().unwrap();
    cased.save(saved.path()).unwrap();
    let read = WordPiece::from_file(saved.path(), None).unwrap();
    assert_eq!((read.tokens(), read.casing()), (cased.tokens(), Casing::Cased));
    assert_eq!(read.encode("the [MASK]."), cased.encode("the [MASK]."));
    let wrong = WordPiece::from_file(saved.path(), Some(Casing::Uncased)).unwrap_err();
    assert!(wrong.to_string().contains("is Cased, but Uncased was asked for"));
    std::fs::remove_file(saved.path().join("tokenizer.json")).unwrap();
    let read = WordPiece::from_file(saved.path(), None).unwrap();
    assert_eq!((read.tokens(), read.casing()), (cased.tokens(), Casing::Cased));

    let empty = tempfile::tempdir().unwrap();
    let error = WordPiece::from_file(empty.path(), None).unwrap_err();
    assert!(error.to_string().contains("neither a tokenizer.json nor a vocab.txt"));
    // The last one breaks off in a decoder.
    for json in ["{", r#"{"version": "1.0", "decoder": {"type": "WordPiece", {"#] {
        std::fs::write(empty.path().join("tokenizer.json"), json).unwrap();
        let error = WordPiece::from_file(empty.path(), None).unwrap_err();
        assert!(error.to_string().contains("tokenizer.json: this is no tokenizer.json"), "{error}");
    }
}

/// As transformers' BertTokenizer reads its configuration.
#[test]
fn a_folder_configures_accents_and_chinese_characters() {
    let vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nschon\nschön\n東\n京\n東京\n";
    let (folder, _) = small_vocab(vocab);
    let file = |name: &str| folder.path().join(name);
    let tokens = |of: &Path| {
        let wordpiece = WordPiece::from_file(of, None).unwrap();
        wordpiece.encode("Schön 東京").tokens
    };
    assert_eq!(tokens(folder.path()), ["schon", "東", "京"]);
    let keys =
        r#"{"do_lower_case": true, "strip_accents": false, "tokenize_chinese_chars": false}"#;
    std::fs::write(file("tokenizer_config.json"), keys).unwrap();
    assert_eq!(tokens(folder.path()), ["schön", "東京"]);

    // Both files of a saved folder say the same.
    let saved = tempfile::tempdir().unwrap();
    let wordpiece = WordPiece::from_file(folder.path(), None).unwrap();
    wordpiece.save(saved.path()).unwrap();
    assert_eq!(tokens(saved.path()), ["schön", "東京"]);
    std::fs::remove_file(saved.path().join("tokenizer.json")).unwrap();
    assert_eq!(tokens(saved.path()), ["schön", "東京"]);
}

#[test]
fn a_vocabulary_with_capitals_is_cased() {
    let vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n[unused1]\nThe\nthe\n";
    let (_folder, path) = small_vocab(vocab);
    let wordpiece = WordPiece::from_file(&path, None).unwrap();
    assert_eq!(wordpiece.encode("The the").tokens, ["The", "the"]);
    let asked = WordPiece::from_file(&path, Some(Casing::Uncased)).unwrap();
    assert_eq!(asked.encode("The").tokens, ["the"]);
}

#[test]
fn pairs_and_decoding_follow_bert() {
    let (_folder, path) = small_vocab(SMALL);
    let wordpiece = WordPiece::from_vocab_file(&path, Casing::Uncased).unwrap();
    let (pair, segments) = wordpiece.encode_pair("the embed.", "em");
    let tokens = ["[CLS]", "the", "em", "##bed", ".", "[SEP]", "em", "[SEP]"];
    assert_eq!(pair.tokens, tokens);
    assert_eq!(segments, [0, 0, 0, 0, 0, 0, 1, 1]);
    let words = [None, Some(0), Some(1), Some(1), Some(2), None, Some(0), None];
    assert_eq!(pair.words, words);
    assert_eq!(wordpiece.decode(&pair.ids), "the embed. em");
    assert_eq!(wordpiece.token(6), Some("##bed"));
    assert_eq!((wordpiece.id("##bed"), wordpiece.token(99)), (Some(6), None));
    assert!(wordpiece.is_continuation(6) && !wordpiece.is_continuation(5));
}

#[test]
fn a_trained_vocabulary_spells_its_text() {
    let folder = Folder::new();
    folder.write("t.txt", "The cat sat. The cats sat and sat.\n\nA cat!\n");
    let (from, to) = (folder.path("t.txt"), folder.path("v.txt"));
    let train = |size: &str| {
        words(&format!("vocab --size {size} --text {} --out {}", text(&from), text(&to)))
    };
    let trained = || {
        succeeds(train("32"));
        std::fs::read_to_string(&to).unwrap()
    };
    let first = trained();
    assert_eq!(trained(), first);
    assert!(first.starts_with("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"), "{first}");
    assert!(first.lines().any(|token| token == "cat"), "{first}");
    assert_eq!(pieces(&to, &[], "The cats sat"), "[CLS] the cat ##s sat [SEP]\n");
    fails(train("3"), 2);
    folder.write("t.txt", "");
    assert_contains(&fails(train("32"), 1), "t.txt: there is no text here");
}

#[test]
fn a_tokenizer_that_pads_and_cuts_gives_the_tokens_alone() {
    let (_folder, vocab) = small_vocab(SMALL);
    let ours = WordPiece::from_file(&vocab, None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    ours.save(folder.path()).unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut file = read_json(&path);
    // As in sentence-transformers' models.
    file["truncation"] = serde_json::json!({
        "direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0
    });
    file["padding"] = serde_json::json!({
        "strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "[PAD]"
    });
    std::fs::write(&path, file.to_string()).unwrap();
    let theirs = WordPiece::from_file(&path, None).unwrap();
    let text = "the the the the the the the";
    assert_eq!(theirs.encode(text), ours.encode(text));
    assert_eq!(theirs.encode(text).len(), 7);
}
