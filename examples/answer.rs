//! Answers questions from a text with a model that was fine-tuned for it, as `cloze finetune squad2` makes one:
//! `cargo run --release --example answer -- MODEL notes.txt "Who lights the oven?"`

use cloze::{Error, QuestionAnswerer};

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, file, questions @ ..] = &arguments[..] else {
        let usage = "usage: answer MODEL FILE QUESTION..";
        return Err(Error::Usage(usage.into()));
    };
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, e))?;
    let pairs: Vec<(&str, &str)> = questions.iter().map(|q| (q.as_str(), text.as_str())).collect();

    let answers = QuestionAnswerer::load(model)?.answer(&pairs)?;
    for (question, answer) in questions.iter().zip(answers) {
        match answer.text.as_str() {
            "" => println!("{question}\n  the text does not say"),
            text => println!("{question}\n  {text} ({:.1} %)", 100.0 * answer.score),
        }
    }
    Ok(())
}
