//! The update: global norm, clipping and the optimizer on the device.

use crate::engine::LossScale;
use crate::engine::optimizer::{Rule, Update};
use crate::error::{Error, Result};

use super::device::{Address, Device, Element};
use super::kernels::{Chunks, Parameters, Step, adamw, lamb, squares_partials, sum_of_squares};
use super::state::{State, download};
use crate::bytes::bytes_of;

/// The device buffers of an update.
pub struct Updater {
    chunks: Chunks,
    chunks_at: Address,
    step: Address,
    squares: Address,
    squares_partials: Address,
    lamb_partials: Address,
    /// In f16 only.
    loss_scale: Option<LossScale>,
}

impl Updater {
    pub fn new(device: &mut dyn Device, state: &State) -> Result<Self> {
        let chunks = Chunks::of(state.offsets.iter());
        let sizes = [
            4 * chunks.words().len() as u64,
            Step::BYTES as u64,
            8,
            squares_partials(),
            chunks.partials(),
        ];
        let total = sizes.map(|size| size.next_multiple_of(256)).iter().sum();
        let mut at = device.allocate(total)?;
        let [chunks_at, step, squares, squares_partials, lamb_partials] = sizes.map(|size| {
            let place = at;
            at = at.offset(size.next_multiple_of(256));
            place
        });
        device.upload(chunks_at, bytes_of(chunks.words()))?;
        Ok(Self {
            chunks,
            chunks_at,
            step,
            squares,
            squares_partials,
            lamb_partials,
            loss_scale: (state.element == Element::F16).then(LossScale::default),
        })
    }

    /// Releases the memory.
    pub fn release(&self, device: &mut dyn Device) {
        device.release(self.chunks_at);
    }

    /// Returns the factor of losses.
    pub fn scale(&self) -> f64 {
        self.loss_scale.as_ref().map_or(1.0, LossScale::scale)
    }

    /// See [`Engine::loss_scale`](crate::engine::Engine::loss_scale).
    pub fn loss_scale(&self) -> Option<&LossScale> {
        self.loss_scale.as_ref()
    }

    /// Continues with another run's scale, if this engine has one.
    pub fn set_loss_scale(&mut self, scale: LossScale) {
        self.loss_scale = self.loss_scale.take().map(|_| scale);
    }

    /// Clips, updates, zeroes the gradients; returns their norm before clipping.
    pub fn update(
        &mut self,
        device: &mut dyn Device,
        state: &State,
        update: &Update,
    ) -> Result<f64> {
        let rule = update.optimizer.rule;
        if rule == Rule::Muon {
            let why = "--optimizer muon: the GPU's engine has AdamW and LAMB only; give one of these, or --backend cpu";
            return Err(Error::Usage(why.to_owned()));
        }
        let scale = self.scale();
        device.upload(self.step, &Step::new(update, scale).bytes())?;
        let (element, count) = (state.element, state.offsets.total() as u64);
        let partials = self.squares_partials;
        sum_of_squares(device, element, count, state.gradients, partials, self.squares)?;
        let squares: Vec<f64> = download(device, self.squares, 1)?;
        // The device updates the parameters while the caller prepares the next batch.
        self.launch(device, state, rule)?;
        let norm = squares[0].sqrt() / scale;
        if !norm.is_finite() {
            // The kernels zero the gradients of parameters. Those of padding may be no numbers either.
            state.clear_gradients(device)?;
        }
        if let Some(scale) = &mut self.loss_scale {
            scale.take(norm);
        }
        Ok(norm)
    }

    fn launch(&self, device: &mut dyn Device, state: &State, rule: Rule) -> Result<()> {
        let element = state.element;
        let parameters = Parameters {
            chunks: &self.chunks,
            chunks_at: self.chunks_at,
            step: self.step,
            squares: self.squares,
            values: state.values,
            gradients: state.gradients,
            first: state.first,
            second: state.second,
            copy: match element {
                Element::F32 => Address::NONE,
                Element::Bf16 | Element::F16 => state.weights,
            },
        };
        if rule == Rule::Lamb {
            return lamb(device, element, &parameters, self.lamb_partials);
        }
        adamw(device, element, &parameters)
    }
}
