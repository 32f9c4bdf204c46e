//! Fills the blanks in texts:
//! `cargo run --release --example fill_mask -- cloze-small "The baker sells [MASK]."`

use cloze::FillMask;

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, texts @ ..] = &arguments[..] else {
        let usage = "usage: fill_mask MODEL TEXT..";
        return Err(cloze::Error::Usage(usage.into()));
    };
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();

    let model = FillMask::load(model)?;
    for (text, blanks) in texts.iter().zip(model.top(&texts, 3)?) {
        println!("{text}");
        for (blank, guesses) in (1..).zip(blanks) {
            for guess in guesses {
                let percent = 100.0 * guess.probability;
                println!("  blank {blank}: {percent:5.1} %  {}", guess.token);
            }
        }
    }
    Ok(())
}
