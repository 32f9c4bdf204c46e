//! `tokenizer.json` and `vocab.txt`, and a text through what they describe.

#![no_main]

use cloze::text::{Casing, WordPiece};
use cloze_fuzz::{folder, parts, write};
use libfuzzer_sys::fuzz_target;

// The parts of an input: the file, a text, a `tokenizer_config.json`. A file that begins with a brace is a
// `tokenizer.json`.
fuzz_target!(|data: &[u8]| {
    let [file, text, settings] = parts(data);
    let folder_in = folder("in");
    let name = if file.starts_with(b"{") { "tokenizer.json" } else { "vocab.txt" };
    write(&folder_in.join(name), file);
    if !settings.is_empty() {
        write(&folder_in.join("tokenizer_config.json"), settings);
    }
    let _ = WordPiece::from_file(&folder_in.join(name), Some(Casing::Cased));
    let Ok(wordpiece) = WordPiece::from_file(&folder_in, None) else {
        return;
    };
    let text = String::from_utf8_lossy(text);
    let encoding = wordpiece.encode(&text);
    assert!(encoding.ids.iter().all(|&id| wordpiece.token(id).is_some()));
    wordpiece.decode(&encoding.ids);
    // What is saved is the same tokenizer.
    let folder_out = folder("out");
    wordpiece.save(&folder_out).expect("it can be saved");
    let again = WordPiece::from_file(&folder_out, None).expect("we wrote it");
    assert_eq!(again.tokens(), wordpiece.tokens());
    assert_eq!(again.special(), wordpiece.special());
    assert_eq!(again.encode(&text), encoding);
});
