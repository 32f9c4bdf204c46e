//! BERT's forward pass as a graph: the same operations as in `layers.rs`, `heads.rs` and `bert.rs`,
//! over padded sequences with an attention mask, without dropout; and where `family.rs` says so,
//! those of other families.

use crate::model::{Activation, Config, HeadInput, Layout, Part, TaskHead};

use super::graph::Builder;
use super::proto::{Attribute, Axis};

/// Names of the axes whose lengths are known at run time: those of the optimum exporter.
const BATCH: &str = "batch_size";
const SEQUENCE: &str = "sequence_length";
const CHOICES: &str = "num_choices";
/// The name of the token embedding, which the masked-LM head reads again.
const WORDS: &str = "embeddings.word_embeddings";

/// Returns the graph of a model with its heads, one output for each.
pub fn graph<'a>(config: &'a Config, layout: &'a Layout, values: &'a [f32]) -> Builder<'a> {
    let mut net = Net { config, layout, values, graph: Builder::default() };
    let inputs = net.inputs();
    let x = net.encoder(&inputs);
    net.heads(&inputs, &x);
    net.graph
}

/// The inputs, one row per sequence.
struct Inputs {
    ids: String,
    mask: String,
    /// None if the model knows one segment at most.
    segments: Option<String>,
    /// The shape in which a caller gives candidate sequences, (batch, choices): none for models
    /// that read single ones.
    choices: Option<String>,
}

/// A graph under construction with the model that it is of.
struct Net<'a> {
    config: &'a Config,
    layout: &'a Layout,
    values: &'a [f32],
    graph: Builder<'a>,
}

impl<'a> Net<'a> {
    fn has(&self, part: Part) -> bool {
        self.layout.parts().contains(&part)
    }

    /// Adds an operation without attributes.
    fn op(&mut self, op: &str, inputs: &[&str]) -> String {
        self.graph.node(op, inputs, &[])
    }

    /// Returns a declared parameter's shape and values.
    fn parameter(&self, name: &str) -> (&'a [usize], &'a [f32]) {
        // Every name in this file is one that `declare` gives to the parts of the layout.
        let found = self.layout.find(name);
        let (parameter, range) = found.unwrap_or_else(|| panic!("the layout has no {name}"));
        (&parameter.shape, &self.values[range])
    }

    fn weight(&mut self, name: &str) -> String {
        let (shape, values) = self.parameter(name);
        self.graph.weight(name, shape, values)
    }

    /// `x Wᵀ + b`.
    fn linear(&mut self, name: &str, x: &str) -> String {
        let weight = format!("{name}.weight");
        let (shape, values) = self.parameter(&weight);
        let weight = self.graph.transposed(&weight, shape, values);
        let product = self.op("MatMul", &[x, &weight]);
        let bias = self.weight(&format!("{name}.bias"));
        self.op("Add", &[&product, &bias])
    }

    fn layer_norm(&mut self, name: &str, x: &str) -> String {
        let scale = self.weight(&format!("{name}.weight"));
        let shift = self.weight(&format!("{name}.bias"));
        let epsilon = Attribute::float("epsilon", self.config.layer_norm_eps as f32);
        let axis = Attribute::int("axis", -1);
        self.graph.node("LayerNormalization", &[x, &scale, &shift], &[axis, epsilon])
    }

    /// GELU in its erf form, in the order of operations that onnxruntime recognises and fuses.
    fn gelu(&mut self, x: &str) -> String {
        let [root, one, half] =
            [std::f32::consts::SQRT_2, 1.0, 0.5].map(|value| self.graph.number(value));
        let y = self.op("Div", &[x, &root]);
        let y = self.op("Erf", &[&y]);
        let y = self.op("Add", &[&y, &one]);
        let y = self.op("Mul", &[x, &y]);
        self.op("Mul", &[&y, &half])
    }

    fn reshape(&mut self, x: &str, shape: &[i64]) -> String {
        let shape = self.graph.ints(shape);
        self.op("Reshape", &[x, &shape])
    }

    fn transpose(&mut self, x: &str, order: &[i64]) -> String {
        self.graph.node("Transpose", &[x], &[Attribute::ints("perm", order)])
    }

    /// Returns some axes of a value's shape as a list.
    fn shape(&mut self, x: &str, start: i64, end: i64) -> String {
        let attributes = [Attribute::int("start", start), Attribute::int("end", end)];
        self.graph.node("Shape", &[x], &attributes)
    }

    /// Declares the inputs.
    fn inputs(&mut self) -> Inputs {
        let chooses = self.has(Part::MultipleChoice);
        let axes = if chooses { named(&[BATCH, CHOICES, SEQUENCE]) } else { sequence() };
        let [ids, mask] = ["input_ids", "attention_mask"].map(|name| self.graph.input(name, &axes));
        let segmented = self.config.type_vocab_size > 1;
        let segments = segmented.then(|| self.graph.input("token_type_ids", &axes));
        if !chooses {
            return Inputs { ids, mask, segments, choices: None };
        }
        let choices = self.shape(&ids, 0, 2);
        let length = self.shape(&ids, 2, 3);
        let all = self.graph.ints(&[-1]);
        let shape = self.graph.node("Concat", &[&all, &length], &[Attribute::int("axis", 0)]);
        let mut flat = |input: String| self.op("Reshape", &[&input, &shape]);
        let (ids, mask, segments) = (flat(ids), flat(mask), segments.map(flat));
        Inputs { ids, mask, segments, choices: Some(choices) }
    }

