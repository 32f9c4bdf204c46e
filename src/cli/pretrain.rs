//! `cloze pretrain`: trains a BERT on text.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cli::shared::checks::{positive, refuse};
use crate::cli::shared::pretraining::{Begun, Origin, RunArgs, Summary};
use crate::cli::shared::size::{config_of, is_file};
use crate::cli::shared::{memory, records};
use crate::data::Packing;
use crate::error::Result;
use crate::hub;
use crate::model::weights::{self, Model, wordpiece_of};
use crate::model::{Config, Layout, Size};
use crate::note;
use crate::text::{Casing, WordPiece};
use crate::train::Recipe;
use crate::train::pretraining::{Start, parts, usual_pieces, vocabulary_of};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// How a new model is trained where no option says otherwise [default: hour for models narrower than
    /// 768, paper for the others]
    #[arg(long, value_enum, conflicts_with = "init")]
    recipe: Option<Recipe>,
    /// tiny, mini, small, medium, minilm, base, large, or the path of a config.json [default: tiny]
    #[arg(long, value_name = "SIZE|CONFIG")]
    size: Option<String>,
    /// vocab.txt, tokenizer.json or a model folder [default: a vocabulary trained from the text]
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    vocab: Option<PathBuf>,
    /// Size of the vocabulary that is trained if none is given [default: 8000; without --text 2000]
    #[arg(long, value_name = "N", conflicts_with_all = ["vocab", "init", "store"])]
    vocab_size: Option<usize>,
    /// Keep case and accents
    #[arg(long, conflicts_with_all = ["init", "store"])]
    cased: bool,
    /// Start from the weights of this model folder, or of a model on the Hub, with its configuration and
    /// vocabulary
    #[arg(long, value_name = "DIR|NAME")]
    init: Option<PathBuf>,
    /// Standard deviation of the initial weights [default: that of the configuration file or of the
    /// recipe]
    #[arg(long, value_name = "SIGMA", conflicts_with = "init")]
    initializer_range: Option<f64>,
    /// No pairs and no next-sentence prediction: one segment of text, as in RoBERTa
    #[arg(long)]
    no_nsp: bool,
    /// Predict every next word from those before it instead of masked words, without pairs: the paper's
    /// ablation. Models that are trained from such a model read from left to right too
    #[arg(long)]
    left_to_right: bool,
    /// How text without pairs is cut: full sequences continue in the next document after a [SEP],
    /// those of document end with their document
    #[arg(long, value_enum, value_name = "HOW")]
    sentences: Option<Sentences>,
}

/// How text without pairs is cut into sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sentences {
    Full,
    Document,
}

pub(crate) fn run(args: Args) -> Result<()> {
    train(&args)?.print(&args.run)
}

/// Trains the model, measures it, and writes it.
pub(crate) fn train(args: &Args) -> Result<Summary> {
    args.check()?;
    let folder = args.init.as_deref().map(hub::folder_of).transpose()?;
    let begun = args.run.begin(folder.as_deref())?;
    let (start, origin) = match &folder {
        Some(folder) => args.continued(folder)?,
        None => args.afresh(&begun)?,
    };
    args.run.train(begun, start, &origin)
}

