//! Builds a graph node by node, and writes it with one weight in memory at a time.

use std::collections::BTreeMap;
use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len, message};

use super::proto::{
    Attribute, Axis, FLOAT, GRAPH_FIELD, Graph, Header, INITIALIZER_FIELD, INT64, Node,
    OperatorSet, Tensor, Value,
};

/// The operators' version. 17 is the first with LayerNormalization.
const OPSET: i64 = 17;
/// The version of the file format that came with it.
const IR: i64 = 8;

/// The numbers of a constant.
enum Numbers<'a> {
    /// Weights as they are.
    Weights(&'a [f32]),
    /// Weights whose rows become columns.
    Transposed(&'a [f32]),
    Float(f32),
    Ints(Vec<i64>),
}

/// A weight or another constant.
struct Constant<'a> {
    dims: Vec<usize>,
    numbers: Numbers<'a>,
}

impl Constant<'_> {
    fn tensor(&self, name: &str) -> Tensor {
        let floats = |values: &[f32]| values.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (data_type, raw_data) = match &self.numbers {
            Numbers::Weights(values) => (FLOAT, floats(values)),
            Numbers::Transposed(values) => {
                let columns = self.dims[0];
                let column = |c| values.iter().skip(c).step_by(columns);
                let turned = (0..columns).flat_map(column);
                (FLOAT, turned.flat_map(|x| x.to_le_bytes()).collect())
            }
            Numbers::Float(value) => (FLOAT, floats(&[*value])),
            Numbers::Ints(values) => (INT64, values.iter().flat_map(|x| x.to_le_bytes()).collect()),
        };
        let dims = self.dims.iter().map(|&n| n as i64).collect();
        Tensor { dims, data_type, name: name.to_owned(), raw_data }
    }
}

/// A graph under construction. Values are referred to by their names.
#[derive(Default)]
pub struct Builder<'a> {
    graph: Graph,
    constants: BTreeMap<String, Constant<'a>>,
}

impl<'a> Builder<'a> {
    /// Declares an input of integers and returns its name.
    pub fn input(&mut self, name: &str, axes: &[Axis]) -> String {
        self.graph.inputs.push(Value::tensor(name, INT64, axes));
        name.to_owned()
    }

    /// Makes `value`, which holds f32, an output of this name.
    pub fn output(&mut self, name: &str, value: &str, axes: &[Axis]) {
        self.graph.outputs.push(Value::tensor(name, FLOAT, axes));
        let own = Node {
            inputs: vec![value.to_owned()],
            outputs: vec![name.to_owned()],
            name: format!("output/{name}"),
            op_type: "Identity".into(),
            attributes: Vec::new(),
        };
        self.graph.nodes.push(own);
    }

    /// Adds an operation and returns the name of its result.
    pub fn node(&mut self, op: &str, inputs: &[&str], attributes: &[Attribute]) -> String {
        let name = format!("{op}_{}", self.graph.nodes.len());
        self.graph.nodes.push(Node {
            inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
            outputs: vec![name.clone()],
            name: name.clone(),
            op_type: op.into(),
            attributes: attributes.to_vec(),
        });
        name
    }

    /// Adds a weight; returns its name.
    pub fn weight(&mut self, name: &str, dims: &[usize], values: &'a [f32]) -> String {
        self.constant(name, dims.to_vec(), Numbers::Weights(values))
    }

    /// Adds the weight of a linear layer, (outputs, inputs), as the (inputs, outputs) that MatMul
    /// multiplies by. Programs that quantise a model expect a constant there, not a Transpose.
    pub fn transposed(&mut self, name: &str, dims: &[usize], values: &'a [f32]) -> String {
        let turned = vec![dims[1], dims[0]];
        self.constant(&format!("{name}_transposed"), turned, Numbers::Transposed(values))
    }

    /// Returns the name of a number.
    pub fn number(&mut self, value: f32) -> String {
        self.constant(&format!("number_{value:e}"), Vec::new(), Numbers::Float(value))
    }

    /// Returns the name of a list of integers.
    pub fn ints(&mut self, values: &[i64]) -> String {
        let names: Vec<String> = values.iter().map(i64::to_string).collect();
        let name = format!("ints_{}", names.join("_"));
        self.constant(&name, vec![values.len()], Numbers::Ints(values.to_vec()))
    }

    /// Returns the name of one integer.
    pub fn int(&mut self, value: i64) -> String {
        self.constant(&format!("int_{value}"), Vec::new(), Numbers::Ints(vec![value]))
    }

    fn constant(&mut self, name: &str, dims: Vec<usize>, numbers: Numbers<'a>) -> String {
        self.constants.entry(name.to_owned()).or_insert(Constant { dims, numbers });
        name.to_owned()
    }

    /// Writes the file.
    pub fn write(mut self, file: &mut dyn Write) -> io::Result<()> {
        self.graph.name = "bert".into();
        let header = Header {
            ir_version: IR,
            producer_name: "cloze".into(),
            producer_version: env!("CARGO_PKG_VERSION").into(),
            opset_import: vec![OperatorSet { domain: String::new(), version: OPSET }],
        };
        let tensors = || self.constants.iter().map(|(name, constant)| constant.tensor(name));
        let sizes = tensors().map(|tensor| message::encoded_len(INITIALIZER_FIELD, &tensor));
        let length = (self.graph.encoded_len() + sizes.sum::<usize>()) as u64;
        let mut bytes = header.encode_to_vec();
        bytes.reserve(key_len(GRAPH_FIELD) + encoded_len_varint(length));
        encode_key(GRAPH_FIELD, WireType::LengthDelimited, &mut bytes);
        encode_varint(length, &mut bytes);
        bytes.extend(self.graph.encode_to_vec());
        file.write_all(&bytes)?;
        for tensor in tensors() {
            bytes.clear();
            message::encode(INITIALIZER_FIELD, &tensor, &mut bytes);
            file.write_all(&bytes)?;
        }
        Ok(())
    }
}
