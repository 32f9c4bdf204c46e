//! The launches of a pass: the encoder, the heads' losses, and the backward pass to the embedding
//! tables. Nothing here waits for the device or reads from it, so everything can be recorded.

use crate::engine::{DistillationWeights, LossWeights, Recompute, missing_head};
use crate::error::Result;
use crate::model::{Config, HeadInput};
use crate::random::Site;

use super::activations::{Activations, Scores};
use super::device::{Address, Device};
use super::heads::{self, Head, HeadLoss, Pooler};
use super::kernels::{
    Cosine, EmbeddingBackward, EmbeddingForward, Tables, bias_gradient, cosine, embedding_backward,
    embedding_forward,
};
use super::layer::{Gradients, Layer};
use super::linear::{Linear, NormOffsets};
use super::masked_lm::{self, Loss, MaskedLm};
use super::pass::Pass;
use super::state::Offsets;

/// The offsets of the model's parts in the flat buffers.
pub struct Model {
    words: usize,
    /// Of the first position that the model uses.
    positions: usize,
    /// None if the model has no segments.
    segments: Option<usize>,
    embedding_norm: NormOffsets,
    /// None if the embeddings are as wide as the layers.
    projection: Option<Linear>,
    layers: Vec<Layer>,
    /// See [`Layout::first_trained`](crate::model::Layout::first_trained).
    first_trained: Option<usize>,
    pub masked_lm: Option<MaskedLm>,
    pub next_sentence: Option<Head>,
    pub task: Option<Head>,
    pub pooler: Option<Pooler>,
}

impl Model {
    pub fn find(offsets: &Offsets, config: &Config) -> Self {
        let layers = config.num_hidden_layers;
        let before = config.position_offset() * config.embedding_width();
        let projects = config.projects_embeddings();
        let segmented = config.type_vocab_size > 0;
        let embedding = |name: &str| offsets.find(&format!("embeddings.{name}.weight")).start;
        Self {
            words: embedding("word_embeddings"),
            positions: embedding("position_embeddings") + before,
            segments: segmented.then(|| embedding("token_type_embeddings")),
            embedding_norm: NormOffsets::find(offsets, "embeddings.LayerNorm"),
            projection: projects.then(|| Linear::find(offsets, "embeddings_project")),
            layers: (0..layers).map(|i| Layer::find(offsets, i)).collect(),
            first_trained: offsets.layout().first_trained(),
            masked_lm: MaskedLm::find(offsets),
            next_sentence: Head::next_sentence(offsets),
            task: Head::task(offsets),
            pooler: Pooler::find(offsets),
        }
    }

    pub fn masked_lm(&self) -> Result<&MaskedLm> {
        self.masked_lm.as_ref().ok_or_else(|| missing_head("masked-LM"))
    }

    pub fn next_sentence(&self) -> Result<&Head> {
        let head = self.next_sentence.as_ref();
        head.ok_or_else(|| missing_head("next-sentence"))
    }

    pub fn task(&self) -> Result<&Head> {
        self.task.as_ref().ok_or_else(|| missing_head("task"))
    }

    fn tables(&self, pass: Pass<'_>, at: impl Fn(usize) -> Address) -> Tables {
        Tables {
            words: at(self.words),
            positions: at(self.positions),
            segments: self.segments.map_or(Address::NONE, at),
            segment_entries: pass.config.type_vocab_size as u32,
        }
    }
}

/// A pass over an uploaded batch.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    pub pass: Pass<'a>,
    pub model: &'a Model,
    pub activations: &'a Activations,
    pub recompute: Recompute,
    pub scores: Scores,
    /// Whether other ranks need the gradients.
    pub shared: bool,
}

