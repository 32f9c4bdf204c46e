//! What the CUDA engine asks of a device: memory, kernels, matrix products, one stream in which they
//! follow each other. [`super::driver`] asks a GPU; [`super::emulated`] runs the same kernels on the
//! processor, thread by thread, so that everything above is tested where there is no GPU.

use crate::error::Result;

/// A place in the device's memory, in bytes; 0 for none, as kernels take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Address(pub u64);

impl Address {
    /// No place.
    pub const NONE: Self = Self(0);

    /// The place `bytes` farther on.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// What numbers are stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    F32,
    Bf16,
    F16,
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// A kernel: its name in the source, and the element type that the source is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel {
    pub name: &'static str,
    pub element: Element,
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Argument {
    Address(Address),
    U32(u32),
    F32(f32),
}

/// How many threads run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
}

/// A matrix in device memory, row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    pub at: Address,
    pub element: Element,
    pub rows: usize,
    pub columns: usize,
    /// Elements from a row to the next.
    pub stride: usize,
    /// Whether the matrix stands for its transpose, (columns, rows).
    pub transposed: bool,
}

impl Matrix {
    /// A whole matrix.
    pub fn new(at: Address, element: Element, rows: usize, columns: usize) -> Self {
        Self {
            at,
            element,
            rows,
            columns,
            stride: columns,
            transposed: false,
        }
    }

    /// Its transpose.
    pub fn t(self) -> Self {
        Self {
            transposed: !self.transposed,
            ..self
        }
    }
}

/// What becomes of a product before it is stored. Biases and their gradients are f32 or the
/// product's own element type, as [`Device::multiply`]'s implementation can do it; see there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    Nothing,
    /// Adds a bias of one number a column.
    Bias(Address),
    /// Adds a bias, keeps the sum in `before`, (rows, columns) of c's element, and stores its GELU
    /// (the exact one, by erf; an implementation that has only the tanh form must refuse).
    BiasGelu {
        bias: Address,
        before: Address,
    },
}

/// `c = alpha · a b`, or `c += alpha · a b`; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    pub a: Matrix,
    pub b: Matrix,
    /// Never transposed.
    pub c: Matrix,
    pub alpha: f32,
    /// Whether what is in c is added to.
    pub add: bool,
    /// Whether factors in f32 may be rounded to TF32.
    pub tf32: bool,
    pub epilogue: Epilogue,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    pub name: String,
    /// Compute capability, (9, 0) for H100 and H200.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes a second that its memory can deliver, from clock and width.
    pub bandwidth: f64,
    /// Most bytes of shared memory that a block may ask for.
    pub shared: u32,
    /// Version of the driver's CUDA, 13000 for 13.0; 0 where there is none.
    pub driver: u32,
}

/// A point in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub usize);

/// A recorded sequence of launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graph(pub usize);

/// A device with one stream: everything happens in the order in which it was asked for. Errors of
/// work that was asked for earlier may come with a later call.
pub trait Device: Send {
    fn properties(&self) -> &Properties;

    /// Bytes that are free now.
    fn free_memory(&self) -> Result<u64>;

    /// `bytes` bytes, aligned to 256; fails with what was asked for and what is free.
    fn allocate(&mut self, bytes: u64) -> Result<Address>;

    /// Gives back what [`Device::allocate`] gave.
    fn release(&mut self, at: Address);

    /// Copies to the device. `bytes` may be changed as soon as this returns.
    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()>;

    /// Copies from the device, after all that was asked for before.
    fn download(&mut self, from: Address, into: &mut [u8]) -> Result<()>;

    /// Copies within the device.
    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<()>;

    /// Sets bytes.
    fn fill(&mut self, at: Address, byte: u8, bytes: u64) -> Result<()>;

    /// Runs a kernel.
    fn launch(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()>;

    /// Multiplies matrices. Without a way to do the epilogue in one, does it after.
    fn multiply(&mut self, product: &Product) -> Result<()>;

    /// Waits until all is done.
    fn synchronize(&mut self) -> Result<()>;

    /// A point to measure times from or to.
    fn mark(&mut self) -> Result<Mark>;

    /// Seconds between two points; waits for the second.
    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64>;

    /// Begins to record: until [`Device::end_capture`] launches, products, copies within the device
    /// and fills are not run but kept. False where the device can't: then they run as ever.
    fn begin_capture(&mut self) -> Result<bool>;

    /// What was recorded.
    fn end_capture(&mut self) -> Result<Graph>;

    /// Runs what was recorded.
    fn replay(&mut self, graph: Graph) -> Result<()>;

    /// Forgets what was recorded.
    fn drop_graph(&mut self, graph: Graph);
}
