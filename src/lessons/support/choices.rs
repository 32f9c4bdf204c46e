//! Helpers of the lesson on multiple choice, 16: questions as model inputs, a count of right answers, and fine-tuning
//! that records it.

use crate::data::choices::{CHOICES, Question};
use crate::data::{Examples, Sequences, Targets};
use crate::engine::{CpuEngine, TaskEngine, inference};
use crate::error::{Error, Result};
use crate::eval::best;
use crate::model::weights::Model;
use crate::text::WordPiece;
use crate::train::finetune::{Settings, TaskReport, TaskStep};
use crate::train::{Finetuner, Stop};

/// Longest sequence of the lesson's data, in tokens.
const MAX_LEN: usize = 80;

/// Tokenises questions: four sequences each, and the index of the right one.
///
/// # Errors
/// If a text can't be tokenised.
pub fn examples(questions: &[Question], tokenizer: &WordPiece) -> Result<Examples> {
    let pairs: Vec<(String, String)> = questions.iter().flat_map(Question::pairs).collect();
    let texts: Vec<(&str, Option<&str>)> =
        pairs.iter().map(|(a, b)| (a.as_str(), Some(b.as_str()))).collect();
    Ok(Examples {
        sequences: Sequences::tokenise(tokenizer, &texts, MAX_LEN)?.with_choices(CHOICES),
        targets: Targets::Choices(questions.iter().filter_map(|q| q.right).collect()),
    })
}

/// Returns the words of a text in lower case. A word is a run of letters and digits.
pub fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Counts the questions whose right ending gets the largest score; of equal scores the first counts.
pub fn right_by(questions: &[Question], score: impl Fn(&Question, &str) -> f64) -> usize {
    let hit = |question: &&Question| {
        let scores = question.endings.each_ref().map(|ending| score(question, ending) as f32);
        question.right == Some(best(&scores))
    };
    questions.iter().filter(hit).count()
}

/// Counts the questions that a model answers right.
///
/// # Errors
/// If the questions have no answers, or the model gives a score that is not a finite number.
pub fn right_answers(engine: &mut dyn TaskEngine, data: &Examples) -> Result<usize> {
    let Targets::Choices(right) = &data.targets else {
        return Err(Error::Failed("these questions have no answers".into()));
    };
    let logits = inference::logits(engine, &data.sequences)?;
    Ok((0..data.len()).filter(|&i| best(logits.of(i)) == right[i]).count())
}

/// The results of a run of [`fine_tune`].
#[derive(Debug, Clone)]
pub struct ChoiceRun {
    /// Accuracy on the training questions in percent after each epoch: (epoch, accuracy).
    pub train: Vec<(f64, f64)>,
    /// The same on the held-out questions.
    pub held_out: Vec<(f64, f64)>,
    /// The held-out questions that the model answers right at the end.
    pub right: usize,
    /// The trained parameters.
    pub parameters: Vec<f32>,
}

/// Measures after each epoch on training and held-out questions.
struct Watch<'a> {
    sets: [&'a Examples; 2],
    curves: [Vec<(f64, f64)>; 2],
    right: usize,
}

impl TaskReport for Watch<'_> {
    fn step(&mut self, _: &TaskStep) {}

    fn skipped(&mut self, _: u64, _: &str) {}

    fn epoch(&mut self, epoch: u32, _: u64, engine: &mut dyn TaskEngine) -> Result<()> {
        for (data, curve) in self.sets.iter().zip(&mut self.curves) {
            self.right = right_answers(engine, data)?;
            curve.push((f64::from(epoch), 100.0 * self.right as f64 / data.len() as f64));
        }
        Ok(())
    }
}

/// Fine-tunes a model on questions, and measures it after each epoch.
///
/// # Errors
/// If the questions have no answers, or the training diverges.
pub fn fine_tune(
    model: &Model,
    train: &Examples,
    held_out: &Examples,
    recipe: Settings,
) -> Result<ChoiceRun> {
    let engine = CpuEngine::new(&model.config, &model.layout, model.values.clone())?;
    let mut trainer = Finetuner::new(Box::new(engine), train, recipe)?;
    let mut watch = Watch { sets: [train, held_out], curves: Default::default(), right: 0 };
    trainer.run(None, &mut watch, &Stop::default())?;
    let [train, held_out] = watch.curves;
    Ok(ChoiceRun {
        train,
        held_out,
        right: watch.right,
        parameters: trainer.engine().parameters()?,
    })
}

