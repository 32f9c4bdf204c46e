//! A two-layer bidirectional LSTM over vectors, as in the paper's feature-based experiment. The gates, their order
//! (input, forget, cell, output) and the parameters' names are those of `torch.nn.LSTM`.
//!
//! Rows are ordered by time step, and within a step by the length of their sequence, longest first: so a step is
//! one matrix product for all sequences that have not ended.

use rayon::prelude::*;

use crate::data::Packed;
use crate::engine::Precision;
use crate::engine::cpu::{Matrix, MatrixMut, Output, Threads, parameter_range, product};
use crate::engine::simd::exp;
use crate::model::{Init, Layout, Parameter, Part};

const LAYERS: usize = 2;

/// Declares the parameters for `inputs` inputs and `hidden` outputs in each direction.
pub fn declare(part: Part, inputs: usize, hidden: usize) -> Vec<Parameter> {
    // The variance of PyTorch's initial values, which are uniform from -1/√H to 1/√H.
    let init = Init::TruncatedNormal((3.0 * hidden as f64).sqrt().recip());
    let mut all = Vec::new();
    for (layer, suffix) in directions() {
        let inputs = if layer == 0 { inputs } else { 2 * hidden };
        for (name, shape, decay) in [
            ("weight_ih", vec![4 * hidden, inputs], true),
            ("weight_hh", vec![4 * hidden, hidden], true),
            ("bias_ih", vec![4 * hidden], false),
            ("bias_hh", vec![4 * hidden], false),
        ] {
            all.push(Parameter {
                name: format!("lstm.{name}_l{layer}{suffix}"),
                init: if decay { init } else { Init::Zeros },
                shape,
                decay,
                part,
                rate: 1.0,
            });
        }
    }
    all
}

fn directions() -> impl Iterator<Item = (usize, &'static str)> {
    (0..LAYERS).flat_map(|layer| [(layer, ""), (layer, "_reverse")])
}

/// The LSTM, and what its backward pass needs from the forward pass.
pub struct Lstm {
    cells: Vec<Cell>,
    hidden: usize,
    order: Order,
    /// The output of each layer, (rows, 2 · hidden), in the order of the batch.
    outputs: Vec<Vec<f32>>,
}

impl Lstm {
    /// Finds the parameters of [`declare`].
    pub fn find(layout: &Layout) -> Self {
        let cells: Vec<Cell> =
            directions().map(|(layer, suffix)| Cell::find(layout, layer, suffix)).collect();
        Self {
            hidden: cells[0].hidden,
            cells,
            order: Order::default(),
            outputs: vec![Vec::new(); LAYERS],
        }
    }

    /// Returns the last layer's output for `x`, (rows, inputs).
    pub fn forward(&mut self, batch: &Packed, values: &[f32], x: &[f32]) -> &[f32] {
        self.order = Order::of(batch);
        let width = 2 * self.hidden;
        for layer in 0..LAYERS {
            let mut output = std::mem::take(&mut self.outputs[layer]);
            output.resize(batch.rows() * width, 0.0);
            let input = match layer {
                0 => x,
                _ => &self.outputs[layer - 1],
            };
            for (reverse, cell) in self.cells[2 * layer..][..2].iter_mut().enumerate() {
                cell.forward(&self.order, reverse == 1, values, input);
                let columns = reverse * self.hidden..(reverse + 1) * self.hidden;
                let rows = self.order.rows(reverse == 1);
                for (row, h) in rows.iter().zip(cell.h.chunks_exact(self.hidden)) {
                    output[row * width..][columns.clone()].copy_from_slice(h);
                }
            }
            self.outputs[layer] = output;
        }
        self.output()
    }

    /// Returns the output of the last [`Lstm::forward`].
    pub fn output(&self) -> &[f32] {
        &self.outputs[LAYERS - 1]
    }

    /// Adds the parameters' gradients, given `d`, the gradient of the output of the last [`Lstm::forward`].
    pub fn backward(&mut self, values: &[f32], mut d: Vec<f32>, gradients: &mut [f32]) {
        let width = 2 * self.hidden;
        for layer in (0..LAYERS).rev() {
            let inputs = self.cells[2 * layer].inputs;
            let rows = if layer == 0 { 0 } else { d.len() / width };
            let mut below = vec![0.0; rows * inputs];
            for (reverse, cell) in self.cells[2 * layer..][..2].iter_mut().enumerate() {
                let rows = self.order.rows(reverse == 1);
                let first = reverse * self.hidden;
                let own = rows.iter().flat_map(|row| &d[row * width + first..][..self.hidden]);
                cell.backward(&self.order, values, own.copied().collect(), gradients);
                if layer > 0 {
                    cell.add_input_gradient(values, rows, &mut below);
                }
            }
            d = below;
        }
    }
}

/// The order of a batch's rows by time step.
#[derive(Default)]
struct Order {
    /// How many sequences have not ended at each time step; never more than at the step before.
    active: Vec<usize>,
    forward: Vec<usize>,
    reverse: Vec<usize>,
}