impl Args {
    /// Checks the values of the options.
    pub(crate) fn check(&self) -> Result<()> {
        self.run.check()?;
        positive("--initializer-range", self.initializer_range.unwrap_or(1.0))?;
        if self.sentences.is_some() && self.pairs() {
            refuse!("--sentences says how text without pairs is cut: it needs --no-nsp");
        }
        if self.left_to_right && self.run.whole_word {
            refuse!("--whole-word: nothing is masked with --left-to-right");
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
    fn afresh(&self, begun: &Begun) -> Result<(Start, Origin)> {
        let mut config = self.config()?;
        if begun.state.is_some() {
            config.initializer_range = self.initial_deviation()?;
        }
        let recipe = self.recipe.unwrap_or(Recipe::of_width(config.hidden_size));
        // Before the text is read to train a vocabulary.
        let first_seq = recipe.hyperparameters(config.hidden_size).first_seq;
        self.run.fits(&config, first_seq)?;
        let packing = self.packing();
        config.check_parts(parts(packing))?;
        memory::parameters_fit(&Layout::new(&config, parts(packing)))?;
        let wordpiece = self.wordpiece(begun)?;
        config.vocab_size = wordpiece.vocab_size();
        memory::parameters_fit(&Layout::new(&config, parts(packing)))?;
        let origin = Origin { words: "random weights".into(), base: None };
        let start = Start::new_model(config, wordpiece, packing, recipe, self.run.seed);
        Ok((start, origin))
    }

    /// Returns the model in `folder`.
    fn continued(&self, folder: &Path) -> Result<(Start, Origin)> {
        let packing = self.packing();
        let model = Model::read(folder, parts(packing), Some(self.run.seed))?;
        let wordpiece = wordpiece_of(folder, &model)?;
        self.agrees(folder, &model.config, &wordpiece)?;
        for &part in &model.fresh {
            let (part, folder) =
                (weights::describe(model.config.model_type, part), folder.display());
            note!("the {part} starts from random weights: {folder} has none");
        }
        let name = records::name_of_model(folder);
        let origin = Origin { words: format!("the weights of {name}"), base: Some(name) };
        Ok((Start::trained(model, wordpiece, packing), origin))
    }

    /// Returns an error if the options name another size, vocabulary or direction than that of the model in
    /// `folder`.
    fn agrees(&self, folder: &Path, config: &Config, wordpiece: &WordPiece) -> Result<()> {
        let model = format!("the model in {}", folder.display());
        match (config.is_decoder, self.left_to_right) {
            (true, false) => {
                refuse!("{model} reads from left to right: add --left-to-right")
            }
            (false, true) => refuse!("--left-to-right: {model} was trained to read both ways"),
            _ => {}
        }
        if let Some(size) = &self.size {
            let dimensions = |c: &Config| {
                format!(
                    "{} layers, hidden size {}, {} heads, intermediate size {}",
                    c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.intermediate_size
                )
            };
            let asked = dimensions(&config_of(size, config.vocab_size)?);
            let has = dimensions(config);
            if asked != has {
                refuse!("--size {size} has {asked}, but {model} has {has}: omit --size");
            }
        }
        if let Some(path) = &self.vocab {
            let asked = WordPiece::from_file(path, Some(wordpiece.casing()))?;
            if asked.tokens() != wordpiece.tokens() {
                let path = path.display();
                refuse!("--vocab {path} is not the vocabulary of {model}: omit --vocab");
            }
        }
        Ok(())
    }

    /// Returns the vocabulary: the store's, the given one, that of the run that is continued, or a new one.
    fn wordpiece(&self, begun: &Begun) -> Result<WordPiece> {
        if let Some((_, wordpiece)) = &begun.store {
            return Ok(wordpiece.clone());
        }
        let casing = self.cased.then_some(Casing::Cased);
        match &self.vocab {
            Some(path) => WordPiece::from_file(path, casing),
            None if begun.state.is_some() => {
                let wordpiece = WordPiece::from_file(&self.run.out, None)?;
                self.agrees_on_vocabulary(&wordpiece)?;
                Ok(wordpiece)
            }
            None => {
                let size = self.vocab_size.unwrap_or(usual_pieces(!self.run.text.is_empty()));
                note!("training a vocabulary of up to {size} pieces");
                vocabulary_of(&self.run.text, size, casing.unwrap_or(Casing::Uncased))
            }
        }
    }

    /// Returns an error if the options ask for another vocabulary than that of the run that is continued.
    fn agrees_on_vocabulary(&self, wordpiece: &WordPiece) -> Result<()> {
        let (out, has, casing) =
            (self.run.out.display(), wordpiece.vocab_size(), wordpiece.casing());
        if self.cased && casing != Casing::Cased {
            refuse!("--cased: the run in {out} has an uncased vocabulary: omit --cased");
        }
        let Some(size) = self.vocab_size else {
            return Ok(());
        };
        // A short text gives fewer pieces than were asked for.
        let same = has == size
            || has < size
                && vocabulary_of(&self.run.text, size, casing)?.tokens() == wordpiece.tokens();
        if !same {
            refuse!("--vocab-size {size}: the run in {out} has {has} pieces: omit --vocab-size");
        }
        Ok(())
    }

    /// Returns the standard deviation of the initial weights of the run that is continued.
    ///
    /// # Errors
    /// If another one was given.
    fn initial_deviation(&self) -> Result<f64> {
        let was = Config::read(&self.run.out.join(weights::CONFIG))?.initializer_range;
        if let Some(now) = self.initializer_range.filter(|&now| now != was) {
            let out = self.run.out.display();
            refuse!(
                "--initializer-range {now}: the run in {out} began with {was}: omit --initializer-range"
            );
        }
        Ok(was)
    }

    /// Returns the configuration without the size of the vocabulary.
    fn config(&self) -> Result<Config> {
        let size = self.size.as_deref().unwrap_or("tiny");
        let mut config = match is_file(size) {
            true => config_of(size, 0)?,
            false => {
                let size: Size = size.parse()?;
                let usual = Recipe::of_width(size.config(0).hidden_size);
                self.recipe.unwrap_or(usual).config(size)
            }
        };
        config.vocab_size = 0;
        if let Some(deviation) = self.initializer_range {
            config.initializer_range = deviation;
        }
        config.is_decoder = self.left_to_right;
        Ok(config)
    }
}
