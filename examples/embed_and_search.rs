//! Finds the lines of a file that are nearest in meaning to a query:
//! `cargo run --release --example embed_and_search -- sentence-transformers/all-MiniLM-L6-v2 notes.txt "baking bread"`

use cloze::{Embedder, Error};

fn main() -> cloze::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, file, query] = &arguments[..] else {
        let usage = "usage: embed_and_search MODEL FILE QUERY";
        return Err(Error::Usage(usage.into()));
    };
    let text = std::fs::read_to_string(file).map_err(|e| Error::io(file, e))?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();

    // Of vectors of length 1 the product is the cosine of their angle: 1 for the same direction.
    let model = Embedder::builder(model).normalize(true).load()?;
    let query = model.embed(&[query])?.remove(0);
    let cosine = |vector: Vec<f32>| -> f32 { query.iter().zip(vector).map(|(a, b)| a * b).sum() };
    let cosines = model.embed(&lines)?.into_iter().map(cosine);
    let mut ranked: Vec<(f32, &str)> = cosines.zip(lines).collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (cosine, line) in ranked.into_iter().take(3) {
        println!("{cosine:.3}  {line}");
    }
    Ok(())
}
