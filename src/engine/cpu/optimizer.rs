//! The optimizer's arithmetic on the CPU: see [`crate::engine::optimizer`].

use std::ops::Range;

use rayon::prelude::*;

use super::muon;
use crate::engine::Precision;
use crate::engine::optimizer::{Moments, Rule, Update};
use crate::engine::simd::{Simd, squares};
use crate::model::{Layout, Parameter};

/// Parameters per task.
const CHUNK: usize = 1 << 14;

/// Returns the Euclidean norm of all gradients together. `partials` is scratch.
pub fn global_norm(gradients: &[f32], partials: &mut Vec<f64>) -> f64 {
    let simd = Simd::detect();
    partials.resize(gradients.len().div_ceil(CHUNK), 0.0);
    gradients.par_chunks(CHUNK).zip(&mut *partials).for_each(|(chunk, sum)| {
        *sum = simd.run(
            #[inline(always)]
            || squares([chunk], |[x]| x),
        )
    });
    // Added in order, so that the norm doesn't depend on the threads.
    partials.iter().sum::<f64>().sqrt()
}

/// The factors of a step, computed in f64: 1 - 0.999^t loses digits in f32.
#[derive(Clone, Copy)]
struct Step {
    /// Factor of every gradient.
    clip: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    /// Bias corrections of the two means; the second's applies to its root.
    first_scale: f32,
    second_scale: f32,
}

impl Step {
    /// Updates the running means with a gradient and returns Adam's direction.
    #[inline(always)]
    fn direction(&self, gradient: f32, m: &mut f32, v: &mut f32) -> f32 {
        let gradient = gradient * self.clip;
        *m = self.beta1 * *m + (1.0 - self.beta1) * gradient;
        *v = self.beta2 * *v + (1.0 - self.beta2) * gradient * gradient;
        self.old_direction(*m, *v)
    }

    /// Returns the direction of means that are already updated.
    #[inline(always)]
    fn old_direction(&self, m: f32, v: f32) -> f32 {
        m * self.first_scale / (v.sqrt() * self.second_scale + self.epsilon)
    }
}

/// One chunk of the flat buffers.
struct Chunk<'a> {
    /// Start in the flat buffers.
    start: usize,
    parameters: &'a mut [f32],
    gradients: &'a mut [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

impl Chunk<'_> {
    /// Returns the chunk's parameters, each with its range in the chunk.
    fn segments<'l>(
        &self,
        layout: &'l Layout,
    ) -> impl Iterator<Item = (&'l Parameter, Range<usize>)> + use<'l> {
        let start = self.start;
        let part = start..start + self.parameters.len();
        layout
            .within(part)
            .map(move |(parameter, range)| (parameter, range.start - start..range.end - start))
    }
}

impl Update {
    /// Clips, updates, zeroes the gradients; returns the norm before clipping, without the frozen
    /// parameters'. If the norm is not finite, only zeroes the gradients. `partials` is scratch worth keeping between steps.
    pub fn apply(
        &self,
        layout: &Layout,
        parameters: &mut [f32],
        gradients: &mut [f32],
        moments: &mut Moments,
        partials: &mut Vec<f64>,
    ) -> f64 {
        self.apply_in(Precision::F32, layout, parameters, gradients, moments, partials)
    }

    /// The same, with Muon's products in `precision`.
    pub(in crate::engine) fn apply_in(
        &self,
        precision: Precision,
        layout: &Layout,
        parameters: &mut [f32],
        gradients: &mut [f32],
        moments: &mut Moments,
        partials: &mut Vec<f64>,
    ) -> f64 {
        for (_, range) in layout.iter().filter(|(parameter, _)| parameter.rate == 0.0) {
            gradients[range].fill(0.0);
        }
        let norm = global_norm(gradients, partials);
        if !norm.is_finite() {
            gradients.fill(0.0);
            return norm;
        }
        let optimizer = &self.optimizer;
        let power = self.step as i32;
        let step = Step {
            clip: if norm > self.max_norm { (self.max_norm / norm) as f32 } else { 1.0 },
            beta1: optimizer.beta1 as f32,
            beta2: optimizer.beta2 as f32,
            epsilon: optimizer.epsilon as f32,
            first_scale: (1.0 / (1.0 - optimizer.beta1.powi(power))) as f32,
            second_scale: (1.0 / (1.0 - optimizer.beta2.powi(power)).sqrt()) as f32,
        };
        let chunks = parameters
            .par_chunks_mut(CHUNK)
            .zip(gradients.par_chunks_mut(CHUNK))
            .zip(moments.first.par_chunks_mut(CHUNK))
            .zip(moments.second.par_chunks_mut(CHUNK))
            .enumerate()
            .map(|(index, (((parameters, gradients), first), second))| Chunk {
                start: index * CHUNK,
                parameters,
                gradients,
                first,
                second,
            });
        match optimizer.rule {
            Rule::Adamw => chunks.for_each(|chunk| self.adamw(step, layout, chunk)),
            Rule::Lamb => {
                chunks.for_each(|chunk| update_means(step, chunk));
                self.lamb(step, layout, parameters, moments, partials);
            }
            Rule::Muon => {
                chunks.for_each(|chunk| self.adamw(step, layout, chunk));
                let muon = muon::Step::new(self, step.clip, layout, precision);
                muon.apply(layout, parameters, gradients, &mut moments.first);
            }
        }
        norm
    }

