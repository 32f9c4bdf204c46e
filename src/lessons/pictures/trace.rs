//! Every number on the way of a text through a model, from its pieces to the loss of a blank.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::data::{Packed, PretrainingBatch};
use crate::engine::optimizer::{Moments, Optimizer, Update};
use crate::engine::{Backend, BertEngine};
use crate::error::{Error, Result};
use crate::eval;
use crate::model::weights::Model;
use crate::model::{Activation, Dropout, Family, Layout, Part, SequenceAttention};
use crate::text::{Encoding, WordPiece};

/// The learning rates that are tried for one step.
const RATES: [f64; 5] = [1e-4, 1e-3, 1e-2, 1e-1, 1.0];

/// The seed of the parameters of an untrained model and of a new head.
const SEED: u64 = 1;

/// The blank of a text, with the text as the model reads it.
pub(super) struct Blank {
    encoding: Encoding,
    packed: Packed,
    row: u32,
}

impl Blank {
    /// Reads a text and finds its first blank.
    ///
    /// # Errors
    /// If it has none.
    pub fn of(wordpiece: &WordPiece, text: &str) -> Result<Self> {
        let encoding = wordpiece.encode_with_special(text);
        let mask = wordpiece.special().mask;
        let Some(row) = encoding.ids.iter().position(|&id| id == mask) else {
            let mask = wordpiece.token(mask).unwrap_or("[MASK]");
            let message = format!("{text:?} has no {mask}: write one where a word is missing");
            return Err(Error::Usage(message));
        };
        let mut packed = Packed::default();
        packed.push(0, &encoding.ids, &vec![0; encoding.len()]);
        Ok(Self { encoding, packed, row: row as u32 })
    }

    /// Returns the batch of this text alone, with the blank's answer.
    fn batch(&self, answer: u32) -> PretrainingBatch {
        PretrainingBatch {
            packed: self.packed.clone(),
            masked_rows: vec![self.row],
            masked_labels: vec![answer],
            next_labels: Vec::new(),
        }
    }
}

/// A model that is followed.
pub(super) struct Traced<'a> {
    model: &'a Model,
    engine: Box<dyn BertEngine>,
}

impl<'a> Traced<'a> {
    /// Prepares a model, which has a masked-LM head and no dropout.
    ///
    /// # Errors
    /// If it is of another kind than BERT.
    pub fn new(model: &'a Model) -> Result<Self> {
        let config = &model.config;
        let bert = config.model_type == Family::Bert && !config.is_decoder;
        if !bert || config.hidden_act != "gelu" || !model.layout.parts().contains(&Part::MaskedLm) {
            return Err(Error::Failed(
                "only a BERT with a masked-LM head and the activation gelu, which reads in both directions, can \
                 be followed"
                    .into(),
            ));
        }
        let engine = Backend::Cpu.engine(config, &model.layout, model.values.clone())?;
        Ok(Self { model, engine })
    }

    /// Returns all numbers for the page. Without an answer, the model's best guess takes its place.
    pub fn numbers(
        &mut self,
        wordpiece: &WordPiece,
        blank: &Blank,
        answer: Option<u32>,
    ) -> Result<Value> {
        let config = &self.model.config;
        let found = self.engine.attention(&blank.packed)?.swap_remove(0);
        let logits = self.engine.masked_lm_logits(&blank.packed, &[blank.row])?;
        let answer = answer.unwrap_or_else(|| eval::best(&logits));
        let layers = (0..config.num_hidden_layers).map(|layer| self.layer(layer, &found));
        let layers = layers.collect::<Result<Vec<_>>>()?;
        let last = &found.hidden[config.num_hidden_layers];
        let row = blank.row as usize * config.hidden_size;
        let dense = self.linear(HEAD_DENSE, &last[row..row + config.hidden_size])?;
        let pooled = self.pooled(&last[..config.hidden_size])?;
        let batch = blank.batch(answer);
        let (norms, steps) = self.steps(&batch)?;
        Ok(json!({
            "tokens": blank.encoding.tokens,
            "ids": blank.encoding.ids,
            "width": config.hidden_size,
            "heads": config.num_attention_heads,
            "inner": config.intermediate_size,
            "epsilon": config.layer_norm_eps,
            "parameters": self.model.layout.total(),
            "blank": blank.row,
            "answer": answer,
            "vocabulary": wordpiece.tokens(),
            "embeddings": self.embeddings(blank)?,
            "layers": layers,
            "head": { "dense": packed(&dense), "norm": self.norm(HEAD_NORM)?, "logits": packed(&logits) },
            "gradients": norms,
            "pooled": pooled,
            "steps": steps,
            "untrained": self.untrained(&batch)?,
        }))
    }

