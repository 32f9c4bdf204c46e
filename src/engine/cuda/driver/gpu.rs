//! A GPU as a device.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUgraphExec, CUstreamCaptureMode};

use super::api::{Functions, Status};
use super::cache::Cache;
use super::choices::Choices;
use super::context::Context;
use super::lt::description::Description;
use super::lt::{Products, WORKSPACE};
use super::modules::{Lookup, Modules};
use super::points::Points;
use super::probe::Found;
use super::staging::Staging;
use crate::engine::cuda::device::{
    Address, Argument, Device, Epilogue, Graph, Grid, Kernel, Mark, Matrix, Product, Properties,
};
use crate::engine::cuda::kernels::{self, Source};
use crate::engine::cuda::ways::Ways;
use crate::error::{Error, Result};
use crate::memory::format_bytes;

/// Maximum number of marks; older ones are overwritten. The first step of a large model measures the algorithms of all its
/// products, and those of a watched device are read only every few hundred operations.
const MARKS: usize = if cfg!(test) { 1 << 10 } else { 1 << 14 };

/// Operations from which on the algorithms of a product are measured: smaller ones take no longer than their launch.
const MEASURED: u64 = if cfg!(test) { 1_000_000 } else { 100_000_000 };
/// Runs of each algorithm that is measured.
const RUNS: usize = 4;

/// A GPU and everything allocated on it. Fields are dropped in order: users of memory before it,
/// and the context last.
pub struct Gpu {
    recordings: Recordings,
    products: Products,
    choices: Choices,
    ways: Ways,
    modules: Modules,
    staging: Staging,
    marks: Marks,
    points: Points,
    memory: Memory,
    context: Arc<Context>,
    properties: Properties,
}

impl Gpu {
    /// Opens the device with the kernels of [`kernels`], which are compiled at their first launch
    /// and cached for the user.
    pub fn open(found: Found) -> Result<Self> {
        Self::with(found, Cache::of_user(), Source::of)
    }

    pub(super) fn with(found: Found, cache: Cache, lookup: Lookup) -> Result<Self> {
        let properties = found.properties().clone();
        let context = Context::open(found.functions, found.ordinal, properties.name.clone())?;
        let context = Arc::new(context);
        let mut memory = Memory { context: context.clone(), allocated: BTreeMap::new() };
        let workspace = memory.allocate(WORKSPACE)?;
        let lt = found.lt.clone();
        let products = Products::new(context.clone(), lt, workspace)?;
        let choices = cache.choices(&properties.name, &products.library());
        Ok(Self {
            modules: Modules::new(context.clone(), &found, cache, lookup)?,
            products,
            choices: Choices::read(choices),
            ways: Ways::of_process(),
            staging: Staging::new(context.clone()),
            recordings: Recordings {
                context: context.clone(),
                recording: false,
                graphs: Vec::new(),
            },
            marks: Marks { context: context.clone(), events: Vec::new(), next: 0 },
            points: Points::new(context.clone()),
            memory,
            context,
            properties,
        })
    }

    /// Enters the context for an operation that can't be recorded.
    fn enter_now(&self, doing: &str) -> Result<()> {
        if self.recordings.recording {
            return Err(Error::Failed(format!(
                "the GPU was asked to {doing} while launches are recorded"
            )));
        }
        self.context.enter()
    }

    /// Multiplies, with an epilogue only if cuBLASLt supports it.
    fn multiply_plainly(&mut self, product: &Product, description: Description) -> Result<()> {
        let Product { a, b, c, .. } = product;
        if c.rows == 0 || c.columns == 0 {
            return Ok(());
        }
        if a.shape().1 == 0 && !description.bias {
            // An empty sum.
            return match product.add {
                true => Ok(()),
                false => self.clear(c),
            };
        }
        let beta = if product.add { 1.0 } else { 0.0 };
        let bias = match product.epilogue {
            Epilogue::Bias(bias, _) => bias,
            Epilogue::Nothing => Address::NONE,
        };
        let addresses = (b.at, a.at, c.at);
        self.plan(description, addresses, bias)?;
        self.products.multiply(description, addresses, (product.alpha, beta), bias)
    }

