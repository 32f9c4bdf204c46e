//! Sorts texts into classes with a model that was fine-tuned for it, such as by the example `finetune_csv`:
//! `cargo run --release --example classify -- MODEL "You have won a prize!"`

use cloze::TextClassifier;

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, texts @ ..] = &arguments[..] else {
        let usage = "usage: classify MODEL TEXT..";
        return Err(cloze::Error::Usage(usage.into()));
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();

    let model = TextClassifier::load(model)?;
    for (text, prediction) in texts.iter().zip(model.predict(&texts)?) {
        println!("{text}\n  {}", prediction.label);
        for (label, score) in model.labels().iter().zip(prediction.scores) {
            println!("  {:5.1} %  {label}", 100.0 * score);
        }
    }
    Ok(())
}
