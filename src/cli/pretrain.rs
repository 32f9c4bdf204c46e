//! `cloze pretrain`: from text to a trained BERT.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::data::Packing;
use crate::error::{Error, Result};
use crate::hub;
use crate::model::weights::{self, Model};
use crate::model::{Config, Layout};
use crate::note;
use crate::text::{Casing, WordPiece};
use crate::train::pretraining::{Start, first_seq, new_config, paragraphs, parts};

use super::checks::positive;
use super::memory;
use super::model::{config_of, is_file};
use super::pretraining::{Origin, RunArgs};
use super::records;
use crate::model::weights::wordpiece_of;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json [default: tiny]
    #[arg(long, value_name = "SIZE|CONFIG")]
    size: Option<String>,
    /// vocab.txt, tokenizer.json or a model folder [default: a vocabulary is trained from the text]
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Entries of the vocabulary that is trained if none is given [default: 8000; without --text 2000]
    #[arg(long, value_name = "N", conflicts_with_all = ["vocab", "init"])]
    vocab_size: Option<usize>,
    /// Keep case and accents
    #[arg(long, conflicts_with = "init")]
    cased: bool,
    /// Start from the weights of this model folder, or of a model on the Hub, with its configuration and
    /// vocabulary
    #[arg(long, value_name = "DIR|NAME")]
    init: Option<PathBuf>,
    /// Standard deviation of the initial weights [default: as in a configuration file; else 0.02, or
    /// 0.9 / sqrt(H) for models narrower than 768]
    #[arg(long, value_name = "SIGMA", conflicts_with = "init")]
    initializer_range: Option<f64>,
    /// Train without pairs and next-sentence prediction, on one segment of text, as in RoBERTa
    #[arg(long)]
    no_nsp: bool,
    /// Predict every next word from those before it instead of masked ones, without pairs: the paper's
    /// ablation. Models that start from such a model also read from left to right
    #[arg(long)]
    left_to_right: bool,
    /// Without pairs: full fills a sequence with sentences of the next document after a [SEP]; document
    /// ends it with its document
    #[arg(long, value_enum, value_name = "HOW")]
    sentences: Option<Sentences>,
}

/// How text without pairs is cut into sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sentences {
    Full,
    Document,
}

pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let folder = args.init.as_deref().map(hub::folder_of).transpose()?;
    let begun = args.run.begin(folder.as_deref())?;
    let (start, origin) = match &folder {
        Some(folder) => args.continued(folder)?,
        None => args.afresh(begun.continues())?,
    };
    args.run.train(begun, start, &origin)
}

impl Args {
    fn check(&self) -> Result<()> {
        if let Some(deviation) = self.initializer_range {
            positive("--initializer-range", deviation)?;
        }
        let usage = |message: &str| Err(Error::Usage(message.into()));
        if self.sentences.is_some() && self.pairs() {
            return usage("--sentences says how text without pairs is cut: it needs --no-nsp");
        }
        if self.left_to_right && self.run.whole_word {
            return usage("--whole-word: nothing is masked with --left-to-right");
        }
        Ok(())
    }

    /// Returns whether the model learns next-sentence prediction.
    fn pairs(&self) -> bool {
        !self.no_nsp && !self.left_to_right
    }

    fn packing(&self) -> Packing {
        match self.sentences {
            _ if self.pairs() => Packing::Pairs,
            None | Some(Sentences::Full) => Packing::Full,
            Some(Sentences::Document) => Packing::Document,
        }
    }

    /// Returns a new model.
    fn afresh(&self, continues: bool) -> Result<(Start, Origin)> {
        let mut config = self.config()?;
        // Before the text is read for a vocabulary.
        self.run.fits(&config, first_seq(&config))?;
        let packing = self.packing();
        memory::parameters_fit(&Layout::new(&config, parts(packing)))?;
        let wordpiece = self.wordpiece(continues)?;
        config.vocab_size = wordpiece.vocab_size();
        memory::parameters_fit(&Layout::new(&config, parts(packing)))?;
        let origin = Origin { words: "random weights".into(), base: None };
        let start = Start::new_model(config, wordpiece, packing, self.run.seed);
        Ok((start, origin))
    }

    /// Returns a model that was trained before.
    fn continued(&self, folder: &Path) -> Result<(Start, Origin)> {
        let packing = self.packing();
        let model = Model::read(folder, parts(packing), Some(self.run.seed))?;
        let wordpiece = wordpiece_of(folder, &model)?;
        self.agrees(folder, &model.config, &wordpiece)?;
        for part in &model.fresh {
            note!(
                "the {} starts from random weights: {} has none",
                weights::describe(*part),
                folder.display()
            );
        }
        let name = records::name_of_model(folder);
        let origin = Origin { words: format!("the weights of {name}"), base: Some(name) };
        Ok((Start::trained(model, wordpiece, packing), origin))
    }

    /// Checks that a given size or vocabulary is that of the model in `folder`.
    fn agrees(&self, folder: &Path, config: &Config, wordpiece: &WordPiece) -> Result<()> {
        let usage = |message: String| Err(Error::Usage(message));
        if config.is_decoder != self.left_to_right {
            return usage(if config.is_decoder {
                format!(
                    "the model in {} reads from left to right: it goes on with --left-to-right only",
                    folder.display()
                )
            } else {
                format!(
                    "--left-to-right: the model in {} was trained to look both ways",
                    folder.display()
                )
            });
        }
        if let Some(size) = &self.size {
            let asked = config_of(size, config.vocab_size)?;
            let dimensions = |c: &Config| {
                format!(
                    "{} layers, {} wide, {} heads, {} inner units",
                    c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.intermediate_size
                )
            };
            let (asked, has) = (dimensions(&asked), dimensions(config));
            if asked != has {
                return usage(format!(
                    "--size {size} has {asked}, but the model in {} has {has}: leave --size out",
                    folder.display()
                ));
            }
        }
        if let Some(path) = &self.vocab {
            let asked = WordPiece::from_file(path, Some(wordpiece.casing()))?;
            if asked.tokens() != wordpiece.tokens() {
                return usage(format!(
                    "--vocab {} is not the vocabulary of the model in {}: leave --vocab out",
                    path.display(),
                    folder.display()
                ));
            }
        }
        Ok(())
    }

    /// The vocabulary: given, left by the run that is continued, or trained.
    fn wordpiece(&self, continues: bool) -> Result<WordPiece> {
        let casing = if self.cased { Casing::Cased } else { Casing::Uncased };
        match &self.vocab {
            Some(path) => WordPiece::from_file(path, self.cased.then_some(Casing::Cased)),
            None if continues => WordPiece::from_file(&self.run.out, None),
            None => {
                let default = if self.run.text.is_empty() { 2000 } else { 8000 };
                let size = self.vocab_size.unwrap_or(default);
                note!("training a vocabulary of up to {size} pieces");
                let texts = paragraphs(&self.run.text)?.map(|p| p.map(|p| p.text));
                WordPiece::train(texts, size, casing)
            }
        }
    }

    /// The configuration, but for what the vocabulary decides.
    fn config(&self) -> Result<Config> {
        let size = self.size.as_deref().unwrap_or("tiny");
        let mut config = match is_file(size) {
            true => config_of(size, 0)?,
            false => new_config(size.parse()?),
        };
        // Known once the vocabulary is.
        config.vocab_size = 0;
        if let Some(deviation) = self.initializer_range {
            config.initializer_range = deviation;
        }
        config.is_decoder = self.left_to_right;
        Ok(config)
    }
}
