//! `cloze pretrain`: from text to a trained BERT.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::data::Packing;
use crate::error::{Error, Result};
use crate::hub;
use crate::model::weights::{self, Model};
use crate::model::{Config, Layout, PRETRAINING, Part};
use crate::note;
use crate::text::{Casing, WordPiece};

use super::checks::positive;
use super::memory;
use super::model::{config_of, is_file, wordpiece_of};
use super::pretraining::{PAPER_WIDTH, RunArgs, Start, learning_rate};
use super::records;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json [default: tiny]
    #[arg(long, value_name = "SIZE|CONFIG")]
    size: Option<String>,
    /// vocab.txt, tokenizer.json or a model folder; without, a vocabulary is trained from the text
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Entries of the vocabulary that is trained where none is given [default: 8000; without
    /// --text 2000]
    #[arg(long, value_name = "N", conflicts_with_all = ["vocab", "init"])]
    vocab_size: Option<usize>,
    /// Keep case and accents
    #[arg(long, conflicts_with = "init")]
    cased: bool,
    /// Go on from the weights of this model folder, or of a model on the Hub, with its configuration and
    /// vocabulary
    #[arg(long, value_name = "DIR|NAME")]
    init: Option<PathBuf>,
    /// Standard deviation of the initial weights [default: 0.02 from 768 wide on, 0.9 / sqrt(H) for
    /// narrower models, as a configuration file says]
    #[arg(long, value_name = "SIGMA", conflicts_with = "init")]
    initializer_range: Option<f64>,
    /// No pairs and no next-sentence prediction: one segment of text, as in RoBERTa
    #[arg(long)]
    no_nsp: bool,
    /// Predict every next word from those before it in place of masked ones, without pairs: the
    /// paper's ablation. What is trained from such a model reads from left to right too
    #[arg(long)]
    left_to_right: bool,
    /// Without pairs: full sentences go on in the next document after a [SEP] where there is room;
    /// document ends with its document
    #[arg(long, value_enum, value_name = "HOW")]
    sentences: Option<Sentences>,
}

/// How text without pairs is cut into sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sentences {
    Full,
    Document,
}

/// Longest sequence of the first phase of narrow models.
const FIRST_SEQ: usize = 40;
/// A model that was trained before goes on at this share of a new one's learning rate
/// (google-research/bert's README: 2e-5 in place of 1e-4).
const GOING_ON: f64 = 0.2;

pub fn run(args: Args) -> Result<()> {
    args.check()?;
    let folder = args.init.as_deref().map(hub::folder_of).transpose()?;
    let begun = args.run.begin(folder.as_deref())?;
    let start = match &folder {
        Some(folder) => args.continued(folder)?,
        None => args.afresh(begun.continues())?,
    };
    args.run.train(begun, start)
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

    /// Whether the model learns to tell which sentences follow each other.
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

    /// What the model is made of.
    fn parts(&self) -> &'static [Part] {
        if self.pairs() {
            &PRETRAINING
        } else {
            &[Part::Encoder, Part::MaskedLm]
        }
    }

    /// A new model.
    fn afresh(&self, continues: bool) -> Result<Start> {
        let mut config = self.config()?;
        let narrow = config.hidden_size < PAPER_WIDTH;
        let first_seq = narrow.then_some(FIRST_SEQ);
        // Before the text is read for a vocabulary.
        self.run.fits(&config, first_seq)?;
        // What the vocabulary adds is known with it.
        config.vocab_size = 0;
        memory::parameters_fit(&Layout::new(&config, self.parts()))?;
        let wordpiece = self.wordpiece(continues)?;
        config.vocab_size = wordpiece.vocab_size();
        config.pad_token_id = wordpiece.special().pad;
        let layout = Layout::new(&config, self.parts());
        memory::parameters_fit(&layout)?;
        Ok(Start {
            origin: "random weights".into(),
            values: layout.initialise(self.run.seed),
            layout,
            wordpiece,
            packing: self.packing(),
            lr: learning_rate(&config),
            first_seq,
            teacher: None,
            base: None,
            config,
        })
    }

    /// A model that was trained before.
    fn continued(&self, folder: &Path) -> Result<Start> {
        let mut model = Model::read(folder, self.parts(), Some(self.run.seed))?;
        model.config.clear_labels();
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
        Ok(Start {
            origin: format!("the weights of {name}"),
            base: Some(name),
            lr: GOING_ON * learning_rate(&model.config),
            config: model.config,
            layout: model.layout,
            values: model.values,
            wordpiece,
            packing: self.packing(),
            // Where to look has been learned.
            first_seq: None,
            teacher: None,
        })
    }

    /// Refuses a size or a vocabulary that is not that of the model in `folder`.
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
        let casing = if self.cased {
            Casing::Cased
        } else {
            Casing::Uncased
        };
        match &self.vocab {
            Some(path) => WordPiece::from_file(path, self.cased.then_some(Casing::Cased)),
            None if continues => WordPiece::from_file(&self.run.out, None),
            None => {
                let default = if self.run.text.is_empty() { 2000 } else { 8000 };
                let size = self.vocab_size.unwrap_or(default);
                note!("training a vocabulary of up to {size} pieces");
                let texts = self.run.paragraphs()?.map(|p| p.map(|p| p.text));
                WordPiece::train(texts, size, casing)
            }
        }
    }

    /// The configuration, but for what the vocabulary decides.
    fn config(&self) -> Result<Config> {
        let size = self.size.as_deref().unwrap_or("tiny");
        let mut config = config_of(size, 0)?;
        if !is_file(size) && config.hidden_size < PAPER_WIDTH {
            // 0.02 suits the base model. Narrower ones hardly move for hundreds of steps with it:
            // 800 steps of a tiny one filled 46 % of held-out blanks with 0.08, and 27 % with 0.02.
            config.initializer_range = 0.9 / (config.hidden_size as f64).sqrt();
            // Dropout slows learning; without it the held-out loss of a tiny model on one novel was
            // still falling after 9,600 steps.
            (
                config.hidden_dropout_prob,
                config.attention_probs_dropout_prob,
            ) = (0.0, 0.0);
        }
        if let Some(deviation) = self.initializer_range {
            config.initializer_range = deviation;
        }
        config.is_decoder = self.left_to_right;
        Ok(config)
    }
}
