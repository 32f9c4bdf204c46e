//! Linear layers in flat memory: the ranges of their parameters, and their three products.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::Precision;
use crate::engine::simd::Simd;
use crate::model::Layout;

use super::elementwise::Partials;
use super::gemm::{Matrix, MatrixMut, Output, PackedWeight, Threads, product};
use super::kernel_times::Kernel;

/// A linear layer's weight (outputs, inputs) and bias in the flat buffers.
#[derive(Clone)]
pub struct Linear {
    pub weight: Range<usize>,
    pub bias: Range<usize>,
    pub inputs: usize,
    pub outputs: usize,
    /// The packed weight, for inference with it.
    pub packed: Option<Arc<dyn PackedWeight>>,
}

/// Returns the range of a parameter. The layout must declare it: both come from one declaration.
pub fn parameter_range(layout: &Layout, name: &str) -> Range<usize> {
    let found = layout.find(name);
    found.unwrap_or_else(|| panic!("the declaration has no {name}")).1
}

impl Linear {
    pub fn find(layout: &Layout, name: &str) -> Self {
        Self::joined(layout, [name.to_owned()])
    }

    /// Joins layers with the same input into one: the declaration puts their weights next to each
    /// other, and then their biases.
    pub fn joined<const N: usize>(layout: &Layout, names: [String; N]) -> Self {
        let join = |what: &str| {
            let parts = names.each_ref().map(|n| parameter_range(layout, &format!("{n}.{what}")));
            for pair in parts.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{names:?} are adjacent");
            }
            parts[0].start..parts[N - 1].end
        };
        let (weight, bias) = (join("weight"), join("bias"));
        Self::new(weight, bias)
    }

    pub fn new(weight: Range<usize>, bias: Range<usize>) -> Self {
        Self { inputs: weight.len() / bias.len(), outputs: bias.len(), weight, bias, packed: None }
    }

    fn matrix<'a>(&self, values: &'a [f32]) -> Matrix<'a> {
        Matrix::new(&values[self.weight.clone()], self.outputs, self.inputs)
    }

    /// `y = x Wᵀ` without the bias, which the next operation adds: (rows, inputs) to (rows, outputs). With the packed
    /// weight, if there is one.
    pub fn forward(&self, precision: Precision, values: &[f32], x: &[f32], y: &mut [f32]) {
        let rows = x.len() / self.inputs;
        let _timer = Kernel::ForwardProduct.on_matrices(rows, self.inputs, self.outputs);
        if let Some(weight) = &self.packed {
            return weight.multiply(x, y);
        }
        let (x, y) = (Matrix::new(x, rows, self.inputs), MatrixMut::new(y, rows, self.outputs));
        let weight = self.matrix(values).t();
        product(y, Output::Overwrite, 1.0, x, weight, Threads::All, precision);
    }

    /// `dx = dy W`, or `dx += dy W`.
    pub fn backward(
        &self,
        precision: Precision,
        values: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        output: Output,
    ) {
        let rows = dy.len() / self.outputs;
        let _timer = Kernel::InputGradient.on_matrices(rows, self.outputs, self.inputs);
        let (dy, dx) = (Matrix::new(dy, rows, self.outputs), MatrixMut::new(dx, rows, self.inputs));
        let weight = self.matrix(values);
        product(dx, output, 1.0, dy, weight, Threads::All, precision);
    }

    /// `dW += dyᵀ x`.
    pub fn add_weight_gradient(
        &self,
        precision: Precision,
        gradients: &mut [f32],
        x: &[f32],
        dy: &[f32],
    ) {
        let rows = dy.len() / self.outputs;
        let _timer = Kernel::WeightGradient.on_matrices(self.outputs, rows, self.inputs);
        let dw = &mut gradients[self.weight.clone()];
        let dw = MatrixMut::new(dw, self.outputs, self.inputs);
        let (dy, x) = (Matrix::new(dy, rows, self.outputs).t(), Matrix::new(x, rows, self.inputs));
        product(dw, Output::Accumulate, 1.0, dy, x, Threads::All, precision);
    }

    /// `db += Σ dy` over the rows of `dy`, (rows, outputs).
    pub fn add_bias_gradient(
        &self,
        simd: Simd,
        gradients: &mut [f32],
        dy: &[f32],
        partials: &mut Partials,
    ) {
        let _timer = Kernel::Bias.on_values(dy.len(), 1, 1);
        partials.column_sums(simd, dy, self.outputs);
        partials.add_to(simd, 0, &mut gradients[self.bias.clone()]);
    }
}
