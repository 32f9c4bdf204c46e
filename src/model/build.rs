//! From the flat buffer to dfdx modules and back: a module takes its tensors by their declared
//! names, and by them parameters and gradients are read out again into a flat buffer of the same layout.

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use crate::error::{Error, Result};

use super::Layout;
use super::ops::{BertDevice, Real};

/// Takes the parameters of modules back into a flat buffer, or their gradients, by the names that a
/// [`Builder`] gave them.
pub struct Collector<'a, E: Dtype, D: Device<E>> {
    layout: &'a Layout,
    values: &'a mut [E],
    gradients: Option<&'a mut Gradients<E, D>>,
    prefix: String,
}

impl<'a, E: Real, D: Device<E>> Collector<'a, E, D> {
    /// Writes parameters into `values`, which is as long as the layout says.
    pub fn new(layout: &'a Layout, values: &'a mut [E]) -> Self {
        assert_eq!(values.len(), layout.total(), "a value for every element");
        Self {
            layout,
            values,
            gradients: None,
            prefix: String::new(),
        }
    }

    /// Adds gradients to `values` in place of parameters.
    pub fn of_gradients(self, gradients: &'a mut Gradients<E, D>) -> Self {
        Self {
            gradients: Some(gradients),
            ..self
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
    pub fn tensor<S: Shape>(&mut self, name: &str, tensor: &Tensor<S, E, D>) {
        let name = format!("{}{name}", self.prefix);
        let found = self.layout.find(&name);
        let (_, range) = found.unwrap_or_else(|| panic!("the layout has no {name}"));
        let values = &mut self.values[range];
        let Some(gradients) = &mut self.gradients else {
            return values.copy_from_slice(&tensor.as_vec());
        };
        // A parameter that took no part in the loss has no gradient: it counts as zero.
        if gradients.try_alloc_for(tensor).is_ok() {
            let gradient = gradients.get(tensor).as_vec();
            for (sum, g) in values.iter_mut().zip(gradient) {
                *sum += g;
            }
        }
    }

    /// Takes a linear layer.
    pub fn linear<const I: usize, const O: usize>(
        &mut self,
        name: &str,
        linear: &Linear<I, O, E, D>,
    ) {
        self.tensor(&format!("{name}.weight"), &linear.weight);
        self.tensor(&format!("{name}.bias"), &linear.bias);
    }

    /// Takes a LayerNorm.
    pub fn layer_norm<const M: usize>(&mut self, name: &str, norm: &LayerNorm1D<M, E, D>) {
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
}

impl<'a, E: Real, D: BertDevice<E>> Builder<'a, E, D> {
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
        Ok(self
            .device
            .tensor_from_vec(self.values[range].to_vec(), shape))
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
}