    /// Returns the last hidden states, (batch, sequence, H).
    fn encoder(&mut self, inputs: &Inputs) -> String {
        let mut x = self.embeddings(inputs);
        let bias = self.attention_bias(inputs);
        for layer in 0..self.config.num_hidden_layers {
            let name = |rest: &str| format!("encoder.layer.{layer}.{rest}");
            let attended = self.attention(&name("attention"), &x, &bias);
            let sum = self.op("Add", &[&attended, &x]);
            x = self.layer_norm(&name("attention.output.LayerNorm"), &sum);
            let inner = self.linear(&name("intermediate.dense"), &x);
            let inner = self.gelu(&inner);
            let inner = self.linear(&name("output.dense"), &inner);
            let sum = self.op("Add", &[&inner, &x]);
            x = self.layer_norm(&name("output.LayerNorm"), &sum);
        }
        x
    }

    fn embeddings(&mut self, inputs: &Inputs) -> String {
        let words = self.weight(&format!("{WORDS}.weight"));
        let words = self.op("Gather", &[&words, &inputs.ids]);
        let sum = match self.config.type_vocab_size {
            0 => words,
            _ => {
                let mut segments = self.weight("embeddings.token_type_embeddings.weight");
                // The only row of a table of one is added to every token.
                if let Some(ids) = &inputs.segments {
                    segments = self.op("Gather", &[&segments, ids]);
                }
                self.op("Add", &[&words, &segments])
            }
        };
        let positions = self.weight("embeddings.position_embeddings.weight");
        let [zero, first] =
            [0, self.config.position_offset() as i64].map(|row| self.graph.ints(&[row]));
        let mut end = self.shape(&inputs.ids, 1, 2);
        if self.config.position_offset() > 0 {
            end = self.op("Add", &[&end, &first]);
        }
        let positions = self.op("Slice", &[&positions, &first, &end, &zero]);
        let sum = self.op("Add", &[&sum, &positions]);
        let x = self.layer_norm("embeddings.LayerNorm", &sum);
        match self.config.projects_embeddings() {
            true => self.linear("embeddings_project", &x),
            false => x,
        }
    }

    /// Returns what is added to the scores, which the softmax turns into 0 where a key is hidden:
    /// the lowest f32 there, 0 elsewhere. Its shape is (batch, 1, 1, sequence), or for a
    /// left-to-right model (batch, 1, sequence, sequence).
    fn attention_bias(&mut self, inputs: &Inputs) -> String {
        let axes = self.graph.ints(&[1, 2]);
        let mask = self.op("Unsqueeze", &[&inputs.mask, &axes]);
        let mut seen = self.float(&mask);
        if self.config.is_decoder {
            let [zero, one] = [0, 1].map(|value| self.graph.int(value));
            let [first, second] = [0, 1].map(|axis| self.graph.ints(&[axis]));
            let length = self.shape(&inputs.ids, 1, 2);
            let length = self.op("Squeeze", &[&length, &first]);
            let keys = self.op("Range", &[&zero, &length, &one]);
            let queries = self.op("Unsqueeze", &[&keys, &second]);
            let past = self.op("LessOrEqual", &[&keys, &queries]);
            let past = self.float(&past);
            seen = self.op("Mul", &[&seen, &past]);
        }
        let [one, lowest] = [1.0, f32::MIN].map(|value| self.graph.number(value));
        let hidden = self.op("Sub", &[&one, &seen]);
        self.op("Mul", &[&hidden, &lowest])
    }

    fn float(&mut self, x: &str) -> String {
        self.graph.node("Cast", &[x], &[Attribute::int("to", super::proto::FLOAT.into())])
    }

    /// Multi-head self-attention with its output projection.
    fn attention(&mut self, name: &str, x: &str, bias: &str) -> String {
        let (heads, size) = (self.config.num_attention_heads as i64, self.config.head_size());
        let mut projected = |which: &str, order: &[i64]| {
            let y = self.linear(&format!("{name}.self.{which}"), x);
            let y = self.reshape(&y, &[0, 0, heads, size as i64]);
            self.transpose(&y, order)
        };
        let q = projected("query", &[0, 2, 1, 3]);
        let k = projected("key", &[0, 2, 3, 1]);
        let v = projected("value", &[0, 2, 1, 3]);
        let scores = self.op("MatMul", &[&q, &k]);
        let root = self.graph.number((size as f32).sqrt());
        let scores = self.op("Div", &[&scores, &root]);
        let scores = self.op("Add", &[&scores, bias]);
        let axis = Attribute::int("axis", -1);
        let probabilities = self.graph.node("Softmax", &[&scores], &[axis]);
        let context = self.op("MatMul", &[&probabilities, &v]);
        let context = self.transpose(&context, &[0, 2, 1, 3]);
        let context = self.reshape(&context, &[0, 0, self.config.hidden_size as i64]);
        self.linear(&format!("{name}.output.dense"), &context)
    }

