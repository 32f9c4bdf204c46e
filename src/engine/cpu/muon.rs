//! Muon on the CPU: a weight matrix moves along its gradients' running mean, whose singular values are first brought
//! near one, so that no direction dominates the update.
//!
//! Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks",
//! <https://kellerjordan.github.io/posts/muon>, for the iteration and its constants; Liu et al., "Muon is scalable for
//! LLM training", arXiv 2502.16982, section 2.2, for weight decay and the size of the updates, which suits AdamW's
//! learning rates.

use std::cell::RefCell;

use super::gemm::{Matrix, MatrixMut, Output, Threads, product};
use crate::engine::Precision;
use crate::engine::optimizer::Update;
use crate::engine::simd::{Simd, squares};
use crate::model::{Layout, Parameter};

/// How much of the running mean each step keeps.
const MOMENTUM: f32 = 0.95;
/// Steps of the iteration, and the coefficients of x, x³ and x⁵ for a singular value x.
const ITERATIONS: usize = 5;
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];
/// The root mean square of an update's entries, as AdamW's have it.
const SIZE: f64 = 0.2;

/// Returns whether Muon updates a parameter: the matrices of the encoder's layers. AdamW updates the others.
pub fn takes(parameter: &Parameter) -> bool {
    parameter.shape.len() == 2 && parameter.name.starts_with("encoder.layer.")
}

/// Returns the bytes of the buffers that the threads keep between steps.
pub fn scratch_bytes(layout: &Layout) -> u64 {
    let taken = layout.parameters().iter().filter(|parameter| takes(parameter)).count();
    let Room { matrix, square } = Room::of(layout);
    (taken.min(rayon::current_num_threads()) * 2 * (matrix + square) * size_of::<f32>()) as u64
}

/// What the updates of all matrices share.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    update: &'a Update,
    clip: f32,
    precision: Precision,
    room: Room,
}

impl<'a> Step<'a> {
    /// A step with the gradients times `clip` and products in `precision`.
    pub fn new(update: &'a Update, clip: f32, layout: &Layout, precision: Precision) -> Self {
        Self { update, clip, precision, room: Room::of(layout) }
    }

    /// Updates the matrices that Muon takes; zeroes their gradients.
    pub fn apply(
        &self,
        layout: &Layout,
        values: &mut [f32],
        gradients: &mut [f32],
        means: &mut [f32],
    ) {
        Weights { parameters: layout.parameters(), values, gradients, means }.update(self);
    }
}

/// The most elements of a matrix, and of the smaller of its products with its transpose.
#[derive(Clone, Copy)]
struct Room {
    matrix: usize,
    square: usize,
}

impl Room {
    fn of(layout: &Layout) -> Self {
        let taken = || layout.parameters().iter().filter(|parameter| takes(parameter));
        let square = |parameter: &Parameter| parameter.shape[0].min(parameter.shape[1]).pow(2);
        Self {
            matrix: taken().map(Parameter::len).max().unwrap_or(0),
            square: taken().map(square).max().unwrap_or(0),
        }
    }
}

/// Parameters in the layout's order with their gradients and these gradients' running means.
struct Weights<'a> {
    parameters: &'a [Parameter],
    values: &'a mut [f32],
    gradients: &'a mut [f32],
    means: &'a mut [f32],
}

impl Weights<'_> {
    /// Updates the matrices among them. One thread computes each, so the bits don't depend on the number of threads.
    fn update(self, step: &Step<'_>) {
        match self.parameters {
            [] => {}
            [parameter] if takes(parameter) => self.update_matrix(parameter, step),
            [_] => {}
            parameters => {
                let (first, second) = parameters.split_at(parameters.len() / 2);
                let at = first.iter().map(Parameter::len).sum();
                let (values, more_values) = self.values.split_at_mut(at);
                let (gradients, more_gradients) = self.gradients.split_at_mut(at);
                let (means, more_means) = self.means.split_at_mut(at);
                let first = Weights { parameters: first, values, gradients, means };
                let second = Weights {
                    parameters: second,
                    values: more_values,
                    gradients: more_gradients,
                    means: more_means,
                };
                // Unlike a list of the matrices, this allocates nothing.
                rayon::join(|| first.update(step), || second.update(step));
            }
        }
    }

    fn update_matrix(self, parameter: &Parameter, step: &Step<'_>) {
        let Step { update, clip, precision, room } = *step;
        SCRATCH.with_borrow_mut(|scratch| {
            let direction = (self.means.iter_mut().zip(self.gradients)).map(|(m, g)| {
                let gradient = std::mem::take(g) * clip;
                *m = MOMENTUM * *m + gradient;
                // Nesterov's momentum.
                gradient + MOMENTUM * *m
            });
            scratch.reserve(room);
            scratch.matrix.extend(direction);
            let (rows, columns) = (parameter.shape[0], parameter.shape[1]);
            scratch.orthogonalise(rows, columns, precision);
            let rate = update.learning_rate * f64::from(parameter.rate);
            let shrink = (1.0 - rate * update.optimizer.weight_decay) as f32;
            let rate = (rate * SIZE * (rows.max(columns) as f64).sqrt()) as f32;
            for (value, direction) in self.values.iter_mut().zip(&scratch.matrix) {
                *value = *value * shrink - rate * direction;
            }
        });
    }
}

