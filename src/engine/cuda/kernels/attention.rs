//! Self-attention over packed sequences: flash attention on tensor cores for heads 32 or 64 wide
//! (`flash.cuh`, in f32 `flash32.cuh`), plain kernels otherwise (`attention.cu`).

use crate::engine::cuda::device::{Address, Argument, Cost, Device, Element, Grid, Kernel};
use crate::error::{Error, Result};
use crate::model::{Config, check_longest};

use super::flash::{Blocks, Factors, Flash};
use super::{Batch, SiteDropout};

/// The shape of the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    pub count: u32,
    /// Up to 128.
    pub size: u32,
    /// Whether a query attends only to keys up to its own position.
    pub causal: bool,
    /// Whether products in f32 may round their factors to TF32.
    pub tf32: bool,
}

impl Heads {
    /// Returns a model's, with exact products.
    pub fn of(config: &Config) -> Self {
        Self {
            count: config.num_attention_heads as u32,
            size: config.head_size() as u32,
            causal: config.is_decoder,
            tf32: false,
        }
    }
}

/// The buffers of the forward pass.
#[derive(Debug, Clone, Copy)]
pub struct AttentionForward {
    /// (rows, 3 · hidden): queries, keys and values of a row are adjacent.
    pub qkv: Address,
    /// (rows, hidden), overwritten.
    pub context: Address,
    /// (rows, heads), f32, overwritten: the log-sum-exp of each row of scores.
    pub log_sums: Address,
    /// [`attention_kept`] bytes, overwritten: which probabilities dropout kept.
    pub kept: Address,
}

/// The buffers of the backward pass.
#[derive(Debug, Clone, Copy)]
pub struct AttentionBackward {
    /// (rows, 3 · hidden): queries, keys and values of a row are adjacent.
    pub qkv: Address,
    /// (rows, hidden)
    pub context: Address,
    /// (rows, heads), f32
    pub log_sums: Address,
    /// What the forward pass kept.
    pub kept: Address,
    /// (rows, hidden)
    pub d_context: Address,
    /// (rows, 3 · hidden), overwritten.
    pub d_qkv: Address,
    /// [`attention_scratch`] values, f32.
    pub scratch: Address,
}

/// Returns how many f32 values of scratch the backward pass needs for up to `rows` rows.
pub fn attention_scratch(rows: u32, heads: Heads) -> usize {
    2 * rows as usize * heads.count as usize
}

/// Returns the bytes in which the forward pass stores which probabilities dropout kept: a bit for each, in blocks of
/// 64 queries and 64 keys of the longest sequence. The kernels of f32 draw the random numbers again instead.
pub fn attention_kept(
    element: Element,
    (rows, sequences, longest): (usize, usize, usize),
    heads: Heads,
) -> u64 {
    if element == Element::F32 || !has_flash(heads) {
        return 0;
    }
    // Each sequence may fill its last block only in part.
    let blocks = (rows / 64 + sequences) * longest.div_ceil(64);
    (blocks * heads.count as usize * 64 * 64 / 8) as u64
}

/// Whether the tensor-core kernels support these heads.
fn has_flash(heads: Heads) -> bool {
    matches!(heads.size, 32 | 64)
}

/// Computes `softmax(Q Kᵀ / √size) V` in every head of every sequence. Dropout is that of
/// [`crate::model::Dropout::attention`].
pub fn attention_forward(
    device: &mut dyn Device,
    element: Element,
    batch: &Batch,
    heads: Heads,
    dropout: Option<&SiteDropout>,
    pass: &AttentionForward,
) -> Result<()> {
    let call = Call::new(element, batch, heads, dropout)?;
    let buffers = [pass.qkv, pass.context, pass.log_sums];
    match call.flash() {
        Some(flash) => {
            let kept = call.kept(pass.kept);
            call.launch(device, flash.forward(), call.cost(4, 2), &buffers, &kept)
        }
        None => call.launch(device, plain("attention_forward"), call.cost(4, 2), &buffers, &[]),
    }
}

/// Computes the gradient of queries, keys and values from that of the context; recomputes the
/// probabilities from the scores and `log_sums` (arXiv 2205.14135).
pub fn attention_backward(
    device: &mut dyn Device,
    element: Element,
    batch: &Batch,
    heads: Heads,
    dropout: Option<&SiteDropout>,
    pass: &AttentionBackward,
) -> Result<()> {
    let call = Call::new(element, batch, heads, dropout)?;
    let AttentionBackward { qkv, context, log_sums, kept, d_context, d_qkv, scratch } = *pass;
    if let Some(flash) = call.flash() {
        let kept = call.kept(kept);
        let buffers = [qkv, context, d_context, log_sums, scratch, d_qkv];
        call.launch(device, flash.d_queries(), call.cost(6, 3), &buffers, &kept)?;
        let buffers = [qkv, d_context, scratch, d_qkv];
        return call.launch(device, flash.d_keys(), call.cost(6, 4), &buffers, &kept);
    }
    let count = batch.rows * heads.count;
    super::launch(
        device,
        element,
        "attention_slopes",
        ([count.div_ceil(4), 1, 1], 128),
        call.cost(2, 0),
        &[context.into(), d_context.into(), scratch.into(), count.into(), heads.size.into()],
    )?;
    let buffers = [qkv, d_context, log_sums, scratch, d_qkv];
    call.launch(device, plain("attention_d_queries"), call.cost(5, 3), &buffers, &[])?;
    call.launch(device, plain("attention_d_keys"), call.cost(6, 4), &buffers, &[])
}