    /// Returns the pooler's output, (batch, H). A left-to-right model's pooler reads the last token,
    /// as [`crate::data::Packed::pooled_rows`] says; sequences are padded on the right.
    fn pooled(&mut self, inputs: &Inputs, x: &str) -> String {
        let row = if self.config.is_decoder {
            let one = self.graph.ints(&[1]);
            let length = self.op("ReduceSum", &[&inputs.mask, &one]);
            let last = self.op("Sub", &[&length, &one]);
            self.graph.node("GatherND", &[x, &last], &[Attribute::int("batch_dims", 1)])
        } else {
            self.column(x, 0, 1)
        };
        let y = self.linear("pooler.dense", &row);
        match self.config.model_type.pooler_activation() {
            Activation::Tanh => self.op("Tanh", &[&y]),
            Activation::Relu => self.op("Relu", &[&y]),
            Activation::Gelu => self.gelu(&y),
        }
    }

    /// Returns one entry along an axis, which is removed.
    fn column(&mut self, x: &str, index: i64, axis: i64) -> String {
        let index = self.graph.int(index);
        self.graph.node("Gather", &[x, &index], &[Attribute::int("axis", axis)])
    }

    /// Adds the heads and the outputs, named as in transformers.
    fn heads(&mut self, inputs: &Inputs, x: &str) {
        let (masked, next) = (self.has(Part::MaskedLm), self.has(Part::NextSentence));
        if let Some(head) = self.layout.task_head() {
            self.task(inputs, x, head);
            return;
        }
        if masked {
            let logits = self.masked_lm(x);
            let name = if next { "prediction_logits" } else { "logits" };
            let vocabulary = Axis::Fixed(self.config.vocab_size as i64);
            self.graph.output(name, &logits, &[&sequence()[..], &[vocabulary]].concat());
        }
        if next {
            let pooled = self.pooled(inputs, x);
            let logits = self.linear("cls.seq_relationship", &pooled);
            let name = if masked { "seq_relationship_logits" } else { "logits" };
            self.graph.output(name, &logits, &[&named(&[BATCH])[..], &[Axis::Fixed(2)]].concat());
        }
        let discriminates = self.has(Part::Discriminator);
        if discriminates {
            let y = self.linear("discriminator_predictions.dense", x);
            let y = self.gelu(&y);
            let logits = self.linear("discriminator_predictions.dense_prediction", &y);
            let logits = self.column(&logits, 0, 2);
            self.graph.output("logits", &logits, &sequence());
        }
        if masked || next || discriminates {
            return;
        }
        let width = Axis::Fixed(self.config.hidden_size as i64);
        let axes = [&sequence()[..], std::slice::from_ref(&width)].concat();
        self.graph.output("last_hidden_state", x, &axes);
        if self.has(Part::Pooler) {
            let pooled = self.pooled(inputs, x);
            self.graph.output("pooler_output", &pooled, &[&named(&[BATCH])[..], &[width]].concat());
        }
    }

    fn task(&mut self, inputs: &Inputs, x: &str, head: TaskHead) {
        let input = match head.input {
            HeadInput::Pooled => self.pooled(inputs, x),
            HeadInput::Rows => x.to_owned(),
        };
        let logits = self.linear(head.name, &input);
        if self.has(Part::Span) {
            for (index, name) in (0..).zip(["start_logits", "end_logits"]) {
                let logits = self.column(&logits, index, 2);
                self.graph.output(name, &logits, &sequence());
            }
        } else if let Some(choices) = &inputs.choices {
            let logits = self.op("Reshape", &[&logits, choices]);
            self.graph.output("logits", &logits, &named(&[BATCH, CHOICES]));
        } else {
            let rows = match head.input {
                HeadInput::Pooled => named(&[BATCH]),
                HeadInput::Rows => sequence(),
            };
            let classes = Axis::Fixed(head.outputs as i64);
            self.graph.output("logits", &logits, &[&rows[..], &[classes]].concat());
        }
    }

    /// Returns the logits of every token, (batch, sequence, vocabulary).
    fn masked_lm(&mut self, x: &str) -> String {
        let y = self.linear("cls.predictions.transform.dense", x);
        let y = self.gelu(&y);
        let y = self.layer_norm("cls.predictions.transform.LayerNorm", &y);
        // The token embedding again: a transposed copy would make the file a fifth larger.
        let words = self.weight(&format!("{WORDS}.weight"));
        let words = self.transpose(&words, &[1, 0]);
        let y = self.op("MatMul", &[&y, &words]);
        let bias = self.weight("cls.predictions.bias");
        self.op("Add", &[&y, &bias])
    }
}

fn named(names: &[&str]) -> Vec<Axis> {
    names.iter().map(|&name| Axis::Named(name.into())).collect()
}

fn sequence() -> Vec<Axis> {
    named(&[BATCH, SEQUENCE])
}
