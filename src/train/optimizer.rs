//! AdamW over flat buffers, with decay groups, bias correction and clipping by the global norm.
//!
//! Source: Loshchilov and Hutter, "Decoupled weight decay regularization", arXiv 1711.05101; the
//! settings are those of google-research/bert, optimization.py, except that the bias correction
//! of Adam is kept, as in PyTorch's AdamW.

use rayon::prelude::*;

use crate::model::Layout;

/// AdamW's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// Applied to weights only, not to biases and LayerNorms.
    pub weight_decay: f64,
}

impl Default for AdamW {
    /// BERT's: 0.9, 0.999, 1e-6, 0.01.
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-6,
            weight_decay: 0.01,
        }
    }
}

/// One update of the parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    pub adamw: AdamW,
    pub learning_rate: f64,
    /// Counted from 1: the bias correction's exponent.
    pub step: u64,
    /// The gradients' global norm is cut to this.
    pub max_norm: f64,
}

/// AdamW's state: the running means of the gradients and of their squares.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moments {
    pub first: Vec<f32>,
    pub second: Vec<f32>,
}

impl Moments {
    /// Zero state for `len` parameters.
    pub fn zeros(len: usize) -> Self {
        Self {
            first: vec![0.0; len],
            second: vec![0.0; len],
        }
    }
}

/// Parameters handled by one task.
const CHUNK: usize = 1 << 14;

/// The Euclidean norm of all gradients together.
pub fn global_norm(gradients: &[f32]) -> f64 {
    gradients
        .par_chunks(CHUNK)
        .map(|chunk| {
            chunk
                .iter()
                .map(|&g| f64::from(g) * f64::from(g))
                .sum::<f64>()
        })
        // A fixed order of addition, so that the norm does not depend on the threads.
        .collect::<Vec<_>>()
        .into_iter()
        .sum::<f64>()
        .sqrt()
}

impl Update {
    /// Clips, updates, zeroes the gradients; returns the norm before clipping.
    pub fn apply(
        &self,
        layout: &Layout,
        parameters: &mut [f32],
        gradients: &mut [f32],
        moments: &mut Moments,
    ) -> f64 {
        let norm = global_norm(gradients);
        let clip = if norm > self.max_norm {
            self.max_norm / norm
        } else {
            1.0
        };
        for (parameter, range) in layout.iter() {
            let decay = if parameter.decay {
                self.adamw.weight_decay
            } else {
                0.0
            };
            self.apply_group(
                decay,
                clip as f32,
                &mut parameters[range.clone()],
                &mut gradients[range.clone()],
                &mut moments.first[range.clone()],
                &mut moments.second[range],
            );
        }
        norm
    }

    fn apply_group(
        &self,
        decay: f64,
        clip: f32,
        parameters: &mut [f32],
        gradients: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let AdamW {
            beta1,
            beta2,
            epsilon,
            ..
        } = self.adamw;
        // Bias correction folded into two scalars, computed in f64: 1 - 0.999^t loses digits in f32.
        let power = self.step as i32;
        let rate = (self.learning_rate / (1.0 - beta1.powi(power))) as f32;
        let second_scale = (1.0 / (1.0 - beta2.powi(power)).sqrt()) as f32;
        let shrink = (1.0 - self.learning_rate * decay) as f32;
        let (b1, b2, eps) = (beta1 as f32, beta2 as f32, epsilon as f32);
        parameters
            .par_chunks_mut(CHUNK)
            .zip(gradients.par_chunks_mut(CHUNK))
            .zip(first.par_chunks_mut(CHUNK))
            .zip(second.par_chunks_mut(CHUNK))
            .for_each(|(((parameters, gradients), first), second)| {
                for (((p, g), m), v) in parameters.iter_mut().zip(gradients).zip(first).zip(second)
                {
                    let gradient = *g * clip;
                    *g = 0.0;
                    *m = b1 * *m + (1.0 - b1) * gradient;
                    *v = b2 * *v + (1.0 - b2) * gradient * gradient;
                    *p = *p * shrink - rate * *m / (v.sqrt() * second_scale + eps);
                }
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Config, Part};

    fn layout() -> std::sync::Arc<Layout> {
        let mut config = Config::new(1, 4, 2, 8, 5);
        config.max_position_embeddings = 3;
        Layout::new(&config, &[Part::Encoder])
    }

    /// AdamW as the paper writes it (algorithm 2), in f64, one number at a time.
    fn by_the_book(p: f64, gradients: &[f64], rate: f64, decay: f64) -> f64 {
        let (mut p, mut m, mut v) = (p, 0.0, 0.0);
        for (t, g) in gradients.iter().enumerate() {
            let t = t as i32 + 1;
            m = 0.9 * m + 0.1 * g;
            v = 0.999 * v + 0.001 * g * g;
            let (mh, vh) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
            p = p - rate * decay * p - rate * mh / (vh.sqrt() + 1e-6);
        }
        p
    }

    #[test]
    fn ten_steps_agree_with_the_paper_in_both_decay_groups() {
        let layout = layout();
        let mut parameters = vec![0.5; layout.total()];
        let mut moments = Moments::zeros(layout.total());
        let history: Vec<f64> = (0..10).map(|t| 1e-3 * f64::from(t * t - 20)).collect();
        for (t, &gradient) in history.iter().enumerate() {
            let mut gradients = vec![gradient as f32; layout.total()];
            let update = Update {
                adamw: AdamW {
                    weight_decay: 0.1,
                    ..AdamW::default()
                },
                learning_rate: 0.01,
                step: t as u64 + 1,
                max_norm: f64::INFINITY,
            };
            update.apply(&layout, &mut parameters, &mut gradients, &mut moments);
            assert!(gradients.iter().all(|&g| g == 0.0));
        }
        for (parameter, range) in layout.iter() {
            let expected =
                by_the_book(0.5, &history, 0.01, if parameter.decay { 0.1 } else { 0.0 });
            for &got in &parameters[range] {
                assert!(
                    (f64::from(got) - expected).abs() < 1e-6,
                    "{}: {got} {expected}",
                    parameter.name
                );
            }
        }
    }

    #[test]
    fn clipping_scales_all_gradients_alike() {
        let layout = layout();
        let start: Vec<f32> = vec![0.0; layout.total()];
        let run = |scale: f32, max_norm: f64| {
            let mut parameters = start.clone();
            let mut gradients: Vec<f32> = (0..layout.total())
                .map(|i| scale * (i as f32 - 20.0))
                .collect();
            let mut moments = Moments::zeros(layout.total());
            let update = Update {
                adamw: AdamW::default(),
                learning_rate: 1e-3,
                step: 1,
                max_norm,
            };
            let norm = update.apply(&layout, &mut parameters, &mut gradients, &mut moments);
            (norm, moments)
        };
        let (norm, unclipped) = run(1.0, f64::INFINITY);
        let (large, clipped) = run(100.0, norm);
        assert!((large / norm - 100.0).abs() < 1e-3);
        for (a, b) in unclipped.first.iter().zip(&clipped.first) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0));
        }
    }
}
