//! Linear layers in the flat buffers: the offsets of their parameters, and their three products.

use std::ops::Range;

use crate::error::Result;

use super::device::{Address, Device, Element, Epilogue, Matrix, Product};
use super::kernels::Norm;
use super::pass::Pass;
use super::state::Offsets;

/// Offsets of a linear layer's weight (outputs, inputs) and bias.
#[derive(Debug, Clone)]
pub struct Linear {
    pub weight: usize,
    pub bias: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// Offsets of a LayerNorm's scale and shift.
#[derive(Debug, Clone)]
pub struct NormOffsets {
    pub weight: usize,
    pub bias: usize,
}

impl NormOffsets {
    pub fn find(offsets: &Offsets, name: &str) -> Self {
        Self {
            weight: offsets.find(&format!("{name}.weight")).start,
            bias: offsets.find(&format!("{name}.bias")).start,
        }
    }

    pub fn of(&self, pass: Pass<'_>) -> Norm {
        Norm {
            gain: pass.value(self.weight),
            bias: pass.value(self.bias),
            epsilon: pass.config.layer_norm_eps as f32,
        }
    }
}

impl Linear {
    pub fn find(offsets: &Offsets, name: &str) -> Self {
        Self::joined(offsets, [name.to_owned()])
    }

    /// Joins layers with the same input into one: their weights are adjacent, and so are their
    /// biases.
    pub fn joined<const N: usize>(offsets: &Offsets, names: [String; N]) -> Self {
        let join = |what: &str| -> Range<usize> {
            let parts = names.each_ref().map(|n| offsets.find(&format!("{n}.{what}")));
            for pair in parts.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{names:?} are adjacent");
            }
            parts[0].start..parts[N - 1].end
        };
        let (weight, bias) = (join("weight"), join("bias"));
        Self {
            outputs: bias.len(),
            inputs: weight.len() / bias.len(),
            weight: weight.start,
            bias: bias.start,
        }
    }

    /// Adds outputs, for which the buffers hold zeros.
    pub fn padded(self, outputs: usize) -> Self {
        Self { outputs, ..self }
    }

    fn matrix(&self, pass: Pass<'_>, element: Element) -> Matrix {
        let at = pass.weight(self.weight, element);
        Matrix::new(at, element, self.outputs, self.inputs)
    }

    /// `y = x Wᵀ` without the bias, which the next operation adds: `x` is (n, inputs) of `element`
    /// (the engine's or f32), `y` (n, outputs) of its own.
    pub fn forward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        (n, element): (usize, Element),
        x: Address,
        (y, y_element): (Address, Element),
    ) -> Result<()> {
        let x = Matrix::new(x, element, n, self.inputs);
        let y = Matrix::new(y, y_element, n, self.outputs);
        multiply(device, pass, x, self.matrix(pass, element).t(), y, false)
    }

    /// Like [`forward`](Self::forward), with the bias.
    pub fn forward_with_bias(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        (n, element): (usize, Element),
        x: Address,
        (y, y_element): (Address, Element),
    ) -> Result<()> {
        let x = Matrix::new(x, element, n, self.inputs);
        let y = Matrix::new(y, y_element, n, self.outputs);
        let bias = match pass.ways.bias {
            true => (pass.weight(self.bias, y_element), y_element),
            false => (pass.value(self.bias), Element::F32),
        };
        let weight = self.matrix(pass, element).t();
        multiply_with_bias(device, pass, x, weight, y, bias)
    }

    /// `dx = dy W`, or with `add` `dx += dy W`, all of `element`.
    pub fn backward(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        (n, element): (usize, Element),
        dy: Address,
        dx: Address,
        add: bool,
    ) -> Result<()> {
        let dy = Matrix::new(dy, element, n, self.outputs);
        let dx = Matrix::new(dx, element, n, self.inputs);
        multiply(device, pass, dy, self.matrix(pass, element), dx, add)
    }

    /// `dW += dyᵀ x`, both of `element`.
    pub fn add_weight_gradient(
        &self,
        device: &mut dyn Device,
        pass: Pass<'_>,
        (n, element): (usize, Element),
        x: Address,
        dy: Address,
    ) -> Result<()> {
        let x = Matrix::new(x, element, n, self.inputs);
        let dy = Matrix::new(dy, element, n, self.outputs);
        let at = pass.gradient(self.weight);
        let dw = Matrix::new(at, Element::F32, self.outputs, self.inputs);
        multiply(device, pass, dy.t(), x, dw, true)
    }
}

/// `c = a b + bias`, with one bias per column, of c's element or f32.
pub fn multiply_with_bias(
    device: &mut dyn Device,
    pass: Pass<'_>,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    (bias, element): (Address, Element),
) -> Result<()> {
    device.multiply(&Product {
        a,
        b,
        c,
        alpha: 1.0,
        add: false,
        tf32: pass.tf32,
        epilogue: Epilogue::Bias(bias, element),
    })
}

/// `c = a b`, or with `add` `c += a b`.
pub fn multiply(
    device: &mut dyn Device,
    pass: Pass<'_>,
    a: Matrix,
    b: Matrix,
    c: Matrix,
    add: bool,
) -> Result<()> {
    device.multiply(&Product {
        a,
        b,
        c,
        alpha: 1.0,
        add,
        tf32: pass.tf32,
        epilogue: Epilogue::Nothing,
    })
}