    /// Chooses an algorithm for a shape: the one that was kept for it, or the fastest of those that cuBLASLt suggests,
    /// which is kept.
    fn plan(
        &mut self,
        description: Description,
        (left, right, _): (Address, Address, Address),
        bias: Address,
    ) -> Result<()> {
        if self.products.knows(&description) {
            return Ok(());
        }
        let kept = self.ways.algorithms.then(|| self.choices.get(&description)).flatten();
        let all = self.products.plan(&description, kept)?;
        let measured = self.ways.algorithms && description.flops() >= MEASURED;
        if all.len() < 2 || !measured || self.recordings.recording {
            return Ok(());
        }
        // Without room for another result, the first one stays.
        let Ok(scratch) = self.memory.allocate(description.result_bytes()) else {
            return Ok(());
        };
        let (mut best, mut least) = (all[0], f64::INFINITY);
        for algorithm in all {
            self.products.choose(&description, algorithm);
            // An algorithm that fails is not chosen. If the device is lost, the product itself reports it.
            let seconds = self.least_seconds(description, (left, right, scratch), bias);
            if let Ok(seconds) = seconds
                && seconds < least
            {
                (best, least) = (algorithm, seconds);
            }
        }
        self.memory.release(scratch);
        self.products.choose(&description, best);
        self.choices.keep(&description, &best);
        Ok(())
    }

    /// Returns the seconds of the fastest of some runs of a product.
    fn least_seconds(
        &mut self,
        description: Description,
        addresses: (Address, Address, Address),
        bias: Address,
    ) -> Result<f64> {
        let mut least = f64::INFINITY;
        for run in 0..RUNS {
            let from = self.marks.mark()?;
            self.products.multiply(description, addresses, (1.0, 0.0), bias)?;
            let to = self.marks.mark()?;
            // The first one may load the kernel.
            if run > 0 {
                least = least.min(self.marks.seconds(from, to)?);
            }
        }
        Ok(least)
    }

    /// Zeroes a matrix, but not the gaps between its rows.
    fn clear(&self, matrix: &Matrix) -> Result<()> {
        let bytes = matrix.element.bytes() as usize;
        let (pitch, width) = (matrix.stride * bytes, matrix.columns * bytes);
        let reach = matrix.rows.saturating_sub(1).saturating_mul(pitch).saturating_add(width);
        self.memory.check(matrix.at, reach as u64)?;
        let f = &self.context.functions;
        // SAFETY: the matrix lies in one allocation.
        let status = unsafe {
            (f.cuMemsetD2D8Async)(matrix.at.0, pitch, 0, width, matrix.rows, self.context.stream)
        };
        self.context.check(status, "set its memory")
    }
}

impl Device for Gpu {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        self.context.enter()?;
        self.memory.free()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Address> {
        self.enter_now("allocate memory")?;
        self.memory.allocate(bytes)
    }

