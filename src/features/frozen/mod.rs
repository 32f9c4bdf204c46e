//! A head on a frozen encoder: the feature-based use of BERT (Devlin et al., section 5.3 and table 7). The head
//! reads vectors of one or several layers. Only the head is trained, so its vectors can be computed once for all
//! epochs.
//!
//! [`Frozen`] is an engine whose only parameters are the head's, so training, measuring and prediction work with
//! it as with any other engine.

mod file;
mod linear;
mod lstm;

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::data::{Packed, Sequences};
use crate::engine::optimizer::{Moments, Update};
use crate::error::{Error, Result};
use crate::features::{self, Settings};
use crate::model::{Config, Dropout, HeadInput, Layout, Part, SequenceAttention};
use crate::random::Site;

use crate::engine::cpu::Mask;
use crate::engine::simd::Simd;
use crate::engine::state::{Snapshot, State};
use crate::engine::{Engine, HiddenStates, Precision, TaskEngine, missing_head};

pub use file::{holds, remove};

use linear::LinearHead;
use lstm::Lstm;

/// The vectors that a head reads, and its layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Without pooling for a head over tokens, with pooling for a head over texts.
    pub vectors: Settings,
    /// Outputs in each direction of a two-layer bidirectional LSTM between the vectors and the linear layer; None
    /// for a linear layer alone.
    #[serde(default)]
    pub lstm: Option<usize>,
}

impl Plan {
    /// Returns the layout of the head's parameters.
    ///
    /// # Errors
    /// If `part` is not a task's head, or does not fit the vectors.
    pub fn layout(&self, config: &Config, part: Part) -> Result<Arc<Layout>> {
        let head = part.task_head().ok_or_else(|| missing_head("task"))?;
        let of_tokens = self.vectors.pool == features::Pool::None;
        if of_tokens != (head.input == HeadInput::Rows) {
            return Err(Error::Usage(String::from(match head.input {
                HeadInput::Rows => "the task's head reads every token: leave them without pooling",
                HeadInput::Pooled => "the task's head reads whole texts: choose a pooling",
            })));
        }
        let width = self.vectors.width(config.hidden_size);
        let parameters = match self.lstm {
            None => linear::declare(config, part, head, width),
            Some(_) if !of_tokens => {
                let message = "an LSTM reads every token, but the task's head reads whole texts";
                return Err(Error::Usage(message.into()));
            }
            Some(hidden) => {
                let mut all = lstm::declare(part, width, hidden);
                all.extend(linear::declare(config, part, head, 2 * hidden));
                all
            }
        };
        Ok(Layout::of(parameters, part))
    }
}

/// The vectors of all sequences of a data set, in their order.
pub type Known = Arc<Vec<Vec<f32>>>;

/// An engine of a frozen encoder and a head.
pub struct Frozen {
    encoder: Box<dyn Engine>,
    plan: Plan,
    lstm: Option<Lstm>,
    head: LinearHead,
    state: State,
    known: Option<Known>,
    width: usize,
    input: HeadInput,
    /// The probability of dropout of a vector's values.
    dropout: f64,
    x: Vec<f32>,
    logits: Vec<f32>,
}

impl Frozen {
    /// Puts a head on `encoder`; `values` returns its parameters for the layout of [`Plan::layout`].
    ///
    /// # Errors
    /// If the head does not fit the vectors.
    pub fn new(
        encoder: Box<dyn Engine>,
        plan: Plan,
        part: Part,
        values: impl FnOnce(&Layout) -> Vec<f32>,
    ) -> Result<Self> {
        let config = encoder.config();
        let layout = plan.layout(config, part)?;
        let head = part.task_head().ok_or_else(|| missing_head("task"))?;
        let values = values(&layout);
        Ok(Self {
            width: plan.vectors.width(config.hidden_size),
            input: head.input,
            dropout: if head.dropout { config.hidden_dropout_prob } else { 0.0 },
            lstm: plan.lstm.map(|_| Lstm::find(&layout)),
            head: LinearHead::find(&layout, head.name),
            state: State::new(&layout, values)?,
            known: None,
            x: Vec::new(),
            logits: Vec::new(),
            encoder,
            plan,
        })
    }

    /// Returns the size in bytes of the vectors of all `sequences`.
    pub fn bytes(config: &Config, plan: &Plan, sequences: &Sequences) -> u64 {
        let rows = match plan.vectors.pool {
            features::Pool::None => sequences.tokens(),
            features::Pool::Mean | features::Pool::Cls => sequences.len(),
        };
        (4 * rows * plan.vectors.width(config.hidden_size)) as u64
    }

