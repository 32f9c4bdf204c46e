//! A device that watches another one launch by launch: it measures the time of each, lists what each costs, or waits
//! after each, so that an error or a hang is that launch's.

use std::mem;
use std::ops::DerefMut;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::device::{
    Address, Argument, Cost, Device, Element, Graph, Grid, Kernel, Mark, Product, Properties,
};
use super::kernels::{squares_partials, sum_of_squares};
use crate::error::{Error, Result};
use crate::note;

/// What is done with each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// Its time is measured; with an address, after its inputs have left the cache: there are [`FLUSH`] bytes.
    Time(Option<Address>),
    /// It is listed with its cost.
    List,
    /// It is printed to stderr before it begins, and waited for.
    Wait,
}

/// Bytes that a measurement reads beforehand: several times the second-level cache of an H200.
pub const FLUSH: u64 = 256 << 20;

/// Measurements after which the times are read: the device remembers only some thousands of marks.
const UNREAD: usize = 400;

/// A kernel's launch, a product, a copy or a fill.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The kernel's name, or the product and its size.
    pub what: String,
    pub cost: Cost,
    /// 0 if it was not measured.
    pub seconds: f64,
}

/// The operations so far; of those that are measured, all before the last [`Device::synchronize`].
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Operation>>>);

impl Log {
    /// Returns the operations and forgets them.
    pub fn take(&self) -> Vec<Operation> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, operation: Operation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(operation);
    }
}

/// The launches of one kernel, or the products of one size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    pub what: String,
    pub count: usize,
    pub cost: Cost,
    pub seconds: f64,
}

/// Adds up operations of the same kind: those that take the longest come first.
pub fn grouped(operations: Vec<Operation>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for Operation { what, cost, seconds } in operations {
        let index = groups.iter().position(|group| group.what == what).unwrap_or(groups.len());
        if index == groups.len() {
            groups.push(Group { what, ..Group::default() });
        }
        let group = &mut groups[index];
        group.count += 1;
        group.cost += cost;
        group.seconds += seconds;
    }
    groups.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    groups
}

impl Group {
    /// Returns a line for users.
    pub fn line(&self) -> String {
        format!(
            "{:<34} {:>4} × {:>8.1} µs = {:>7.2} ms, {:>6.0} GB/s, {:>6.1} TFLOP/s",
            self.what,
            self.count,
            self.seconds * 1e6 / self.count as f64,
            self.seconds * 1e3,
            self.cost.bytes as f64 / self.seconds / 1e9,
            self.cost.flops as f64 / self.seconds / 1e12,
        )
    }

    /// Returns an object for programs.
    pub fn data(&self) -> Value {
        json!({
            "what": self.what,
            "count": self.count,
            "seconds": self.seconds,
            "bytes": self.cost.bytes,
            "flops": self.cost.flops,
        })
    }
}

/// The device and what was seen. It does not record launches: they run one by one.
pub struct Watched<D> {
    device: D,
    /// None while the cache is flushed.
    watch: Option<Watch>,
    log: Log,
    /// That of the next launch.
    cost: Cost,
    /// Whether inputs have been copied to the device since the last flush.
    is_warm: bool,
    /// Operations whose times are not read yet.
    unread: Vec<(Operation, Mark, Mark)>,
}

impl<D> Watched<D>
where
    D: DerefMut + Send,
    D::Target: Device,
{
    /// Watches a device; the log shows what was seen.
    pub fn new(device: D, watch: Watch) -> (Self, Log) {
        let log = Log::default();
        let watched = Self {
            device,
            watch: Some(watch),
            log: log.clone(),
            cost: Cost::default(),
            is_warm: true,
            unread: Vec::new(),
        };
        (watched, log)
    }

    fn watch(
        &mut self,
        what: impl FnOnce() -> String,
        cost: Cost,
        work: impl FnOnce(&mut D::Target) -> Result<()>,
    ) -> Result<()> {
        match self.watch {
            None => work(&mut self.device),
            Some(Watch::List) => {
                self.log.push(Operation { what: what(), cost, seconds: 0.0 });
                work(&mut self.device)
            }
            Some(Watch::Wait) => {
                let what = what();
                note!("{what}");
                let done = work(&mut self.device).and_then(|()| self.device.synchronize());
                done.map_err(|error| Error::Failed(format!("{what}: {error}")))
            }
            Some(Watch::Time(_)) => {
                let from = self.device.mark()?;
                work(&mut self.device)?;
                let to = self.device.mark()?;
                self.unread.push((Operation { what: what(), cost, seconds: 0.0 }, from, to));
                if self.unread.len() == UNREAD { self.read() } else { Ok(()) }
            }
        }
    }

    /// Reads the times of the operations so far.
    fn read(&mut self) -> Result<()> {
        for (operation, from, to) in mem::take(&mut self.unread) {
            let seconds = self.device.seconds(from, to)?;
            self.log.push(Operation { seconds, ..operation });
        }
        Ok(())
    }

    /// Reads memory that nothing else uses, if inputs have been copied to the device.
    fn flush(&mut self) -> Result<()> {
        let Some(Watch::Time(Some(buffer))) = self.watch else {
            return Ok(());
        };
        if !mem::take(&mut self.is_warm) {
            return Ok(());
        }
        let watch = self.watch.take();
        let done = flush(self, buffer);
        self.watch = watch;
        done
    }
}