/// The buffers of a thread, kept between steps.
#[derive(Default)]
struct Scratch {
    matrix: Vec<f32>,
    next: Vec<f32>,
    gram: Vec<f32>,
    polynomial: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    /// Empties the buffers, and makes them large enough for any matrix of the model.
    fn reserve(&mut self, room: Room) {
        for buffer in [&mut self.matrix, &mut self.next] {
            buffer.clear();
            buffer.reserve_exact(room.matrix);
        }
        for buffer in [&mut self.gram, &mut self.polynomial] {
            buffer.clear();
            buffer.reserve_exact(room.square);
        }
    }

    /// Brings the singular values of the row-major matrix near one (0.7 to 1.2) and keeps its singular vectors; a matrix of
    /// zeros stays as it is.
    fn orthogonalise(&mut self, rows: usize, columns: usize, precision: Precision) {
        let Self { matrix, next, gram, polynomial } = self;
        let [first, third, fifth] = COEFFICIENTS;
        let norm = Simd::detect().run(
            #[inline(always)]
            || squares([matrix], |[x]| x).sqrt(),
        );
        let scale = (1.0 / (norm + 1e-7)) as f32;
        matrix.iter_mut().for_each(|x| *x *= scale);
        let side = rows.min(columns);
        gram.resize(side * side, 0.0);
        polynomial.resize(side * side, 0.0);
        for _ in 0..ITERATIONS {
            let x = Matrix::new(matrix, rows, columns);
            // The smaller of the two products of the matrix with its transpose.
            let (left, right) = if rows <= columns { (x, x.t()) } else { (x.t(), x) };
            let multiply = |c: &mut [f32], (rows, columns), output, factor, a, b| {
                let c = MatrixMut::new(c, rows, columns);
                product(c, output, factor, a, b, Threads::One, precision);
            };
            multiply(gram, (side, side), Output::Overwrite, 1.0, left, right);
            let square = Matrix::new(gram, side, side);
            multiply(polynomial, (side, side), Output::Overwrite, fifth, square, square);
            polynomial.iter_mut().zip(&*gram).for_each(|(p, g)| *p += third * g);
            let polynomial = Matrix::new(polynomial, side, side);
            let (left, right) = if rows <= columns { (polynomial, x) } else { (x, polynomial) };
            next.clear();
            next.extend(matrix.iter().map(|x| first * x));
            multiply(next, (rows, columns), Output::Accumulate, 1.0, left, right);
            std::mem::swap(matrix, next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::optimizer::{Moments, Optimizer, Rule};
    use crate::model::{Config, Part};

    fn values(n: usize, seed: f32) -> Vec<f32> {
        (0..n).map(|i| ((i as f32 + seed) * 0.73).sin()).collect()
    }

    /// `a b` for row-major matrices of n×k and k×m, in f64.
    fn times(a: &[f64], b: &[f64], (n, k, m): (usize, usize, usize)) -> Vec<f64> {
        let entry = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * m + j]).sum();
        (0..n * m).map(|at| entry(at / m, at % m)).collect()
    }

    fn transposed(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
        (0..a.len()).map(|at| a[at % rows * columns + at / rows]).collect()
    }

    /// The iteration as Jordan et al. write it, in f64: on the transposed matrix if it is tall.
    fn exact(matrix: &[f32], rows: usize, columns: usize) -> Vec<f64> {
        let mut x: Vec<f64> = matrix.iter().map(|&x| f64::from(x)).collect();
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt() + 1e-7;
        x.iter_mut().for_each(|x| *x /= norm);
        if rows > columns {
            x = transposed(&x, rows, columns);
        }
        let (n, m) = (rows.min(columns), rows.max(columns));
        for _ in 0..ITERATIONS {
            let a = times(&x, &transposed(&x, n, m), (n, m, n));
            let square = times(&a, &a, (n, n, n));
            let b: Vec<f64> =
                a.iter().zip(square).map(|(a, square)| -4.775 * a + 2.0315 * square).collect();
            let bx = times(&b, &x, (n, n, m));
            x.iter_mut().zip(bx).for_each(|(x, bx)| *x = 3.4445 * *x + bx);
        }
        if rows > columns { transposed(&x, columns, rows) } else { x }
    }

    #[test]
    fn matrices_of_any_shape_are_brought_near_orthogonal_ones() {
        let sizes = [(1, 1), (3, 5), (5, 3), (16, 16), (17, 33), (40, 9)];
        let precisions = [(Precision::F32, 1e-4), (Precision::Bf16, 0.03)];
        let all = sizes.iter().flat_map(|&size| precisions.map(|precision| (size, precision)));
        for ((rows, columns), (precision, bound)) in all {
            let matrix = values(rows * columns, rows as f32);
            let mut scratch = Scratch { matrix: matrix.clone(), ..Scratch::default() };
            scratch.orthogonalise(rows, columns, precision);
            for (got, expected) in scratch.matrix.iter().zip(exact(&matrix, rows, columns)) {
                let error = (f64::from(*got) - expected).abs();
                assert!(error < bound, "{rows}×{columns}, {precision}: {got} {expected}");
            }
        }
        let mut zeros = Scratch { matrix: vec![0.0; 6], ..Scratch::default() };
        zeros.orthogonalise(2, 3, Precision::F32);
        assert_eq!(zeros.matrix, [0.0; 6]);
    }

    #[test]
    fn layers_matrices_follow_their_mean_and_the_rest_is_adamw_s() {
        let mut config = Config::new(1, 8, 2, 16, 5);
        config.max_position_embeddings = 3;
        let layout = Layout::new(&config, &[Part::Encoder]);
        let start = layout.initialise(1);
        let optimizer = Optimizer { weight_decay: 0.1, ..Optimizer::default() };
        let run = |rule: Rule| {
            let (mut parameters, mut moments) = (start.clone(), Moments::zeros(layout.total()));
            for step in 1..=3 {
                let mut gradients = values(layout.total(), step as f32);
                let optimizer = Optimizer { rule, ..optimizer };
                let max_norm = f64::INFINITY;
                let update = Update { optimizer, learning_rate: 0.01, step, max_norm };
                update.apply(
                    &layout,
                    &mut parameters,
                    &mut gradients,
                    &mut moments,
                    &mut Vec::new(),
                );
                assert!(gradients.iter().all(|&g| g == 0.0));
            }
            parameters
        };
        let (muon, adamw) = (run(Rule::Muon), run(Rule::Adamw));
        let mut taken = 0;
        for (parameter, range) in layout.iter() {
            if !takes(parameter) {
                assert_eq!(muon[range.clone()], adamw[range], "{}", parameter.name);
                continue;
            }
            taken += 1;
            let (rows, columns) = (parameter.shape[0], parameter.shape[1]);
            let mut mean = vec![0.0; range.len()];
            let mut weights: Vec<f64> = start[range.clone()].iter().map(|&x| x.into()).collect();
            for step in 1..=3 {
                let gradients = &values(layout.total(), step as f32)[range.clone()];
                mean.iter_mut().zip(gradients).for_each(|(m, g)| *m = 0.95 * *m + g);
                let ahead: Vec<f32> =
                    mean.iter().zip(gradients).map(|(m, g)| g + 0.95 * m).collect();
                let size = 0.2 * (rows.max(columns) as f64).sqrt();
                for (weight, direction) in weights.iter_mut().zip(exact(&ahead, rows, columns)) {
                    *weight -= 0.01 * (0.1 * *weight + size * direction);
                }
            }
            for (got, expected) in muon[range].iter().zip(weights) {
                let error = (f64::from(*got) - expected).abs();
                assert!(error < 1e-5, "{}: {got} {expected}", parameter.name);
            }
        }
        assert_eq!(taken, 6);
    }
}
