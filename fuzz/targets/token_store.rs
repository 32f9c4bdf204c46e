//! Stores of tokens: manifests and shards. Most inputs get right checksums, so that contents that contradict
//! themselves come to the readers behind the checks.

#![no_main]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use cloze::data::{Packing, PretrainingData, PretrainingOptions, TokenStore};
use cloze::text::{Casing, WordPiece};
use cloze_fuzz::{folder, parts, wordpiece, write};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

static WORDPIECE: LazyLock<WordPiece> = LazyLock::new(|| wordpiece(Casing::Uncased));
static TOKENIZER: LazyLock<String> =
    LazyLock::new(|| WORDPIECE.json().expect("a tokenizer is plain data"));

// The first byte of an input chooses: a shard as it is, with a manifest as it is; or the numbers of a shard's footer
// and the bytes before it.
fuzz_target!(|data: &[u8]| {
    let folder = folder("store");
    write(&folder.join("tokenizer.json"), TOKENIZER.as_bytes());
    match data.split_first() {
        Some((b'r', rest)) => {
            let [manifest, shard] = parts(rest);
            write(&folder.join("manifest.json"), manifest);
            write(&folder.join("shard-00000.bin"), shard);
        }
        Some((b'f', rest)) => match rest.split_first_chunk::<4>() {
            Some((&numbers, content)) => with_footer(&folder, numbers, content),
            None => return,
        },
        _ => return,
    }
    let Ok((store, wordpiece)) = TokenStore::open(&folder) else {
        return;
    };
    store.check().expect("a small store was checked when it was opened");
    let store = Arc::new(store);
    for packing in [Packing::Pairs, Packing::Document, Packing::Full] {
        let options = PretrainingOptions { max_len: 12, packing, ..PretrainingOptions::default() };
        if let Ok(data) = PretrainingData::of(&store, &wordpiece, &options) {
            for index in 0..data.examples_per_epoch().min(40) {
                if let Ok(example) = data.example(index) {
                    assert!(example.ids.len() <= options.max_len);
                    assert_eq!(example.ids.len(), example.segments.len());
                    assert!(example.ids.iter().all(|&id| wordpiece.token(id).is_some()));
                }
            }
        }
        let _ = PretrainingData::split(&store, &wordpiece, &options, 2);
    }
});

/// Writes a shard of this content with a footer, and its manifest. `numbers` are those of the sentences' lengths (in
/// bytes), the tokens, the sentences and the documents; the lists in the content are cut or filled up with zeros.
fn with_footer(folder: &Path, numbers: [u8; 4], content: &[u8]) {
    let [lengths, tokens, sentences, documents] = numbers.map(u64::from);
    let vocabulary = WORDPIECE.vocab_size();
    let index = lengths as usize + tokens.div_ceil(8) as usize + 8 * vocabulary;
    let mut shard = content.to_vec();
    shard.resize(2 * tokens as usize + index, 0);
    let (ids, index) = shard.split_at(2 * tokens as usize);
    let checksums = [0, crc32fast::hash(ids), crc32fast::hash(index)];
    let mut footer = Vec::new();
    for number in [tokens, sentences, documents, lengths] {
        footer.extend(number.to_le_bytes());
    }
    footer.extend((vocabulary as u32).to_le_bytes());
    footer.extend(checksums.iter().flat_map(|sum| sum.to_le_bytes()));
    footer.extend(b"CLOZETK1");
    footer.extend(crc32fast::hash(&footer).to_le_bytes());
    shard.extend(footer);
    let [source, ids, index] = checksums.map(|sum| format!("{sum:08x}"));
    let manifest = json!({
        "format": "cloze token store", "version": 1, "shard_bytes": 1000, "pieces": 1, "sources": [],
        "vocabulary": {
            "tokens": vocabulary,
            "checksum": format!("{:08x}", crc32fast::hash(TOKENIZER.as_bytes())),
        },
        "shards": [{
            "file": "shard-00000.bin", "bytes": shard.len(), "documents": documents, "sentences": sentences,
            "tokens": tokens, "source_checksum": source, "checksum": ids, "index_checksum": index,
        }],
    });
    write(&folder.join("manifest.json"), manifest.to_string().as_bytes());
    write(&folder.join("shard-00000.bin"), &shard);
}
