//! The reference model on dfdx's `Cuda` (feature `dfdx-cuda`), and the lessons with `Cuda` in place of `Cpu`.
//! `tests/dfdx_cuda.sh` compiles this without a GPU and without NVIDIA's compiler; docs/gpu.md says how to run it.

use cloze::data::{PretrainingData, PretrainingOptions};
use cloze::engine::{Engine, PretrainingEngine, Reference};
use cloze::model::{Dropout, Layout, PRETRAINING, Size};
use cloze::text::{Casing, WordPiece, embedded};

/// The lessons whose tensors may live on any device, as the script writes them. (Helpers of later lessons, and an
/// operation of the learner's own as in lesson 23, run on the CPU.)
mod lessons {
    #![allow(dead_code, unused_imports)]
    macro_rules! lesson {
        ($name:ident) => {
            mod $name {
                include!(concat!(env!("CLOZE_LESSONS_ON_CUDA"), "/", stringify!($name), ".rs"));
            }
        };
    }
    lesson!(orientation);
    lesson!(gradients);
}

#[test]
fn the_reference_on_a_gpu_gives_the_gradients_that_it_gives_on_the_cpu() {
    let texts = embedded::paragraphs().take(60).map(|p| Ok(p.text));
    let wordpiece = WordPiece::train(texts, 300, Casing::Uncased).unwrap();
    let options = PretrainingOptions { max_len: 48, ..PretrainingOptions::default() };
    let paragraphs = embedded::paragraphs().take(60).map(Ok);
    let data = PretrainingData::build(paragraphs, &wordpiece, &options, None).unwrap();
    let batch = data.batch(0, 6).unwrap();
    let config = Size::Tiny.config(wordpiece.vocab_size());
    let layout = Layout::new(&config, &PRETRAINING);
    let values = layout.initialise(1);
    let dropout = Dropout { seed: 1, step: 1 };
    let run = |mut engine: Reference| {
        let scores = engine.pretraining_gradients(&batch, dropout).unwrap();
        (scores.loss(), engine.gradients().unwrap())
    };
    let cpu = run(Reference::new(&config, &layout, values.clone()).unwrap());
    let gpu = run(Reference::on_gpu(&config, &layout, values).unwrap());
    assert!((cpu.0 - gpu.0).abs() < 1e-4, "{} and {}", cpu.0, gpu.0);
    let norm =
        |v: &mut dyn Iterator<Item = f32>| v.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let apart = norm(&mut cpu.1.iter().zip(&gpu.1).map(|(a, b)| a - b));
    assert!(apart < 1e-4 * norm(&mut cpu.1.iter().copied()), "{apart:.1e}");
}