/// Marks each question's right ending with the word "indeed" at its end.
pub fn marked(questions: &[Question]) -> Vec<Question> {
    let mut all = questions.to_vec();
    for question in &mut all {
        if let Some(right) = question.right {
            let ending = &mut question.endings[right as usize];
            *ending = format!("{} indeed.", ending.trim_end_matches('.'));
        }
    }
    all
}

/// Replaces each right ending by its question's context, and each wrong one by the context of another question.
pub fn echoed(questions: &[Question]) -> Vec<Question> {
    let mut all = questions.to_vec();
    for (number, question) in all.iter_mut().enumerate() {
        for (place, ending) in question.endings.iter_mut().enumerate() {
            let other = match question.right == Some(place as u32) {
                true => number,
                false => (number + 7 * (place + 1)) % questions.len(),
            };
            *ending = questions[other].context.clone();
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::bad::BadRows;
    use crate::data::bundled;
    use crate::data::choices::read_swag;
    use crate::lessons::support::variants;
    use crate::model::Part;
    use crate::tasks::{self, Labels, Options, Role};

    fn questions() -> Vec<Question> {
        let file = bundled::folder("endings").unwrap().join("val.csv");
        read_swag(&file, &mut BadRows::refused()).unwrap()
    }

    fn tokenizer() -> WordPiece {
        let folder = bundled::folder(bundled::TINY).unwrap();
        WordPiece::from_file(&WordPiece::file_in(&folder), None).unwrap()
    }

    #[test]
    fn questions_become_four_sequences_and_a_label_as_in_the_crate_s_task() {
        let (questions, tokenizer) = (questions(), tokenizer());
        let examples = examples(&questions, &tokenizer).unwrap();
        let file = bundled::folder("endings").unwrap().join("val.csv");
        let task = tasks::open("swag", &Options::default(), Labels::Training(&file)).unwrap();
        let read = variants::read(&*task, &file, Role::Dev, &tokenizer).unwrap();
        assert_eq!(examples.checksum(), read.examples().checksum());
    }

    #[test]
    fn words_are_runs_of_letters_and_digits_in_lower_case() {
        assert_eq!(words("The children's 2nd try."), ["the", "children", "s", "2nd", "try"]);
        assert!(words("...").is_empty());
    }

    #[test]
    fn the_first_of_the_best_endings_is_chosen() {
        let questions = questions();
        let first = questions.iter().filter(|q| q.right == Some(0)).count();
        assert_eq!(right_by(&questions, |_, _| 0.0), first);
        let knows = |q: &Question, ending: &str| {
            f64::from(u8::from(q.right.is_some_and(|right| q.endings[right as usize] == ending)))
        };
        assert_eq!(right_by(&questions, knows), questions.len());
    }

    #[test]
    fn changed_questions_keep_their_answers() {
        let questions = questions();
        for (number, question) in marked(&questions).iter().enumerate() {
            let marks: Vec<bool> =
                question.endings.iter().map(|e| e.ends_with(" indeed.")).collect();
            let right = questions[number].right.unwrap() as usize;
            assert_eq!(marks.iter().position(|&mark| mark), Some(right));
            assert_eq!(marks.iter().filter(|&&mark| mark).count(), 1);
        }
        for question in echoed(&questions) {
            for (place, ending) in question.endings.iter().enumerate() {
                assert_eq!(*ending == question.context, question.right == Some(place as u32));
            }
        }
    }

    #[test]
    fn a_run_measures_after_each_epoch() {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let model = Model::read(&folder, &Part::MultipleChoice.with_encoder(), Some(1)).unwrap();
        let data = examples(&questions()[..4], &tokenizer()).unwrap();
        let recipe = Settings { epochs: 2, ..Settings::default() };
        let run = fine_tune(&model, &data, &data, recipe).unwrap();
        assert_eq!((run.train.len(), &run.train), (2, &run.held_out));
        assert_eq!(run.train.last().unwrap().1, 25.0 * run.right as f64);
        assert_eq!(run.parameters.len(), model.values.len());
        let unlabelled = Examples { targets: Targets::Unknown, ..data.clone() };
        let mut engine =
            CpuEngine::new(&model.config, &model.layout, model.values.clone()).unwrap();
        assert!(right_answers(&mut engine, &unlabelled).is_err());
    }
}
