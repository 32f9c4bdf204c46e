//! The choices of the learner: options of `cloze pretrain` and `cloze finetune` in quotes, the ablations, and the
//! command lines of all runs that follow from them.

use std::collections::HashSet;

use clap::{Args, Parser};
use serde::{Deserialize, Serialize};

use crate::cli::shared::checks::refuse;
use crate::cli::{finetune, pretrain};
use crate::error::{Error, Result};
use crate::lessons::data;

/// Options of `cloze pretrain` that are the same for all runs, and why they can't be chosen.
const SHARED: [(&[&str], &str); 3] = [
    (
        &["--text", "--store", "--held-out"],
        "all runs read the text of `cloze lessons capstone --text`",
    ),
    (
        &["--vocab", "--vocab-size", "--cased", "--init"],
        "all runs share one vocabulary and start from random weights, so that their scores can be compared",
    ),
    (
        &[
            "--out",
            "--steps",
            "--save-every",
            "--eval-every",
            "--eval-sequences",
            "--resume",
            "--overwrite",
            "--json",
        ],
        "the capstone sets it for every run",
    ),
];
/// The same for `cloze finetune`.
const SHARED_BY_TASK: [(&[&str], &str); 2] = [
    (&["--from-scratch"], "every model starts from what it learned in pre-training"),
    (
        &["--model", "--out", "--resume", "--overwrite", "--json"],
        "the capstone sets it for every run",
    ),
];
/// What the models are fine-tuned for if no task is given, in words.
pub(super) const USUAL_TASK: &str = "the spam filter of lesson 12, with three seeds";
/// How many options are left out in turn if no ablation is given.
const USUAL: usize = 3;

/// A run of the capstone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Choice {
    /// The name of its folder.
    pub(super) name: String,
    /// What it is, for the report.
    pub(super) title: String,
    /// Its options of `cloze pretrain`.
    pub(super) words: Vec<String>,
}

/// The options of another command.
#[derive(Parser)]
#[command(no_binary_name = true, args_override_self = true, disable_help_flag = true)]
struct Line<A: Args> {
    #[command(flatten)]
    args: A,
}

/// Reads the options of a command. `from` is the option of this command that they come from.
pub(super) fn parse<A: Args>(from: &str, words: &[String]) -> Result<A> {
    let line = Line::<A>::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        Error::Usage(format!("{from}: {}", first.trim_start_matches("error: ")))
    })?;
    Ok(line.args)
}

/// Splits a text into words as a shell does.
fn split(from: &str, text: &str) -> Result<Vec<String>> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(words),
        Some(_) => refuse!("{from} is empty: options of another command are needed"),
        None => refuse!("{from} {text:?}: a quote is not closed"),
    }
}

/// Returns the name of an option without its value.
fn name(word: &str) -> &str {
    word.split('=').next().unwrap_or(word)
}

fn check_shared(from: &str, words: &[String], shared: &[(&[&str], &str)]) -> Result<()> {
    for word in words {
        if let Some((_, why)) = shared.iter().find(|(names, _)| names.contains(&name(word))) {
            refuse!("{from}: {} can't be chosen: {why}", name(word));
        }
    }
    Ok(())
}

/// Puts the option that a message about its value comes from before the message.
fn named(from: &str, checked: Result<()>) -> Result<()> {
    checked.map_err(|error| Error::Usage(format!("{from}: {error}")))
}

/// Returns all runs: the learner's, the crate's defaults, and the ablations.
///
/// # Errors
/// If an option can't be chosen, or has a value that it doesn't take.
pub(super) fn choices(pretrain: &str, ablations: &[String]) -> Result<Vec<Choice>> {
    let mine = split("--pretrain", pretrain)?;
    checked("--pretrain", &mine)?;
    let choice = |name: String, title: String, words| Choice { name, title, words };
    let mut all = vec![
        choice("yours".into(), "yours".into(), mine.clone()),
        choice("crate".into(), "the crate's defaults".into(), Vec::new()),
    ];
    let usual: Vec<String>;
    let ablations = match ablations {
        [] => {
            let options = mine.iter().filter(|word| word.starts_with("--"));
            usual = options.take(USUAL).map(|word| format!("without {}", name(word))).collect();
            &usual
        }
        given => given,
    };
    let mut seen = HashSet::new();
    for (number, ablation) in (1..).zip(ablations) {
        let from = format!("--ablation {ablation:?}");
        let change = split("--ablation", ablation)?;
        let (title, words) = match &change[..] {
            [first, option] if first == "without" => {
                (format!("yours {ablation}"), without(&from, &mine, option)?)
            }
            _ => (format!("yours, {}", change.join(" ")), [mine.clone(), change.clone()].concat()),
        };
        checked(&from, &words)?;
        if !seen.insert(title.clone()) {
            refuse!("{from} is given twice");
        }
        all.push(choice(format!("ablation-{number}"), title, words));
    }
    Ok(all)
}

