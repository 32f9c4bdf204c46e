//! Finds names in texts with a model that was fine-tuned for it, as `cloze finetune ner` makes one:
//! `cargo run --release --example tag -- MODEL "Alma Reyes has left for Zürich."`

use cloze::TokenClassifier;

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, texts @ ..] = &arguments[..] else {
        return Err(cloze::Error::Usage("usage: tag MODEL TEXT..".into()));
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();

    let model = TokenClassifier::load(model)?;
    for (text, entities) in texts.iter().zip(model.entities(&texts)?) {
        println!("{text}");
        for entity in entities {
            let (start, end) = (entity.start, entity.end);
            println!("  {start:3}..{end:<3} {:8} {}", entity.label, entity.text);
        }
    }
    Ok(())
}
