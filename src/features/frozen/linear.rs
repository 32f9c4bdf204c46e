//! A linear head over vectors.

use crate::engine::Precision;
use crate::engine::cpu::{Linear, Output};
use crate::model::{Config, Init, Layout, Parameter, Part, TaskHead};

/// Declares the parameters under the names that transformers gives a head.
pub fn declare(config: &Config, part: Part, head: TaskHead, width: usize) -> Vec<Parameter> {
    let weight = Parameter {
        name: format!("{}.weight", head.name),
        shape: vec![head.outputs, width],
        decay: true,
        init: Init::TruncatedNormal(config.initializer_range),
        part,
        rate: 1.0,
    };
    let bias = Parameter {
        name: format!("{}.bias", head.name),
        shape: vec![head.outputs],
        decay: false,
        init: Init::Zeros,
        part,
        rate: 1.0,
    };
    vec![weight, bias]
}

/// `W x + b`.
pub struct LinearHead(Linear);

impl LinearHead {
    /// Finds the parameters of the head of that name.
    pub fn find(layout: &Layout, name: &str) -> Self {
        Self(Linear::find(layout, name))
    }

    /// Computes the logits, (rows, outputs), of `x`, (rows, inputs).
    pub fn forward(&self, values: &[f32], x: &[f32], logits: &mut Vec<f32>) {
        let Linear { inputs, outputs, .. } = self.0;
        let rows = x.len() / inputs;
        logits.resize(rows * outputs, 0.0);
        self.0.forward(Precision::F32, values, x, logits);
        for row in logits.chunks_exact_mut(outputs) {
            for (y, bias) in row.iter_mut().zip(&values[self.0.bias.clone()]) {
                *y += bias;
            }
        }
    }

    /// Returns the gradient of the input, given `d`, the gradient of the logits.
    pub fn input_gradient(&self, values: &[f32], d: &[f32]) -> Vec<f32> {
        let Linear { inputs, outputs, .. } = self.0;
        let rows = d.len() / outputs;
        let mut dx = vec![0.0; rows * inputs];
        self.0.backward(Precision::F32, values, d, &mut dx, Output::Overwrite);
        dx
    }

    /// Adds the parameters' gradients, given `d`, the gradient of the logits.
    pub fn backward(&self, x: &[f32], d: &[f32], gradients: &mut [f32]) {
        self.0.add_weight_gradient(Precision::F32, gradients, x, d);
        let d_bias = &mut gradients[self.0.bias.clone()];
        for row in d.chunks_exact(self.0.outputs) {
            for (sum, d) in d_bias.iter_mut().zip(row) {
                *sum += d;
            }
        }
    }
}