    /// Trains on vectors that [`features::embed`] computed before with the plan's settings. Every batch of
    /// [`task_gradients`](TaskEngine::task_gradients) must then consist of the same sequences.
    pub fn with_known(mut self, known: Known) -> Self {
        self.known = Some(known);
        self
    }

    /// Computes the vectors of a batch, or copies the known ones: `self.x`, (sequences or rows, width).
    fn read(&mut self, batch: &Packed, known: Option<&Known>) -> Result<()> {
        self.x.clear();
        let Some(known) = known else {
            let vectors = features::embed_batch(self.encoder.as_mut(), batch, &self.plan.vectors)?;
            self.x.extend(vectors.into_iter().flatten());
            return Ok(());
        };
        for (index, range) in batch.examples.iter().zip(batch.ranges()) {
            let rows = match self.input {
                HeadInput::Pooled => 1,
                HeadInput::Rows => range.len(),
            };
            let vectors = known.get(*index as usize);
            match vectors.filter(|vectors| vectors.len() == rows * self.width) {
                Some(vectors) => self.x.extend(vectors),
                None => {
                    let message = format!("the vectors of sequence {index} were not computed");
                    return Err(Error::Failed(message));
                }
            }
        }
        Ok(())
    }

    /// Applies dropout to the vectors.
    fn drop(&mut self, batch: &Packed, dropout: Dropout) {
        let Some(mask) = Mask::new(Some(dropout), Site::HeadDropout, self.dropout) else {
            return;
        };
        let simd = Simd::detect();
        let rows: Vec<(u64, u32)> = match self.input {
            HeadInput::Pooled => batch.examples.iter().map(|&example| (example, 0)).collect(),
            HeadInput::Rows => batch.examples_and_positions().collect(),
        };
        let width = self.width;
        for (&(example, position), x) in rows.iter().zip(self.x.chunks_exact_mut(width)) {
            simd.run(
                #[inline(always)]
                || mask.apply(simd, example, position * width as u32, x),
            );
        }
    }

    /// Computes the logits of the vectors.
    fn forward(&mut self, batch: &Packed) {
        let values = &self.state.values;
        let x = match &mut self.lstm {
            Some(lstm) => lstm.forward(batch, values, &self.x),
            None => &self.x,
        };
        self.head.forward(values, x, &mut self.logits);
    }

    /// Adds the parameters' gradients, given the gradient of the logits in place of the logits.
    fn backward(&mut self) {
        let (values, gradients) = (&self.state.values, &mut self.state.gradients);
        let x = self.lstm.as_ref().map_or(&self.x[..], Lstm::output);
        self.head.backward(x, &self.logits, gradients);
        if let Some(lstm) = &mut self.lstm {
            let d = self.head.input_gradient(values, &self.logits);
            lstm.backward(values, d, gradients);
        }
    }
}

impl Engine for Frozen {
    fn config(&self) -> &Config {
        self.encoder.config()
    }

    fn layout(&self) -> &Arc<Layout> {
        &self.state.layout
    }

    fn precision(&self) -> Precision {
        self.encoder.precision()
    }

    fn parameters(&self) -> Result<Vec<f32>> {
        Ok(self.state.values.clone())
    }

    fn set_parameters(&mut self, values: &[f32]) -> Result<()> {
        self.state.set_values(values)
    }

    fn moments(&self) -> Result<Moments> {
        Ok(self.state.moments.clone())
    }

    fn set_moments(&mut self, moments: Moments) -> Result<()> {
        self.state.set_moments(moments)
    }

    fn snapshot(&self) -> Result<Snapshot<'_>> {
        Ok(self.state.snapshot())
    }

    fn update(&mut self, update: &Update) -> Result<f64> {
        Ok(self.state.update(update, Precision::F32))
    }

    fn discard(&mut self) -> Result<()> {
        self.state.gradients.fill(0.0);
        Ok(())
    }

    fn gradients(&self) -> Result<Vec<f32>> {
        Ok(self.state.gradients.clone())
    }

    fn inference_tokens(&self) -> usize {
        self.encoder.inference_tokens()
    }

    fn hidden_states(&mut self, batch: &Packed, layers: Range<usize>) -> Result<HiddenStates> {
        self.encoder.hidden_states(batch, layers)
    }

    fn attention(&mut self, batch: &Packed) -> Result<Vec<SequenceAttention>> {
        self.encoder.attention(batch)
    }
}

impl TaskEngine for Frozen {
    fn task_gradients(
        &mut self,
        batch: &Packed,
        dropout: Dropout,
        loss: &mut (dyn FnMut(&mut [f32]) + Send),
    ) -> Result<()> {
        let known = self.known.clone();
        self.read(batch, known.as_ref())?;
        self.drop(batch, dropout);
        self.forward(batch);
        loss(&mut self.logits);
        self.backward();
        Ok(())
    }

