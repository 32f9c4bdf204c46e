//! The tokenised corpus: [`shard`]s of tokens, in memory, in a file of a run, or in a folder that
//! [`prepare`] has written and that any number of runs and ranks read.
//!
//! A store fixes the text, the vocabulary and the sentences. Lengths of sequences, pairs, masks, held-out
//! documents and the seed are those of the run that reads it.

mod manifest;
pub mod prepare;
pub(super) mod shard;
mod writing;

use std::io::{BufWriter, Write};
use std::path::Path;

use crc32fast::Hasher;
use rayon::prelude::*;

use self::manifest::Manifest;
use self::shard::{Bytes, Shard};
use self::writing::{ShardWriter, for_each_sentence};
use crate::error::{Error, Result};
use crate::files::{Output, create_folder, folder_of, remove_if_there};
use crate::text::{Paragraph, WordPiece};

/// The tokens of a store of up to this many bytes are checked when it is opened: that takes a fraction of a
/// second.
const CHECKED_WHOLE: u64 = 256 << 20;

/// A tokenised corpus.
#[derive(Debug)]
pub struct TokenStore {
    shards: Vec<Shard>,
    vocab_size: usize,
    /// CRC-32 of all tokens.
    checksum: u32,
}

impl TokenStore {
    /// Tokenises a corpus. With `file`, the tokens are written to this new file (2 bytes a token, 4 if the
    /// vocabulary has more than 65,536 entries); without, they stay in memory.
    pub fn build(
        paragraphs: impl IntoIterator<Item = Result<Paragraph>>,
        wordpiece: &WordPiece,
        file: Option<&Path>,
    ) -> Result<Self> {
        let bytes = match file {
            None => Bytes::Memory(write(paragraphs, wordpiece, Vec::new(), Path::new("memory"))?),
            Some(path) => {
                let out = BufWriter::with_capacity(1 << 20, new_file(path)?);
                let out = write(paragraphs, wordpiece, out, path)?;
                let file = out.into_inner().map_err(|e| Error::io(path, e.into_error()))?;
                Bytes::File(path.to_path_buf(), file.into_file())
            }
        };
        Self::new(vec![Shard::open(bytes)?], wordpiece.vocab_size())
    }

    /// Opens the store in `folder` and reads its vocabulary. Checks the shards' sizes and the checksums of
    /// their indices, and in a small store those of the tokens; [`check`](Self::check) checks everything.
    ///
    /// # Errors
    /// If the folder holds no finished store of this version, or a file is missing or damaged.
    pub fn open(folder: &Path) -> Result<(Self, WordPiece)> {
        let manifest = Manifest::read(folder)?;
        let wordpiece = manifest.wordpiece(folder)?;
        let shards = manifest.open_shards(folder)?;
        let bytes: u64 = shards.iter().map(|shard| shard.footer().tokens_bytes()).sum();
        let store = Self::new(shards, wordpiece.vocab_size())?;
        store.check_with(bytes <= CHECKED_WHOLE)?;
        Ok((store, wordpiece))
    }

    /// Checks the checksums of all shards.
    ///
    /// # Errors
    /// If a shard is damaged; the error names its file.
    pub fn check(&self) -> Result<()> {
        self.check_with(true)
    }

    fn check_with(&self, tokens: bool) -> Result<()> {
        let check = |shard: &Shard| {
            shard.check_index()?;
            if tokens { shard.check_tokens() } else { Ok(()) }
        };
        // The first fault in the order of the shards, whichever thread finds one first.
        let results: Vec<Result<()>> = self.shards.par_iter().map(check).collect();
        results.into_iter().collect()
    }