impl<'a> Run<'a> {
    /// Runs the encoder. `observe` gets the hidden states after the embeddings (0) and after each
    /// layer.
    pub fn encode(
        self,
        device: &mut dyn Device,
        observe: &mut dyn FnMut(&mut dyn Device, usize, Address) -> Result<()>,
    ) -> Result<()> {
        let (pass, a) = (self.pass, self.activations);
        let projection = self.model.projection.as_ref();
        let out = if projection.is_some() { a.embedded } else { a.hidden[0] };
        embedding_forward(
            device,
            pass.element(),
            &EmbeddingForward {
                batch: *pass.batch(),
                width: pass.embedding_width(),
                tables: self.model.tables(pass, |place| pass.value(place)),
                norm: self.model.embedding_norm.of(pass),
                dropout: pass.hidden_dropout(Site::EmbeddingDropout),
                sums: a.embedding_sums,
                statistics: a.embedding_statistics,
                out,
            },
        )?;
        if let Some(projection) = projection {
            let all = (pass.rows(), pass.element());
            let hidden = (a.hidden[0], pass.element());
            projection.forward_with_bias(device, pass, all, a.embedded, hidden)?;
        }
        observe(device, 0, a.hidden[0])?;
        for (index, layer) in self.model.layers.iter().enumerate() {
            let (x, y) = (a.hidden[index], a.hidden[index + 1]);
            layer.forward(device, pass, x, &a.saved[index], y)?;
            observe(device, index + 1, y)?;
        }
        Ok(())
    }

    /// Returns the last layer's hidden states.
    pub fn last(self) -> Address {
        self.activations.hidden[self.model.layers.len()]
    }

    /// Scores the uploaded masked tokens and pairs. With `weights`, also computes the gradients of
    /// the weighted loss down to the embedding tables.
    pub fn pretraining(self, device: &mut dyn Device, weights: Option<LossWeights>) -> Result<()> {
        let (pass, a) = (self.pass, self.activations);
        self.encode(device, &mut |_, _, _| Ok(()))?;
        let d_hidden = match weights {
            Some(_) => Some(self.start(device)?.hidden),
            None => None,
        };
        if let Some(buffers) = &a.masked_lm {
            let loss = Loss::Labels(weights.map_or(0.0, |weights| weights.masked));
            let head = self.model.masked_lm()?;
            head.score(device, pass, self.last(), loss, a.scores, d_hidden, buffers)?;
        }
        if let Some(buffers) = &a.head {
            let head = self.model.next_sentence()?;
            let loss = HeadLoss::Classes(weights.map_or(0.0, |weights| weights.pair));
            let scored = a.scores.offset(self.scores.masked);
            head.score(device, pass, self.last(), loss, scored, buffers)?;
            if let Some(d_hidden) = d_hidden {
                head.backward(device, pass, self.last(), d_hidden, buffers)?;
            }
        }
        match weights {
            Some(_) => self.backward(device),
            None => Ok(()),
        }
    }

    /// Scores masked tokens and hidden states against a teacher's, and computes the gradients of
    /// the weighted loss down to the embedding tables.
    pub fn distillation(self, device: &mut dyn Device, weights: DistillationWeights) -> Result<()> {
        let (pass, a) = (self.pass, self.activations);
        self.encode(device, &mut |_, _, _| Ok(()))?;
        let d_hidden = self.start(device)?.hidden;
        let loss = Cosine {
            n: pass.batch().rows,
            width: pass.width(),
            own: self.last(),
            theirs: a.teacher,
            weight: weights.cosine,
            d_own: d_hidden,
            scored: a.scores.offset(self.scores.masked + self.scores.labels),
        };
        cosine(device, pass.element(), &loss)?;
        if let Some(buffers) = &a.masked_lm {
            let head = self.model.masked_lm()?;
            let loss = Loss::Teacher(weights);
            let d_hidden = Some(d_hidden);
            head.score(device, pass, self.last(), loss, a.scores, d_hidden, buffers)?;
        }
        self.backward(device)
    }

    /// Computes a head's logits into its buffers.
    pub fn logits(self, device: &mut dyn Device, head: &Head) -> Result<()> {
        self.encode(device, &mut |_, _, _| Ok(()))?;
        head.forward(device, self.pass, self.last(), self.head_buffers())
    }

    /// Scores the uploaded labels with the task's head, and computes the gradients of the weighted loss.
    pub fn labelled_task(self, device: &mut dyn Device, head: &Head, loss: HeadLoss) -> Result<()> {
        self.encode(device, &mut |_, _, _| Ok(()))?;
        let scored = self.activations.scores;
        head.score(device, self.pass, self.last(), loss, scored, self.head_buffers())?;
        self.task_backward(device, head)
    }

