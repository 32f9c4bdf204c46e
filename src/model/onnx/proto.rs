//! The messages of an ONNX file that Cloze writes, with the field numbers of onnx/onnx.proto3.

use prost::Message;

/// `TensorProto.DataType` of f32.
pub const FLOAT: i32 = 1;
/// `TensorProto.DataType` of i64.
pub const INT64: i32 = 7;

/// A file without its graph, which [`GRAPH_FIELD`] holds.
#[derive(Clone, PartialEq, Message)]
pub struct Header {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
}

/// The field of a file with its graph.
pub const GRAPH_FIELD: u32 = 7;

/// A set of operators; the standard one has no name.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    #[prost(string, tag = "1")]
    pub domain: String,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// A graph without its weights, which [`INITIALIZER_FIELD`] holds.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "11")]
    pub inputs: Vec<Value>,
    #[prost(message, repeated, tag = "12")]
    pub outputs: Vec<Value>,
}

/// The field of a graph with its weights and constants.
pub const INITIALIZER_FIELD: u32 = 5;

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, repeated, tag = "1")]
    pub inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attributes: Vec<Attribute>,
}

/// A setting of an operation: exactly one of the values, and its type.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(int64, repeated, tag = "8")]
    pub int_list: Vec<i64>,
    #[prost(int32, tag = "20")]
    pub kind: i32,
}

impl Attribute {
    /// An attribute with one number.
    pub fn float(name: &str, value: f32) -> Self {
        Self { name: name.into(), f: Some(value), kind: 1, ..Self::default() }
    }

    /// An attribute with one integer.
    pub fn int(name: &str, value: i64) -> Self {
        Self { name: name.into(), i: Some(value), kind: 2, ..Self::default() }
    }

    /// An attribute with several integers.
    pub fn ints(name: &str, values: &[i64]) -> Self {
        Self { name: name.into(), int_list: values.to_vec(), kind: 7, ..Self::default() }
    }
}

/// A constant.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    /// Row-major, little-endian.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// An input or output of the graph.
#[derive(Clone, PartialEq, Message)]
pub struct Value {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub kind: Option<Kind>,
}

impl Value {
    /// A tensor of numbers of `element`'s type.
    pub fn tensor(name: &str, element: i32, axes: &[Axis]) -> Self {
        let dims = axes.iter().map(|axis| Dimension { size: Some(axis.clone()) }).collect();
        let tensor = TensorKind { element, shape: Some(Shape { dims }) };
        Self { name: name.into(), kind: Some(Kind { tensor: Some(tensor) }) }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct Kind {
    #[prost(message, optional, tag = "1")]
    pub tensor: Option<TensorKind>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorKind {
    #[prost(int32, tag = "1")]
    pub element: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub dims: Vec<Dimension>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    #[prost(oneof = "Axis", tags = "1, 2")]
    pub size: Option<Axis>,
}

/// The length of an axis: a number, or the name of a length that is known at run time.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Axis {
    #[prost(int64, tag = "1")]
    Fixed(i64),
    #[prost(string, tag = "2")]
    Named(String),
}
