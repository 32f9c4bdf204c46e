//! Finds the sentence that follows another best:
//! `cargo run --release --example next_sentence -- cloze-small "She opened the door." "It was dark." "Add an egg."`

use cloze::NextSentence;

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, first, others @ ..] = &arguments[..] else {
        let usage = "usage: next_sentence MODEL SENTENCE SENTENCE..";
        return Err(cloze::Error::Usage(usage.into()));
    };
    let pairs: Vec<(&str, &str)> = others.iter().map(|b| (first.as_str(), b.as_str())).collect();

    let probabilities = NextSentence::load(model)?.probabilities(&pairs)?;
    let mut ranked: Vec<_> = probabilities.into_iter().zip(others).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (probability, sentence) in ranked {
        println!("{:5.1} %  {sentence}", 100.0 * probability);
    }
    Ok(())
}
