//! `cloze prepare`: tokenises a large text once, into a store that runs of `cloze pretrain` read.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cli::shared::checks::{at_least_one, refuse};
use crate::cli::shared::engine::EngineArgs;
use crate::cli::shared::ranks::Shareable;
use crate::cli::shared::run_folder::Lock;
use crate::cli::shared::stdio::say;
use crate::data::TokenStore;
use crate::data::pretraining::store::prepare::{Preparation, Progress, Size, check_folder};
use crate::download::TransferBar;
use crate::error::Result;
use crate::memory::format_bytes;
use crate::note;
use crate::ranks::Ranks;
use crate::text::{Casing, WordPiece};
use crate::train::Stop;

/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Text files (.txt, .txt.gz, WikiExtractor's wiki_00) and folders of them
    #[arg(long, required_unless_present = "check", num_args = 1.., value_name = "PATH")]
    text: Vec<PathBuf>,
    /// vocab.txt, tokenizer.json or a model folder; a copy is kept in the store
    #[arg(long, required_unless_present = "check", value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Keep case and accents
    #[arg(long)]
    cased: bool,
    /// Folder for the store; an unfinished one there is continued
    #[arg(long, required_unless_present = "check", value_name = "STORE")]
    out: Option<PathBuf>,
    /// Text in a shard, in millions of bytes [default: 67, or a 256th of a larger text]
    #[arg(long, value_name = "MB")]
    shard_mb: Option<u64>,
    /// Compare a finished store with its checksums instead
    #[arg(long, value_name = "STORE", conflicts_with_all = ["text", "vocab", "cased", "out", "shard_mb"])]
    check: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Ranks share the shards; all write into the same folder.
    pub(crate) fn shareable(&mut self) -> Option<Shareable<'_>> {
        self.check.is_none().then_some(Shareable { engine: EngineArgs::on_cpu(), out: None })
    }
}

pub(crate) fn run(args: Args) -> Result<()> {
    match (&args.check, &args.out, &args.vocab) {
        (Some(store), ..) => check(store, args.json),
        (None, Some(out), Some(vocab)) => prepare(&args, out, vocab),
        _ => refuse!("--text, --vocab and --out are needed, or --check"),
    }
}

/// Checks every byte of a store.
fn check(folder: &Path, json: bool) -> Result<()> {
    let (store, wordpiece) = TokenStore::open(folder)?;
    store.check()?;
    let (documents, tokens, shards) = (store.documents(), store.tokens(), store.shard_count());
    if json {
        return say!("{}", json!({ "documents": documents, "tokens": tokens, "shards": shards }));
    }
    say!(
        "{} is whole: {tokens} tokens in {documents} documents, {shards} shards, a vocabulary of {}",
        folder.display(),
        wordpiece.vocab_size()
    )
}

fn prepare(args: &Args, out: &Path, vocab: &Path) -> Result<()> {
    at_least_one([("--shard-mb", args.shard_mb.unwrap_or(1))])?;
    let started = Instant::now();
    let wordpiece = WordPiece::from_file(vocab, args.cased.then_some(Casing::Cased))?;
    let shard_bytes = args.shard_mb.map(|mb| mb.saturating_mul(1_000_000));
    let ranks = Ranks::of_process();
    let begin = || Preparation::begin(out, &args.text, &wordpiece, shard_bytes);
    let (preparation, _lock) = if ranks.is_first() {
        check_folder(out)?;
        let lock = Lock::take(&out.join("lock"), out)?;
        let begun = (begin()?, Some(lock));
        ranks.barrier()?;
        begun
    } else {
        // The first rank creates the folder.
        ranks.barrier()?;
        (begin()?, None)
    };
    let stop = Stop::on_signals()?;
    let progress = Progress::default();
    let whole = with_bar(&preparation, &progress, || {
        preparation.write((ranks.rank(), ranks.size()), &progress, &|| stop.requested())
    })?;
    let counts = [&progress.shards, &progress.kept].map(|count| count.load(Ordering::Relaxed));
    let text = progress.text.load(Ordering::Relaxed);
    // A f64 holds every count exactly.
    let counts = ranks.sum([counts[0] as f64, counts[1] as f64, text as f64])?;
    let [done, kept, bytes] = counts.map(|count| count as u64);
    if ranks.any(!whole)? {
        let of = preparation.shards();
        note!(
            "stopped: {done} of {of} shards are in {}; the same command continues with the next",
            out.display()
        );
        if args.json {
            say!("{}", json!({ "stopped": true, "shards": done, "all_shards": of }))?;
        }
        return Ok(());
    }
    if !ranks.is_first() {
        return Ok(());
    }
    let size = preparation.finish()?;
    report(args, out, &size, (kept, bytes), started.elapsed().as_secs_f64())
}

/// Shows the progress while `work` runs.
fn with_bar<T: Send>(
    preparation: &Preparation,
    progress: &Progress,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let mut bar = TransferBar::new("text", Some(preparation.bytes()));
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            bar.at(progress.read.load(Ordering::Relaxed));
            std::thread::sleep(TICK);
        }
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    bar.at(progress.read.load(Ordering::Relaxed));
    bar.done();
    result
}

/// Prints the size of the store, the number of shards from before, and the speed for the text that was tokenised.
fn report(
    args: &Args,
    out: &Path,
    size: &Size,
    (kept, text): (u64, u64),
    seconds: f64,
) -> Result<()> {
    let megabytes = text as f64 / 1e6;
    let speed = megabytes / seconds;
    let Size { documents, sentences, tokens, shards, bytes } = *size;
    if args.json {
        return say!(
            "{}",
            json!({
                "stopped": false,
                "documents": documents,
                "sentences": sentences,
                "tokens": tokens,
                "shards": shards,
                "kept_shards": kept,
                "bytes": bytes,
                "text_mb": megabytes,
                "seconds": seconds,
                "mb_per_s": speed,
            })
        );
    }
    say!(
        "{}: {tokens} tokens in {sentences} sentences and {documents} documents; {shards} shards of \
         {} together, {kept} of them from before",
        out.display(),
        format_bytes(bytes)
    )?;
    say!("{megabytes:.1} MB of text in {seconds:.1} s: {speed:.1} MB/s")
}
