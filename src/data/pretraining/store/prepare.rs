//! Writes a store: divides the text into pieces, and tokenises each into a shard. The pieces depend only on
//! the files, so the shards are the same for any number of threads and ranks, and a preparation that was
//! stopped continues with the first shard that is missing.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::manifest::{Entry, Manifest, Source, hexadecimal, shard_name};
use super::shard::{Bytes, Shard};
use super::writing::{ShardWriter, for_each_sentence};
use crate::error::{Error, Result};
use crate::files::{PREFIX, Staged, create_folder, sweep};
use crate::text::pieces::pieces;
use crate::text::reader::{check_readable_twice, text_files};
use crate::text::sections::{Section, checksum};
use crate::text::{Paragraphs, WordPiece};

/// The least text in a shard, in bytes, unless another size is asked for.
const SHARD_BYTES: u64 = 64 << 20;
/// The most shards, about: every run keeps all of them open.
const MOST_SHARDS: u64 = 256;

/// A store that is being written.
pub struct Preparation {
    folder: PathBuf,
    manifest: Manifest,
    wordpiece: WordPiece,
    pieces: Vec<Vec<Section>>,
}

/// How far a preparation is. Threads add to it while others read.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of the files that were read, packed or not.
    pub read: Arc<AtomicU64>,
    /// Bytes of unpacked text that were tokenised.
    pub text: AtomicU64,
    /// Shards that are done.
    pub shards: AtomicUsize,
    /// Of these, those of an earlier preparation.
    pub kept: AtomicUsize,
}

/// The size of a finished store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of documents.
    pub documents: u64,
    /// The number of sentences.
    pub sentences: u64,
    /// The number of tokens.
    pub tokens: u64,
    /// The number of shards.
    pub shards: usize,
    /// Bytes of the shards.
    pub bytes: u64,
}

/// Returns an error if the folder, which may not exist yet, holds other files than a store's: those of a
/// model would be replaced.
pub fn check_folder(folder: &Path) -> Result<()> {
    if Manifest::path(folder).is_file() || !folder.exists() {
        return Ok(());
    }
    let own = ["lock", "tokenizer.json", "tokenizer_config.json", "vocab.txt"];
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let name = entry.map_err(|e| Error::io(folder, e))?.file_name();
        let name = name.to_string_lossy();
        if !own.contains(&&*name) && !name.starts_with(PREFIX) {
            let folder = folder.display();
            return Err(Error::Usage(format!(
                "{folder} holds {name}, which is not of a store: give a new or an empty folder"
            )));
        }
    }
    Ok(())
}

impl Preparation {
    /// Begins a store in `folder`, or continues the one that is there. `text` are files and folders of
    /// text; `shard_bytes` is the text in a shard in bytes, by default 64 MiB, or a 256th of a larger text.
    ///
    /// # Errors
    /// If a file or folder has no text, if the folder holds other files, or if the store in it is of another
    /// text, another vocabulary or another size of the shards.
    pub fn begin(
        folder: &Path,
        text: &[PathBuf],
        wordpiece: &WordPiece,
        shard_bytes: Option<u64>,
    ) -> Result<Self> {
        let mut files = Vec::new();
        for path in text {
            check_readable_twice(path)?;
            // Reads up to the first paragraph, and so finds an argument without any.
            Paragraphs::new(&[path])?.next().transpose()?;
            for file in text_files(path)? {
                let size = fs::metadata(&file).map_err(|e| Error::io(&file, e))?.len();
                files.push((file, size));
            }
        }
        let total: u64 = files.iter().map(|(_, size)| size).sum();
        let shard_bytes = shard_bytes.unwrap_or((total / MOST_SHARDS).max(SHARD_BYTES)).max(1);
        let pieces = pieces(&files, shard_bytes)?;
        let sources = files.into_iter().map(|(path, bytes)| Source { path, bytes }).collect();
        check_folder(folder)?;
        create_folder(folder)?;
        sweep(folder)?;
        let new = Manifest::new(wordpiece, shard_bytes, pieces.len(), sources)?;
        let manifest = if Manifest::path(folder).is_file() {
            let old = Manifest::read(folder)?;
            same(folder, &old, &new)?;
            old
        } else {
            let mut staged = wordpiece.stage(folder, true, None)?;
            staged.push(new.stage(folder)?);
            Staged::place(staged)?;
            new
        };
        let folder = folder.to_path_buf();
        Ok(Self { folder, manifest, wordpiece: wordpiece.clone(), pieces })
    }

    /// Returns the size of the text's files in bytes.
    pub fn bytes(&self) -> u64 {
        self.manifest.sources.iter().map(|source| source.bytes).sum()
    }

    /// Returns the number of shards of the finished store.
    pub fn shards(&self) -> usize {
        self.pieces.len()
    }

