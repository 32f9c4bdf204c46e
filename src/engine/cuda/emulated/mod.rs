//! A device without a GPU, for tests: kernels are compiled by the system's C++ compiler and run
//! thread by thread on the processor (see `emulator.hpp`), the memory detects writes outside of
//! buffers, and products use the CPU engine. Slow, but stricter than a GPU.

mod library;
mod memory;
mod products;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};

use self::library::Library;
use self::memory::Memory;
use super::device::{Address, Argument, Device, Graph, Grid, Kernel, Mark, Product, Properties};

/// Maximum bytes of shared memory of a block: the smallest limit of supported GPUs (sm_86, 89 and
/// 120).
const SHARED: u32 = 99 << 10;
/// Bytes of memory.
const MEMORY: u64 = 8 << 30;

/// An operation that can be recorded.
#[derive(Clone)]
enum Work {
    Launch(Kernel, Grid, Vec<Argument>),
    Multiply(Product),
    Copy(Address, Address, u64),
    Fill(Address, u8, u64),
}

/// What a test does at a point.
#[cfg(test)]
pub type AtPoint = Box<dyn FnMut(&mut dyn Device, usize) + Send>;

/// The emulated device.
pub struct Emulated {
    properties: Properties,
    memory: Memory,
    marks: Vec<Instant>,
    /// The points that were marked, also in recordings.
    points: HashSet<usize>,
    /// Called at each point outside of recordings.
    #[cfg(test)]
    pub at_point: Option<AtPoint>,
    /// The operations recorded since [`Device::begin_capture`].
    recording: Option<Vec<Work>>,
    graphs: Vec<Option<Vec<Work>>>,
}

impl Emulated {
    /// Opens the device; returns an error without a C++ compiler.
    pub fn new() -> Result<Self> {
        Self::with_memory(MEMORY)
    }

    /// Opens the device with this many bytes of memory.
    pub fn with_memory(memory: u64) -> Result<Self> {
        library::compiler()?;
        Ok(Self {
            properties: Properties {
                name: "kernels emulated on the processor".to_owned(),
                capability: (9, 0),
                multiprocessors: 4,
                memory,
                bandwidth: 1e9,
                shared: SHARED,
                driver: 0,
            },
            memory: Memory::default(),
            marks: Vec::new(),
            points: HashSet::new(),
            #[cfg(test)]
            at_point: None,
            recording: None,
            graphs: Vec::new(),
        })
    }

    /// Runs or records an operation.
    fn run_or_record(&mut self, work: Work) -> Result<()> {
        match &mut self.recording {
            Some(recording) => {
                recording.push(work);
                Ok(())
            }
            None => self.perform(&work),
        }
    }

    fn perform(&mut self, work: &Work) -> Result<()> {
        match work {
            Work::Launch(kernel, grid, arguments) => self.run(*kernel, *grid, arguments),
            Work::Multiply(product) => products::multiply(&self.memory, product),
            Work::Copy(from, to, bytes) => {
                let from = self.memory.at(*from, *bytes)?;
                let to = self.memory.at(*to, *bytes)?;
                // SAFETY: both addresses have that many bytes; they may overlap.
                unsafe { std::ptr::copy(from, to, *bytes as usize) };
                Ok(())
            }
            Work::Fill(at, byte, bytes) => {
                let at = self.memory.at(*at, *bytes)?;
                // SAFETY: the address has that many bytes.
                unsafe { at.write_bytes(*byte, *bytes as usize) };
                Ok(())
            }
        }
    }

    fn run(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        let name = kernel.name;
        if grid.shared > SHARED {
            return Err(Error::Failed(format!(
                "kernel {name} needs {} bytes of shared memory; a block has {SHARED}",
                grid.shared
            )));
        }
        if grid.threads == 0 || grid.threads > 1024 || grid.blocks.contains(&0) {
            return Err(Error::Failed(format!(
                "kernel {name} can't run as {:?} blocks of {} threads",
                grid.blocks, grid.threads
            )));
        }
        // As on a GPU, only the first axis may be long.
        if grid.blocks[1] > 65_535 || grid.blocks[2] > 65_535 {
            return Err(Error::Failed(format!(
                "kernel {name} has too many blocks: {:?}",
                grid.blocks
            )));
        }
        for argument in arguments {
            if let Argument::Address(at) = argument
                && *at != Address::NONE
            {
                self.memory.at(*at, 0)?;
            }
        }
        let library: Arc<Library> = library::of(kernel)?;
        library.launch(name, grid, arguments)
    }