    fn release(&mut self, at: Address) {
        // A lost device has nothing to release.
        if self.context.enter().is_ok() {
            self.memory.release(at);
        }
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()> {
        self.enter_now("copy from the host")?;
        self.memory.check(to, bytes.len() as u64)?;
        self.staging.upload(to, bytes)
    }

    fn download(&mut self, from: Address, into: &mut [u8]) -> Result<()> {
        self.enter_now("copy to the host")?;
        if into.is_empty() {
            return Ok(());
        }
        self.memory.check(from, into.len() as u64)?;
        let f = &self.context.functions;
        let (to, stream) = (into.as_mut_ptr().cast(), self.context.stream);
        // SAFETY: the buffer and the memory there have this size, and the copy is complete before this returns.
        let status = unsafe { (f.cuMemcpyDtoHAsync_v2)(to, from.0, into.len(), stream) };
        self.context.check(status, "copy from its memory")?;
        self.context.synchronize()
    }

    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<()> {
        self.context.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        self.memory.check(from, bytes)?;
        self.memory.check(to, bytes)?;
        let (f, stream) = (&self.context.functions, self.context.stream);
        // SAFETY: both lie in allocations.
        let status = unsafe { (f.cuMemcpyDtoDAsync_v2)(to.0, from.0, bytes as usize, stream) };
        self.context.check(status, "copy within its memory")
    }

    fn fill(&mut self, at: Address, byte: u8, bytes: u64) -> Result<()> {
        self.context.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        self.memory.check(at, bytes)?;
        let (f, stream) = (&self.context.functions, self.context.stream);
        // SAFETY: the bytes lie in an allocation.
        let status = unsafe { (f.cuMemsetD8Async)(at.0, byte, bytes as usize, stream) };
        self.context.check(status, "set its memory")
    }

    fn launch(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        self.context.enter()?;
        if grid.shared > self.properties.shared {
            return Err(Error::Failed(format!(
                "the kernel {} needs {} bytes of shared memory, but {} has {} per block",
                kernel.name, grid.shared, self.properties.name, self.properties.shared
            )));
        }
        self.modules.launch(kernel, grid, arguments)
    }

    /// A kernel adds a bias of another element than the result's; then the result must have no gaps.
    fn multiply(&mut self, product: &Product) -> Result<()> {
        self.context.enter()?;
        let description = Description::of(product)?;
        let c = &product.c;
        let size = || -> Result<(u32, u32)> {
            let number = |n: usize| u32::try_from(n).ok();
            match (number(c.rows), number(c.columns), c.stride == c.columns) {
                (Some(rows), Some(columns), true) => Ok((rows, columns)),
                _ => Err(Error::Failed(format!("a bias can't be added to {c:?}"))),
            }
        };
        match product.epilogue {
            Epilogue::Nothing => self.multiply_plainly(product, description),
            Epilogue::Bias(..) if description.bias => self.multiply_plainly(product, description),
            Epilogue::Bias(bias, _) => {
                let size = size()?;
                self.multiply_plainly(product, description)?;
                kernels::add_bias(self, c.element, size, c.at, bias)
            }
        }
    }

    fn algorithms(&self) -> Vec<String> {
        self.products.algorithms()
    }

    fn synchronize(&mut self) -> Result<()> {
        self.enter_now("wait")?;
        self.context.synchronize()
    }

    fn mark(&mut self) -> Result<Mark> {
        self.enter_now("measure time")?;
        self.marks.mark()
    }

    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64> {
        self.enter_now("measure time")?;
        self.marks.seconds(from, to)
    }

    fn point(&mut self, point: usize) -> Result<()> {
        self.context.enter()?;
        self.points.record(point, self.recordings.recording)
    }

    fn event(&self, point: usize) -> Result<u64> {
        self.points.event(point)
    }

    fn begin_capture(&mut self) -> Result<bool> {
        self.enter_now("record launches")?;
        self.recordings.begin()?;
        Ok(true)
    }

    fn end_capture(&mut self) -> Result<Graph> {
        self.context.enter()?;
        self.recordings.end()
    }

    fn replay(&mut self, graph: Graph) -> Result<()> {
        self.enter_now("replay a recording")?;
        self.recordings.replay(graph)
    }

    fn drop_graph(&mut self, graph: Graph) {
        if self.context.enter().is_ok() {
            self.recordings.drop_graph(graph);
        }
    }
}

/// Memory of the device.
struct Memory {
    context: Arc<Context>,
    /// The bytes of each allocation, by its address.
    allocated: BTreeMap<u64, u64>,
}

impl Memory {
    fn free(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are valid.
        let status = unsafe { (self.context.functions.cuMemGetInfo_v2)(&mut free, &mut total) };
        self.context.check(status, "report its free memory")?;
        Ok(free as u64)
    }

    /// The driver aligns to 256 bytes or more.
    fn allocate(&mut self, bytes: u64) -> Result<Address> {
        let mut at = 0;
        // SAFETY: the pointer is valid. The driver rejects 0 bytes.
        let status =
            unsafe { (self.context.functions.cuMemAlloc_v2)(&mut at, bytes.max(1) as usize) };
        if Functions::result(status) == Err(Status::OUT_OF_MEMORY) {
            let free = self.free()?;
            return Err(Error::Failed(format!(
                "the GPU has no room for {}: {} of its memory are free",
                format_bytes(bytes),
                format_bytes(free)
            )));
        }
        self.context.check(status, "allocate memory")?;
        self.allocated.insert(at, bytes);
        Ok(Address(at))
    }

    /// Returns an error unless the `bytes` there lie in one allocation. The driver does not check this: it takes
    /// addresses of the host's memory too.
    fn check(&self, at: Address, bytes: u64) -> Result<()> {
        let end = at.0.saturating_add(bytes);
        let before = self.allocated.range(..=at.0).next_back();
        if before.is_none_or(|(start, size)| end > start + size) {
            let at = at.0;
            return Err(Error::Failed(format!(
                "the GPU was asked for {bytes} bytes at {at:#x}, which are in none of its allocations"
            )));
        }
        Ok(())
    }

