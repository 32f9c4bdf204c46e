//! Dropout without stored masks: forward and backward draw the same numbers again.
//!
//! The numbers are those of [`crate::model::Dropout`], so that this engine drops what the reference
//! drops.

use crate::data::Packed;
use crate::model::{Dropout, threshold};
use crate::random::{Site, Stream};

/// Which example and position each row of a batch is.
#[derive(Debug, Default)]
pub struct Rows {
    examples: Vec<u64>,
    positions: Vec<u32>,
}

impl Rows {
    /// Takes the rows of a batch; keeps its memory for the next.
    pub fn set(&mut self, batch: &Packed) {
        self.positions.clone_from(&batch.positions);
        self.examples.clear();
        for (range, &example) in batch.ranges().zip(&batch.examples) {
            self.examples.extend(range.map(|_| example));
        }
    }
}

/// The dropout of one site in one step.
#[derive(Debug, Clone, Copy)]
pub struct Mask {
    dropout: Dropout,
    site: Site,
    threshold: u32,
    /// What a kept value is multiplied by: 1 / (1 - p).
    kept: f32,
}

impl Mask {
    /// None where nothing is dropped.
    pub fn new(dropout: Option<Dropout>, site: Site, p: f64) -> Option<Self> {
        let dropout = dropout?;
        (p > 0.0).then(|| Self {
            dropout,
            site,
            threshold: threshold(p),
            kept: (1.0 / (1.0 - p)) as f32,
        })
    }

    /// Drops values of row `row` of the batch, which is `values.len()` wide.
    #[inline(always)]
    pub fn apply_to_row(&self, rows: &Rows, row: usize, values: &mut [f32]) {
        let offset = rows.positions[row] * values.len() as u32;
        self.apply(rows.examples[row], offset, values);
    }

    /// Drops values: element `offset + i` of the example's stream decides over `values[i]`.
    #[inline(always)]
    pub fn apply(&self, example: u64, offset: u32, values: &mut [f32]) {
        let stream = Stream::new(self.dropout.seed, self.dropout.step, self.site, example);
        let mut done = 0;
        while done < values.len() {
            let element = offset as usize + done;
            let draws = stream.group((element / 64) as u32);
            let draws = &draws[element % 64..];
            let n = draws.len().min(values.len() - done);
            for (value, &draw) in values[done..done + n].iter_mut().zip(draws) {
                let factor = if draw < self.threshold {
                    0.0
                } else {
                    self.kept
                };
                *value *= factor;
            }
            done += n;
        }
    }
}
