//! Loading and collecting: the modules take their tensors from the flat buffer by their declared
//! names, and parameters or gradients go back into a buffer of the same layout.

use dfdx::nn::modules::{LayerNorm1D, Linear};
use dfdx::prelude::*;

use crate::error::{Error, Result};

use super::heads::{LinearHead, MaskedLmHead};
use super::layers::{Attention, Embeddings, Layer};
use super::ops::{BertDevice, Real};
use super::{Bert, Config, Layout};

impl<const H: usize, const A: usize, const K: usize, const I: usize, E: Real, D: BertDevice<E>>
    Bert<H, A, K, I, E, D>
{
    /// Builds the model from `values`, which are laid out as `layout` describes.
    pub fn build(config: &Config, layout: &Layout, values: &[E], device: &D) -> Result<Self> {
        assert_eq!(values.len(), layout.total(), "one value for every declared element");
        let b = Builder { layout, values, device, epsilon: config.layer_norm_eps };
        let layer = |i| Stored::build(&b, &layer_name(i));
        let task = |head: super::TaskHead| Ok::<_, Error>((head, Stored::build(&b, head.name)?));
        Ok(Self {
            config: config.clone(),
            embeddings: Stored::build(&b, "embeddings")?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            pooler: Stored::build(&b, "pooler.dense")?,
            masked_lm: Stored::build(&b, "cls.predictions")?,
            next_sentence: Stored::build(&b, "cls.seq_relationship")?,
            task: layout.task_head().map(task).transpose()?,
        })
    }

    /// Returns the current parameters in the layout of [`build`](Self::build).
    pub fn parameters(&self, layout: &Layout) -> Vec<E> {
        let mut values = vec![E::default(); layout.total()];
        self.collect(layout, &mut values, None);
        values
    }

    /// Adds the gradients of all parameters to `flat`, which is laid out as `layout` describes.
    pub fn add_gradients(&self, gradients: &mut Gradients<E, D>, layout: &Layout, flat: &mut [E]) {
        self.collect(layout, flat, Some(gradients));
    }

    fn collect(&self, layout: &Layout, values: &mut [E], gradients: Option<&mut Gradients<E, D>>) {
        assert_eq!(values.len(), layout.total(), "a value for every element");
        let c = &mut Collector { layout, values, gradients };
        self.embeddings.collect(c, "embeddings");
        for (i, layer) in self.layers.iter().enumerate() {
            layer.collect(c, &layer_name(i));
        }
        self.pooler.collect(c, "pooler.dense");
        self.masked_lm.collect(c, "cls.predictions");
        self.next_sentence.collect(c, "cls.seq_relationship");
        if let Some((task, head)) = &self.task {
            head.collect(c, task.name);
        }
    }
}

fn layer_name(i: usize) -> String {
    format!("encoder.layer.{i}")
}

/// The source of a model's tensors.
struct Builder<'a, E, D> {
    layout: &'a Layout,
    values: &'a [E],
    device: &'a D,
    /// LayerNorm's epsilon.
    epsilon: f64,
}

/// The destination of a model's parameters, or of their gradients.
struct Collector<'a, E: Dtype, D: Device<E>> {
    layout: &'a Layout,
    values: &'a mut [E],
    /// With gradients, they are added to `values`; without, parameters are copied there.
    gradients: Option<&'a mut Gradients<E, D>>,
}

/// A tensor, or a module of tensors whose declared names begin with the module's own.
trait Stored<E: Real, D: BertDevice<E>>: Sized {
    fn build(b: &Builder<'_, E, D>, name: &str) -> Result<Self>;
    fn collect(&self, c: &mut Collector<'_, E, D>, name: &str);
}

impl<S: Shape, E: Real, D: BertDevice<E>> Stored<E, D> for Tensor<S, E, D> {
    fn build(b: &Builder<'_, E, D>, name: &str) -> Result<Self> {
        let Some((parameter, range)) = b.layout.find(name) else {
            return Err(Error::Failed(format!("the model has no parameter {name}")));
        };
        let mut shape = S::Concrete::default();
        let axes = parameter.shape.len();
        (0..axes.min(S::NUM_DIMS)).for_each(|axis| shape[axis] = parameter.shape[axis]);
        let Some(shape) = S::from_concrete(&shape).filter(|_| axes == S::NUM_DIMS) else {
            return Err(Error::Failed(format!(
                "parameter {name} is declared as {:?}, but the module's tensor has another shape",
                parameter.shape
            )));
        };
        Ok(b.device.tensor_from_vec(b.values[range].to_vec(), shape))
    }

    /// Panics if the layout doesn't declare the tensor: what was built from the layout is in it.
    fn collect(&self, c: &mut Collector<'_, E, D>, name: &str) {
        let found = c.layout.find(name);
        let (_, range) = found.unwrap_or_else(|| panic!("the layout has no {name}"));
        let values = &mut c.values[range];
        let Some(gradients) = &mut c.gradients else {
            return values.copy_from_slice(&self.as_vec());
        };
        // A parameter that took no part in the loss has no gradient: it counts as zero.
        if gradients.try_alloc_for(self).is_ok() {
            let gradient = gradients.get(self).as_vec();
            for (sum, g) in values.iter_mut().zip(gradient) {
                *sum += g;
            }
        }
    }
}

/// A head that only some models have.
impl<M: Stored<E, D>, E: Real, D: BertDevice<E>> Stored<E, D> for Option<M> {
    fn build(b: &Builder<'_, E, D>, name: &str) -> Result<Self> {
        let mut all = b.layout.parameters().iter();
        let declared = all.any(|parameter| parameter.name.starts_with(name));
        declared.then(|| M::build(b, name)).transpose()
    }

    fn collect(&self, c: &mut Collector<'_, E, D>, name: &str) {
        if let Some(module) = self {
            module.collect(c, name);
        }
    }
}

/// Lists the fields of a module with their names in the declaration, and its other fields.
macro_rules! stored {
    ($module:ident<$($size:ident),*> $($field:ident: $name:literal),* $(; $other:ident)?) => {
        impl<$(const $size: usize,)* E: Real, D: BertDevice<E>> Stored<E, D>
            for $module<$($size,)* E, D>
        {
            fn build(b: &Builder<'_, E, D>, name: &str) -> Result<Self> {
                Ok(Self {
                    $($field: Stored::build(b, &format!("{name}.{}", $name))?,)*
                    $($other: b.$other,)?
                })
            }

            fn collect(&self, c: &mut Collector<'_, E, D>, name: &str) {
                $(self.$field.collect(c, &format!("{name}.{}", $name));)*
            }
        }
    };
}

stored!(Linear<I, O> weight: "weight", bias: "bias");
stored!(LayerNorm1D<M> gamma: "weight", beta: "bias"; epsilon);
stored!(Embeddings<H>
    words: "word_embeddings.weight",
    positions: "position_embeddings.weight",
    segments: "token_type_embeddings.weight",
    norm: "LayerNorm"
);
stored!(Attention<H, A, K>
    query: "self.query",
    key: "self.key",
    value: "self.value",
    output: "output.dense"
);
stored!(Layer<H, A, K, I>
    attention: "attention",
    attention_norm: "attention.output.LayerNorm",
    intermediate: "intermediate.dense",
    output: "output.dense",
    output_norm: "output.LayerNorm"
);
stored!(MaskedLmHead<H>
    dense: "transform.dense",
    norm: "transform.LayerNorm",
    bias: "bias"
);
stored!(LinearHead<H> weight: "weight", bias: "bias");
