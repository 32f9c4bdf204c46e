//! `cloze distill`: trains a smaller model to imitate a trained one.

use std::path::PathBuf;

use crate::cli::shared::checks::{from_zero, positive, refuse};
use crate::cli::shared::pretraining::{Origin, RunArgs};
use crate::cli::shared::records;
use crate::data::Packing;
use crate::engine::Distillation;
use crate::error::{Error, Result};
use crate::hub;
use crate::model::weights::{Model, wordpiece_of};
use crate::model::{Layout, Part};
use crate::note;
use crate::train::Teacher;
use crate::train::distill::student_of;
use crate::train::pretraining::Start;
use crate::train::recipe::Hyperparameters;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Folder of a model with a masked-LM head, or the name of one on the Hub; the student gets its
    /// vocabulary, width and settings
    #[arg(long, value_name = "DIR|NAME")]
    teacher: PathBuf,
    /// How many of the teacher's layers the student starts from, spread evenly; or which, counted
    /// from 0, as in 0,2,4,7,9,11 [default: every other one, from the first on]
    #[arg(long, value_name = "N|LIST")]
    layers: Option<String>,
    /// Number that both models' logits are divided by before they are compared
    #[arg(long, default_value_t = Distillation::default().temperature, value_name = "T")]
    temperature: f64,
    /// Weight of the divergence from the teacher's distribution at masked tokens
    #[arg(long, default_value_t = Distillation::default().ce, value_name = "WEIGHT")]
    alpha_ce: f64,
    /// Weight of the masked-LM loss
    #[arg(long, default_value_t = Distillation::default().mlm, value_name = "WEIGHT")]
    alpha_mlm: f64,
    /// Weight of one minus the cosine between the last hidden states
    #[arg(long, default_value_t = Distillation::default().cos, value_name = "WEIGHT")]
    alpha_cos: f64,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let recipe = args.recipe()?;
    let folder = hub::folder_of(&args.teacher)?;
    let begun = args.run.begin(Some(&folder))?;
    let parts = [Part::Encoder, Part::MaskedLm];
    let model = Model::read(&folder, &parts, None)?;
    if model.config.is_decoder {
        let message = "reads from left to right (is_decoder in its config.json), but a teacher must fill \
                       blanks";
        return Err(Error::file(&folder, message));
    }
    let wordpiece = wordpiece_of(&folder, &model)?;
    let (theirs, their_layout, their_values) = (model.config, model.layout, model.values);
    let layers = chosen(args.layers.as_deref(), theirs.num_hidden_layers)?;
    let list: Vec<String> = layers.iter().map(usize::to_string).collect();
    let (list, count) = (list.join(", "), theirs.num_hidden_layers);
    note!("the student starts from layers {list} of the teacher's {count}");
    let mut config = theirs.clone();
    config.clear_task();
    config.num_hidden_layers = layers.len();
    let layout = Layout::new(&config, &parts);
    let values = student_of((&their_layout, &their_values), &layout, &layers)?;
    let setup = args.run.training.engine.setup()?;
    let teacher = setup.engine(&theirs, &their_layout, their_values)?;
    let name = records::name_of_model(&folder);
    let origin = Origin { words: format!("layers {list} of the teacher {name}"), base: Some(name) };
    let start = Start {
        hyperparameters: Hyperparameters::of_student(config.hidden_size),
        config,
        layout,
        values,
        wordpiece,
        packing: Packing::Full,
        of_new_model: false,
        teacher: Some(Teacher::new(teacher, recipe)?),
    };
    args.run.train(begun, start, &origin)?.print(&args.run)
}

impl Args {
    fn recipe(&self) -> Result<Distillation> {
        positive("--temperature", self.temperature)?;
        let weights = [
            ("--alpha-ce", self.alpha_ce),
            ("--alpha-mlm", self.alpha_mlm),
            ("--alpha-cos", self.alpha_cos),
        ];
        for (name, weight) in weights {
            from_zero(name, weight)?;
        }
        if weights.iter().all(|(_, weight)| *weight == 0.0) {
            refuse!("--alpha-ce, --alpha-mlm and --alpha-cos are all 0: nothing would be learned");
        }
        Ok(Distillation {
            temperature: self.temperature,
            ce: self.alpha_ce,
            mlm: self.alpha_mlm,
            cos: self.alpha_cos,
        })
    }
}

/// Returns the teacher's layers, of `count`, that the student starts from.
fn chosen(asked: Option<&str>, count: usize) -> Result<Vec<usize>> {
    let Some(asked) = asked else {
        return Ok((0..count).step_by(2).collect());
    };
    let numbers = asked.split(',').map(|number| number.trim().parse());
    let numbers: std::result::Result<Vec<usize>, _> = numbers.collect();
    match numbers.as_deref() {
        Err(_) => refuse!("--layers {asked}: a number of layers or a list such as 0,2,4 is needed"),
        Ok([wanted]) if (1..=count).contains(wanted) => {
            Ok((0..*wanted).map(|layer| layer * count / wanted).collect())
        }
        Ok([_]) => refuse!("--layers {asked}: 1 to {count} are needed: the teacher has {count}"),
        Ok(list) if list.is_sorted_by(|a, b| a < b) && list.iter().all(|&layer| layer < count) => {
            Ok(list.to_vec())
        }
        Ok(_) => {
            let last = count - 1;
            refuse!("--layers {asked}: layers from 0 to {last} are needed, in rising order")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_every_other_one_or_as_asked_for() {
        let of = |asked| chosen(asked, 12).unwrap();
        assert_eq!(of(None), [0, 2, 4, 6, 8, 10]);
        assert_eq!(of(Some("6")), of(None));
        assert_eq!(of(Some("3")), [0, 4, 8]);
        assert_eq!(of(Some("12")), (0..12).collect::<Vec<_>>());
        assert_eq!(of(Some("0,2,4,7,9,11")), [0, 2, 4, 7, 9, 11]);
        assert_eq!(chosen(None, 5).unwrap(), [0, 2, 4]);
        for wrong in ["0", "13", "0,12", "4,2", "1,1", "two", ""] {
            let message = chosen(Some(wrong), 12).unwrap_err().to_string();
            assert!(message.contains("--layers"), "{message}");
        }
    }
}