/// Reads [`FLUSH`] bytes, so that nothing else is in the cache, and nothing waits to be written: what was only written
/// would be written back during the next measurement.
pub fn flush(device: &mut dyn Device, buffer: Address) -> Result<()> {
    // The sum and its scratch are at the end.
    let count = (FLUSH - squares_partials() - 8) / 4;
    let into = buffer.offset(4 * count);
    sum_of_squares(device, Element::F32, count, buffer, into.offset(8), into)
}

impl<D> Device for Watched<D>
where
    D: DerefMut + Send,
    D::Target: Device,
{
    fn properties(&self) -> &Properties {
        self.device.properties()
    }

    fn free_memory(&self) -> Result<u64> {
        self.device.free_memory()
    }

    fn allocate(&mut self, bytes: u64) -> Result<Address> {
        self.device.allocate(bytes)
    }

    fn release(&mut self, at: Address) {
        self.device.release(at);
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()> {
        self.is_warm = true;
        self.device.upload(to, bytes)
    }

    fn download(&mut self, from: Address, into: &mut [u8]) -> Result<()> {
        self.device.download(from, into)
    }

    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<()> {
        let cost = Cost { bytes: 2 * bytes, flops: 0 };
        self.watch(|| "copy".into(), cost, |device| device.copy(from, to, bytes))
    }

    fn fill(&mut self, at: Address, byte: u8, bytes: u64) -> Result<()> {
        let cost = Cost { bytes, flops: 0 };
        self.watch(|| "fill".into(), cost, |device| device.fill(at, byte, bytes))
    }

    fn announce(&mut self, cost: Cost) {
        self.cost = cost;
    }

    fn launch(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        let cost = mem::take(&mut self.cost);
        self.flush()?;
        let what = || kernel.name.to_owned();
        self.watch(what, cost, |device| device.launch(kernel, grid, arguments))
    }

    fn multiply(&mut self, product: &Product) -> Result<()> {
        self.flush()?;
        let what = || {
            let ((m, k), n) = (product.a.shape(), product.b.shape().1);
            let kind = match (product.a.transposed, product.b.transposed) {
                (false, true) => "x Wᵀ",
                (false, false) => "dy W",
                (true, false) => "dyᵀ x",
                (true, true) => "aᵀ bᵀ",
            };
            format!("product {kind} {m}×{k}×{n}")
        };
        self.watch(what, Cost::of_product(product), |device| device.multiply(product))
    }

    fn algorithms(&self) -> Vec<String> {
        self.device.algorithms()
    }

    fn synchronize(&mut self) -> Result<()> {
        self.device.synchronize()?;
        self.read()
    }

    fn mark(&mut self) -> Result<Mark> {
        self.device.mark()
    }

    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64> {
        self.device.seconds(from, to)
    }

    fn point(&mut self, point: usize) -> Result<()> {
        self.device.point(point)
    }

    fn event(&self, point: usize) -> Result<u64> {
        self.device.event(point)
    }

    fn begin_capture(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn end_capture(&mut self) -> Result<Graph> {
        self.device.end_capture()
    }

    fn replay(&mut self, graph: Graph) -> Result<()> {
        self.device.replay(graph)
    }

    fn drop_graph(&mut self, graph: Graph) {
        self.device.drop_graph(graph);
    }
}
