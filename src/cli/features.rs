//! `cloze features`: computes vectors for lines of text, as JSON or as a safetensors file.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::Serialize;

use crate::cli::shared::engine::EngineArgs;
use crate::cli::shared::ranks::Shareable;
use crate::cli::shared::stdio::answer_lines;
use crate::data::Sequences;
use crate::error::{Error, Result};
use crate::features::{Combine, Pool, Settings, Vectors, parse_layers};
use crate::files::{Output, Staged};
use crate::lessons::data::SMALL;
use crate::note;
use crate::predict::Embedder;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model folder, or the name of one on the Hub
    #[arg(long, default_value = SMALL, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Layer, or first and last of several, counted as in Python: 0 is the embeddings, -1 the last layer
    #[arg(long, default_value = "-1", value_name = "N|N..M", allow_hyphen_values = true)]
    layers: String,
    /// How the vectors of several layers become one
    #[arg(long, value_enum, default_value_t = Combine::Concat)]
    combine: Combine,
    /// How the vectors of tokens become one [default: as the model folder says, else mean]
    #[arg(long, value_enum)]
    pool: Option<Pool>,
    /// Scale vectors to length 1 [default: as the model folder says, else not]
    #[arg(long)]
    normalize: bool,
    /// Don't scale vectors, whatever the model folder says
    #[arg(long, conflicts_with = "normalize")]
    no_normalize: bool,
    /// Longest sequence in tokens; longer texts are cut [default: as the model folder says, else
    /// the model's positions]
    #[arg(long, value_name = "N")]
    max_len: Option<usize>,
    /// Each line has two texts, separated by a tab, which the model reads together
    #[arg(long)]
    pair: bool,
    /// Output format: JSON objects, one for each line, or a safetensors file
    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,
    /// File to write instead of stdout
    #[arg(long, value_name = "FILE", required_if_eq("format", "safetensors"))]
    out: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Accepted for scripts: the output is JSON by default
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Jsonl,
    /// Tensor "vectors": (texts, width), or with --pool none (tokens, width) with "cu_seqlens" (a
    /// text's rows start at its number) and "ids"
    Safetensors,
}

/// Upper limit of the numbers in vectors that are in memory at once: 256 MiB.
const AT_ONCE: usize = 64 << 20;

/// A line of output with one vector, or with a vector for each token.
#[derive(Serialize)]
struct Line<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vector: Option<&'a [f32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<Vec<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<Vec<&'a [f32]>>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let model = args.load()?;
    let (settings, width) = (model.settings(), model.width());
    let pool = settings.pool;
    let (mut texts, mut tokens, mut cut, mut took) = (0, 0, 0, Duration::ZERO);
    let mut sink = Sink::open(&args, settings, width)?;
    answer_lines(|batch| {
        let mut answers = Vec::new();
        for part in parts(batch, pool, width) {
            let started = Instant::now();
            let pairs = part.iter().enumerate();
            let pairs = pairs.map(|(index, line)| args.split(line, texts + index));
            let pairs: Vec<(&str, Option<&str>)> = pairs.collect::<Result<_>>()?;
            let (sequences, vectors) = model.vectors(&pairs)?;
            texts += part.len();
            tokens += sequences.tokens();
            cut += sequences.cut();
            took += started.elapsed();
            let json = || json(&pairs, &sequences, &vectors, &model);
            match &mut sink {
                Sink::Stdout => answers.extend(json()),
                Sink::Lines(file, staged) => {
                    let mut lines = json().into_iter();
                    let written = lines.try_for_each(|line| writeln!(file, "{line}"));
                    written.map_err(|e| Error::io(staged.path(), e))?;
                }
                Sink::Tensors(file) => {
                    for (index, vectors) in vectors.iter().enumerate() {
                        file.write(vectors, sequences.ids(index))?;
                    }
                }
            }
        }
        Ok(answers)
    })?;
    sink.finish()?;
    if cut > 0 {
        note!("stdin: {cut} of {texts} texts were cut to {} tokens", model.max_len());
    }
    let seconds = took.as_secs_f64().max(1e-9);
    note!(
        "{texts} texts of {tokens} tokens in {seconds:.2} s: {:.0} texts/s, {:.0} tokens/s",
        texts as f64 / seconds,
        tokens as f64 / seconds,
    );
    Ok(())
}