    fn decay(&self, parameter: &Parameter) -> f64 {
        if parameter.decay { self.optimizer.weight_decay } else { 0.0 }
    }

    /// Updates the parameters that Muon doesn't, if it is the rule.
    fn adamw(&self, step: Step, layout: &Layout, chunk: Chunk<'_>) {
        let is_left =
            |parameter: &Parameter| self.optimizer.rule == Rule::Muon && muon::takes(parameter);
        for (parameter, at) in chunk.segments(layout).filter(|(p, _)| !is_left(p)) {
            let rate = self.learning_rate * f64::from(parameter.rate);
            let shrink = (1.0 - rate * self.decay(parameter)) as f32;
            let rate = rate as f32;
            let parameters = chunk.parameters[at.clone()].iter_mut();
            let gradients = chunk.gradients[at.clone()].iter_mut();
            let first = chunk.first[at.clone()].iter_mut();
            let second = chunk.second[at].iter_mut();
            let all = parameters.zip(gradients).zip(first.zip(second));
            Simd::detect().run(
                // With a copy of the factors, which no write to the parameters can change.
                #[inline(always)]
                move || {
                    for ((p, g), (m, v)) in all {
                        *p = *p * shrink - rate * step.direction(*g, m, v);
                        *g = 0.0;
                    }
                },
            );
        }
    }

    /// LAMB's second half, parameter by parameter, after the means are updated.
    fn lamb(
        &self,
        step: Step,
        layout: &Layout,
        parameters: &mut [f32],
        moments: &Moments,
        partials: &mut Vec<f64>,
    ) {
        let simd = Simd::detect();
        for (parameter, range) in layout.iter() {
            let decay = self.decay(parameter) as f32;
            let update = move |p: f32, m: f32, v: f32| step.old_direction(m, v) + decay * p;
            let parameters = &mut parameters[range.clone()];
            let (first, second) = (&moments.first[range.clone()], &moments.second[range]);
            // Biases and LayerNorms are not scaled, as in google-research/albert,
            // lamb_optimizer.py.
            let ratio = if parameter.decay {
                partials.resize(2 * parameters.len().div_ceil(CHUNK), 0.0);
                parameters
                    .par_chunks(CHUNK)
                    .zip(first.par_chunks(CHUNK).zip(second.par_chunks(CHUNK)))
                    .zip(partials.par_chunks_mut(2))
                    .for_each(|((p, (m, v)), sums)| {
                        sums[0] = simd.run(
                            #[inline(always)]
                            || squares([p], |[x]| x),
                        );
                        sums[1] = simd.run(
                            #[inline(always)]
                            || squares([p, m, v], |[p, m, v]| update(p, m, v)),
                        );
                    });
                let sum = |which: usize| -> f64 { partials.iter().skip(which).step_by(2).sum() };
                trust_ratio(sum(0).sqrt(), sum(1).sqrt())
            } else {
                1.0
            };
            let rate = (self.learning_rate * f64::from(parameter.rate) * ratio) as f32;
            parameters
                .par_chunks_mut(CHUNK)
                .zip(first.par_chunks(CHUNK).zip(second.par_chunks(CHUNK)))
                .for_each(|(p, (m, v))| {
                    simd.run(
                        // With a copy of the factors, which no write to the parameters can change.
                        #[inline(always)]
                        move || {
                            for (p, (&m, &v)) in p.iter_mut().zip(m.iter().zip(v)) {
                                *p -= rate * update(*p, m, v);
                            }
                        },
                    );
                });
        }
    }
}