impl Order {
    fn of(batch: &Packed) -> Self {
        let mut ranges: Vec<_> = batch.ranges().collect();
        ranges.sort_by_key(|range| std::cmp::Reverse(range.len()));
        let longest = ranges.first().map_or(0, |range| range.len());
        let mut order = Self::default();
        for time in 0..longest {
            let active = ranges.partition_point(|range| range.len() > time);
            order.active.push(active);
            for range in &ranges[..active] {
                order.forward.push(range.start + time);
                order.reverse.push(range.end - 1 - time);
            }
        }
        order
    }

    /// Returns the rows of the batch in the order of time.
    fn rows(&self, reverse: bool) -> &[usize] {
        if reverse { &self.reverse } else { &self.forward }
    }
}

/// One direction of one layer.
struct Cell {
    weight_ih: std::ops::Range<usize>,
    weight_hh: std::ops::Range<usize>,
    biases: [std::ops::Range<usize>; 2],
    inputs: usize,
    hidden: usize,
    /// In the order of time: the inputs, the gates after their activation (in the backward pass the gradients
    /// before it), the cell states and the outputs.
    x: Vec<f32>,
    gates: Vec<f32>,
    c: Vec<f32>,
    h: Vec<f32>,
}

impl Cell {
    fn find(layout: &Layout, layer: usize, suffix: &str) -> Self {
        let at = |name: &str| parameter_range(layout, &format!("lstm.{name}_l{layer}{suffix}"));
        let biases = [at("bias_ih"), at("bias_hh")];
        let hidden = biases[0].len() / 4;
        let weight_ih = at("weight_ih");
        Self {
            inputs: weight_ih.len() / (4 * hidden),
            weight_hh: at("weight_hh"),
            weight_ih,
            biases,
            hidden,
            x: Vec::new(),
            gates: Vec::new(),
            c: Vec::new(),
            h: Vec::new(),
        }
    }

    fn forward(&mut self, order: &Order, reverse: bool, values: &[f32], input: &[f32]) {
        let (inputs, hidden) = (self.inputs, self.hidden);
        let rows = order.rows(reverse);
        self.x.clear();
        for row in rows {
            self.x.extend(&input[row * inputs..][..inputs]);
        }
        let n = rows.len();
        self.gates.resize(n * 4 * hidden, 0.0);
        self.c.resize(n * hidden, 0.0);
        self.h.resize(n * hidden, 0.0);
        let weight = Matrix::new(&values[self.weight_ih.clone()], 4 * hidden, inputs);
        let x = Matrix::new(&self.x, n, inputs);
        multiply(&mut self.gates, n, Output::Overwrite, x, weight.t());
        let [one, two] = self.biases.clone().map(|bias| &values[bias]);
        for gates in self.gates.chunks_exact_mut(4 * hidden) {
            for ((gate, a), b) in gates.iter_mut().zip(one).zip(two) {
                *gate += a + b;
            }
        }
        let weight = Matrix::new(&values[self.weight_hh.clone()], 4 * hidden, hidden);
        let (mut start, mut before) = (0, 0);
        for (time, &active) in order.active.iter().enumerate() {
            let gates = &mut self.gates[start * 4 * hidden..][..active * 4 * hidden];
            let (old_c, c) = self.c.split_at_mut(start * hidden);
            let (old_h, h) = self.h.split_at_mut(start * hidden);
            let (old_c, old_h) = (&old_c[before * hidden..], &old_h[before * hidden..]);
            if time > 0 {
                let h = Matrix::new(&old_h[..active * hidden], active, hidden);
                multiply(gates, active, Output::Accumulate, h, weight.t());
            }
            gates
                .par_chunks_exact_mut(4 * hidden)
                .zip(c.par_chunks_exact_mut(hidden))
                .zip(h.par_chunks_exact_mut(hidden))
                .enumerate()
                .for_each(|(k, ((gates, c), h))| {
                    let old = (time > 0).then(|| &old_c[k * hidden..][..hidden]);
                    step(gates, old, c, h);
                });
            (before, start) = (start, start + active);
        }
    }