    fn new(shards: Vec<Shard>, vocab_size: usize) -> Result<Self> {
        let mut sum = Hasher::new();
        for shard in &shards {
            let footer = shard.footer();
            if footer.vocab_size as usize != vocab_size {
                return Err(shard.damaged());
            }
            sum.combine(&Hasher::new_with_initial_len(footer.checksum, footer.tokens_bytes()));
        }
        Ok(Self { shards, vocab_size, checksum: sum.finalize() })
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Returns the shards in the order of the text.
    pub(super) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Returns a CRC-32 of the text's tokens, which depends on their order.
    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    /// Returns the number of entries of the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Returns the number of documents.
    pub fn documents(&self) -> u64 {
        self.shards.iter().map(|shard| shard.footer().documents).sum()
    }

    /// Returns the number of tokens.
    pub fn tokens(&self) -> u64 {
        self.shards.iter().map(|shard| shard.footer().tokens).sum()
    }

    /// Returns the occurrences of each entry of the vocabulary.
    pub fn counts(&self) -> Result<Vec<u64>> {
        let mut counts = vec![0; self.vocab_size];
        self.shards.iter().try_for_each(|shard| shard.count(&mut counts))?;
        Ok(counts)
    }
}

/// Tokenises a corpus and writes one shard; `path` is for messages.
fn write<W: Write>(
    paragraphs: impl IntoIterator<Item = Result<Paragraph>>,
    wordpiece: &WordPiece,
    out: W,
    path: &Path,
) -> Result<W> {
    let mut writer = ShardWriter::new(out, wordpiece, 0);
    for_each_sentence(paragraphs, wordpiece, |document, tokens| {
        writer.push(document, tokens).map_err(|e| Error::io(path, e))
    })?;
    Ok(writer.finish().map_err(|e| Error::io(path, e))?.0)
}

/// Creates a file to write and to read. Does not truncate an old file, which another run may still read.
fn new_file(path: &Path) -> Result<Output> {
    create_folder(folder_of(path))?;
    remove_if_there(path)?;
    Output::create_new(path).map_err(|e| Error::io(path, e))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::shard::Footer;
    use super::*;
    use crate::data::{PretrainingData, PretrainingOptions};
    use crate::text::Casing;

    /// Bytes of the footer.
    const END: usize = 60;

    /// Returns a store of six documents whose index, with its `counts` of the vocabulary, and whose footer are
    /// changed, with right checksums.
    fn changed(
        wordpiece: &WordPiece,
        change: impl Fn(&mut [u8], &mut Footer),
    ) -> Result<Arc<TokenStore>> {
        let text = || "a b. b a. a a. b b.".to_owned();
        let paragraphs = (0..6).map(|document| Ok(Paragraph { document, text: text() }));
        let mut bytes = write(paragraphs, wordpiece, Vec::new(), Path::new("memory"))?;
        let mut footer = *Shard::open(Bytes::Memory(bytes.clone()))?.footer();
        bytes.truncate(bytes.len() - END);
        let counts = bytes.len() - 8 * wordpiece.vocab_size();
        change(&mut bytes[counts..], &mut footer);
        footer.index = crc32fast::hash(&bytes[footer.tokens_bytes() as usize..]);
        bytes.extend(footer.encode());
        let store =
            TokenStore::new(vec![Shard::open(Bytes::Memory(bytes))?], footer.vocab_size as usize)?;
        store.check()?;
        Ok(Arc::new(store))
    }

    #[test]
    fn a_shard_that_contradicts_itself_is_damaged() {
        let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "."];
        let wordpiece =
            WordPiece::from_vocab(tokens.map(str::to_owned).into(), Casing::Cased).unwrap();
        let options = PretrainingOptions { max_len: 8, ..PretrainingOptions::default() };
        let split =
            |store: &Arc<TokenStore>| PretrainingData::split(store, &wordpiece, &options, 2);
        assert!(split(&changed(&wordpiece, |_, _| ()).unwrap()).is_ok());
        // More tokens than there are.
        let more = changed(&wordpiece, |counts, _| counts[7] = 0xff).unwrap();
        assert!(split(&more).unwrap_err().to_string().contains("is damaged"));
        // Other tokens than there are: all of them are padding.
        let total = more.tokens();
        let other = changed(&wordpiece, |counts, _| {
            counts.fill(0);
            counts[..8].copy_from_slice(&total.to_le_bytes());
        });
        let message = split(&other.unwrap()).unwrap_err().to_string();
        assert!(message.contains("counts other tokens than it has"), "{message}");
        let documents = changed(&wordpiece, |_, footer| footer.documents = u64::MAX);
        assert!(documents.unwrap_err().to_string().contains("is damaged"));
    }
}