    /// Returns the rows of the three tables for each token, (tokens, width), and the LayerNorm of their sum.
    fn embeddings(&self, blank: &Blank) -> Result<Value> {
        let width = self.model.config.hidden_size;
        let rows = |table: &str, rows: &[u32]| {
            let name = format!("embeddings.{table}_embeddings.weight");
            let table = self.model.parameter(&name)?;
            let rows = rows.iter().flat_map(|&row| &table[row as usize * width..][..width]);
            Ok::<_, Error>(packed(&rows.copied().collect::<Vec<_>>()))
        };
        Ok(json!({
            "word": rows("word", &blank.packed.ids)?,
            "segment": rows("token_type", &blank.packed.segments)?,
            "position": rows("position", &blank.packed.positions)?,
            "norm": self.norm("embeddings.LayerNorm")?,
        }))
    }

    /// Returns what a layer computes for each token: queries, keys and values (heads, tokens, head size),
    /// the output of the attention block, the feed-forward block's inner activations before the GELU,
    /// and its output.
    fn layer(&self, layer: usize, found: &SequenceAttention) -> Result<Value> {
        let name = |rest: &str| format!("encoder.layer.{layer}.{rest}");
        let (x, seen) = (&found.hidden[layer], &found.layers[layer]);
        let (tokens, size) = (found.tokens, found.head_size);
        let projected = self.linear(&name("attention.self.value"), x)?;
        let mut values = Vec::with_capacity(projected.len());
        for head in 0..found.heads {
            let of_head = projected.chunks_exact(found.heads * size);
            values.extend(of_head.flat_map(|row| &row[head * size..][..size]));
        }
        let mut context = vec![0.0; x.len()];
        for (head, values) in values.chunks_exact(tokens * size).enumerate() {
            let weights = found.weights(layer, head).chunks_exact(tokens);
            for (row, weights) in context.chunks_exact_mut(found.heads * size).zip(weights) {
                for (weight, value) in weights.iter().zip(values.chunks_exact(size)) {
                    let row = &mut row[head * size..][..size];
                    row.iter_mut().zip(value).for_each(|(sum, v)| *sum += weight * v);
                }
            }
        }
        let attended = self.linear(&name("attention.output.dense"), &context)?;
        let middle = self.add_and_norm(&name("attention.output.LayerNorm"), &attended, x)?;
        let inner = self.linear(&name("intermediate.dense"), &middle)?;
        let active: Vec<f32> = inner.iter().map(|&x| Activation::Gelu.of(x)).collect();
        let output = self.linear(&name("output.dense"), &active)?;
        Ok(json!({
            "queries": packed(&seen.queries),
            "keys": packed(&seen.keys),
            "values": packed(&values),
            "attended": packed(&attended),
            "middle": self.norm(&name("attention.output.LayerNorm"))?,
            "inner": packed(&inner),
            "output": packed(&output),
            "norm": self.norm(&name("output.LayerNorm"))?,
        }))
    }

    /// Returns `x Wᵀ + b` for each row of `x`.
    fn linear(&self, name: &str, x: &[f32]) -> Result<Vec<f32>> {
        let weight = self.model.parameter(&format!("{name}.weight"))?;
        Ok(linear(weight, self.model.parameter(&format!("{name}.bias"))?, x))
    }