    fn idle(&self, what: &str) -> Result<()> {
        match self.recording {
            Some(_) => Err(Error::Failed(format!("{what} can't be recorded"))),
            None => Ok(()),
        }
    }
}

impl Device for Emulated {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_memory(&self) -> Result<u64> {
        Ok(self.properties.memory - self.memory.used())
    }

    fn allocate(&mut self, bytes: u64) -> Result<Address> {
        let free = self.properties.memory - self.memory.used();
        if bytes > free {
            return Err(Error::Failed(format!(
                "out of device memory: asked for {bytes} bytes, {free} are free"
            )));
        }
        Ok(self.memory.allocate(bytes))
    }

    fn release(&mut self, at: Address) {
        self.memory.release(at);
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<()> {
        self.idle("an upload")?;
        let to = self.memory.at(to, bytes.len() as u64)?;
        // SAFETY: the address has that many bytes, and overlaps no slice of the host.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn download(&mut self, from: Address, into: &mut [u8]) -> Result<()> {
        self.idle("a download")?;
        self.memory.check()?;
        let from = self.memory.at(from, into.len() as u64)?;
        // SAFETY: as in an upload.
        unsafe { from.copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<()> {
        self.run_or_record(Work::Copy(from, to, bytes))
    }

    fn fill(&mut self, at: Address, byte: u8, bytes: u64) -> Result<()> {
        self.run_or_record(Work::Fill(at, byte, bytes))
    }

    fn launch(&mut self, kernel: Kernel, grid: Grid, arguments: &[Argument]) -> Result<()> {
        self.run_or_record(Work::Launch(kernel, grid, arguments.to_vec()))
    }

    fn multiply(&mut self, product: &Product) -> Result<()> {
        self.run_or_record(Work::Multiply(*product))
    }

    fn synchronize(&mut self) -> Result<()> {
        self.idle("waiting")?;
        self.memory.check()
    }

    fn mark(&mut self) -> Result<Mark> {
        self.idle("a point in time")?;
        self.marks.push(Instant::now());
        Ok(Mark(self.marks.len() - 1))
    }

    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64> {
        match (self.marks.get(from.0), self.marks.get(to.0)) {
            (Some(from), Some(to)) => Ok((*to - *from).as_secs_f64()),
            _ => Err(Error::Failed("times between unknown points".to_owned())),
        }
    }

    fn point(&mut self, point: usize) -> Result<()> {
        self.points.insert(point);
        #[cfg(test)]
        if self.recording.is_none()
            && let Some(mut observe) = self.at_point.take()
        {
            observe(self, point);
            self.at_point = Some(observe);
        }
        Ok(())
    }

    fn event(&self, point: usize) -> Result<u64> {
        match self.points.contains(&point) {
            true => Ok(0),
            false => Err(Error::Failed(format!("the point {point} was never marked"))),
        }
    }

    fn begin_capture(&mut self) -> Result<bool> {
        self.idle("a recording")?;
        self.recording = Some(Vec::new());
        Ok(true)
    }

    fn end_capture(&mut self) -> Result<Graph> {
        match self.recording.take() {
            Some(recording) => {
                self.graphs.push(Some(recording));
                Ok(Graph(self.graphs.len() - 1))
            }
            None => Err(Error::Failed("nothing is being recorded".to_owned())),
        }
    }

    fn replay(&mut self, graph: Graph) -> Result<()> {
        self.idle("a replay")?;
        let Some(recording) = self.graphs.get_mut(graph.0).and_then(Option::take) else {
            return Err(Error::Failed("an unknown recording".to_owned()));
        };
        let result = recording.iter().try_for_each(|work| self.perform(work));
        self.graphs[graph.0] = Some(recording);
        result
    }

    fn drop_graph(&mut self, graph: Graph) {
        if let Some(recording) = self.graphs.get_mut(graph.0) {
            *recording = None;
        }
    }
}

/// Opens the device for a test; prints a note and returns None without a C++ compiler.
#[cfg(test)]
pub fn for_tests() -> Option<Emulated> {
    match Emulated::new() {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("not tested: {error}");
            None
        }
    }
}
