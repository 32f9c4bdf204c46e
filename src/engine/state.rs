//! What an engine in main memory owns between steps: flat buffers laid out by the declaration.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::optimizer::{Moments, Update};
use crate::error::{Error, Result};
use crate::model::Layout;

/// Fails where there are not as many values as parameters.
pub(super) fn fits(values: &[f32], parameters: usize) -> Result<()> {
    if values.len() == parameters {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{} values were given where the configuration has {parameters} parameters",
        values.len()
    )))
}

/// What a checkpoint keeps of an engine: borrowed where it lies in main memory.
pub struct Snapshot<'a> {
    pub parameters: Cow<'a, [f32]>,
    pub moments: Cow<'a, Moments>,
}

/// Parameters, the gradients that wait for an update, and the optimizer's moments.
pub struct State {
    pub layout: Arc<Layout>,
    pub values: Vec<f32>,
    pub gradients: Vec<f32>,
    pub moments: Moments,
    partials: Vec<f64>,
}

impl State {
    /// A fresh state with these parameters; fails where their number is not the layout's.
    pub fn new(layout: &Arc<Layout>, values: Vec<f32>) -> Result<Self> {
        fits(&values, layout.total())?;
        Ok(Self {
            layout: layout.clone(),
            gradients: vec![0.0; values.len()],
            moments: Moments::zeros(values.len()),
            partials: Vec::new(),
            values,
        })
    }

    /// What a checkpoint keeps.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            parameters: Cow::Borrowed(&self.values),
            moments: Cow::Borrowed(&self.moments),
        }
    }

    /// Takes other parameters; fails where their number is not the layout's.
    pub fn set_values(&mut self, values: &[f32]) -> Result<()> {
        fits(values, self.layout.total())?;
        self.values.copy_from_slice(values);
        Ok(())
    }

    /// Takes other moments; fails where their number is not that of the parameters.
    pub fn set_moments(&mut self, moments: Moments) -> Result<()> {
        fits(&moments.first, self.layout.total())?;
        fits(&moments.second, self.layout.total())?;
        self.moments = moments;
        Ok(())
    }

    /// Adds gradients to those that wait.
    pub fn add(&mut self, gradients: &[f32]) {
        for (sum, g) in self.gradients.iter_mut().zip(gradients) {
            *sum += g;
        }
    }

    /// Clips, updates, zeroes the gradients; returns their norm before clipping.
    pub fn update(&mut self, update: &Update) -> f64 {
        update.apply(
            &self.layout,
            &mut self.values,
            &mut self.gradients,
            &mut self.moments,
            &mut self.partials,
        )
    }
}
