//! The flat buffers that an engine in main memory keeps between steps.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::Precision;
use crate::engine::optimizer::{Moments, Update};
use crate::error::{Error, Result};
use crate::model::Layout;

/// Returns an error unless there are as many values as parameters.
pub(super) fn check_count(values: &[f32], parameters: usize) -> Result<()> {
    if values.len() == parameters {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "got {} values, but the configuration has {parameters} parameters",
        values.len()
    )))
}

/// An engine's part of a checkpoint: borrowed from main memory or copied from a device.
pub struct Snapshot<'a> {
    /// The parameters.
    pub parameters: Cow<'a, [f32]>,
    /// The optimizer's moments.
    pub moments: Cow<'a, Moments>,
}

/// Parameters, accumulated gradients and the optimizer's moments.
pub struct State {
    pub layout: Arc<Layout>,
    pub values: Vec<f32>,
    pub gradients: Vec<f32>,
    pub moments: Moments,
    partials: Vec<f64>,
}

impl State {
    /// Creates a state with these parameters; returns an error if their number differs from the
    /// layout's.
    pub fn new(layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        check_count(&values, layout.total())?;
        Ok(Self {
            layout: layout.clone(),
            gradients: vec![0.0; values.len()],
            moments: Moments::zeros(values.len()),
            partials: Vec::new(),
            values,
        })
    }

    /// Borrows parameters and moments.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot { parameters: Cow::Borrowed(&self.values), moments: Cow::Borrowed(&self.moments) }
    }

    /// Replaces the parameters; returns an error if their number differs from the layout's.
    pub fn set_values(&mut self, values: &[f32]) -> Result<()> {
        check_count(values, self.layout.total())?;
        self.values.copy_from_slice(values);
        Ok(())
    }

    /// Replaces the moments; returns an error if their number differs from the layout's.
    pub fn set_moments(&mut self, moments: Moments) -> Result<()> {
        check_count(&moments.first, self.layout.total())?;
        check_count(&moments.second, self.layout.total())?;
        self.moments = moments;
        Ok(())
    }

    /// Accumulates gradients.
    pub fn add(&mut self, gradients: &[f32]) {
        for (sum, g) in self.gradients.iter_mut().zip(gradients) {
            *sum += g;
        }
    }

    /// Clips, updates, zeroes the gradients; returns their norm before clipping. Products are computed in `precision`.
    pub fn update(&mut self, update: &Update, precision: Precision) -> f64 {
        update.apply_in(
            precision,
            &self.layout,
            &mut self.values,
            &mut self.gradients,
            &mut self.moments,
            &mut self.partials,
        )
    }
}