    fn task_logits(&mut self, batch: &Packed) -> Result<Vec<f32>> {
        self.read(batch, None)?;
        self.forward(batch);
        Ok(self.logits.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Backend, objective};
    use crate::features::{Combine, Pool};

    fn encoder() -> Box<dyn Engine> {
        let config = Config::new(3, 16, 2, 32, 30);
        let layout = Layout::new(&config, &[Part::Encoder]);
        let values = layout.initialise(1);
        Backend::Cpu.engine(&config, &layout, values).unwrap()
    }

    fn plan(pool: Pool) -> Plan {
        Plan {
            vectors: Settings { layers: 2..=3, combine: Combine::Concat, pool, normalize: false },
            lstm: None,
        }
    }

    fn sequences() -> Sequences {
        let mut sequences = Sequences::default();
        for length in [3, 7, 5] {
            let ids: Vec<u32> = (0..length).map(|i| (i * 7 + length) % 30).collect();
            sequences.push(&[(&ids, 0)]);
        }
        sequences
    }

    fn frozen(part: Part, pool: Pool, lstm: Option<usize>) -> Frozen {
        let plan = Plan { lstm, ..plan(pool) };
        let values = |layout: &Layout| {
            let values = layout.initialise(2);
            // Large enough for every gate to be nonlinear, with biases.
            let bias = |index: usize| (index % 7) as f32 * 0.05 - 0.1;
            let larger = |(index, x): (usize, &f32)| 4.0 * x + bias(index);
            values.iter().enumerate().map(larger).collect()
        };
        Frozen::new(encoder(), plan, part, values).unwrap()
    }

    /// Returns the loss of a batch of sequences 2 and 0; the engine keeps the gradients.
    fn loss(engine: &mut Frozen, rows: usize, classes: usize) -> f64 {
        let labels: Vec<u32> = (0..rows as u32).map(|i| i % classes as u32).collect();
        let dropout = Dropout { seed: 3, step: 4 };
        let mut total = 0.0;
        let batch = sequences().batch(&[2, 0]);
        engine
            .task_gradients(&batch, dropout, &mut |logits| {
                total = objective::cross_entropy(logits, classes, &labels, 1.0).loss;
            })
            .unwrap();
        total
    }

    #[test]
    fn gradients_are_the_slopes_of_the_loss_and_known_vectors_change_nothing() {
        for (part, pool, lstm, rows, parameters) in [
            (Part::TokenClassifier(4), Pool::None, None, 8, 132),
            (Part::SequenceClassifier(4), Pool::Mean, None, 2, 132),
            // Twice 4·6·(32 + 6 + 2), twice 4·6·(12 + 6 + 2), and 4·12 + 4.
            (Part::TokenClassifier(4), Pool::None, Some(6), 8, 2932),
        ] {
            let mut engine = frozen(part, pool, lstm);
            let before = loss(&mut engine, rows, 4);
            let gradients = engine.gradients().unwrap();
            let vectors = features::embed(
                engine.encoder.as_mut(),
                &sequences(),
                &engine.plan.vectors.clone(),
            );
            let mut known = frozen(part, pool, lstm).with_known(Arc::new(vectors.unwrap()));
            assert!((loss(&mut known, rows, 4) - before).abs() < 1e-4);

            let values = engine.parameters().unwrap();
            assert_eq!(values.len(), parameters);
            for index in (0..parameters).step_by(parameters.div_ceil(150)) {
                let mut at = |step: f32| {
                    let mut moved = values.clone();
                    moved[index] += step;
                    engine.set_parameters(&moved).unwrap();
                    loss(&mut engine, rows, 4)
                };
                let slope = (at(1e-2) - at(-1e-2)) / 2e-2;
                let gradient = f64::from(gradients[index]);
                assert!(
                    (slope - gradient).abs() < 2e-3 * (1.0 + slope.abs()),
                    "{lstm:?} {index}: {slope} {gradient}"
                );
            }
        }
    }

    #[test]
    fn a_head_that_does_not_fit_the_vectors_is_an_error() {
        let config = encoder().config().clone();
        let message = |part, pool| plan(pool).layout(&config, part).unwrap_err().to_string();
        assert!(message(Part::TokenClassifier(2), Pool::Mean).contains("reads every token"));
        assert!(message(Part::SequenceClassifier(2), Pool::None).contains("reads whole texts"));
        let plan = Plan { lstm: Some(4), ..plan(Pool::Mean) };
        let refused = plan.layout(&config, Part::SequenceClassifier(2));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("an LSTM reads every token"));
    }
}
