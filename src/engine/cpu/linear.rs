//! Linear layers in flat memory: where their parameters are, and their three products.

use std::ops::Range;

use crate::engine::Precision;
use crate::model::Layout;

use super::elementwise::Partials;
use super::gemm::{Matrix, MatrixMut, Old, Threads, product};
use super::norm::Norm;
use crate::engine::simd::Simd;

/// Where a linear layer's weight (outputs, inputs) and bias lie in the flat buffers.
#[derive(Debug, Clone)]
pub struct Linear {
    pub weight: Range<usize>,
    pub bias: Range<usize>,
    pub inputs: usize,
    pub outputs: usize,
}

/// Where a LayerNorm's scale and shift lie.
#[derive(Debug, Clone)]
pub struct NormAt {
    pub weight: Range<usize>,
    pub bias: Range<usize>,
}

/// The place of a parameter that the layout must have: it was made from the same declaration.
pub fn place(layout: &Layout, name: &str) -> Range<usize> {
    let found = layout.find(name);
    found
        .unwrap_or_else(|| panic!("the declaration has no {name}"))
        .1
}

impl NormAt {
    pub fn find(layout: &Layout, name: &str) -> Self {
        Self {
            weight: place(layout, &format!("{name}.weight")),
            bias: place(layout, &format!("{name}.bias")),
        }
    }

    pub fn of<'a>(&self, values: &'a [f32], epsilon: f32) -> Norm<'a> {
        Norm {
            weight: &values[self.weight.clone()],
            bias: &values[self.bias.clone()],
            epsilon,
        }
    }
}

impl Linear {
    pub fn find(layout: &Layout, name: &str) -> Self {
        let weight = place(layout, &format!("{name}.weight"));
        let bias = place(layout, &format!("{name}.bias"));
        Self {
            outputs: bias.len(),
            inputs: weight.len() / bias.len(),
            weight,
            bias,
        }
    }

    /// Several layers that read the same, as one: the declaration puts their weights one behind the
    /// other, and then their biases.
    pub fn joined<const N: usize>(layout: &Layout, names: [String; N]) -> Self {
        let join = |what: &str| {
            let parts = names
                .each_ref()
                .map(|n| place(layout, &format!("{n}.{what}")));
            for pair in parts.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{names:?} lie together");
            }
            parts[0].start..parts[N - 1].end
        };
        let (weight, bias) = (join("weight"), join("bias"));
        Self {
            outputs: bias.len(),
            inputs: weight.len() / bias.len(),
            weight,
            bias,
        }
    }

    fn matrix<'a>(&self, values: &'a [f32]) -> Matrix<'a> {
        Matrix::new(&values[self.weight.clone()], self.outputs, self.inputs)
    }

    /// `y = x Wᵀ`, without the bias, which what follows adds: x is (rows, inputs).
    pub fn forward(&self, precision: Precision, values: &[f32], x: Matrix<'_>, y: MatrixMut<'_>) {
        let weight = self.matrix(values).t();
        product(y, Old::Overwrite, 1.0, x, weight, Threads::All, precision);
    }

    /// `dx = dy W`, or `dx += dy W`.
    pub fn backward(
        &self,
        precision: Precision,
        values: &[f32],
        dy: Matrix<'_>,
        dx: MatrixMut<'_>,
        old: Old,
    ) {
        let weight = self.matrix(values);
        product(dx, old, 1.0, dy, weight, Threads::All, precision);
    }

    /// `dW += dyᵀ x`.
    pub fn add_weight_gradient(
        &self,
        precision: Precision,
        gradients: &mut [f32],
        x: Matrix<'_>,
        dy: Matrix<'_>,
    ) {
        let dw = &mut gradients[self.weight.clone()];
        let dw = MatrixMut::new(dw, self.outputs, self.inputs);
        product(dw, Old::Add, 1.0, dy.t(), x, Threads::All, precision);
    }

    /// `db += Σ dy` over rows, dy being (rows, outputs).
    pub fn add_bias_gradient(
        &self,
        simd: Simd,
        gradients: &mut [f32],
        dy: &[f32],
        partials: &mut Partials,
    ) {
        partials.column_sums(simd, dy, self.outputs);
        partials.add_to(simd, 0, &mut gradients[self.bias.clone()]);
    }
}
