//! Pre-trains a tiny BERT on your own text: `cargo run --release --example pretrain -- book.txt OUT [STEPS]`

use cloze::model::Size;
use cloze::train::Pretraining;

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [text, out, steps @ ..] = &arguments[..] else {
        return Err(cloze::Error::Usage("usage: pretrain TEXT OUT [STEPS]".into()));
    };
    let steps = steps.first().and_then(|steps| steps.parse().ok()).unwrap_or(2000);

    let mut run = Pretraining::builder().text([text]).size(Size::Tiny).steps(steps).build()?;
    let held_out = run.run(|progress| println!("{progress}"))?;
    run.save(out)?;
    let filled = 100.0 * held_out.mlm_accuracy;
    println!("the model is in {out}; it fills {filled:.1} % of the blanks in held-out text");
    Ok(())
}
