//! The update: global norm, clipping and the optimizer on the device, and the scale of the loss in
//! f16.

use crate::error::Result;
use crate::train::optimizer::{Rule, Update};

use super::device::{Address, Device, Element};
use super::graphs::{Graphs, Key, Work};
use super::kernels::{Chunks, Parameters, Step, adamw, lamb, squares_partials, sum_of_squares};
use super::state::{State, bytes_of, download};

/// The dynamic scale of the loss in f16: gradients too small for the format are multiplied into its
/// range, and divided again where they are used. It is halved when they leave the range at the other
/// end, and doubled when they did not for long.
///
/// Source: NVIDIA's "Training with mixed precision" and PyTorch's `GradScaler`, after Micikevicius et
/// al., arXiv 1710.03740.
#[derive(Debug, Clone, PartialEq)]
pub struct LossScale {
    scale: f64,
    /// Good updates since the scale was changed.
    good: u32,
    overflow: Option<String>,
}

impl LossScale {
    const FIRST: f64 = 65536.0;
    const LARGEST: f64 = 16_777_216.0;
    /// Good updates before it is doubled.
    const PATIENCE: u32 = 2000;

    fn new() -> Self {
        Self {
            scale: Self::FIRST,
            good: 0,
            overflow: None,
        }
    }

    /// Takes an update with gradients of norm `norm` into account.
    fn take(&mut self, norm: f64) {
        self.overflow = None;
        if norm.is_finite() {
            self.good += 1;
            if self.good == Self::PATIENCE {
                self.good = 0;
                self.scale = (2.0 * self.scale).min(Self::LARGEST);
            }
        } else {
            self.good = 0;
            // At 1 the gradients themselves are no numbers.
            if self.scale > 1.0 {
                let old = self.scale;
                self.scale = old / 2.0;
                self.overflow = Some(format!(
                    "gradients left the range of f16 at a loss scale of {old}; now it is {}",
                    self.scale
                ));
            }
        }
    }
}

/// What an update needs on the device.
pub struct Updater {
    chunks: Chunks,
    chunks_at: Address,
    step: Address,
    squares: Address,
    squares_partials: Address,
    lamb_partials: Address,
    scale: Option<LossScale>,
}

impl Updater {
    pub fn new(device: &mut dyn Device, state: &State) -> Result<Self> {
        let chunks = Chunks::of(state.places.iter());
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
            scale: (state.element == Element::F16).then(LossScale::new),
        })
    }

    /// Gives the memory back.
    pub fn release(&self, device: &mut dyn Device) {
        device.release(self.chunks_at);
    }

    /// What losses are multiplied by before their gradients are taken.
    pub fn scale(&self) -> f64 {
        self.scale.as_ref().map_or(1.0, |scale| scale.scale)
    }

    /// See [`Engine::overflow`](crate::engine::Engine::overflow).
    pub fn overflow(&self) -> Option<&str> {
        self.scale.as_ref()?.overflow.as_deref()
    }

    /// Clips, updates, zeroes the gradients; returns their norm before clipping.
    pub fn update(
        &mut self,
        device: &mut dyn Device,
        graphs: &mut Graphs,
        state: &State,
        update: &Update,
    ) -> Result<f64> {
        let scale = self.scale();
        device.upload(self.step, &Step::new(update, scale).bytes())?;
        let rule = update.optimizer.rule;
        let key = Key {
            work: Work::Update,
            sizes: [0; 5],
            numbers: [u32::from(rule == Rule::Lamb), 0, 0, 0],
        };
        let launches = |device: &mut dyn Device| self.launch(device, state, rule);
        graphs.run(device, key, launches)?;
        let squares: Vec<f64> = download(device, self.squares, 1)?;
        let norm = squares[0].sqrt() / scale;
        if let Some(scale) = &mut self.scale {
            scale.take(norm);
        }
        Ok(norm)
    }

    fn launch(&self, device: &mut dyn Device, state: &State, rule: Rule) -> Result<()> {
        let count = state.places.total() as u64;
        let partials = self.squares_partials;
        let element = state.element;
        sum_of_squares(
            device,
            element,
            count,
            state.gradients,
            partials,
            self.squares,
        )?;
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
        match rule {
            Rule::Adamw => adamw(device, element, &parameters),
            Rule::Lamb => lamb(device, element, &parameters, self.lamb_partials),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_follows_what_the_gradients_allow() {
        let mut scale = LossScale::new();
        scale.take(f64::INFINITY);
        assert_eq!((scale.scale, scale.good), (32768.0, 0));
        assert!(scale.overflow.as_ref().unwrap().contains("now it is 32768"));
        for _ in 0..LossScale::PATIENCE - 1 {
            scale.take(1.0);
        }
        assert_eq!((scale.scale, scale.overflow.clone()), (32768.0, None));
        scale.take(1.0);
        assert_eq!((scale.scale, scale.good), (65536.0, 0));
        for _ in 0..16 {
            scale.take(f64::NAN);
        }
        assert_eq!(scale.scale, 1.0);
        // Nothing is left to be halved: the run itself is at fault.
        scale.take(f64::NAN);
        assert_eq!((scale.scale, scale.overflow), (1.0, None));
    }
}