    fn release(&mut self, at: Address) {
        if self.allocated.remove(&at.0).is_some() {
            // SAFETY: allocated here and released once; the driver waits for operations that use
            // it.
            unsafe { (self.context.functions.cuMemFree_v2)(at.0) };
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        for at in std::mem::take(&mut self.allocated).into_keys() {
            // SAFETY: as above.
            unsafe { (self.context.functions.cuMemFree_v2)(at) };
        }
    }
}

/// Points in the stream: a ring of events.
struct Marks {
    context: Arc<Context>,
    events: Vec<CUevent>,
    next: usize,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Marks {}

impl Marks {
    fn mark(&mut self) -> Result<Mark> {
        let f = &self.context.functions;
        let slot = self.next % MARKS;
        if slot == self.events.len() {
            let mut event = ptr::null_mut();
            // SAFETY: the pointer is valid.
            let status = unsafe { (f.cuEventCreate)(&mut event, 0) };
            self.context.check(status, "create an event")?;
            self.events.push(event);
        }
        // SAFETY: event and stream are alive.
        let status = unsafe { (f.cuEventRecord)(self.events[slot], self.context.stream) };
        self.context.check(status, "mark a time")?;
        self.next += 1;
        Ok(Mark(self.next - 1))
    }

    fn seconds(&self, from: Mark, to: Mark) -> Result<f64> {
        let event = |mark: Mark| {
            let remembered = mark.0 < self.next && mark.0 + MARKS >= self.next;
            let event = remembered.then(|| self.events[mark.0 % MARKS]);
            event.ok_or_else(|| Error::Failed("this mark is too old to measure from".into()))
        };
        let (from, to) = (event(from)?, event(to)?);
        let f = &self.context.functions;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive and recorded, and the pointer is valid.
        let status = unsafe {
            match (f.cuEventSynchronize)(to) {
                0 => (f.cuEventElapsedTime_v2)(&mut milliseconds, from, to),
                status => status,
            }
        };
        self.context.check(status, "measure the time between two marks")?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        for &event in &self.events {
            // SAFETY: created here, destroyed once.
            unsafe { (self.context.functions.cuEventDestroy_v2)(event) };
        }
    }
}

/// Launches recorded as graphs.
struct Recordings {
    context: Arc<Context>,
    recording: bool,
    /// None for a dropped one.
    graphs: Vec<Option<CUgraphExec>>,
}

// SAFETY: graphs may be used from any thread, one at a time.
unsafe impl Send for Recordings {}

impl Recordings {
    fn begin(&mut self) -> Result<()> {
        // Relaxed: a kernel may be compiled and loaded meanwhile.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let f = &self.context.functions;
        // SAFETY: the stream is alive.
        let status = unsafe { (f.cuStreamBeginCapture_v2)(self.context.stream, mode) };
        self.context.check(status, "record launches")?;
        self.recording = true;
        Ok(())
    }

    fn end(&mut self) -> Result<Graph> {
        if !std::mem::take(&mut self.recording) {
            return Err(Error::Failed("nothing is recorded".into()));
        }
        let f = &self.context.functions;
        let (mut graph, mut runnable) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream is alive, and the pointer is valid.
        let status = unsafe { (f.cuStreamEndCapture)(self.context.stream, &mut graph) };
        self.context.check(status, "record launches")?;
        // SAFETY: the graph was just recorded, and is not needed once it is instantiated.
        let status = unsafe {
            let status = (f.cuGraphInstantiateWithFlags)(&mut runnable, graph, 0);
            (f.cuGraphDestroy)(graph);
            status
        };
        self.context.check(status, "instantiate a recording")?;
        self.graphs.push(Some(runnable));
        Ok(Graph(self.graphs.len() - 1))
    }

    fn replay(&self, Graph(index): Graph) -> Result<()> {
        let graph = self.graphs.get(index).copied().flatten();
        let graph = graph.ok_or_else(|| Error::Failed("this recording was dropped".into()))?;
        // SAFETY: graph and stream are alive.
        let status = unsafe { (self.context.functions.cuGraphLaunch)(graph, self.context.stream) };
        self.context.check(status, "replay a recording")
    }

    fn drop_graph(&mut self, Graph(index): Graph) {
        if let Some(graph) = self.graphs.get_mut(index).and_then(Option::take) {
            // SAFETY: created here, destroyed once; the driver waits for a replay in progress.
            unsafe { (self.context.functions.cuGraphExecDestroy)(graph) };
        }
    }
}

impl Drop for Recordings {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        let f = &self.context.functions;
        if self.recording {
            let mut graph = ptr::null_mut();
            // SAFETY: ends the current recording, and destroys its graph.
            unsafe {
                if (f.cuStreamEndCapture)(self.context.stream, &mut graph) == 0 {
                    (f.cuGraphDestroy)(graph);
                }
            }
        }
        for graph in self.graphs.drain(..).flatten() {
            // SAFETY: made here, destroyed once.
            unsafe { (f.cuGraphExecDestroy)(graph) };
        }
    }
}

#[cfg(test)]
mod tests;
