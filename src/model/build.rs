//! From the flat buffer to dfdx modules and back: a module takes its tensors by their declared
//! names, and the gradient of each is read out again into a flat buffer of the same layout.

use std::ops::Range;

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use crate::error::{Error, Result};

use super::Layout;
use super::ops::BertDevice;

/// Reads the gradient of one parameter, whatever its shape, into its place in a flat buffer.
type ReadGradient<E, D> = Box<dyn Fn(&mut Gradients<E, D>, &mut [E]) + Send + Sync>;

/// Where each parameter's gradient goes. Kept by the model that a [`Builder`] made.
pub struct GradientReader<E: Dtype, D: Device<E>> {
    parameters: Vec<(Range<usize>, ReadGradient<E, D>)>,
}

impl<E: Dtype, D: Device<E>> GradientReader<E, D> {
    /// Adds the gradients of all parameters to `flat`, which has the layout's length.
    pub fn add_to(&self, gradients: &mut Gradients<E, D>, flat: &mut [E]) {
        for (range, read) in &self.parameters {
            read(gradients, &mut flat[range.clone()]);
        }
    }
}

/// Takes the parameters of modules back into a flat buffer, by the names that a [`Builder`] gave
/// them.
pub struct Collector<'a, E> {
    layout: &'a Layout,
    values: &'a mut [E],
    prefix: String,
}

impl<'a, E: Dtype> Collector<'a, E> {
    /// Writes into `values`, which is as long as the layout says.
    pub fn new(layout: &'a Layout, values: &'a mut [E]) -> Self {
        assert_eq!(values.len(), layout.total(), "a value for every element");
        Self {
            layout,
            values,
            prefix: String::new(),
        }
    }

    /// Takes a part whose parameters' names all start with `segment`.
    pub fn within(&mut self, segment: &str, take: impl FnOnce(&mut Self)) {
        let outer = self.prefix.len();
        self.prefix.push_str(segment);
        self.prefix.push('.');
        take(self);
        self.prefix.truncate(outer);
    }

    /// Takes a tensor. Panics where the layout has none of that name and size: what was built from
    /// the layout has.
    pub fn tensor<S: Shape, D: Device<E>>(&mut self, name: &str, tensor: &Tensor<S, E, D>) {
        let name = format!("{}{name}", self.prefix);
        let found = self.layout.find(&name);
        let (_, range) = found.unwrap_or_else(|| panic!("the layout has no {name}"));
        self.values[range].copy_from_slice(&tensor.as_vec());
    }

    /// Takes a linear layer.
    pub fn linear<const I: usize, const O: usize, D: Device<E>>(
        &mut self,
        name: &str,
        linear: &Linear<I, O, E, D>,
    ) {
        self.tensor(&format!("{name}.weight"), &linear.weight);
        self.tensor(&format!("{name}.bias"), &linear.bias);
    }

    /// Takes a LayerNorm.
    pub fn layer_norm<const M: usize, D: Device<E>>(
        &mut self,
        name: &str,
        norm: &LayerNorm1D<M, E, D>,
    ) {
        self.tensor(&format!("{name}.weight"), &norm.gamma);
        self.tensor(&format!("{name}.bias"), &norm.beta);
    }
}

/// Hands the declared parameters out to modules as tensors, by name.
pub struct Builder<'a, E: Dtype, D: Device<E>> {
    layout: &'a Layout,
    values: &'a [E],
    device: &'a D,
    /// Ends with a dot unless empty.
    prefix: String,
    epsilon: f64,
    reader: GradientReader<E, D>,
}

impl<'a, E: Dtype, D: BertDevice<E>> Builder<'a, E, D> {
    /// A builder over `values`, which are laid out as `layout` says; `epsilon` is LayerNorm's.
    pub fn new(layout: &'a Layout, values: &'a [E], device: &'a D, epsilon: f64) -> Self {
        assert_eq!(
            values.len(),
            layout.total(),
            "one value for every declared element"
        );
        Self {
            layout,
            values,
            device,
            prefix: String::new(),
            epsilon,
            reader: GradientReader {
                parameters: Vec::new(),
            },
        }
    }

    /// Builds a part whose parameters' names all start with `segment`.
    pub fn within<T>(
        &mut self,
        segment: &str,
        build: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let outer = self.prefix.len();
        self.prefix.push_str(segment);
        self.prefix.push('.');
        let built = build(self);
        self.prefix.truncate(outer);
        built
    }

    /// The parameter `name` as a tensor; `shape` says what the module's type expects.
    pub fn tensor<S: Shape>(&mut self, name: &str, shape: S) -> Result<Tensor<S, E, D>> {
        let name = format!("{}{name}", self.prefix);
        let Some((parameter, range)) = self.layout.find(&name) else {
            return Err(Error::Failed(format!("the model has no parameter {name}")));
        };
        let dims: Vec<usize> = shape.concrete().into_iter().collect();
        if dims != parameter.shape {
            return Err(Error::Failed(format!(
                "parameter {name} is declared as {:?}, but the module takes {dims:?}",
                parameter.shape
            )));
        }
        let values = self.values[range.clone()].to_vec();
        let tensor = self.device.tensor_from_vec(values, shape);
        let handle = tensor.clone();
        self.reader.parameters.push((
            range,
            Box::new(move |gradients, flat| {
                // A parameter that took no part in the loss has no gradient: it counts as zero.
                if gradients.try_alloc_for(&handle).is_ok() {
                    let gradient = gradients.get(&handle).as_vec();
                    for (sum, g) in flat.iter_mut().zip(gradient) {
                        *sum += g;
                    }
                }
            }),
        ));
        Ok(tensor)
    }

    /// A table of rows, their number known at run time.
    pub fn table<const H: usize>(&mut self, name: &str) -> Result<Tensor<(usize, Const<H>), E, D>> {
        let rows = self
            .layout
            .find(&format!("{}{name}", self.prefix))
            .map_or(0, |(parameter, _)| parameter.shape[0]);
        self.tensor(name, (rows, Const))
    }

    /// A linear layer: weight (O, I) and bias (O).
    pub fn linear<const I: usize, const O: usize>(
        &mut self,
        name: &str,
    ) -> Result<Linear<I, O, E, D>> {
        Ok(Linear {
            weight: self.tensor(&format!("{name}.weight"), (Const, Const))?,
            bias: self.tensor(&format!("{name}.bias"), (Const,))?,
        })
    }

    /// A LayerNorm over the last axis: scale and shift (M).
    pub fn layer_norm<const M: usize>(&mut self, name: &str) -> Result<LayerNorm1D<M, E, D>> {
        Ok(LayerNorm1D {
            gamma: self.tensor(&format!("{name}.weight"), (Const,))?,
            beta: self.tensor(&format!("{name}.bias"), (Const,))?,
            epsilon: self.epsilon,
        })
    }

    /// Done: the way back for the gradients.
    pub fn finish(self) -> GradientReader<E, D> {
        self.reader
    }
}