/// A kernel of `attention.cu`.
fn plain(name: &'static str) -> Blocks {
    Blocks { name, rows: 8, shared: 0 }
}

/// The parameters that all kernels of a pass share.
struct Call<'a> {
    element: Element,
    batch: &'a Batch,
    heads: Heads,
    dropout: Option<&'a SiteDropout>,
}

impl<'a> Call<'a> {
    fn new(
        element: Element,
        batch: &'a Batch,
        heads: Heads,
        dropout: Option<&'a SiteDropout>,
    ) -> Result<Self> {
        if heads.size == 0 || heads.size > 128 {
            return Err(Error::Failed(format!(
                "attention heads are 1 to 128 wide on the GPU, not {}",
                heads.size
            )));
        }
        check_longest(batch.longest as usize)?;
        Ok(Self { element, batch, heads, dropout })
    }

    /// Returns the tensor-core kernels if they support these heads.
    fn flash(&self) -> Option<Flash> {
        let factors = match (self.element, self.heads.tf32) {
            (Element::Bf16 | Element::F16, _) => Factors::Short,
            (Element::F32, true) => Factors::Tf32,
            (Element::F32, false) => Factors::Exact,
        };
        let (size, dropout) = (self.heads.size, self.dropout.is_some());
        has_flash(self.heads).then_some(Flash { size, dropout, factors })
    }

    /// Returns the arguments for what was kept: its address, and the blocks of 32 keys of the longest sequence.
    fn kept(&self, at: Address) -> [Argument; 2] {
        let at = if self.dropout.is_some() { at } else { Address::NONE };
        [at.into(), (2 * self.batch.longest.div_ceil(64)).into()]
    }

    /// Returns the cost of a kernel that reads or writes this many matrices of (rows, hidden), and computes this many
    /// products for each pair of a query and a key: scores, contexts or gradients.
    fn cost(&self, matrices: u64, products: u64) -> Cost {
        let hidden = u64::from(self.heads.count * self.heads.size);
        let rows = u64::from(self.batch.rows);
        let pairs = match self.heads.causal {
            true => (self.batch.pairs + rows) / 2,
            false => self.batch.pairs,
        };
        let log_sums = rows * u64::from(self.heads.count);
        let values = [(self.element, matrices * rows * hidden), (Element::F32, log_sums)];
        Cost { flops: 2 * products * pairs * hidden, ..Cost::of_values(&values) }
    }

    /// Launches a kernel with the buffers, the shared parameters, and more of its own.
    fn launch(
        &self,
        device: &mut dyn Device,
        kernel: Blocks,
        cost: Cost,
        buffers: &[Address],
        more: &[Argument],
    ) -> Result<()> {
        let blocks = self.batch.longest.div_ceil(kernel.rows);
        let parts = u64::from(self.batch.sequences) * u64::from(self.heads.count);
        let grid = u64::from(blocks) * parts;
        if grid == 0 {
            return Ok(());
        }
        let Ok(grid) = i32::try_from(grid) else {
            return Err(Error::Failed(format!(
                "attention over {} sequences needs too many blocks for one launch",
                self.batch.sequences
            )));
        };
        let mut arguments: Vec<Argument> = buffers.iter().map(|&at| at.into()).collect();
        let scale = (1.0 / f64::from(self.heads.size).sqrt()) as f32;
        arguments.extend::<[Argument; 6]>([
            self.batch.cu_seqlens.into(),
            self.heads.count.into(),
            self.heads.size.into(),
            blocks.into(),
            u32::from(self.heads.causal).into(),
            scale.into(),
        ]);
        arguments.extend::<[Argument; 5]>(match self.dropout {
            Some(d) => [
                d.state.into(),
                self.batch.examples.into(),
                d.site.into(),
                d.threshold.into(),
                d.scale.into(),
            ],
            None => [Address::NONE.into(), Address::NONE.into(), 0.into(), 0.into(), 1.0.into()],
        });
        arguments.extend_from_slice(more);
        let grid = Grid { blocks: [grid as u32, 1, 1], threads: 128, shared: kernel.shared };
        let kernel = Kernel { name: kernel.name, element: self.element };
        device.announce(cost);
        device.launch(kernel, grid, &arguments)
    }
}
