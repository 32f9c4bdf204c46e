//! Makes and checks `runs.json`, the curves of the picture of schedules: real runs of the crate.
//!
//! `CLOZE_WRITE_PICTURES=1 cargo test -p cloze --lib pictures` makes them anew.

use std::path::Path;

use serde_json::{Value, json};

use super::RUNS;
use crate::engine::CpuEngine;
use crate::error::Result;
use crate::files::write_atomic;
use crate::lessons::support::pretraining::{self, Curve, FAULTS};
use crate::lessons::support::yours::Material;
use crate::train::Schedule;
use crate::train::schedule::Decay;

const STEPS: u64 = 300;
/// Steps whose mean is a point of a curve.
const EVERY: usize = 5;
const PEAKS: [f64; 7] = [2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2, 6e-2];
const WARMUPS: [u64; 2] = [0, 30];
const DECAYS: [Decay; 3] = [Decay::Linear, Decay::Cosine, Decay::Constant];

/// Returns the losses on masked tokens of the first `steps` steps of a run.
fn run(material: &Material, schedule: Schedule, steps: u64) -> Result<Vec<f64>> {
    let Material { data, config, layout, .. } = material;
    let mut model = CpuEngine::new(config, layout, layout.initialise(1))?;
    let mut step =
        |step| Ok(pretraining::crate_step(&mut model, data, schedule, step)?.mean_mlm_loss());
    (1..=steps).map(&mut step).collect()
}

/// Returns means of neighbouring values, with three decimals.
fn means(values: &[f64]) -> Vec<f64> {
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    values.chunks(EVERY).map(|part| (mean(part) * 1e3).round() / 1e3).collect()
}

fn curve(curve: &Curve) -> Vec<f64> {
    means(&curve.iter().map(|point| point.1).collect::<Vec<_>>())
}

fn all_runs(material: &Material) -> Result<Value> {
    let mut runs = Vec::new();
    for peak in PEAKS {
        for warmup in WARMUPS {
            for decay in DECAYS {
                let schedule = Schedule { peak, warmup, total: STEPS, decay };
                runs.push(means(&run(material, schedule, STEPS)?));
            }
        }
    }
    let of_warmup = |runs: &[Vec<f64>]| runs.chunks(DECAYS.len()).map(<[_]>::to_vec).collect();
    let runs: Vec<Vec<Vec<Vec<f64>>>> =
        runs.chunks(WARMUPS.len() * DECAYS.len()).map(of_warmup).collect();
    let mut faults = serde_json::Map::new();
    for (_, fault) in FAULTS {
        let (tokens, pairs) =
            pretraining::sick_run(fault, &material.data, &material.config, STEPS)?;
        let curves = json!({ "tokens": curve(&tokens), "pairs": curve(&pairs) });
        faults.insert(format!("{fault:?}"), curves);
    }
    Ok(json!({
        "command": "CLOZE_WRITE_PICTURES=1 cargo test -p cloze --lib pictures",
        "steps": STEPS,
        "every": EVERY,
        "vocabulary": material.config.vocab_size,
        "unigram": (material.data.unigram_entropy() * 1e3).round() / 1e3,
        "peaks": PEAKS,
        "warmups": WARMUPS,
        "decays": DECAYS.map(|decay| format!("{decay:?}").to_lowercase()),
        "runs": runs,
        "faults": faults,
    }))
}

#[test]
fn the_curves_are_those_of_the_crate_s_runs() {
    let material = Material::new(None).unwrap();
    if std::env::var_os("CLOZE_WRITE_PICTURES").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lessons/pictures/runs.json");
        let text = all_runs(&material).unwrap().to_string();
        write_atomic(&file, text.replace("]],", "]],\n").as_bytes()).unwrap();
        return;
    }
    let stored: Value = serde_json::from_str(RUNS).unwrap();
    assert_eq!(stored["peaks"], json!(PEAKS));
    assert_eq!(stored["vocabulary"], material.config.vocab_size);
    // The first points of a healthy run and of one that is too fast.
    for (peak, warmup, decay) in [(3, 1, 0), (6, 0, 2)] {
        let schedule = Schedule {
            peak: PEAKS[peak],
            warmup: WARMUPS[warmup],
            total: STEPS,
            decay: DECAYS[decay],
        };
        let found = means(&run(&material, schedule, 2 * EVERY as u64).unwrap());
        for (i, found) in found.iter().enumerate() {
            let stored = stored["runs"][peak][warmup][decay][i].as_f64().unwrap();
            assert!((found - stored).abs() < 0.02, "peak {peak}, point {i}: {found}, {stored}");
        }
    }
}
