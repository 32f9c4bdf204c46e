//! Fine-tunes a classifier on your own CSV, TSV or JSONL file:
//! `cargo run --release --example finetune_csv -- text,label train.csv dev.csv OUT [MODEL]`

use cloze::tasks;
use cloze::train::Finetuning;

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [columns, train, dev, out, model @ ..] = &arguments[..] else {
        let usage = "usage: finetune_csv COLUMNS TRAIN DEV OUT [MODEL]";
        return Err(cloze::Error::Usage(usage.into()));
    };
    let model = model.first().map_or("lessons/data/cloze-tiny", String::as_str);

    let task = tasks::your_own(columns, train)?;
    let mut run = Finetuning::builder(task, model)
        .train(train)
        .dev(dev)
        // cloze-tiny is small: it learns best at this rate. For BERT base, 2e-5 to 5e-5 suit.
        .learning_rate(1e-3)
        .build()?;
    let scores = run.run(|progress| println!("{progress}"))?;
    run.save(out)?;
    println!("the model is in {out}; accuracy {}", scores["accuracy"]);
    Ok(())
}