fn checked(from: &str, words: &[String]) -> Result<()> {
    check_shared(from, words, &SHARED)?;
    let out = ["--out".to_owned(), "model".to_owned()];
    let args = parse::<pretrain::Args>(from, &[words, &out[..]].concat())?;
    named(from, args.check())
}

/// Returns the words without an option and its values.
fn without(from: &str, words: &[String], option: &str) -> Result<Vec<String>> {
    let Some(place) = words.iter().position(|word| name(word) == option) else {
        refuse!("{from}: --pretrain has no {option}");
    };
    let values = words[place + 1..].iter().take_while(|word| !word.starts_with("--")).count();
    Ok([&words[..place], &words[place + 1 + values..]].concat())
}

/// Returns the task and its options: by default [`USUAL_TASK`]; its development set is so small that one seed would say
/// little.
///
/// # Errors
/// As [`choices`], or if the lessons' data can't be written to the cache.
pub(super) fn task(given: Option<&str>) -> Result<Vec<String>> {
    let from = "--finetune";
    let words = match given {
        Some(text) => split(from, text)?,
        None => {
            let spam = data::folder("spam")?.display().to_string();
            let usual = ["custom", "--data", &spam, "--columns", "text,label", "--seeds", "3"];
            usual.map(str::to_owned).to_vec()
        }
    };
    check_shared(from, &words, &SHARED_BY_TASK)?;
    let out = ["--out".to_owned(), "model".to_owned()];
    let args = parse::<finetune::Args>(from, &[&words[..], &out[..]].concat())?;
    named(from, args.check())?;
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pretrain: &str, ablations: &[&str]) -> Vec<(String, String)> {
        let ablations: Vec<String> = ablations.iter().map(|it| (*it).to_owned()).collect();
        let all = choices(pretrain, &ablations).unwrap().into_iter();
        all.map(|choice| (choice.title, choice.words.join(" "))).collect()
    }

    fn refused(pretrain: &str, ablations: &[&str]) -> String {
        let ablations: Vec<String> = ablations.iter().map(|it| (*it).to_owned()).collect();
        let error = choices(pretrain, &ablations).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    fn pair(title: &str, words: &str) -> (String, String) {
        (title.to_owned(), words.to_owned())
    }

    #[test]
    fn an_ablation_replaces_adds_or_leaves_out() {
        let mine = "--mask-prob 0.3 --no-nsp --lr=2e-3";
        let all = lines(mine, &["--mask-prob 0.15", "without --lr", "--whole-word"]);
        assert_eq!(
            all,
            [
                pair("yours", mine),
                pair("the crate's defaults", ""),
                pair(
                    "yours, --mask-prob 0.15",
                    "--mask-prob 0.3 --no-nsp --lr=2e-3 --mask-prob 0.15"
                ),
                pair("yours without --lr", "--mask-prob 0.3 --no-nsp"),
                pair("yours, --whole-word", "--mask-prob 0.3 --no-nsp --lr=2e-3 --whole-word"),
            ]
        );
    }

    #[test]
    fn by_default_three_options_are_left_out_in_turn() {
        let all = lines("--mask-prob 0.3 --no-nsp --lr 2e-3 --warmup 0.2", &[]);
        let ablations = [
            pair("yours without --mask-prob", "--no-nsp --lr 2e-3 --warmup 0.2"),
            pair("yours without --no-nsp", "--mask-prob 0.3 --lr 2e-3 --warmup 0.2"),
            pair("yours without --lr", "--mask-prob 0.3 --no-nsp --warmup 0.2"),
        ];
        assert_eq!(all[2..], ablations);
    }

    #[test]
    fn what_cannot_be_chosen_is_refused_with_the_reason() {
        for (mine, ablations, part) in [
            ("", &[][..], "--pretrain is empty"),
            ("--lr 'x", &[], "a quote is not closed"),
            ("--mask-prob 2", &[], "--pretrain: --mask-prob 2: a number from 0"),
            ("--masks 2", &[], "--pretrain: unexpected argument '--masks'"),
            ("--help", &[], "--pretrain: unexpected argument '--help'"),
            (
                "--vocab-size=100",
                &[],
                "--vocab-size can't be chosen: all runs share one vocabulary",
            ),
            ("--steps 5", &[], "--steps can't be chosen: the capstone sets it"),
            ("--no-nsp", &["--lr x"], "--ablation \"--lr x\": invalid value 'x'"),
            ("--no-nsp", &["without --lr"], "--pretrain has no --lr"),
            ("--no-nsp", &["--lr 1e-3", "--lr 1e-3"], "is given twice"),
            ("--no-nsp", &["--text a.txt"], "--text can't be chosen: all runs read the text"),
        ] {
            let message = refused(mine, ablations);
            assert!(message.contains(part) && !message.contains('\n'), "{message}");
        }
        for (given, part) in [
            ("no-such-task", "--finetune: there is no task \"no-such-task\""),
            ("mrpc", "--finetune: --data DIR is needed"),
            ("mrpc --data d --model m", "--model can't be chosen"),
        ] {
            let error = task(Some(given)).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
