//! `cloze features`: vectors of lines of text, one JSON object a line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::Serialize;

use crate::data::Sequences;
use crate::error::Result;
use crate::features::{Advice, Combine, Pool, Settings, embed, layers};
use crate::hub;
use crate::model::Part;

use super::engine::EngineArgs;
use super::model::Loaded;
use super::{lines, task};

#[derive(clap::Args)]
pub struct Args {
    /// Model folder, or the name of one on the Hub
    #[arg(long, value_name = "DIR|NAME")]
    model: PathBuf,
    /// Layer, or first and last of several, counted as Python counts: 0 is the embeddings, -1 the
    /// last layer
    #[arg(
        long,
        default_value = "-1",
        value_name = "N|N..M",
        allow_hyphen_values = true
    )]
    layers: String,
    /// How several layers become one vector
    #[arg(long, value_enum, default_value_t = Combine::Concat)]
    combine: Combine,
    /// How tokens become one vector [default: as the model folder says, else mean]
    #[arg(long, value_enum)]
    pool: Option<Pool>,
    /// Scale vectors to length 1, which a sentence-transformers folder may ask for by itself
    #[arg(long)]
    normalize: bool,
    /// Longest sequence in tokens; longer texts are cut [default: as the model folder says, else
    /// the model's positions]
    #[arg(long, value_name = "N")]
    max_len: Option<usize>,
    #[command(flatten)]
    engine: EngineArgs,
    /// The output is JSON in any case; taken for the sake of scripts
    #[arg(long)]
    json: bool,
}

/// A line of output with a vector of the whole text.
#[derive(Serialize)]
struct OfText<'a> {
    text: &'a str,
    vector: &'a [f32],
}

/// A line of output with a vector for each token.
#[derive(Serialize)]
struct OfTokens<'a> {
    text: &'a str,
    tokens: Vec<&'a str>,
    vectors: Vec<&'a [f32]>,
}

pub fn run(args: Args) -> Result<()> {
    let folder = hub::folder_of(&args.model)?;
    // A sentence-transformers folder's advice is about pooled vectors of the last layer.
    let advice = match args.pool {
        None => Advice::read(&folder)?,
        Some(_) => Advice::read(&folder).unwrap_or_default(),
    };
    let mut model = Loaded::read_with(&folder, &[Part::Encoder], args.engine.setup()?)?;
    let config = model.engine.config();
    let max_len = match args.max_len {
        Some(asked) => task::max_len(config, asked)?,
        None => {
            let most = config.max_position_embeddings;
            advice.max_len.map_or(most, |len| len.min(most))
        }
    };
    let pool = args.pool.or(advice.pool).unwrap_or(Pool::Mean);
    let settings = Settings {
        layers: layers(&args.layers, config.num_hidden_layers)?,
        combine: args.combine,
        pool,
        normalize: args.normalize || (advice.normalize && pool != Pool::None),
    };
    let width = settings.width(config.hidden_size);
    let (mut texts, mut tokens, mut took) = (0, 0, Duration::ZERO);
    lines::answer(|batch| {
        let started = Instant::now();
        let pairs: Vec<(&str, Option<&str>)> = batch.iter().map(|t| (t.as_str(), None)).collect();
        let sequences = Sequences::tokenise(&model.wordpiece, &pairs, max_len)?;
        let vectors = embed(model.engine.as_mut(), &sequences, &settings)?;
        texts += batch.len();
        tokens += sequences.tokens();
        took += started.elapsed();
        let wordpiece = &model.wordpiece;
        Ok(batch
            .par_iter()
            .zip(vectors)
            .enumerate()
            .map(|(index, (text, vectors))| {
                let line = if settings.pool == Pool::None {
                    let ids = sequences.ids(index).iter();
                    serde_json::to_string(&OfTokens {
                        text,
                        tokens: ids.filter_map(|&id| wordpiece.token(id)).collect(),
                        vectors: vectors.chunks_exact(width).collect(),
                    })
                } else {
                    serde_json::to_string(&OfText {
                        text,
                        vector: &vectors,
                    })
                };
                line.expect("text and numbers are always JSON")
            })
            .collect())
    })?;
    let seconds = took.as_secs_f64().max(1e-9);
    eprintln!(
        "{texts} texts of {tokens} tokens in {seconds:.2} s: {:.0} texts/s, {:.0} tokens/s",
        texts as f64 / seconds,
        tokens as f64 / seconds,
    );
    Ok(())
}
