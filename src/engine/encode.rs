//! The CPU engine's encoder as one dfdx operation, so that heads written in dfdx can be trained on
//! it.
//!
//! The output is a tensor whose tape holds one backward operation, which passes its gradient to the
//! engine; the engine then holds the gradients of all its parameters for [`Engine::update`].
//! Neither the hidden states nor their gradient are copied.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dfdx::prelude::*;

use crate::data::Packed;
use crate::error::{Error, Result};
use crate::model::{Dropout, Rows};

use super::{CpuEngine, Engine};

/// An engine that dfdx's tapes can reference. Clones share the engine.
#[derive(Clone)]
pub struct Encoder(Arc<Mutex<CpuEngine>>);

impl Encoder {
    /// Shares `engine`.
    pub fn new(engine: CpuEngine) -> Self {
        Self(Arc::new(Mutex::new(engine)))
    }

    /// Locks the engine for updates, parameters or evaluation.
    pub fn engine(&self) -> MutexGuard<'_, CpuEngine> {
        // A panic leaves incomplete activations, which the next forward pass overwrites.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last hidden states of a batch, one row per token: (rows, H), without a tape.
    pub fn infer<const H: usize>(&self, batch: &Packed) -> Result<Rows<H, f32, Cpu>> {
        let mut engine = self.engine();
        check_width::<H>(&engine)?;
        let hidden = engine.last_hidden(batch, None)?;
        Ok(tensor(hidden, batch))
    }

    /// Returns the last hidden states of a batch for a training step, (rows, H). The backward pass
    /// of their tape adds the gradients of the engine's parameters to the engine's own; it panics
    /// if the engine has run another batch in between.
    pub fn encode<const H: usize>(
        &self,
        batch: &Arc<Packed>,
        dropout: Dropout,
    ) -> Result<Rows<H, f32, Cpu, OwnedTape<f32, Cpu>>> {
        let mut engine = self.engine();
        check_width::<H>(&engine)?;
        let hidden = engine.last_hidden(batch, Some(dropout))?;
        let pass = engine.passes();
        drop(engine);
        let out: Rows<H, f32, Cpu> = tensor(hidden, batch);
        let mut tape = OwnedTape::default();
        let (shared, batch, ghost) = (self.clone(), batch.clone(), out.ghost());
        tape.add_backward_op(move |gradients| {
            let d_hidden = std::mem::take(&mut **gradients.get_or_alloc_mut(&ghost)?);
            let mut engine = shared.engine();
            assert_eq!(
                engine.passes(),
                pass,
                "the engine has run another batch since this one was encoded"
            );
            engine.add_gradients(&batch, dropout, &d_hidden);
            Ok(())
        });
        Ok(out.put_tape(tape))
    }
}

fn check_width<const H: usize>(engine: &CpuEngine) -> Result<()> {
    let hidden = engine.config().hidden_size;
    if hidden == H {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "the hidden states are {hidden} wide, but rows of {H} were asked for"
    )))
}

fn tensor<const H: usize>(hidden: Vec<f32>, batch: &Packed) -> Rows<H, f32, Cpu> {
    Cpu::default().tensor_from_vec(hidden, (batch.rows(), Const::<H>))
}
