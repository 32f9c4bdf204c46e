//! Compares attention with its definition, in f64.

use super::*;
use crate::engine::cpu::dropout::Rows;
use crate::model::Dropout;
use crate::random::Site;

/// Lengths of sequences: less than a block, one, and more; Miri takes too long for these.
const LENGTHS: &[usize] = if cfg!(miri) { &[1, 2, 5] } else { &[1, 5, 128, 131] };
const COUNT: usize = 2;
const SIZE: usize = 3;
const HIDDEN: usize = COUNT * SIZE;

fn values(n: usize, seed: f32) -> Vec<f32> {
    (0..n).map(|i| ((i as f32 + seed) * 0.73).sin()).collect()
}

fn batch(lengths: &[usize]) -> Packed {
    let mut batch = Packed::default();
    for (example, &length) in lengths.iter().enumerate() {
        batch.push(example as u64, &vec![0; length], &vec![0; length]);
    }
    batch
}

/// Computes one head's context of one row.
fn exact(qkv: &[f32], rows: Range<usize>, row: usize, head: usize, causal: bool) -> Vec<f64> {
    let part = |which: usize, row: usize| {
        let start = row * 3 * HIDDEN + which * HIDDEN + head * SIZE;
        qkv[start..start + SIZE].iter().map(|&x| f64::from(x))
    };
    let seen = if causal { rows.start..row + 1 } else { rows };
    let weights: Vec<f64> = (seen.clone())
        .map(|key| {
            let product: f64 = part(0, row).zip(part(1, key)).map(|(q, k)| q * k).sum();
            (product / (SIZE as f64).sqrt()).exp()
        })
        .collect();
    let total: f64 = weights.iter().sum();
    let mut context = vec![0.0; SIZE];
    for (key, weight) in seen.zip(weights) {
        context.iter_mut().zip(part(2, key)).for_each(|(sum, v)| *sum += weight / total * v);
    }
    context
}

#[test]
fn values_and_gradients_are_those_of_the_definition() {
    let batch = batch(LENGTHS);
    let rows = batch.rows();
    let (qkv, d_context) = (values(rows * 3 * HIDDEN, 1.0), values(rows * HIDDEN, 2.0));
    for causal in [false, true] {
        let (count, size) = (COUNT, SIZE);
        let heads = Heads { count, size, causal, dropout: None, precision: Precision::F32 };
        let exact = |qkv: &[f32], sequence: usize, row: usize, head: usize| {
            exact(qkv, batch.rows_of(sequence), row, head, causal)
        };
        let (mut context, mut log_sums) = (vec![f32::NAN; rows * HIDDEN], vec![0.0; rows * COUNT]);
        let (simd, scratch) = (Simd::detect(), &mut Scratch::default());
        let queries = Queries { batch: &batch, selection: None };
        heads.forward(simd, queries, &qkv, &mut context, &mut log_sums, scratch);
        let mut d_qkv = vec![f32::NAN; qkv.len()];
        heads.backward(simd, queries, &qkv, &log_sums, &context, &d_context, &mut d_qkv, scratch);
        for sequence in 0..batch.sequences() {
            let loss = |qkv: &[f32]| -> f64 {
                let places =
                    batch.rows_of(sequence).flat_map(|row| (0..COUNT).map(move |head| (row, head)));
                let terms = places.map(|(row, head)| {
                    let above = &d_context[row * HIDDEN + head * SIZE..];
                    let context = exact(qkv, sequence, row, head);
                    context.iter().zip(above).map(|(c, &d)| c * f64::from(d)).sum::<f64>()
                });
                terms.sum()
            };
            for row in batch.rows_of(sequence) {
                for head in 0..COUNT {
                    let expected = exact(&qkv, sequence, row, head);
                    let got = &context[row * HIDDEN + head * SIZE..][..SIZE];
                    for (got, expected) in got.iter().zip(expected) {
                        assert!(
                            (f64::from(*got) - expected).abs() < 1e-5,
                            "{sequence} {row} {head}"
                        );
                    }
                }
            }
            // One value of each kind in the first and the last row.
            let last = batch.rows_of(sequence).end - 1;
            for row in [batch.rows_of(sequence).start, last] {
                for at in (1..3 * HIDDEN).step_by(HIDDEN - 1) {
                    let at = row * 3 * HIDDEN + at;
                    // A step that f32 represents exactly.
                    let moved = |by: f32| {
                        let mut qkv = qkv.clone();
                        qkv[at] += by;
                        (loss(&qkv), f64::from(qkv[at]))
                    };
                    let ((up, above), (down, below)) = (moved(1.0 / 64.0), moved(-1.0 / 64.0));
                    let slope = (up - down) / (above - below);
                    let error = (f64::from(d_qkv[at]) - slope).abs();
                    assert!(
                        error < 1e-3 * slope.abs().max(1.0),
                        "{sequence} {row}: {} {slope}",
                        d_qkv[at]
                    );
                }
            }
        }
    }
}

#[test]
fn selected_queries_have_the_values_and_gradients_that_they_have_among_all() {
    // One row, all rows, none, and more than a block of a longer sequence.
    let lengths: [usize; 4] = if cfg!(miri) { [2, 3, 5, 4] } else { [2, 5, 128, 200] };
    let batch = batch(&lengths);
    let rows = batch.rows();
    let (whole, skipped) = (batch.rows_of(1), batch.rows_of(2));
    let indices: Vec<u32> = (0..rows)
        .filter(|row| whole.contains(row) || row % 3 != 1)
        .filter(|row| !skipped.contains(row))
        .map(|row| row as u32)
        .collect();
    let (mut all, mut selection) = (Rows::default(), Selection::default());
    all.set(&batch);
    selection.set(indices.iter().copied(), rows);
    selection.find(&all);
    assert!(selection.get().is_some());
    let n = indices.len();
    let qkv = values(rows * 3 * HIDDEN, 1.0);
    let d_selected = values(n * HIDDEN, 2.0);
    let mut d_context = vec![0.0; rows * HIDDEN];
    selection.put(&d_selected, HIDDEN, &mut d_context);
    let dropout = Dropout { seed: 1, step: 2 };
    let mask = Mask::new(Some(dropout), Site::AttentionDropout(0), 0.2);
    for (causal, dropout) in [(false, None), (true, None), (false, mask), (true, mask)] {
        let (count, size) = (COUNT, SIZE);
        let heads = Heads { count, size, causal, dropout, precision: Precision::F32 };
        let run = |selection: Option<&Selection>, n: usize, d_context: &[f32]| {
            let queries = Queries { batch: &batch, selection };
            let (simd, scratch) = (Simd::detect(), &mut Scratch::default());
            let (mut context, mut log_sums) = (vec![f32::NAN; n * HIDDEN], vec![0.0; n * COUNT]);
            heads.forward(simd, queries, &qkv, &mut context, &mut log_sums, scratch);
            let mut d = vec![f32::NAN; qkv.len()];
            heads.backward(simd, queries, &qkv, &log_sums, &context, d_context, &mut d, scratch);
            (context, d)
        };
        let (expected, d_expected) = run(None, rows, &d_context);
        let (context, d_qkv) = run(Some(&selection), n, &d_selected);
        let mut picked = vec![0.0; n * HIDDEN];
        selection.pick(&expected, HIDDEN, &mut picked);
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(close(&context, &picked), "causal: {causal}");
        assert!(close(&d_qkv, &d_expected), "causal: {causal}");
    }
}