/// Splits lines into parts whose vectors fit into memory.
fn parts(lines: &[String], pool: Pool, width: usize) -> Vec<&[String]> {
    let mut parts = Vec::new();
    let (mut start, mut values) = (0, 0);
    for (index, line) in lines.iter().enumerate() {
        // A token has at least one byte, and there are up to three special tokens.
        let most = match pool {
            Pool::None => line.len() + 3,
            Pool::Mean | Pool::Cls => 1,
        };
        if values + most * width > AT_ONCE && index > start {
            parts.push(&lines[start..index]);
            (start, values) = (index, 0);
        }
        values += most * width;
    }
    parts.push(&lines[start..]);
    parts
}

/// Returns a JSON object for each text.
fn json(
    texts: &[(&str, Option<&str>)],
    sequences: &Sequences,
    vectors: &[Vec<f32>],
    model: &Embedder,
) -> Vec<String> {
    let object = |(index, (&(text, pair), vectors)): (usize, (&_, &Vec<f32>))| {
        let by_token = model.settings().pool == Pool::None;
        let ids = sequences.ids(index).iter();
        let tokens = || ids.filter_map(|&id| model.wordpiece().token(id)).collect();
        let line = serde_json::to_string(&Line {
            text,
            pair,
            vector: (!by_token).then_some(vectors),
            tokens: by_token.then(tokens),
            vectors: by_token.then(|| vectors.chunks_exact(model.width()).collect()),
        });
        line.expect("text and numbers are always JSON")
    };
    let all = texts.par_iter().zip(vectors).enumerate();
    all.map(object).collect()
}

impl Args {
    pub(crate) fn shareable(&mut self) -> Shareable<'_> {
        Shareable { engine: self.engine, out: self.out.as_mut() }
    }

    /// Loads the model with the chosen settings.
    fn load(&self) -> Result<Embedder> {
        let (setup, layers) = (self.engine.setup()?, parse_layers(&self.layers)?);
        let mut builder = Embedder::builder(&self.model).setup(setup).layers(layers);
        builder = builder.combine(self.combine);
        if let Some(pool) = self.pool {
            builder = builder.pool(pool);
        }
        if self.normalize || self.no_normalize {
            builder = builder.normalize(self.normalize);
        }
        if let Some(max_len) = self.max_len {
            builder = builder.max_len(max_len);
        }
        builder.load()
    }

    /// Returns the text in line `index`, counted from 0, and the second text of a pair.
    fn split<'l>(&self, line: &'l str, index: usize) -> Result<(&'l str, Option<&'l str>)> {
        if !self.pair {
            return Ok((line, None));
        }
        if let Some((a, b)) = line.split_once('\t')
            && !b.contains('\t')
        {
            return Ok((a, Some(b)));
        }
        let tabs = line.matches('\t').count();
        let message = format!("expected two texts, separated by a tab, but found {tabs} tabs");
        Err(Error::line("stdin", index + 1, message))
    }
}

/// The destination of the vectors.
enum Sink {
    Stdout,
    Lines(BufWriter<Output>, Staged),
    Tensors(Box<Vectors>),
}

impl Sink {
    fn open(args: &Args, settings: &Settings, width: usize) -> Result<Self> {
        let Some(path) = &args.out else {
            return Ok(Self::Stdout);
        };
        Ok(match args.format {
            Format::Jsonl => {
                let staged = Staged::begin(path)?;
                let file = staged.file().try_clone().map_err(|e| Error::io(path, e))?;
                Self::Lines(BufWriter::new(file), staged)
            }
            Format::Safetensors => {
                let entries = [
                    ("model", args.model.display().to_string()),
                    ("layers", args.layers.clone()),
                    ("combine", format!("{:?}", settings.combine).to_lowercase()),
                    ("pool", format!("{:?}", settings.pool).to_lowercase()),
                    ("normalize", settings.normalize.to_string()),
                ];
                let tokens = settings.pool == Pool::None;
                Self::Tensors(Box::new(Vectors::create(path, width, tokens, &entries)?))
            }
        })
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Stdout => Ok(()),
            Self::Lines(mut file, staged) => {
                file.flush().map_err(|e| Error::io(staged.path(), e))?;
                Staged::place(vec![staged])
            }
            Self::Tensors(file) => file.finish(),
        }
    }
}