    /// Replaces the gates by the gradients before their activation and adds the parameters' gradients, given `d`,
    /// the gradient of the outputs in the order of time.
    fn backward(&mut self, order: &Order, values: &[f32], d: Vec<f32>, gradients: &mut [f32]) {
        let (inputs, hidden, n) = (self.inputs, self.hidden, self.h.len() / self.hidden);
        let weight = Matrix::new(&values[self.weight_hh.clone()], 4 * hidden, hidden);
        // The gradients of the outputs and of the states from later steps.
        let most = order.active.first().copied().unwrap_or(0);
        let (mut d_h, mut d_c) = (vec![0.0; most * hidden], vec![0.0; most * hidden]);
        let mut end = n;
        for (time, &active) in order.active.iter().enumerate().rev() {
            let start = end - active;
            let before = time.checked_sub(1).map(|time| start - order.active[time]);
            let gates = &mut self.gates[start * 4 * hidden..end * 4 * hidden];
            let c = &self.c;
            gates
                .par_chunks_exact_mut(4 * hidden)
                .zip(d_h.par_chunks_exact(hidden))
                .zip(d_c.par_chunks_exact_mut(hidden))
                .enumerate()
                .for_each(|(k, ((gates, d_h), d_c))| {
                    let at = |first: usize| (first + k) * hidden..(first + k + 1) * hidden;
                    let old = before.map(|before| &c[at(before)]);
                    step_backward(gates, &c[at(start)], old, (&d[at(start)], d_h), d_c);
                });
            let gates = Matrix::new(gates, active, 4 * hidden);
            multiply(&mut d_h[..active * hidden], active, Output::Overwrite, gates, weight);
            end = start;
        }

        let d_gates = Matrix::new(&self.gates, n, 4 * hidden);
        let x = Matrix::new(&self.x, n, inputs);
        let d_weight = &mut gradients[self.weight_ih.clone()];
        multiply(d_weight, 4 * hidden, Output::Accumulate, d_gates.t(), x);
        // The previous outputs of each step are the outputs of the step before.
        let mut old = vec![0.0; most * hidden];
        let mut start = 0;
        for pair in order.active.windows(2) {
            old.extend(&self.h[start * hidden..][..pair[1] * hidden]);
            start += pair[0];
        }
        let old = Matrix::new(&old, n, hidden);
        let d_weight = &mut gradients[self.weight_hh.clone()];
        multiply(d_weight, 4 * hidden, Output::Accumulate, d_gates.t(), old);
        for bias in &self.biases {
            let d_bias = &mut gradients[bias.clone()];
            for gates in self.gates.chunks_exact(4 * hidden) {
                for (sum, d) in d_bias.iter_mut().zip(gates) {
                    *sum += d;
                }
            }
        }
    }

    /// Adds the gradient of the inputs to `into`, whose rows are in the order of the batch.
    fn add_input_gradient(&self, values: &[f32], rows: &[usize], into: &mut [f32]) {
        let (inputs, hidden, n) = (self.inputs, self.hidden, rows.len());
        let weight = Matrix::new(&values[self.weight_ih.clone()], 4 * hidden, inputs);
        let mut d = vec![0.0; n * inputs];
        let gates = Matrix::new(&self.gates, n, 4 * hidden);
        multiply(&mut d, n, Output::Overwrite, gates, weight);
        for (row, d) in rows.iter().zip(d.chunks_exact(inputs)) {
            for (sum, d) in into[row * inputs..][..inputs].iter_mut().zip(d) {
                *sum += d;
            }
        }
    }
}

/// Computes `c = a b` or `c += a b`; `c` has `rows` rows.
fn multiply(c: &mut [f32], rows: usize, output: Output, a: Matrix<'_>, b: Matrix<'_>) {
    let columns = c.len() / rows.max(1);
    let c = MatrixMut::new(c, rows, columns);
    product(c, output, 1.0, a, b, Threads::All, Precision::F32);
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// Computes a time step of one sequence: activates the gates in place and writes the state `c` and the output `h`.
fn step(gates: &mut [f32], old: Option<&[f32]>, c: &mut [f32], h: &mut [f32]) {
    let hidden = h.len();
    let (ifs, rest) = gates.split_at_mut(2 * hidden);
    let (g, o) = rest.split_at_mut(hidden);
    let (i, f) = ifs.split_at_mut(hidden);
    for k in 0..hidden {
        (i[k], f[k], o[k]) = (sigmoid(i[k]), sigmoid(f[k]), sigmoid(o[k]));
        g[k] = g[k].tanh();
        c[k] = i[k] * g[k] + old.map_or(0.0, |old| f[k] * old[k]);
        h[k] = o[k] * c[k].tanh();
    }
}

/// Replaces the gates of a step by the gradients before their activation. `d_h` is the gradient of the output, from
/// above and from the next step; `d_c` is the gradient of the state, which becomes that of the previous state.
fn step_backward(
    gates: &mut [f32],
    c: &[f32],
    old: Option<&[f32]>,
    d_h: (&[f32], &[f32]),
    d_c: &mut [f32],
) {
    let hidden = c.len();
    let (ifs, rest) = gates.split_at_mut(2 * hidden);
    let (g, o) = rest.split_at_mut(hidden);
    let (i, f) = ifs.split_at_mut(hidden);
    for k in 0..hidden {
        let d_h = d_h.0[k] + d_h.1[k];
        let tanh = c[k].tanh();
        let d = d_c[k] + d_h * o[k] * (1.0 - tanh * tanh);
        d_c[k] = d * f[k];
        o[k] = d_h * tanh * o[k] * (1.0 - o[k]);
        f[k] = d * old.map_or(0.0, |old| old[k]) * f[k] * (1.0 - f[k]);
        let input = i[k];
        i[k] = d * g[k] * input * (1.0 - input);
        g[k] = d * input * (1.0 - g[k] * g[k]);
    }
}