    /// Writes the missing shards of rank `rank` of `world`: piece i belongs to rank i modulo `world`.
    /// For a shard that is there, checks that its text is still the same. Returns false if `stop` ended it.
    ///
    /// # Errors
    /// If a file can't be read or written, or if the text of a shard has changed.
    pub fn write(
        &self,
        (rank, world): (usize, usize),
        progress: &Progress,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool> {
        let next = AtomicUsize::new(rank);
        let failed = AtomicBool::new(false);
        let outcome = Mutex::new(Ok(true));
        let stopped = || stop() || failed.load(Ordering::Relaxed);
        let work = || {
            loop {
                let index = next.fetch_add(world, Ordering::Relaxed);
                if index >= self.pieces.len() {
                    return;
                }
                let result = match stopped() {
                    true => Ok(false),
                    false => self.piece(index, progress, &stopped),
                };
                if !matches!(result, Ok(true)) {
                    let first = !failed.swap(true, Ordering::Relaxed);
                    if first {
                        *outcome.lock().unwrap_or_else(PoisonError::into_inner) = result;
                    }
                    return;
                }
            }
        };
        // These threads read and write. All of them tokenise on the threads of rayon, which one large packed
        // file keeps busy too.
        std::thread::scope(|scope| {
            for _ in 0..rayon::current_num_threads() {
                scope.spawn(work);
            }
        });
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes or checks one shard. Returns false if it was stopped.
    fn piece(
        &self,
        index: usize,
        progress: &Progress,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<bool> {
        let piece = &self.pieces[index];
        let path = self.folder.join(shard_name(index));
        let source = checksum(piece)?;
        if path.is_file() {
            let was = Shard::open(Bytes::open(path.clone())?)?.footer().source;
            if was != source {
                let (was, is) = (hexadecimal(was), hexadecimal(source));
                return Err(Error::file(
                    &piece[0].path,
                    format!(
                        "the text of {} has changed: its checksum was {was} and is {is}; prepare it \
                         anew in another folder",
                        path.display()
                    ),
                ));
            }
            let bytes = piece.iter().map(|section| section.bytes.end - section.bytes.start).sum();
            progress.read.fetch_add(bytes, Ordering::Relaxed);
            progress.kept.fetch_add(1, Ordering::Relaxed);
            progress.shards.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let fault = |e| Error::io(&path, e);
        let staged = Staged::begin(&path)?;
        let out = BufWriter::with_capacity(1 << 20, staged.file());
        let mut writer = ShardWriter::new(out, &self.wordpiece, source);
        let mut cut = false;
        let paragraphs = Paragraphs::of_sections(piece, progress.read.clone());
        let paragraphs = paragraphs.take_while(|paragraph| {
            if let Ok(paragraph) = paragraph {
                progress.text.fetch_add(paragraph.text.len() as u64 + 1, Ordering::Relaxed);
            }
            cut = stop();
            !cut
        });
        for_each_sentence(paragraphs, &self.wordpiece, |document, tokens| {
            writer.push(document, tokens).map_err(fault)
        })?;
        if cut {
            return Ok(false);
        }
        drop(writer.finish().map_err(fault)?);
        Staged::place(vec![staged])?;
        progress.shards.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Finishes the store when all ranks have written their shards: lists them in the manifest.
    ///
    /// # Errors
    /// If a shard is missing or damaged, or if the text has no tokens.
    pub fn finish(mut self) -> Result<Size> {
        let open = |index| {
            let shard = Shard::open(Bytes::open(self.folder.join(shard_name(index)))?)?;
            Ok(Entry::of(index, &shard))
        };
        let entries: Vec<Entry> = (0..self.pieces.len()).map(open).collect::<Result<_>>()?;
        let sum = |of: fn(&Entry) -> u64| entries.iter().map(of).sum::<u64>();
        let size = Size {
            documents: sum(|entry| entry.documents),
            sentences: sum(|entry| entry.sentences),
            tokens: sum(|entry| entry.tokens),
            shards: entries.len(),
            bytes: sum(|entry| entry.bytes),
        };
        if size.tokens == 0 {
            return Err(Error::Failed("the text has no tokens".to_owned()));
        }
        self.manifest.shards = Some(entries);
        Staged::place(vec![self.manifest.stage(&self.folder)?])?;
        Ok(size)
    }
}

/// Returns an error if the store in `folder`, which `old` describes, is not the one that `new` asks for.
fn same(folder: &Path, old: &Manifest, new: &Manifest) -> Result<()> {
    let refuse = |what: &str, was: String, is: String| {
        let folder = folder.display();
        Err(Error::Usage(format!(
            "{folder} holds another store: {what} was {was} and is {is}; give another --out, or remove \
             the folder"
        )))
    };
    let vocabulary = |m: &Manifest| {
        let v = &m.vocabulary;
        format!("one of {} tokens with the checksum {}", v.tokens, v.checksum)
    };
    if old.vocabulary != new.vocabulary {
        return refuse("the vocabulary", vocabulary(old), vocabulary(new));
    }
    let source = |source: Option<&Source>| match source {
        Some(source) => format!("{} of {} bytes", source.path.display(), source.bytes),
        None => "none".to_owned(),
    };
    for index in 0..old.sources.len().max(new.sources.len()) {
        let (was, is) = (old.sources.get(index), new.sources.get(index));
        if was != is {
            return refuse(&format!("file {} of the text", index + 1), source(was), source(is));
        }
    }
    if old.shard_bytes != new.shard_bytes {
        let bytes = |m: &Manifest| format!("{} bytes", m.shard_bytes);
        return refuse("the text in a shard (--shard-mb)", bytes(old), bytes(new));
    }
    if old.pieces != new.pieces {
        let pieces = |m: &Manifest| format!("of {} pieces", m.pieces);
        return refuse("the text", pieces(old), pieces(new));
    }
    Ok(())
}
