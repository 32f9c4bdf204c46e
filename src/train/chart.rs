//! The chart of a pre-training run: its masked-LM loss over the steps, with the losses of guessing.

use crate::train::History;

use crate::view::LineChart;

/// Draws the training and held-out loss of the predicted tokens, in nats, over the steps. `uniform` is the
/// loss of a uniform guess, `unigram` that of the best guess without context: only a model below it uses
/// the context.
pub fn pretraining_chart(history: &History, uniform: f64, unigram: f64) -> LineChart {
    let steps: Vec<(f64, f64)> =
        history.steps.iter().map(|s| (s.step as f64, s.mlm_loss)).collect();
    let held_out: Vec<(f64, f64)> =
        history.evaluations.iter().map(|e| (e.step as f64, e.mlm_loss)).collect();
    LineChart::new("Loss")
        .axes("step", "cross-entropy (nats a predicted token)")
        .smoothed("training batches", &steps)
        .line("held-out documents", &held_out)
        .reference("uniform guess: ln(V)", uniform)
        .reference("unigram entropy", unigram)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{EvalReport, StepReport};

    #[test]
    fn the_chart_names_its_curves_and_baselines() {
        let step = |step: u64| StepReport {
            step,
            loss: 5.0,
            mlm_loss: 4.0,
            nsp_loss: 1.0,
            learning_rate: 1e-3,
            norm: 1.0,
            tokens_per_s: 1.0,
        };
        let evaluation = EvalReport {
            step: 2,
            mlm_loss: 3.5,
            mlm_accuracy: 0.2,
            nsp_loss: Some(0.6),
            nsp_accuracy: Some(0.7),
        };
        let history = History {
            steps: [step(1), step(2)].into_iter().collect(),
            evaluations: vec![evaluation],
        };
        let svg = pretraining_chart(&history, 7.0, 5.0).svg();
        for name in ["training batches", "held-out documents", "ln(V)", "unigram entropy"] {
            assert!(svg.contains(name), "{name} is missing");
        }
    }
}