    /// Runs backward from the gradient of the task's logits in their buffer.
    pub fn task_backward(self, device: &mut dyn Device, head: &Head) -> Result<()> {
        let d_hidden = match head.shape.input {
            HeadInput::Pooled => self.start(device)?.hidden,
            // The head overwrites it.
            HeadInput::Rows => self.gradients().hidden,
        };
        let buffers = self.head_buffers();
        head.backward(device, self.pass, self.last(), d_hidden, buffers)?;
        self.backward(device)
    }

    /// Returns the buffers of the head that the pass was planned with.
    pub fn head_buffers(self) -> &'a heads::Buffers {
        let buffers = self.activations.head.as_ref();
        buffers.expect("the pass was planned with this head")
    }

    /// Returns the buffers of the masked-LM head if the batch has rows for it.
    pub fn masked_lm_buffers(self) -> Option<&'a masked_lm::Buffers> {
        self.activations.masked_lm.as_ref()
    }

    fn gradients(self) -> &'a Gradients {
        let gradients = self.activations.gradients.as_ref();
        gradients.expect("the pass was planned for training")
    }

    /// Returns the gradients' buffers, with zeros for the last hidden states.
    fn start(self, device: &mut dyn Device) -> Result<&'a Gradients> {
        let gradients = self.gradients();
        let numbers = (self.pass.rows() * self.pass.config.hidden_size) as u64;
        let bytes = numbers * self.pass.element().bytes();
        device.fill(gradients.hidden, 0, bytes)?;
        Ok(gradients)
    }

    /// Computes the gradients of all encoder parameters that are trained from that of the last hidden
    /// states. Marks a point after each layer and at the end if ranks share the work.
    fn backward(self, device: &mut dyn Device) -> Result<()> {
        let layers = self.model.layers.len();
        let trained = layers - self.model.first_trained.unwrap_or(0).min(layers);
        self.layers_backward(device)?;
        // The last points, also those of layers that are not trained.
        match self.shared {
            true => (trained..=layers).try_for_each(|point| device.point(point)),
            false => Ok(()),
        }
    }

    fn layers_backward(self, device: &mut dyn Device) -> Result<()> {
        let (pass, a, d) = (self.pass, self.activations, self.gradients());
        let first = self.model.first_trained;
        for (index, layer) in self.model.layers.iter().enumerate().rev() {
            if Some(index) < first {
                return Ok(());
            }
            let (x, y, saved) = (a.hidden[index], a.hidden[index + 1], &a.saved[index]);
            match self.recompute {
                Recompute::Nothing => {}
                Recompute::Cheap => {
                    // The embeddings' output was stored.
                    if let Some(before) = index.checked_sub(1) {
                        let below = &self.model.layers[before];
                        below.recompute_output(device, pass, &a.saved[before], x)?;
                    }
                    layer.recompute_cheap(device, pass, saved)?;
                }
                Recompute::Layers => layer.forward(device, pass, x, saved, y)?,
            }
            layer.backward(device, pass, x, saved, d)?;
            if self.shared {
                device.point(self.model.layers.len() - 1 - index)?;
            }
        }
        if first.is_some() {
            return Ok(());
        }
        let (d_out, d_sums) = match &self.model.projection {
            None => (d.hidden, d.residual),
            Some(projection) => {
                let (all, h) = ((pass.rows(), pass.element()), pass.width());
                let into = pass.gradient(projection.bias);
                let size = (pass.batch().rows, h, h);
                bias_gradient(device, pass.element(), size, d.hidden, into, d.partials)?;
                projection.add_weight_gradient(device, pass, all, a.embedded, d.hidden)?;
                projection.backward(device, pass, all, d.hidden, d.residual, false)?;
                (d.residual, d.linear)
            }
        };
        let norm = &self.model.embedding_norm;
        embedding_backward(
            device,
            pass.element(),
            &EmbeddingBackward {
                batch: *pass.batch(),
                width: pass.embedding_width(),
                gain: pass.value(norm.weight),
                dropout: pass.hidden_dropout(Site::EmbeddingDropout),
                sums: a.embedding_sums,
                statistics: a.embedding_statistics,
                d_out,
                d_sums,
                gain_gradient: pass.gradient(norm.weight),
                bias_gradient: pass.gradient(norm.bias),
                tables: self.model.tables(pass, |place| pass.gradient(place)),
                partials: d.partials,
            },
        )
    }
}