/// LAMB's first half: updates the means with the gradients and zeroes these.
fn update_means(step: Step, chunk: Chunk<'_>) {
    Simd::detect().run(
        #[inline(always)]
        move || {
            let moments = chunk.first.iter_mut().zip(chunk.second);
            for (g, (m, v)) in chunk.gradients.iter_mut().zip(moments) {
                step.direction(*g, m, v);
                *g = 0.0;
            }
        },
    );
}

/// Returns the factor that scales an update to the norm of its parameters; 1 if either norm is
/// zero.
fn trust_ratio(parameters: f64, update: f64) -> f64 {
    if parameters > 0.0 && update > 0.0 { parameters / update } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::optimizer::Optimizer;
    use crate::model::{Config, Part};

    fn layout() -> std::sync::Arc<Layout> {
        let mut config = Config::new(1, 4, 2, 8, 5);
        config.max_position_embeddings = 3;
        Layout::new(&config, &[Part::Encoder])
    }

    /// AdamW as in the paper (algorithm 2), in f64.
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
                optimizer: Optimizer { weight_decay: 0.1, ..Optimizer::default() },
                learning_rate: 0.01,
                step: t as u64 + 1,
                max_norm: f64::INFINITY,
            };
            update.apply(&layout, &mut parameters, &mut gradients, &mut moments, &mut Vec::new());
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
            let mut gradients: Vec<f32> =
                (0..layout.total()).map(|i| scale * (i as f32 - 20.0)).collect();
            let mut moments = Moments::zeros(layout.total());
            let update =
                Update { optimizer: Optimizer::default(), learning_rate: 1e-3, step: 1, max_norm };
            let norm = update.apply(
                &layout,
                &mut parameters,
                &mut gradients,
                &mut moments,
                &mut Vec::new(),
            );
            (norm, moments)
        };
        let (norm, unclipped) = run(1.0, f64::INFINITY);
        let (large, clipped) = run(100.0, norm);
        assert!((large / norm - 100.0).abs() < 1e-3);
        for (a, b) in unclipped.first.iter().zip(&clipped.first) {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0));
        }
    }

    /// LAMB as in the paper (algorithm 2), in f64, over parameters longer than a chunk.
    #[test]
    fn ten_steps_of_lamb_agree_with_the_paper() {
        let mut config = Config::new(1, 8, 2, 16, 3 * CHUNK / 8);
        config.max_position_embeddings = 3;
        let layout = Layout::new(&config, &[Part::Encoder]);
        let start = layout.initialise(2);
        let gradient = |t: u64, i: usize| ((i as f64 + 1.0) * 0.37 * t as f64).sin();
        let mut parameters = start.clone();
        let mut moments = Moments::zeros(layout.total());
        let mut partials = Vec::new();
        let mut exact: Vec<f64> = start.iter().map(|&p| f64::from(p)).collect();
        let mut means = vec![(0.0, 0.0); exact.len()];
        for t in 1..=10 {
            let mut gradients: Vec<f32> =
                (0..layout.total()).map(|i| gradient(t, i) as f32).collect();
            let update = Update {
                optimizer: Optimizer { rule: Rule::Lamb, ..Optimizer::default() },
                learning_rate: 0.02,
                step: t,
                max_norm: f64::INFINITY,
            };
            update.apply(&layout, &mut parameters, &mut gradients, &mut moments, &mut partials);
            assert!(gradients.iter().all(|&g| g == 0.0));
            for (parameter, range) in layout.iter() {
                let mut updates = Vec::new();
                for i in range.clone() {
                    let (m, v) = &mut means[i];
                    *m = 0.9 * *m + 0.1 * gradient(t, i);
                    *v = 0.999 * *v + 0.001 * gradient(t, i).powi(2);
                    let (mh, vh) =
                        (*m / (1.0 - 0.9f64.powi(t as i32)), *v / (1.0 - 0.999f64.powi(t as i32)));
                    let decay = if parameter.decay { 0.01 } else { 0.0 };
                    updates.push(mh / (vh.sqrt() + 1e-6) + decay * exact[i]);
                }
                let norm = |values: &[f64]| values.iter().map(|x| x * x).sum::<f64>().sqrt();
                let ratio = if parameter.decay {
                    norm(&exact[range.clone()]) / norm(&updates)
                } else {
                    1.0
                };
                for (p, u) in exact[range].iter_mut().zip(updates) {
                    *p -= 0.02 * ratio * u;
                }
            }
        }
        for (i, (&got, exact)) in parameters.iter().zip(&exact).enumerate() {
            assert!((f64::from(got) - exact).abs() < 1e-5, "{i}: {got} {exact}");
        }
    }
}
