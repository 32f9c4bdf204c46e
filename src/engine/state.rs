//! What an engine in main memory owns between steps: flat buffers laid out by the declaration.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::model::Layout;
use crate::train::optimizer::{Moments, Update};

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
        if values.len() != layout.total() {
            return Err(Error::Failed(format!(
                "{} parameter values were given where the configuration has {}",
                values.len(),
                layout.total()
            )));
        }
        Ok(Self {
            layout: layout.clone(),
            gradients: vec![0.0; values.len()],
            moments: Moments::zeros(values.len()),
            partials: Vec::new(),
            values,
        })
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