    /// Returns the LayerNorm of `x + skip`, row by row.
    fn add_and_norm(&self, name: &str, x: &[f32], skip: &[f32]) -> Result<Vec<f32>> {
        let weight = self.model.parameter(&format!("{name}.weight"))?;
        let bias = self.model.parameter(&format!("{name}.bias"))?;
        let mut sum: Vec<f32> = x.iter().zip(skip).map(|(x, skip)| x + skip).collect();
        for row in sum.chunks_exact_mut(weight.len()) {
            let mean = row.iter().sum::<f32>() / row.len() as f32;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / row.len() as f32;
            let deviation = (variance + self.model.config.layer_norm_eps as f32).sqrt();
            for ((x, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
                *x = (*x - mean) / deviation * weight + bias;
            }
        }
        Ok(sum)
    }

    /// Returns the factors and the offsets of a LayerNorm.
    fn norm(&self, name: &str) -> Result<Value> {
        let [weight, bias] =
            ["weight", "bias"].map(|part| self.model.parameter(&format!("{name}.{part}")));
        Ok(json!({ "weight": packed(weight?), "bias": packed(bias?) }))
    }

    /// Returns the pooler's output for `[CLS]`, the logits of the next-sentence head, and those of a new head with
    /// two classes; null if the model lacks the pooler or the next-sentence head.
    fn pooled(&self, first: &[f32]) -> Result<Value> {
        if !self.model.layout.parts().contains(&Part::NextSentence) {
            return Ok(Value::Null);
        }
        let pooled: Vec<f32> =
            self.linear("pooler.dense", first)?.into_iter().map(f32::tanh).collect();
        let fresh = Layout::new(&self.model.config, &Part::SequenceClassifier(2).with_encoder());
        let values = fresh.initialise(SEED);
        let [weight, bias] = ["classifier.weight", "classifier.bias"].map(|name| fresh.find(name));
        let new = weight.zip(bias).map(|((_, w), (_, b))| linear(&values[w], &values[b], &pooled));
        Ok(json!({
            "values": packed(&pooled),
            "next": self.linear("cls.seq_relationship", &pooled)?,
            "new": new,
        }))
    }

    /// Returns the length of the gradient in each part of the model, and the loss after one step of AdamW at
    /// several rates.
    fn steps(&mut self, batch: &PretrainingBatch) -> Result<(Vec<Value>, Vec<Value>)> {
        let dropout = Dropout { seed: SEED, step: 1 };
        let mut steps = Vec::new();
        let mut norms = Vec::new();
        for learning_rate in RATES {
            self.engine.set_parameters(&self.model.values)?;
            self.engine.set_moments(Moments::zeros(self.model.values.len()))?;
            self.engine.pretraining_gradients(batch, dropout)?;
            if norms.is_empty() {
                norms = lengths(&self.model.layout, &self.engine.gradients()?);
            }
            let optimizer = Optimizer::default();
            self.engine.update(&Update { optimizer, learning_rate, step: 1, max_norm: 1.0 })?;
            let loss = self.engine.pretraining_scores(batch)?.mean_mlm_loss();
            steps.push(json!({ "rate": learning_rate, "loss": loss }));
        }
        self.engine.set_parameters(&self.model.values)?;
        Ok((norms, steps))
    }

    /// Returns the logits of the blank of a model of the same size with random parameters.
    fn untrained(&mut self, batch: &PretrainingBatch) -> Result<String> {
        self.engine.set_parameters(&self.model.layout.initialise(SEED))?;
        let logits = self.engine.masked_lm_logits(&batch.packed, &batch.masked_rows)?;
        self.engine.set_parameters(&self.model.values)?;
        Ok(packed(&logits))
    }
}

const HEAD_DENSE: &str = "cls.predictions.transform.dense";
const HEAD_NORM: &str = "cls.predictions.transform.LayerNorm";

/// Returns `x Wᵀ + b` for each row of `x`; `weight` is (outputs, inputs).
fn linear(weight: &[f32], bias: &[f32], x: &[f32]) -> Vec<f32> {
    let inputs = weight.len() / bias.len();
    let outputs = |row: &[f32]| {
        let rows = weight.chunks_exact(inputs).zip(bias);
        let out = rows.map(|(w, b)| w.iter().zip(row).map(|(w, x)| w * x).sum::<f32>() + b);
        out.collect::<Vec<_>>()
    };
    x.chunks_exact(inputs).flat_map(outputs).collect()
}

/// Returns the length of the gradient in each part of the model that has one, in order.
fn lengths(layout: &Layout, gradients: &[f32]) -> Vec<Value> {
    let mut parts: Vec<(String, f64)> = Vec::new();
    for (parameter, range) in layout.iter() {
        let name = match parameter.name.strip_prefix("encoder.layer.") {
            Some(rest) => format!("layer {}", rest.split('.').next().unwrap_or_default()),
            None if parameter.name.starts_with("embeddings.") => "embeddings".to_owned(),
            None => "head".to_owned(),
        };
        let squares: f64 = gradients[range].iter().map(|g| f64::from(*g).powi(2)).sum();
        match parts.iter_mut().find(|part| part.0 == name) {
            Some(part) => part.1 += squares,
            None => parts.push((name, squares)),
        }
    }
    let parts = parts.into_iter();
    parts.map(|(name, squares)| json!({ "name": name, "length": squares.sqrt() })).collect()
}

/// Encodes numbers for the script: little-endian, 32 bits each, in base64.
fn packed(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    BASE64_STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::bundled;
    use crate::model::weights::wordpiece_of;

    fn unpack(value: &Value) -> Vec<f32> {
        let bytes = BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap();
        bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    fn near(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4)
    }

    #[test]
    fn what_the_page_adds_up_is_what_the_engine_computes() {
        let folder = bundled::folder(bundled::TINY).unwrap();
        let model = Model::read_all(&folder).unwrap();
        let wordpiece = wordpiece_of(&folder, &model).unwrap();
        let blank = Blank::of(&wordpiece, "The baker sells [MASK].").unwrap();
        let mut traced = Traced::new(&model).unwrap();
        let numbers = traced.numbers(&wordpiece, &blank, wordpiece.id("bread")).unwrap();
        let found = traced.engine.attention(&blank.packed).unwrap().swap_remove(0);
        let rows = &numbers["embeddings"];
        let sum: Vec<f32> = unpack(&rows["word"])
            .iter()
            .zip(unpack(&rows["segment"]))
            .map(|(a, b)| a + b)
            .collect();
        let embedded =
            traced.add_and_norm("embeddings.LayerNorm", &sum, &unpack(&rows["position"])).unwrap();
        assert!(near(&embedded, &found.hidden[0]));
        for layer in 0..2 {
            let of = &numbers["layers"][layer];
            let name = |rest: &str| format!("encoder.layer.{layer}.{rest}");
            let block = unpack(&of["attended"]);
            let middle = traced
                .add_and_norm(&name("attention.output.LayerNorm"), &block, &found.hidden[layer])
                .unwrap();
            let output = unpack(&of["output"]);
            let last = traced.add_and_norm(&name("output.LayerNorm"), &output, &middle).unwrap();
            assert!(near(&last, &found.hidden[layer + 1]), "layer {layer}");
        }
        let head = &numbers["head"];
        let dense: Vec<f32> =
            unpack(&head["dense"]).iter().map(|&x| Activation::Gelu.of(x)).collect();
        let x = traced.add_and_norm(HEAD_NORM, &dense, &vec![0.0; dense.len()]).unwrap();
        let table = model.parameter("embeddings.word_embeddings.weight").unwrap();
        let logits = linear(table, model.parameter("cls.predictions.bias").unwrap(), &x);
        assert!(near(&logits, &unpack(&head["logits"])));
        // One small step lowers the loss, a huge one ruins the model.
        let steps = numbers["steps"].as_array().unwrap();
        let losses: Vec<f64> = steps.iter().map(|step| step["loss"].as_f64().unwrap()).collect();
        let answer = numbers["answer"].as_u64().unwrap() as usize;
        let before = -eval::softmax(&logits)[answer].ln();
        assert!(losses[0] < before && losses[1] < losses[0] && losses[4] > losses[1], "{losses:?}");
        // The model is as it was.
        assert_eq!(traced.engine.parameters().unwrap(), model.values);
    }
}
