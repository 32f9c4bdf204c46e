//! The operations that the CUDA engine needs from a device: memory, kernels and matrix products in
//! one stream. [`super::driver`] is a GPU; `super::emulated` runs the same kernels on the
//! processor, thread by thread, so that everything above is tested without a GPU.

use crate::error::Result;

/// An address in the device's memory, in bytes; 0 means none, also to kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Address(pub u64);

impl Address {
    /// No address.
    pub const NONE: Self = Self(0);

    /// Returns the address `bytes` further.
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    F32,
    Bf16,
    F16,
}

impl Element {
    /// Returns the bytes of a value.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

/// A kernel: its name in the source, and the element type for which the source is compiled.
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

/// The threads that run a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Threads per block.
    pub threads: u32,
    /// Bytes of dynamic shared memory per block.
    pub shared: u32,
}

/// A matrix in device memory, row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    pub at: Address,
    pub element: Element,
    pub rows: usize,
    pub columns: usize,
    /// Elements between the starts of rows.
    pub stride: usize,
    /// Whether this represents the transpose, (columns, rows).
    pub transposed: bool,
}

impl Matrix {
    /// Returns a matrix without gaps.
    pub fn new(at: Address, element: Element, rows: usize, columns: usize) -> Self {
        Self { at, element, rows, columns, stride: columns, transposed: false }
    }

    /// Returns rows and columns after transposition.
    pub fn shape(&self) -> (usize, usize) {
        match self.transposed {
            true => (self.columns, self.rows),
            false => (self.rows, self.columns),
        }
    }

    /// Returns the transpose.
    pub fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// An operation on a product before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    Nothing,
    /// Adds a bias, one value per column, of c's element or f32.
    Bias(Address, Element),
}

/// `c = alpha · a b`, or `c += alpha · a b`; sums are f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    pub a: Matrix,
    pub b: Matrix,
    /// Never transposed.
    pub c: Matrix,
    pub alpha: f32,
    /// Whether the product is added to c.
    pub add: bool,
    /// Whether factors in f32 may be rounded to TF32.
    pub tf32: bool,
    pub epilogue: Epilogue,
}

/// The properties of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct Properties {
    pub name: String,
    /// Compute capability, (9, 0) for H100 and H200.
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes per second that its memory can deliver, from clock and width.
    pub bandwidth: f64,
    /// Maximum bytes of shared memory of a block.
    pub shared: u32,
    /// Version of the driver's CUDA, 13000 for 13.0; 0 without a driver.
    pub driver: u32,
}

/// The least that an operation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes that it reads and writes, each value once.
    pub bytes: u64,
    /// Operations of matrix products: two for each multiplication.
    pub flops: u64,
}

impl Cost {
    /// Returns the cost of reading or writing so many values of these elements, without products.
    pub fn of_values(values: &[(Element, u64)]) -> Self {
        Self { bytes: values.iter().map(|(e, count)| e.bytes() * count).sum(), flops: 0 }
    }

    /// Returns the cost of a product.
    pub fn of_product(product: &Product) -> Self {
        let values = |m: &Matrix| (m.element, m.rows as u64 * m.columns as u64);
        let (a, b, c) = (values(&product.a), values(&product.b), values(&product.c));
        let mut all = vec![a, b, c];
        if product.add {
            all.push(c);
        }
        let inner = product.a.shape().1 as u64;
        Self { flops: 2 * c.1 * inner, ..Self::of_values(&all) }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.flops += other.flops;
    }
}

/// A point in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub usize);

/// A recorded sequence of launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Graph(pub usize);

/// A device with one stream: operations run in the order of the calls. A later call may return the
/// error of earlier work.
pub trait Device: Send {
    fn properties(&self) -> &Properties;

    /// Returns the free bytes.
    fn free_memory(&self) -> Result<u64>;

    /// Allocates `bytes` bytes, aligned to 256; the error names the requested and the free bytes.
    fn allocate(&mut self, bytes: u64) -> Result<Address>;

    /// Releases memory of [`Device::allocate`].
    fn release(&mut self, at: Address);

    /// Copies to the device. The caller may change `bytes` after this returns.
    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()>;

    /// Copies from the device, after all earlier operations.
    fn download(&mut self, from: Address, into: &mut [u8]) -> Result<()>;

    /// Copies within the device.
    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<()>;

    /// Sets bytes.
    fn fill(&mut self, at: Address, byte: u8, bytes: u64) -> Result<()>;

    /// Names the cost of the next launch, for those who watch a device ([`super::watched`]).
    fn announce(&mut self, _cost: Cost) {}

    /// Runs a kernel.
    fn launch(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()>;

    /// Multiplies matrices. An implementation that can't fuse the epilogue runs it afterwards.
    fn multiply(&mut self, product: &Product) -> Result<()>;

    /// Returns the algorithms that were chosen for products, a line for each; empty if there is no choice.
    fn algorithms(&self) -> Vec<String> {
        Vec::new()
    }

    /// Waits for all operations.
    fn synchronize(&mut self) -> Result<()>;

    /// Marks a point in the stream for measuring times.
    fn mark(&mut self) -> Result<Mark>;

    /// Returns the seconds between two points; waits for the second.
    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64>;

    /// Marks a numbered point of the stream for other streams, also in a recording: then each replay marks it anew.
    fn point(&mut self, point: usize) -> Result<()>;

    /// Returns the event that comes when the stream has passed a marked point, a `CUevent`; 0 if all operations are
    /// complete when a call returns.
    fn event(&self, point: usize) -> Result<u64>;

    /// Starts recording: until [`Device::end_capture`], launches, products, copies within the
    /// device and fills are recorded instead of run. Returns false if the device can't record: then
    /// they run as usual.
    fn begin_capture(&mut self) -> Result<bool>;

    /// Ends recording and returns the recording.
    fn end_capture(&mut self) -> Result<Graph>;

    /// Runs a recording.
    fn replay(&mut self, graph: Graph) -> Result<()>;

    /// Drops a recording.
    fn drop_graph(&mut self, graph: Graph);
}
